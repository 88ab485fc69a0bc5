"""Parse Slack's payloads into typed events: messages, edits, deletions, clicks and commands."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.approvals.cards import CardClicked, FormSubmitted, card_click, submission
from bot.manifest import SHORTCUTS
from bot.reports.digest_actions import DigestClick, digest_click
from bot.reports.frame import COMMENT, FEEDBACK_FORM, MAX_COMMENT, REASON, WHY_BAD
from bot.slack.blocks import FEEDBACK, parse_feedback
from bot.slack.messages import Bot, first, id_of, mapping, sanitize_json, ts_of
from bot.storage.deletions import ForgetTarget
from bot.storage.requests import IncomingMessage, MessageEdited

HUMAN_SUBTYPES = frozenset({None, "", "file_share", "thread_broadcast"})
"""Subtypes of messages that people write."""

SLACKBOT = "USLACKBOT"
MAX_VALUE = 100
"""Characters of a Home field or button that are read."""

_KEY = re.compile(r"[TE][A-Z0-9]{1,40}/[CDG][A-Z0-9]{1,40}/[0-9]{10}\.[0-9]{6}")


@dataclass(frozen=True, slots=True)
class SeenMessage:
    """A message that asks nothing: only the cursor moves."""

    team: str
    channel: str
    ts: str


@dataclass(frozen=True, slots=True)
class StopPressed:
    """The native Stop button was pressed."""

    team: str
    channel: str
    thread_ts: str
    user: str


@dataclass(frozen=True, slots=True)
class ThreadChosen:
    """A person marked a message with a reaction, or chose a shortcut of it."""

    team: str
    channel: str
    ts: str
    """The message."""
    thread_ts: str
    """Root of its thread; empty if Slack does not name it."""
    user: str
    at: str
    """Time of the choice, as Slack's timestamp."""
    by: str
    """Name of the emoji, without its skin tone, or callback id of the shortcut."""


@dataclass(frozen=True, slots=True)
class HomeOpened:
    """A user opened our App Home or agent pane, or (no tab) another view next to the pane."""

    team: str
    user: str
    channel: str
    """The direct conversation with us; empty if Slack does not name it."""
    tab: str
    """`home`, `messages`, or empty for `app_context_changed`."""
    event: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FeedbackGiven:
    """A feedback button was clicked."""

    key: str
    user: str
    value: str
    """`good` or `bad`."""
    channel: str
    thread_ts: str
    trigger: str = ""
    """Opens a modal, within three seconds."""


@dataclass(frozen=True, slots=True)
class FeedbackExplained:
    """The form that asks why an answer is bad was submitted."""

    key: str
    user: str
    reason: str
    """One of `WHY_BAD`, or empty."""
    comment: str


@dataclass(frozen=True, slots=True)
class ButtonClicked:
    """Another button of ours was clicked, or a field of our Home was filled in."""

    team: str
    user: str
    action: str
    value: str = ""
    """Content of the field, or value of the button."""
    trigger: str = ""
    """Opens a modal, within three seconds."""


@dataclass(frozen=True, slots=True)
class DigestAction:
    """A button of a digest was clicked."""

    click: DigestClick
    blocks: tuple[Mapping[str, Any], ...]
    """Blocks of the message with the button."""
    text: str
    """Fallback text of that message."""
    thread_ts: str = ""
    """The thread that contains the message; empty for none."""


@dataclass(frozen=True, slots=True)
class SlashCommand:
    """The slash command was used."""

    user: str
    word: str
    """The first word after the command, in lower case."""


Interaction = (
    FeedbackGiven | FeedbackExplained | ButtonClicked | DigestAction | CardClicked | FormSubmitted
)
SlackEvent = (
    IncomingMessage
    | SeenMessage
    | MessageEdited
    | ForgetTarget
    | StopPressed
    | ThreadChosen
    | HomeOpened
    | SlashCommand
    | Interaction
)


