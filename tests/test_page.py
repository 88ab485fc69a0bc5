"""The page of the local Slack: what it lets a browser do, and how it looks to a person in one."""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Generator, Iterator
from typing import Any

import pytest
from browser_kit import FLAGS, chromium
from playwright.sync_api import Browser, Page, Route, expect, sync_playwright
from slack_sdk import WebClient
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from timing import WAIT_S

from bot.local.page import page_routes
from bot.local.sample_workspace import load_sample
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import micros

CHANNEL = "csm-spain"
WORKSPACE = load_sample()
NASTY = '<img src=x onerror="window.hacked = 1"> <script>window.hacked = 1</script> & <b>bold</b>'
ANSWER = """## What stands out
**Two** threads wait, see [thread 1](https://almadora.slack.com/archives/{channel}/p{ts}).

| Market | Open |
|---|---:|
| Spain | 2 |

1. Refunds
   - by card
2. `sync --all`

> quoted & <b>plain</b> [no](javascript:alert(1))
"""


class RunningPage:
    """A local Slack with its page, and a client of the bot."""

    def __init__(self, slack: LocalSlack, url: str) -> None:
        self.slack, self.url = slack, url
        self.bot = WebClient(BOT_TOKEN, base_url=url + API_PATH)
        channels = slack.state.channels.values()
        self.channel = next(channel.id for channel in channels if channel.name == CHANNEL)
        self.people = [u.id for u in slack.state.users.values() if u.title and not u.is_bot]
        self.me, self.other = self.people[:2]

    def send(
        self, path: str, body: str | None = None, **headers: str
    ) -> tuple[int, dict[str, Any]]:
        fields = {"content-type": "application/json"}
        fields |= {name.replace("_", "-"): value for name, value in headers.items()}
        data = None if body is None else body.encode()
        request = urllib.request.Request(self.url + path, data, fields)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def texts(self, channel: str | None = None) -> list[str]:
        return [each.text for each in self.slack.visible(channel or self.channel)]


