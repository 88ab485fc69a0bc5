"""Search engines: requests as documented, results with handles, and what a search costs."""

from __future__ import annotations

from collections.abc import Callable

import engine_kit as kit
import pytest
import tool_kit
import web_kit
from standins.web import Page

from bot.tooling.web import ModelSearch, bind
from scopes.effects import Handles
from scopes.label import Label
from scopes.search_engines import Brave, SearchEngine, SearXNG, Tavily
from scopes.tool import ToolError
from subagents.budget import NANOUSD_PER_USD, Amount
from subagents.gate import Deny
from subagents.overlap import audit

PAGES = {
    "docs.example.com/ports": Page(b"Ports are <b>opened</b> by hand &amp; closed", title="Ports"),
    "docs.example.com/keys": Page(
        b"Keys are turned. Ports are not.", title="Keys <strong>x</strong>"
    ),
    "127.example.com:8080/ports": Page(b"ports ports ports ports", title="A port of its own"),
    "docs.example.com/other": Page(b"Nothing of it"),
}
ENGINES: list[Callable[[str], SearchEngine]] = [
    lambda url: Brave("search-key", url),
    lambda url: Tavily("search-key", url + "/"),
    lambda url: SearXNG(url),
]


@pytest.mark.parametrize("make", ENGINES)
async def test_search_results_have_handles_only_for_readable_addresses(
    make: Callable[[str], SearchEngine],
) -> None:
    with web_kit.small_web(PAGES) as (web, _, url):
        ctx = web_kit.context({SearchEngine: make(url)})
        found = await tool_kit.done(ctx, "web_search", query="  ports \n ")
    assert web.asked == ["search: ports"]
    first = found.items[0]
    assert first.id == first.link == "https://docs.example.com/ports"
    assert first.text == "Ports: Ports Ports are opened by hand & closed"
    assert first.notes == ("dated 2026-11-01T00:00:00",)
    assert first.label == Label(
        untrusted=True, sources=frozenset({"web:docs.example.com"}), outside=True
    )
    assert dict(found.handles) == {
        "https://docs.example.com/ports": "Ports",
        "https://docs.example.com/keys": "Keys x",
    }  # an address with a port cannot be read


async def test_web_search_is_denied_with_private_data_or_without_a_handle() -> None:
    with web_kit.small_web(PAGES) as (web, _, url):
        private = web_kit.context(
            {SearchEngine: SearXNG(url)}, label=Label(True, frozenset({"U0ANA"}), frozenset({"D1"}))
        )
        denied = await tool_kit.use(private, "web_search", query="ports of Harbour Line")
        assert isinstance(denied, Deny)
        assert denied.rule == "search"
        without_handle = web_kit.context({SearchEngine: SearXNG(url)}, handles=Handles())
        denied = await tool_kit.use(without_handle, "web_search", query="ports")
        assert isinstance(denied, Deny)
        assert web.asked == []


def search_reply(*results: tuple[str, str], error: str = "") -> list[kit.Json]:
    """Return a reply as the Messages API sends it (anthropic 2.12, types/web_search_*)."""
    hits: list[kit.Json] = []
    texts: list[kit.Json] = []
    for url, title in results:
        hit = {"url": url, "title": title}
        details = {"encrypted_content": "e" * 20, "page_age": "2 days ago"}
        hits.append({"type": "web_search_result", **hit, **details})
        place = {"type": "web_search_result_location", "encrypted_index": "i"}
        citation = {**place, **hit, "cited_text": f"Ports, says {title}."}
        text = f"{title} tells of ports."
        texts.append({"type": "text", "text": text, "citations": [citation]})
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    failure = {"type": "web_search_tool_result_error", "error_code": error}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1"}
    call = {**use, "input": {"query": "ports"}}
    return [call, {**result, "content": failure if error else hits}, *texts]


def model_server(content: list[kit.Json]) -> kit.LenientServer:
    def reply(body: kit.Json) -> list[kit.Json] | None:
        return content if body["tools"][0].get("type", "").startswith("web_search") else None

    return kit.LenientServer(reply)


async def test_model_search_is_charged_to_the_run_and_recorded() -> None:
    server = model_server(
        search_reply(("https://a.example.com/1", "One"), ("https://b.example.com", "B"))
    )
    async with kit.engine(kit.turns(), lax=server) as e:
        e.run.clients = {**e.run.clients, SearchEngine: ModelSearch()}
        bind(e.run)
        ctx = web_kit.context(e.run.clients)
        found = await tool_kit.done(ctx, "web_search", query="ports")
        assert [(i.id, i.text) for i in found.items] == [
            ("https://a.example.com/1", "One: Ports, says One."),
            ("https://b.example.com", "B: Ports, says B."),
        ]
        (sent,) = server.recorded
        (tool,) = sent["tools"]
        assert (tool["max_uses"], tool["allowed_callers"]) == (1, ["direct"])
        (reply,) = e.sink.replies
        tokens = round(reply.outcome["cost_usd"] * NANOUSD_PER_USD)
        assert (
            e.run.budget.spent.nanousd == tokens + NANOUSD_PER_USD // 100
        )  # $10 per 1,000 searches
        assert e.run.budget.reserved == Amount()
        (context,) = e.sink.contexts
        assert (context.parent, context.kind, reply.context) == ("s1", "search", context.id)
        assert audit(e.sink.trajectory("r1")).leaks == ()


async def test_model_search_is_not_made_without_enough_budget() -> None:
    server = model_server(search_reply(("https://a.example.com/1", "One")))
    async with kit.engine(kit.turns(), kit.settings_for({"cost_usd": 0.009}), lax=server) as e:
        search = ModelSearch(e.run)
        with pytest.raises(ToolError, match="No money is left"):
            await search.search("ports", 8, "r1/s1/c1")
        assert server.recorded == []
        assert e.run.budget.spent == e.run.budget.reserved == Amount()
