"""The text of pages: a program of its own, so that a hostile page can take nothing down with it.

Reads requests and writes answers, each four bytes of length and then so many bytes: a request is
one line of JSON (`kind`, `url`, `charset`, `max_chars`, `start`) and the page, an answer is JSON,
either `{"title", "date", "text", "note", "more"}` or `{"error"}`. Where a `start` above 0 is asked
for, about so many bytes of text are enough, and `more` tells that they are not all. Before all, it
writes four bytes of 0 when it has begun. It ends where its input does.
"""

from __future__ import annotations

import gc
import html
import json
import logging
import re
import sys
import warnings
from typing import Any, BinaryIO
from urllib.parse import quote, urldefrag, urljoin

import trafilatura
from lxml import etree

from scopes.clean import printable
from scopes.confinement import confined
from scopes.extraction.characters import decoded
from scopes.extraction.visible import Visible, source_of, visible_text
from scopes.pages import pdf
from scopes.pages.fork import ForkedProcess, ProgramEnded
from scopes.pages.start import start_of
from scopes.process_limits import limit

MAX_MEMORY = 512 << 20
MAX_CPU_S = 8
"""Seconds of computing for one page."""
MAX_PDF_PAGES = 200
MAX_TITLE, MAX_WORDS = 200, 80
"""Characters of a title, and of the words of a link."""
MAX_LINKS = 40
"""Links that are listed behind a text that has none."""
MAX_HTML = 800_000
"""Characters of a document: what takes two seconds to read."""
LEAST = 4_000
"""Characters that a beginning must come to, to be worth an answer of its own."""
CUT = "It is very long: only its beginning was read."
HIDDEN = "It holds text that a reader would not see, which was left out."

