"""Read the files of a request: images and documents, within the limits of the Messages API."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any
from urllib.parse import urljoin, urlsplit

import aiohttp
from PIL import Image
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from config.sections import ReplySettings
from scopes.documents.text import DOCUMENT_S, DocumentRefused, read_document
from scopes.tool import estimate_tokens, one_line, readable
from subagents.brief import Block, text_block
from subagents.delimiter import shorten, wrap

log = logging.getLogger(__name__)

MAX_PIXELS = 8_000
"""Longest side that the Messages API takes."""
MAX_BASE64 = 5_000_000
"""Bytes of an image as base64 that the Messages API takes."""


IMAGE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....WEBP", re.DOTALL)
"""The first bytes of an image; the name of the file does not matter."""
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
DOWNLOAD_S = 30.0
MAX_REDIRECTS = 3
SLACK_HOSTS = frozenset({"files.slack.com", "files.slack-gov.com"})
"""Hosts to which the token may be sent, besides the configured API host."""
MEGABYTE = 1_000_000
UNAVAILABLE_REASONS = {
    "tombstone": "was deleted",
    "deleted": "was deleted",
    "hidden_by_limit": "is hidden by the limit of this Slack plan",
    "external": "is stored outside Slack, which I do not read",
    "list": "is a Slack List, which I cannot read as a file",
}
LOGIN = (
    "could not be downloaded: Slack sent its login page. The app needs the scope files:read; "
    "add it and install the app again"
)


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """The contents of a request's files."""

    blocks: tuple[Block, ...]
    """Content blocks of the Messages API, each image after a text block with its name."""
    refused: tuple[str, ...]
    """A sentence for each file that was not read."""


async def read_files(
    web: AsyncWebClient, event: Mapping[str, Any], settings: ReplySettings, delimiter: str = ""
) -> AttachedFile:
    """Read the files of a message with the bot's token.

    `delimiter` surrounds their text. Raises only cancellation: a file that cannot
    be read is listed in `refused`.
    """
    listed = event.get("files")
    files = [f for f in listed if isinstance(f, dict)] if isinstance(listed, list) else []
    files = [readable(f) for f in files]
    accepted, excess = files[: settings.max_files], files[settings.max_files :]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_read(web, f, settings, delimiter)) for f in accepted]
    results = [task.result() for task in tasks]
    refused = [r for r in results if isinstance(r, str)]
    most = settings.max_files
    refused += [
        f"{_name(f)} was not read: at most {most} files are read of a message." for f in excess
    ]
    return AttachedFile(
        tuple(b for r in results if not isinstance(r, str) for b in r), tuple(refused)
    )


async def _read(
    web: AsyncWebClient, file: dict[str, Any], settings: ReplySettings, delimiter: str
) -> list[Block] | str:
    """Return the content blocks of one file, or the sentence that refuses it."""
    name = _name(file)
    try:
        async with asyncio.timeout(DOWNLOAD_S + DOCUMENT_S + 5):
            file = await _complete(web, file)
            name = _name(file)
            data = await _download(web, file, settings.max_file_mb)
            return await _content(file, data, settings.max_file_tokens, delimiter)
    except DocumentRefused as refusal:
        return f"{name} {refusal}."
    except TimeoutError:
        return f"{name} was not read: it took too long."
    except (aiohttp.ClientError, OSError, SlackApiError, ValueError) as error:
        log.warning("the file %s could not be read", file.get("id"), exc_info=True)
        return f"{name} could not be downloaded from Slack ({type(error).__name__})."


def _name(file: Mapping[str, Any]) -> str:
    name = file.get("name") or file.get("title") or file.get("id") or "A file"
    return re.sub(r"[<>{}\[\]]", "_", one_line(str(name)))[:80] or "A file"


async def _complete(web: AsyncWebClient, file: dict[str, Any]) -> dict[str, Any]:
    """Return the file's facts; for a file of another workspace the event has only its id."""
    match file:
        case {"file_access": "check_file_info", "id": str(id)}:
            found = (await web.files_info(file=id)).get("file")
            file = {**file, **readable(found)} if isinstance(found, dict) else file
    if file.get("file_access") in ("access_denied", "file_not_found"):
        raise DocumentRefused("is not shared with me")
    mode = "external" if file.get("is_external") else str(file.get("mode") or "")
    if mode in UNAVAILABLE_REASONS:
        raise DocumentRefused(UNAVAILABLE_REASONS[mode])
    return file


