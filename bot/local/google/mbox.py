"""Read a mailbox from an mbox file of Google Takeout or another program. No message is lost."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import mktime_tz, parsedate_tz
from hashlib import sha256
from itertools import chain, pairwise
from pathlib import Path
from typing import BinaryIO

from bot.local.google.gmail_mime import (
    Headers,
    decode_words,
    every,
    first,
    message_id,
    references,
    split_headers,
)

_BOM = b"\xef\xbb\xbf"
_ADDRESS_SEPARATORS = re.compile(r"[\s<>;:()\[\]]+")
_NAME = re.compile(r'"[^"]*"')
_BARE = re.compile(rb"(?<!\r)\n")
_FIELD = re.compile(rb"[!-9;-~]+[ \t]*:")
_QUOTED_FROM = re.compile(rb">+From ")
_SENDER = re.compile(rb"From (?:-|\S+@\S+|MAILER[-_]DAEMON|nobody|root)(?=\s)", re.IGNORECASE)
_FROM_LINE_DATE = re.compile(
    rb"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),?\s+([A-Z][a-z]{2})\s+(\d{1,2})\s+(\d\d:\d\d(?::\d\d)?)\s+"
    rb"([A-Z]{3,4}\s+|[+-]\d{4}\s+)?(\d{4})(\s+[+-]\d{4})?"
)
_THREAD = re.compile(r"[0-9]{1,19}")
_DELETED = re.compile(r"[0-9a-f]{3}[89a-f]", re.IGNORECASE)
"""An `X-Mozilla-Status` with the flag 8: Thunderbird keeps a deleted mail until it compacts."""
_TAKEOUT_ID = re.compile(r"From (\d{15,19})@xxx ")
_TAKEOUT_HEADERS = re.compile(
    rb"(?:(?<=\n)|\A)X-(?:GM-THRID|Gmail-Labels):[^\n]*\n(?:[ \t][^\n]*\n)*", re.IGNORECASE
)
_YEARS = range(1971, 2101)
_OLDEST = datetime(1971, 1, 1, tzinfo=UTC)
MAX_HEADER = 20_000
"""Characters of a header that are searched for addresses."""
ARCHIVE_SIGNATURES = (
    b"\x1f\x8b",
    b"PK\x03\x04",
    b"BZh",
    b"\xfd7zX",
    b"7z\xbc\xaf",
    b"\x28\xb5\x2f\xfd",
)
"""First bytes of files made by gzip, zip, bzip2, xz, 7-Zip and Zstandard."""
ADDRESS_HEADERS = ("from", "to", "cc", "bcc", "delivered-to", "x-original-to")
DEFAULT_ADDRESS = "me@localhost"
"""The address of a mailbox that has none."""


class MboxError(Exception):
    """The file cannot be read as a mailbox; the text is one sentence that says why."""


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message of a mailbox, with the ids that Gmail would show."""

    id: str
    """16 hex digits, stable for a message of a file."""
    thread: str
    """`X-GM-THRID` as written in the file, so that it can be found there (Gmail's API shows the
    same number in hex); else the id of the conversation's first message."""
    at: datetime
    """Time of arrival, UTC."""
    raw: bytes
    """As sent (RFC 5322), with CRLF line ends and without Takeout's own headers."""
    labels: frozenset[str]
    """Ids of Gmail's own labels (`INBOX`), names of the user's."""


@dataclass(frozen=True, slots=True)
class Mailbox:
    """All messages of one address, in the order of their file."""

    address: str
    messages: tuple[StoredMessage, ...]
    problems: tuple[str, ...] = ()
    """Problems while reading, one sentence each; no message was left out because of them."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message as the file contains it."""

    raw: bytes
    """Its lines may end in CRLF or LF."""
    envelope: str = ""
    """The `From ` line above it; empty = none."""


