"""Decide from its style whether a person sees a text (CSS 2.2, Color 4, Fonts 4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from scopes.extraction.boxes import FAINTEST, SMALLEST, hides, length, opacity, valid
from scopes.extraction.colours import BLACK, WHITE, Colour, colour, colours_in, near, over
from scopes.extraction.stylesheet import MAX_DECLARATIONS

_SIZES = {
    "xx-small": 9.0, "x-small": 10.0, "small": 13.0, "medium": 16.0, "large": 18.0,
    "x-large": 24.0, "xx-large": 32.0, "xxx-large": 48.0,
}  # fmt: skip
_VARIABLE = re.compile(r"var\(\s*(--[^\s,()]+)\s*(?:,([^()]*))?\)")
_PAIRS = {"margin": "margin-{}", "inset": "{}"}
_SIDES = ("top", "right", "bottom", "left")


@dataclass(slots=True, eq=False)
class Style:
    """The style that an element passes on to its children."""

    size: float = 16.0
    """Of the font, in pixels."""
    ink: Colour = BLACK
    fill: Colour | None = None
    """`-webkit-text-fill-color`, which goes before the colour."""
    ground: tuple[Colour, ...] = (WHITE,)
    """Opaque colours that it may lie on: several for a gradient."""
    link: Colour = (0, 0, 238, 1)
    visible: bool = True
    indent: str = "0"
    """Of the first line, as it was declared."""
    opacity: float = 1.0
    gone: bool = False
    """Whether it or something round it is not shown, whatever its colours."""
    keeps_breaks: bool = False
    """Whether line breaks in the source are shown."""
    block: bool = False
    """Whether it begins a line by its style."""
    variables: Mapping[str, str] = field(default_factory=dict)
    box: dict[str, str] = field(default_factory=dict)
    """Properties of this element alone."""
    _inherited: Style | None = field(default=None, init=False)
    _shown: bool | None = field(default=None, init=False)

    @property
    def inherited(self) -> Style:
        """That of what is in it and declares nothing; it is worked out once."""
        if self._inherited is None:
            self._inherited = styled(self, ())
            self._inherited._inherited = self._inherited
        return self._inherited

    @property
    def shown(self) -> bool:
        """Return whether text in it can be seen; worked out once, when the style is complete."""
        if self._shown is None:
            self._shown = not self.boxed_away and not self.inkless
        return self._shown

    @property
    def inkless(self) -> bool:
        """Return whether its colour is that of what it lies on."""
        ink = self.fill or self.ink
        return ink[3] < FAINTEST or any(near(over(ink, ground), ground) for ground in self.ground)

    @property
    def boxed_away(self) -> bool:
        """Return whether anything but a colour hides it."""
        return self.gone or not self.visible or self.size <= SMALLEST


def styled(parent: Style, declared: Iterable[tuple[str, str]]) -> Style:
    """Return the style of an element in `parent`, its declarations given with the weakest first."""
    style = replace(parent, box={}, block=False)
    declared = [*declared]
    own = {name: value[:200] for name, value in declared if name.startswith("--")}
    if own:
        style.variables = {**parent.variables, **own}
    if len(declared) > MAX_DECLARATIONS or len(style.variables) > MAX_DECLARATIONS:
        style.gone = True  # nobody writes that many: what is not looked at is not shown
        return style
    for name, value in declared:
        if "var(" in value:
            value = _resolved(value, style.variables)
        setter = _SETTERS.get(name)
        if setter is not None:
            setter(style, parent, value)
        elif name in _PAIRS:
            _spread(style, name, value)
        elif valid(name, value):
            style.box[name] = value
    if "text" in (style.box.get("background-clip"), style.box.get("-webkit-background-clip")):
        _ink_with_ground(style, parent)
    style.box.setdefault("text-indent", style.indent)
    style.opacity = parent.opacity * opacity(style.box)
    style.block = style.box.get("display", "").startswith(
        ("block", "flex", "grid", "table", "list")
    )
    style.gone = parent.gone or style.opacity < FAINTEST or hides(style.box, style.size)
    return style


def _resolved(value: str, variables: Mapping[str, str]) -> str:
    for _ in range(4):
        value = _VARIABLE.sub(lambda m: variables.get(m[1], m[2] or ""), value)[:2000]
    return value.strip()


def _spread(style: Style, name: str, value: str) -> None:
    parts = value.split()[:4]
    parts += {1: parts * 3, 2: parts, 3: parts[1:2]}.get(len(parts), [])
    for side, part in zip(_SIDES, parts, strict=False):
        style.box[_PAIRS[name].format(side)] = part


def _ink_with_ground(style: Style, parent: Style) -> None:
    """Letters cut out of the background, as in headings with a gradient."""
    lost = (top for top in style.ground if any(near(top, below) for below in parent.ground))
    style.ink, style.fill = next(lost, style.ground[0]), None
    style.ground = parent.ground


def _set_size(style: Style, parent: Style, value: str) -> None:
    known = {"smaller": parent.size / 1.2, "larger": parent.size * 1.2, **_SIZES}
    known |= {"inherit": parent.size, "unset": parent.size, "initial": 16.0}
    size = known[value] if value in known else length(value, parent.size, parent.size)
    if size is None or size < 0:
        return
    # without a unit it counts only in pages without a doctype: then it may make text smaller
    style.size = min(style.size, size) if value[-1:].isdigit() else size


def _set_font(style: Style, parent: Style, value: str) -> None:
    for token in value.split():
        size = token.partition("/")[0]
        if size in _SIZES or (re.match(r"[\d.]", size) and not re.fullmatch(r"[1-9]\d\d", size)):
            _set_size(style, parent, size)
            return


def _set_ink(style: Style, parent: Style, value: str) -> None:
    if value in ("inherit", "unset", "currentcolor"):
        style.ink = parent.ink
    else:
        style.ink = BLACK if value == "initial" else colour(value) or style.ink


def _set_fill(style: Style, parent: Style, value: str) -> None:
    style.fill = None if value == "currentcolor" else colour(value) or style.fill


def _set_ground(style: Style, parent: Style, value: str) -> None:
    found = colours_in(value)
    if "currentcolor" in value:
        found = (*found, style.ink)
    if found:
        laid = (over(top, below) for top in found[:8] for below in parent.ground)
        style.ground = tuple(dict.fromkeys(laid))[:16]
    elif style.ground != parent.ground:  # an image, a reset or nonsense: it may be either
        style.ground = tuple(dict.fromkeys((*style.ground, *parent.ground)))[:16]


def _set_image(style: Style, parent: Style, value: str) -> None:
    if "gradient" in value:
        _set_ground(style, style, value)


def _set_visibility(style: Style, parent: Style, value: str) -> None:
    if value in ("visible", "initial", "hidden", "collapse"):
        style.visible = value in ("visible", "initial")
    elif value in ("inherit", "unset"):
        style.visible = parent.visible


def _set_indent(style: Style, parent: Style, value: str) -> None:
    indent = (value.split() or [""])[0]
    style.indent = indent if valid("text-indent", indent) else style.indent


def _set_spaces(style: Style, parent: Style, value: str) -> None:
    style.keeps_breaks = value.startswith(("pre", "break-spaces"))


def _set_link(style: Style, parent: Style, value: str) -> None:
    style.link = colour(value) or style.link


Setter = Callable[[Style, Style, str], None]
_SETTERS: Mapping[str, Setter] = {
    "font-size": _set_size,
    "font": _set_font,
    "color": _set_ink,
    "-webkit-text-fill-color": _set_fill,
    "background": _set_ground,
    "background-color": _set_ground,
    "background-image": _set_image,
    "visibility": _set_visibility,
    "text-indent": _set_indent,
    "white-space": _set_spaces,
    "link": _set_link,
}
