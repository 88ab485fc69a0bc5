"""Search engines of the web: their requests and answers. At most one is configured."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import aiohttp

from scopes.tool import SourceFailed, ToolError, readable

BRAVE = "https://api.search.brave.com"
TAVILY = "https://api.tavily.com"
TIMEOUT_S = 15.0
MAX_ANSWER = 4_000_000
"""Bytes."""
MAX_SNIPPET = 600
"""Characters."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search."""

    title: str
    url: str
    snippet: str
    date: str = ""
    """In the form of the engine; empty if it gives none."""


class SearchEngine(Protocol):
    """A search engine: the words leave the workspace."""

    async def search(self, query: str, limit: int, key: str) -> Sequence[SearchHit]:
        """Return the best results, at most so many.

        `key` names the call: its cost is recorded under it.

        Raises ToolError if other words or another try may help, else SourceFailed.
        """


@dataclass(frozen=True, slots=True)
class Brave:
    """https://api-dashboard.search.brave.com/app/documentation/web-search"""

    key: str
    endpoint: str = BRAVE

    async def search(self, query: str, limit: int, key: str) -> Sequence[SearchHit]:
        headers = {"X-Subscription-Token": self.key, "Accept": "application/json"}
        params = {"q": query, "count": limit, "text_decorations": "false"}
        url = f"{self.endpoint.rstrip('/')}/res/v1/web/search"
        found = await ask("Brave Search", "GET", url, headers=headers, params=params)
        web = found.get("web")
        listed = web.get("results") if isinstance(web, dict) else None
        return hits(listed, "description", "page_age")[:limit]


@dataclass(frozen=True, slots=True)
class Tavily:
    """https://docs.tavily.com/documentation/api-reference/endpoint/search"""

    key: str
    endpoint: str = TAVILY

    async def search(self, query: str, limit: int, key: str) -> Sequence[SearchHit]:
        headers = {"Authorization": f"Bearer {self.key}"}
        body = {"query": query, "max_results": limit}
        url = f"{self.endpoint.rstrip('/')}/search"
        found = await ask("Tavily", "POST", url, headers=headers, json=body)
        return hits(found.get("results"), "content", "published_date")[:limit]


@dataclass(frozen=True, slots=True)
class SearXNG:
    """https://docs.searxng.org/dev/search_api.html; `json` must be among its `search.formats`."""

    url: str

    async def search(self, query: str, limit: int, key: str) -> Sequence[SearchHit]:
        params = {"q": query, "format": "json"}
        found = await ask("SearXNG", "GET", f"{self.url.rstrip('/')}/search", params=params)
        return hits(found.get("results"), "content", "publishedDate")[:limit]


async def ask(name: str, method: str, url: str, **request: Any) -> Mapping[str, Any]:
    """Return the JSON object of an engine's answer. Raises ToolError and SourceFailed."""
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.request(method, url, allow_redirects=False, **request) as response,
        ):
            _check(name, response.status)
            raw = bytearray()
            async for chunk in response.content.iter_any():
                raw += chunk
                if len(raw) > MAX_ANSWER:
                    raise SourceFailed(f"{name} answered more than can be read")
        found = readable(json.loads(raw))
    except TimeoutError:
        raise ToolError(f"{name} gave no answer in time. Try once more.") from None
    except (aiohttp.ClientError, ValueError, RecursionError) as error:
        raise SourceFailed(f"{name} cannot be asked ({type(error).__name__})") from error
    if not isinstance(found, dict):
        raise SourceFailed(f"{name} answered something that is no result")
    return found


def _check(name: str, status: int) -> None:
    if status == 429:
        raise ToolError(f"{name} takes no more searches right now. Work with what you have.")
    if status in (400, 422):
        raise ToolError(f"{name} does not take these words. Use fewer and simpler ones.")
    if status in (401, 403):
        raise SourceFailed(f"{name} refuses the bot: an administrator must fix its key or settings")
    if status != 200:
        raise SourceFailed(f"{name} answers with status {status}")


def hits(found: object, snippet: str, date: str) -> list[SearchHit]:
    """Return the valid results of a list."""
    return [
        SearchHit(
            title=_text(each.get("title")),
            url=url,
            snippet=_text(each.get(snippet))[:MAX_SNIPPET],
            date=str(each.get(date) or "")[:40],
        )
        for url, each in _with_address(found)
    ]


def _with_address(found: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the address and the result, for each result of a list that has one."""
    for each in found if isinstance(found, list) else ():
        match each:
            case {"url": str(url)}:
                yield url, each


def _text(value: object) -> str:
    """Return plain text: engines mark the words that they found."""
    return " ".join(html.unescape(re.sub(r"</?\w+>", "", str(value or ""))).split())


MODEL_TOOL_NAME: Final = "web_search"
MODEL_TOOL: Final[dict[str, Any]] = {
    "type": "web_search_20260318",
    "name": MODEL_TOOL_NAME,
    "max_uses": 1,
    "allowed_callers": ["direct"],
}
"""Searches once; without code of the model's own between the results and its reply."""
RESULT_LIST = "web_search_tool_result"
PRICE_NANOUSD: Final = 10_000_000
"""One search, without the tokens (platform.claude.com/docs, web search tool: $10 per 1,000)."""
PROMPT_TOKENS: Final = 60_000
"""Tokens that the results may add to the prompt, for the reservation."""


def hits_in(content: Sequence[Mapping[str, Any]], limit: int) -> list[SearchHit]:
    """Return the results in a reply, with the model's citations as excerpts."""
    quoted: dict[str, list[str]] = {}
    for each in (each for block in content for each in block.get("citations") or ()):
        match each:
            case {"url": str(url), "cited_text": str(text)} if text:
                quoted.setdefault(url, []).append(text)
    return [
        SearchHit(
            title=str(each.get("title") or ""),
            url=url,
            snippet=" ".join(dict.fromkeys(quoted.get(url, ())))[:MAX_SNIPPET],
            date=str(each.get("page_age") or "")[:40],
        )
        for listed in _lists(content)
        for url, each in _with_address(listed)
    ][:limit]


def searches_in(content: Sequence[Mapping[str, Any]]) -> int:
    """Return how many searches a reply has made; failed ones cost nothing."""
    return len(_lists(content))


def _lists(content: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    found = [block.get("content") for block in content if block.get("type") == RESULT_LIST]
    return [each for each in found if isinstance(each, list)]
