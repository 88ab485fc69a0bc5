"""Decide from its style whether a person sees a text (CSS 2.2, Color 4, Fonts 4).

Colours are blended and compared as the eye does; boxes may leave no room for a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import tinycss2
from tinycss2 import color4

UNREADABLE_SIZE_PX = 2.0  # pixels: nobody reads text of this size
FAR_OFF = 300.0  # pixels to the left or above: beyond any margin that designers use
FAR_BEYOND_PX = 5_000.0  # pixels to the right or below
MIN_OPACITY = 0.1  # opacity

_UNITS = {
    "": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "q": 0.945,
    "rem": 16.0, "vw": 12.0, "vh": 8.0, "vmin": 8.0, "vmax": 12.0, "svh": 8.0, "dvh": 8.0,
    "lh": 16.0, "rlh": 16.0, "deg": 1.0, "turn": 360.0, "rad": 57.3, "grad": 0.9,
}  # fmt: skip
_NUMBER = re.compile(r"([-+]?(?:\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(?:e[-+]?\d{1,2})?)(%|[a-z]*)")
_FUNCTION = re.compile(r"([a-z0-9-]+)\(([^()]*)\)")

_BOX_SIZES = frozenset(
    "height width max-height max-width block-size inline-size max-block-size max-inline-size "
    "line-height".split()
)
_OFFSETS = frozenset({"top", "right", "bottom", "left"})
_MARGINS = frozenset(
    "margin-top margin-left margin-bottom margin-right padding-left padding-top text-indent "
    "margin-inline-start margin-block-start".split()
)
_PROPERTY_KEYWORDS = {
    "display": "none block inline inline-block flex inline-flex grid inline-grid table table-row "
    "table-cell table-row-group inline-table list-item contents flow-root initial unset inherit",
    "position": "static relative absolute fixed sticky",
    "overflow": "visible hidden clip scroll auto",
    "overflow-x": "visible hidden clip scroll auto",
    "overflow-y": "visible hidden clip scroll auto",
    "content-visibility": "visible auto hidden",
    "mso-hide": "all none screen",
    "unicode-bidi": "normal embed isolate bidi-override isolate-override plaintext",
}
_UNCHECKED_PROPERTIES = frozenset(
    "filter transform scale translate zoom clip clip-path background-clip -webkit-background-clip"
    "".split()
)


@lru_cache(maxsize=4000)
def length(value: str, em: float, whole: float = 1_000.0) -> float | None:
    """Return a length in pixels, `whole` for 100 %; a rough bound for `calc()`; None if invalid."""
    found = [_pixels(m[1], m[2], em, whole) for m in _NUMBER.finditer(value)]
    lengths = [each for each in found if each is not None]
    if not lengths or len(lengths) < len(found):
        return None
    if "(" not in value:
        return lengths[0] if _NUMBER.fullmatch(value) else None
    if "*" in value:
        product = 1.0
        for each in lengths:
            product *= each
        return product
    return min(lengths) if value.startswith("min(") else max(lengths)


def _pixels(number: str, unit: str, em: float, whole: float) -> float | None:
    value = float(number)
    if unit == "%":
        return value * whole / 100
    if unit in ("em", "ex", "ch", "cap", "ic"):
        return value * em * (1 if unit in ("em", "ic") else 0.5)
    return value * _UNITS[unit] if unit in _UNITS else None


def valid(name: str, value: str) -> bool:
    """Return whether a browser accepts a declaration of a property of boxes."""
    if name in _PROPERTY_KEYWORDS:
        return bool(value) and set(value.split()) <= set(_PROPERTY_KEYWORDS[name].split())
    if name in _BOX_SIZES or name in _OFFSETS or name in _MARGINS:
        return value in ("auto", "none", "normal") or length(value, 16) is not None
    if name == "opacity":
        return length(value, 16, 1) is not None
    return name in _UNCHECKED_PROPERTIES


def opacity(box: Mapping[str, str]) -> float:
    """Return the opacity of a box, 0 to 1."""
    filters = _FUNCTION.findall(box.get("filter", ""))
    values = [box.get("opacity", "1"), *(i.strip() for name, i in filters if name == "opacity")]
    share = 1.0
    for value in values:
        part = length(value, 16, 1)
        share *= 1.0 if part is None else max(0.0, min(1.0, part))
    return share


def hides(box: Mapping[str, str], em: float) -> bool:
    """Return whether a box hides all its content; `em` is its font's size."""
    return (
        box.get("display") == "none"
        or box.get("content-visibility") == "hidden"
        or box.get("mso-hide") == "all"
        or "override" in box.get("unicode-bidi", "")
        or _is_closed(box, em)
        or _off_screen(box, em)
        or _is_clipped(box, em)
        or _is_transformed(box, em)
    )


