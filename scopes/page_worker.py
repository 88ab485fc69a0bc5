"""The text of pages: a program of its own, so that a hostile page can take nothing down with it.

Reads requests and writes answers, each four bytes of length and then so many bytes: a request is
one line of JSON (`kind`, `url`, `charset`, `max_chars`) and the page, an answer is JSON, either
`{"title", "date", "text", "note"}` or `{"error"}`. It ends where its input does.
"""

from __future__ import annotations

import html
import json
import logging
import re
import resource
import sys
import warnings
from typing import Any, BinaryIO
from urllib.parse import urldefrag, urljoin

import trafilatura

from scopes import pdf
from scopes.clean import printable
from scopes.reduction.characters import decoded
from scopes.reduction.visible import source_of, visible_text

MAX_MEMORY = 1 << 30
MAX_CPU_S = 8
"""Seconds of computing for one page."""
MAX_PDF_PAGES = 200
MAX_TITLE, MAX_WORDS = 200, 80
"""Characters of a title, and of the words of a link."""
MAX_LINKS = 40
"""Links that are listed behind a text that has none."""
MAX_HTML = 800_000
"""Characters of a document: what takes two seconds to read."""
CUT = "It is very long: only its beginning was read."
HIDDEN = "It holds text that a reader would not see, which was left out."

_TITLE = re.compile(r"<title[^>]{0,200}>([^<]{1,1000})", re.IGNORECASE)
_DATE = re.compile(
    r"<meta[^>]{0,200}(?:article:published_time|datePublished|date)[\"'][^>]{0,80}"
    r"content=[\"'](\d{4}-\d\d-\d\d)",
    re.IGNORECASE,
)
_WEB = re.compile(r"https?://[^\s()]{1,2000}")
_LINK = re.compile(r"\]\(([^()\s]{1,2000}(?:\([^()\s]{0,200}\)[^()\s]{0,200})?)\)")


def answer(asked: dict[str, Any], page: bytes) -> dict[str, Any]:
    """What is to be known of one page."""
    if asked["kind"] == "pdf":
        found = pdf.text_of(page, MAX_PDF_PAGES, asked["max_chars"])
        text = printable(found.get("text", ""))
        note = f"{found.get('read')} of {found.get('pages')} pages of a PDF were read."
        told = {"error": found["error"]} if "error" in found else {"text": text, "note": note}
        return {"title": "", "date": "", **told}
    if asked["kind"] == "text":
        text = printable(decoded(page, asked["charset"]))
        return {"title": "", "date": "", "text": text, "note": ""}
    return of_html(page, asked["charset"], asked["url"])


def of_html(page: bytes, charset: str, url: str) -> dict[str, Any]:
    """The article of a page in Markdown; all that is seen of it where that tells more truly.

    trafilatura knows what of a page is its article, but not all that style sheets hide: what it
    takes must be seen by `visible_text`, too.
    """
    source = source_of(decoded(page, charset) if charset else page)
    text = source[:MAX_HTML]
    seen = visible_text(text)
    article = trafilatura.extract(
        text,
        url=url,
        output_format="markdown",
        include_links=True,
        include_comments=False,
        fast=True,
    )
    article, shown = printable(article or ""), _letters(seen.text)
    note = CUT if len(source) > MAX_HTML else HIDDEN if seen.hidden else ""
    if article.strip() and is_seen(article, shown):
        article = _LINK.sub(lambda link: f"]({urljoin(url, link[1])})", article)
    else:
        article, note = seen.text, note or seen.cut
    if not _LINK.search(article):  # those round the article are all that there is to follow
        article += "".join(f"\n[{words}]({to})" for to, words in links_of(text, url, shown).items())
    title, date = _TITLE.search(text[:200_000]), _DATE.search(text[:200_000])
    return {
        "title": printable(html.unescape(title[1])).strip()[:MAX_TITLE] if title else "",
        "date": date[1] if date else "",
        "text": article,
        "note": note,
    }


def is_seen(markdown: str, shown: str) -> bool:
    """Whether all lines of the Markdown are among the letters that are seen."""
    at = 0
    for line in markdown.splitlines():
        letters = _letters(_LINK.sub("]", line))
        found = shown.find(letters, at)  # most are in order, and need no look at what is before
        if found < 0 and letters not in shown:
            return False
        at = max(found, at)
    return True


def links_of(text: str, url: str, shown: str) -> dict[str, str]:
    """The first links of a page whose words are seen: address -> words."""
    found: dict[str, str] = {}
    tree = trafilatura.load_html(text)
    for link in tree.iter("a") if tree is not None else ():
        words = re.sub(r"[\[\]]", "", printable(" ".join(link.text_content().split())))[:MAX_WORDS]
        address = urldefrag(urljoin(url, (link.get("href") or "").strip())).url
        if _WEB.fullmatch(address) and _letters(words) and _letters(words) in shown:
            found.setdefault(address, words)
        if len(found) == MAX_LINKS:
            break
    return found


def _letters(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


def limit_next() -> None:
    """Let the system end this process if the next page takes too much computing."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + MAX_CPU_S
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer requests until there are no more."""
    while len(size := source.read(4)) == 4:
        head, _, page = source.read(int.from_bytes(size, "big")).partition(b"\n")
        limit_next()
        try:
            found = answer(json.loads(head), page)
        except Exception:  # the seam: a damaged page raises whatever it meets in the libraries
            found = {"error": "damaged"}
        told = json.dumps(found).encode()
        sink.write(len(told).to_bytes(4, "big") + told)
        sink.flush()


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    logging.disable()
    warnings.simplefilter("ignore")
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
