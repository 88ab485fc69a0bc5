"""What a mail thread is about: its facts verbatim, its category, what of it is urgent."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from bot.local.mind.cues import fold, topics_of
from bot.local.mind.mail_asks import CALENDAR, HEADER, Ask
from bot.local.mind.mail_cues import asks, has, sentences, topics, words
from bot.local.mind.mail_dates import deadlines
from bot.local.mind.mail_read import Mail, Talk, without_hail
from bot.local.mind.search import keywords, prefixes

MAX_FACTS = 4
FACT_CHARS = 200
"""Characters of a fact; a longer sentence is cut at a word."""
_FEW = 4
"""Words that a sentence has at least to tell something."""
_TELLING = 1.0
"""Weight of a fact from which it is told beside the first."""
_BYE = 7
"""Most words of a greeting at the end with the name below it."""
_READ = 60
"""Sentences of a mail that are read for facts."""
_AMOUNT = re.compile(r"[€$£¥]|\b(?:EUR|CHF|USD|GBP|Euro?s?|euros?)\b|\d\s?%")
_KEY = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_DATED = re.compile(r"\b\d{1,2}[./:]\d\d\b|\b\d{4}-\d\d-\d\d\b|\b\d{1,2}(?:st|nd|rd|th)?\b")
_STARTS = re.compile(r"Calendar invitation: .*?; from (\d{4}-\d\d-\d\d)")
CONCEPTS: Mapping[str, str] = {
    "customer": "customer|client|prospect|kunde|cliente",
    "colleague": "colleague|own company|internal|team|kolleg",
    "invoice": "invoice|bill|payment|contract|finance|rechnung|factura|facture|fattura",
    "meeting": "meeting|calendar|appointment|date|termin|reunion|riunione",
    "news": "news|newsletter|tells|fyi|information",
    "personal": "personal|private|family|privat",
    "other": "other|none|rest|misc",
}
"""What the rules can tell apart, and the words by which a configured category is known for it."""


@dataclass(frozen=True)
class Due:
    """A deadline and the mail that states it."""

    day: date
    mail: Mail


def due(talk: Talk) -> Due | None:
    """The deadline that was stated last, by somebody else than the reader; the first of several.

    What is due of an invitation is an answer before it begins.
    """
    for mail in reversed(talk.mails):
        if mail.own:
            continue
        days = [date.fromisoformat(day) for day in _STARTS.findall(mail.text)]
        days += [
            day
            for sentence in mail.sentences
            for day in deadlines(
                sentence, talk.language, mail.on, asks=asks(sentence, talk.language)
            )
        ]
        if days:
            return Due(min(days), mail)
    return None


def facts(talk: Talk, open_asks: Sequence[Ask]) -> list[tuple[str, Mail]]:
    """The statements that tell most, verbatim, each with its mail; questions where it has no other.

    What is asked and still open is told elsewhere.
    """
    asked = {ask.text for ask in open_asks}
    told = [fact for fact in _told(talk) if fact[2] not in asked]
    stated = [fact for fact in told if not fact[2].endswith("?")] or told
    best = sorted(stated, key=lambda each: -each[0])[:MAX_FACTS]
    rest = sorted((fact for fact in best[1:] if fact[0] >= _TELLING), key=_order)
    found = {_short(text): mail for _, _, text, mail in [*best[:1], *rest]}
    last = open_asks[-1:] or [Ask(talk.subject or "(no text)", talk.mails[0])]
    return list(found.items()) or [(_short(ask.text), ask.mail) for ask in last]


def _told(talk: Talk) -> Iterator[tuple[float, int, str, Mail]]:
    """The sentences of all mails that may tell something: weight, place, text, mail."""
    place = 0
    for mail in talk.mails:
        for at, sentence in enumerate([*mail.sentences, *sentences(mail.forwarded)][:_READ]):
            said = without_hail(sentence, talk.language)
            if has("machine", fold(said)):
                break
            if len(said.split()) < _FEW or HEADER.search(said) or _ends(said, talk.language):
                continue
            early = 0.5 if at == 0 else -at / 100
            yield _weight(said) + early - (0.5 if mail.own else 0), place, said, mail
            place += 1


def _ends(sentence: str, language: str) -> bool:
    """Whether a sentence is but the end of a mail: a greeting and a name."""
    parts = sentence.split()
    bye = words(language, "bye").match(fold(sentence))
    names = sum(part[0].isupper() for part in parts)
    return len(parts) <= _BYE and (bye is not None or names * 2 > len(parts))


def _order(fact: tuple[float, int, str, Mail]) -> int:
    return fact[1]


def _weight(sentence: str) -> float:
    """How much a sentence tells: what is wrong, amounts, ticket numbers, dates."""
    folded = fold(sentence)
    return (
        2.5 * has("trouble", folded)
        + 1.5 * bool(topics(sentence) & {"outage", "twice"})
        + 1.5 * bool(_AMOUNT.search(sentence))
        + 1.5 * bool(_KEY.search(sentence))
        + 1.0 * bool(CALENDAR.search(sentence))
        + 0.5 * bool(_DATED.search(sentence))
        + 0.5 * bool(topics_of(folded))
        + 0.2 * min(3, len(re.findall(r"(?<=[a-zà-ÿ,] )[A-ZÀ-Þ]\w+", sentence)))
    )


def _short(text: str) -> str:
    return text if len(text) <= FACT_CHARS else text[:FACT_CHARS].rsplit(" ", 1)[0] + "…"


def category(talk: Talk, named: Mapping[str, str], asked: bool) -> str:
    """The category that fits best of those named (name -> when); `other` where none are."""
    if not named:
        return "other"
    whole = fold(f"{talk.subject} . " + " . ".join(m.text for m in talk.mails if not m.own))
    homes = {concept: _home(concept, named) for concept in CONCEPTS}
    for name, when in named.items():
        if name not in homes.values() and _fits(f"{name} {when}", whole):
            return name
    for concept in _concepts(talk, whole, asked):
        if home := homes[concept]:
            return home
    return homes["other"] or list(named)[-1]


def _home(concept: str, named: Mapping[str, str]) -> str:
    """The category that stands for a concept: by its name, else by when it applies."""
    known = re.compile(rf"(?<!\w)(?:{CONCEPTS[concept]})")
    by_name = [name for name in named if known.search(fold(name))]
    by_words = [name for name, when in named.items() if known.search(fold(when))]
    exact = [name for name in named if fold(name) == concept]
    return next(iter([*exact, *by_name, *(n for n in by_words if fold(n) not in CONCEPTS)]), "")


def _fits(told: str, folded: str) -> bool:
    """Whether a text holds the words that a category of the user's own is told by."""
    wanted, _ = keywords(told)
    return len(wanted & prefixes(folded)) >= min(2, max(1, len(wanted)))