def _is_closed(box: Mapping[str, str], em: float) -> bool:
    overflow = f"{box.get('overflow', '')} {box.get('overflow-x', '')} {box.get('overflow-y', '')}"
    if not re.search("hidden|clip|scroll|auto", overflow):
        return False
    return any(
        size is not None and size <= UNREADABLE_SIZE_PX
        for name in _BOX_SIZES & box.keys()
        if (size := length(box[name], em)) is not None
        and (name != "line-height" or box[name][-1:].isalpha() or size <= 0.1)
    )


def _off_screen(box: Mapping[str, str], em: float) -> bool:
    names = _MARGINS & box.keys()
    if box.get("position", "static") != "static":
        names |= _OFFSETS & box.keys()
    shifts = (length(box[name], em) for name in names)
    return any(shift is not None and _outside(shift) for shift in shifts)


def _outside(shift: float) -> bool:
    return shift <= -FAR_OFF or shift >= FAR_BEYOND_PX


def _numbers(text: str, em: float) -> list[float]:
    found = (_pixels(m[1], m[2], em, 1_000) for m in _NUMBER.finditer(text))
    return [each for each in found if each is not None]


def _is_clipped(box: Mapping[str, str], em: float) -> bool:
    for name, inside in _FUNCTION.findall(box.get("clip", "")):
        sides = _numbers(inside.replace("auto", "9999"), em)
        if name == "rect" and len(sides) == 4:
            top, right, bottom, left = sides
            if bottom - top <= UNREADABLE_SIZE_PX or right - left <= UNREADABLE_SIZE_PX:
                return True
    for name, inside in _FUNCTION.findall(box.get("clip-path", "")):
        numbers = _numbers(inside.partition("round")[0], em)
        if name == "inset" and numbers and max(numbers) >= 490:
            return True
        if name in ("circle", "ellipse") and numbers and numbers[0] <= UNREADABLE_SIZE_PX:
            return True
        if name == "polygon" and numbers:
            wide, high = numbers[::2], numbers[1::2] or [0.0]
            if (
                max(wide) - min(wide) <= UNREADABLE_SIZE_PX
                or max(high) - min(high) <= UNREADABLE_SIZE_PX
            ):
                return True
    return False


def _is_transformed(box: Mapping[str, str], em: float) -> bool:
    functions = [*_FUNCTION.findall(box.get("transform", ""))]
    functions += [(name, box[name]) for name in ("scale", "translate", "zoom") if name in box]
    for name, inside in functions:
        numbers = _numbers(inside, em)
        if "%" in inside:  # of its own size: designers centre and slide by up to all of it
            numbers = [each / 4 for each in numbers]
        if name.startswith(("scale", "zoom")) and any(abs(each) < 0.05 for each in numbers):
            return True
        if name.startswith("translate") and any(_outside(each) for each in numbers):
            return True
        if name in ("rotatex", "rotatey") and any(abs(each) % 180 == 90 for each in numbers):
            return True
    return False


Colour = tuple[float, float, float, float]
"""Red, green and blue of 0 to 255, and alpha of 0 to 1."""

BLACK: Colour = (0, 0, 0, 1)
WHITE: Colour = (255, 255, 255, 1)

MIN_CONTRAST = 1.3  # WCAG 2 asks for 4.5; #ddd on white has 1.36 and is readable
MIN_DIFFERENCE = 48  # in one channel: yellow on white has almost no contrast, but is visible
MAX_CHARS = 2_000

SYSTEM: dict[str, Colour] = {
    "canvas": WHITE, "canvastext": BLACK, "window": WHITE, "windowtext": BLACK,
    "buttonface": (240, 240, 240, 1), "buttontext": BLACK, "linktext": (0, 0, 238, 1),
    "highlight": (51, 144, 255, 1), "highlighttext": WHITE,
}  # fmt: skip


@lru_cache(maxsize=2000)
def colours_in(value: str) -> tuple[Colour, ...]:
    """Return every colour that a CSS value names, in its order, such as the stops of a gradient."""
    return tuple(_find_colours(tinycss2.parse_component_value_list(value[:MAX_CHARS], True)))


