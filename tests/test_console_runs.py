"""The console's pages of runs and costs: in a real browser, and for invalid input."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio
import sqlalchemy as sa
from axe_playwright_python.async_playwright import Axe
from browser_kit import browser
from console_kit import Served, console
from fork_server import forked_command
from pg_kit import StorePlace, place, with_store
from playwright.async_api import Browser, ConsoleMessage, Page, expect
from runs_kit import NASTY, SECRET, StoredFanout, many_rows, store_rows, wide_run
from starlette.datastructures import QueryParams
from timing import WAIT_S

from bot.console.app import PATH
from bot.console.pages import CostWindow, cost_tables, costs_by_day
from bot.console.runs import PAGE_SIZE, RunFilter, listed_runs
from bot.privacy import empty_runs, empty_trajectories
from bot.runs.store import Store
from bot.serving.web import serve_app
from bot.storage import tables
from bot.storage.run_index import Names

__all__ = ["browser", "place"]

NEWEST = datetime(2026, 11, 28, 8, tzinfo=UTC)
LOCAL = "http://127.0.0.1:8200"
WIDE = "wide00000001"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with console(tmp_path, LOCAL, local=True) as served:
        yield served


@pytest_asyncio.fixture
async def url(served: Served) -> AsyncIterator[str]:
    """The address of the served console."""
    async with serve_app(served.app, "127.0.0.1", 0) as url:
        yield url + PATH


async def get(served: Served, path: str, **headers: str) -> httpx2.Response:
    async with served.browser(LOCAL) as browser:
        return await browser.get(PATH + path, headers=headers)


@asynccontextmanager
async def page_of(browser: Browser, **options: object) -> AsyncIterator[Page]:
    """A page; no script may fail, the content policy may refuse nothing, and no text may run."""
    context = await browser.new_context(viewport={"width": 1280, "height": 860}, **options)  # type: ignore[arg-type]
    page, faults = await context.new_page(), list[str]()
    page.set_default_timeout(WAIT_S * 1000)
    page.on("pageerror", lambda error: faults.append(str(error)))

    def record_error(message: ConsoleMessage) -> None:
        is_page_itself = (
            message.text.startswith("Failed to load") and message.location["url"] == page.url
        )
        if message.type == "error" and not is_page_itself:  # the page itself may be a 404
            faults.append(message.text)

    page.on("console", record_error)
    yield page
    assert await page.evaluate("window.hacked") is None
    await context.close()
    assert faults == []


async def test_run_with_many_subagents_can_be_found_and_read_in_a_browser(
    served: Served, url: str, browser: Browser
) -> None:
    await store_rows(served.store.database, many_rows(120, NEWEST, timedelta(minutes=5)))
    await wide_run(served.store, WIDE)
    async with page_of(browser) as page:
        await page.goto(f"{url}/runs")
        rows = page.locator("table.runs tbody tr")
        await expect(rows).to_have_count(PAGE_SIZE)
        await expect(rows.first).to_contain_text("Question 0")
        await page.get_by_role("link", name="Older runs").click()
        await expect(rows.first).to_contain_text(f"Question {PAGE_SIZE}")
        await page.get_by_label("Question contains").fill("what IS open")
        await page.keyboard.press("Enter")
        await expect(rows).to_have_count(1)
        await rows.first.get_by_role("link").focus()
        await page.keyboard.press("Enter")
        bars = page.locator("table.timeline tbody tr")
        await expect(bars).to_have_count(51)
        seventh = bars.filter(has=page.locator("#to-s7"))
        cells = await seventh.get_by_role("cell").all_inner_texts()
        assert cells[1:8] == ["complete", "1.0 s", "3.5 s", "0.5 s", "2", "–", "$0.0020"]
        assert await seventh.locator("rect").count() == 4
        await expect(bars.first).to_contain_text("17.0 s")  # the parent waited for its subagents
        await expect(page.get_by_text("1 dropped", exact=True)).to_be_visible()
        await expect(page.get_by_text("51 contexts,")).to_contain_text("blocks, ")
        await page.set_viewport_size({"width": 390, "height": 860})
        beside = "document.documentElement.scrollWidth - window.innerWidth"
        assert await page.evaluate(beside) == 0, "a telephone scrolls the table, not the page"
        await page.locator("summary").filter(has_text="s3 Channel 3").press("Enter")
        await expect(page.get_by_text("Ana waits in channel 3.")).to_be_visible()
        await page.get_by_role("link", name="Trajectory of s3").click()
        await expect(page.get_by_role("heading", name="Call 2")).to_be_visible()
        await expect(page.get_by_text("[removed]")).to_be_visible()
        assert SECRET not in await page.content()
        long = page.locator("pre", has_text="Ana: I wait.")
        await expect(long).to_be_hidden()
        await page.locator("summary", has_text="tool result").press("Enter")
        await expect(long).to_be_visible()


async def test_page_of_a_running_run_updates_until_it_ends(
    served: Served, url: str, browser: Browser
) -> None:
    run = StoredFanout(served.store, WIDE, datetime.now(UTC))
    await run.begin()
    await run.flush()
    async with page_of(browser) as page, page_of(browser, java_script_enabled=False) as plain:
        await page.goto(f"{url}/runs/{WIDE}")
        await plain.goto(f"{url}/runs/{WIDE}")
        bars = page.locator("table.timeline tbody tr")
        await expect(bars).to_have_count(1)
        await run.freeze(3)
        await run.work(1)
        await expect(bars).to_have_count(4)
        await expect(bars.nth(1)).to_contain_text("complete")
        await expect(bars.nth(2)).to_contain_text("waiting")
        await plain.reload()
        await expect(plain.locator("table.timeline tbody tr")).to_have_count(4)
        for number in (2, 3):
            await run.work(number)
        await run.finish(20.0)
        await expect(page.locator("#live")).not_to_have_attribute("hx-trigger", "every 2s")
        await expect(page.locator("dl.facts .badge").first).to_have_text("complete")
        await expect(page.get_by_text("4 contexts,")).to_be_visible()


async def test_pages_show_known_names_instead_of_user_and_channel_ids(served: Served) -> None:
    await wide_run(served.store, WIDE, 1)
    feedback = {"request": "T1/C1/1.000001", "user": "U1", "value": "bad", "at": NEWEST}
    await served.store.database.write(sa.insert(tables.feedback).values(feedback))
    paths = (f"/runs/{WIDE}", "/runs", "/costs?first=2026-11-01&last=2026-11-28")
    for path in (*paths, "/feedback"):
        assert "<bdi>U1</bdi>" in (await get(served, path)).text
    for id, name in (("U1", "Ana"), ("C1", "#support")):
        await Names(served.store.database).save(id, name)
    for path in (*paths, "/feedback"):
        page = await get(served, path)
        assert '<bdi title="U1">Ana</bdi>' in page.text
        assert ('<bdi title="C1">#support</bdi>' in page.text) == (path in paths)


async def test_text_of_people_and_models_is_escaped_in_pages(
    served: Served, url: str, browser: Browser
) -> None:
    await Names(served.store.database).save("U1", NASTY)
    await wide_run(served.store, WIDE, 2, words=NASTY)
    run = f"/runs/{WIDE}"
    parts = (run, f"{run}/subagents/s1", f"{run}/contexts/s1")
    paths = (*parts, "/runs", f"/runs?who={NASTY}", "/costs")
    async with page_of(browser) as page:
        for path in paths:
            await page.goto(url + path)
            assert await page.locator("img, script:not([src])").count() == 0
            assert await page.locator("a[href^=javascript]").count() == 0
            assert await page.evaluate("window.hacked") is None
        await page.goto(f"{url}/runs/{WIDE}")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("<script>")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_pages_have_no_accessibility_violations(
    served: Served, url: str, browser: Browser, scheme: str
) -> None:
    await store_rows(served.store.database, many_rows(60, NEWEST, timedelta(minutes=5)))
    await wide_run(served.store, WIDE, 4)
    paths = (
        "/runs",
        "/runs?kind=none",
        f"/runs/{WIDE}",
        f"/runs/{WIDE}/audit",
        f"/runs/{WIDE}/contexts/s1",
        f"/runs/{WIDE}/subagents/s1",
        "/runs/none",
        "/costs?first=2026-11-01&last=2026-11-28",
    )
    async with page_of(browser, color_scheme=scheme) as page:
        for path in paths:
            await page.goto(url + path, wait_until="networkidle")
            for fold in await page.locator("details").all():
                await fold.evaluate("fold => fold.open = true")
            await expect(page.get_by_role("link", name="Brief and result")).to_have_count(0)
            report = await Axe().run(page)
            assert report.violations_count == 0, f"{path}: {report.generate_report()}"
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/runs?kind=nap", 400, "There is no kind “nap”: choose one of mention, dm"),
        ("/runs?status=nap&cost_from=lots", 400, "“lots” is no amount in dollars"),
        ("/runs?before=yesterday", 400, "The address names no page of the list"),
        ("/runs?text=" + "x" * 201, 400, "may have 200 characters"),
        ("/runs?text=%25", 200, "No run matches"),
        ("/runs/wide", 404, "There is no run wide, or it was deleted."),
        (f"/runs/{WIDE}/contexts/s9", 404, "there is no such context"),
        (f"/runs/{WIDE}/subagents/s1", 200, "Ana waits in channel 1."),
        (f"/runs/{WIDE}/subagents/s9", 404, f"The run {WIDE} has no subagent s9"),
        ("/runs/emptied1/subagents/s1", 404, "retention has deleted it"),
        ("/runs/emptied1", 200, "Retention has deleted the question"),
        ("/runs/emptied1/contexts/s1", 404, "retention.trajectories_days has passed"),
        ("/runs/aged1", 200, "No times of its calls are stored."),
        ("/costs?first=monday", 400, "Write days as 2026-11-28."),
        ("/costs?first=2026-11-28&last=2026-11-01", 400, "The first day comes before the last"),
    ],
)
async def test_pages_explain_invalid_filters_and_missing_or_deleted_data(
    emptied: Served, path: str, status: int, sentence: str
) -> None:
    page = await get(emptied, path)
    assert (page.status_code, sentence in page.text) == (status, True), page.text


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def emptied(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """A full run, one emptied by retention, and one that has lost only its trajectories."""
    folder = tmp_path_factory.mktemp("emptied")
    async with console(folder, LOCAL, local=True) as served:
        for id in (WIDE, "emptied1", "aged1"):
            await wide_run(served.store, id, 1)

        def delete(connection: sa.Connection) -> None:
            empty_runs(connection, ["emptied1"])
            empty_trajectories(connection, ["emptied1", "aged1"])

        await served.store.database.change(delete)
        yield served


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "127.0.0.1:8200"}, 200),
        ({"host": "localhost:8200"}, 200),
        ({"host": "[::1]:8200"}, 200),
        ({"host": "rebound.example"}, 403),
        ({"host": ""}, 403),
        ({"host": "["}, 403),
        ({"host": "localhost", "x-forwarded-for": "203.0.113.7"}, 403),
    ],
)
async def test_loopback_console_rejects_foreign_hosts_and_clients(
    served: Served, headers: dict[str, str], status: int
) -> None:
    page = await get(served, "/runs", **headers)
    assert page.status_code == status
    assert page.headers["cache-control"] == "no-store"
    transport = httpx2.ASGITransport(served.app, client=("203.0.113.7", 1))
    async with httpx2.AsyncClient(transport=transport, base_url=LOCAL) as elsewhere:
        assert (await elsewhere.get(f"{PATH}/runs", headers=headers)).status_code == 403


@pytest.fixture
async def filled(place: StorePlace) -> AsyncIterator[Store]:
    """210 runs in either kind of database, one of them rated."""
    async with place.stores() as (store,):
        await store_rows(store.database, many_rows(210, NEWEST, timedelta(hours=1)))
        feedback = {"request": "T1/C1/1.000000", "user": "U9", "value": "bad", "at": NEWEST}
        await store.database.write(sa.insert(tables.feedback).values(feedback))
        for id, name in (("U3", "Ída Boss"), ("U4", "Nadia"), ("C1", "#Support")):
            await Names(store.database).save(id, "earlier")
            await Names(store.database).save(id, name)
        yield store


FILTERS: dict[str, range | list[int]] = {
    "": range(210),
    "who=U3": [n for n in range(210) if n % 5 == 3 and n % 7 != 5],
    "who=ída+b": [n for n in range(210) if n % 5 == 3 and n % 7 != 5],
    "who=earlier": [],
    "who=command-line": range(5, 210, 7),
    "where=C1": [n for n in range(210) if n % 3 == 1 and n % 7 not in (3, 5)],
    "where=%23sup": [n for n in range(210) if n % 3 == 1 and n % 7 not in (3, 5)],
    "where=weekly": range(3, 210, 7),
    "kind=ask&status=failed": [n for n in range(210) if n % 7 == 5 and n % 10 == 9],
    "cost_from=0.05": range(4, 210, 5),
    "cost_from=0.015&cost_to=0.025": range(1, 210, 5),
    "text=of+RÄRE": [77],
    "rating=bad": [1],
}
"""Query string -> numbers of the runs that it finds."""


async def test_runs_are_filtered_and_paged(filled: Store) -> None:
    for query, numbers in FILTERS.items():
        ids, before = list[str](), ""
        while True:
            filters = RunFilter.of(QueryParams(f"{query}&before={before}"), filled.database.shared)
            assert filters.faults == ()
            rows, before = await listed_runs(filled.database, filters)
            assert len(rows) <= PAGE_SIZE
            ids += [row.id for row in rows]
            if not before:
                break
            before = before.replace("+", "%2B")
        assert ids == [f"run{n:06}" for n in numbers], query


async def test_costs_are_summed_by_day_channel_user_schedule_and_model(filled: Store) -> None:
    await wide_run(filled, WIDE, 3)  # $0.2, of which three subagents have $0.002 each
    window = CostWindow.of(QueryParams("first=2026-11-20&last=2026-11-27"), NEWEST.date())
    rows = many_rows(210, NEWEST, timedelta(hours=1))
    inside = [row for row in rows if window.first <= row["started"].date() <= window.last]
    days = await costs_by_day(filled.database, window)
    assert [row.key for row in days.rows] == window.days
    total = sum(row["cost_usd"] for row in inside) + 0.2
    assert sum(row.usd for row in days.rows) == pytest.approx(total)
    assert sum(row.runs for row in days.rows) == len(inside) + 1
    by_title = {
        table.title: {r.key: r.usd for r in table.rows}
        for table in await cost_tables(filled.database, window)
    }
    channels = [r["cost_usd"] for r in inside if (r["request"] or "").startswith("T1/C2/")]
    assert by_title["By channel"]["C2"] == pytest.approx(sum(channels))
    typed = [r["cost_usd"] for r in inside if r["requester"] is None]
    assert by_title["By user"]["command-line"] == pytest.approx(sum(typed))
    scheduled = [r["cost_usd"] for r in inside if r["kind"] == "schedule"]
    assert by_title["By schedule"] == {"weekly": pytest.approx(sum(scheduled))}
    by_model = {
        "not recorded": pytest.approx(total - 0.2),
        "claude-main": pytest.approx(0.194),
        "claude-fast": pytest.approx(0.006),
    }
    assert by_title["By model"] == by_model
    await filled.database.change(lambda connection: empty_trajectories(connection, [WIDE]))
    assert {
        row.key: row.usd for row in (await cost_tables(filled.database, window))[-1].rows
    } == by_model


@pytest.mark.system
def test_console_command_prints_its_address(data_dir: Path) -> None:
    with_store(data_dir)
    with forked_command("console", "--port", "0") as process:
        address = process.wait_for_output().splitlines()[0]
        page = httpx2.get(f"{address}/runs", timeout=WAIT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
    assert (page.status_code, "No runs yet" in page.text) == (200, True)
