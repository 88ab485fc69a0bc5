"""Build approval cards and their forms, and parse clicks on them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import scopes
from bot.approvals.store import GRANT, GrantOffer, Question, StoredAction
from bot.slack.blocks import (
    Block,
    Element,
    actions,
    bold,
    button,
    channel,
    date,
    field,
    fill,
    format_decider,
    format_json,
    modal,
    paragraph,
    plain_text_block,
    pre,
    rich,
    show_invisible,
    split_links,
    user,
    weight,
    with_spelling,
)
from bot.slack.messages import MessagePart, first, id_of, mapping, sanitize_json, ts_of
from config.words import current, phrase
from scopes.effects import Effect, Part
from scopes.label import is_conversation
from scopes.preferences import OPTIONS
from scopes.tool import Tool
from subagents.gate import Action

APPROVE, DENY, EDIT, CHOOSE = "approve", "deny", "edit", "choose"
BUTTON_PURPOSES = {
    "action_approve": APPROVE,
    "action_deny": DENY,
    "action_edit": EDIT,
    "action_approve_all": APPROVE,
    "action_deny_all": DENY,
    **{f"action_choose_{n}": CHOOSE for n in range(OPTIONS[1])},
}
"""Action id of a button -> its purpose."""
FORM = "action_edited"
"""Callback id of the form in which a text is edited."""
MAX_TYPED = 3_000
"""Maximum characters in a field of a form (docs.slack.dev, plain-text input)."""

_ID = re.compile(r"[0-9a-f]{32}")
_NUMBERED_NAME = re.compile(r"[a-z ]+ \d+")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")


@dataclass(frozen=True, slots=True)
class CardClicked:
    """A button of a card was clicked."""

    team: str
    """Workspace of the person who clicked; empty if the payload does not have it."""
    user: str
    what: str
    """`approve`, `deny`, `edit` or `choose`."""
    all: bool
    """Whether the button is for a whole batch."""
    id: str
    """The action id in the button; empty if it is not one."""
    channel: str
    ts: str
    """The message with the button."""
    thread_ts: str = ""
    trigger: str = ""
    """Opens a form, within three seconds."""
    option: int = 0
    """The position of the chosen option."""


@dataclass(frozen=True, slots=True)
class FormSubmitted:
    """The form of a card was submitted."""

    team: str
    user: str
    id: str
    texts: Mapping[str, str]
    """Name of an argument -> the entered text."""


def card_click(body: Mapping[str, Any]) -> CardClicked | None:
    """Parse a click on a card; None for any other click, or one without a user."""
    action, person = first(body.get("actions")), mapping(body.get("user"))
    name, user = action.get("action_id"), id_of(person.get("id"), "UW")
    if not isinstance(name, str) or name not in BUTTON_PURPOSES or not user:
        return None
    place, message = mapping(body.get("container")), mapping(body.get("message"))
    channel = id_of(place.get("channel_id"), "CDG")
    ts, trigger = ts_of(place.get("message_ts")), body.get("trigger_id")
    location = id_of(mapping(body.get("channel")).get("id"), "CDG"), ts_of(message.get("ts"))
    if location != (channel, ts) or place.get("is_ephemeral"):
        ts = ""  # two places in one payload: we did not show this card
    return CardClicked(
        team=id_of(person.get("team_id"), "TE"),
        user=user,
        what=BUTTON_PURPOSES[name],
        all=name.endswith("_all"),
        id=_action_id(action.get("value")),
        channel=channel,
        ts=ts,
        thread_ts=ts_of(place.get("thread_ts")) or ts_of(message.get("thread_ts")),
        trigger=trigger if isinstance(trigger, str) else "",
        option=int(name.rpartition("_")[2]) if BUTTON_PURPOSES[name] == CHOOSE else 0,
    )


def submission(body: Mapping[str, Any]) -> FormSubmitted | None:
    """Parse one of our forms when submitted; None for any other view, or one without a user."""
    view, person = mapping(body.get("view")), mapping(body.get("user"))
    user = id_of(person.get("id"), "UW")
    if view.get("callback_id") != FORM or not user:
        return None
    texts = {}
    for name, inputs in mapping(mapping(view.get("state")).get("values")).items():
        text = mapping(mapping(inputs).get(FORM)).get("value")
        if isinstance(text, str) and isinstance(name, str) and _NAME.fullmatch(name):
            texts[name] = sanitize_json(text)
    team = id_of(person.get("team_id"), "TE")
    return FormSubmitted(team, user, _action_id(view.get("private_metadata")), texts)


def _action_id(value: Any) -> str:
    return value if isinstance(value, str) and _ID.fullmatch(value) else ""


MAX_INLINE_CHARS = 300
"""Maximum length of a value shown on the line of its name."""
RECIPIENTS = (
    *("to", "cc", "bcc", "recipient", "recipients", "attendees", "people", "emails", "email"),
    *("user", "users", "channel", "channels", "address", "url", "sheet", "table", "range"),
)
"""Arguments that are shown first, besides handles."""
SCHEDULE_TEXT_KEYS = {
    "schedule_create": "card.schedule_create",
    "remind_me": "card.schedule_create",
    "schedule_pause": "card.schedule_pause",
    "schedule_delete": "card.schedule_delete",
}
"""Tool -> key of its effect on a schedule. Its `prepare` describes the complete effect."""
OWN_WORDS = (*SCHEDULE_TEXT_KEYS, "set_channel_instructions")
"""Tools that describe their effect in our words, and spell out text chosen by others in it."""
EFFECTS = {Effect.POST: "card.send", Effect.REACT: "card.react", Effect.DRAFT: "card.draft"}
"""Effect of a tool -> key of its description."""


def tool_of(action: Action, clients: Mapping[type, object] | None = None) -> Tool | None:
    """Return the tool that would run, with these clients; None if it no longer exists."""
    try:
        tools = scopes.tools_of(action.scope, clients)
    except scopes.UnknownScope:
        return None
    return next((tool for tool in tools if tool.name == action.tool), None)


def editable(action: Action) -> dict[str, str]:
    """Return the texts that can be edited, by argument; none if one is too long."""
    tool = tool_of(action)
    names = [n for n, role in tool.parts.items() if role is Part.SAID] if tool else []
    texts = {name: action.args.get(name) for name in names}
    if not all(isinstance(text, str) and len(text) <= MAX_TYPED for text in texts.values()):
        return {}
    return {name: str(text) for name, text in texts.items()}


def title(action: Action) -> str:
    """Describe the effect of an action in a line."""
    tool = tool_of(action)
    if action.is_question:
        return show_invisible(Question.model_validate(action.args).question)
    if key := SCHEDULE_TEXT_KEYS.get(action.tool):
        key = "card.schedule_resume" if action.args.get("resume") else key
        return phrase(key, name=with_spelling(str(action.args.get("name", ""))))
    goals = [
        _format_thing(action, str(action.args[n])) for n in _handles(tool) if action.args.get(n)
    ]
    if not goals:
        found = (action.args.get(name) for name in ("to", "recipient", "recipients"))
        goals = [with_spelling(_short(value)) for value in found if value]
    what = (
        phrase(EFFECTS[tool.effect]) if tool and tool.effect in EFFECTS else _name_of(action.tool)
    )
    if not goals or (tool and tool.effect is Effect.DRAFT):
        return what
    return phrase("card.to", what=what, place=goals[0])


def _name_of(tool: str) -> str:
    """Return the name of a tool for people; for an MCP tool, the name from its server."""
    if current().has(f"tool.{tool}"):
        return phrase(f"tool.{tool}")
    words = show_invisible(tool.replace("_", " ")).strip()
    return f"{words[:1].upper()}{words[1:]}"


def _label(name: str) -> str:
    """Return the name, for people, of an argument or of a fact that a tool reports."""
    base, _, number = name.rpartition(" ") if _NUMBERED_NAME.fullmatch(name) else (name, "", "")
    key = f"name.{base.replace(' ', '_')}"
    return f"{phrase(key)} {number}".rstrip() if current().has(key) else show_invisible(name)


def _handles(tool: Tool | None) -> Mapping[str, str]:
    return tool.handle_arguments if tool else {}


def _format_thing(action: Action, value: str) -> str:
    """Format a thing with its id first, then its name, which anybody may choose.

    A message gets the name of its conversation.
    """
    name = action.handles.get(value) or action.handles.get(value.partition("/")[0])
    return f"{with_spelling(value)} ({with_spelling(name)})" if name else with_spelling(value)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else ", ".join(map(str, value))
    return text if len(text) <= MAX_INLINE_CHARS else f"{text[:MAX_INLINE_CHARS]}…"


def arguments(action: Action) -> Iterator[tuple[str, str, bool]]:
    """Yield name, value and whether it is a text, of all arguments: recipients first, texts last.

    Texts for others to read are shown unchanged; any other text is followed by its ASCII form.
    Optional arguments without a value are left out.
    """
    tool = tool_of(action)
    handles, parts = _handles(tool), tool.parts if tool else {}

    def rank(name: str) -> int:
        if parts.get(name) is Part.SAID:
            return 3
        return 0 if name in handles else 1 if name.lower() in RECIPIENTS else 2

    for name in sorted(action.args, key=rank):
        value = action.args[name]
        if _is_left_out(tool, name, value):
            continue
        if name in handles and isinstance(value, str):
            yield name, _format_thing(action, value) if value else phrase("card.empty"), False
        elif isinstance(value, str) and rank(name) == 3:
            yield name, show_invisible(value), True
        else:
            text = _format_value(value)
            yield name, text, len(text) > MAX_INLINE_CHARS


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return with_spelling(value) or phrase("card.empty")
    if isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(map(with_spelling, value)) or phrase("card.none")
    return format_json(value)


def _is_left_out(tool: Tool | None, name: str, value: Any) -> bool:
    model_field = tool.input_model.model_fields.get(name) if tool else None
    if model_field is None or model_field.is_required() or value not in (None, "", [], {}):
        return False
    return bool(model_field.get_default() == value)


MAX_PIECE_CHARS = 2_900
"""Maximum characters of a text in one piece; a longer one continues in messages before the card."""
MAX_CARD = 10_000
"""Maximum characters of one message; Slack refuses more than 13,200 (slackapi/bolt-js#2509)."""
MOST_SOURCES = 20
"""Maximum sources that a card names; the rest is counted."""
MOST_MESSAGES = 20
"""Maximum messages for the texts of one card; an action that needs more cannot be approved."""
EXPLAINED_RULES = ("audience", "consequence", "draft", "flood")
"""Rules of the gate with an explanation for people."""


@dataclass(frozen=True, slots=True)
class ApprovalCard:
    """The messages that are shown for approval."""

    before: tuple[MessagePart, ...]
    """Messages with the full text of pieces that are too long for the card."""
    last: MessagePart
    """The message with the buttons."""

    def messages(self, key: str) -> dict[str, MessagePart]:
        """Return all messages by the keys of their marks; the last one has `key`."""
        before = {f"{key}/text/{number}": part for number, part in enumerate(self.before, 1)}
        return {**before, key: self.last}


def pending_card(action: Action, until: datetime) -> ApprovalCard | None:
    """Return the card of one action; None if it is too long to show."""
    if action.is_question:
        return _question(action, until)
    heading, why = title(action), f" {_why(action)}"
    space = "" if action.tool in SCHEDULE_TEXT_KEYS else "\n"
    footer = paragraph(space, *_rests_on(action), *_requester_line(action), why, *_valid(until))
    pieces = list(_pieces(action, heading))
    return _card(pieces, [_head(heading)], footer, _buttons(action.id, "", bool(editable(action))))


def _question(action: Action, until: datetime) -> ApprovalCard:
    """Return the card with a button for each option that its requester may choose."""
    footer = fill("card.choose", who=user(action.requester))
    shown = rich(paragraph(bold(f"{title(action)}\n")), paragraph(*footer, *_valid(until)))
    choices = actions(
        button(f"action_choose_{n}", option, value=action.id)
        for n, option in enumerate(Question.model_validate(action.args).options)
    )
    return ApprovalCard((), MessagePart(phrase("card.question_waits"), (shown, choices)))


def batch(id: str, actions: Sequence[Action], until: datetime) -> ApprovalCard | None:
    """Return one card for several actions, each shown in full; None if it is too long."""
    head = _head(phrase("card.things_wait", n=len(actions)))
    pieces, heads = [head], [head]
    for number, action in enumerate(actions, 1):
        heading, why = f"{number}. {title(action)}", f"{_why(action)}\n\n"
        pieces += [*_pieces(action, heading), paragraph(*_rests_on(action), why)]
        heads.append(paragraph(f"{heading}\n"))
    footer = paragraph("\n", *_requester_line(actions[0]), *_valid(until))
    return _card(pieces, heads, footer, _buttons(id, "_all", False))


def offer(action: Action, until: datetime) -> ApprovalCard | None:
    """Return the question to administrators whether sources may be shown in a place permanently.

    None if there are too many sources to show.
    """
    grant = GrantOffer.model_validate(action.args)
    place = with_spelling(grant.destination_name)
    names = "\n".join(
        f"• {with_spelling(i)} ({with_spelling(n)})" for i, n in grant.sources.items()
    )
    goal = f"{with_spelling(grant.destination)} ({place})"
    pieces = (
        paragraph(bold(f"{phrase('card.grant', place=goal)}\n")),
        paragraph(names),
        paragraph("\n", *fill("card.grant_means", place=place, who=user(action.requester)), "\n"),
        paragraph(phrase("card.admins_decide"), *_valid(until)),
    )
    if weight([rich(*pieces)]) > MAX_CARD:
        return None
    shown = (rich(*pieces), _buttons(action.id, "", False))
    return ApprovalCard((), MessagePart(phrase("card.grant_waits"), shown))


def _card(
    pieces: Sequence[Element], heads: Sequence[Element], footer: Element, buttons: Block
) -> ApprovalCard | None:
    """Return a card with all pieces, or only with heads if the pieces need messages before it."""
    before: tuple[MessagePart, ...] = ()
    shown = [*pieces, footer]
    if weight([rich(*shown)]) > MAX_CARD:
        before = _messages(pieces)
        where = paragraph(f"\n{phrase('card.all_before', n=len(before))}\n")
        shown = [*heads, where, footer]
    if len(before) > MOST_MESSAGES or weight([rich(*shown)]) > MAX_CARD:
        return None
    return ApprovalCard(before, MessagePart(phrase("card.waits"), (rich(*shown), buttons)))


def form(action: Action) -> Block | None:
    """Return the form in which the texts can be edited."""
    element = {"type": "plain_text_input", "action_id": FORM, "multiline": True}
    element |= {"max_length": MAX_TYPED}
    fields = [
        field(
            name,
            _capital(_label(name).replace("_", " ")),
            {**element, **({"initial_value": text} if text else {})},
        )
        for name, text in editable(action).items()
    ]
    if not fields:
        return None
    return modal(
        phrase("card.change_text"),
        phrase("button.cancel"),
        fields,
        callback_id=FORM,
        private_metadata=action.id,
        submit=plain_text_block(phrase("card.back")),
    )


def _why(action: Action) -> str:
    if action.asks:
        return phrase("card.why_asks")
    has_text = action.rule in EXPLAINED_RULES
    return phrase(
        f"card.why_{action.rule}" if has_text else "card.why", rule=show_invisible(action.rule)
    )


def _requester_line(action: Action) -> Iterator[str | Element]:
    return fill("card.asked_by", who=user(action.requester))


def _valid(until: datetime) -> Iterator[str | Element]:
    yield " "
    yield from fill("card.valid", until=date(until))


def _rests_on(action: Action) -> Iterator[str | Element]:
    """Yield the possible sources of the text: everything that was read before it was written."""
    sources, public = action.label.sources, action.label.is_open
    heads = {source.partition("/")[0] for source in sources}
    places = sorted({head for head in heads if is_conversation(head)})
    places += sorted({s for s in sources if s.partition("/")[0] not in places})
    if not places and public:
        return
    yield f"{phrase('card.rests_on')} "
    for number, place in enumerate(places[:MOST_SOURCES]):
        yield ", " if number else ""
        yield (
            channel(place) if place[0] in "CG" and is_conversation(place) else with_spelling(place)
        )
    more = len(places) - MOST_SOURCES
    if more > 0:
        yield f" {phrase('more', n=more)}"
    yield ".\n" if places else f"{phrase('card.not_everyone')}.\n"


def _head(heading: str) -> Element:
    return paragraph(bold(f"{heading}\n"))


def _pieces(action: Action, headline: str) -> Iterator[Element]:
    """Yield everything that an action does.

    A fact from code is a line, or a text with a heading; a schedule has only such facts.
    """
    if action.tool in SCHEDULE_TEXT_KEYS:
        yield from _of_schedule(action, headline)
        return
    yield _head(headline)
    for name, value in action.told.items():
        heading, _, text = value.partition("\n")
        yield paragraph(bold(f"{_capital(_label(name))}: "), f"{_show_line(action, heading)}\n")
        if text:
            yield from _text(show_invisible(text))
    if action.told:
        yield paragraph(f"\n{phrase('card.as_stored')}\n")
    for name, value, is_text in arguments(action):
        if not is_text:
            yield paragraph(bold(f"{_label(name)}: "), f"{value}\n")
            continue
        yield paragraph(bold(_label(name)), f" ({phrase('card.characters', n=len(value))})\n")
        yield from _text(value)


def _of_schedule(action: Action, heading: str) -> Iterator[Element]:
    """Yield few lines; a text with line breaks gets a block, as its lines could pass for ours."""
    parts: list[str | Element] = [bold(f"{heading}\n")]
    for name, value in action.told.items():
        line, _, text = value.partition("\n")
        parts.append(bold(f"{_capital(_label(name))}: "))
        shown = show_invisible(text or line)
        if "\n" in shown:
            yield paragraph(*parts, "\n")
            yield from _text(shown)
            parts = []
        else:
            parts.append(f"{shown}\n")
    yield paragraph(*parts)


def _text(value: str) -> Iterator[Element]:
    for start in range(0, max(len(value), 1), MAX_PIECE_CHARS):
        if start:
            yield paragraph(f"{phrase('card.goes_on')}\n")
        yield pre(value[start : start + MAX_PIECE_CHARS])


def _messages(pieces: Sequence[Element]) -> tuple[MessagePart, ...]:
    """Pack the pieces into as few messages as possible."""
    groups: list[list[Element]] = [[]]
    for piece in pieces:
        if groups[-1] and weight([rich(*groups[-1], piece)]) > MAX_CARD:
            groups.append([])
        groups[-1].append(piece)
    return tuple(MessagePart(phrase("card.for_approval"), (rich(*group),)) for group in groups)


def _show_line(action: Action, line: str) -> str:
    """Return a line from a tool; our words in other languages are not spelled out."""
    return show_invisible(line) if action.tool in OWN_WORDS else with_spelling(line)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _buttons(id: str, all: str, edit: bool) -> Block:
    names = {"approve": {"style": "primary"}, "edit": {}, "deny": {"style": "danger"}}
    return actions(
        button(f"action_{name}{all}", phrase(f"button.{name}{all}"), value=id, **style)
        for name, style in names.items()
        if edit or name != "edit"
    )


def result_message(rows: Sequence[StoredAction], address: str) -> MessagePart:
    """Show the result of an action, or of each action in a batch, without buttons.

    `address` is the workspace's: only addresses that begin with it become links.
    """
    pieces = []
    for number, each in enumerate(rows, 1):
        count = f"{number}. " if len(rows) > 1 else ""
        heading = f"{count}{_title(each)}\n"
        pieces.append(paragraph(bold(heading), *_state(each, address), "\n"))
    return MessagePart(phrase("card.decided"), (rich(*pieces),))


def _title(row: StoredAction) -> str:
    if row.tool != GRANT:
        return title(row.action)
    names = ", ".join(with_spelling(name) for name in row.grant.sources.values())
    place = with_spelling(row.grant.destination_name)
    return phrase("card.grant_title", place=place, names=names)[:1_000]


def _state(row: StoredAction, address: str) -> Iterator[str | Element]:
    if row.state == "expired":
        yield phrase("click.expired")
        return
    if row.state == "failed":
        yield f"{phrase('card.not_done')} "
    yield from split_links(show_invisible(row.said), address)
    if row.state in ("approved", "done", "failed", "denied"):
        yield " " if row.said else ""
        key = "card.denied_by" if row.state == "denied" else "card.approved_by"
        key = "card.chosen_by" if row.action.is_question else key
        decider: list[str | Element] = [format_decider(row.decided_by)]
        decider += [", ", date(row.decided_at)] if row.decided_at else []
        yield from fill(key, who=decider)
        yield f" {phrase('card.at_work')}" if row.state == "approved" else ""
