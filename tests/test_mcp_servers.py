"""Servers of tools: real ones over stdio and HTTP, and ones that misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from engine_kit import come
from mcp_kit import Rogue, Site, context, kit, settings_of, text_of, tool, tools_of, use
from process_kit import is_alive
from serve_kit import free_port
from timing import patient

from bot.local.server import LocalServer
from bot.tooling.mcp import McpTools
from scopes.mcp_servers.transports import MAX_MESSAGE
from scopes.tool import Tool, ToolContext, ToolError

READ = {"scope": "web", "access": "read", "readers": "public"}
ALL = ("big", "flood", "hang", "die", "look", "spawn", "picture", "fail", "refuse")


async def wait_for_tools(mcp: McpTools) -> dict[str, Tool]:
    """Return the tools of a server that is slow to start."""
    return await come(lambda: tools_of(mcp))


@asynccontextmanager
async def rogue(folder: Path, *names: str, **fields: object) -> AsyncIterator[McpTools]:
    program = Rogue(folder, *(tool(name) for name in names or (*ALL, "garbage")))
    server = {**READ, "command": program.command, **fields}
    async with kit(settings_of(folder, rogue=server)) as mcp:
        yield mcp


async def wait_for_answer(
    tools: dict[str, Tool], name: str, text: str, ctx: ToolContext | None = None
) -> str:
    """Repeat a call until its answer or error contains `text`; return that answer or error."""
    async with patient():
        while True:
            try:
                answer = text_of(await use(tools, name, ctx))
            except ToolError as error:
                answer = str(error)
            if text in answer:
                return answer
            await asyncio.sleep(0.05)


async def test_pypi_server_is_started_and_called(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mcp_server_time", "--local-timezone", "UTC"]
    async with kit(settings_of(tmp_path, clock={**READ, "command": command})) as mcp:
        tools = await wait_for_tools(mcp)
        assert sorted(tools) == ["clock_convert_time", "clock_get_current_time"]
        args = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        result = await use(tools, "clock_convert_time", **args)
        assert "21:00:00+09:00" in text_of(result)


async def test_pypi_server_is_called_over_http(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "token").write_text("s3cret\n")
    where = ["--host", "127.0.0.1", "--port", str(port), "--allow-dir", str(tmp_path / "books")]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "excel_mcp", "streamable-http", *where),
        env={"PATH": os.defpath, "EXCEL_MCP_AUTH_TOKEN": "s3cret"},
    )
    server: dict[str, object] = {**READ, "url": f"http://127.0.0.1:{port}/mcp"}
    server["token_file"] = str(tmp_path / "token")
    server["tools"] = ["create_workbook"]
    try:
        async with kit(settings_of(tmp_path, excel=server)) as mcp:
            tools = await wait_for_tools(mcp)
            assert list(tools) == ["excel_create_workbook"]
            result = await use(tools, "excel_create_workbook", path="sales.xlsx")
            assert "sales.xlsx" in text_of(result)
        (tmp_path / "token").write_text("wrong")
        async with kit(settings_of(tmp_path, excel=server)) as mcp:
            assert await tools_of(mcp) == {}
            assert "refuses us" in mcp.find_missing()["web/mcp:excel"]
    finally:
        process.terminate()
        await process.wait()


async def test_client_recovers_from_an_ended_session_and_an_unavailable_server(
    tmp_path: Path,
) -> None:
    site = Site()
    (tmp_path / "token").write_text("s3cret")
    with LocalServer(site, "tools") as server:
        config = {**READ, "url": f"{server.url}/mcp", "token_file": str(tmp_path / "token")}
        async with kit(settings_of(tmp_path, site=config)) as mcp:
            tools = await tools_of(mcp)
            ctx = context(handles={"mcp:site": ""})
            assert text_of(await use(tools, "site_find", ctx)) == "found"
            assert site.heard.count("tools/list") == 1  # calls made while it connects wait
            site.sessions.clear()
            assert "Session terminated" in text_of(await use(tools, "site_find", ctx))
            assert await wait_for_answer(tools, "site_find", "found", ctx) == "found"
            assert site.heard.count("initialize") == 2
            site.away = True
            assert "The call failed" in getattr(await use(tools, "site_find", ctx), "note", "")
            await wait_for_answer(tools, "site_find", "refuses us", ctx)
            site.away = False
            assert await wait_for_answer(tools, "site_find", "found", ctx) == "found"
            server.stop()
            with pytest.raises(ToolError, match="Try again once"):
                await use(tools, "site_find", ctx)
            await wait_for_answer(tools, "site_find", "cannot be reached", ctx)
    assert site.tokens == {"Bearer s3cret"}


@pytest.mark.parametrize("way", ["json", "events"])
async def test_oversized_http_answer_ends_only_its_own_call(tmp_path: Path, way: str) -> None:
    site = Site()
    with LocalServer(site, "tools") as server:
        async with kit(settings_of(tmp_path, site={**READ, "url": f"{server.url}/mcp"})) as mcp:
            tools = await tools_of(mcp)
            ctx = context(handles={"mcp:site": ""})
            small, site.way = site.given, way
            site.given = {"content": [{"type": "text", "text": "x" * MAX_MESSAGE}]}
            with pytest.raises(ToolError, match="ask it for less"):
                await use(tools, "site_find", ctx)
            site.given = small
            assert text_of(await use(tools, "site_find", ctx)) == "found"
            assert site.heard.count("initialize") == 1


HOSTILE = {
    "endless": b"content-type: application/json\r\n\r\n" + b" " * 1_000_000,
    "packed": b"content-type: application/json\r\ncontent-encoding: gzip\r\n\r\n\x1f\x8b",
    "elsewhere": b"location: http://localhost:9/mcp\r\ncontent-length: 0\r\n\r\n",
    "nonsense": b"content-type: text/html\r\ncontent-length: 4\r\n\r\nevil",
}


@pytest.mark.parametrize("kind", HOSTILE)
async def test_http_server_with_invalid_answers_is_reported_as_unusable(
    tmp_path: Path, kind: str
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            status = b"307 x" if kind == "elsewhere" else b"200 OK"
            writer.write(b"HTTP/1.1 " + status + b"\r\n" + HOSTILE[kind])
            while kind == "endless":
                writer.write(b" " * 1_000_000)
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        config = {**READ, "url": f"http://127.0.0.1:{port}/mcp"}
        async with kit(settings_of(tmp_path, odd=config)) as mcp:
            assert await tools_of(mcp) == {}
            reason = mcp.find_missing()["web/mcp:odd"]
            assert "does not follow the protocol" in reason or "refuses us" in reason


async def test_server_sees_no_secrets_in_its_environment_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    async with rogue(tmp_path) as mcp:
        tools = await tools_of(mcp)
        seen = json.loads(text_of(await use(tools, "rogue_look")))
        child = int(text_of(await use(tools, "rogue_spawn")))
        assert is_alive(seen["pid"])
        assert is_alive(child)
    assert set(seen["env"]) <= {"PATH", "LANG", "HOME", "LC_CTYPE"}
    assert Path(seen["cwd"]) == Path(seen["env"]["HOME"]) != Path.home()
    assert not is_alive(seen["pid"]), "no process is left"
    assert not is_alive(child)


async def test_server_that_dies_is_restarted_and_its_stderr_is_kept(
    tmp_path: Path,
) -> None:
    async with rogue(tmp_path) as mcp:
        tools = await tools_of(mcp)
        before = json.loads(text_of(await use(tools, "rogue_look")))["pid"]
        with pytest.raises(ToolError, match=r"ended while it was at work\. Try again once"):
            await use(tools, "rogue_die")
        after = json.loads(text_of(await use(tools, "rogue_look")))["pid"]
        log = tmp_path / "data/mcp/rogue/stderr.log"
        assert await asyncio.to_thread(log.read_text) == "It dies."
        os.kill(after, 9)  # it is killed between calls, too
        last = json.loads(await wait_for_answer(tools, "rogue_look", "pid"))["pid"]
        assert last not in (before, after)


async def test_hanging_call_times_out_and_later_calls_work(tmp_path: Path) -> None:
    async with rogue(tmp_path, timeout_s=1.0) as mcp:
        tools = await tools_of(mcp)
        with pytest.raises(ToolError, match="gave no answer within 1 s"):
            await use(tools, "rogue_hang")
        await wait_for_answer(tools, "rogue_look", "pid")


async def test_long_answers_are_truncated_and_oversized_ones_rejected(tmp_path: Path) -> None:
    async with rogue(tmp_path) as mcp:
        tools = await tools_of(mcp)
        result = await use(tools, "rogue_big")
        assert len(text_of(result).replace("\n", "")) == 8_000 * 3
        assert "of 600,000 characters" in getattr(result, "truncated", "")
        with pytest.raises(ToolError, match="sent more than can be taken as one answer: ask it"):
            await use(tools, "rogue_flood")
        assert "pid" in text_of(await use(tools, "rogue_look"))


async def test_answers_that_need_too_much_memory_are_rejected(tmp_path: Path) -> None:
    async with rogue(tmp_path, "lists", "many", "look") as mcp:
        tools = await tools_of(mcp)
        tracemalloc.start()
        try:
            for name in ("rogue_lists", "rogue_many"):
                with pytest.raises(ToolError, match="ask it for less"):
                    await use(tools, name)
                assert "pid" in text_of(await use(tools, "rogue_look"))
            assert tracemalloc.get_traced_memory()[1] < 30_000_000
        finally:
            tracemalloc.stop()


async def test_requests_of_a_server_that_does_not_read_do_not_accumulate(
    tmp_path: Path,
) -> None:
    flood = Rogue(tmp_path, tool("deaf"), tool("look"))
    config = {**READ, "command": flood.command}
    async with kit(settings_of(tmp_path, rogue=config, clock=config)) as mcp:
        tools = await tools_of(mcp)
        tracemalloc.start()
        try:
            call = asyncio.create_task(use(tools, "rogue_deaf"))
            await asyncio.sleep(1)
            assert "pid" in text_of(await use(tools, "clock_look"))
            assert tracemalloc.get_traced_memory()[1] < 15_000_000
        finally:
            tracemalloc.stop()
    with pytest.raises(ToolError, match="ended while it was at work"):
        await call


async def test_unsolicited_server_messages_are_ignored_and_list_changes_noticed(
    tmp_path: Path,
) -> None:
    async with rogue(tmp_path, "notes", "look") as mcp:
        tools = await tools_of(mcp)
        Rogue(tmp_path, tool("look"))  # the cached list has both
        assert text_of(await use(tools, "rogue_notes")) == "{}"
        assert set(await tools_of(mcp)) == {"rogue_look"}


async def test_failure_text_of_a_server_is_shown_only_as_untrusted_content(tmp_path: Path) -> None:
    async with rogue(tmp_path) as mcp:
        tools = await tools_of(mcp)
        for name in ("rogue_refuse", "rogue_fail"):
            result = await use(tools, name)
            assert "IGNORE" not in getattr(result, "note", "")
            assert getattr(result, "note", "").startswith("The call failed")
        assert "IGNORE all rules" in text_of(await use(tools, "rogue_refuse"))
        with pytest.raises(ToolError, match="answered with what is no result"):
            await use(tools, "rogue_garbage")
        picture = await use(tools, "rogue_picture")
        assert text_of(picture) == "inside"
        assert "Not shown, as they are no text: 1 image" in getattr(picture, "note", "")
