"""Cards as Slack shows them, made by code from stored actions alone: nothing in them is parsed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from bot.approval.actions import GRANT, StoredAction
from bot.approval.clicks import FORM, MAX_TYPED
from bot.approval.described import arguments, editable, title
from bot.approval.exact import spelled, visible
from bot.approval.slips import (
    Block,
    Element,
    bold,
    channel,
    date,
    length,
    linked,
    paragraph,
    pre,
    rich,
    said,
    user,
)
from bot.replies.render import Part
from scopes.label import is_conversation
from subagents.action import Action

SHOWN = 2_900
"""Characters of a text in one piece; a longer one goes on in messages before the card."""
MAX_CARD = 10_000
"""Characters of one message; Slack refuses more than 13,200 (slackapi/bolt-js#2509)."""
MOST_SOURCES = 20
"""Sources that a card names; of more the number is told."""
MOST_MESSAGES = 20
"""Messages that the texts of one card may take; what needs more cannot be approved of."""
WHY = {
    "consequence": "it acts beyond the answer",
    "draft": "it may hold more than the mails that it answers, and leaves with one click",
    "flood": "one request leaves only a few messages by itself",
}
"""Rule of the gate -> what a person reads."""
DONE_BY = {
    "approved": "Approved by ",
    "done": "Approved by ",
    "failed": "Approved by ",
    "denied": "Denied by ",
}


@dataclass(frozen=True, slots=True)
class Card:
    """What is shown for approval."""

    before: tuple[Part, ...]
    """Messages with the whole of what is too long for the card."""
    last: Part
    """The message with the buttons."""


def waiting(action: Action, until: datetime) -> Card | None:
    """The card of one action; None for one that is too long to be shown."""
    why = f" It needs a person's word: {_why(action)}."
    foot = paragraph("\n", *_rests_on(action), *_asked_by(action), why, *_valid(until))
    buttons = _buttons(action.id, "", bool(editable(action)))
    pieces = list(_pieces(action, title(action)))
    if _size([*pieces, foot]) <= MAX_CARD:
        return Card((), _part([rich(*pieces, foot), buttons]))
    texts = sum(is_text for *_, is_text in arguments(action))
    texts += sum("\n" in value for value in action.told.values())
    excerpt = min(SHOWN, MAX_CARD // 2 // max(texts, 1))
    before = _messages(pieces)
    pieces = list(_pieces(action, title(action), excerpt))
    told = paragraph(f"\nThe whole of it stands in the {len(before)} messages before this one.\n")
    if len(before) > MOST_MESSAGES or _size([*pieces, told, foot]) > MAX_CARD:
        return None
    return Card(before, _part([rich(*pieces, told, foot), buttons]))


def batch(id: str, actions: Sequence[Action], until: datetime) -> Card | None:
    """One card for several actions, each with all that it says; None where that is too long."""
    foot = paragraph("\n", *_asked_by(actions[0]), *_valid(until))
    head = paragraph(bold(f"{len(actions)} things wait for your approval\n"))
    buttons = _buttons(id, "_all", False)
    titles = [f"{n}. {title(action)}" for n, action in enumerate(actions, 1)]
    pieces = []
    for action, named in zip(actions, titles, strict=True):
        why = f"It needs a person's word: {_why(action)}.\n\n"
        pieces += [*_pieces(action, named), paragraph(*_rests_on(action), why)]
    if _size([head, *pieces, foot]) <= MAX_CARD:
        return Card((), _part([rich(head, *pieces, foot), buttons]))
    before = _messages(pieces)
    most = MAX_CARD // 2 // len(actions)
    short = [_in_short(action, named, most) for action, named in zip(actions, titles, strict=True)]
    listed = paragraph("\n".join(short))
    told = paragraph(f"\nAll of it stands in the {len(before)} messages before this one.\n")
    if len(before) > MOST_MESSAGES or _size([head, listed, told, foot]) > MAX_CARD:
        return None
    return Card(before, _part([rich(head, listed, told, foot), buttons]))


def offer(action: Action, until: datetime) -> Card | None:
    """What administrators are asked: whether some sources may be told of in a place for good; None
    where those are too many to be shown."""
    args = action.args
    names = "\n".join(f"• {spelled(i)} ({spelled(n)})" for i, n in args["sources"].items())
    goal = f"{spelled(args['destination'])} ({spelled(args['destination_name'])})"
    pieces = (
        paragraph(bold(f"Allow answers in {goal} to rest on these sources?\n")),
        paragraph(names),
        paragraph(
            f"\nNot everyone in {spelled(args['destination_name'])} is a member of them; "
            "everyone there would read what answers say of them, until the grant is revoked. ",
            user(action.requester),
            " asked for such an answer and has it in private.\n",
        ),
        paragraph("Only administrators decide.", *_valid(until)),
    )
    if _size(pieces) > MAX_CARD:
        return None
    return Card(
        (), Part("A grant needs your word.", (rich(*pieces), _buttons(action.id, "", False)))
    )


def form(action: Action) -> Block | None:
    """The form in which the texts can be changed."""
    fields = [
        {
            "type": "input",
            "block_id": name,
            "label": {"type": "plain_text", "text": name.replace("_", " ").capitalize()},
            "element": {
                "type": "plain_text_input",
                "action_id": FORM,
                "multiline": True,
                "max_length": MAX_TYPED,
                **({"initial_value": text} if text else {}),
            },
        }
        for name, text in editable(action).items()
    ]
    if not fields:
        return None
    return {
        "type": "modal",
        "callback_id": FORM,
        "private_metadata": action.id,
        "title": {"type": "plain_text", "text": "Change the text"},
        "submit": {"type": "plain_text", "text": "Back to the card"},
        "close": {"type": "plain_text", "text": "Cancel"},
        "blocks": fields,
    }


def _why(action: Action) -> str:
    if action.asks:
        return "it would tell the internet of what was read. The request is then answered again"
    return WHY.get(action.rule, f"the rule {visible(action.rule)} wants it")


def _asked_by(action: Action) -> tuple[str | Element, ...]:
    return "Asked for by ", user(action.requester), "."


def _valid(until: datetime) -> tuple[str | Element, ...]:
    return " Valid until ", date(until), "."


def _rests_on(action: Action) -> Iterator[str | Element]:
    """Where the text may come from: all that was read before it was written."""
    sources, public = action.label.sources, action.label.is_open
    heads = {source.partition("/")[0] for source in sources}
    places = sorted({head for head in heads if is_conversation(head)})
    places += sorted({s for s in sources if s.partition("/")[0] not in places})
    if not places and public:
        return
    yield "Rests on: "
    for number, place in enumerate(places[:MOST_SOURCES]):
        yield ", " if number else ""
        yield channel(place) if place[0] in "CG" and is_conversation(place) else spelled(place)
    more = len(places) - MOST_SOURCES
    yield f" and {more:,} more" if more > 0 else "" if places else "what not everyone may read"
    yield ".\n"


def _pieces(action: Action, named: str, most: int = 0) -> Iterator[Element]:
    """All that an action says; with `most`, only so many characters of each text.

    What code tells of it is a line, or a text with a heading.
    """
    yield paragraph(bold(f"{named}\n"))
    for name, value in action.told.items():
        heading, _, text = value.partition("\n")
        yield paragraph(bold(f"{visible(name).capitalize()}: "), f"{spelled(heading)}\n")
        if text:
            yield from _text(visible(text), most)
    if action.told:
        yield paragraph("\nAll of it, as it is stored:\n")
    for name, value, is_text in arguments(action):
        if not is_text:
            yield paragraph(bold(f"{visible(name)}: "), f"{value}\n")
            continue
        yield paragraph(bold(visible(name)), f" ({len(value):,} characters)\n")
        yield from _text(value, most)


def _text(value: str, most: int) -> Iterator[Element]:
    shown = value[:most] if most else value
    for start in range(0, max(len(shown), 1), SHOWN):
        if start:
            yield paragraph("(it goes on)\n")
        yield pre(shown[start : start + SHOWN])
    if len(shown) < len(value):
        yield paragraph(f"… {len(value) - len(shown):,} characters more\n")


def _in_short(action: Action, named: str, most: int) -> str:
    """What would happen, and of what code tells of it the headings."""
    headings = ((name, value.partition("\n")[0]) for name, value in action.told.items())
    told = "; ".join(f"{visible(name)}: {spelled(heading)}" for name, heading in headings)
    return f"{named}\n{told[:most]}{'…' if len(told) > most else ''}".rstrip()


def _messages(pieces: Sequence[Element]) -> tuple[Part, ...]:
    """The pieces in as few messages as they fit into."""
    groups: list[list[Element]] = [[]]
    for piece in pieces:
        if groups[-1] and _size([*groups[-1], piece]) > MAX_CARD:
            groups.append([])
        groups[-1].append(piece)
    return tuple(Part("For your approval", (rich(*group),)) for group in groups)


def _size(pieces: Sequence[Element]) -> int:
    return sum(map(length, pieces))


def _part(blocks: Sequence[Block]) -> Part:
    return Part("Something waits for your approval.", tuple(blocks))


def _buttons(id: str, all: str, edit: bool) -> Block:
    def button(name: str, words: str, **more: str) -> Block:
        text = {"type": "plain_text", "text": words}
        action = f"action_{name}{all}"
        return {"type": "button", "action_id": action, "value": id, "text": text, **more}

    every = " all" if all else ""
    shown = [button("approve", f"Approve{every}", style="primary")]
    shown += [button("edit", "Edit")] if edit else []
    shown += [button("deny", f"Deny{every}", style="danger")]
    return {"type": "actions", "elements": shown}


# ---- cards that are over


def ended(rows: Sequence[StoredAction], address: str) -> Part:
    """What has become of an action, or of each of a batch; nothing is left to press.

    `address` is the workspace's: only links that begin with it are links.
    """
    pieces = []
    for number, each in enumerate(rows, 1):
        count = f"{number}. " if len(rows) > 1 else ""
        named = f"{count}{_title(each)}\n"
        pieces.append(paragraph(bold(named), *_state(each, address), "\n"))
    return Part("A card that was decided on.", (rich(*pieces),))


def _title(row: StoredAction) -> str:
    if not row.genuine:
        return "Something that is not what was proposed"
    if row.tool != GRANT:
        return title(row.action)
    args = row.action.args
    names = ", ".join(spelled(name) for name in args["sources"].values())
    return f"Allow answers in {spelled(args['destination_name'])} to rest on {names}"[:1_000]


def _state(row: StoredAction, address: str) -> Iterator[str | Element]:
    outcome = row.outcome or {}
    if row.state == "expired":
        yield "This has expired; nothing was done. Please ask again."
        return
    if row.state == "failed":
        yield "Not done: "
    yield from linked(visible(str(outcome.get("said") or "")), address)
    if row.state in DONE_BY:
        yield " " if outcome.get("said") else ""
        yield DONE_BY[row.state]
        yield said(row.decided_by)
        if row.decided_at:
            yield ", "
            yield date(row.decided_at)
        yield "; it is being done." if row.state == "approved" else "."