def colour(value: str) -> Colour | None:
    """Return the colour of a CSS value; the first one of a mix; None if it is no colour."""
    if tinycss2.parse_one_component_value(value[:MAX_CHARS], True).type == "error":
        return None
    return next(iter(colours_in(value)), None)


def _find_colours(tokens: Sequence[Any]) -> Iterator[Colour]:
    for token in tokens:
        found = color4.parse_color(token) if token.type in ("ident", "hash", "function") else None
        if isinstance(found, color4.Color):
            yield _as_rgb(found)
        elif token.type == "ident" and token.lower_value in SYSTEM:
            yield SYSTEM[token.lower_value]
        elif token.type == "function":
            yield from _find_colours(token.arguments)


def _as_rgb(found: Any) -> Colour:
    try:
        red, green, blue = found.to("srgb").coordinates
    except NotImplementedError:
        # For lab and similar ones the lightness is enough: hardly any contrast exists without it.
        red, green, blue = found.coordinates
        if found.space in ("lab", "lch", "oklab", "oklch"):
            red = green = blue = red / (1 if found.space.startswith("ok") else 100)
    red, green, blue = (255 * max(0.0, min(1.0, each or 0.0)) for each in (red, green, blue))
    return (red, green, blue, found.alpha or 0.0)


def over(top: Colour, ground: Colour) -> Colour:
    """Return the visible colour of `top` on an opaque `ground`."""
    alpha = top[3]
    red, green, blue = (t * alpha + g * (1 - alpha) for t, g in zip(top[:3], ground, strict=False))
    return (red, green, blue, 1)


def near(one: Colour, two: Colour) -> bool:
    """Return whether text of one opaque colour on the other is unreadable."""
    if max(abs(a - b) for a, b in zip(one[:3], two[:3], strict=True)) > MIN_DIFFERENCE:
        return False
    dark, light = sorted((_luminance(one), _luminance(two)))
    return (light + 0.05) / (dark + 0.05) < MIN_CONTRAST


