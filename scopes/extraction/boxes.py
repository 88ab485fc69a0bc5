"""Lengths of CSS, and boxes that show nothing of what is in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

SMALLEST = 2.0  # pixels: what is no larger than this is not read
FAR_OFF = 300.0  # pixels to the left or above: beyond any margin that designers use
BEYOND = 5_000.0  # pixels to the right or below
FAINTEST = 0.1  # opacity

_UNITS = {
    "": 1.0, "px": 1.0, "pt": 4 / 3, "pc": 16.0, "in": 96.0, "cm": 37.8, "mm": 3.78, "q": 0.945,
    "rem": 16.0, "vw": 12.0, "vh": 8.0, "vmin": 8.0, "vmax": 12.0, "svh": 8.0, "dvh": 8.0,
    "lh": 16.0, "rlh": 16.0, "deg": 1.0, "turn": 360.0, "rad": 57.3, "grad": 0.9,
}  # fmt: skip
_NUMBER = re.compile(r"([-+]?(?:\d{1,12}(?:\.\d{0,9})?|\.\d{1,9})(?:e[-+]?\d{1,2})?)(%|[a-z]*)")
_FUNCTION = re.compile(r"([a-z0-9-]+)\(([^()]*)\)")

_SIZES = frozenset(
    "height width max-height max-width block-size inline-size max-block-size max-inline-size "
    "line-height".split()
)
_OFFSETS = frozenset({"top", "right", "bottom", "left"})
_MARGINS = frozenset(
    "margin-top margin-left margin-bottom margin-right padding-left padding-top text-indent "
    "margin-inline-start margin-block-start".split()
)
_WORDS = {
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
_FREE = frozenset(
    "filter transform scale translate zoom clip clip-path background-clip -webkit-background-clip"
    "".split()
)


@lru_cache(maxsize=4000)
def length(value: str, em: float, whole: float = 1_000.0) -> float | None:
    """Pixels of a length, `whole` for 100 %; of a `calc()` a rough bound; None if it is none."""
    found = [_pixels(m[1], m[2], em, whole) for m in _NUMBER.finditer(value)]
    known = [each for each in found if each is not None]
    if not known or len(known) < len(found):
        return None
    if "(" not in value:
        return known[0] if _NUMBER.fullmatch(value) else None
    if "*" in value:
        product = 1.0
        for each in known:
            product *= each
        return product
    return min(known) if value.startswith("min(") else max(known)


def _pixels(number: str, unit: str, em: float, whole: float) -> float | None:
    value = float(number)
    if unit == "%":
        return value * whole / 100
    if unit in ("em", "ex", "ch", "cap", "ic"):
        return value * em * (1 if unit in ("em", "ic") else 0.5)
    return value * _UNITS[unit] if unit in _UNITS else None


def valid(name: str, value: str) -> bool:
    """Return whether a declaration of a property of boxes counts.

    A browser keeps the one before else.
    """
    if name in _WORDS:
        return bool(value) and set(value.split()) <= set(_WORDS[name].split())
    if name in _SIZES or name in _OFFSETS or name in _MARGINS:
        return value in ("auto", "none", "normal") or length(value, 16) is not None
    if name == "opacity":
        return length(value, 16, 1) is not None
    return name in _FREE


def opacity(box: Mapping[str, str]) -> float:
    """Return how much of a box shows, 0 to 1."""
    if "opacity" not in box and "filter" not in box:
        return 1.0
    share = length(box.get("opacity", "1"), 16, 1)
    share = 1.0 if share is None else max(0.0, min(1.0, share))
    for name, inside in _FUNCTION.findall(box.get("filter", "")):
        if name == "opacity":
            part = length(inside.strip(), 16, 1)
            share *= 1.0 if part is None else max(0.0, min(1.0, part))
    return share


def hides(box: Mapping[str, str], em: float) -> bool:
    """Return whether the box of an element shows nothing of what is in it.

    `em` is its font's size.
    """
    return (
        box.get("display") == "none"
        or box.get("content-visibility") == "hidden"
        or box.get("mso-hide") == "all"
        or "override" in box.get("unicode-bidi", "")
        or _closed(box, em)
        or _off_screen(box, em)
        or _clipped(box, em)
        or _transformed(box, em)
    )


def _closed(box: Mapping[str, str], em: float) -> bool:
    overflow = f"{box.get('overflow', '')} {box.get('overflow-x', '')} {box.get('overflow-y', '')}"
    if not re.search("hidden|clip|scroll|auto", overflow):
        return False
    return any(
        size is not None and size <= SMALLEST
        for name in _SIZES & box.keys()
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
    return shift <= -FAR_OFF or shift >= BEYOND


def _numbers(text: str, em: float) -> list[float]:
    found = (_pixels(m[1], m[2], em, 1_000) for m in _NUMBER.finditer(text))
    return [each for each in found if each is not None]


def _clipped(box: Mapping[str, str], em: float) -> bool:
    for name, inside in _FUNCTION.findall(box.get("clip", "")):
        sides = _numbers(inside.replace("auto", "9999"), em)
        if name == "rect" and len(sides) == 4:
            top, right, bottom, left = sides
            if bottom - top <= SMALLEST or right - left <= SMALLEST:
                return True
    for name, inside in _FUNCTION.findall(box.get("clip-path", "")):
        numbers = _numbers(inside.partition("round")[0], em)
        if name == "inset" and numbers and max(numbers) >= 490:
            return True
        if name in ("circle", "ellipse") and numbers and numbers[0] <= SMALLEST:
            return True
        if name == "polygon" and numbers:
            wide, high = numbers[::2], numbers[1::2] or [0.0]
            if max(wide) - min(wide) <= SMALLEST or max(high) - min(high) <= SMALLEST:
                return True
    return False


def _transformed(box: Mapping[str, str], em: float) -> bool:
    told = [*_FUNCTION.findall(box.get("transform", ""))]
    told += [(name, box[name]) for name in ("scale", "translate", "zoom") if name in box]
    for name, inside in told:
        numbers = _numbers(inside, em)
        if "%" in inside:  # of its own size: up to all of it is how designers centre and slide
            numbers = [each / 4 for each in numbers]
        if name.startswith(("scale", "zoom")) and any(abs(each) < 0.05 for each in numbers):
            return True
        if name.startswith("translate") and any(_outside(each) for each in numbers):
            return True
        if name in ("rotatex", "rotatey") and any(abs(each) % 180 == 90 for each in numbers):
            return True
    return False
