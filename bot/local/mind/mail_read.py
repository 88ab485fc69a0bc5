"""Reads a mail thread as a model is shown it: who wrote what to whom, without what it quotes."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date

from bot.local.mind.cues import fold, language_of
from bot.local.mind.mail_cues import sentences, words

_LINE = re.compile(
    r"^ *\[(?P<id>[^\]\s]+/[^\]\s]+)\] (?:(?P<at>\d{4}-\d\d-\d\d) \d\d:\d\d )?(?P<rest>.*)$"
)
_BY = re.compile(
    r"(?P<by>[^<>]*<[^<>\s]+>|\S+@\S+?|unknown sender|[^:]{1,80}): ?(?P<text>.*)", re.S
)
_PERSON = re.compile(r"\s*(?P<name>[^<>]*?)\s*<(?P<address>[^<>\s]+)>\s*")
_SUBJECT = re.compile(r"Subject: (?P<subject>.*?)\. (?P<text>.*)", re.S)
_REPLY = re.compile(
    r"(?:\bOn|\bAm|\bLe|\bEl|\bIl(?: giorno)?|\bOp|\bEm|\bDne|\bDnia|\bDen)\s[^<>]{5,80}"
    r"(?:<[^<>\s]+>)?\s*(?:wrote|schrieb|a écrit|escribió|ha scritto|schreef|escreveu|napsal\w*|"
    r"napisał\w*|skrev)\s?:"
)
_FORWARD = re.compile(
    r"-{5,}\s*Forwarded|Begin forwarded message|\bAttached message from |-{3,}\s?Original Message|"
    r"\bFrom: .{3,100}? (?:Sent|To|Date): |\d\d/\d\d/\d{4} \d\d:\d\d(?::\d\d)? [AP]M\s+To: "
)
"""Where another conversation begins, or what this one repeats below the answer."""
_SIGNATURE = re.compile(r"\s-- (?=[^?]{0,600}$)")
_LEFT_OUT = "[quoted text of earlier messages left out]"
_QUOTE = re.compile(r"(?:^|(?<=\s))(?:>\s?)+[^>]*?(?:[.?!…](?=\s|$)|(?=\s>)|$)")
_RUN = 6
"""So many words in a row that an earlier message of the thread has are its words."""
_LONG = re.compile(r"(\S{300})\S+")
_OPEN = re.compile(r"<(?![^<>]{0,300}>)")
"""A bracket that nothing closes: what is searched for pairs would search to the end for each."""
_HAIL = 6
"""Most words of a greeting with a name."""
_READER = re.compile(
    r"The reader is (?:(?P<name>[^<>\n]*?) ?<)?(?P<address>[^\s<>]+@[^\s<>]+?)(?:>|\.(?=\s|$))"
)
_TODAY = re.compile(r"Today is \w+,? (\d{4}-\d\d-\d\d)")
_SOME_DAY = date(1970, 1, 1)


@dataclass(frozen=True)
class Person:
    """A name and an address, as a mail gives them."""

    name: str
    address: str
    """Lower case; empty where none is shown."""

    @property
    def called(self) -> str:
        """What to call them in a sentence."""
        return self.name or self.address

    @property
    def given(self) -> str:
        """The first name, as far as a name tells it."""
        parts = [part for part in self.name.split() if not part.endswith(".")]
        return parts[0].rstrip(",") if parts else self.address

    @property
    def names(self) -> frozenset[str]:
        """The words by which they may be addressed, folded."""
        said = self.name or re.sub(r"[._-]", " ", self.address.partition("@")[0])
        return frozenset(word for word in re.findall(r"\w{3,}", fold(said)) if not word.isdigit())

    @property
    def domain(self) -> str:
        return self.address.rpartition("@")[2]


@dataclass(frozen=True)
class Mail:
    """One message of a thread."""

    id: str
    on: date
    by: Person
    text: str
    """In its author's own words: without subject, quotations and what is forwarded."""
    forwarded: str
    """What stands below a mark of forwarding; it is read for facts, not for requests."""
    to: tuple[Person, ...]
    cc: tuple[Person, ...]
    notes: str
    own: bool
    """Written by the reader."""

    @property
    def sentences(self) -> list[str]:
        return sentences(self.text)


@dataclass(frozen=True)
class Talk:
    """A thread, and whose mailbox it is in."""

    subject: str
    mails: tuple[Mail, ...]
    reader: Person
    today: date
    """The day of the last mail where the brief tells none."""
    language: str

    @property
    def other(self) -> Person:
        """Who wrote last, the reader apart; the reader where nobody else wrote."""
        return next((m.by for m in reversed(self.mails) if not m.own), self.mails[-1].by)


def read_talk(shown: Iterable[str], known: str) -> Talk | None:
    """The thread in what was shown, tool results or material; None where there is no message."""
    reader = _reader(known)
    found = _lines(shown)
    if not found:
        return None
    heard: set[tuple[str, ...]] = set()
    subject, mails = "", []
    for line in found:
        headed, mail = _mail(line, reader, heard)
        subject = subject or headed
        mails.append(mail)
    told = _TODAY.search(known)
    today = date.fromisoformat(told[1]) if told else max(mail.on for mail in mails)
    said = fold(" ".join([*(m.text[:2000] for m in mails if not m.own), subject]))
    return Talk(subject, tuple(mails), reader, today, language_of(said))


