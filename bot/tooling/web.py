"""The clients of the scope web: one page reader, one sandbox and one search engine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bot.tooling.provider import OpenedTools, ToolProvider
from config.prompts import prompt
from scopes.effects import OPEN_WEB, READ_WEB
from scopes.tool import Clients, SourceFailed, ToolError
from subagents.brief import text_block
from subagents.budget import Amount
from subagents.conversation import Conversation, Spec
from subagents.errors import BudgetExceeded, ModelFailed, ModelMisconfigured
from subagents.model import ModelCall, ModelReply
from subagents.run import Run
from subagents.trajectory import Origin

if TYPE_CHECKING:
    from scopes.pages.fetcher import FetchReach
    from scopes.pages.pages import Pages
    from scopes.sandbox import Sandbox
    from scopes.search_engines import SearchEngine, SearchHit

ROLE = "subagent_fast"
PROMPT = "web_search"


@dataclass
class ModelSearch:
    """Searches with a model for one run, after it is bound to the run."""

    run: Run | None = None

    async def search(self, query: str, limit: int, key: str) -> Sequence[SearchHit]:
        """Return the model's results; `key` is the key of a tool call: `<run>/<context>/<call>`."""
        from scopes.search_engines import PRICE_NANOUSD, hits_in, searches_in

        assert self.run, "bound where the run is opened"
        run, fee = self.run, f"{key}/search"
        final = (
            f"{key.rpartition('/')[0]}/final"  # the searching context reserves it in the meantime
        )
        spent = Amount()
        try:
            await run.budget.reserve(fee, Amount(PRICE_NANOUSD), own_keys=(final,))
            spent = Amount(PRICE_NANOUSD)  # unless a reply says otherwise
            reply = await self._ask(run, query, key, (fee, final))
            spent = Amount(searches_in(reply.content) * PRICE_NANOUSD)
        except BudgetExceeded:
            spent = Amount()
            raise ToolError("No money is left for a search. Work with what you have.") from None
        except ModelMisconfigured as error:
            raise SourceFailed("the model refuses to search: its key or settings") from error
        except ModelFailed:
            raise ToolError("The search gave no answer. Try once more.") from None
        finally:
            await run.budget.settle(fee, spent)
        if not spent.nanousd:
            raise ToolError("Nothing was searched. Try other words.")
        return hits_in(reply.content, limit)

    async def _ask(self, run: Run, query: str, key: str, reserved: Sequence[str]) -> ModelReply:
        from scopes.search_engines import MODEL_TOOL, MODEL_TOOL_NAME, PROMPT_TOKENS

        context = f"search-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        run.declare(
            context,
            scope="web",
            role=ROLE,
            template=PROMPT,
            tools=(MODEL_TOOL_NAME,),
            kind="search",
            parent=key.split("/")[1] if key.count("/") > 1 else None,
        )
        spec = Spec(
            run=run.id,
            context=context,
            role=ROLE,
            system=[text_block(prompt(PROMPT))],
            tools=[MODEL_TOOL],
            opening=[(Origin.BRIEF, text_block(query), "")],
            max_steps=1,
            context_limit=PROMPT_TOKENS,
            seconds=run.budget.seconds_left(),
            single=True,
        )
        call = ModelCall(
            spec, 1, Conversation(spec, run.sink).messages, PROMPT_TOKENS, own_keys=reserved
        )
        reply = await run.model.complete(call, run)
        for block in reply.content:  # the results of the API count as read by this context
            run.sink.note(run.id, context, Origin.MATERIAL, block)
        return reply


def bind(run: Run) -> None:
    """Charge a model's searches to their run."""
    for client in run.clients.values():
        if isinstance(client, ModelSearch):
            client.run = run


CACHE_S = 900.0
"""Seconds for which a page is cached."""
PYTHON_S, PYTHON_MB = 2.0, 64
"""Seconds of computing and megabytes of memory of one `run_python`."""


@dataclass
class WebTools(ToolProvider):
    """All runs share the cached pages, and the processes that read them."""

    reach: FetchReach | None = None
    """Addresses that may be fetched; None = public ones."""
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        unopened = {
            "scopes.pages.pages:Pages": lambda: self.pages,
            "scopes.sandbox:Sandbox": lambda: self.sandbox,
        }
        if self._why_no_search():
            return OpenedTools(Clients({}, unopened), {READ_WEB: ""})
        from scopes.search_engines import SearchEngine

        return OpenedTools(Clients({SearchEngine: self._search()}, unopened), {OPEN_WEB: ""})

    def find_missing(self) -> Mapping[str, str]:
        why = self._why_no_search()
        return {"web_search": why} if why else {}

    async def aclose(self) -> None:
        await self._stack.aclose()

    @cached_property
    def pages(self) -> Pages:
        from scopes.pages.fetcher import FetchReach
        from scopes.pages.pages import Pages

        web = self.settings.web
        reach = self.reach or FetchReach()
        pages = Pages(web.timeout_s, web.max_mb, CACHE_S, reach)
        self._stack.push_async_callback(pages.aclose)
        return pages

    @cached_property
    def sandbox(self) -> Sandbox:
        from scopes.sandbox import Sandbox

        sandbox = Sandbox(PYTHON_S, PYTHON_MB)
        self._stack.push_async_callback(sandbox.aclose)
        return sandbox

    def _search(self) -> SearchEngine:
        """Return the search engine of the settings for one run."""
        from scopes.search_engines import BRAVE, TAVILY, Brave, SearXNG, Tavily

        web, keys, endpoints = self.settings.web, self.settings.secrets, self.settings.endpoints
        if web.search == "brave" and keys.brave_api_key:
            key = keys.brave_api_key.get_secret_value()
            return Brave(key, endpoints.brave_api_endpoint or BRAVE)
        if web.search == "tavily" and keys.tavily_api_key:
            key = keys.tavily_api_key.get_secret_value()
            return Tavily(key, endpoints.tavily_api_endpoint or TAVILY)
        if web.search == "searxng" and web.searxng_url:
            return SearXNG(web.searxng_url)
        return ModelSearch()

    def _why_no_search(self) -> str:
        """Return why the web cannot be searched, and what to do about it; empty if it can be."""
        engine, keys = self.settings.web.search, self.settings.secrets
        base = urlsplit(self.settings.endpoints.anthropic_base_url or "").hostname
        if engine is None:
            return (
                "No search engine is configured: set web.search to anthropic, brave, tavily or "
                "searxng."
            )
        if engine == "brave" and keys.brave_api_key is None:
            return "web.search is brave: set BRAVE_API_KEY."
        if engine == "tavily" and keys.tavily_api_key is None:
            return "web.search is tavily: set TAVILY_API_KEY."
        if engine != "anthropic":
            return ""
        if self.options and self.options.model == "offline":
            return "web.search is anthropic, which the offline stand-in is not: use --model claude."
        other = "set web.search to brave, tavily or searxng."
        if self.settings.models.provider != "anthropic":
            return f"web.search is anthropic, which only Anthropic's own API offers: {other}"
        if base and not base.endswith(".anthropic.com"):
            return f"web.search is anthropic, and the model's address is another one: {other}"
        return ""
