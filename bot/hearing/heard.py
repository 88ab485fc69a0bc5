"""What an envelope from Slack means for us: pure, for any JSON, and None for all that is odd."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.approval.clicks import Clicked, Submitted, card_click, submission
from bot.erasure.gone import Gone, gone
from bot.hearing.payload import first, id_of, mapping, storable, ts_of
from bot.replies.render import FEEDBACK, clicked
from bot.requests.inbox import Incoming
from bot.triage.digest_clicks import DigestClick, digest_click

SPOKEN = frozenset({None, "", "file_share", "thread_broadcast"})
"""Subtypes of messages that people write."""

SLACKBOT = "USLACKBOT"
MOST_TYPED = 100
"""Characters of a field of our Home that count."""

_KEY = re.compile(r"[TE][A-Z0-9]{1,40}/[CDG][A-Z0-9]{1,40}/[0-9]{10}\.[0-9]{6}")


@dataclass(frozen=True, slots=True)
class Bot:
    """Who we are, as `auth.test` says."""

    user: str
    id: str
    """The bot id that our own messages carry (B...)."""
    team: str
    """The workspace that we are installed in; what comes without a team belongs there."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that asks nothing: only the cursor moves."""

    team: str
    channel: str
    ts: str


@dataclass(frozen=True, slots=True)
class Amended:
    """A message was edited, or deleted (no text)."""

    team: str
    channel: str
    ts: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Stopped:
    """The native Stop button was pressed."""

    team: str
    channel: str
    thread_ts: str
    user: str


@dataclass(frozen=True, slots=True)
class Opened:
    """A user opened our App Home or agent pane, or (no tab) looks at something else beside it."""

    team: str
    user: str
    channel: str
    """The direct conversation with us; empty where Slack does not name it."""
    tab: str
    """`home`, `messages`, or empty for `app_context_changed`."""
    event: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rated:
    """A feedback button was clicked."""

    key: str
    user: str
    value: str
    """`good` or `bad`."""
    channel: str
    thread_ts: str


@dataclass(frozen=True, slots=True)
class Pressed:
    """Another button of ours was clicked, or a field of our Home filled in."""

    team: str
    user: str
    action: str
    typed: str = ""
    """What the field holds."""


@dataclass(frozen=True, slots=True)
class Acted:
    """A button below a thread of a digest was clicked."""

    click: DigestClick
    blocks: tuple[Mapping[str, Any], ...]
    """Of the message that it stands in."""
    text: str
    """What that message shows where blocks are not."""


@dataclass(frozen=True, slots=True)
class Commanded:
    """The slash command was used."""

    user: str
    word: str
    """The first word behind it, in lower case."""


Shown = Rated | Pressed | Acted | Clicked | Submitted
Heard = Incoming | Seen | Amended | Gone | Stopped | Opened | Commanded | Shown


def heard(body: Any, bot: Bot) -> Heard | None:
    """What a payload of Slack's says; None = nothing that concerns us.

    A reply in a thread comes back as a `follow_up`; whether the bot was asked there before is for
    the caller to find out.
    """
    if not isinstance(body, Mapping):
        return None
    if "command" in body:
        return _command(body)
    if body.get("type") == "block_actions":
        return card_click(body) or _acted(body) or _click(body, bot)
    if body.get("type") == "view_submission":
        return submission(body)
    event = body.get("event")
    if body.get("type") != "event_callback" or not isinstance(event, Mapping):
        return None
    team = team_of(body, event, bot)
    match event.get("type"):
        case "message":
            return _message(event, team, bot)
        case "app_mention":
            return asked(event, team, bot, mentioned=True)
        case "agent_session_stopped":
            return _stop(event, team)
        case "app_home_opened" | "app_context_changed":
            return _opened(event, team)
    return gone(event)


def team_of(body: Mapping[str, Any], event: Mapping[str, Any], bot: Bot) -> str:
    """The workspace for which Slack sent an event.

    In a channel shared with another company `team_id` may be theirs: `authorizations` comes first
    (docs.slack.dev/apis/events-api, "Event type structure").
    """
    granted = first(body.get("authorizations"))
    said = (
        granted.get("team_id"),
        body.get("context_team_id"),
        body.get("team_id"),
        event.get("team"),
    )
    return next((name for name in map(id_of, said) if name), bot.team)


def asked(
    event: Mapping[str, Any], team: str, bot: Bot, *, mentioned: bool = False, late: bool = False
) -> Incoming | Seen | None:
    """A message as a request, or as one that asks nothing; None for what is no message at all.

    `mentioned`: Slack says so. `late`: it was read from the history, where an edit says nothing of
    what the message asked at first.
    """
    channel, ts = id_of(event.get("channel"), "CDG"), ts_of(event.get("ts"))
    if not channel or not ts:
        return None
    seen = Seen(team, channel, ts)
    user, text = id_of(event.get("user"), "UW"), event.get("text")
    told = _of_a_person(event, user, bot) and isinstance(text, str | None)
    if not told or (event.get("edited") and not late):
        return seen
    thread_ts = ts_of(event.get("thread_ts")) or ts
    if channel.startswith("D") or event.get("channel_type") == "im":
        kind = "dm" if _says_something(event) else ""
    elif mentioned or mentions(text or "", bot):
        kind = "mention"
    else:
        kind = "follow_up" if thread_ts != ts and _says_something(event) else ""
    return Incoming(team, channel, ts, thread_ts, user, kind, storable(event)) if kind else seen


