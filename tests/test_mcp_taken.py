"""What a server of tools sends is counted before it is parsed, however it is cut, and paced."""

from __future__ import annotations

import json

import pytest
from timing import computed_within, waited_within

from scopes.mcp_servers.stream_limits import (
    MAX_MESSAGE,
    MAX_VALUES,
    Measure,
    ServerPace,
    TooMuch,
    measured,
)

FEW = (
    b'{"a": "' + b"[{,}]" * MAX_VALUES + b'"}',
    b'{"a": "' + b'{\\"b\\": [1, 2]}, ' * MAX_VALUES + b'"}',
    b'{"a": "\\\\", "b": "' + b",\\\\" * MAX_VALUES + b'"}',
    json.dumps([[0] * 10] * (MAX_VALUES // 12), indent=1).encode(),
)
"""Messages of few values, whatever their texts hold, or of as many as may be."""
LISTS = b"[" + b"[]," * MAX_VALUES + b"[]]"
MANY = (
    LISTS,
    b'{"a": "\\\\", "b": ' + LISTS + b"}",
    b'{"a": "\\\\\\"", "b": ' + LISTS + b"}",
    b': a "comment\ndata: ' + LISTS + b"\n\n",
    b': a "comment\r\\"' + b"\rdata: " + LISTS + b"\r\r",
    b': "\\\ndata: ' + LISTS + b"\n\n",
    b"[" + b"{}" * MAX_VALUES,
    b'""' * (MAX_VALUES * 2 + 2),
    b'{"a": "' + b"x" * MAX_MESSAGE,
)


def in_pieces(message: bytes, size: int) -> float:
    measure = Measure()
    return sum(measure.add(message[at : at + size]) for at in range(0, len(message), size))


@pytest.mark.parametrize("size", [1_000, 65_537, MAX_MESSAGE])
def test_only_what_stands_outside_of_strings_counts(size: int) -> None:
    for message in FEW:
        in_pieces(message, size)
    for message in MANY:
        with pytest.raises(TooMuch):
            in_pieces(message, size)


@pytest.mark.parametrize(
    "text", ['{"a": [1, "[,\\\\", {"b\\"[": "x"}]}', '["\\u005b", "é", [[], []]]']
)
def test_it_counts_the_same_wherever_it_is_cut(text: str) -> None:
    raw = text.encode()
    whole, at_once = Measure(), Measure()
    at_once.add(raw)
    for at in range(len(raw)):
        whole.add(raw[at : at + 1])
    assert whole._values == at_once._values


@pytest.mark.parametrize(
    "unit", [b"x", b'\\"', b"\\", b'"', b'"\n', b'"\\\n', b":", b'"a":', b"\n"]
)
def test_it_counts_in_linear_time(unit: bytes) -> None:
    with computed_within(0.5):
        for start in (b"", b'"'):
            with pytest.raises(TooMuch):
                measured(start + unit * (MAX_MESSAGE // len(unit) + 1))


async def test_who_sends_without_end_waits_and_others_do_not() -> None:
    pace, other = ServerPace(), ServerPace()
    with waited_within(0.2):
        for _ in range(400):
            await pace.spend(0.001)
            await other.spend(0.001)
    with waited_within(1.5, least=0.3):
        await pace.spend(0.2)
