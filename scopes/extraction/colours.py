"""CSS colours (CSS Color 4): parsed, laid over each other, and compared as an eye would."""

from __future__ import annotations

import colorsys
import re
from functools import lru_cache

Colour = tuple[float, float, float, float]
"""Red, green and blue of 0 to 255, and alpha of 0 to 1."""

BLACK: Colour = (0, 0, 0, 1)
WHITE: Colour = (255, 255, 255, 1)
TRANSPARENT: Colour = (0, 0, 0, 0)

MIN_CONTRAST = 1.3  # WCAG 2 asks for 4.5; #ddd on white has 1.36 and can be made out
MIN_DIFFERENCE = 48  # in one channel: yellow on white has next to no contrast, but is seen

_NAMES = """
aliceblue f0f8ff antiquewhite faebd7 aqua 00ffff aquamarine 7fffd4 azure f0ffff beige f5f5dc
bisque ffe4c4 black 000000 blanchedalmond ffebcd blue 0000ff blueviolet 8a2be2 brown a52a2a
burlywood deb887 cadetblue 5f9ea0 chartreuse 7fff00 chocolate d2691e coral ff7f50
cornflowerblue 6495ed cornsilk fff8dc crimson dc143c cyan 00ffff darkblue 00008b darkcyan 008b8b
darkgoldenrod b8860b darkgray a9a9a9 darkgreen 006400 darkgrey a9a9a9 darkkhaki bdb76b
darkmagenta 8b008b darkolivegreen 556b2f darkorange ff8c00 darkorchid 9932cc darkred 8b0000
darksalmon e9967a darkseagreen 8fbc8f darkslateblue 483d8b darkslategray 2f4f4f
darkslategrey 2f4f4f darkturquoise 00ced1 darkviolet 9400d3 deeppink ff1493 deepskyblue 00bfff
dimgray 696969 dimgrey 696969 dodgerblue 1e90ff firebrick b22222 floralwhite fffaf0
forestgreen 228b22 fuchsia ff00ff gainsboro dcdcdc ghostwhite f8f8ff gold ffd700
goldenrod daa520 gray 808080 green 008000 greenyellow adff2f grey 808080 honeydew f0fff0
hotpink ff69b4 indianred cd5c5c indigo 4b0082 ivory fffff0 khaki f0e68c lavender e6e6fa
lavenderblush fff0f5 lawngreen 7cfc00 lemonchiffon fffacd lightblue add8e6 lightcoral f08080
lightcyan e0ffff lightgoldenrodyellow fafad2 lightgray d3d3d3 lightgreen 90ee90 lightgrey d3d3d3
lightpink ffb6c1 lightsalmon ffa07a lightseagreen 20b2aa lightskyblue 87cefa
lightslategray 778899 lightslategrey 778899 lightsteelblue b0c4de lightyellow ffffe0 lime 00ff00
limegreen 32cd32 linen faf0e6 magenta ff00ff maroon 800000 mediumaquamarine 66cdaa
mediumblue 0000cd mediumorchid ba55d3 mediumpurple 9370db mediumseagreen 3cb371
mediumslateblue 7b68ee mediumspringgreen 00fa9a mediumturquoise 48d1cc mediumvioletred c71585
midnightblue 191970 mintcream f5fffa mistyrose ffe4e1 moccasin ffe4b5 navajowhite ffdead
navy 000080 oldlace fdf5e6 olive 808000 olivedrab 6b8e23 orange ffa500 orangered ff4500
orchid da70d6 palegoldenrod eee8aa palegreen 98fb98 paleturquoise afeeee palevioletred db7093
papayawhip ffefd5 peachpuff ffdab9 peru cd853f pink ffc0cb plum dda0dd powderblue b0e0e6
purple 800080 rebeccapurple 663399 red ff0000 rosybrown bc8f8f royalblue 4169e1
saddlebrown 8b4513 salmon fa8072 sandybrown f4a460 seagreen 2e8b57 seashell fff5ee sienna a0522d
silver c0c0c0 skyblue 87ceeb slateblue 6a5acd slategray 708090 slategrey 708090 snow fffafa
springgreen 00ff7f steelblue 4682b4 tan d2b48c teal 008080 thistle d8bfd8 tomato ff6347
turquoise 40e0d0 violet ee82ee wheat f5deb3 white ffffff whitesmoke f5f5f5 yellow ffff00
yellowgreen 9acd32 canvas ffffff canvastext 000000 window ffffff windowtext 000000
buttonface f0f0f0 buttontext 000000 linktext 0000ee highlight 3390ff highlighttext ffffff
""".split()
NAMED = dict(zip(_NAMES[::2], _NAMES[1::2], strict=True))