def mentions(text: str, bot: Bot) -> bool:
    """Whether Slack's own markup for a mention of us is in the text; a look-alike is none."""
    return re.search(rf"<@{re.escape(bot.user)}(\|[^<>]*)?>", text) is not None


def _of_a_person(event: Mapping[str, Any], user: str, bot: Bot) -> bool:
    subtype = event.get("subtype")
    return (
        isinstance(subtype, str | None)
        and subtype in SPOKEN
        and user not in ("", bot.user, SLACKBOT)
        and not any(event.get(name) for name in ("bot_id", "bot_profile", "hidden"))
    )


def _says_something(event: Mapping[str, Any]) -> bool:
    """Whether there is more to a message than spaces and characters that nobody sees."""
    text = event.get("text")
    shown = any(
        not (c.isspace() or unicodedata.category(c) in ("Cf", "Cc"))
        for c in (text if isinstance(text, str) else "")
    )
    return shown or any(event.get(name) for name in ("files", "attachments"))


def _message(event: Mapping[str, Any], team: str, bot: Bot) -> Heard | None:
    subtype = event.get("subtype")
    if subtype not in ("message_changed", "message_deleted"):
        return asked(event, team, bot)
    channel = id_of(event.get("channel"), "CDG")
    message = mapping(event.get("message")) if subtype == "message_changed" else {}
    told = message or mapping(event.get("previous_message"))
    ts = ts_of(told.get("ts")) or ts_of(event.get("deleted_ts"))
    # A reply that is being written is changed once a second: that is not worth a look-up.
    if not channel or not ts or told.get("user") == bot.user or told.get("bot_id") == bot.id:
        return None
    if subtype == "message_deleted" or message.get("subtype") == "tombstone":
        return Amended(team, channel, ts, None)
    if told.get("bot_id"):
        return None  # other bots write answers, too; and what one of them asks is not answered
    text = message.get("text")
    if not isinstance(text, str) or not message.get("edited"):
        return None  # an unfurled link or a new reply, which changes nothing that was asked
    return Amended(team, channel, ts, storable(text))


def _stop(event: Mapping[str, Any], team: str) -> Stopped | None:
    channel = id_of(event.get("channel") or event.get("channel_id"), "CDG")
    thread_ts, user = ts_of(event.get("thread_ts")), id_of(event.get("user"), "UW")
    return Stopped(team, channel, thread_ts, user) if channel and thread_ts and user else None


def _opened(event: Mapping[str, Any], team: str) -> Opened | None:
    user, tab = id_of(event.get("user"), "UW"), event.get("tab")
    if not user or (event.get("type") == "app_home_opened" and tab not in ("home", "messages")):
        return None
    channel = id_of(event.get("channel"), "D")
    return Opened(team, user, channel, tab if isinstance(tab, str) else "", storable(event))


def _acted(body: Mapping[str, Any]) -> Acted | None:
    """A click on a digest, in a message that is told with it."""
    click, message = digest_click(body), mapping(body.get("message"))
    blocks, text = message.get("blocks"), message.get("text")
    if click is None or not click.ts or not click.channel or not isinstance(blocks, list):
        return None
    whole = tuple(block for block in blocks if isinstance(block, Mapping))
    return Acted(click, whole, text if isinstance(text, str) else "")


def _click(body: Mapping[str, Any], bot: Bot) -> Rated | Pressed | None:
    """A click on a button; the value of one for feedback names the request."""
    action, user = first(body.get("actions")), id_of(mapping(body.get("user")).get("id"), "UW")
    name, told = action.get("action_id"), action.get("value")
    if not isinstance(name, str) or not user:
        return None
    if name != FEEDBACK:
        is_typed = action.get("type") == "plain_text_input" and isinstance(told, str)
        typed = str(told)[:MOST_TYPED] if is_typed else ""
        return Pressed(id_of(mapping(body.get("team")).get("id")) or bot.team, user, name, typed)
    key, value = (clicked(told) if isinstance(told, str) else None) or ("", "")
    if not _KEY.fullmatch(key):
        return None
    shown = mapping(body.get("container"))
    channel = id_of(mapping(body.get("channel")).get("id") or shown.get("channel_id"), "CDG")
    thread = mapping(body.get("message")).get("thread_ts") or shown.get("thread_ts")
    return Rated(key, user, value, channel, ts_of(thread))


def _command(body: Mapping[str, Any]) -> Commanded | None:
    user, text = id_of(body.get("user_id"), "UW"), body.get("text")
    words = text.split() if isinstance(text, str) else []
    return Commanded(user, words[0].lower()[:40] if words else "") if user else None
