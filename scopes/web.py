"""Tools of the scope web: search, read pages, compute."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Annotated
from urllib.parse import urldefrag, urlsplit

from pydantic import Field

from scopes.clean import printable
from scopes.documents.text import DocumentRefused
from scopes.effects import OPEN_WEB, Access, Address, Effect, Words
from scopes.label import Label
from scopes.pages.fetcher import NotFetched
from scopes.pages.hosts import is_plain
from scopes.pages.pages import Page, Pages
from scopes.resources import list_resources, read_resource, save_resource
from scopes.sandbox import ProgramFailed, Sandbox
from scopes.search_engines import SearchEngine
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    fit_items,
    one_line,
    parts_of,
    tool,
)

MAX_HITS = 8
MAX_LINKS = 50
"""Maximum addresses that one call lists, for the next reads."""
MAX_QUERY = 400
"""Characters; Brave and Tavily take no more."""
MAX_CODE, MAX_DATA = 20_000, 200_000
"""Characters."""
MAX_TITLE_CHARS = 100
"""Characters of a title before a text."""
RESERVED_TOKENS = 60
"""Tokens reserved for the sentence on what was left out."""
END_UNREAD = "The end of the page was not read."

_DATE_PATTERN = re.compile(r"[\w ,:.+-]{1,40}")
_LINK = re.compile(
    r"\]\((https?://[^\s()]{1,2000}(?:\([^\s()]{0,200}\)[^\s()]{0,200})?)\)"
    r"|(?<![\w(])(https?://[^\s()<>\[\]\"'`\\]{1,2000})"
)
"""A link of Markdown, or an address as it stands in a feed or a text."""


@tool(Access.EGRESS, Effect.SEARCH, needs=OPEN_WEB, client=SearchEngine)
async def web_search(
    ctx: ToolContext, query: Annotated[Words, Field(max_length=MAX_QUERY)]
) -> ToolResult:
    """Search the web. Results are excerpts; read_url reads the page."""
    if not query.strip():
        raise ToolError("A search needs words.")
    engine = ctx.client(SearchEngine)  # type: ignore[type-abstract]
    found = await engine.search(one_line(query), MAX_HITS, ctx.key)
    named = {
        hit.url: printable(hit.title)[:MAX_TITLE_CHARS] for hit in found if _may_follow(hit.url)
    }
    items = tuple(
        Item(
            id=hit.url,
            text=f"{printable(hit.title)[:MAX_TITLE_CHARS]}: {printable(hit.snippet)}",
            link=hit.url,
            label=_public(hit.url),
            notes=(f"dated {hit.date}",) if _DATE_PATTERN.fullmatch(hit.date) else (),
        )
        for hit in {hit.url: hit for hit in found if hit.url in named}.values()
    )
    return ToolResult(items, handles=named, label=Label(untrusted=True, outside=True))


@tool(Access.EGRESS, Effect.FETCH, client=Pages)
async def read_url(
    ctx: ToolContext,
    url: Address,
    part: Annotated[int, Field(ge=1)] = 1,
    find: Annotated[str, Field(max_length=MAX_QUERY)] = "",
) -> ToolResult:
    """Read a page, a text or a PDF, part by part; or the parts that say most words of `find`."""
    find = find.strip()
    try:
        page = await ctx.client(Pages).read(url)
    except NotFetched as error:
        raise ToolError(f"This page cannot be read. {error}") from None
    except DocumentRefused as error:
        why, _, _ = str(error).partition(":")  # advice for its sender follows it
        raise ToolError(f"This page cannot be read. It {why}.") from None
    url = urldefrag(url).url
    title, text = page.content.title, page.content.text
    shows_title = title and title not in text[: 2 * MAX_TITLE_CHARS]
    parts = parts_of(f"{title[:MAX_TITLE_CHARS]}\n{text}" if shows_title else text)
    if part > len(parts):
        raise ToolError(f"This page has {len(parts)} parts.")
    places: Sequence[int] = range(part, len(parts) + 1)
    note = _note(page, url)
    if find:
        places, counted = _that_say(find, parts, part, page.cut)
        note = f"{counted} {note}".rstrip()
    label = _public(url).join(_public(page.url))
    items = tuple(Item(f"{url}#{n}", parts[n - 1], url, label, verbatim=True) for n in places)
    shown = fit_items(items, ctx.max_output_tokens - RESERVED_TOKENS)
    omitted = len(items) - len(shown)
    links = dict.fromkeys(link for item in shown for link in _links(item.text))
    follow = [link for link in links if _may_follow(link)][:MAX_LINKS]
    following = part + len(shown)
    truncated = END_UNREAD if page.cut and not omitted else ""
    if omitted and find:
        truncated = f"{omitted} more: read_url(find=..., part={places[len(shown)]})."
    elif omitted:
        truncated = f"Parts {following} to {len(parts)} are left out: read_url(part=...)."
    handles = dict.fromkeys(follow, "")
    return ToolResult(shown, truncated=truncated, handles=handles, note=note)


@tool(effect=Effect.CODE, sandboxed=True, client=Sandbox)
async def run_python(
    ctx: ToolContext,
    code: Annotated[str, Field(max_length=MAX_CODE)],
    data: Annotated[str, Field(max_length=MAX_DATA)] = "",
) -> ToolResult:
    """Compute. `data` is a variable of the code; what it prints comes back."""
    try:
        text = printable(await ctx.client(Sandbox).run(code, data)).rstrip()
    except ProgramFailed as error:
        raise ToolError(f"The program failed: {printable(one_line(str(error)))[:400]}") from None
    if not text.strip():
        raise ToolError("The program printed nothing. Print what you want to know.")
    digest = hashlib.sha256("\0".join((code, data, text)).encode(errors="replace")).hexdigest()
    label = ctx.label.join(Label(untrusted=True))
    return ToolResult((Item(f"python-{digest[:10]}", text, None, label, verbatim=True),))


TOOLS = (web_search, read_url, run_python, save_resource, read_resource, list_resources)


def _that_say(find: str, parts: list[str], first: int, cut: bool) -> tuple[list[int], str]:
    """Return the parts from `first` on that have most of the words. Raises ToolError for none."""
    words = {word.strip("\"'“”«»„") for word in find.casefold().split()} - {""}
    counts = [sum(word in text.casefold() for word in words) for text in parts]
    most = max(counts)
    found = [n for n, count in enumerate(counts, 1) if count == most and n >= first]
    if not most or not found:
        unread = f" {END_UNREAD}" if cut else ""
        raise ToolError(f"None of its parts {first} to {len(parts)} says this.{unread}")
    what = "it" if most == len(words) else f"{most} of the {len(words)} words"
    return found, f"Parts that say {what}: {counts.count(most)} of {len(parts)}."


def _note(page: Page, url: str) -> str:
    """Return facts of code on the page, without words of the page itself."""
    content = page.content
    dated = f"The page is dated {content.date}." if content.date else ""
    host = urlsplit(page.url).hostname
    moved = "It has moved to another host." if host != urlsplit(url).hostname else ""
    facts = "" if content.facts in ("", "text") else f"{content.facts}."
    return " ".join(filter(None, (dated, moved, facts)))


def _links(text: str) -> Iterator[str]:
    for found in _LINK.finditer(text):
        yield found[1] or found[2].rstrip(".,;:!?").replace("&amp;", "&")


def _may_follow(url: str) -> bool:
    """Return whether an address may be listed: it is plain, and shown unchanged to the model."""
    return len(url) <= 2000 and is_plain(url) and printable(url) == url


def _public(url: str) -> Label:
    host = (urlsplit(url).hostname or "").lower()
    return Label(untrusted=True, sources=frozenset({f"web:{host}"}), outside=True)
