"""An answer as Slack shows it: the text in parts, then sources, what is missing, cost, buttons."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.replies import rich
from bot.replies.cite import Links, inert
from bot.replies.markdown import harmless, lines, tidy
from bot.replies.prose import Numbers, Prose
from bot.replies.split import split
from config.settings import Reply
from scopes.clean import printable, redacted
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
    below: tuple[Block, ...] = ()
    """What stands below the text of the first part; these are the last of its blocks."""


def answer(
    document: Json, key: str, settings: Reply, seconds: float, requester: str = ""
) -> Rendered:
    """The answer of `bot.parent.Ask` to the request `key`; `seconds` is what it took.

    `requester` is the id of the user who may be mentioned in it.
    """
    prose = Prose(document["links"], settings, str(document.get("question") or ""), requester)
    numbers = Numbers(document["links"])
    text = prose.linked(str(document["answer"]).strip() or NOTHING, numbers)
    foot = [_context(said) for said in _foot(document, numbers, seconds)] + [feedback(key)]
    return _rendered(cut(text, settings, MAX_MESSAGE - size(foot)), prose, tuple(foot))


def _rendered(bodies: Sequence[str], prose: Prose, foot: tuple[Block, ...]) -> Rendered:
    links = prose.allowed()
    parts = [
        Part(prose.streamed(_plain(body)), rich.blocks(body, links, prose.requester))
        for body in bodies
    ]
    parts[-1] = Part(parts[-1].text, (*parts[-1].blocks, *foot))
    return Rendered(tuple(parts), prose.streamed(bodies[0]), foot if len(parts) == 1 else ())


def sentence(text: str, reference: str = "") -> Rendered:
    """One plain sentence as a whole reply, with the id by which the trouble can be looked up."""
    clean = Links().defused(redacted(printable(text.strip())))
    said = harmless(clean or FAILED)[: MAX_MARKDOWN // 4]
    foot = [_context(f"Reference: {_mrkdwn(reference)}")] if reference else []
    part = Part(inert(said), (*rich.blocks(said, Links()), *foot))
    return Rendered((part,), inert(said), tuple(foot))


def message(text: str, request: str, settings: Reply, by: str = "") -> tuple[Part, ...]:
    """A text that a tool posts: addresses act only where they stand in `request`.

    `by` is the user for whom: readers are to know who speaks.
    """
    foot = (_context(f"For <@{by}>"),) if by else ()
    prose = Prose({}, settings, request, "")
    linked = prose.linked(text.strip() or NOTHING, Numbers({}))
    return _rendered(cut(linked, settings, MAX_MESSAGE - size(foot)), prose, foot).parts


def size(blocks: Sequence[Block]) -> int:
    """Characters that blocks show, as Slack counts them for a message."""
    return sum(map(_size, blocks))


def _size(value: Any) -> int:
    if isinstance(value, Mapping):
        own = [value.get("text"), value.get("title")]
        own += [value.get("url")] if value.get("type") == "link" else []
        inner = sum(_size(each) for each in value.values() if isinstance(each, Mapping | list))
        return inner + sum(len(each) for each in own if isinstance(each, str))
    return sum(map(_size, value)) if isinstance(value, list) else 0


def clicked(value: str) -> tuple[str, str] | None:
    """The request key and `good` or `bad`, of a feedback button's value; None if it is not one."""
    verdict, _, key = value.partition(":")
    return (key, verdict) if key and verdict in (FEEDBACK_GOOD, FEEDBACK_BAD) else None


def cut(text: str, settings: Reply, last: int) -> list[str]:
    """The text of `Prose.linked` in parts; the last one has at most `last` characters."""
    limit = min(settings.message_chars, MAX_MARKDOWN)
    text = tidy(text, limit)
    if any(line.kind == "header" for line in lines(text)):
        limit = min(limit, MAX_TABLE)
    parts = split(text, limit)
    if len(parts[-1]) > last:
        parts[-1:] = split(parts[-1], last)
    return [bare for part in parts if (bare := part.strip("\n")).strip()] or [NOTHING]


def _foot(document: Json, numbers: Numbers, seconds: float) -> Iterator[str]:
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


def _sources(document: Json, numbers: Numbers) -> Iterator[str]:
    found = [f for r in document["subagents"] for f in r["findings"]]
    claims = {f["id"]: f["claim"] for f in found}
    queries = {f["id"]: query for f in found for query in (f.get("queries") or [])[:1]}
    own = document.get("looked_up") or {}
    yield "*Sources*"
    for finding, number in list(numbers.given.items())[:MAX_SOURCES]:
        url = numbers.url(finding).replace("&", "&amp;")
        mark = f"<{url}|[{number}]>" if url else f"[{number}]"
        more = len(numbers.links.get(finding) or ()) - 1
        count = f" (and {more} more)" if more > 0 else ""
        said = _looked_up(own[finding], url) if finding in own else claims.get(finding, EARLIER)
        query = f" · {_said(queries[finding], 100)}" if finding in queries else ""
        yield f"{mark} {_said(said, 70)}{count}{query}".rstrip()
    if (left := len(numbers.given) - MAX_SOURCES) > 0:
        yield f"and {left} more, linked in the text"


def _looked_up(item: Json, url: str) -> str:
    """No quote of it was checked, as those of findings are."""
    return f"looked up: {item['text']}" if url else f"{item['item']}, looked up: {item['text']}"


def _missing(document: Json) -> Iterator[str]:
    cover = document["coverage"]
    gaps = cover["not_covered"]
    undone = [f"{cover[s]} {s}" for s in ("partial", "failed", "cancelled", "refused") if cover[s]]
    if gaps or undone:
        of = f" ({', '.join(undone)} of {_count(cover['items'], 'subagent')})" if undone else ""
        yield f"*Not covered*{of}"
    yield from (f"• {_said(gap, 200)}" for gap in gaps[:MAX_NOT_COVERED])
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
    subagents, own = document["coverage"]["items"], document["coverage"].get("looked_up")
    read = [_count(subagents, "subagent")] if subagents else []
    read += [f"{_count(own, 'item')} looked up"] if own else []
    return f"{', '.join([*read, price, took])} · run {_mrkdwn(str(document['run_id']))}"


def feedback(key: str) -> Block:
    def button(words: str, verdict: str) -> Block:
        return {"text": {"type": "plain_text", "text": words}, "value": f"{verdict}:{key}"}

    buttons = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK,
        "positive_button": button("Good answer", FEEDBACK_GOOD),
        "negative_button": button("Bad answer", FEEDBACK_BAD),
    }
    return {"type": "context_actions", "elements": [buttons]}


def _context(text: str) -> Block:
    """`verbatim`: Slack makes no links or mentions of plain words in it."""
    said = {"type": "mrkdwn", "text": text[:2900], "verbatim": True}
    return {"type": "context", "elements": [said]}


def _plain(text: str) -> str:
    """Markdown for where only text is shown: without the addresses of citations."""
    return re.sub(r"\[(\d+)\]\(https?://[^()\s]*\)", r"[\1]", text)


def _mrkdwn(text: str) -> str:
    """A text that others wrote, as a part of a line that code writes."""
    bare = inert(Links().defused(redacted(printable(text))))
    calm = one_line(re.sub(r"@(?=\w)", "@\N{WORD JOINER}", bare))
    return calm.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _said(text: str, length: int) -> str:
    return _mrkdwn(_short(redacted(printable(text)), length))


def _short(text: str, length: int) -> str:
    flat = one_line(text)
    return flat if len(flat) <= length else flat[: length - 1].rstrip() + "…"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
