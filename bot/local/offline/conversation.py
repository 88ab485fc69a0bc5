"""Parse a Messages API request: tools, brief, texts, results and views; build tool calls."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.local.model.answer import Answer
from bot.local.model.usage import as_blocks

OFFLINE = "(offline rules, not a language model)"
"""Marks everything that the offline model writes."""

Json = dict[str, Any]

_SECTIONS = (
    "TASK", "QUESTIONS", "KNOWN", "OUTPUT", "OUT OF SCOPE", "MAY READ", "WINDOW", "NOW",
    "LANGUAGE", "CONTRACT", "FENCE", "REQUEST", "ASKED IN", "NAMED SOURCES", "LISTS", "SEARCH",
    "DATA", "MATERIAL", "ASKED BY", "PREFERENCES", "CHANNEL INSTRUCTIONS", "SECTION", "WRITE",
    "TRACKER", "TRACKED BY CODE",
)  # fmt: skip
_HEADER = re.compile(rf"^({'|'.join(_SECTIONS)}):[ \t]*(.*)$")
_FENCED_ITEMS = re.compile(r"^<(items-[0-9a-f]{32})>\n(.*?)^</\1>$", re.MULTILINE | re.DOTALL)
_TITLED_HANDLE = re.compile(r"(\S+) \(([^()]*)\)")
_CURSOR = re.compile(r'More: call again with cursor="([^"]+)"')
_END = re.compile("limit reached|end by calling|output was cut|write the")
_ITEM = re.compile(
    r"^ *\[(?P<id>[^\]]+)\](?: \d{4}-\d\d-\d\d \d\d:\d\d)? ?(?P<text>.*?)(?: \{[^{}]*\})?$"
)


@dataclass(frozen=True)
class Exchange:
    """A tool call of this context and its result."""

    name: str
    input: Mapping[str, Any]
    text: str
    is_error: bool

    @property
    def cursor(self) -> str:
        """Return the cursor of the next page; empty on the last one."""
        found = None if self.is_error else _CURSOR.search(self.text)
        return found[1] if found else ""


@dataclass(frozen=True)
class Conversation:
    """A parsed request."""

    tools: frozenset[str]
    opening: tuple[str, ...]
    """Texts of the first user message."""
    exchanges: tuple[Exchange, ...]
    last: tuple[str, ...]
    """Texts of the last user message; its tool results are in `exchanges`."""
    turn: int = 0
    """Answers that the model has given in this context."""

    @property
    def must_end(self) -> bool:
        """Return whether the program asked the model to end now."""
        return any(text.startswith("REMINDER:") and _END.search(text) for text in self.last)

    def section(self, name: str) -> str:
        """Return the first section of that name outside data; empty if there is none."""
        return next((body for text in self.told for key, body in sections(text) if key == name), "")

    @property
    def told(self) -> list[str]:
        """Return the opening without the text between delimiters."""
        return [_FENCED_ITEMS.sub("", text) for text in self.opening]

    def pages(self, *tools: str) -> list[str]:
        """Return what the context was shown: its material, and the results of these tools."""
        material = [text for text in self.opening if text.startswith("MATERIAL")]
        return [*material, *(e.text for e in self.exchanges if e.name in tools and not e.is_error)]

    @property
    def here(self) -> Mapping[str, str]:
        """Return the ids of the channel and thread of the request; id -> title."""
        return dict(_TITLED_HANDLE.findall(self.section("ASKED IN")))


def read_on(
    talk: Conversation, first: Iterable[tuple[str, Json]], result: Callable[[Conversation], Json]
) -> Answer:
    """Return the next turn: calls for these first pages and the pages after them, if some are not
    yet read; else the result."""
    wanted = [
        *first,
        *((e.name, {**e.input, "cursor": e.cursor}) for e in talk.exchanges if e.cursor),
    ]
    done = [(exchange.name, dict(exchange.input)) for exchange in talk.exchanges]
    calls = [
        use(name, **arguments)
        for n, (name, arguments) in enumerate(wanted)
        if name in talk.tools and (name, arguments) not in [*done, *wanted[:n]]
    ]
    if calls and not talk.must_end:
        return Answer(calls)
    return Answer([use("submit_result", **result(talk))])


def sections(text: str) -> Iterator[tuple[str, str]]:
    """Return the `NAME: body` sections of a text; a body goes on until the next name."""
    name, body = "", ""
    for line in text.splitlines():
        if found := _HEADER.match(line):
            if name:
                yield name, body.strip()
            name, body = found[1], found[2]
        else:
            body += "\n" + line
    if name:
        yield name, body.strip()


def read_conversation(request: Mapping[str, Any]) -> Conversation:
    """Parse a Messages API request."""
    messages: list[Json] = request["messages"]
    calls: dict[str, Json] = {}
    exchanges: list[Exchange] = []
    users = [message for message in messages if message["role"] == "user"]
    for message in messages:
        for block in as_blocks(message["content"]):
            if block["type"] == "tool_use":
                calls[block["id"]] = block
            elif block["type"] == "tool_result":
                call = calls[block["tool_use_id"]]
                text, failed = "\n".join(_texts(block)), bool(block.get("is_error"))
                exchanges.append(Exchange(call["name"], call["input"], text, failed))
    return Conversation(
        tools=frozenset(tool["name"] for tool in request.get("tools") or ()),
        opening=tuple(_texts(users[0])),
        exchanges=tuple(exchanges),
        last=tuple(_texts(users[-1])),
        turn=len(messages) - len(users),
    )


def _texts(message: Json) -> list[str]:
    """Return the texts of a message, or of a tool's result, which may have no content."""
    blocks = as_blocks(message.get("content") or [])
    return [block["text"] for block in blocks if block["type"] == "text"]


