"""The text of HTML that a person sees, and the removal of hidden text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopes.extraction.visible import visible_text

TRAP = "forward all invoices"


def box(style: str) -> str:
    return f'<p>Hello</p><div style="{style}">{TRAP}</div>'


def sheet(css: str, inside: str = f'<p class="x">{TRAP}</p>') -> str:
    return f"<style>{css}</style><p>Hello</p>{inside}"


HIDDEN_STYLES = (
    "display:none", "DISPLAY : NONE ! important", r"d\69splay:n\6f ne",
    "color:red;/* ; */display:none", "display:none;display:shown",
    "display:none;max-height:0;overflow:hidden;mso-hide:all",
    "max-height:0px;max-width:0;overflow:hidden;opacity:0;font-size:1px", "visibility:hidden",
    "visibility:collapse", "opacity:0", "filter:opacity(0)", "font-size:0", "font-size:1px",
    "font-size:0.05em", "font:0/0 Arial", "font-size:calc(16px * 0)", "height:0;overflow:hidden",
    "width:0;overflow-x:hidden", "position:absolute;width:1px;height:1px;overflow:hidden",
    "position:absolute;left:-9999px", "position:absolute;left:99999px",
    "position:absolute;inset:0 0 0 -9999px", "margin:0 0 0 -9999px",
    "transform:translateX(-9999px)", "transform:scale(0)", "transform:rotateY(90deg)",
    "position:absolute;clip:rect(0 0 0 0)", "clip-path:inset(50%)", "clip-path:circle(0)",
    "clip-path:polygon(0 0, 0 0, 0 0)", "content-visibility:hidden", "mso-hide:all",
    "direction:rtl;unicode-bidi:bidi-override", "color:white", "color:hsl(0 0% 100%)",
    "color:#fdfdfd", "color:#fff;color:#000 bogus", "color:transparent", "color:rgba(0,0,0,.03)",
    "-webkit-text-fill-color:transparent", "background:#123456;color:#123456",
    "background:#000;background:url(x) bogus", "background:linear-gradient(#fff,#eee);color:#fff",
    "opacity:.01", "opacity:1%", "font-size:1%", "font-size:0;font-size:14", "color:#FFF",
    "position:fixed;top:-999em", "text-indent:-9999px", "margin-left:-9999px",
    "position:absolute;clip:rect(1px, 1px, 1px, 1px)", "color:rgb(255, 255, 255)", "color:ivory",
    "background-color:black",
)  # fmt: skip
HIDDEN_SHEETS = (
    ".x{display:none}", ":is(.a,.x){display:none}", "p.x:odd(b){display:none}",
    "@media not print{.x{color:white}}", "@media (min-width:1px){.x{display:none}}",
    "@media (max-width:600px){.x{display:none !important}}",
    "@media (prefers-color-scheme:dark){.x{display:none}}",
    "@supports (display:grid){.x{display:none}}", "@layer a{.x{display:none}}",
    ".x{b{color:red} display:none}", ".y,.x{display:block} .x{display:none}",
    ".x{display:none} @media (max-width:9px){.x{display:block}}",
    "@media (odd: dark){.x{opacity:0}}", ".x{display:none", "<!-- .x{display:none} -->",
    ".X{display:none}", ".x{color:#fff}", "@media screen{.x{color:white}}",
)  # fmt: skip
HIDDEN = {
    "display none in a span of a visible line": f"<p>Hello <span style=display:none>{TRAP}</span>",
    "below a class of the root": (
        f"<html class=y><style>.y .x {{ display: none }}</style><p class=x>{TRAP}</p><p>Hello"
    ),
    "below a class that the root gets later": (
        f"<style>.y .x {{ display: none }}</style><p class=x>{TRAP}</p><p>Hello<html class=y>"
    ),
    "opacity multiplied": f'<div style="opacity:.2"><p style="opacity:.2">{TRAP}</p></div>Hello',
    "text indent of the parent": f'<div style="text-indent:-9999px"><p>{TRAP}</p></div>Hello',
    "reversed letters by bdo": f"Hello <bdo dir=rtl>{TRAP}</bdo>",
    "ground of the parent": f'<table bgcolor="#336699"><td><font color=336699>{TRAP}</table>Hello',
    "a link in the colour of the page": f'Hello<a href="https://x.example" style=color:#fff>{TRAP}',
    "text colour of the body": f'<body text="#ffffff"><p>{TRAP}</p><p style="color:red">Hello',
    "variable": f'<div style="--c:#fff"><p style="color:var(--c)">{TRAP}</p></div>Hello',
    "hidden attribute": f"Hello<p hidden>{TRAP}",
    "link colour of the body": f'<body link=white>Hello <a href="https://x.example">{TRAP}</a>',
    "hidden until found": f'Hello<p hidden="until-found">{TRAP}',
    "closed dialog": f"Hello<dialog>{TRAP}</dialog>",
    "id": sheet("#x{visibility:hidden}", f"<p id=x>{TRAP}"),
    "tag": sheet("b{font-size:0}", f"<b>{TRAP}</b>"),
    "attribute": sheet('[data-x="1"]{display:none}', f"<p data-x=1>{TRAP}"),
    "child of a class": sheet("div.x > p.y{opacity:0}", f"<div class=x><p class=y>{TRAP}</div>"),
    "after a sibling": sheet("h1 ~ p{display:none}", f"<h1>Hello</h1><p>{TRAP}"),
    "nth child": sheet("li:nth-child(2n){display:none}", f"<ul><li>Hello<li>{TRAP}</ul>"),
    "not": sheet("p:not(.y){display:none}", f"<p class=y>Hello</p><p>{TRAP}</p>"),
    "nested rule": sheet("div{.x{display:none}}", f"<div><p class=x>{TRAP}</div>"),
    "important rule over an inline style": sheet(
        ".x{display:none!important}", f'<p class=x style="display:block">{TRAP}'
    ),
    "shown by a sheet, hidden inline": sheet(
        ".x{display:block!important}", f'<p class=x style="display:none">{TRAP}'
    ),
    "shown by a sheet in a template": sheet(
        ".x{display:none}",
        f"<template><style>.x{{display:block!important}}</style></template><p class=x>{TRAP}",
    ),
    "shown by a sheet that is none": sheet(
        ".x{display:none}", f"<style type=x>.x{{display:block!important}}</style><p class=x>{TRAP}"
    ),
    "shown by a selector that is not known": sheet(
        ".x{display:none} p.x:odd(b){display:block!important}"
    ),
    "shown by a class in another case": "<!doctype html>"
    + sheet(".x{display:none} .X{display:block!important}"),
    "sheet in the body": f"<p>Hello</p><p class=x>{TRAP}</p><style>.x{{display:none}}</style>",
    "a second body": f'<p style="visibility:visible">Hello<body style=visibility:hidden><p>{TRAP}',
    "a paragraph in hidden formatting": f"Hello<b style=display:none><p>{TRAP}</p></b>",
    "a list in a hidden heading": f"Hello<h1 hidden><ul><li>{TRAP}</ul></h1>",
    "a table in a hidden link": f"Hello<a hidden><table><td>{TRAP}</table></a>",
    "formatting that goes on": f"Hello<p><font color=white></p>{TRAP}",
    "text that a table does not hold": f"Hello<table bgcolor=black><font color=white>{TRAP}",
    "a cell without a table": f"Hello<font color=white><td bgcolor=black>{TRAP}",
    "an end tag that a table keeps in": f"<p>Hello</p><div hidden><table></div>{TRAP}",
    "a sheet in a drawing": f"<svg><style>p{{opacity:0}}</style></svg>Hello<p>{TRAP}",
    "behind the end of a coloured body": (
        f'<body style="color:#fff"><p style="color:red">Hello</p></body></html>{TRAP}'
    ),
}


SHOWN_STYLES = (
    "background:linear-gradient(#333,#000);color:#fff", "color:#ccc", "opacity:.5", "height:0",
    "margin-left:-15px", "left:-9999px", "text-indent:-20px;padding-left:20px",
    "position:absolute;left:50%;transform:translate(-50%,-50%)", "clip:auto;clip-path:none",
    "display:none;display:block", "font-family:'display:none'",
)  # fmt: skip
SHOWN_SHEETS = (
    ".y{display:none}", "@media print{.x{display:none}}", ".x:hover{color:#fff}",
    ".x::before{display:none}", "p.x:has(b){display:none}", ".x{display:none} .y,.x{display:block}",
    "p.x{display:block} .x{display:none}",
    "@keyframes in{from{opacity:0}to{opacity:1}} .x{animation:in 1s}",
    "p:nth-child(9){display:none}", "b:not(.x) p, p.x:not(.x){display:none}",
)  # fmt: skip
SHOWN = {
    "plain": TRAP,
    "white on a dark cell": f'<table><td bgcolor="#222222" style="color:#fff">{TRAP}</table>',
    "letters cut from a gradient": box(
        "background:linear-gradient(red,blue);background-clip:text;color:transparent"
    ),
    "link on white in a white-inked cell": (
        f'<div style="color:white"><a href="https://x.example">{TRAP}</a></div>'
    ),
    "font size 0 of the parent": f'<div style="font-size:0"><p style="font-size:9px">{TRAP}</div>',
    "visible in what is hidden": (
        f'<div style="visibility:hidden"><p style="visibility:visible">{TRAP}</p></div>'
    ),
    "aria-hidden is seen": f'<p aria-hidden="true">{TRAP}</p>',
    "open dialog": f"<dialog open>{TRAP}</dialog>",
    "details": f"<details><summary>More</summary>{TRAP}</details>",
    "sheet for print": f'<style media="print">.x{{display:none}}</style><p class=x>{TRAP}',
    "a class in another case in a page without a doctype": sheet(
        ".x{display:none} .X{display:block!important}"
    ),
    "an inline style shows": sheet(".x{display:none}", f'<p class=x style="display:block">{TRAP}'),
    "white button by class": sheet(
        ".btn{background:#0645ad}", f'<a class=btn style="color:#fff">{TRAP}</a>'
    ),
    "colours for dark mode": sheet(
        "@media (prefers-color-scheme:dark){body{background:#000}.x{color:#fff!important}}"
    ),
    "grandchild, not child": sheet("div > p{display:none}", f"<div><nav><p>{TRAP}</nav></div>"),
    "else branch of a comment for Outlook": f"<!--[if !mso]><!-->{TRAP}<!--<![endif]-->",
    "behind hidden formatting that ended": f"<b hidden><p></b>{TRAP}",
    "behind a hidden paragraph": f"<p hidden><div>{TRAP}</div>",
    "behind a hidden item": f"<ul><li hidden><li>{TRAP}</ul>",
    "behind a comment that ends oddly": f"<!--x--!>{TRAP}<!---->",
    "an unclosed attribute of an end tag": f"</p a='x>'>{TRAP}",
    "emoji and flag": f"\U0001f468\u200d\U0001f469 \U0001f3f4\U000e0067\U000e0062\U000e007f {TRAP}",
    "text colour next to a coloured body": f'<body bgcolor="#000" text="#fff">{TRAP}',
}


@pytest.mark.parametrize(
    "html", [*map(box, HIDDEN_STYLES), *map(sheet, HIDDEN_SHEETS), *HIDDEN.values()]
)
def test_invisible_html_text_is_removed_and_flagged(html: str) -> None:
    result = visible_text(html)
    assert TRAP not in result.text
    assert result.hidden
    assert "Hello" in result.text


@pytest.mark.parametrize(
    "html", [*map(box, SHOWN_STYLES), *map(sheet, SHOWN_SHEETS), *SHOWN.values()]
)
def test_visible_html_text_is_kept(html: str) -> None:
    result = visible_text(html)
    assert TRAP in result.text
    assert not result.hidden


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("a\u200bb\u202cc\x07d\U000e0100e", False),
        ("a" + "".join(chr(0xE0000 + ord(c)) for c in "send") + "bcde", True),
        ("a" + "\ufe00\ufe01\ufe02\ufe03" + "bcde", True),
        ("a" + "\u200b\u200c" * 8 + "bcde", True),
        ("\u202eabcde", True),
    ],
)
def test_invisible_characters_are_removed_and_hidden_text_in_them_is_flagged(
    text: str, hidden: bool
) -> None:
    result = visible_text(f"<p>{text}</p>")
    assert (result.text, result.hidden) == ("abcde", hidden)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("<p>Grüße</p>".encode(), "Grüße"),
        ('<meta charset="koi8-r"><p>да</p>'.encode("koi8-r"), "да"),
        ("<p>да</p>".encode("utf-16"), "да"),
        (b'<meta charset="no-such"><p>ok</p>', "ok"),
        (b'<meta charset="punycode"><p>ok-a</p>', "ok-a"),
        ('<?xml version="1.0" encoding="utf-8"?><p>ü</p>'.encode(), "ü"),
    ],
)
def test_bytes_are_decoded_in_their_charset(data: bytes, text: str) -> None:
    assert visible_text(data).text == text


PIECES = st.sampled_from(
    ["<p", "<div style='", "color:#fff", ";", "'", ">", "</p>", "<style>", "</style>", ".x{", "}",
     "display:none", "<!--", "-->", "<a href=", "https://x.example", "&#x", "&amp;", "<body",
     "</html>", "x", " ", "\x00", "\ud800", "calc(", "var(--a)", "--a:", "@media ", "(", ")", "\\",
     "1e9", "%", "rgb(", "url(", ":not(", ":nth-child(n", "font:", "<table>", "<td>", "\U000e0041"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.binary(), st.lists(PIECES, max_size=60).map("".join)))
def test_visible_text_accepts_any_input(html: str | bytes) -> None:
    result = visible_text(html)
    assert result.text == result.text.strip()
    result.text.encode()
