"""Checks the elements of blocks: buttons, menus, images, inputs."""

from collections.abc import Callable, Mapping
from typing import Any

from bot.local.slack.records import Json
from bot.local.slack.shapes import Misfit, choice, items, string, text

_SELECTS = ("static_select", "external_select", "users_select", "conversations_select")
_OTHERS = (
    "channels_select",
    "checkboxes",
    "datepicker",
    "datetimepicker",
    "email_text_input",
    "number_input",
    "overflow",
    "plain_text_input",
    "radio_buttons",
    "rich_text_input",
    "timepicker",
    "url_text_input",
    "workflow_button",
)
_PLAIN = ("plain_text",)


def check_element(element: Any, at: str) -> None:
    """Misfit where Slack would refuse the element of a block."""
    if not isinstance(element, dict):
        raise Misfit(at, "must provide an object")
    kind = element.get("type")
    if not isinstance(kind, str) or kind not in _ELEMENTS:
        raise Misfit(f"{at}/type", f"unsupported type: {kind}")
    string(element, "action_id", at, 255, required=False)
    _ELEMENTS[kind](element, at)


def _button(element: Json, at: str) -> None:
    text(element, "text", at, 75, _PLAIN)
    string(element, "url", at, 3000, required=False)
    string(element, "value", at, 2000, required=False)
    if element.get("style") is not None:
        choice(element, "style", at, ("primary", "danger"))


def _feedback(element: Json, at: str) -> None:
    for key in ("positive_button", "negative_button"):
        text(element.get(key), "text", f"{at}/{key}", 75, _PLAIN)
        string(element[key], "value", f"{at}/{key}", 2000)


def _icon_button(element: Json, at: str) -> None:
    choice(element, "icon", at, ("trash",))
    text(element, "text", at, 75, _PLAIN)
    string(element, "value", at, 2000, required=False)


def _image(element: Json, at: str) -> None:
    if not element.get("slack_file"):
        string(element, "image_url", at, 3000)
    string(element, "alt_text", at, 2000)


def _menu(element: Json, at: str) -> None:
    text(element, "placeholder", at, 150, _PLAIN, required=False)
    if element.get("type") in ("static_select", "multi_static_select", "overflow"):
        most = 5 if element["type"] == "overflow" else 100
        grouped = element.get("option_groups") is not None
        for number, option in enumerate(items(element, "options", at, most, required=not grouped)):
            text(option, "text", f"{at}/options/{number}", 75)
            string(option, "value", f"{at}/options/{number}", 150)


_ELEMENTS: Mapping[str, Callable[[Json, str], None]] = {
    "button": _button,
    "feedback_buttons": _feedback,
    "icon_button": _icon_button,
    "image": _image,
    **{kind: _menu for name in _SELECTS for kind in (name, f"multi_{name}")},
    **dict.fromkeys(_OTHERS, _menu),
}