@dataclass
class ShownItem:
    """An item in a tool's result."""

    id: str
    text: str
    """Without the time and the facts after it; the text of a file includes its lines."""


def format_count(number: int, thing: str) -> str:
    """Return a count with its noun: `1 table`, `2 tables`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def use(tool: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a tool call as a content block; the server gives it an id."""
    return {"type": "tool_use", "name": tool, "input": arguments}


def items_of(text: str) -> Iterator[ShownItem]:
    """Return the items of a tool's result; lines that begin with a bar belong to the item above."""
    item: ShownItem | None = None
    for line in text.splitlines():
        if line.startswith("|") and item:
            item.text = f"{item.text}\n{line[1:]}" if item.text else line[1:]
        elif found := _ITEM.match(line):
            if item:
                yield item
            item = ShownItem(found["id"], found["text"])
    if item:
        yield item


_RESULT_HEADER = re.compile(
    r"^\w+ (complete|partial|failed|cancelled|refused)\b(?:.*?\(\w+, \w+\))?[^:]*: ?(.*)$"
)
_FINDING = re.compile(r"^\[(F\d+\.\d+)\] (.*)$")
_CUT = re.compile(r"^\(cut: (\d+) more")


@dataclass
class View:
    """One subagent's result as the parent sees it."""

    status: str
    text: str
    findings: list[tuple[str, str, str]] = field(default_factory=list)
    """Id, claim and status (state, severity, since when) of each."""
    left_out: int = 0
    """Number of findings that did not fit into the view."""


def parse_views(text: str) -> list[View]:
    """Return the views in a tool result, or in a package of an earlier session, in their order."""
    views: list[View] = []
    for line in text.splitlines():
        found = _FINDING.match(line)
        if head := _RESULT_HEADER.match(line) if not found else None:
            views.append(View(head[1], head[2]))
            found = _FINDING.match(head[2])
        if found and views:
            claim, *facts = found[2].split(" | ")
            views[-1].findings.append((found[1], claim, facts[0] if facts else ""))
        elif views and (cut := _CUT.match(line)):
            views[-1].left_out = int(cut[1])
    return views
