"""The whole bot's answers as they stand in Slack: long, with tables, of files, past lost writes."""

from __future__ import annotations

import io
import re
import struct
import zipfile
from pathlib import Path

import pytest
from engine_kit import led_by, opening, say
from pdf_kit import pdf
from pdf_kit import shown as words
from serve_kit import ASKER, serving

from bot.local.slack.faults import Fault
from bot.local.workspace import File
from bot.slack.blocks import FEEDBACK, MAX_MESSAGE, size
from config.settings import Settings

WRITES = (
    "chat.startStream",
    "chat.appendStream",
    "chat.stopStream",
    "chat.update",
    "chat.postMessage",
    "agents.sessions.setStatus",
)


def wide(settings: Settings) -> Settings:
    """Settings of a parent that may write much at once."""
    roles = settings.models.roles
    roles = roles.model_copy(
        update={"parent": roles.parent.model_copy(update={"max_tokens": 20_000})}
    )
    models = settings.models.model_copy(update={"roles": roles})
    return settings.model_copy(update={"models": models})


# ---- shapes


async def test_a_long_answer_comes_in_several_messages_with_one_footer(tmp_path: Path) -> None:
    lines = [f"{n}. " + f"word{n} " * 12 for n in range(1, 330)]
    text = "\n".join(lines)
    assert len(text) > 30_000
    async with serving(tmp_path, led_by(say(text)), change=wide) as bot:
        asked = bot.ask("Tell me all")
        shown = await bot.answers(asked, 3)
        assert len(shown) >= 3
        assert all(len(m.blocks) <= 50 and size(m.blocks) <= MAX_MESSAGE for m in shown)
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


async def test_an_answer_mentions_its_requester_and_links_what_was_asked_and_nothing_else(
    tmp_path: Path,
) -> None:
    text = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not https://evil.example/x, <!channel>"
    async with serving(tmp_path, led_by(say(f"{text} @here <@U0LUIS>"))) as bot:
        shown = await bot.answer(bot.ask("Is <https://asked.example/a?b=1&amp;c=2> up?"))
        said = f"<@{ASKER}>: https://asked.example/a?b=1&c=2, not evil[.]example/x, @channel"
        assert f"{said} @here @U0LUIS" in shown.text
        links = re.findall(r"'type': 'link', 'url': '([^']*)'", str(shown.blocks))
        assert links == ["https://asked.example/a?b=1&c=2"]
        assert not re.search(r"'type': '(broadcast|markdown)'|<!", str(shown.blocks))


# ---- files


def file(number: int, name: str, content: bytes, kind: str) -> File:
    return File(f"F000{number}", name, name, kind, size=len(content), content=content)


async def test_attached_files_are_read_or_refused_by_name(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.txt", "hidden")
    image = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 30, 20) + b"\0" * 8
    files = [
        file(1, "notes.txt", "Le café est fermé".encode(), "text/plain"),
        file(2, "sales.csv", b"month,sum\nMay,12", "text/csv"),
        file(3, "invoice.pdf", pdf(words("Invoice 4711")), "application/pdf"),
        file(4, "photo.png", image, "image/png"),
        file(5, "stuff.zip", packed.getvalue(), "application/zip"),
        file(6, "late.txt", b"one too many", "text/plain"),
    ]
    async with serving(tmp_path, led_by(say("Read."))) as bot:
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


async def test_a_storm_of_429s_delays_an_answer_and_no_more(tmp_path: Path) -> None:
    async with serving(tmp_path) as bot:
        bot.slack.faults += [Fault(method, "429", 1.0) for method in WRITES for _ in range(2)]
        asked = bot.ask()
        shown = await bot.answer(asked, seconds=30)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1
        assert bot.slack.state.sessions[bot.channel, asked].status == "active"


@pytest.mark.parametrize("kind", ["500", "lost"])
async def test_writes_that_fail_leave_one_answer(tmp_path: Path, kind: str) -> None:
    async with serving(tmp_path) as bot:
        bot.slack.faults += [Fault(method, kind) for method in WRITES]
        asked = bot.ask()
        shown = await bot.answer(asked, seconds=40)
        assert "It is **open**" in shown.text
        assert len(bot.replies(asked)) == 1