def parse_event(body: Any, bot: Bot) -> SlackEvent | None:
    """Parse a payload of Slack; None = it does not concern us.

    A reply in a thread is returned as a `follow_up`; the caller must find out whether the bot
    had a request there before.
    """
    if not isinstance(body, Mapping):
        return None
    if "command" in body:
        return _command(body)
    match body.get("type"):
        case "block_actions":
            return card_click(body) or _digest_action(body) or _button_click(body, bot)
        case "message_action":
            return _shortcut(body, bot)
        case "view_submission":
            return submission(body) or _explanation(body)
    return _parse_callback(body, bot)


def _parse_callback(body: Mapping[str, Any], bot: Bot) -> SlackEvent | None:
    """Parse an event of the Events API."""
    event = body.get("event")
    if body.get("type") != "event_callback" or not isinstance(event, Mapping):
        return None
    team = team_of(body, event, bot)
    match event.get("type"):
        case "message":
            return _message(event, team, bot)
        case "app_mention":
            return parse_message(event, team, bot, mentioned=True)
        case "reaction_added":
            return _reaction(event, team, bot)
        case "agent_session_stopped":
            return _stop(event, team)
        case "app_home_opened" | "app_context_changed":
            return _parse_home(event, team)
    return _deletion(event)


def _deletion(event: Mapping[str, Any]) -> ForgetTarget | None:
    """Return the channel, file or account that was deleted with all its content.

    The deletion of a message is an event of its channel. Slack marks a deactivated account as
    `deleted`.
    """
    kind, id = "", ""
    match event.get("type"):
        case "channel_deleted" | "group_deleted":
            kind, id = "channel", id_of(event.get("channel"), "CDG")
        case "file_deleted":
            kind, id = "source", id_of(event.get("file_id"), "F")
        case "user_change":
            user = mapping(event.get("user"))
            kind, id = "author", id_of(user.get("id"), "UW") if user.get("deleted") is True else ""
    return ForgetTarget(kind, id) if id else None


def installed_team(body: Mapping[str, Any]) -> str:
    """Return the installed workspace that Slack sends a payload for; empty if it names none.

    A button is in a message of ours, and the person who clicks may belong to another company.
    """
    message = mapping(body.get("message")) if body.get("type") == "block_actions" else {}
    return _first_id(
        first(body.get("authorizations")).get("team_id"),
        body.get("context_team_id"),
        mapping(body.get("view")).get("app_installed_team_id"),
        message.get("team"),
        mapping(body.get("team")).get("id"),
        body.get("team_id"),
        mapping(body.get("user")).get("team_id"),
        kinds="T",
    )


def team_of(body: Mapping[str, Any], event: Mapping[str, Any], bot: Bot) -> str:
    """Return the workspace for which Slack sent an event.

    In a channel shared with another company `team_id` may be theirs, so `authorizations` is read
    first (docs.slack.dev/apis/events-api, "Event type structure").
    """
    granted = first(body.get("authorizations")).get("team_id")
    candidates = (granted, body.get("context_team_id"), body.get("team_id"), event.get("team"))
    return _first_id(*candidates) or bot.team


def _first_id(*values: Any, kinds: str = "") -> str:
    return next(filter(None, (id_of(each, kinds) for each in values)), "")


def parse_message(
    event: Mapping[str, Any], team: str, bot: Bot, *, mentioned: bool = False, late: bool = False
) -> IncomingMessage | SeenMessage | None:
    """Return a message as a request, or as `SeenMessage` if it asks nothing; None for other events.

    `mentioned`: Slack reports a mention of us. `late`: it was read from the history, where an
    edited message does not show its first text.
    """
    channel, ts = id_of(event.get("channel"), "CDG"), ts_of(event.get("ts"))
    if not channel or not ts:
        return None
    seen = SeenMessage(team, channel, ts)
    user, text = id_of(event.get("user"), "UW"), event.get("text")
    is_message = _is_by_person(event, user, bot) and isinstance(text, str | None)
    if not is_message or (event.get("edited") and not late):
        return seen
    thread_ts = ts_of(event.get("thread_ts")) or ts
    if channel.startswith("D") or event.get("channel_type") == "im":
        kind = "dm" if _has_content(event) else ""
    elif mentioned or mentions(text or "", bot):
        kind = "mention"
    else:
        kind = "follow_up" if thread_ts != ts and _has_content(event) else ""
    return (
        IncomingMessage(team, channel, ts, thread_ts, user, kind, sanitize_json(event))
        if kind
        else seen
    )


