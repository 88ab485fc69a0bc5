"""Web API methods that show a person a view: App Home and modals.

docs.slack.dev/reference/methods/views.publish; docs.slack.dev/reference/views.
"""

from collections.abc import Callable, Iterator, Mapping

from bot.local.slack.json import number_blocks
from bot.local.slack.records import Json, View
from bot.local.slack.state import Call, SlackError, SlackState


def _publish(call: Call) -> Json:
    user = call.require("user_id")
    if user not in call.state.users:
        raise SlackError("user_not_found")
    old = home(call.state, user)
    return _keep(call, old.id if old else f"V0HOME{len(call.state.views)}", user, _view(call))


def _open(call: Call) -> Json:
    user, at = call.state.triggers[call.require("trigger_id")]
    call.state.triggers[call.text("trigger_id")] = ("", at)
    return _keep(call, f"V0MODAL{len(call.state.views)}", user, _view(call))


def home(state: SlackState, user: str) -> View | None:
    """Return the App Home that a person sees."""
    return next(_shown(state, user, "home"), None)


def modal(state: SlackState, user: str) -> View | None:
    """Return the modal that a person opened last."""
    return next(_shown(state, user, "modal"), None)


def _shown(state: SlackState, user: str, kind: str) -> Iterator[View]:
    """Yield the views of a kind that a person sees, the last one first."""
    views = reversed(state.views.values())
    return (view for view in views if view.user == user and view.body["type"] == kind)


def new_trigger(state: SlackState, user: str) -> str:
    """Return a trigger id for an interaction of this person; views.open accepts it once."""
    trigger = f"{len(state.triggers)}.{int(state.now() * 1000)}.local"
    state.triggers[trigger] = (user, state.now())
    return trigger


def view_json(state: SlackState, view: View) -> Json:
    """Return a view in the form of Slack's answers and interactions."""
    return {
        "id": view.id,
        "team_id": state.team.id,
        "app_installed_team_id": state.team.id,
        "callback_id": "",
        "private_metadata": "",
        "state": {"values": {}},
        **view.body,
    }


def _keep(call: Call, id: str, user: str, body: Json) -> Json:
    view = call.state.views[id] = View(id, user, body)
    return {"view": view_json(call.state, view)}


def _view(call: Call) -> Json:
    """Return the view that the call sends."""
    view = call.value("view")
    return {**view, "blocks": list(number_blocks(view["blocks"]))}


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "views.publish": _publish,
    "views.open": _open,
}
