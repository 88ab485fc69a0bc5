"""Whether a request is about times to come: a schedule is set up, nothing is done at once."""

from __future__ import annotations

import re

_CHANNELS = re.compile(r"<#[^<>]*>|#[\w-]+|(?<![\w-])[\w-]*+\*")
"""Names that may hold any word; looked for once from each beginning, as a request may be long."""
_DAYS = (
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|montags?|dienstags?|mittwochs?|donnerstags?"
    r"|freitags?|samstags?|sonntags?|lunes|martes|miércoles|jueves|viernes|sábados?|domingos?"
    r"|lundis?|mardis?|mercredis?|jeudis?|vendredis?|samedis?|dimanches?"
    r"|lunedì|martedì|mercoledì|giovedì|venerdì|sabato|domenica"
)
_SPANS = (
    r"days?|weekdays?|workdays?|weeks?|months?|hours?|minutes?|mornings?|evenings?|afternoons?"
    r"|nights?|tag|werktag|woche|monat|stunde|morgen|abend|días?|semanas?|mes|horas?|mañanas?"
    r"|jours?|semaines?|mois|heures?|matins?|giorn[oi]|settiman[ae]|mes[ei]|or[ae]|mattin[ae]"
)
_EVERY = r"every|each|jede[nrsm]?|cada|todos los|todas las|chaque|tous les|toutes les|ogni|tutti i"
_RECURS = re.compile(
    rf"\b(?:(?:{_EVERY})\s+(?:other\s+|\d+\s+)?(?:{_SPANS}|{_DAYS})"
    rf"|on\s+(?:weekdays|(?:mon|tues|wednes|thurs|fri|satur|sun)days)"
    r"|daily|hourly|weekly|monthly|täglich|stündlich|wöchentlich|monatlich|werktags"
    r"|schedul(?:e|es|ed|ing)|diariamente|semanalmente|quotidiennement|settimanalmente"
    r"|(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s"
    r"|at\s+\d{1,2}(?:[:.]\d\d)?(?:\s*(?:am|pm|o['’]clock|sharp))?(?!\w|[:.]\d)"
    r"|um\s+\d{1,2}(?:[:.]\d\d)?\s*uhr|a\s+las\s+\d{1,2}|à\s+\d{1,2}\s*h|alle\s+(?:ore\s+)?\d{1,2}"
    r")(?!\w)",
    re.IGNORECASE,
)


def recurs(text: str) -> bool:
    """Whether the words name times at which something is to be done, or ask of a schedule."""
    return _RECURS.search(_CHANNELS.sub(" ", text)) is not None
