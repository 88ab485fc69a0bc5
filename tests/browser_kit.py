"""Chromium, as tests start it; its own background traffic is off."""

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
    """Return where it is; the test is skipped without it, in CI it fails."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        why = "there is no Chromium here (apt-get install chromium)"
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail(why)
        pytest.skip(why)
    return found


@pytest_asyncio.fixture
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield launched
        await launched.close()