def mentions(text: str, bot: Bot) -> bool:
    """Return whether the text contains Slack's own markup for a mention of us."""
    return re.search(rf"<@{re.escape(bot.user)}(\|[^<>]*)?>", text) is not None


def _is_by_person(event: Mapping[str, Any], user: str, bot: Bot) -> bool:
    subtype = event.get("subtype")
    return (
        isinstance(subtype, str | None)
        and subtype in HUMAN_SUBTYPES
        and user not in ("", bot.user, SLACKBOT)
        and not any(event.get(name) for name in ("bot_id", "bot_profile", "hidden"))
    )


def _has_content(event: Mapping[str, Any]) -> bool:
    """Return whether a message contains more than spaces and invisible characters."""
    text = event.get("text")
    shown = any(
        not (c.isspace() or unicodedata.category(c) in ("Cf", "Cc"))
        for c in (text if isinstance(text, str) else "")
    )
    return shown or any(event.get(name) for name in ("files", "attachments"))


def _message(event: Mapping[str, Any], team: str, bot: Bot) -> SlackEvent | None:
    subtype = event.get("subtype")
    if subtype not in ("message_changed", "message_deleted"):
        return parse_message(event, team, bot)
    channel = id_of(event.get("channel"), "CDG")
    message = mapping(event.get("message")) if subtype == "message_changed" else {}
    content = message or mapping(event.get("previous_message"))
    ts = ts_of(content.get("ts")) or ts_of(event.get("deleted_ts"))
    # A reply that is being streamed changes once a second: not worth a look-up.
    if not channel or not ts or content.get("user") == bot.user or content.get("bot_id") == bot.id:
        return None
    if subtype == "message_deleted" or message.get("subtype") == "tombstone":
        return MessageEdited(team, channel, ts, None)
    if content.get("bot_id"):
        return None  # other bots also stream answers, and we answer no bot
    text, before = message.get("text"), mapping(event.get("previous_message")).get("text")
    if not isinstance(text, str) or not message.get("edited") or text == before:
        return None  # a link preview or a new reply does not change the request
    return MessageEdited(team, channel, ts, sanitize_json(text))


def _stop(event: Mapping[str, Any], team: str) -> StopPressed | None:
    channel = id_of(event.get("channel") or event.get("channel_id"), "CDG")
    thread_ts, user = ts_of(event.get("thread_ts")), id_of(event.get("user"), "UW")
    return StopPressed(team, channel, thread_ts, user) if channel and thread_ts and user else None


def _reaction(event: Mapping[str, Any], team: str, bot: Bot) -> ThreadChosen | None:
    item, name = mapping(event.get("item")), event.get("reaction")
    if item.get("type") != "message" or not isinstance(name, str) or event.get("user") == bot.user:
        return None
    emoji = name.partition("::")[0]
    return _parse_choice(
        team, item.get("channel"), item, event.get("user"), event.get("event_ts"), emoji
    )


def _shortcut(body: Mapping[str, Any], bot: Bot) -> ThreadChosen | None:
    """Return the choice of one of our shortcuts.

    Shape: docs.slack.dev/interactivity/implementing-shortcuts.
    """
    name, message = body.get("callback_id"), mapping(body.get("message"))
    if name not in SHORTCUTS:
        return None
    team = id_of(mapping(body.get("team")).get("id")) or bot.team
    channel, user = mapping(body.get("channel")).get("id"), mapping(body.get("user")).get("id")
    message = {**message, "ts": body.get("message_ts") or message.get("ts")}
    return _parse_choice(team, channel, message, user, body.get("action_ts"), str(name))