def load_mbox(path: Path, me: str | None = None) -> Mailbox:
    """Load a mailbox from an mbox file; `me` is its address, None = the likeliest one.

    Raises MboxError if the file cannot be read, is empty or is not an mbox.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(4).startswith(ARCHIVE_SIGNATURES)  # a pipe cannot be read twice
            entries = [] if packed else list(read_mbox(file))
    except IsADirectoryError:
        raise MboxError(f"{path} is a folder. Give an mbox file.") from None
    except OSError as error:
        raise MboxError(f"{path.name or path} cannot be read: {error.strerror}.") from None
    if packed:
        raise MboxError(f"{path.name} is packed: unpack it first.")
    if not entries:
        raise MboxError(f"{path.name} is empty: it holds no message.")
    if not any(map(_is_mail, entries)):
        raise MboxError(f"{path.name} is not an mbox: no line of it begins a message with 'From '.")
    return mailbox_of(entries, me)


def _is_mail(entry: Entry) -> bool:
    """Return whether the line above it is a separator that does not occur in ordinary text."""
    dated = bool(_FROM_LINE_DATE.search(entry.envelope.encode()))
    return dated or bool(entry.envelope and split_headers(entry.raw)[0])


def read_mbox(file: BinaryIO) -> Iterator[Entry]:
    """Yield all messages of a file in order, including broken ones.

    A line `From ` begins a message if it follows a blank line and names a sender or a date in the
    form that mail systems use; otherwise it is text (RFC 4155 and the variants in qmail's mbox(5)).
    """
    envelope, lines, blank = b"", list[bytes](), True
    for line, following in pairwise(chain(file, (b"",))):
        line = line.removeprefix(_BOM) if not lines and not envelope else line
        if line.startswith(b"From ") and (
            _separates(line, following, blank) or not (envelope or b"".join(lines).strip())
        ):
            if envelope or b"".join(lines).strip():
                yield _entry(envelope, lines)
            envelope, lines, blank = line, [], False
            continue
        blank = not line.strip()
        lines.append(line[1:] if _QUOTED_FROM.match(line) else line)
    if envelope or b"".join(lines).strip():
        yield _entry(envelope, lines)


def _separates(line: bytes, following: bytes, blank: bool) -> bool:
    heads = bool(_FIELD.match(following))
    if _FROM_LINE_DATE.search(line):
        return blank or heads
    return blank and heads and bool(_SENDER.match(line))


def _entry(envelope: bytes, lines: list[bytes]) -> Entry:
    """Return one message without the blank line that separates it from the next one."""
    if lines and not lines[-1].strip(b"\r\n"):
        lines = lines[:-1]
    return Entry(b"".join(lines), envelope=envelope.decode("ascii", "replace").strip())


def mailbox_of(entries: Iterable[Entry], me: str | None = None) -> Mailbox:
    """Build a mailbox from messages, with threads, dates, labels and ids as Gmail assigns them."""
    entries = [replace(entry, raw=_BARE.sub(b"\r\n", entry.raw)) for entry in entries]
    halves = [split_headers(entry.raw) for entry in entries]
    heads = [headers for headers, _ in halves]
    address = (me or address_of(heads)).strip().lower()
    times, undated = _times(entries, heads)
    ids = _ids(entries)
    threads = _threads(heads, ids, times)
    messages = tuple(
        StoredMessage(
            ids[n],
            threads[n],
            times[n],
            _strip_takeout(entry.raw, halves[n][1]),
            _labels(heads[n], address),
        )
        for n, entry in enumerate(entries)
    )
    headless = [n for n, headers in enumerate(heads) if not headers]
    has_mail = me is None or any(address in addresses(every(h, *ADDRESS_HEADERS)) for h in heads)
    notes = () if has_mail else (f"No message is from or to {address}: --reader may be mistyped.",)
    return Mailbox(address, messages, (*notes, *_problems(undated, headless)))


def address_of(heads: Sequence[Headers]) -> str:
    """Return the likeliest owner of the mailbox.

    That is the most frequent sender of messages labelled as sent; else the address to which at
    least a tenth was delivered; else the most frequent recipient.
    """
    sent = [h for h in heads if "SENT" in takeout_labels(first(h, "x-gmail-labels"))]
    return (
        _most(sent, 1, "from")
        or _most(heads, len(heads) // 10 + 1, "delivered-to")
        or _most(heads, 1, "to")
        or _most(heads, 1, "cc")
        or DEFAULT_ADDRESS
    )


def _most(heads: Iterable[Headers], least: int, name: str) -> str:
    found = Counter(address for headers in heads for address in addresses(every(headers, name)))
    address, times = next(iter(found.most_common(1)), ("", 0))
    return address if times >= least else ""


def addresses(values: Iterable[str]) -> list[str]:
    """Return the addresses in these headers, in lower case, without those inside names.

    The standard library's parser fails on nested brackets (RecursionError).
    """
    parts = (part for value in values for part in _NAME.sub(" ", value[:MAX_HEADER]).split(","))
    found = (_ADDRESS_SEPARATORS.split(part.rpartition("<")[2]) for part in parts)
    return [word.lower() for words in found for word in words[:5] if "@" in word.strip("@")]


def _strip_takeout(raw: bytes, body: bytes) -> bytes:
    """Return the message without the headers that Takeout added."""
    cut = len(raw) - len(body)
    return _TAKEOUT_HEADERS.sub(b"", raw[:cut]) + body


def _labels(headers: Headers, address: str) -> frozenset[str]:
    if every(headers, "x-gmail-labels"):
        return takeout_labels(first(headers, "x-gmail-labels"))
    if _DELETED.fullmatch(first(headers, "x-mozilla-status")):
        return frozenset({"TRASH"})
    if address in addresses(every(headers, "from")):
        return frozenset({"SENT"})
    unread = "R" not in first(headers, "status")
    return frozenset({"INBOX", "UNREAD"} if unread else {"INBOX"})


def _ids(entries: Sequence[Entry]) -> list[str]:
    ids: dict[str, None] = {}
    for entry in entries:
        takeout_id = _TAKEOUT_ID.match(entry.envelope)
        id = f"{int(takeout_id[1]):016x}" if takeout_id else new_id(entry.raw)
        while id in ids or len(id) > 16:
            id = new_id(id.encode())
        ids[id] = None
    return list(ids)


def new_id(content: bytes) -> str:
    """Return 16 hex digits derived from these bytes; as a number they fit into 63 bits."""
    return f"{int(sha256(content).hexdigest()[:16], 16) >> 1:016x}"


def _threads(heads: Sequence[Headers], ids: Sequence[str], times: Sequence[datetime]) -> list[str]:
    """Return the id of each message's conversation.

    A message joins those that it refers to, even through messages that are missing. A message with
    an `X-GM-THRID` is in the thread of that number only. Gmail also compares subjects and people;
    those guesses are left out, because a wrong one hides a mail under another.
    """
    homes: dict[str, str] = {}
    keys = []
    for number, headers in enumerate(heads):
        refs = [id for id in (message_id(headers), *references(headers)) if id]
        thread = next((homes[id] for id in refs if id in homes), f"conversation {number}")
        gmail_thread = first(headers, "x-gm-thrid")
        keys.append(str(int(gmail_thread)) if _THREAD.fullmatch(gmail_thread) else thread)
        for id in refs:
            homes.setdefault(id, keys[-1])
    first_ids: dict[str, str] = {}
    for _, id, key in sorted(zip(times, ids, keys, strict=True), key=lambda each: each[0]):
        first_ids.setdefault(key, id)
    return [key if key.isdecimal() else first_ids[key] for key in keys]


def _times(entries: Sequence[Entry], heads: Sequence[Headers]) -> tuple[list[datetime], list[int]]:
    """Return each message's time of arrival, and the undated ones (they get a neighbour's time).

    Takeout writes Gmail's time of arrival above a message; a sender may write any date.
    """
    dates = [
        (_TAKEOUT_ID.match(e.envelope) and _envelope_date(e.envelope))
        or _date(first(h, "date"))
        or _envelope_date(e.envelope)
        for e, h in zip(entries, heads, strict=True)
    ]
    at = next((time for time in dates if time), _OLDEST)
    times = [at := time or at for time in dates]
    return times, [n for n, time in enumerate(dates) if time is None]


def _date(value: str) -> datetime | None:
    try:
        parsed = parsedate_tz(value[:200])
        at = datetime.fromtimestamp(mktime_tz(parsed), UTC) if parsed else None
    except (ValueError, TypeError, IndexError, OverflowError, OSError):  # all of these occur
        return None
    return at if at and at.year in _YEARS else None


def _envelope_date(envelope: str) -> datetime | None:
    """Return the time in a `From ` line: asctime's, with an offset before or after the year."""
    found = _FROM_LINE_DATE.search(envelope.encode())
    if not found:
        return None
    month, day, clock, before, year, after = (
        (each or b"").decode().strip() for each in found.groups()
    )
    return _date(f"{day} {month} {year} {clock} {before or after or '+0000'}")


