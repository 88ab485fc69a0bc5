"""Extract the text of pages in a separate program, so that no page can crash the bot."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urldefrag, urljoin

import trafilatura
from lxml import etree

from scopes.clean import decode_text, printable
from scopes.confinement import serve_confined
from scopes.documents import worker
from scopes.documents.text import DocumentRefused, DocumentText, json_reply
from scopes.extraction.visible import source_of, visible_page

MAX_CPU_S = 8
"""Seconds of computing for one page."""
MAX_TITLE, MAX_WORDS = 200, 80
"""Characters of a title, and of the words of a link."""
MAX_LINKS = 40
"""Maximum links listed after a text without links."""
MAX_HTML = 800_000
"""Maximum characters of a document, which take two seconds to read."""
HTML = frozenset({"text/html", "application/xhtml+xml"})
"""Media types that decide what a body is; for all others the content decides."""
HIDDEN = "It holds text that a reader would not see, which was left out"
NO_TEXT_MESSAGE = "holds no text, as it may be made of pictures, or by scripts"

_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_DATE = re.compile(
    r"<meta[^>]{0,200}(?:article:published_time|datePublished|date)[\"'][^>]{0,80}"
    r"content=[\"'](\d{4}-\d\d-\d\d)",
    re.IGNORECASE,
)
_WEB = re.compile(r"https?://[^\s()]{1,2000}")
_SAME_PAGE_LINK = re.compile(r"\[((?:[^\[\]\\]|\\.)*)\]\(#[^()\s]*\)")
"""A link within the same page, which is read anyway."""
_LINK = re.compile(
    r"\]\((?:<([^<>\n]{1,2000})>|([^()\s]{1,2000}(?:\([^()\s]{0,200}\)[^()\s]{0,200})?))\)"
)
_CODE = re.compile(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_ESCAPED_SIGN = re.compile(
    r"(\\+)([*_`~\[\]<])|^( {0,3}(?:- )?(?:\d{1,9})?)\\([#>+.)-])", re.MULTILINE
)
"""Backslashes of Markdown, before a sign or before text that would begin a block."""


def read(
    page: bytes, max_chars: int, type: str = "", url: str = "", charset: str = ""
) -> DocumentText:
    """Return the text of a page or document. Raises the errors of `documents.worker.read`."""
    if type in HTML or (not type.startswith("text/") and worker.HTML.match(page[:1024])):
        source = source_of(decode_text(page, charset) if charset else page)
        found = of_html(source[:MAX_HTML], url)
        found = replace(found, cut=found.cut or len(source) > MAX_HTML)
        if not found.text.strip():
            raise DocumentRefused(NO_TEXT_MESSAGE)
    else:
        found = worker.read(page, max_chars, source=True, charset=charset)
    cut = found.cut or len(found.text) > max_chars
    return replace(found, text=found.text[:max_chars], cut=cut)


def of_html(text: str, url: str) -> DocumentText:
    """Return the article of a page in Markdown, or all its text if no article is found.

    Invisible text is removed first: trafilatura finds the article of a page, but does not know what
    style sheets hide.
    """
    seen, shown = visible_page(text)
    tree = trafilatura.load_html(shown) if shown else None
    article, base = "", base_of(tree, url)
    if tree is not None:
        _without_looks(tree)
        article = printable(
            trafilatura.extract(
                tree,
                output_format="markdown",
                include_links=True,
                include_comments=False,
                fast=True,
            )
            or ""
        )
    if article.strip():
        article = _SAME_PAGE_LINK.sub(r"\1", article)
        article = _unescape(_LINK.sub(lambda link: f"]({_address(base, link)})", article))
    else:
        article = seen.text
    # Only links around the article can be followed; they are listed at its end.
    if not _LINK.search(article):
        links = links_of(tree, base).items()
        article += "".join(f"\n[{words}]({to})" for to, words in links if to != url)
    title, date = _TITLE.search(text[:200_000]), _DATE.search(text[:200_000])
    return DocumentText(
        article,
        HIDDEN if seen.hidden else "",
        seen.cut,
        printable(html.unescape(title[1])).strip()[:MAX_TITLE] if title else "",
        date[1] if date else "",
    )


def _without_looks(tree: Any) -> None:
    """Remove elements that only style words, so that sentences stay whole.

    Elements that colour code are half of many pages; trafilatura would drop some by the names of
    their classes, and recognizes code by a single one.
    """
    etree.strip_tags(tree, "b", "strong", "i", "em", "u", "big", "font", "var")
    for code in tree.iter("pre"):
        if code.find(".//span") is not None:
            etree.strip_tags(code, "span")
            if len(code) == 0:
                etree.SubElement(code, "span").text, code.text = code.text, None


def _unescape(markdown: str) -> str:
    """Remove Markdown escapes outside code: the text is read, not rendered."""
    parts, at = list[str](), 0
    for code in _CODE.finditer(markdown):
        parts += [_ESCAPED_SIGN.sub(_sign, markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join((*parts, _ESCAPED_SIGN.sub(_sign, markdown[at:])))


def _sign(found: re.Match[str]) -> str:
    if found[2] is None:
        return f"{found[3]}{found[4]}"
    return "\\" * (len(found[1]) // 2) + found[2]  # each original one was doubled


def base_of(tree: Any, url: str) -> str:
    """Return the base of the relative links of a page: its address, or the base that it names."""
    named = tree.find(".//base[@href]") if tree is not None else None
    return url if named is None else urljoin(url, named.get("href").strip())


def links_of(tree: Any, url: str) -> dict[str, str]:
    """Return the first links of a page that have words: address -> words."""
    found: dict[str, str] = {}
    for link in tree.iter("a") if tree is not None else ():
        words = re.sub(r"[\[\]]", "", printable(" ".join(link.text_content().split())))[:MAX_WORDS]
        address = urldefrag(urljoin(url, (link.get("href") or "").strip())).url
        if _WEB.fullmatch(address) and any(map(str.isalnum, words)):
            found.setdefault(address, words)
        if len(found) == MAX_LINKS:
            break
    return found


def _address(base: str, link: re.Match[str]) -> str:
    """Return the address of a Markdown link, escaped so that it ends at the first bracket."""
    address: str = link[2] or quote(link[1], safe=":/?#[]@!$&'*+,;=%~")
    return urljoin(base, address)


def main() -> None:
    serve_confined(json_reply(read), MAX_CPU_S)