@dataclass
class _Raw:
    """A message as shown."""

    id: str
    at: str
    by: Person
    text: str
    notes: str


def _lines(shown: Iterable[str]) -> list[_Raw]:
    """The messages shown, each once; `[id~2]` goes on with a long one."""
    found: dict[str, _Raw] = {}
    for line in (m for text in shown for raw in text.splitlines() if (m := _LINE.match(raw))):
        rest, notes = _apart(_OPEN.sub(" ", _LONG.sub(r"\1", line["rest"])))
        split = _BY.match(rest)
        by, text = (_person(split["by"]), split["text"]) if split else (Person("", ""), rest)
        first, more, _ = line["id"].rpartition("~")
        if line["id"] in found:
            continue
        found[line["id"]] = _Raw(line["id"], line["at"] or "", by, text, notes)
        if more and first in found:
            found[first].text += f" {text}"
    return [raw for raw in found.values() if raw.id.rpartition("~")[0] not in found]


def _reader(known: str) -> Person:
    found = _READER.search(known)
    return Person(found["name"] or "", found["address"].lower()) if found else Person("", "")


def _mail(line: _Raw, reader: Person, heard: set[tuple[str, ...]]) -> tuple[str, Mail]:
    """The subject, if this message tells it, and the message."""
    text, notes = line.text, line.notes
    headed = _SUBJECT.match(text + " ") if text.startswith("Subject: ") else None
    if headed:
        text = headed["text"].strip()
    forward = _FORWARD.search(text)
    own_words = text[: forward.start()] if forward else text
    said = _unquoted(own_words, heard)
    to = _people(re.search(r"(?:^|; )to (.*?)(?=; cc |; attached|$)", notes))
    cc = _people(re.search(r"(?:^|; )cc (.*?)(?=; attached|$)", notes))
    on = date.fromisoformat(line.at) if line.at else _SOME_DAY
    own = bool(reader.address) and line.by.address == reader.address
    forwarded = text[forward.start() :] if forward else ""
    return (
        headed["subject"] if headed else "",
        Mail(line.id, on, line.by, said, forwarded, to, cc, notes, own),
    )


def _apart(text: str) -> tuple[str, str]:
    """A line's text, and the facts that code added behind it."""
    head, brace, notes = text.rpartition(" {")
    return (head, notes[:-1]) if brace and text.endswith("}") else (text, "")


def _person(text: str) -> Person:
    found = _PERSON.fullmatch(text)
    if found:
        return Person(found["name"].strip("\"' "), found["address"].lower())
    return Person("", text.lower()) if "@" in text else Person(text.strip(), "")


def _people(found: re.Match[str] | None) -> tuple[Person, ...]:
    return tuple(_person(part) for part in found[1].split(", ") if part) if found else ()


def _unquoted(text: str, heard: set[tuple[str, ...]]) -> str:
    """The text without what earlier messages say; its own words are remembered in `heard`."""
    text = _SIGNATURE.split(_REPLY.sub(" ", text.replace(_LEFT_OUT, " ")))[0]
    pieces = [piece for piece in re.finditer(r"\S+", text) if piece[0].strip(">")]
    plain = [re.sub(r"\W", "", piece[0]).casefold() for piece in pieces]
    runs = [tuple(plain[at : at + _RUN]) for at in range(max(0, len(plain) - _RUN + 1))]
    gone = {at + step for at, run in enumerate(runs) if run in heard for step in range(_RUN)}
    heard.update(runs)
    kept, end = "", 0
    for at, piece in enumerate(pieces):
        kept += "" if at in gone else text[end : piece.start()] + piece[0]
        end = piece.end()
    return " ".join(_QUOTE.sub(" ", kept).split())


def without_hail(sentence: str, language: str) -> str:
    """A first sentence without its greetings: "Hi Ana, the list is here" -> "the list is here"."""
    said = sentence
    for _ in range(3):
        said = said[len(hail(said, language)) :].lstrip(" ,:!–-")
    return said or sentence


def hail(sentence: str, language: str) -> str:
    """How a sentence greets, as written up to its comma; empty where it does not."""
    found = re.match(r"([^,:!.?]{2,60})[,:!](?=\s|$)", sentence)
    if not found or len(found[1].split()) > _HAIL:
        return ""
    greets = re.match(words(language, "hail").pattern, fold(found[1]))
    english = re.match(words("en", "hail").pattern, fold(found[1]))
    named = re.fullmatch(r"(?:[A-ZÀ-Þ][\w.'’-]+\s?(?:and |und |et |y |e )?){1,4}", found[1])
    return found[0] if greets or english or named else ""


def people_of(talk: Talk) -> Sequence[Person]:
    """Everybody in the thread but the reader, each once."""
    seen = (p for m in talk.mails for p in (m.by, *m.to, *m.cc))
    return list(dict.fromkeys(p for p in seen if p.address != talk.reader.address))
