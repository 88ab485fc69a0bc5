"""Mail of any bytes is read without an error, within 2 s and 64 MB."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import astuple
from typing import TypeVar

import pytest
from gmail_kit import gmail_message
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import cpu_limit

from bot.local.sample_workspace import load_sample_mailbox
from bot.tasks import prefilter
from scopes.google.gmail_threads import thread_of
from scopes.mail import MailText

T = TypeVar("T")

MOST_S = 2.0
"""CPU seconds for one message: the requirement, and hundreds of times what one takes."""
MOST_BYTES = 64_000_000
SHORT, LONG = 50, 10_000
ME = "ana@shop.example"
REASONS = (None, *(value for name, value in vars(prefilter).items() if name.isupper()))

JAPANESE = (
    b"From: =?ISO-2022-JP?B?GyRCO0VFRBsoQg==?= <sato@corp.example>\r\nTo: ana@shop.example\r\n"
    b"Subject: =?shift_jis?Q?=8C=8F=96=BC?= =?gb2312?B?zPU=?=\r\n"
    b'Content-Type: text/html; charset="iso-2022-jp"\r\n\r\n'
    b"<div style='color:#fff;background:#fff'>\x1b$B$3$s\x1b(B</div><p hidden>x<p>\x1b$B$K$A\x1b(B"
)
SEEDS = (*(message.raw for message in load_sample_mailbox().messages), JAPANESE)

TOKENS = (
    b"\r\n\r\n", b"\n\n", b"\r", b"\0", b"\x1b$B", b"\xff\xfe", b"\xef\xbb\xbf", b"--outer\r\n",
    b"--outer--", b"--inner\n", b"\nFrom ", b"=?utf-8?b?", b"=?x?q?=", b"?=", b"=\n", b"=3D=",
    b"Content-Type: multipart/alternative; boundary=inner\n", b"boundary=", b"charset=utf-7",
    b"charset=unicode-escape\n", b"Content-Transfer-Encoding: base64\n", b"name*0*=", b"name*999=",
    b"Content-Type: message/rfc822\n\n", b"<div>", b"</table>", b"<style>*{color:red}", b"<!--",
    b"<![CDATA[", b"&#1114112;", b"&" * 50, b"<" * 200, b"(" * 200, b'"', b"\\", b";" * 100,
    b"\xe2\x80\xae\xf3\xa0\x81\x81", b"BEGIN:VEVENT\n", b"DTSTART:99999999T999999Z\n", b"RRULE:",
    b"<a href='", b"style='display:none'", b" " * 300, b"a@b," * 100, b"Subject: ", b"\tx\n" * 50,
)  # fmt: skip


def mutated_message(number: int) -> bytes:
    """Return one of the seeds, damaged at random; the same number gives the same message."""
    chance = random.Random(number)
    raw = chance.choice(SEEDS)
    for _ in range(chance.choice((1, 2, 4, 8, 32))):
        raw = damage_message(raw, chance)[:500_000]
    return raw


def damage_message(raw: bytes, chance: random.Random) -> bytes:
    a, b = _places(raw, chance)
    head, part, rest = raw[:a], raw[a:b], raw[b:]
    other = chance.choice(SEEDS)
    new = {
        "cut": b"",
        "flip": bytes([chance.randrange(256)]) + part[1:],
        "token": chance.choice(TOKENS) + part,
        "repeat": part[:5_000] * chance.choice((2, 10, 300)),
        "splice": other[_places(other, chance)[0] :],
        "ends": part.replace(b"\n", chance.choice((b"", b"\r", b"\r\n"))),
    }
    return head + new[chance.choice("cut flip flip token token repeat splice ends".split())] + rest


def _places(raw: bytes, chance: random.Random) -> tuple[int, int]:
    """Return two places in a message, mostly near each other."""
    a = chance.randrange(len(raw) + 1)
    far = chance.random() < 0.1
    return a, chance.randrange(a, len(raw) + 1) if far else min(len(raw), a + chance.randrange(80))


def check_message(raw: bytes) -> MailText:
    """Read a message within the bounds; check that its text can be shown and stored."""
    first = gmail_message(SEEDS[0])
    second = read_within_bounds(raw, lambda: gmail_message(raw, "m2"))
    thread = read_within_bounds(raw, lambda: thread_of("t", "7", [first, second]))
    assert read_within_bounds(raw, lambda: prefilter.why_automatic(thread, ME)) in REASONS
    assert [m.fault for m in thread.messages] == ["", second.text.fault]
    read = thread.last.text
    assert not {"\n", "\r"} & set("".join((read.subject, read.sender, *read.to, *read.cc)))
    for each in strings([astuple(m.text) for m in thread.messages]):
        each.encode("utf-8")
        assert "\0" not in each
    return second.text


def read_within_bounds(raw: bytes, read: Callable[[], T]) -> T:
    """Read twice: for the time, and for the memory, which takes several times as long to trace."""
    with cpu_limit(MOST_S):
        result = read()
    tracemalloc.start()
    try:
        read()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak:,} bytes for {len(raw):,}"
    return result


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from strings(each)


def test_damaged_messages_are_read() -> None:
    for number in range(SHORT):
        check_message(mutated_message(number))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, LONG, 1_000))
def test_ten_thousand_damaged_messages_are_read(start: int) -> None:
    for number in range(start, start + 1_000):
        check_message(mutated_message(number))


@settings(max_examples=30, deadline=None)
@given(st.binary(max_size=3_000))
def test_any_bytes_are_read(raw: bytes) -> None:
    check_message(raw)


@pytest.mark.parametrize("days", ["20250101 00010101", "99991231 99991231", "00010101 00010101"])
def test_invitations_with_extreme_dates_are_read(days: str) -> None:
    first, last = days.split()
    event = f"BEGIN:VEVENT\nDTSTART;VALUE=DATE:{first}\nDTEND;VALUE=DATE:{last}\nEND:VEVENT\n"
    raw = f"From: a@b.example\nContent-Type: text/calendar; name=a.ics\n\n{event}".encode()
    assert "all day" in check_message(raw).body
