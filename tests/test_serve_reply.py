"""The whole bot's answers as they stand in Slack: long, with tables, of files, past lost writes."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from engine_kit import led_by, opening, say
from serve_kit import ASKER, serving

from bot.local.slack.faults import Fault
from bot.local.slack.shown import Shown
from bot.local.workspace import File
from bot.slack.blocks import FEEDBACK
from config.settings import Settings

MODES = pytest.mark.parametrize("mode", ["socket", "http"])
WRITES = (
    "chat.startStream",
    "chat.appendStream",
    "chat.stopStream",
    "chat.update",
    "chat.postMessage",
    "agents.sessions.setStatus",
)


def size(value: Any) -> int:
    """Characters of all texts in blocks."""
    if isinstance(value, dict):
        return sum(size(v) for k, v in value.items() if k not in ("type", "action_id", "value"))
    if isinstance(value, list | tuple):
        return sum(map(size, value))
    return len(value) if isinstance(value, str) else 0


def within_limits(shown: Shown) -> bool:
    return (
        size([b for b in shown.blocks if b["type"] != "plan"]) <= 13_200 and len(shown.blocks) <= 50
    )


def kinds(shown: Shown) -> list[str]:
    return [str(block["type"]) for block in shown.blocks]


def wordy(settings: Settings) -> Settings:
    """Settings of a parent that may write much at once."""
    roles = settings.models.roles
    parent = roles.parent.model_copy(update={"max_tokens": 20_000})
    models = settings.models.model_copy(
        update={"roles": roles.model_copy(update={"parent": parent})}
    )
    return settings.model_copy(update={"models": models})


# ---- shapes


@MODES
async def test_a_long_answer_comes_in_several_messages_with_one_footer(
    tmp_path: Path, mode: str
) -> None:
    lines = [f"{n}. " + f"word{n} " * 12 for n in range(1, 330)]
    text = "\n".join(lines)
    assert len(text) > 30_000
    async with serving(tmp_path, led_by(say(text)), mode=mode, change=wordy) as bot:
        asked = bot.ask("Tell me all")
        shown = await bot.answers(asked, 3)
        assert len(shown) >= 3
        assert all(map(within_limits, shown))
        assert [FEEDBACK in str(m.blocks) for m in shown] == [False] * (len(shown) - 1) + [True]
        said = "\n".join(m.text for m in shown)
        at = [said.index(f"word{n} ") for n in range(1, 330)]
        assert at == sorted(at)
        assert said.split().count("word7") == 12
        assert [m.metadata["event_payload"]["part"] for m in shown if m.metadata] == list(
            range(1, len(shown) + 1)
        )
        assert len(bot.replies(asked)) == len(shown)
        (run,) = await bot.store.runs()
        assert run.status == "complete"


async def test_a_table_and_code_keep_their_shape(tmp_path: Path) -> None:
    table = "| Name | Open |\n|---|---|\n| Printer | 3 |\n| Door | 1 |"
    code = "```python\nprint('<!channel>')\n```"
    async with serving(tmp_path, led_by(say(f"Here:\n\n{table}\n\n{code}\n\nDone."))) as bot:
        shown = await bot.answer(bot.ask("As a table"))
        assert "Name | Open\nPrinter | 3\nDoor | 1" in shown.text
        assert "```\nprint('@channel')\n```" in shown.text
        assert [kind for kind in kinds(shown) if kind != "context"] == [
            *("plan", "rich_text", "table", "rich_text", "context_actions")
        ]
        assert all(each in shown.text for each in ("Here:", "Door", "Done."))
        assert within_limits(shown)


async def test_what_an_answer_says_cannot_call_everybody(tmp_path: Path) -> None:
    text = "Hey <!channel> and <!here>, @everyone, <@U0LUIS>!"
    async with serving(tmp_path, led_by(say(text))) as bot:
        shown = await bot.answer(bot.ask("Shout"))
        assert not any(mark in str(shown.blocks) for mark in ("<!channel>", "<!here>"))
        assert not re.search(r"'type': '(user|broadcast|markdown)'", str(shown.blocks))
        assert "Hey @channel and @here, @everyone, @U0LUIS!" in shown.text


@MODES
async def test_the_requester_may_be_mentioned_and_asked_addresses_repeated(
    tmp_path: Path, mode: str
) -> None:
    text = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not https://evil.example/x or <@U0LUIS>"
    async with serving(tmp_path, led_by(say(text)), mode=mode) as bot:
        shown = await bot.answer(bot.ask("Is <https://asked.example/a?b=1&amp;c=2> up?"))
        said = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not evil[.]example/x or @U0LUIS"
        assert said in shown.text
        links = re.findall(r"'type': 'link', 'url': '([^']*)'", str(shown.blocks))
        assert links == ["https://asked.example/a?b=1&c=2"]


# ---- files


def pdf(text: bytes) -> bytes:
    """One page that says this."""
    content = b"BT /F1 12 Tf 72 700 Td (%s) Tj ET" % text
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R "
        b"/Resources << /Font << /F1 5 0 R >> >> >>",
        b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out = b"%PDF-1.4\n"
    places = []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % at for at in places)
    start = len(out)
    return out + (
        b"xref\n0 6\n0000000000 65535 f \n%strailer\n<< /Size 6 /Root 1 0 R >>\n"
        b"startxref\n%d\n%%%%EOF" % (table, start)
    )


def file(number: int, name: str, content: bytes, kind: str) -> File:
    return File(f"F000{number}", name, name, kind, size=len(content), content=content)


@MODES
async def test_attached_files_are_read_or_refused_by_name(tmp_path: Path, mode: str) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "hidden")
    image = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 30, 20) + b"\0" * 8
    files = [
        file(1, "notes.txt", "Le café est fermé".encode(), "text/plain"),
        file(2, "sales.csv", b"month,sum\nMay,12", "text/csv"),
        file(3, "invoice.pdf", pdf(b"Invoice 4711"), "application/pdf"),
        file(4, "photo.png", image, "image/png"),
        file(5, "stuff.zip", packed.getvalue(), "application/zip"),
        file(6, "late.txt", b"one too many", "text/plain"),
    ]
    async with serving(tmp_path, led_by(say("Read.")), mode=mode) as bot:
        shown = await bot.answer(bot.ask("What is in these?", files=files))
        (body,) = bot.parents()
        told = opening(body)
        for each in ("Le café est fermé", "May,12", "Invoice 4711"):
            assert each in told
        assert "one too many" not in told
        (picture,) = [b for b in body["messages"][0]["content"] if b["type"] == "image"]
        assert picture["source"]["media_type"] == "image/png"
        assert "stuff[.]zip" in shown.text
        assert "late.txt" in shown.text
        assert "notes.txt" not in shown.text


async def test_a_message_of_a_file_alone_is_a_request_in_a_direct_message(tmp_path: Path) -> None:
    async with serving(tmp_path, led_by(say("A list. What shall I do?"))) as bot:
        dm = bot.slack.people.dm(ASKER)
        asked = bot.slack.people.say(
            ASKER, dm, "", files=[file(1, "list.txt", b"milk, bread", "text/plain")]
        )
        assert "A list" in (await bot.answer(asked, channel=dm)).text
        assert "milk, bread" in opening(bot.parents()[0])


# ---- writes that Slack refuses


@MODES
async def test_a_storm_of_429s_delays_an_answer_and_no_more(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, mode=mode) as bot:
        bot.slack.faults += [Fault(method, "429", 1.0) for method in WRITES for _ in range(2)]
        asked = bot.ask()
        shown = await bot.answer(asked, seconds=30)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1
        assert bot.slack.state.sessions[bot.channel, asked].status == "active"


@pytest.mark.parametrize("kind", ["500", "lost", "drop", "malformed"])
async def test_writes_that_fail_leave_one_answer(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as bot:
        bot.slack.faults += [Fault(method, kind) for method in WRITES]
        asked = bot.ask()
        shown = await bot.answer(asked, seconds=40)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1


@pytest.mark.parametrize("code", ["method_not_supported_for_channel_type", "not_allowed"])
async def test_where_no_stream_can_be_had_the_answer_is_posted(tmp_path: Path, code: str) -> None:
    async with serving(tmp_path) as bot:
        bot.slack.faults += [Fault("chat.startStream", f"error:{code}") for _ in range(9)]
        asked = bot.ask()
        shown = await bot.answer(asked)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1
        assert bot.slack.calls["chat.appendStream"] == 0