def _problems(undated: Sequence[int], headless: Sequence[int]) -> tuple[str, ...]:
    return (
        *(f"Message {n + 1} has no date; it stands at its neighbour's." for n in undated),
        *(f"Message {n + 1} has no headers; all of it is its text." for n in headless),
    )


_LABEL_NAMES = """
INBOX: Inbox, Posteingang, Recibidos, Bandeja de entrada, Boîte de réception, Messages reçus,
 Posta in arrivo
SENT: Sent, Sent Mail, Gesendet, Enviados, Enviado, Messages envoyés, Envoyés, Posta inviata,
 Inviata, Inviati
DRAFT: Draft, Drafts, Entwürfe, Entwurf, Borrador, Borradores, Brouillon, Brouillons, Bozza, Bozze
SPAM: Spam, Junk, Junk-E-Mail, Correo no deseado, Courrier indésirable, Posta indesiderata
TRASH: Trash, Bin, Deleted, Papierkorb, Papelera, Corbeille, Cestino
UNREAD: Unread, Ungelesen, No leído, No leídos, Sin leer, Non lu, Non lus, Messages non lus,
 Da leggere, Non letto, Non letti
STARRED: Starred, Markiert, Destacado, Destacados, Suivis, Messages suivis, Suivi, Speciali,
 Speciale
IMPORTANT: Important, Wichtig, Importante, Importantes, Importanti
CATEGORY_PERSONAL: Category Personal, Kategorie: Persönlich, Categoría: Personal,
 Catégorie: Personnel
CATEGORY_SOCIAL: Category Social, Kategorie: Soziale Netzwerke, Categoría: Social,
 Catégorie: Réseaux sociaux
CATEGORY_PROMOTIONS: Category Promotions, Kategorie: Werbung, Categoría: Promociones,
 Catégorie: Promotions
CATEGORY_UPDATES: Category Updates, Kategorie: Benachrichtigungen, Categoría: Notificaciones,
 Catégorie: Notifications
CATEGORY_FORUMS: Category Forums, Kategorie: Foren, Categoría: Foros, Catégorie: Forums
CHAT: Chat, Chats
-: Opened, Geöffnet, Abierto, Abiertos, Ouvert, Ouverts, Messages ouverts, Aperto, Aperti,
 Archived, Archiviert, Archivado, Archivados, Archivé, Archivés, Messages archivés, Archiviato,
 Archiviati
"""
"""System label: its names in Takeout, in the languages of the product. The last row holds names
that are not labels in Gmail."""


def _label_table() -> dict[str, str]:
    rows = (row.partition(":") for row in _LABEL_NAMES.strip().replace("\n ", " ").splitlines())
    return {
        name.strip().casefold(): "" if label == "-" else label
        for label, _, names in rows
        for name in names.split(",")
    }


_KNOWN_LABELS = _label_table()


def takeout_labels(header: str) -> frozenset[str]:
    """Return the labels in an `X-Gmail-Labels`: ids of Gmail's own, names of the user's.

    Names with a comma are quoted, and a header with non-ASCII names is in encoded words.
    """
    text = " ".join(decode_words(header[:MAX_HEADER]).split())
    row = next(csv.reader([text], skipinitialspace=True), [])
    names = [name.strip() for name in row]
    return frozenset(_KNOWN_LABELS.get(name.casefold(), name) for name in names) - {""}
