"""Search engines: each asked as it documents, its answer read as it is, and paid where it costs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import engine_kit as kit
import pytest
import web_kit
from pg_kit import with_store
from standins.web import Page

from bot.storage.database import Database
from bot.tooling.provider import Options
from bot.tooling.web import ModelSearch, WebTools, bind
from config.settings import load_settings
from scopes import scope
from scopes.effects import OPEN_WEB, READ_WEB
from scopes.handles import Handles
from scopes.label import Label
from scopes.pages.pages import Pages
from scopes.sandbox import Sandbox
from scopes.search_engines import Brave, SearchEngine, SearXNG, Tavily
from scopes.tool import SourceFailed, ToolError
from subagents.budget import NANO, Amount
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
async def test_an_engine_finds_what_may_be_read(make: Callable[[str], SearchEngine]) -> None:
    with web_kit.small_web(PAGES) as (web, _, url):
        ctx = web_kit.context({SearchEngine: make(url)})
        found = await web_kit.done(ctx, "web_search", query="  ports \n ")
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
    }  # an address of a port of its own could not be read


async def test_what_is_asked_outside_follows_the_gate() -> None:
    with web_kit.small_web(PAGES) as (web, _, url):
        private = web_kit.context(
            {SearchEngine: SearXNG(url)}, label=Label(True, frozenset({"U0ANA"}), frozenset({"D1"}))
        )
        denied = await web_kit.use(private, "web_search", query="ports of Harbour Line")
        assert isinstance(denied, Deny)
        assert denied.rule == "search"
        unheld = web_kit.context({SearchEngine: SearXNG(url)}, handles=Handles())
        denied = await web_kit.use(unheld, "web_search", query="ports")
        assert isinstance(denied, Deny)
        assert web.asked == []


@pytest.mark.parametrize(
    ("make", "kind", "told"),
    [
        (lambda url: Tavily("wrong", url), SourceFailed, "must fix its key"),
        (lambda url: Brave("wrong", url), ToolError, "fewer and simpler"),
        (lambda url: SearXNG(url + "/elsewhere"), SourceFailed, "status 404"),
        (lambda url: SearXNG("http://127.0.0.1:9"), SourceFailed, "cannot be asked"),
    ],
)
async def test_a_search_that_fails_says_who_can_mend_it(
    make: Callable[[str], SearchEngine], kind: type[Exception], told: str
) -> None:
    with web_kit.small_web(PAGES) as (_, _, url), pytest.raises(kind, match=told):
        await make(url).search("ports", 8, "r1/s1/c1")


def answered(*results: tuple[str, str], error: str = "") -> list[kit.Json]:
    """A reply as the Messages API gives it (anthropic 2.12, types/web_search_*)."""
    listed: list[kit.Json] = []
    cited: list[kit.Json] = []
    for url, title in results:
        found = {"url": url, "title": title}
        of_its_own = {"encrypted_content": "e" * 20, "page_age": "2 days ago"}
        listed.append({"type": "web_search_result", **found, **of_its_own})
        place = {"type": "web_search_result_location", "encrypted_index": "i"}
        citation = {**place, **found, "cited_text": f"Ports, says {title}."}
        text = f"{title} tells of ports."
        cited.append({"type": "text", "text": text, "citations": [citation]})
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search"}
    failed = {"type": "web_search_tool_result_error", "error_code": error}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1"}
    asked = {**use, "input": {"query": "ports"}}
    return [asked, {**result, "content": failed if error else listed}, *cited]


SEARCH = kit.call("web_search", query="ports")


def model_server(content: list[kit.Json]) -> kit.Lax:
    def reply(body: kit.Json) -> list[kit.Json] | None:
        return content if body["tools"][0].get("type", "").startswith("web_search") else None

    return kit.Lax(reply)


async def test_a_search_by_the_model_is_paid_by_the_run_and_recorded() -> None:
    lax = model_server(answered(("https://a.example.com/1", "One"), ("https://b.example.com", "B")))
    async with kit.engine(kit.turns(), lax=lax) as e:
        e.run.clients = {**e.run.clients, SearchEngine: ModelSearch()}
        bind(e.run)
        ctx = web_kit.context(e.run.clients)
        found = await web_kit.done(ctx, "web_search", query="ports")
        assert [(i.id, i.text) for i in found.items] == [
            ("https://a.example.com/1", "One: Ports, says One."),
            ("https://b.example.com", "B: Ports, says B."),
        ]
        (sent,) = lax.recorded
        assert sent["model"] == e.settings.models.fast
        assert sent["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "ports"}]}
        ]
        (tool,) = sent["tools"]
        assert (tool["max_uses"], tool["allowed_callers"]) == (1, ["direct"])
        (reply,) = e.sink.replies
        tokens = round(reply.outcome["cost_usd"] * NANO)
        assert e.run.budget.spent.nanousd == tokens + NANO // 100  # $10 per 1,000, and its tokens
        assert e.run.budget.reserved == Amount()
        (context,) = e.sink.contexts
        assert (context.parent, context.kind, reply.context) == ("s1", "search", context.id)
        assert audit(e.sink.trajectory("r1")).leaks == ()


async def test_a_search_by_the_model_is_no_leak_to_it_of_what_others_have_read() -> None:
    words = kit.sentence("f0", 30)  # what `flood` hands out, too
    lax = model_server(answered(("https://a.example.com/1", words)))
    script = kit.turns(
        lambda body: kit.call("flood", items=1) if "s2" in kit.opening(body) else SEARCH,
        kit.submitted("Ports are opened."),
    )
    async with kit.engine(script, lax=lax) as e:
        e.run.clients = {**e.run.clients, SearchEngine: ModelSearch()}
        bind(e.run)
        await kit.run_agent(e.agent("TASK: read, s2", name="s2"))
        tools = [t for t in scope("web").tools if t.name == "web_search"]
        ending = await kit.run_agent(e.agent("TASK: ports", tools, handles={OPEN_WEB: ""}))
        assert ending.stopped_by == "none"
        assert words in str([b for b in e.sink.blocks.values() if "tool_result" in b])
        assert audit(e.sink.trajectory("r1")).leaks == ()


async def test_a_search_that_the_run_cannot_pay_is_not_made() -> None:
    lax = model_server(answered(("https://a.example.com/1", "One")))
    async with kit.engine(kit.turns(), kit.settings_for({"cost_usd": 0.009}), lax=lax) as e:
        search = ModelSearch(e.run)
        with pytest.raises(ToolError, match="No money is left"):
            await search.search("ports", 8, "r1/s1/c1")
        assert lax.recorded == []
        assert e.run.budget.spent == e.run.budget.reserved == Amount()


async def test_a_search_that_failed_on_the_other_side_costs_its_tokens_only() -> None:
    lax = model_server(answered(error="too_many_requests"))
    async with kit.engine(kit.turns(), lax=lax) as e:
        with pytest.raises(ToolError, match="Nothing was searched"):
            await ModelSearch(e.run).search("ports", 8, "r1/s1/c1")
        assert 0 < e.run.budget.spent.nanousd < NANO // 100
        assert e.run.budget.reserved == Amount()


@pytest.mark.parametrize(
    ("web", "env", "model", "engine", "why"),
    [
        ({}, {}, "claude", None, "set web.search"),
        ({"search": "brave"}, {}, "claude", None, "set BRAVE_API_KEY"),
        ({"search": "tavily"}, {}, "claude", None, "set TAVILY_API_KEY"),
        ({"search": "brave"}, {"BRAVE_API_KEY": "k"}, "claude", Brave, ""),
        ({"search": "tavily"}, {"TAVILY_API_KEY": "k"}, "offline", Tavily, ""),
        ({"search": "searxng", "searxng_url": "http://searx.lan"}, {}, "claude", SearXNG, ""),
        ({"search": "anthropic"}, {}, "claude", ModelSearch, ""),
        ({"search": "anthropic"}, {}, "offline", None, "--model claude"),
        ({"search": "anthropic"}, {"ANTHROPIC_BASE_URL": "https://proxy.example.com"}, "claude",
         None, "the model's address is another one"),
    ],
)  # fmt: skip
async def test_a_search_is_offered_where_one_is_configured_and_else_it_is_said_why(
    web: dict[str, str],
    env: dict[str, str],
    model: str,
    engine: type | None,
    why: str,
    tmp_path: Path,
) -> None:
    base = load_settings(env=env)
    settings = base.model_copy(update={"web": base.web.model_copy(update=web)})
    with_store(tmp_path)
    database = await Database.open(tmp_path)
    made = WebTools(settings, database, Options(model=model))
    opened, again = await made.open("r1", None), await made.open("r2", None)
    assert Pages in opened.clients
    assert Sandbox in opened.clients
    assert dict(opened.handles) == {OPEN_WEB if engine else READ_WEB: ""}
    found = opened.clients.get(SearchEngine)
    assert type(found) is engine if engine else found is None
    assert why in made.missing().get("web_search", "")
    assert bool(why) == bool(made.missing())
    assert again.clients[Pages] is opened.clients[Pages]
    if engine is ModelSearch:  # each run pays its own
        assert again.clients[SearchEngine] is not found
    await made.aclose()
    await database.aclose()