@pytest.fixture
def running() -> Iterator[RunningPage]:
    slack = LocalSlack(WORKSPACE)
    slack.app.router.routes.extend(page_routes(slack))
    with LocalServer(slack.app, "slack") as server:
        yield RunningPage(slack, server.url)
    slack.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def page(browser: Browser, running: RunningPage) -> Iterator[Page]:
    """The page, opened by the first person in the channel, which must raise no error at all."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, locale="en-GB")
    opened, faults = context.new_page(), list[str]()
    opened.set_default_timeout(WAIT_S * 1000)
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda entry: faults.append(entry.text) if entry.type == "error" else None)
    opened.goto(f"{running.url}/#{running.channel}")
    opened.get_by_label("You are").select_option(running.me)
    expect(opened.get_by_text("Live", exact=True)).to_be_visible()
    yield opened
    assert opened.evaluate("window.hacked") is None
    context.close()
    assert faults == []


def open_stream(running: RunningPage, thread: str) -> str:
    """Begin an answer with a plan of two rows, one of them done; return its ts."""
    started = running.bot.chat_startStream(
        channel=running.channel,
        thread_ts=thread,
        recipient_team_id=running.slack.state.team.id,
        recipient_user_id=running.me,
        task_display_mode="plan",
        chunks=[
            {"type": "plan_update", "title": "Reading 2 sources"},
            task("a", "#csm-spain", "complete"),
            task("b", "#csm-italy", "in_progress"),
        ],
    )
    return str(started["ts"])


def task(id: str, title: str, status: str) -> dict[str, str]:
    return {"type": "task_update", "id": id, "title": title, "status": status}


def test_switching_users_clears_the_page_until_the_new_workspace_loads(
    running: RunningPage, page: Page
) -> None:
    routes: list[Route] = []
    page.route("**/page/workspace?*", lambda route: routes.append(route))
    with page.expect_request("**/page/workspace?*"):
        page.get_by_label("You are").select_option(running.other)
    message = page.get_by_role("button", name="Direct message")
    expect(message).to_have_count(0)
    expect(page.get_by_text("Live", exact=True)).to_have_count(0)
    routes[0].continue_()
    message.click()
    expect(page.get_by_role("textbox", name="Message")).to_have_attribute(
        "placeholder", "Ask the assistant"
    )
    expect(page.get_by_text("Live", exact=True)).to_be_visible()


def test_typed_mention_shows_its_plan_and_answer_live(running: RunningPage, page: Page) -> None:
    box = page.get_by_role("textbox", name="Message")
    box.fill(f"@Assistant what waits? {NASTY}")
    box.press("Enter")
    thread = page.get_by_label("Thread", exact=True)
    expect(thread.get_by_text("what waits?")).to_be_visible()
    root = running.slack.visible(running.channel)[-1]
    assert root.user == running.me
    stored = running.slack.state.timelines[running.channel][micros(root.ts)]
    assert stored.text.startswith(f"<@{BOT_USER}> what waits? &lt;img")
    ts = open_stream(running, root.ts)
    expect(thread.get_by_text("Reading 2 sources")).to_be_visible()
    expect(thread.get_by_role("img", name="at work")).to_have_count(1)
    expect(thread.get_by_text("#csm-spain")).to_be_visible()
    expect(thread.get_by_text("Assistant is at work")).to_be_visible()
    first = running.slack.visible(running.channel)[0].ts.replace(".", "")
    text = ANSWER.format(channel=running.channel, ts=first)
    for piece in (text[at : at + 60] for at in range(0, len(text), 60)):
        running.bot.chat_appendStream(
            channel=running.channel, ts=ts, chunks=[{"type": "markdown_text", "text": piece}]
        )
    expect(thread.get_by_role("heading", name="What stands out")).to_be_visible()
    running.bot.chat_stopStream(
        channel=running.channel,
        ts=ts,
        chunks=[task("b", "#csm-italy", "complete")],
    )
    expect(thread.get_by_role("img", name="done")).to_have_count(0)  # a plan that is done is folded
    thread.get_by_text("Reading 2 sources").click()
    expect(thread.get_by_role("img", name="done")).to_have_count(2)
    expect(thread.get_by_role("cell", name="Spain")).to_be_visible()
    expect(thread.get_by_role("listitem").filter(has_text="by card").last).to_be_visible()
    expect(thread.get_by_text("quoted & <b>plain</b> no (javascript:alert(1))")).to_be_visible()
    expect(thread.get_by_text("Assistant is at work")).to_be_hidden()
    expect(
        page.get_by_label("Messages", exact=True).get_by_text("1 reply").last
    ).to_be_in_viewport()


def test_live_stream_sends_messages_thread_replies_and_whispers(running: RunningPage) -> None:
    def events(**query: str) -> Generator[dict[str, Any], None, None]:
        address = f"{running.url}/page/live?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(address, timeout=WAIT_S) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            for line in response:
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    stream = events(user=running.me, channel=running.channel, thread="")
    before = next(stream)
    root = running.slack.people.say(running.me, running.channel, "hello")
    after = next(stream)
    assert after["messages"][:-1] == before["messages"]
    assert after["messages"][-1]["text"] == "hello"
    running.bot.chat_postMessage(channel=running.channel, thread_ts=root, text="hi")
    running.bot.chat_postEphemeral(channel=running.channel, user=running.other, text="psst")
    running.slack.people.say(running.me, running.channel, "bye")
    last = after["messages"][-1]
    while last["text"] != "bye":
        *_, hello, last = (shown := next(stream))["messages"]
        assert shown["whispers"] == []
    assert (hello["replies"], hello["repliers"]) == (1, [BOT_USER])
    inside = next(events(user=running.other, channel=running.channel, thread=root))
    assert [each["text"] for each in inside["thread"]] == ["hello", "hi"]
    assert [each["text"] for each in inside["whispers"]] == ["psst"]
    stream.close()


def test_page_has_a_strict_csp_and_no_external_resources(running: RunningPage) -> None:
    with urllib.request.urlopen(running.url + "/", timeout=WAIT_S) as response:
        html, policy = response.read().decode(), response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", html)
    assert re.findall(r"""(?:src|href)=["']?https?://""", html) == []


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site", "sec_fetch_mode": "navigate"},
    ],
)
def test_cross_site_requests_are_rejected(running: RunningPage, headers: dict[str, str]) -> None:
    body = json.dumps({"user": running.me, "channel": running.channel, "text": "hi"})
    before = running.texts()
    assert running.send("/page/say", body, **headers)[0] == 403
    assert running.send("/page/workspace", **headers)[0] == 403
    assert running.send("/page/say", body, content_type="text/plain")[0] == 415
    assert running.texts() == before