def _concepts(talk: Talk, whole: str, asked: bool) -> list[str]:
    """What a thread may be, the likeliest first."""
    subject, ours = fold(talk.subject), _is_ours(talk)
    bill = has("bill", subject) or (has("bill", whole) and bool(_AMOUNT.search(whole)))
    meets = bool(CALENDAR.search(" ".join(m.text for m in talk.mails)))
    me = talk.reader.address
    direct = any(p.address == me for m in talk.mails for p in (*m.to, *m.cc))
    answered = any(m.own for m in talk.mails)
    found = []
    if any(has("machine", fold(m.text)) for m in talk.mails):
        return ["other"]
    if meets or (has("meet", subject) and not has("trouble", whole)):
        found.append("meeting")
    if bill and not ours and not _complains(talk):
        found.append("invoice")
    if has("dear", whole) and not ours and not has("money", whole):
        found.append("personal")
    if (
        has("meet", whole)
        and (asked or answered)
        and not has("trouble", whole)
        and not has("money", whole)
    ):
        found.append("meeting")
    if ours:
        found.append("colleague")
    elif not asked and not has("trouble", whole) and has("tells", whole):
        found.append("news")
    elif direct and (asked or answered or has("trouble", whole) or _greeted(talk)):
        found.append("customer")
    return [*found, "news" if direct and not asked else "other", "other"]


def _greeted(talk: Talk) -> bool:
    """Whether somebody writes to the reader by name."""
    heads = fold(" ".join(m.text[:60] for m in talk.mails if not m.own))
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", heads) for name in talk.reader.names)


def _is_ours(talk: Talk) -> bool:
    domain = talk.reader.domain
    return bool(domain) and any(m.by.domain == domain and not m.own for m in talk.mails)


def _complains(talk: Talk) -> bool:
    """Whether somebody has trouble with what we charged, instead of charging us."""
    said = fold(" ".join(m.text for m in talk.mails if not m.own))
    ours = any(name in said for name in ("iban", "amount due", "zahlungserinnerung", "uberweis"))
    return has("trouble", said) and not ours


def is_grave(talk: Talk) -> bool:
    """Whether an outage, lost money, or a customer who threatens to leave is told of."""
    said = fold(" ".join([talk.subject, *(m.text for m in talk.mails if not m.own)]))
    return has("quit", said) or "outage" in topics(said)


def is_urgent(talk: Talk) -> bool:
    """Whether the last mails call it urgent."""
    said = fold(" ".join([talk.subject, *(m.text for m in talk.mails[-2:] if not m.own)]))
    return has("urgent", said)


def cancelled(talk: Talk) -> bool:
    """Whether the last word is the cancellation of a meeting."""
    return "Calendar cancellation" in talk.mails[-1].text


def invited(talk: Talk) -> bool:
    """Whether the last word is an invitation that can be accepted."""
    return "Calendar invitation" in talk.mails[-1].text
