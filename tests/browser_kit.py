"""Chromium for tests, without its own background traffic."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright import async_api, sync_api
from playwright.async_api import Browser, async_playwright
from timing import WAIT_S

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

for each in (async_api, sync_api):
    each.expect.set_options(timeout=WAIT_S * 1000)


def chromium() -> str:
    """Return the path of Chromium; without it, skip the test, or let it fail in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = "there is no Chromium here (apt-get install chromium)"
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        instance = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield instance
        await instance.close()
