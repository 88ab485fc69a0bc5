"""What the offline mind does with requests for a sweep or a triage: it calls the tool for it.

Of a sweep only a plain order counts: a verb, channels, and perhaps how far back. Whatever else a
request says makes it a question.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from bot.local.mind.calls import use
from bot.local.mind.hearing import Heard

_ADDRESSED: Final = re.compile(
    r"(?:\W*(?:<@[UW]\w+(?:\|[^>]*)?>|@\w+|hi|hello|hey|please|pls|(?:could|can|would) you|bitte"
    r"|hallo|kannst du|por favor|hola|puedes|s'il (?:te|vous) pla[iî]t|bonjour|peux-tu|per favore"
    r"|ciao|puoi)(?![\w-]))*\W*",
    re.IGNORECASE,
)
_VERBS: Final = {
    "en": r"sweep|scan|do a sweep of|run a sweep (?:of|over)|go through",
    "de": r"sweepe|scanne|sichte|pr[üu]fe?|durchforste|durchsuche|durchk[äa]mme|geh durch",
    "es": r"barre[rd]?|rastrea[r]?|revisa[r]?|repasa[r]?|escanea[r]?",
    "fr": r"balaie|balaye[rz]?|passe[rz]? en revue|parcour[sez]+|ratisse[rz]?",
    "it": r"passa(?:re)? in rassegna|setaccia(?:re)?|scansiona(?:re)?|ripassa(?:re)?|controlla",
}
_VERB: Final = re.compile(
    "|".join(rf"(?P<{language}>{verbs})" for language, verbs in _VERBS.items()) + r"(?![\w-])",
    re.IGNORECASE,
)
_CHANNEL: Final = re.compile(
    r"<#(?P<id>[CG][A-Z0-9]+)(?:\|[^>]*)?>|#(?P<name>[^\s#<>|,;:!?()\"']*[^\s#<>|,.;:!?()\"'])"
    r"|(?P<glob>(?:[\w-]+\*|\*)[\w*-]*)(?=[\s,.;!)]|$)|(?P<bare>\w+(?:-\w+)+)"
)
_COUNTS: Final = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10,
    "fourteen": 14, "couple of": 2, "ein": 1, "eine": 1, "zwei": 2, "drei": 3, "vier": 4,
    "sieben": 7, "zehn": 10, "vierzehn": 14, "dos": 2, "tres": 3, "cuatro": 4, "siete": 7,
    "diez": 10, "catorce": 14, "deux": 2, "trois": 3, "quatre": 4, "sept": 7, "dix": 10,
    "quatorze": 14, "due": 2, "tre": 3, "quattro": 4, "sette": 7, "dieci": 10, "quattordici": 14,
}  # fmt: skip
_UNITS: Final = (
    (r"days?|tage?n?|d[ií]as?|jours?|giorn[oi]|d", 1),
    (r"weeks?|wochen?|semanas?|semaines?|settiman[ae]|w", 7),
    (r"months?|monate?n?|mes(?:es)?|mois|mes[ei]", 30),
)
_COUNT: Final = rf"(?P<%s>\d{{1,3}}|{'|'.join(_COUNTS)})\s*"
_LAST: Final = (
    r"last|past|previous|letzte[nr]?|vergangene[nr]?|[úu]ltim[oae]s?|[úu]ltimi|pasad[oa]s?"
    r"|derni[eè]re?s?|pass[ée]e?s?|scors[aeio]"
)
_UNIT: Final = "|".join(rf"(?P<u{days}>{names})" for names, days in _UNITS)
_WINDOW: Final = re.compile(
    rf"(?:{_COUNT % 'before'})?(?P<last>{_LAST})\s+(?:{_COUNT % 'after'})?(?:{_UNIT})(?!\w)"
    rf"|(?P<bare>\d{{1,3}})\s*(?P<b1>days?|d)(?!\w)",
    re.IGNORECASE,
)
_FILL: Final = re.compile(
    r"(?:in|of|for|over|from|during|within|since|all|the|and|also|too|channels?|please|now|again|my"
    r"|our|die|der|den|das|dem|alle[nr]?|kan[äa]le?n?|und|sowie|bitte|von|aus|über|im|jetzt|seit"
    r"|los|las|el|la|lo|todos|todas|canal(?:es)?|y|e|de|del|en|por favor|ahora|desde"
    r"|les?|tous|toutes|canaux|salons?|et|des?|du|sur|depuis|maintenant"
    r"|i|il|gli|tutti|canali|canale|nei|nelle|dell[ae]|degli|di|da|ora|per favore)(?![\w*-])"
    r"|[\s,;.!?&+/()]+|d['’]|l['’]|s'il (?:te|vous) pla[iî]t",
    re.IGNORECASE,
)
_MAIL: Final = r"(?:in-?box|e-?mails?|mails?|mailbox|posteingang|correos?|bandeja|courriels?|posta)"
_TRIAGE: Final = re.compile(
    r"\W*(?:(?:hi|hello|hey|please|pls|could you|can you|would you|bitte|por favor)\W+)*"
    rf"(?:triage\s+(?:all\s+)?(?:of\s+)?(?:my|the)\s+(?:new\s+|unread\s+)?{_MAIL}\b"
    rf"|{_MAIL}\s+triage\W*(?:please\W*)?$)",
    re.IGNORECASE,
)
SWEEP, TRIAGE = "sweep_channels", "triage_inbox"
NOTHING_TO_ADD = "NONE"


@dataclass(frozen=True, slots=True)
class Turn:
    """Calls to make, or else what to say."""

    calls: tuple[dict[str, Any], ...] = ()
    text: str = ""


def turn(text: str, heard: Heard, free: bool) -> Turn | None:
    """The next turn of a request for a report; None where it asks for something else."""
    for exchange in heard.exchanges:
        if exchange.name in (SWEEP, TRIAGE):
            return Turn(text=exchange.text if exchange.is_error else NOTHING_TO_ADD)
    if not free:
        return None
    if TRIAGE in heard.tools and wants_triage(text):
        return Turn((use(TRIAGE),))
    asked = sweep_asked(text) if SWEEP in heard.tools else None
    if asked is None:
        return None
    days = {} if asked.days is None else {"since_days": asked.days}
    language = {} if asked.language == "en" else {"language": asked.language}
    return Turn((use(SWEEP, channels=list(asked.channels), **days, **language),))


def wants_triage(text: str) -> bool:
    """Whether a request asks for a triage of the requester's own mail, in so many words."""
    return _TRIAGE.match(text) is not None


