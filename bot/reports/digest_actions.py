"""Parse clicks on the buttons of a digest, and update its messages after a click."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.slack.messages import first, id_of, mapping, ts_of

Block = Mapping[str, Any]

LABEL, DRAFT, SNOOZE, CORRECT = "mail_label", "mail_draft", "mail_snooze", "mail_correct"
"""Action ids of the buttons of a thread."""
SHOW = "mail_show"
"""Action id of the button that opens a folded section or an earlier digest."""
WHOLE_DIGEST = "all"
"""Button value for a whole digest, instead of the id of a section."""
ACTIONS = (LABEL, DRAFT, SNOOZE, CORRECT, SHOW)
PRIORITY, ASKED, CATEGORY = "priority", "asked_of_me", "category"
"""Fields of a verdict that can be corrected."""
FIELDS = (PRIORITY, ASKED, CATEGORY)
NOT_URGENT, NOT_ASKED = "low", "false"
"""Corrected values of the first two fields."""
DONE = "/done"
"""Suffix of the id of the block that reports the actions on a thread."""
MAX_NOTE, MAX_NOTES = 100, 3
"""Maximum characters of a note, and notes per thread; `bot.reports.slack` reserves space for
them."""
MAX_VALUE = 150
"""Characters of the value of a menu option (docs.slack.dev, option object)."""

_BUTTON_VALUE = re.compile(r"(?P<run>[A-Za-z0-9_.-]{1,64})/(?P<thread>[A-Za-z0-9_-]{1,64})")
_CORRECTION = re.compile(rf"{_BUTTON_VALUE.pattern}/(?P<field>\w+)=(?P<value>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DigestClick:
    """A click on a button of a digest, or a choice in the menu of corrections below a thread."""

    user: str
    what: str
    """One of ACTIONS."""
    run: str
    thread: str
    """The thread above the button; for SHOW the id of a section, or ALL."""
    channel: str
    ts: str
    """The message with the button; empty if the payload names no single message."""
    field: str = ""
    """One of FIELDS, for a correction."""
    value: str = ""
    """Correct value of the field."""

    @property
    def button_value(self) -> str:
        """Return the value of the button, or of the selected option."""
        thread = names(self.run, self.thread)
        return f"{thread}/{self.field}={self.value}" if self.field else thread


def names(run: str, thread: str) -> str:
    """Return the value of a button: only the ids."""
    return f"{run}/{thread}"


def correction(run: str, thread: str, field: str, value: str) -> str:
    """Return the value of a menu option; empty if it is longer than Slack allows."""
    option = f"{names(run, thread)}/{field}={value}"
    return option if len(option) <= MAX_VALUE else ""


def digest_click(body: Mapping[str, Any]) -> DigestClick | None:
    """Parse a click on a digest; None for any other click, or one without user or thread."""
    action = first(body.get("actions"))
    name, user = action.get("action_id"), id_of(mapping(body.get("user")).get("id"), "UW")
    chosen = mapping(action.get("selected_option"))
    value = chosen.get("value") if name == CORRECT else action.get("value")
    pattern = _CORRECTION if name == CORRECT else _BUTTON_VALUE
    found = pattern.fullmatch(value) if isinstance(value, str) else None
    if not isinstance(name, str) or name not in ACTIONS or not user or not found:
        return None
    place, message = mapping(body.get("container")), mapping(body.get("message"))
    click = DigestClick(
        user=user,
        what=name,
        channel=id_of(place.get("channel_id"), "CDG"),
        ts=ts_of(place.get("message_ts")) or ts_of(message.get("ts")),
        **found.groupdict(),
    )
    return click if name != CORRECT or click.field in FIELDS else None


def blocks_after(blocks: Sequence[Block], click: DigestClick, note: str) -> list[Block]:
    """Return the message after a click: `note` (what was done) replaces the clicked element.

    `note` may contain untrusted text, so it is shown without markup. A repeated call changes
    nothing. The button of a section is removed without a note, since the opened section is enough.
    """
    row = names(click.run, click.thread)
    if click.what == SHOW:
        return [_without_button(b) if b.get("block_id") == row else dict(b) for b in blocks]
    before = [each for b in blocks if b.get("block_id") == row + DONE for each in b["elements"]]
    text = note[:MAX_NOTE]
    notes = [each for each in before if each["text"] != text][1 - MAX_NOTES :]
    notes.append({"type": "plain_text", "text": text, "emoji": False})
    done = {"type": "context", "block_id": row + DONE, "elements": notes}
    after: list[Block] = []
    for block in blocks:
        if block.get("block_id") == row:
            elements = [
                element for each in block["elements"] for element in _without_clicked(each, click)
            ]
            after += [{**block, "elements": elements}] if elements else []
            after += [] if before else [done]
        else:
            after.append(done if block.get("block_id") == row + DONE else block)
    return after


def _without_button(section: Block) -> dict[str, Any]:
    return {name: value for name, value in section.items() if name != "accessory"}


def _without_clicked(element: Block, click: DigestClick) -> Iterator[Block]:
    """Yield the element without the clicked part; nothing if no part remains."""
    if element.get("action_id") != click.what:
        yield element
    elif click.what == CORRECT:
        options = [each for each in element["options"] if each.get("value") != click.button_value]
        if options:
            yield {**element, "options": options}