_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_DATE = re.compile(
    r"<meta[^>]{0,200}(?:article:published_time|datePublished|date)[\"'][^>]{0,80}"
    r"content=[\"'](\d{4}-\d\d-\d\d)",
    re.IGNORECASE,
)
_WEB = re.compile(r"https?://[^\s()]{1,2000}")
_WITHIN = re.compile(r"\[((?:[^\[\]\\]|\\.)*)\]\(#[^()\s]*\)")
"""A link to another place of the same page: it leads nowhere that is not read."""
_LINK = re.compile(
    r"\]\((?:<([^<>\n]{1,2000})>|([^()\s]{1,2000}(?:\([^()\s]{0,200}\)[^()\s]{0,200})?))\)"
)
_CODE = re.compile(r"(?<!\\)(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_ESCAPED = re.compile(r"(\\+)([*_`~\[\]<])|^( {0,3}(?:- )?(?:\d{1,9})?)\\([#>+.)-])", re.MULTILINE)
"""Backslashes of Markdown: in front of a sign, or of what would begin a block."""
_ADDED = re.compile(r"^ *\d+\. |</?su[bp]>")
"""What stands in Markdown and not on the page: numbers of lists, and HTML where it has no sign."""

Look = ForkedProcess[str, Visible]
"""`visible_text`, beside the rest of the reading, which takes as long."""


def answer(asked: dict[str, Any], page: bytes, look: Look) -> dict[str, Any]:
    """Return what is to be known of one page."""
    if asked["kind"] == "pdf":
        found = pdf.text_of(page, MAX_PDF_PAGES, asked["start"] or asked["max_chars"])
        if "error" in found:
            return found
        text, pages, read = found["text"], found["pages"], found["read"]
        note = f"{read} of {pages} pages of a PDF were read."
        rest = read < min(pages, MAX_PDF_PAGES) or len(text) > asked["start"]
        more = asked["start"] > 0 and rest
        return {"title": "", "date": "", "text": printable(text), "note": note, "more": more}
    if asked["kind"] == "text":
        text = printable(decoded(page, asked["charset"]))
        return {"title": "", "date": "", "text": text, "note": "", "more": False}
    source = source_of(decoded(page, asked["charset"]) if asked["charset"] else page)
    text = source[:MAX_HTML]
    if asked["start"]:
        end = start_of(text, asked["start"])
        if end < len(text):
            found = of_html(text[:end], asked["url"], look, begun=True)
            if found["more"] and len(found["text"]) >= LEAST:
                return found
    found = of_html(text, asked["url"], look)
    note = CUT if len(source) > MAX_HTML else found["note"]
    return {**found, "note": note}


def of_html(text: str, url: str, look: Look, begun: bool = False) -> dict[str, Any]:
    """Return the article of a page in Markdown; all that is seen of it where that tells more truly.

    trafilatura knows what of a page is its article, but not all that style sheets hide: what it
    takes must be seen by `visible_text`, too. `begun`: it is the beginning of a page only, and the
    rest does not change what is seen of it where `more` is true.
    """
    look.begin(text)
    try:
        tree = trafilatura.load_html(text)
        if tree is not None:
            _without_looks(tree)
        article = trafilatura.extract(
            tree,
            output_format="markdown",
            include_links=True,
            include_comments=False,
            fast=True,
        )
    finally:
        seen = look.end()
    base = base_of(tree, url)
    article, shown = _WITHIN.sub(r"\1", printable(article or "")), _letters(seen.text)
    note = HIDDEN if seen.hidden else ""
    if article.strip() and is_seen(article, shown):
        article = _unescaped(_LINK.sub(lambda link: f"]({_address(base, link)})", article))
    else:
        article, note = seen.text, note or seen.cut
    # Those round the article are all that there is to follow; they stand at the end of the rest.
    if not begun and not _LINK.search(article):
        links = links_of(tree, base, shown).items()
        article += "".join(f"\n[{words}]({to})" for to, words in links if to != url)
    title, date = _TITLE.search(text[:200_000]), _DATE.search(text[:200_000])
    return {
        "title": printable(html.unescape(title[1])).strip()[:MAX_TITLE] if title else "",
        "date": date[1] if date else "",
        "text": article,
        "note": note,
        "more": begun and not seen.unended,
    }


def _without_looks(tree: Any) -> None:
    """Take out the elements that say only how words look, so that a sentence is what is read.

    Those that colour code are half of many pages; trafilatura would leave some out by the names of
    their classes, and knows code by a single one.
    """
    etree.strip_tags(tree, "b", "strong", "i", "em", "u", "big", "font", "var")
    for code in tree.iter("pre"):
        if code.find(".//span") is not None:
            etree.strip_tags(code, "span")
            if len(code) == 0:
                etree.SubElement(code, "span").text, code.text = code.text, None


def _unescaped(markdown: str) -> str:
    """Markdown that is read and not rendered: signs stand as they do on the page."""
    parts, at = list[str](), 0
    for code in _CODE.finditer(markdown):
        parts += [_ESCAPED.sub(_sign, markdown[at : code.start()]), code[0]]
        at = code.end()
    return "".join((*parts, _ESCAPED.sub(_sign, markdown[at:])))


def _sign(found: re.Match[str]) -> str:
    if found[2] is None:
        return f"{found[3]}{found[4]}"
    return "\\" * (len(found[1]) // 2) + found[2]  # each that stood there was doubled


def base_of(tree: Any, url: str) -> str:
    """Return where the relative links of a page start: its address, or the base that it names."""
    named = tree.find(".//base[@href]") if tree is not None else None
    return url if named is None else urljoin(url, named.get("href").strip())


def is_seen(markdown: str, shown: str) -> bool:
    """Return whether all lines of the Markdown are among the letters that are seen."""
    at = 0
    for line in markdown.splitlines():
        words = _ADDED.sub("", line)
        letters = _letters(_LINK.sub("]", words))
        found = shown.find(letters, at)  # most are in order, and need no look at what is before
        if found < 0 and letters not in shown and _letters(words) not in shown:
            return False
        at = max(found, at)
    return True


def links_of(tree: Any, url: str, shown: str) -> dict[str, str]:
    """Return the first links of a page whose words are seen: address -> words."""
    found: dict[str, str] = {}
    for link in tree.iter("a") if tree is not None else ():
        words = re.sub(r"[\[\]]", "", printable(" ".join(link.text_content().split())))[:MAX_WORDS]
        address = urldefrag(urljoin(url, (link.get("href") or "").strip())).url
        if _WEB.fullmatch(address) and _letters(words) and _letters(words) in shown:
            found.setdefault(address, words)
        if len(found) == MAX_LINKS:
            break
    return found


def _address(base: str, link: re.Match[str]) -> str:
    """Return where a link of Markdown leads, written so that it ends at the first bracket."""
    address: str = link[2] or quote(link[1], safe=":/?#[]@!$&'*+,;=%~")
    return urljoin(base, address)


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def look_at(text: str) -> Visible:
    """Return what a reader sees of a document."""
    limit(seconds=MAX_CPU_S)
    return visible_text(text)


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more."""
    look = ForkedProcess(look_at)
    sink.write(bytes(4))
    sink.flush()
    while len(size := source.read(4)) == 4:
        head, _, page = source.read(int.from_bytes(size, "big")).partition(b"\n")
        limit(seconds=MAX_CPU_S)
        try:
            found = answer(json.loads(head), page, look)
        except ProgramEnded:
            raise  # both are started anew for the next page
        except Exception:  # the seam: a damaged page raises whatever it meets in the libraries
            found = {"error": "damaged"}
        told = json.dumps(found).encode()
        sink.write(len(told).to_bytes(4, "big") + told)
        sink.flush()
        gc.collect()  # now that nobody waits for it


def main() -> None:
    limit(memory=MAX_MEMORY, file_bytes=0)
    confined(forks=True)
    logging.disable()
    warnings.simplefilter("ignore")
    gc.freeze()
    gc.disable()
    serve(sys.stdin.buffer, sys.stdout.buffer)
