"""The offline mind as a parent agent: what it looks up, whom it asks, and what it then writes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.local.mind import earlier as mind_earlier
from bot.local.mind import hello as mind_hello
from bot.local.mind import post as mind_post
from bot.local.mind import reports as mind_reports
from bot.local.mind import schedule as mind_schedule
from bot.local.mind.calls import use
from bot.local.mind.cues import asked_for, fold, spoken, without
from bot.local.mind.file import about_files
from bot.local.mind.hearing import Heard, sections
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.request import (
    GLOB,
    Asked,
    Question,
    fitting,
    listed_channels,
    matching,
    name_words,
    read_request,
    subject_words,
)
from bot.local.mind.search import keywords
from bot.local.mind.talk import say
from bot.local.mind.tracker import tracked_lines
from bot.local.mind.views import parse_views, top_lines
from bot.local.mind.written import (
    DELEGATING,
    MAX_LINES,
    Section,
    about_channel,
    lines_of,
    shown,
    swept,
    told_of,
    views_by_item,
    views_of,
    written,
)
from bot.local.model.answer import Answer

MAX_CHANNELS = 5
"""Most channels that a question which names none is taken to."""
MAX_SWEPT = 24
"""Most channels that are read one by one; the others are named."""
_THREAD = re.compile(r"\b([CGD][A-Z0-9]{2,}/\d+\.\d+)|/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
_PERSON = re.compile(r"@?([A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)*|U[A-Z0-9]{6,})\s*\??$")


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


def answer_as_parent(heard: Heard) -> Answer:
    """The parent's next turn: direct look-ups, subagents, or the answer."""
    told = "\n".join(heard.opening)
    if "WRITE: top lines" in told:
        return _say(_top(told, heard))
    asked = read_request(heard)
    free = bool(heard.tools) and not heard.must_end
    if turn := mind_schedule.turn(asked.text, heard, free):
        return Answer(list(turn.calls)) if turn.calls else _say(f"{turn.text}\n\n{OFFLINE}")
    if report := mind_reports.turn(asked.text, heard, free):
        if report.calls:
            return Answer(list(report.calls))
        over = report.text == mind_reports.NOTHING_TO_ADD
        return _say(report.text if over else f"{report.text}\n\n{OFFLINE}")
    if order := mind_post.order(asked.text):
        calls = [] if heard.exchanges or not free else mind_post.calls(order, heard)
        return Answer(calls) if calls else _say(f"{mind_post.told(heard)}\n\n{OFFLINE}")
    return _conversing(asked, heard, free) or _working(asked, heard, free)


def _top(told: str, heard: Heard) -> str:
    parts: list[tuple[str, str]] = []
    name = ""
    for key, body in sections(told):
        if key == "SECTION":
            name, _, body = body.partition("\n")
            parts.append((name.strip(), body))
    said = top_lines(parts, heard.section("LANGUAGE") or "en")
    found = [f for _, views in parts for view in parse_views(views) for f in view.findings]
    return "\n".join([said, *tracked_lines(heard, found)])


def _conversing(asked: Asked, heard: Heard, free: bool) -> Answer | None:
    """What needs no subagent: a greeting, a file, more about an earlier finding."""
    calls = {exchange.name for exchange in heard.exchanges}
    text = ""
    if heard.files and not any(q.sources or q.every for q in asked.questions):
        text = about_files(heard.files, asked.text, asked.language)
    elif mind_hello.greets(asked):
        if free and "list_channels" in heard.tools - calls:
            return Answer([use("list_channels")])
        text = mind_hello.hello(asked, heard)
    elif mind_hello.thanks(asked):
        text = say(asked.language, "welcome")
    elif said := _this_thread(asked, heard):
        text = said
    elif found := mind_earlier.pick(asked, heard):
        where = found.finding.where if found.finding else ""
        if where and free and "read_thread" in heard.tools - calls:
            return Answer([use("read_thread", thread=where)])
        text = mind_earlier.told(found, heard, asked.language)
    return _say(f"{text}\n\n{OFFLINE}") if text else None


def _this_thread(asked: Asked, heard: Heard) -> str:
    """Who said what in the thread that the request stands in, if that is what it asks for."""
    folded = fold(asked.text)
    if not spoken("thread", folded) or asked_for(folded):
        return ""
    return "\n".join(mind_earlier.said_in(heard.block("CONVERSATION"), asked.language))


def _working(asked: Asked, heard: Heard, free: bool) -> Answer:
    if free and (calls := _calls(asked, heard)):
        return Answer(calls)
    parts = [part for question in asked.questions for part in _sections(question, asked, heard)]
    if heard.files:
        names = ", ".join(file.name for file in heard.files)
        about = about_files(heard.files, asked.text, asked.language)
        parts.append(Section(f"**{names}**:", (about,)))
    return _say(written(parts, heard, asked.language))


def _calls(asked: Asked, heard: Heard) -> list[dict[str, Any]]:
    """What to do next: look-ups and subagents that no earlier turn has asked for."""
    called = [exchange.name for exchange in heard.exchanges]
    if any(name in DELEGATING for name in called):
        return []
    direct = [_direct(question, asked) for question in asked.questions]
    open_ones = [q for q, call in zip(asked.questions, direct, strict=True) if call is None]
    calls = [call for call in direct if call and call["name"] in heard.tools and not called]
    if not open_ones or "run_subagent" not in heard.tools:
        return calls
    unnamed = [question for question in open_ones if not _named(question, asked)]
    if unnamed and not called and "list_channels" in heard.tools:
        listing = use("list_channels")
        return [*(call for call in calls if call != listing), listing]
    return calls + [call for question in open_ones for call in _delegated(question, asked, heard)]


