"""Make the pictures of the docs from `assistant serve --local`, in Chromium: `make screenshots`.

Each subject is asked on the page as a newcomer would, and its thread is stored in docs/pictures/,
once in light and once in dark colours, with few colours so that the files stay small.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from PIL import Image
from playwright.sync_api import Browser, FloatRect, Page, expect, sync_playwright

PICTURES = Path(__file__).with_name("pictures")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
COLOURS = 64
WIDTH, HEIGHT = 1180, 860
WAIT_MS = 120_000
ASKED = {
    "answer": "How many customers are affected by the double charges, and what do they ask for?",
    "sweep": "Sweep csm-* of the last 14 days",
    "digest": "Triage my inbox of the last 14 days",
    "card": "Every Monday at 9 tell me last week's refunds by market",
    "reminder": "Remind me tomorrow at 9 to call the bank",
    "ask-back": "Post a short apology for Saturday's card outage to the customers' channel",
}
"""Name of a picture -> what Helena Vasconcelos writes to the assistant."""


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for scheme in SCHEMES:
            with served() as (page, console):
                pictures_of(browser, page, console, scheme)
        browser.close()


@contextmanager
def served() -> Iterator[tuple[str, str]]:
    """Run `serve --local` with its defaults; yield the addresses of the page and the console."""
    with tempfile.TemporaryDirectory() as home:
        env = {"HOME": home, "PATH": os.environ["PATH"]}
        words = ["serve", "--local", "--port", "0", "--page-port", "0"]
        line = [sys.executable, "-m", "bot", *words]
        with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr
            found = [re.search(r"http://\S+", process.stderr.readline()) for _ in range(2)]
            try:
                page, console = (each[0] for each in found if each)
                yield page, console
            finally:
                process.terminate()


def pictures_of(browser: Browser, url: str, console: str, scheme: Literal["light", "dark"]) -> None:
    context = browser.new_context(
        viewport={"width": WIDTH, "height": HEIGHT},
        color_scheme=scheme,
        locale="en-GB",
        timezone_id="Europe/Lisbon",
    )
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    expect.set_options(timeout=WAIT_MS)
    page.goto(url)
    page.get_by_label("You are").select_option(label="Helena Vasconcelos")
    expect(page.get_by_text("Live", exact=True)).to_be_visible()
    for name, text in ASKED.items():
        ask(page, text)
        store(page.locator("#thread").screenshot(), name, scheme)
    page.get_by_role("button", name="Home", exact=True).click()
    expect(page.locator("#messages")).to_contain_text("Preferences", ignore_case=True)
    store(page.locator("#channel").screenshot(), "home", scheme)
    page.goto(f"{console}/runs")
    store(page.screenshot(clip=cut_below(page, "table.runs")), "console-runs", scheme)
    page.get_by_role("link", name=ASKED["digest"]).click()
    store(
        page.screenshot(clip=cut_below(page, "table.timeline"), full_page=True),
        "console-run",
        scheme,
    )
    context.close()


def cut_below(page: Page, what: str) -> FloatRect:
    """Return the part of a page down to the end of this element."""
    box = page.locator(what).bounding_box()
    assert box
    return {"x": 0, "y": 0, "width": WIDTH, "height": box["y"] + box["height"] + 16}


def ask(page: Page, text: str) -> None:
    """Ask in the direct message, and show the thread from its top when it is answered."""
    page.get_by_role("button", name="Direct message").click()
    page.get_by_role("textbox", name="Message").fill(text)
    page.keyboard.press("Enter")
    inside = page.locator("#inside")
    expect(inside.locator(".badge").first).to_be_visible()
    expect(page.locator("#working")).to_be_hidden()
    inside.evaluate("box => box.scrollTo(0, 0)")


def store(picture: bytes, name: str, scheme: str) -> None:
    image = Image.open(io.BytesIO(picture)).convert("RGB").quantize(COLOURS)
    image.save(PICTURES / f"{name}-{scheme}.png", optimize=True)


if __name__ == "__main__":
    main()
