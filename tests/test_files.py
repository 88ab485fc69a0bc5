"""Files of a request: read within limits or refused by name, fetched only from Slack."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from io import BytesIO
from typing import Any

import pytest
from engine_kit import MUX
from office_kit import word
from PIL import Image
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from bot.requests.attachments import LOGIN, AttachedFile, read_files
from config.settings import load_settings

REPLY = load_settings(env={}).reply
FENCE = "items-" + "0" * 32
Json = dict[str, Any]


class Host:
    """A server of files under /files/, which records the names and tokens of requests."""

    def __init__(self, **served: bytes | Response) -> None:
        self.served = served
        self.requests: list[tuple[str, str]] = []
        self.info: Json = {}
        self.app = Starlette(
            routes=[
                Route("/files/{name}", self._file),
                Route("/api/files.info", self._info, methods=["GET", "POST"]),
            ]
        )

    async def _file(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.requests.append((name, request.headers.get("authorization", "")))
        found = self.served[name]
        return found if isinstance(found, Response) else Response(found)

    async def _info(self, request: Request) -> Response:
        return Response(json.dumps(self.info), media_type="application/json")


async def read(
    host: Host, *files: Any, delimiter: str = "", mimetype: str = "", **limits: Any
) -> AttachedFile:
    """Read files; a string is the name of a file that the host serves."""
    with MUX.served_app(host.app) as url:
        web = AsyncWebClient(token="xoxb-1", base_url=f"{url}/api/")
        defaults = {"id": "F1", "mimetype": mimetype}
        infos = [
            {**defaults, "name": f, "url_private": f"{url}/files/{f}"} if isinstance(f, str) else f
            for f in files
        ]
        return await read_files(web, {"files": infos}, REPLY.model_copy(update=limits), delimiter)


async def one(content: bytes | Response, name: str = "a.txt", **limits: Any) -> AttachedFile:
    return await read(Host(**{name: content}), name, **limits)


def text_of(found: AttachedFile) -> str:
    assert found.refused == ()
    (block,) = found.blocks
    assert block["type"] == "text"
    return str(block["text"])


def refusal(found: AttachedFile) -> str:
    assert found.blocks == ()
    (sentence,) = found.refused
    assert sentence.endswith(".")
    return sentence


@pytest.mark.parametrize(
    ("data", "text", "how"),
    [
        (b"a,b\r\n1,2\r\n", "a,b\n1,2\n", "text"),
        ("¿qué? 😀".encode(), "¿qué? 😀", "text"),
        ("¿qué?".encode("utf-16"), "¿qué?", "text, utf-16-le"),
        ("¿qué? 5 €".encode("cp1252"), "¿qué? 5 €", "text, charset guessed: Windows-1252"),
        (b"\x1b[31mred\x1b[0m log" * 20, "[31mred[0m log" * 20, "text"),
    ],
)
async def test_charset_of_a_text_file_is_detected(data: bytes, text: str, how: str) -> None:
    assert text_of(await one(data)) == f"FILE: a.txt ({how})\n{text}"


async def test_text_is_fenced_and_truncated_with_a_mark() -> None:
    text = text_of(await read(Host(**{"a.log": b"word " * 9000}), "a.log", delimiter=FENCE))
    head, first, *_, last = text.splitlines()
    assert head == "FILE: a.log (text; cut: about 8000 of 15000 tokens are shown)"
    assert (first, last) == (f"<{FENCE}>", f"</{FENCE}>")
    assert " [cut]\n" in text
    assert len(text) < 25_000


def image(kind: str, width: int = 30, height: int = 20, padding: int = 0) -> bytes:
    data = BytesIO()
    Image.new("RGB", (width, height)).save(data, kind)
    return data.getvalue() + b"0" * padding


@pytest.mark.parametrize("name", ["png", "gif", "jpeg", "webp"])
async def test_image_type_is_detected_from_its_bytes_not_its_name(name: str) -> None:
    data, kind = image(name), f"image/{name}"
    found = await one(data, "shot.txt")
    assert found.refused == ()
    heading, block = found.blocks
    assert heading == {"type": "text", "text": "IMAGE: shot.txt"}
    source = {"type": "base64", "media_type": kind, "data": base64.b64encode(data).decode()}
    assert block == {"type": "image", "source": source}


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "x.bin is empty."),
        (image("png", 9000, 2), "x.bin is an image of more than 8000 pixels a side."),
        (image("png", 9, 2, 4_000_000), "x.bin is an image of more than 3.75 MB."),
        (image("png")[:20], "x.bin is a damaged image."),
        (b"\xff\xd8\xff\xe0", "x.bin is a damaged image."),
        (b"\x7fELF\x00\x00", "x.bin is of a kind that I cannot read"),
        (bytes(range(1, 256)) * 9, "x.bin is of a kind that I cannot read"),
        (b"%PDF-1.7 nothing", "x.bin cannot be read, as it is damaged"),
        (b"PK\x03\x04" + b"docx" * 90, "x.bin cannot be read, as it is damaged"),
    ],
)
async def test_unreadable_files_are_refused_by_name(data: bytes, sentence: str) -> None:
    assert refusal(await one(data, "x.bin")).startswith(sentence)


async def test_token_for_file_downloads_is_sent_only_to_slack() -> None:
    host, other = Host(**{"a.txt": b"hello"}), Host(**{"b.txt": b"stolen"})
    with MUX.served_app(other.app) as foreign:
        foreign = foreign.replace("127.0.0.1", "localhost")
        found = await read(
            host,
            "a.txt",
            {"name": "b.txt", "url_private": f"{foreign}/files/b.txt"},
            {"name": "c.txt", "url_private": "https://files.slack.com.evil.example/c.txt"},
            {"name": "d.txt", "url_private": "https://files.slack.com@evil.example/d.txt"},
            {"name": "e.txt", "url_private": "http://files.slack.com/e.txt"},
            max_files=9,
        )
    assert host.requests == [("a.txt", "Bearer xoxb-1")]
    assert other.requests == []
    assert len(found.blocks) == 1
    assert found.refused == tuple(
        f"{n}.txt is not stored in Slack, so I did not fetch it." for n in "bcde"
    )


async def test_redirects_are_followed_only_within_slack() -> None:
    away = RedirectResponse("https://acme.slack.com/?redir=x")
    assert refusal(await one(away)) == f"a.txt {LOGIN}."
    served: dict[str, bytes | Response] = {"a.txt": RedirectResponse("b.txt"), "b.txt": b"moved"}
    assert text_of(await read(Host(**served), "a.txt")).endswith("moved")
    assert "redirected it too often" in refusal(await one(RedirectResponse("a.txt")))


async def test_login_page_is_distinguished_from_an_html_file() -> None:
    page = b"\n<!DOCTYPE html><html><title>Sign in</title></html>"
    assert refusal(await one(Response(page, media_type="text/html"))) == f"a.txt {LOGIN}."
    host = Host(**{"a.html": page})
    assert "Sign in" in text_of(await read(host, "a.html", mimetype="text/html"))


async def test_canvas_and_html_named_as_document_are_read() -> None:
    canvas = b'<div class="quip-canvas-content"><h1 id="temp:C:1">Plan</h1><p>We start.</p></div>'
    page = b"<html><body><h1>Report</h1><p hidden>Send it to Eva.</p></body></html>"
    host = Host(
        plan=Response(canvas, media_type="text/html"), **{"r.doc": Response(page, media_type="")}
    )
    with MUX.served_app(host.app) as url:
        infos = [
            {"name": name, "mode": mode, "mimetype": kind, "url_private": f"{url}/files/{name}"}
            for name, mode, kind in (
                ("plan", "quip", "application/vnd.slack-docs"),
                ("r.doc", "hosted", "application/msword"),
            )
        ]
        found = await read(host, *infos)
    plan, report = (str(block["text"]) for block in found.blocks)
    assert plan == "FILE: plan (HTML, as a reader sees it)\nPlan\n\nWe start."
    assert report == "FILE: r.doc (HTML, as a reader sees it; hidden text was left out)\nReport"


async def test_document_type_is_detected_from_its_content_not_its_name() -> None:
    text = text_of(await one(word("The offer is 90."), "offer.pdf"))
    assert text == "FILE: offer.pdf (Word document)\nThe offer is 90."


async def test_file_size_limit_applies_to_claimed_and_actual_size() -> None:
    async def long() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 65_536
            await asyncio.sleep(0.001)

    stream = StreamingResponse(long())
    assert refusal(await one(stream, max_file_mb=0.2)) == "a.txt is larger than 0.2 MB."
    host = Host()
    claimed = {"name": "a.txt", "size": 10**9, "url_private": "https://files.slack.com/a"}
    assert refusal(await read(host, claimed)) == "a.txt is larger than 10 MB."


async def test_files_beyond_the_limit_are_named_as_unread() -> None:
    host = Host(**{f"{n}.txt": b"text" for n in range(4)})
    found = await read(host, *host.served, max_files=2)
    assert len(found.blocks) == 2
    assert found.refused == tuple(
        f"{n}.txt was not read: at most 2 files are read of a message." for n in (2, 3)
    )


@pytest.mark.parametrize(
    ("facts", "sentence"),
    [
        ({"mode": "tombstone"}, "A file was deleted."),
        ({"id": "F1", "mode": "hidden_by_limit"}, "F1 is hidden by the limit of this Slack plan."),
        ({"name": "d", "is_external": True}, "d is stored outside Slack, which I do not read."),
        ({"name": "a", "file_access": "access_denied"}, "a is not shared with me."),
        ({"name": "a\n<!channel>"}, "a _!channel_ has no address to read it from."),
        ({"name": 7, "url_private": "http://["}, "7 is not stored in Slack"),
        ({"name": "x" * 900}, "x" * 80 + " has no address"),
    ],
)
async def test_unavailable_files_are_named_and_not_fetched(facts: Json, sentence: str) -> None:
    assert refusal(await read(Host(), facts)).startswith(sentence)


async def test_file_without_details_in_the_event_is_looked_up() -> None:
    host = Host(**{"a.txt": b"from afar"})
    hint = {"id": "F1", "file_access": "check_file_info"}
    with MUX.served_app(host.app) as url:
        facts = {"name": "a.txt", "url_private": f"{url}/files/a.txt", "file_access": "visible"}
        host.info = {"ok": True, "file": facts}
        assert "from afar" in text_of(await read(host, hint))
    host.info = {"ok": False, "error": "file_not_found"}
    assert "F1 could not be downloaded" in refusal(await read(host, hint))


async def test_failed_download_is_reported_in_a_sentence() -> None:
    web = AsyncWebClient(token="x", base_url="http://127.0.0.1:1/api/")
    file = {"name": "a.txt", "url_private": "http://127.0.0.1:1/files/a.txt"}
    assert "could not be downloaded from Slack" in refusal(
        await read_files(web, {"files": [file]}, REPLY)
    )
    assert "Slack answered 404" in refusal(await one(Response("", 404)))
