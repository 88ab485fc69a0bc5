"""Web API methods that show a person a view: App Home and modals.

docs.slack.dev/reference/methods/views.publish; docs.slack.dev/reference/views.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bot.local.slack.blocks import MAX_VIEW_BLOCKS, checked, refusal
from bot.local.slack.records import Json, View
from bot.local.slack.shapes import Misfit, choice, items, string, text
from bot.local.slack.state import APP_ID, BOT_ID, Call, SlackError, SlackState
from bot.local.workspace import Message

MAX_METADATA = 3000
TRIGGER_S = 3.0
"""Life of a trigger id, which comes with an interaction."""


def _publish(call: Call) -> Json:
    user = call.required("user_id")
    if user not in call.state.users:
        raise SlackError("user_not_found")
    body = _view(call, ("home",))
    old = home(call.state, user)
    _check_hash(call, old)
    return _keep(call, old.id if old else f"V0HOME{len(call.state.views)}", user, body)


def _open(call: Call) -> Json:
    user = _trigger(call)
    return _keep(call, f"V0MODAL{len(call.state.views)}", user, _view(call, ("modal",)))


def home(state: SlackState, user: str) -> View | None:
    """The App Home that a person sees."""
    views = (view for view in state.views.values() if view.body["type"] == "home")
    return next((view for view in views if view.user == user), None)


def modal(state: SlackState, user: str) -> View | None:
    """The modal that a person has open: the one opened last."""
    views = [view for view in state.views.values() if view.body["type"] == "modal"]
    return next((view for view in reversed(views) if view.user == user), None)


def new_trigger(state: SlackState, user: str) -> str:
    """A trigger id for an interaction of this person at this moment; views.open takes it once."""
    trigger = f"{len(state.triggers)}.{int(state.now() * 1000)}.local"
    state.triggers[trigger] = (user, state.now())
    return trigger


def view_json(state: SlackState, view: View) -> Json:
    """A view as Slack returns it and sends it with interactions."""
    return {
        "id": view.id,
        "team_id": state.team.id,
        "app_id": APP_ID,
        "app_installed_team_id": state.team.id,
        "bot_id": BOT_ID,
        "hash": view.hash,
        "root_view_id": view.id,
        "previous_view_id": None,
        "external_id": "",
        "callback_id": "",
        "private_metadata": "",
        "clear_on_close": False,
        "notify_on_close": False,
        "title": {"type": "plain_text", "text": "View Title", "emoji": True},
        "submit": None,
        "close": None,
        "state": {"values": {}},
        **view.body,
    }


def _keep(call: Call, id: str, user: str, body: Json) -> Json:
    number = sum(effect.method.startswith("views.") for effect in call.state.effects)
    view = View(id, user, f"{int(call.state.now())}.{number:08x}", body)
    call.state.views[id] = view
    call.did(id, Message("", user=user))
    return {"view": view_json(call.state, view)}


def _view(call: Call, kinds: tuple[str, ...]) -> Json:
    """The view that the call sends, checked."""
    value: Any = call.args.get("view")
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        raise SlackError("invalid_arguments") from None
    try:
        kind = choice(value, "type", "/view", kinds)
        if kind == "modal":
            text(value, "title", "/view", 24, ("plain_text",))
            text(value, "submit", "/view", 24, ("plain_text",), required=False)
            text(value, "close", "/view", 24, ("plain_text",), required=False)
        string(value, "private_metadata", "/view", MAX_METADATA, required=False)
        string(value, "callback_id", "/view", 255, required=False)
        blocks = items(value, "blocks", "/view", None, least=0)
    except Misfit as misfit:
        raise refusal("invalid_arguments", misfit) from None
    try:
        return {**value, "blocks": list(checked(blocks, MAX_VIEW_BLOCKS))}
    except SlackError as error:
        if error.code == "invalid_blocks":
            raise SlackError("invalid_arguments", **error.extra) from None
        raise


def _check_hash(call: Call, old: View | None) -> None:
    if (sent := call.text("hash")) and (old is None or sent != old.hash):
        raise SlackError("hash_conflict")


def _trigger(call: Call) -> str:
    """Whose trigger it is."""
    id = call.required("trigger_id")
    found = call.state.triggers.get(id)
    if found is None:
        raise SlackError("invalid_trigger_id")
    user, at = found
    if not user:
        raise SlackError("exchanged_trigger_id")
    if call.state.now() - at > TRIGGER_S:
        raise SlackError("expired_trigger_id")
    call.state.triggers[id] = ("", at)
    return user


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "views.publish": _publish,
    "views.open": _open,
}
