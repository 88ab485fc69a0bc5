"""The payloads that Slack sends to the app: events and interactions.

docs.slack.dev/reference/events; docs.slack.dev/interactivity/handling-user-interaction.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.local.slack.json import message_json
from bot.local.slack.records import Json, View
from bot.local.slack.state import APP_ID, BOT_USER, SlackState
from bot.local.slack.views import home, new_trigger, view_json
from bot.local.workspace import Channel, Message, timestamp

MENTION = f"<@{BOT_USER}>"

_CHANNEL_TYPES = {"public_channel": "channel", "private_channel": "group"}
_USER = re.compile(r"<@([A-Z0-9]+)>")


def channel_type(channel: Channel) -> str:
    return _CHANNEL_TYPES.get(channel.kind, channel.kind)


def now_ts(state: SlackState) -> str:
    return timestamp(int(state.now() * 1_000_000))


def is_told(state: SlackState, channel: str) -> bool:
    """Return whether the app receives events of the channel: its bot must be a member."""
    return BOT_USER in state.members.get(channel, ())


def message_events(state: SlackState, channel: Channel, message: Message) -> Iterator[Json]:
    """Yield the events of a new message: `message`, and `app_mention` if it mentions the bot."""
    event = nest_message(state, channel, message)
    event |= {"channel": channel.id, "event_ts": message.ts}
    yield event | {"channel_type": channel_type(channel)}
    if mentions(message) and not channel.is_im:
        yield mention(event)


def mention(event: Json) -> Json:
    """Return the app_mention of a message event; it has no subtype and no channel type."""
    excluded = ("subtype", "channel_type")
    return {k: v for k, v in event.items() if k not in excluded} | {"type": "app_mention"}


def build_typed_block(text: str) -> Json:
    """Return the block that Slack builds from typed text."""
    elements: list[Json] = []
    for number, part in enumerate(_USER.split(text)):
        if number % 2:
            elements.append({"type": "user", "user_id": part})
        elif part:
            elements.append({"type": "text", "text": part})
    section = {"type": "rich_text_section", "elements": elements}
    return {"type": "rich_text", "block_id": "b1", "elements": [section]}


def mentions(message: Message) -> bool:
    """Return whether the message mentions the bot."""
    return MENTION in message.text or f"<@{BOT_USER}|" in message.text


def nest_message(state: SlackState, channel: Channel, message: Message) -> Json:
    """Return a message as it appears inside an event."""
    body = message_json(state, channel.id, message)
    if message.bot_id or not message.user or message.subtype == "tombstone":
        return body
    if not message.blocks and message.text:
        body["blocks"] = [build_typed_block(message.text)]
    return body


# ---- interactions

_FEEDBACK = ("positive_button", "negative_button")


def click(state: SlackState, user: str, channel: str, message: Message, action: Json) -> Json:
    """Return the payload of a click on a message's button."""
    container: Json = {"type": "message", "message_ts": message.ts, "channel_id": channel}
    if message.is_reply:
        container["thread_ts"] = message.thread_ts
    return block_actions(state, user, action) | {
        "container": container,
        "channel": {"id": channel, "name": name_of(state, channel)},
        "message": message_json(state, channel, message),
    }


def click_home(state: SlackState, user: str, action_id: str, value: str | None) -> Json:
    """Return the payload of a click in an App Home. Raises KeyError without such a button."""
    view = home(state, user)
    if view is None:
        raise KeyError(f"{user} has no App Home.")
    action = action_of(view.body["blocks"], action_id, value)
    return block_actions(state, user, action) | {
        "container": {"type": "view", "view_id": view.id},
        "view": view_json(state, view),
    }


def close(state: SlackState, user: str, view_id: str) -> View:
    """Close a modal of a person. Raises KeyError if this person has no such modal open."""
    view = state.views.get(view_id)
    if view is None or view.user != user or view.body["type"] != "modal":
        raise KeyError(f"{user} has no form {view_id}.")
    return state.views.pop(view_id)


def submit(state: SlackState, user: str, view_id: str, typed: Mapping[str, str]) -> Json:
    """Submit the form of a modal that a person has open, and close it.

    `typed`: block id -> text, or the value of the chosen option; other fields keep their
    values. Raises KeyError if this person has no such modal, or a field has no such option.
    """
    view = close(state, user, view_id)
    values: dict[str, Json] = {}
    for block in view.body["blocks"]:
        element = block.get("element") or {}
        if block["type"] == "input":
            sent = {"type": element["type"], **_field_state(element, typed.get(block["block_id"]))}
            values[block["block_id"]] = {element["action_id"]: sent}
    view_body = view_json(state, view) | {"state": {"values": values}}
    submission = {"type": "view_submission", "view": view_body, "response_urls": []}
    return interaction(state, user) | submission


def _field_state(element: Mapping[str, Any], typed: str | None) -> Json:
    """Return the content of a field when its form is submitted."""
    if "options" not in element:
        return {"value": element.get("initial_value") if typed is None else typed}
    if typed is None:
        return {"selected_option": element.get("initial_option")}
    options = {option["value"]: option for option in element["options"]}
    return {"selected_option": options[typed]}


def action_of(blocks: Iterable[Mapping[str, Any]], action_id: str, value: str | None) -> Json:
    """Return the action of a click on an element. Raises KeyError if there is no such element.

    Of several elements or choices with this action_id the one with the value is clicked; if none
    has it, the first one sends it, as a forger would.
    """
    found = [
        (block_id, element, choice)
        for block_id, element in _elements(blocks)
        if element.get("action_id") == action_id
        for choice in _choices(element)
    ]
    if not found:
        raise KeyError(f"There is nothing to press with the action_id {action_id!r}.")
    matching = (each for each in found if each[2].get("value") == value)
    block_id, element, chosen = next(matching, found[0])
    sent: Json = {"type": element["type"], "action_id": action_id, "block_id": block_id}
    if "options" in element:
        return sent | {"selected_option": dict(chosen)}
    value = chosen.get("value") if value is None else value
    sent |= {} if value is None else {"value": value}
    return sent | ({"text": chosen["text"]} if "text" in chosen else {})


def _choices(element: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the clickable parts: two feedback buttons, options, or the element itself."""
    options = element.get("options")
    if options:
        return list(options)
    return [element[name] for name in _FEEDBACK if name in element] or [element]


def _elements(blocks: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for block in blocks:
        for element in (*block.get("elements", ()), block.get("accessory"), block.get("element")):
            if element:
                yield block["block_id"], element


def block_actions(state: SlackState, user: str, action: Json) -> Json:
    actions = [action | {"action_ts": now_ts(state)}]
    return interaction(state, user) | {"type": "block_actions", "actions": actions}


def interaction(state: SlackState, user: str) -> Json:
    """Return the fields that the payloads of all interactions have."""
    return {
        "user": {"id": user, "team_id": state.users[user].team_id or state.team.id},
        "api_app_id": APP_ID,
        "trigger_id": new_trigger(state, user),
        "team": {"id": state.team.id, "domain": state.team.domain},
        "enterprise": None,
        "is_enterprise_install": False,
    }


def name_of(state: SlackState, channel: str) -> str:
    return state.channels[channel].name or "directmessage"
