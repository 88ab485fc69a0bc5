"""CSS colours (CSS Color 4): read, laid over each other, and compared as an eye would."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import tinycss2
from tinycss2 import color4

Colour = tuple[float, float, float, float]
"""Red, green and blue of 0 to 255, and alpha of 0 to 1."""

BLACK: Colour = (0, 0, 0, 1)
WHITE: Colour = (255, 255, 255, 1)

MIN_CONTRAST = 1.3  # WCAG 2 asks for 4.5; #ddd on white has 1.36 and can be made out
MIN_DIFFERENCE = 48  # in one channel: yellow on white has next to no contrast, but is seen
MAX_CHARS = 2_000

SYSTEM: dict[str, Colour] = {
    "canvas": WHITE, "canvastext": BLACK, "window": WHITE, "windowtext": BLACK,
    "buttonface": (240, 240, 240, 1), "buttontext": BLACK, "linktext": (0, 0, 238, 1),
    "highlight": (51, 144, 255, 1), "highlighttext": WHITE,
}  # fmt: skip


@lru_cache(maxsize=2000)
def colours_in(value: str) -> tuple[Colour, ...]:
    """Return every colour that a CSS value names, in its order: the stops of a gradient, one in a
    mix.
    """
    return tuple(_found(tinycss2.parse_component_value_list(value[:MAX_CHARS], True)))


def colour(value: str) -> Colour | None:
    """Return the colour that a CSS value is; of a mix the first; None if it is none."""
    if tinycss2.parse_one_component_value(value[:MAX_CHARS], True).type == "error":
        return None
    return next(iter(colours_in(value)), None)


def _found(tokens: Sequence[Any]) -> Iterator[Colour]:
    for token in tokens:
        found = color4.parse_color(token) if token.type in ("ident", "hash", "function") else None
        if isinstance(found, color4.Color):
            yield _as_rgb(found)
        elif token.type == "ident" and token.lower_value in SYSTEM:
            yield SYSTEM[token.lower_value]
        elif token.type == "function":
            yield from _found(token.arguments)


def _as_rgb(found: Any) -> Colour:
    try:
        red, green, blue = found.to("srgb").coordinates
    except NotImplementedError:
        # For lab and its kin the lightness will do: hardly any contrast is without it.
        red, green, blue = found.coordinates
        if found.space in ("lab", "lch", "oklab", "oklch"):
            red = green = blue = red / (1 if found.space.startswith("ok") else 100)
    red, green, blue = (255 * max(0.0, min(1.0, each or 0.0)) for each in (red, green, blue))
    return (red, green, blue, found.alpha or 0.0)


def over(top: Colour, ground: Colour) -> Colour:
    """Return what is seen where `top` lies on an opaque `ground`."""
    alpha = top[3]
    red, green, blue = (t * alpha + g * (1 - alpha) for t, g in zip(top[:3], ground, strict=False))
    return (red, green, blue, 1)


def near(one: Colour, two: Colour) -> bool:
    """Return whether text of one opaque colour on the other cannot be made out."""
    if max(abs(a - b) for a, b in zip(one[:3], two[:3], strict=True)) > MIN_DIFFERENCE:
        return False
    dark, light = sorted((_luminance(one), _luminance(two)))
    return (light + 0.05) / (dark + 0.05) < MIN_CONTRAST


@lru_cache(maxsize=2000)
def _luminance(of: Colour) -> float:
    """WCAG 2's relative luminance."""
    linear = [c / 3294.6 if c <= 10.31 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in of[:3]]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
