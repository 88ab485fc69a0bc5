"""A triage keeps Gmail's workers busy, asks for no more than it needs, and pays for no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bot_kit import Shell, configure
from engine_kit import is_child
from mail_kit import letters
from test_triage_faults import connected

from bot.tasks.triage import AT_ONCE


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def test_a_limited_triage_fetches_no_more_than_the_batch_that_it_ends_in(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(3 * AT_ONCE)) as desk:
        document = desk.triage("--limit", 5)
        made = [each.method.removeprefix("gmail.users.") for each in desk.google.requests]
    assert len(document["verdicts"]) == 5
    assert made.count("threads.get") == AT_ONCE
    assert made.count("threads.list") == 1
    assert made.count("getProfile") == 2, "who it is, and what has changed until now"


def test_what_no_second_call_reads_is_not_written_to_the_cache(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(2)) as desk:
        desk.triage()
    assert len(desk.model.recorded) == 3
    for body in desk.model.recorded:
        assert body["system"][-1]["cache_control"] == {"type": "ephemeral"}
        assert "cache_control" not in json.dumps({**body, "system": []})


def test_a_thread_that_is_read_in_pages_is_written_to_the_cache_for_the_next_call(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(1)) as desk:
        configure("triage: {since_days: 36000, thread_tokens: 1}\n")
        desk.triage()
    children = [body for body in desk.model.recorded if is_child(body)]
    assert children
    assert all(body["cache_control"] == {"type": "ephemeral"} for body in children)
