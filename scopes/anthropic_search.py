"""The search of Anthropic's own API: what is sent with a call, and what its reply found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from scopes.search_engines import MAX_SNIPPET, SearchHit

MODEL_TOOL: Final[dict[str, Any]] = {
    "type": "web_search_20260318",
    "name": "web_search",
    "max_uses": 1,
    "allowed_callers": ["direct"],
}
"""Searches once; without code of the model's own between the results and its reply."""
RESULT_LIST = "web_search_tool_result"
PRICE_NANOUSD: Final = 10_000_000
"""One search, beside the tokens (platform.claude.com/docs, web search tool: $10 per 1,000)."""
PROMPT_TOKENS: Final = 60_000
"""What the results may add to the prompt, for the reservation."""


def hits_in(content: Sequence[Mapping[str, Any]], limit: int) -> list[SearchHit]:
    """Return the results in a reply.

    Their excerpts are what the model cites, for no other text comes.
    """
    quoted: dict[str, list[str]] = {}
    for block in content:
        for each in block.get("citations") or ():
            if isinstance(each, dict) and each.get("cited_text"):
                quoted.setdefault(str(each.get("url")), []).append(str(each["cited_text"]))
    return [
        SearchHit(
            title=str(each.get("title") or ""),
            url=each["url"],
            snippet=" ".join(dict.fromkeys(quoted.get(each["url"], ())))[:MAX_SNIPPET],
            date=str(each.get("page_age") or "")[:40],
        )
        for listed in _lists(content)
        for each in listed
        if isinstance(each, dict) and isinstance(each.get("url"), str)
    ][:limit]


def searches_in(content: Sequence[Mapping[str, Any]]) -> int:
    """Return how many searches a reply has made; one that failed costs nothing."""
    return len(_lists(content))


def _lists(content: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    found = [block.get("content") for block in content if block.get("type") == RESULT_LIST]
    return [each for each in found if isinstance(each, list)]