def _parse_choice(
    team: str, channel: Any, message: Mapping[str, Any], user: Any, at: Any, by: str
) -> ThreadChosen | None:
    place, ts, when = id_of(channel, "CDG"), ts_of(message.get("ts")), ts_of(at)
    root, person = ts_of(message.get("thread_ts")), id_of(user, "UW")
    if not (place and ts and when and person):
        return None
    return ThreadChosen(team, place, ts, root, person, when, by)


def _parse_home(event: Mapping[str, Any], team: str) -> HomeOpened | None:
    user, tab = id_of(event.get("user"), "UW"), event.get("tab")
    if not user or (event.get("type") == "app_home_opened" and tab not in ("home", "messages")):
        return None
    channel = id_of(event.get("channel"), "D")
    return HomeOpened(
        team, user, channel, tab if isinstance(tab, str) else "", sanitize_json(event)
    )


def _digest_action(body: Mapping[str, Any]) -> DigestAction | None:
    """Return a click on a digest; the payload contains its message."""
    click, message = digest_click(body), mapping(body.get("message"))
    blocks, text = message.get("blocks"), message.get("text")
    if click is None or not click.ts or not click.channel or not isinstance(blocks, list):
        return None
    whole = tuple(block for block in blocks if isinstance(block, Mapping))
    thread = ts_of(message.get("thread_ts"))
    return DigestAction(click, whole, text if isinstance(text, str) else "", thread)


def _button_click(body: Mapping[str, Any], bot: Bot) -> FeedbackGiven | ButtonClicked | None:
    """Return a click on a button; the value of a feedback button names the request."""
    action, user = first(body.get("actions")), id_of(mapping(body.get("user")).get("id"), "UW")
    name, raw_value = action.get("action_id"), action.get("value")
    if not isinstance(name, str) or not user:
        return None
    if name != FEEDBACK:
        value = raw_value[:MAX_VALUE] if isinstance(raw_value, str) else ""
        team = id_of(mapping(body.get("team")).get("id")) or bot.team
        return ButtonClicked(team, user, name, value, _trigger(body))
    key, value = (parse_feedback(raw_value) if isinstance(raw_value, str) else None) or ("", "")
    if not _KEY.fullmatch(key):
        return None
    shown = mapping(body.get("container"))
    channel = id_of(mapping(body.get("channel")).get("id") or shown.get("channel_id"), "CDG")
    thread = mapping(body.get("message")).get("thread_ts") or shown.get("thread_ts")
    return FeedbackGiven(key, user, value, channel, ts_of(thread), _trigger(body))


def _explanation(body: Mapping[str, Any]) -> FeedbackExplained | None:
    view, user = mapping(body.get("view")), id_of(mapping(body.get("user")).get("id"), "UW")
    key, values = view.get("private_metadata"), mapping(mapping(view.get("state")).get("values"))
    is_key = isinstance(key, str) and _KEY.fullmatch(key)
    if view.get("callback_id") != FEEDBACK_FORM or not user or not is_key:
        return None
    option = mapping(mapping(mapping(values.get(REASON)).get(REASON)).get("selected_option"))
    comment = mapping(mapping(values.get(COMMENT)).get(COMMENT)).get("value")
    reason = option.get("value")
    return FeedbackExplained(
        str(key),
        user,
        reason if isinstance(reason, str) and reason in WHY_BAD else "",
        sanitize_json(comment)[:MAX_COMMENT].strip() if isinstance(comment, str) else "",
    )


def _trigger(body: Mapping[str, Any]) -> str:
    trigger = body.get("trigger_id")
    return trigger if isinstance(trigger, str) else ""


def _command(body: Mapping[str, Any]) -> SlashCommand | None:
    user, text = id_of(body.get("user_id"), "UW"), body.get("text")
    words = text.split() if isinstance(text, str) else []
    return SlashCommand(user, words[0].lower()[:40] if words else "") if user else None