_FUNCTION = r"(?:rgba?|hsla?|hwb|lab|lch|oklab|oklch|color)\([^()]{0,200}\)"
_COLOUR = re.compile(rf"#[0-9a-f]{{3,8}}|{_FUNCTION}|(?<![\w(.#/-])[a-z]{{3,20}}(?![\w(.-])")
_MIX = re.compile(r"(?:color-mix|light-dark|contrast-color|device-cmyk|rgb|color)\(.*\)")
_NUMBER = re.compile(r"[-+]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(%|deg|turn|rad|grad)?")


@lru_cache(maxsize=2000)
def colours_in(value: str) -> tuple[Colour, ...]:
    """Return every colour that a CSS value names, in its order: the stops of a gradient, one in a
    mix.
    """
    found = (_one(match[0]) for match in _COLOUR.finditer(value[:2000].lower()))
    return tuple(each for each in found if each is not None)


def colour(value: str) -> Colour | None:
    """Return the colour that a CSS value is; of a mix the first; None if it is none."""
    if not _COLOUR.fullmatch(value) and not _MIX.fullmatch(value):
        return None
    return next(iter(colours_in(value)), None)


def _one(text: str) -> Colour | None:
    if text.startswith("#"):
        return _hex(text[1:])
    if "(" not in text:
        return TRANSPARENT if text == "transparent" else _hex(NAMED.get(text, ""))
    name, _, inside = text.partition("(")
    parts = [(float(m[0].removesuffix(m[1] or "")), m[1]) for m in _NUMBER.finditer(inside)]
    if len(parts) < 3:
        return None
    alpha = 1.0
    if len(parts) > 3:
        alpha = _clamp(parts[3][0] / (100 if parts[3][1] else 1), 1)
    red, green, blue = _channels(name, [value for value, _ in parts], [u for _, u in parts])
    return (_clamp(red), _clamp(green), _clamp(blue), alpha)


def _channels(name: str, value: list[float], unit: list[str | None]) -> tuple[float, float, float]:
    if name.startswith("rgb"):
        red, green, blue = (v * (2.55 if u else 1) for v, u in zip(value[:3], unit, strict=False))
        return red, green, blue
    if name == "color":
        red, green, blue = (v * (2.55 if u else 255) for v, u in zip(value[:3], unit, strict=False))
        return red, green, blue
    if name.startswith("hsl") or name == "hwb":
        turn = {"turn": 1.0, "rad": 1 / 6.2832, "grad": 1 / 400}.get(unit[0] or "", 1 / 360)
        hue, one, two = (
            value[0] * turn % 1,
            _clamp(value[1], 100) / 100,
            _clamp(value[2], 100) / 100,
        )
        if name == "hwb":
            pure = colorsys.hsv_to_rgb(hue, 1, 1)
            white, black = (one, two) if one + two <= 1 else (one / (one + two), two / (one + two))
            red, green, blue = (each * (1 - white - black) + white for each in pure)
        else:
            red, green, blue = colorsys.hls_to_rgb(hue, two, one)
        return red * 255, green * 255, blue * 255
    # For lab, lch, oklab and oklch the lightness will do: hardly any contrast is without it.
    share = value[0] / 100 if unit[0] or not name.startswith("ok") else value[0]
    return share * 255, share * 255, share * 255


def _hex(text: str) -> Colour | None:
    if len(text) in (3, 4):
        text = "".join(each * 2 for each in text)
    if len(text) not in (6, 8):
        return None
    red, green, blue, alpha = bytes.fromhex(text.ljust(8, "f"))
    return (red, green, blue, alpha / 255)


def _clamp(value: float, most: float = 255) -> float:
    return max(0.0, min(most, value))


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