@dataclass(frozen=True, slots=True)
class SweepAsked:
    """What a request for a sweep says."""

    channels: tuple[str, ...]
    """Ids, names without `#`, and patterns such as `csm-*`, as written."""
    days: int | None = None
    """How far back; None = as usual."""
    language: str = "en"


def sweep_asked(text: str) -> SweepAsked | None:
    """What a text asks to sweep; None where it asks for something else."""
    start = _ADDRESSED.match(text)
    at = start.end() if start else 0
    verb = _VERB.match(text, at)
    if not verb:
        return None
    channels, days, at = list[str](), None, verb.end()
    while at < len(text):
        if window := _WINDOW.match(text, at):
            days, found = _days(window), window
        elif channel := _CHANNEL.match(text, at):
            channels.append(channel["id"] or channel["name"] or channel["glob"] or channel["bare"])
            found = channel
        elif fill := _FILL.match(text, at):
            found = fill
        else:
            return None
        at = found.end()
    if not channels:
        return None
    return SweepAsked(tuple(dict.fromkeys(channels)), days, verb.lastgroup or "en")


def _days(window: re.Match[str]) -> int:
    said = window["before"] or window["after"] or window["bare"] or "1"
    count = int(said) if said.isdecimal() else _COUNTS[said.lower()]
    unit = next((days for _, days in _UNITS if window[f"u{days}"]), 1)
    return max(1, min(count * unit, 366))
