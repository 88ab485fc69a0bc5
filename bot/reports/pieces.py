"""Blocks in as few messages as they fit into, cut where it does no harm."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bot.approval.slips import Block
from bot.replies.render import size

MAX_MESSAGE = 12_000
"""Characters of one message; Slack refuses more than 13,200 (slackapi/bolt-js#2509)."""
MAX_BLOCKS = 48
"""Blocks of one message; Slack allows 50, and buttons may come below."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Blocks that stay together."""

    blocks: tuple[Block, ...]
    weight: int
    findings: int = 0
    """How many findings they tell of."""
    is_first: bool = False
    """It begins a message of its own."""


def piece(*blocks: Block, findings: int = 0, is_first: bool = False) -> Piece:
    """Blocks that stay together, weighed once."""
    return Piece(blocks, weight(blocks), findings, is_first)


def weight(blocks: Sequence[Block]) -> int:
    """Characters as Slack may count them: `&`, `<` and `>` are escaped."""
    written = json.dumps(blocks, ensure_ascii=False)
    return size(blocks) + 4 * sum(map(written.count, "&<>"))


def packed(pieces: Iterable[Piece]) -> list[list[Piece]]:
    """The pieces in their order, a list a message."""
    messages: list[list[Piece]] = []
    room = blocks = 0
    for each in pieces:
        room, blocks = room - each.weight, blocks - len(each.blocks)
        if not messages or each.is_first or room < 0 or blocks < 0:
            messages.append([])
            room, blocks = MAX_MESSAGE - each.weight, MAX_BLOCKS - len(each.blocks)
        messages[-1].append(each)
    return messages
