"""An answer as Slack shows it: the text in parts, then sources, what is missing, cost, buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bot.cite import CITED, defused, ids_in
from bot.markdown import harmless, lines, segments, tidy
from bot.split import split
from config.settings import Reply
from scopes.tool import one_line

Block = dict[str, Any]
Json = Mapping[str, Any]

MAX_MARKDOWN = 12_000
"""Characters of all markdown blocks of a message (docs.slack.dev, markdown block)."""
MAX_MESSAGE = 12_900
"""Characters of all blocks; Slack refuses from about 13,200 on (slackapi/bolt-js#2509)."""
MAX_TABLE = 9_900
"""Characters of the cells of a message's table; Slack allows 10,000."""
MAX_SOURCES = 8
MAX_NOT_COVERED = 5
MAX_URL = 500

FEEDBACK = "answer_feedback"
"""Action id of the feedback buttons: they are one element, so they share it."""
FEEDBACK_GOOD, FEEDBACK_BAD = "good", "bad"
"""What `clicked` tells of their two values."""

NOTHING = "There is no answer: nothing was written."
CANCELLED = "Stopped as asked. This is what there was until then."
STOPPED = {
    "cost": "The budget of this request was used up before it was finished.",
    "time": "The time for this request was over before it was finished.",
    "tokens": "This request was longer than it may be and was ended early.",
    "steps": "This request took more steps than it may and was ended early.",
    "rate_limit": "The language model could take no more calls, so this was ended early.",
    "model_error": "The language model failed, so this was ended early.",
    "tool_error": "Something went wrong inside, so this was ended early.",
    "invalid_output": "The language model's answer could not be used.",
}
FAILED = "This request could not be answered."
PARTIAL = "This answer is not complete."
DEGRADED = "One context read everything here: isolation is advisory for this answer."


@dataclass(frozen=True, slots=True)
class Part:
    """One message."""

    text: str
    """For notifications, search and clients that show no blocks."""
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Rendered:
    """An answer in messages: the first replaces the reply's message, the others follow it."""

    parts: tuple[Part, ...]
    streamed_text: str
    """The markdown of the first part, which a stream of it should show in the end."""


@dataclass
class _Numbers:
    """Citations as numbers, in the order in which they first occur."""

    links: Mapping[str, Sequence[str]]
    given: dict[str, int] = field(default_factory=dict)

    def put(self, text: str, code: bool) -> str:
        """The text with its citations as links, or as bare numbers where a link cannot be."""
        apart = text if code else re.sub(r"\](?=\[F\d+\.\d)", "] ", text)
        return CITED.sub(lambda m: " ".join(self._one(i, code) for i in ids_in(m[0])), apart)

    def _one(self, finding: str, code: bool) -> str:
        number = self.given.setdefault(finding, len(self.given) + 1)
        url = "" if code else self.url(finding)
        return f"[{number}]({url})" if url else f"[{number}]"

    def url(self, finding: str) -> str:
        return next(filter(None, map(_address, self.links.get(finding) or ())), "")


def linked(text: str, links: Mapping[str, Sequence[str]]) -> str:
    """A text as Slack may show it: citations are numbered links, nothing else in it acts."""
    return _linked(text, _Numbers(links))


def _linked(text: str, numbers: _Numbers) -> str:
    return "".join(numbers.put(piece, code) for code, piece in segments(harmless(text)))


def live(text: str, links: Mapping[str, Sequence[str]], settings: Reply) -> str:
    """What can be shown of an answer that is still being written.

    As long as the answer fits into one message, its `streamed_text` begins with this: a table, a
    fence's first line or a word that may still become a mark of Slack's is held back.
    """
    shown = tidy(linked(_settled(text.lstrip()), links), settings.message_chars, whole=False)
    if len(shown) <= settings.message_chars:
        return shown
    return shown[: shown.rfind("\n", 0, settings.message_chars) + 1]


UNSURE = re.compile(r"[<`\[|~@!]")
"""What may begin a mark of markdown or of Slack that its line has yet to end."""


def _settled(text: str) -> str:
    start = text.rfind("\n") + 1
    masked = CITED.sub(lambda m: "x" * len(m[0]), text[start:])
    unsure = UNSURE.search(masked)
    kept = text[: start + unsure.start()] if unsure else text
    return kept[: _open_table(kept)].rstrip()


def _open_table(text: str) -> int:
    """Where a table at the end begins that may go on; the length of the text if there is none."""
    at = len(text)
    for line in reversed(lines(text)):
        if line.end or "|" not in line.text:
            break
        at = line.start
    return at


def answer(document: Json, key: str, settings: Reply, seconds: float) -> Rendered:
    """The answer of `bot.parent.Ask` to the request `key`; `seconds` is what it took."""
    numbers = _Numbers(document["links"])
    text = _linked(str(document["answer"]).strip() or NOTHING, numbers)
    limit = min(settings.message_chars, MAX_MARKDOWN)
    text = tidy(text, limit)
    if any(line.kind == "header" for line in lines(text)):
        limit = min(limit, MAX_TABLE)
    foot = [_context(said) for said in _foot(document, numbers, seconds)] + [_feedback(key)]
    bodies = _bodies(text, limit, MAX_MESSAGE - size(foot))
    parts = [Part(_plain(body), (_markdown(body),)) for body in bodies]
    parts[-1] = Part(parts[-1].text, (*parts[-1].blocks, *foot))
    return Rendered(tuple(parts), bodies[0])


def sentence(text: str, reference: str = "") -> Rendered:
    """One plain sentence as a whole reply, with the id by which the trouble can be looked up."""
    said = harmless(text.strip() or FAILED)[: MAX_MARKDOWN // 4]
    foot = [_context(f"Reference: {_mrkdwn(reference)}")] if reference else []
    return Rendered((Part(_plain(said), (_markdown(said), *foot)),), said)


def size(blocks: Sequence[Block]) -> int:
    """Characters that blocks show, as Slack counts them for a message."""
    texts = [b.get("text", "") for b in blocks]
    texts += [e["text"] for b in blocks for e in b.get("elements", ()) if e["type"] == "mrkdwn"]
    return sum(map(len, texts))


def clicked(value: str) -> tuple[str, str] | None:
    """The request key and `good` or `bad`, of a feedback button's value; None if it is not one."""
    verdict, _, key = value.partition(":")
    return (key, verdict) if key and verdict in (FEEDBACK_GOOD, FEEDBACK_BAD) else None


def _bodies(text: str, limit: int, last: int) -> list[str]:
    """The text in parts; the last one leaves room for what stands below it."""
    parts = split(text, limit)
    if len(parts[-1]) > last:
        parts[-1:] = split(parts[-1], last)
    return [bare for part in parts if (bare := part.strip("\n")).strip()] or [NOTHING]


def _foot(document: Json, numbers: _Numbers, seconds: float) -> Iterator[str]:
    if how := _ended(document):
        yield f"*{how}*"
    if numbers.given:
        yield "\n".join(_sources(document, numbers))
    if missing := list(_missing(document)):
        yield "\n".join(missing)
    yield _cost(document, seconds)


def _ended(document: Json) -> str:
    status, stopped = document["status"], document["stopped_by"]
    if status == "cancelled":
        return CANCELLED
    if status == "complete":
        return ""
    return STOPPED.get(stopped) or (FAILED if status == "failed" else PARTIAL)


EARLIER = "from an earlier answer"


def _sources(document: Json, numbers: _Numbers) -> Iterator[str]:
    claims = {f["id"]: f["claim"] for r in document["subagents"] for f in r["findings"]}
    yield "*Sources*"
    for finding, number in list(numbers.given.items())[:MAX_SOURCES]:
        url = numbers.url(finding).replace("&", "&amp;")
        mark = f"<{url}|[{number}]>" if url else f"[{number}]"
        more = len(numbers.links.get(finding) or ()) - 1
        count = f" (and {more} more)" if more > 0 else ""
        yield f"{mark} {_mrkdwn(_short(claims.get(finding, EARLIER), 70))}{count}".rstrip()
    if (left := len(numbers.given) - MAX_SOURCES) > 0:
        yield f"and {left} more, linked in the text"


def _missing(document: Json) -> Iterator[str]:
    cover = document["coverage"]
    gaps = cover["not_covered"]
    undone = [f"{cover[s]} {s}" for s in ("partial", "failed", "cancelled", "refused") if cover[s]]
    if gaps or undone:
        of = f" ({', '.join(undone)} of {_count(cover['items'], 'subagent')})" if undone else ""
        yield f"*Not covered*{of}"
    yield from (f"• {_mrkdwn(_short(gap, 200))}" for gap in gaps[:MAX_NOT_COVERED])
    if len(gaps) > MAX_NOT_COVERED:
        yield f"• and {len(gaps) - MAX_NOT_COVERED} more"
    if dropped := document["unsupported"]:
        yield f"{_count(dropped, 'statement')} left out because no source carries it."
    if document["degraded"]:
        yield DEGRADED


def _cost(document: Json, seconds: float) -> str:
    cost = document["cost_usd"]
    price = "price unknown" if cost is None else f"${cost:.3f}"
    if document["model"] == "offline":
        price += " at list prices, offline model: nothing was paid"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    took = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    parts = [_count(document["coverage"]["items"], "subagent"), price, took]
    return f"{', '.join(parts)} · run {_mrkdwn(str(document['run_id']))}"


def _feedback(key: str) -> Block:
    def button(words: str, verdict: str) -> Block:
        return {"text": {"type": "plain_text", "text": words}, "value": f"{verdict}:{key}"}

    buttons = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": button("Good answer", FEEDBACK_GOOD),
        "negative_button": button("Bad answer", FEEDBACK_BAD),
    }
    return {"type": "context_actions", "elements": [buttons]}


def _markdown(text: str) -> Block:
    return {"type": "markdown", "text": text}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text[:2900]}]}


def _address(url: str) -> str:
    """The address as it may stand in a link; empty where it is none."""
    if not re.match(r"https?://", url) or len(url) > MAX_URL:
        return ""
    return re.sub(r"[\s()<>|\"\\`*\[\]]", lambda m: f"%{ord(m[0]):02X}", url)


def _plain(text: str) -> str:
    """Markdown for where only text is shown: without the addresses of citations."""
    return re.sub(r"\[(\d+)\]\(https?://[^()\s]*\)", r"[\1]", text)


def _mrkdwn(text: str) -> str:
    """A text that others wrote, as a part of a line that code writes."""
    calm = one_line(re.sub(r"@(?=\w)", "@\N{WORD JOINER}", defused(text, "")))
    return calm.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _short(text: str, length: int) -> str:
    flat = one_line(text)
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