async def _download(web: AsyncWebClient, file: Mapping[str, Any], max_mb: float) -> bytes:
    url = str(file.get("url_private_download") or file.get("url_private") or "")
    if not url:
        raise DocumentRefused("has no address to read it from")
    most = int(max_mb * MEGABYTE)
    size = file.get("size")
    if isinstance(size, int) and size > most:
        raise DocumentRefused(f"is larger than {max_mb:g} MB")
    timeout = aiohttp.ClientTimeout(total=DOWNLOAD_S)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        for _ in range(MAX_REDIRECTS + 1):
            if not _is_slack_url(url, web.base_url):
                raise DocumentRefused("is not stored in Slack, so I did not fetch it")
            headers = {"Authorization": f"Bearer {web.token}"}
            async with session.get(url, headers=headers, allow_redirects=False) as response:
                if response.status in (301, 302, 303, 307, 308):
                    url = _redirect_target(url, response.headers.get("location", ""), web.base_url)
                    continue
                if response.status != 200:
                    raise DocumentRefused(
                        f"could not be downloaded: Slack answered {response.status}"
                    )
                return await _body(response, file, most, max_mb)
    raise DocumentRefused("could not be downloaded: Slack redirected it too often")


def _redirect_target(url: str, location: str, base_url: str) -> str:
    """Return where a redirection leads; Slack sends users without access to its login page."""
    target = urljoin(url, location)
    if not _is_slack_url(target, base_url):
        raise DocumentRefused(LOGIN)
    return target


def _is_slack_url(url: str, base_url: str) -> bool:
    """Return whether the token may be sent to this address."""
    try:
        target, base = urlsplit(url), urlsplit(base_url)
        same = (target.scheme, target.hostname, target.port) == (
            base.scheme,
            base.hostname,
            base.port,
        )
        secure = target.scheme == "https" and target.port in (None, 443)
    except ValueError:
        return False
    return same or (secure and target.hostname in SLACK_HOSTS)


async def _body(
    response: aiohttp.ClientResponse, file: Mapping[str, Any], most: int, max_mb: float
) -> bytes:
    data = bytearray()
    async for chunk in response.content.iter_chunked(1 << 16):
        data += chunk
        if len(data) > most:
            raise DocumentRefused(f"is larger than {max_mb:g} MB")
    is_page = re.match(rb"\s*(?:<!doctype html|<html)", bytes(data[:200]), re.IGNORECASE)
    if is_page and response.content_type == "text/html" and not _is_called_html(file):
        raise DocumentRefused(LOGIN)
    return bytes(data)


def _is_called_html(file: Mapping[str, Any]) -> bool:
    """Return whether Slack reports a file as HTML; a canvas or an export named .doc is not."""
    return any("html" in str(file.get(k) or "").lower() for k in ("mimetype", "filetype"))


async def _content(
    file: Mapping[str, Any], data: bytes, max_tokens: int, delimiter: str
) -> list[Block]:
    name = _name(file)
    if IMAGE.match(data):
        return [text_block(f"IMAGE: {name}"), _image(data)]
    found = await read_document(data, 4 * max_tokens, source=_is_called_html(file))
    facts, text = found.facts, shorten(found.text, max_tokens)
    if found.cut:
        facts += "; cut"
    elif len(text) < len(found.text):
        facts += f"; cut: about {max_tokens} of {estimate_tokens(found.text)} tokens are shown"
    head = f"FILE: {name} ({facts})"
    body = wrap(delimiter, [text]) if delimiter else text
    return [text_block(f"{head}\n{body}")]


def _image(data: bytes) -> Block:
    """Return an image as the Messages API takes it; only its header is read here."""
    large = f"is an image of more than {MAX_PIXELS} pixels a side"
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            is_jpeg = image.format == "MPO"  # as some phones save photographs
            kind, size = Image.MIME["JPEG" if is_jpeg else str(image.format)], image.size
    except Image.DecompressionBombError as error:
        raise DocumentRefused(large) from error
    except (OSError, ValueError) as error:
        raise DocumentRefused("is a damaged image") from error
    if max(size) > MAX_PIXELS:
        raise DocumentRefused(large)
    encoded = base64.b64encode(data).decode()
    if len(encoded) > MAX_BASE64:
        raise DocumentRefused(f"is an image of more than {MAX_BASE64 * 3 / 4 / MEGABYTE:g} MB")
    source = {"type": "base64", "media_type": kind, "data": encoded}
    return {"type": "image", "source": source}