def _direct(question: Question, asked: Asked) -> dict[str, Any] | None:
    """The one look-up that answers the question, if there is one."""
    if question.scope != "slack":
        return None
    if thread := _THREAD.search(question.text):
        item = thread[1] or f"{thread[2]}/{thread[3]}.{thread[4]}"
        return use("read_thread", thread=item)
    wanted = asked_for(fold(question.text))
    if "person" in wanted and (person := _PERSON.search(question.text.strip())):
        return use("lookup_user", user=person[1])
    if "channels" in wanted and not question.sources and not question.every:
        return use("list_channels")
    return None


def _named(question: Question, asked: Asked) -> tuple[str, ...]:
    """The sources that a question gives without a look at the list of channels."""
    if question.sources or question.every:
        return question.sources
    subject = keywords(" ".join(subject_words(question.text)))
    return (asked.here,) if asked.here and not any(subject) else ()


def _chosen(question: Question, asked: Asked, heard: Heard) -> list[str]:
    """Where to look: as named, else by the names and topics listed, else where it was asked."""
    if named := _named(question, asked):
        return list(named)
    channels = listed_channels(heard)
    if question.every:
        return matching(question, channels)
    here = [asked.here] if asked.here else []
    return (fitting(question, channels) or here or list(channels))[:MAX_CHANNELS]


def _delegated(question: Question, asked: Asked, heard: Heard) -> list[dict[str, Any]]:
    sources = _chosen(question, asked, heard)
    if not sources:
        return []
    if question.every:
        return [_over(question, sources[:MAX_SWEPT], heard, asked.language)]
    if question.scope != "slack":
        return [_brief(question.task, sources, asked.language, question.scope)]
    if len(question.sources) > 1:
        tasks = [(question.task_of(s, asked.title(s)), [s]) for s in sources]
    else:
        tasks = [(question.task, sources)]
    return [_brief(task, handles, asked.language) for task, handles in tasks]


def _brief(
    task: str, handles: Sequence[str], language: str, scope: str = "slack"
) -> dict[str, Any]:
    return use(
        "run_subagent",
        task=task,
        description=" ".join(task.split()[:6])[:120],
        scope=scope,
        handles=list(handles),
        contract="answer",
        **_output(language),
    )


def _output(language: str) -> dict[str, str]:
    return {} if language == "en" else {"output": f"Language: {language}"}


def _over(
    question: Question, channels: Sequence[str], heard: Heard, language: str
) -> dict[str, Any]:
    """The same task for each channel: every issue, or what the question asks for."""
    wide = _sweeps(question, heard)
    template = {
        "task": "Find what is open or broken in {item}." if wide else _each(question, heard),
        "description": "{item}",
        "scope": "slack",
        "contract": "issues" if wide else "answer",
        **_output(language),
    }
    return use("run_subagents", items=list(channels), template=template)


def _each(question: Question, heard: Heard) -> str:
    """The question without what it says of channels, for `{item}`."""
    text = without("every", fold(GLOB.sub(" ", question.task)))
    parts = name_words(listed_channels(heard).values())
    words = [word for word in text.split() if word.strip("?!.,:-") not in parts]
    return f"{' '.join(words).rstrip('?')} ({{item}})"


def _sweeps(question: Question, heard: Heard) -> bool:
    """Whether a question about many channels asks for all that is open or broken."""
    words = subject_words(question.text) - name_words(listed_channels(heard).values())
    wanted = asked_for(fold(question.text)) - {"act", "open", "channels"}
    return not wanted and not any(keywords(" ".join(words)))


def _sections(question: Question, asked: Asked, heard: Heard) -> list[Section]:
    """What the answer says to one question: a section for each of the channels it names."""
    language, head = asked.language, f"*{' '.join(question.text.split())}*"
    if direct := _direct(question, asked):
        told = [shown(e, language) for e in heard.exchanges if e.name == direct["name"]]
        return [Section(head, tuple(told))]
    sources = _chosen(question, asked, heard)
    names = {key: f"#{name}" for key, (name, _) in listed_channels(heard).items()}
    if question.every:
        return _many(question, sources, names, heard, language)
    if question.scope != "slack":
        back = views_of(question.task, ", ".join(sources), heard, language)
        return [Section(head, told_of(back, language))]
    if len(question.sources) > 1:
        read = {asked.title(s): question.task_of(s, asked.title(s)) for s in sources}
        views = {title: views_of(task, title, heard, language) for title, task in read.items()}
        return [about_channel(t, own, language, len(views)) for t, own in views.items()]
    titles = ", ".join(names.get(source, asked.title(source)) for source in sources)
    lines = lines_of(views_of(question.task, titles, heard, language), language, MAX_LINES)
    if lines and not question.sources:
        lines += (say(language, "looked", titles),)
        lines += () if any("[F" in line for line in lines) else (say(language, "hint"),)
    return [Section(head, lines)]


def _many(
    question: Question,
    sources: Sequence[str],
    names: Mapping[str, str],
    heard: Heard,
    language: str,
) -> list[Section]:
    """The sections of a question about all channels, or about those that a pattern fits."""
    if not sources:
        known = ", ".join(list(names.values())[:MAX_SWEPT]) or "-"
        return [Section(f"*{question.text}*", (say(language, "no_match", known),))]
    views = {names[key]: own for key, own in views_by_item(heard).items()}
    left = ", ".join(names[key] for key in sources if names[key] not in views)
    rest = [Section("", (say(language, "left_out", left),))] if left else []
    if _sweeps(question, heard):
        return [swept(views, language), *rest]
    return [*(about_channel(name, own, language, len(views)) for name, own in views.items()), *rest]
