"""A small web on loopback: pages by address, and three search engines over them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

Json = dict[str, object]


@dataclass(frozen=True)
class Page:
    """What one address answers."""

    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    title: str = ""
    """As a search shows it."""

    @classmethod
    def redirect_to(cls, to: str, status: int = 302) -> "Page":
        return cls(status=status, headers={"location": to})


@dataclass
class LocalWeb:
    """Answers for any host by `pages`; hosts without a `/robots.txt` among them have none."""

    pages: dict[str, Page]
    """By address, without the scheme: `docs.example.com/start`."""
    key: str = "search-key"
    asked: list[str] = field(default_factory=list)
    """Addresses in the order in which they were asked for, and `search: <words>`."""
    seen: list[dict[str, str]] = field(default_factory=list)
    """The headers of each request."""

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        self.seen.append(dict(request.headers))
        host, query = request.headers.get("host", ""), request.url.query
        if host.startswith("127.0.0.1"):
            page = await self._search(request)
        else:
            address = f"{host}{scope['raw_path'].decode()}" + (f"?{query}" if query else "")
            self.asked.append(address)
            page = self.pages.get(address) or Page(b"nothing here", "text/plain", 404)
        sent = {"content-type": page.type, **page.headers} if page.type else dict(page.headers)
        start = [(name.encode(), value.encode()) for name, value in sent.items()]
        await send({"type": "http.response.start", "status": page.status, "headers": start})
        await send({"type": "http.response.body", "body": page.body})

    async def _search(self, request: Request) -> Page:
        """Brave, Tavily and SearXNG, by the path and method of the request."""
        path, params, headers = request.url.path, request.query_params, request.headers
        if path == "/res/v1/web/search":
            right = headers.get("x-subscription-token") == self.key
            found = self._found(params.get("q", ""), "description", "page_age")
            return _json({"type": "search", "web": {"results": found}}, 200 if right else 422)
        if path == "/search" and request.method == "POST":
            right = headers.get("authorization") == f"Bearer {self.key}"
            words = (await request.json())["query"]
            found = self._found(words, "content", "published_date")
            return _json({"query": words, "results": found}, 200 if right else 401)
        if path == "/search" and params.get("format") == "json":
            found = self._found(params.get("q", ""), "content", "publishedDate")
            return _json({"query": params.get("q", ""), "results": found})
        return Page(b"no such API", "text/plain", 404)

    def _found(self, words: str, snippet: str, date: str) -> list[Json]:
        """The pages that hold any of these words, best first."""
        self.asked.append(f"search: {words}")
        wanted = words.lower().split()
        texts = {a: f"{p.title} {p.body.decode('utf-8', 'replace')}" for a, p in self.pages.items()}
        counts = {a: sum(text.lower().count(word) for word in wanted) for a, text in texts.items()}
        best = sorted((a for a in counts if counts[a]), key=lambda a: -counts[a])
        return [
            {
                "title": self.pages[address].title or urlsplit(f"//{address}").path,
                "url": f"https://{address}",
                snippet: texts[address][:200],
                date: "2026-11-01T00:00:00",
            }
            for address in best
        ]


def _json(found: Json, status: int = 200) -> Page:
    return Page(json.dumps(found).encode(), "application/json", status)