@lru_cache(maxsize=2000)
def _luminance(of: Colour) -> float:
    """Return the relative luminance of WCAG 2."""
    linear = [c / 3294.6 if c <= 10.31 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in of[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


_SIZES = {
    "xx-small": 9.0, "x-small": 10.0, "small": 13.0, "medium": 16.0, "large": 18.0,
    "x-large": 24.0, "xx-large": 32.0, "xxx-large": 48.0, "initial": 16.0,
}  # fmt: skip
_VARIABLE = re.compile(r"var\(\s*(--[^\s,()]+)\s*(?:,([^()]*))?\)")
_SIZE_OF_FONT = re.compile(rf"{'|'.join(_SIZES)}|(?![1-9]\d\d\Z)[\d.].*")
"""A size in `font`, where 100 to 900 are weights."""
_VISIBILITY = {"visible": True, "initial": True, "hidden": False, "collapse": False}
_SIDES = {
    "margin": ("margin-top", "margin-right", "margin-bottom", "margin-left"),
    "inset": ("top", "right", "bottom", "left"),
}


@dataclass(eq=False)
class Style:
    """The style that an element passes on to its children."""

    size: float = 16.0
    """Font size in pixels."""
    ink: Colour = BLACK
    fill: Colour | None = None
    """`-webkit-text-fill-color`, which overrides the colour."""
    ground: tuple[Colour, ...] = (WHITE,)
    """Opaque background colours: several for a gradient."""
    link: Colour = (0, 0, 238, 1)
    visible: bool = True
    indent: str = "0"
    """Declared indent of the first line."""
    opacity: float = 1.0
    hidden: bool = False
    """Whether it or an element around it is not shown, with any colours."""
    keeps_breaks: bool = False
    """Whether line breaks in the source are shown."""
    block: bool = False
    """Whether its style makes it begin a line."""
    variables: Mapping[str, str] = field(default_factory=dict)
    box: dict[str, str] = field(default_factory=dict)
    """Properties of this element alone."""

    @cached_property
    def inherited(self) -> Style:
        """Return the style of children that declare nothing."""
        child = compute_style(self, ())
        child.inherited = child
        return child

    @cached_property
    def shown(self) -> bool:
        """Return whether text in it is visible; call it when the style is complete."""
        return not self.boxed_away and not self.inkless

    @property
    def inkless(self) -> bool:
        """Return whether its colour is that of its background."""
        ink = self.fill or self.ink
        return ink[3] < MIN_OPACITY or any(
            near(over(ink, ground), ground) for ground in self.ground
        )

    @property
    def boxed_away(self) -> bool:
        """Return whether anything except a colour hides it."""
        return self.hidden or not self.visible or self.size <= UNREADABLE_SIZE_PX

    def declare(self, parent: Style, name: str, value: str) -> None:
        """Apply a declaration; an invalid one changes nothing."""
        match name:
            case "font-size":
                self._set_size(parent, value)
            case "font":
                sizes = (token.partition("/")[0] for token in value.split())
                self._set_size(parent, next(filter(_SIZE_OF_FONT.fullmatch, sizes), ""))
            case "color" | "link" | "-webkit-text-fill-color":
                self._set_ink(parent, name, value)
            case "background" | "background-color" | "background-image":
                self._set_ground(self if name == "background-image" else parent, name, value)
            case "visibility":
                values = {**_VISIBILITY, "inherit": parent.visible, "unset": parent.visible}
                self.visible = values.get(value, self.visible)
            case "text-indent":
                indent = value.partition(" ")[0]
                self.indent = indent if valid(name, indent) else self.indent
            case "white-space":
                self.keeps_breaks = value.startswith(("pre", "break-spaces"))
            case "margin" | "inset":
                parts = value.split()[:4]
                parts += {1: parts * 3, 2: parts, 3: parts[1:2]}.get(len(parts), [])
                self.box |= {_SIDES[name][n]: part for n, part in enumerate(parts)}
            case _ if valid(name, value):
                self.box[name] = value

    def _set_ink(self, parent: Style, name: str, value: str) -> None:
        if name == "link":
            self.link = colour(value) or self.link
        elif name == "-webkit-text-fill-color":
            self.fill = None if value == "currentcolor" else colour(value) or self.fill
        elif value in ("inherit", "unset", "currentcolor"):
            self.ink = parent.ink
        else:
            self.ink = BLACK if value == "initial" else colour(value) or self.ink

    def _set_size(self, parent: Style, value: str) -> None:
        sizes = {"smaller": parent.size / 1.2, "larger": parent.size * 1.2, **_SIZES}
        sizes |= {"inherit": parent.size, "unset": parent.size}
        size = sizes[value] if value in sizes else length(value, parent.size, parent.size)
        if size is not None and size >= 0:
            # without a unit it is valid only in pages without a doctype: it may make text smaller
            self.size = min(self.size, size) if value[-1:].isdigit() else size

    def _set_ground(self, below: Style, name: str, value: str) -> None:
        if name == "background-image" and "gradient" not in value:
            return
        found = colours_in(value)
        if "currentcolor" in value:
            found = (*found, self.ink)
        if found:
            laid = (over(top, ground) for top in found[:8] for ground in below.ground)
            self.ground = tuple(dict.fromkeys(laid))[:16]
        elif self.ground != below.ground:  # an image, a reset or nonsense: it may be either
            self.ground = tuple(dict.fromkeys((*self.ground, *below.ground)))[:16]


def compute_style(parent: Style, declared: Iterable[tuple[str, str]]) -> Style:
    """Return the style of an element in `parent`, from its declarations, the weakest first."""
    style = replace(parent, box={}, block=False)
    declared = [*declared]
    if own := {name: value[:200] for name, value in declared if name.startswith("--")}:
        style.variables = {**parent.variables, **own}
    for name, value in declared:
        style.declare(parent, name, _resolve(value, style.variables))
    if "text" in (style.box.get("background-clip"), style.box.get("-webkit-background-clip")):
        # letters cut out of the background, as in headings with a gradient
        lost = (top for top in style.ground if any(near(top, below) for below in parent.ground))
        style.ink, style.fill = next(lost, style.ground[0]), None
        style.ground = parent.ground
    style.box.setdefault("text-indent", style.indent)
    style.opacity = parent.opacity * opacity(style.box)
    style.block = style.box.get("display", "").startswith(
        ("block", "flex", "grid", "table", "list")
    )
    style.hidden = parent.hidden or style.opacity < MIN_OPACITY or hides(style.box, style.size)
    return style


def _resolve(value: str, variables: Mapping[str, str]) -> str:
    for _ in range(4):
        if "var(" not in value:
            return value
        value = _VARIABLE.sub(lambda m: variables.get(m[1], m[2] or ""), value)[:2000].strip()
    return value
