"""What a model wrote as Slack may show it: no secrets, citations as links, nothing that acts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bot.replies import rich
from bot.replies.cite import CITED, Links, ids_in, inert
from bot.replies.markdown import harmless, lines, segments, tidy
from config.settings import Reply
from scopes.clean import printable, redacted, unsettled

MAX_URL = 500

UNSURE = re.compile(r"[<`\[|~@!]")
"""What may begin a mark of markdown or of Slack that its line has yet to end."""


@dataclass
class Numbers:
    """Citations as numbers, in the order in which they first occur."""

    links: Mapping[str, Sequence[str]]
    given: dict[str, int] = field(default_factory=dict)

    def put(self, text: str, code: bool) -> str:
        """The text with its citations as links, or as bare numbers where a link cannot be."""
        apart = text if code else re.sub(r"\](?=\[F\d+\.\d)", "] ", text)
        return CITED.sub(lambda m: " ".join(self._one(i, code) for i in ids_in(m[0])), apart)

    def _one(self, finding: str, code: bool) -> str:
        number = self.given.setdefault(finding, len(self.given) + 1)
        url = "" if code else self.url(finding)
        return f"[{number}]({url})" if url else f"[{number}]"

    def url(self, finding: str) -> str:
        return next(filter(None, map(address, self.links.get(finding) or ())), "")


@dataclass(frozen=True, slots=True)
class Prose:
    """Makes of what a model wrote what may be shown of it."""

    links: Mapping[str, Sequence[str]]
    """Addresses of the findings."""
    settings: Reply
    asked: str = ""
    """The requester's own words: addresses in them may be repeated."""
    requester: str = ""
    """The user who may be mentioned."""

    def allowed(self) -> Links:
        made = {address(url) for urls in self.links.values() for url in urls}
        return Links(self.asked, self.settings.link_hosts, made - {""})

    def linked(self, text: str, numbers: Numbers) -> str:
        """As markdown: citations are numbered links, and nothing else in it acts."""
        clean = self.allowed().defused(redacted(printable(text)))
        if self.requester:
            mention = rf"<@{re.escape(self.requester)}(?:\|[^<>\n]*)?>"
            clean = re.sub(mention, rich.REQUESTER, clean)
        return "".join(numbers.put(piece, code) for code, piece in segments(harmless(clean)))

    def streamed(self, markdown: str) -> str:
        """Markdown of ours as a stream may show it, where Slack looks for addresses in it."""
        return inert(markdown).replace(rich.REQUESTER, f"<@{self.requester}>")

    def live(self, text: str) -> str:
        """What can be shown of an answer that is still being written.

        As long as it fits into one message, its `streamed_text` begins with this: a table, a
        fence's first line, the last word, and what may still become a secret or a mark of Slack's
        are held back.
        """
        most = self.settings.message_chars
        settled = _settled(printable(text).lstrip())
        shown = self.streamed(tidy(self.linked(settled, Numbers(self.links)), most, whole=False))
        return shown if len(shown) <= most else shown[: shown.rfind("\n", 0, most) + 1]


def _settled(text: str) -> str:
    start = text.rfind("\n") + 1
    masked = CITED.sub(lambda m: "x" * len(m[0]), text[start:])
    unsure = UNSURE.search(masked)
    kept = text[: start + unsure.start()] if unsure else text
    kept = kept[: unsettled(kept)]
    return kept[: _open_table(kept)].rstrip()


def _open_table(text: str) -> int:
    """Where a table at the end begins that may go on; the length of the text if there is none."""
    at = len(text)
    for line in reversed(lines(text)):
        if line.end or "|" not in line.text:
            break
        at = line.start
    return at


def address(url: str) -> str:
    """The address as it may stand in a link; empty where it is none."""
    if not re.match(r"https?://", url) or len(url) > MAX_URL:
        return ""
    return re.sub(r"[\s()<>|\"\\`*\[\]]", lambda m: f"%{ord(m[0]):02X}", url)
