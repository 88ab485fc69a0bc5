"""Clicks on the buttons of a digest, as Slack's signed payloads tell of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.hearing.payload import first, id_of, mapping, ts_of

Block = Mapping[str, Any]

LABEL, DRAFT, SNOOZE, CORRECT = "mail_label", "mail_draft", "mail_snooze", "mail_correct"
"""Action ids."""
ACTIONS = (LABEL, DRAFT, SNOOZE, CORRECT)
PRIORITY, ASKED, CATEGORY = "priority", "asked_of_me", "category"
"""Fields of a verdict that can be corrected."""
FIELDS = (PRIORITY, ASKED, CATEGORY)
NOT_URGENT, NOT_ASKED = "low", "false"
"""What the first two are corrected to."""
DONE = "/done"
"""Ends the id of the block that tells what was done about a thread."""
MAX_NOTE, MAX_NOTES = 100, 3
"""Characters of a note and notes beside a thread; `digest_blocks` leaves room for them."""
MAX_VALUE = 150
"""Characters of what an option of a menu carries (docs.slack.dev, option object)."""

_NAMES = re.compile(r"(?P<run>[A-Za-z0-9_.-]{1,64})/(?P<thread>[A-Za-z0-9_-]{1,64})")
_CORRECTION = re.compile(rf"{_NAMES.pattern}/(?P<field>\w+)=(?P<value>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DigestClick:
    """A button below a thread of a digest, or its menu of corrections."""

    user: str
    what: str
    """One of ACTIONS."""
    run: str
    thread: str
    channel: str
    ts: str
    """The message that it stands in; empty where the payload names no one message."""
    field: str = ""
    """One of FIELDS, for a correction."""
    value: str = ""
    """What the field should have been."""

    @property
    def carried(self) -> str:
        """The value of the button, or of the option that was chosen."""
        thread = names(self.run, self.thread)
        return f"{thread}/{self.field}={self.value}" if self.field else thread


def names(run: str, thread: str) -> str:
    """What a button carries: the ids and nothing else."""
    return f"{run}/{thread}"


def correction(run: str, thread: str, field: str, value: str) -> str:
    """What an option of the menu carries; empty where that is more than Slack takes."""
    told = f"{names(run, thread)}/{field}={value}"
    return told if len(told) <= MAX_VALUE else ""


def digest_click(body: Mapping[str, Any]) -> DigestClick | None:
    """A click on a digest; None for one on anything else, by nobody, or that names no thread."""
    action = first(body.get("actions"))
    name, user = action.get("action_id"), id_of(mapping(body.get("user")).get("id"), "UW")
    chosen = mapping(action.get("selected_option"))
    carried = chosen.get("value") if name == CORRECT else action.get("value")
    pattern = _CORRECTION if name == CORRECT else _NAMES
    found = pattern.fullmatch(carried) if isinstance(carried, str) else None
    if not isinstance(name, str) or name not in ACTIONS or not user or not found:
        return None
    parts = found.groupdict()
    if name == CORRECT and parts["field"] not in FIELDS:
        return None
    place, message = mapping(body.get("container")), mapping(body.get("message"))
    return DigestClick(
        user=user,
        what=name,
        channel=id_of(place.get("channel_id"), "CDG"),
        ts=ts_of(place.get("message_ts")) or ts_of(message.get("ts")),
        **parts,
    )


def answered(blocks: Sequence[Block], click: DigestClick, said: str) -> list[Block]:
    """The message after a click: what was clicked is gone, and `said` tells what was done.

    `said` may hold what strangers wrote: it is shown without markup. The same once more changes
    nothing.
    """
    row = names(click.run, click.thread)
    told = [note for b in blocks if b.get("block_id") == row + DONE for note in b["elements"]]
    note = {"type": "plain_text", "text": said[:MAX_NOTE], "emoji": False}
    notes = [each for each in told if each["text"] != note["text"]][1 - MAX_NOTES :]
    done = {"type": "context", "block_id": row + DONE, "elements": [*notes, note]}
    after: list[Block] = []
    for block in blocks:
        if block.get("block_id") == row:
            elements = [left for each in block["elements"] for left in _left(each, click)]
            after += [{**block, "elements": elements}] if elements else []
            after += [] if told else [done]
        else:
            after.append(done if block.get("block_id") == row + DONE else block)
    return after


def _left(element: Block, click: DigestClick) -> Iterator[Block]:
    """The element without what was clicked; nothing where that was all of it."""
    if element.get("action_id") != click.what:
        yield element
    elif click.what == CORRECT:
        options = [each for each in element["options"] if each.get("value") != click.carried]
        if options:
            yield {**element, "options": options}
