"""Trees of tag soup; each expected one is what two other HTML5 parsers (Lexbor, JustHTML) make."""

from itertools import groupby

import pytest

from scopes.extraction.markup import FRAMES, Builder
from scopes.extraction.tree import Element
from scopes.extraction.tree_builder import TOO_DEEP, TOO_MANY


def shape(source: str) -> str:
    """The body as tags with brackets, `p(a b(c))`; text that is only space is left out."""

    def of(element: Element | str) -> str:
        if isinstance(element, str):
            return element.strip()
        inside: list[str] = []
        for strings, children in groupby(element.children, lambda child: isinstance(child, str)):
            if strings:
                inside.append("".join(str(child) for child in children).strip())
            else:
                inside += map(of, children)
        return f"{element.tag}({' '.join(filter(None, inside))})"

    builder = Builder(source, 300, 20_000)
    assert builder.build() == ""
    return of(builder.body).removeprefix("body(").removesuffix(")")


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("<p>a<p>b<div>c", "p(a) p(b) div(c)"),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "ul(li(a) li(b ul(li(c))) li(d)) e"),
        ("<dl><dt>a<dd>b<dt>c</dl>", "dl(dt(a) dd(b) dt(c))"),
        ("<h1>a<h2>b</h3>c", "h1(a) h2(b) c"),
        ("<b>a<p>b</b>c", "b(a) p(b(b) c)"),
        ("<b><i>a</b>b</i>c", "b(i(a)) i(b) c"),
        ("<p><b>a</p>b</b>c", "p(b(a)) b(b) c"),
        ("<b><b><b><b>a<p>b", "b(b(b(b(a p(b)))))"),
        ("<a>a<a>b</a>c", "a(a) a(b) c"),
        ("<a>a<div>b<a>c", "a(a) div(a(b) a(c))"),
        ("<div><span>a</div>b</span>c", "div(span(a)) bc"),
        ("<span><div>a</span>b</div>c", "span(div(ab) c)"),
        ("a</p>b</br>c", "a p() b br() c"),
        ("<button>a<button>b", "button(a) button(b)"),
        ("<nobr>a<nobr>b", "nobr(a) nobr(b)"),
        ("<select>a<option>b<select>c", "select(a option(b)) c"),
        ("<form>a<form>b</form>c</form>d", "form(ab) cd"),
        ("<div><form>a</div>b</form>c", "div(form(a)) bc"),
        ("<table><td>a<td>b<tr><th>c</table>d", "table(tbody(tr(td(a) td(b)) tr(th(c)))) d"),
        ("<table>a<tr>b<td>c</table>", "ab table(tbody(tr(td(c))))"),
        ("<table><b>a<tr><td>b</table>c", "b(a) table(tbody(tr(td(b)))) b(c)"),
        ("<table>a<table>b", "a table() b table()"),
        ("<table><caption>a<td>b", "table(caption(a) tbody(tr(td(b))))"),
        ("<table><td>a</div></p>b</table>", "table(tbody(tr(td(a p() b))))"),
        ("<table><td><table><td>a</table>b", "table(tbody(tr(td(table(tbody(tr(td(a)))) b))))"),
        ("<td>a<tr>b", "ab"),
        ("<p>a<table>b", "p(ab table())"),
        ("<!doctype html><p>a<table>b", "p(a) b table()"),
        ("<svg><g>a<p>b", "svg(g(a)) p(b)"),
        ("<svg><foreignObject><p>a</svg>b", "svg(foreignobject(p(ab)))"),
        ("<svg><a/>b</svg>c", "svg(a() b) c"),
        ("<math><mi><b>a</math>b", "math(mi(b(ab)))"),
        ("<svg><![CDATA[a<b>]]></svg>", "svg(a<b>)"),
        ("<![CDATA[a>b", "b"),
        ("<xmp><b></xmp>a", "xmp(<b>) a"),
        ("<plaintext>a</plaintext>", "plaintext(a</plaintext>)"),
        ("<title>&lt;b></title>a<title>b</title>", "a title(b)"),
        ("<textarea><p></textarea>a", "textarea(<p>) a"),
        ("<script>a</script>b<script>c</script>", "b script(c)"),
        ("<image>a<img/>b<br/>c<p/>d", "img() a img() b br() c p(d)"),
        ("<ruby>a<rt>b<rp>c", "ruby(a rt(b) rp(c))"),
        ("a<body><html><head>b</body>c</html>d", "abcd"),
        ("a &amp; &lt;b&gt; &#x41; &nbsp &#0;c", "a & <b> A \xa0 \ufffdc"),
        ("a < b </ c> <3 <!x> d", "a < b  <3  d"),
        ("<!-->a<!--->b<!--c--!>d<!-- -- >e-->f", "abdf"),
    ],
)
def test_tag_soup_becomes_the_tree_of_a_browser(source: str, tree: str) -> None:
    assert shape(source) == tree


@pytest.mark.parametrize(
    ("tag", "attributes"),
    [
        ("<p a=1 A=2 b='x>y' c=\"z\" d>", {"a": "1", "b": "x>y", "c": "z", "d": ""}),
        ("<p/a/b=/c>", {"a": "", "b": "/c"}),
        ("<p a = 'b'c=d>", {"a": "b", "c": "d"}),
        ("<p =a=b>", {"=a": "b"}),
        ("<p a=>", {"a": ""}),
        ("<p a='&amp;&lt&ltx&copy=1&notit;&#65;'>", {"a": "&<&ltx&copy=1&notit;A"}),
    ],
)
def test_attributes_are_read_as_a_browser_reads_them(tag: str, attributes: dict[str, str]) -> None:
    builder = Builder(tag, 9, 9)
    builder.build()
    (element,) = builder.body.children
    assert isinstance(element, Element)
    assert element.attributes == attributes


def test_attributes_of_every_html_and_body_tag_are_those_of_the_one() -> None:
    builder = Builder("<html a=1><p><body b=2 c=3></body><body b=9><html a=9 d=4>", 9, 9)
    builder.build()
    assert builder.html.attributes == {"a": "1", "d": "4"}
    assert builder.body.attributes == {"b": "2", "c": "3"}


def test_limits_end_the_tree() -> None:
    assert Builder("<i>" * 10, 5, 99).build() == TOO_DEEP
    assert Builder("<br>" * 10, 5, 9).build() == TOO_MANY
    assert Builder("</i>" * 99, 5, 9).build() == TOO_MANY
    assert Builder("<p>" + "".join(f"<b a={n}></p><p>" for n in range(9)) + "x", 99, 50).build()
    assert Builder("<frameset><frame>", 9, 9).build() == FRAMES
