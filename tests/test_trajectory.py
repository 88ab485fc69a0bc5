"""The trajectory holds exactly what was sent, each block once, and gives it back."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from subagents.trajectory import (
    MemorySink,
    Origin,
    block_hash,
    canonical,
    digest_of,
    rebuild,
)


def body() -> dict[str, Any]:
    return {
        "model": "fast",
        "system": [{"type": "text", "text": "Read.", "cache_control": {"type": "ephemeral"}}],
        "tools": [{"name": "read_channel", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": "TASK: Read on."},
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t1", "name": "read_channel", "input": {}}],
            },
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "¿Qué tal?"}],
            },
        ],
    }


def recorded(sink: MemorySink) -> list[tuple[str, str]]:
    return list(sink.trajectory("r1").requests[-1].parts)


def test_a_request_is_kept_block_by_block_in_order_and_can_be_rebuilt() -> None:
    sink = MemorySink()
    sink.request("r1", "s1", 0, 1, body())

    assert [place for place, _ in recorded(sink)] == [
        "system",
        "tool",
        "user",
        "assistant",
        "user",
    ]
    sent = body()
    del sent["model"], sent["system"][0]["cache_control"]
    sent["messages"][0]["content"] = [{"type": "text", "text": "TASK: Read on."}]
    assert rebuild(sink.trajectory("r1"), "s1", 0) == sent
    with pytest.raises(KeyError, match=r"no request 1\.1 of s1"):
        rebuild(sink.trajectory("r1"), "s1", 1)


def test_a_block_is_stored_once_however_often_it_is_sent() -> None:
    sink = MemorySink()
    for seq in range(3):
        sink.request("r1", "s1", seq, 1, body())
        sink.request("r1", "s2", seq, 1, body())

    trajectory = sink.trajectory("r1")

    assert len(trajectory.requests) == 6
    assert len(trajectory.blocks) == 5
    assert all(digest_of(text) == digest for digest, text in trajectory.blocks.items())
    marked = {"content": [{"text": "a", "cache_control": {"type": "ephemeral"}}]}
    assert block_hash(marked) == block_hash({"content": [{"text": "a"}]})


def test_a_block_that_was_changed_in_place_is_noticed_at_the_next_request() -> None:
    sink, sent = MemorySink(), body()
    sink.request("r1", "s1", 0, 1, sent)
    before = recorded(sink)
    sent["messages"][0]["content"] = "TASK: Read all."
    sent["messages"][2]["content"][0]["content"] += "!"
    sink.request("r1", "s1", 1, 1, sent)
    after = recorded(sink)

    assert [b == a for b, a in zip(before, after, strict=True)] == [True, True, False, True, False]


def test_a_text_that_is_no_valid_unicode_is_recorded_all_the_same() -> None:
    sink = MemorySink()
    digest = sink.note("r1", "s1", Origin.TOOL_RESULT, {"type": "text", "text": "half \ud83d"})

    kept = sink.trajectory("r1").blocks[digest]
    assert kept.encode()
    assert "\\ud83d" in kept


def test_a_reply_becomes_output_and_a_failed_attempt_leaves_its_reason() -> None:
    sink = MemorySink()
    said = [{"type": "text", "text": "Done."}]
    sink.reply("r1", "s1", 0, 1, {"error": "overloaded_error 529"})
    sink.reply("r1", "s1", 0, 2, {"content": said, "stop_reason": "end_turn", "cost_usd": 0.1})

    failed, done = sink.trajectory("r1").replies

    assert (failed.blocks, failed.outcome) == ((), {"error": "overloaded_error 529"})
    assert done.blocks == (block_hash(said[0]),)
    assert done.outcome == {"stop_reason": "end_turn", "cost_usd": 0.1}
    assert [(e.origin, e.hash) for e in sink.trajectory("r1").entries] == [
        (Origin.OUTPUT, done.blocks[0])
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON, max_size=4), st.randoms())
def test_a_hash_depends_on_nothing_but_what_a_block_says(
    block: dict[str, Any], random: Any
) -> None:
    sink = MemorySink()
    keys = list(block)
    random.shuffle(keys)
    marked = {**block, "cache_control": {"type": "ephemeral"}}
    for each in (block, {key: block[key] for key in keys}, copy.deepcopy(block), marked):
        digest = sink.note("r1", "s1", Origin.MATERIAL, each)
        assert digest == block_hash(block) != block_hash({**block, "more": [block]})
        assert sink.blocks[digest] == canonical(block)
