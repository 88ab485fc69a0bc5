"""What the tools of the scope web work with: one reader, one sandbox and one search engine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from bot.cli.options import Options
from bot.storage.database import Database
from bot.tooling.kit import Kit, Opened
from bot.tooling.model_search import ModelSearch
from config.settings import Settings
from scopes.pages.fetching import Reach
from scopes.pages.pages import Pages
from scopes.sandbox import Sandbox
from scopes.searching import BRAVE, TAVILY, Brave, Searching, SearXNG, Tavily
from scopes.web import OPEN_WEB, READ_WEB

MINUTE_S = 60.0


@dataclass
class WebKit(Kit):
    """The pages that were read, and the processes that read them, are shared by all runs."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""
    reach: Reach = field(default_factory=Reach)
    _shared: dict[type, object] = field(default_factory=dict)
    _stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    async def open(self, run: str, requester: str | None) -> Opened:
        if not self._shared:
            self._shared = self._made()
        search = self._search()
        clients = dict(self._shared)
        if search:
            clients[Searching] = search
        return Opened(clients, {OPEN_WEB if search else READ_WEB: ""})

    def missing(self) -> Mapping[str, str]:
        why = self._why_no_search()
        return {"web_search": why} if why else {}

    async def aclose(self) -> None:
        await self._stack.aclose()

    def _made(self) -> dict[type, object]:
        web = self.settings.web
        pages = Pages(web.timeout_s, web.max_mb, web.cache_minutes * MINUTE_S, self.reach)
        sandbox = Sandbox(web.python_s, web.python_mb)
        self._stack.push_async_callback(pages.aclose)
        self._stack.push_async_callback(sandbox.aclose)
        return {Pages: pages, Sandbox: sandbox}

    def _search(self) -> Searching | None:
        """The engine of the settings, for one run; None where none can be asked."""
        if self._why_no_search():
            return None
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
        """Why the web cannot be searched, and what to do about it; empty where it can be."""
        chosen, keys = self.settings.web.search, self.settings.secrets
        if chosen is None:
            return (
                "No search engine is configured: set web.search to anthropic, brave, tavily or "
                "searxng."
            )
        if chosen == "brave" and keys.brave_api_key is None:
            return "web.search is brave: set BRAVE_API_KEY."
        if chosen == "tavily" and keys.tavily_api_key is None:
            return "web.search is tavily: set TAVILY_API_KEY."
        if chosen == "anthropic":
            return self._why_no_model_search()
        return ""

    def _why_no_model_search(self) -> str:
        if self.given and self.given.model == "offline":
            return "web.search is anthropic, which the offline stand-in is not: use --model claude."
        base = self.settings.endpoints.anthropic_base_url
        if base and not (urlsplit(base).hostname or "").endswith(".anthropic.com"):
            return (
                "web.search is anthropic, and the model's address is another one: set web.search "
                "to brave, tavily or searxng."
            )
        return ""
