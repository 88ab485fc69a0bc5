"""What the offline mind does with requests about schedules: set up, list, pause, delete."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bot.local.mind.hearing import Heard

TOOLS = frozenset({"schedule_create", "schedule_list", "schedule_pause", "schedule_delete"})
_DAYS = (
    ("mon", "monday mondays montag montags lunes lundi lundis lunedi lunedì"),
    ("tue", "tuesday tuesdays dienstag dienstags martes mardi mardis martedi martedì"),
    ("wed", "wednesday wednesdays mittwoch mittwochs miercoles miércoles mercredi mercoledì"),
    ("thu", "thursday thursdays donnerstag donnerstags jueves jeudi jeudis giovedì"),
    ("fri", "friday fridays freitag freitags viernes vendredi vendredis venerdì"),
    ("sat", "saturday saturdays samstag samstags sabado sábado samedi samedis sabato"),
    ("sun", "sunday sundays sonntag sonntags domingo dimanche dimanches domenica"),
)
_DAY = {word: short for short, words in _DAYS for word in words.split()}
_WORK = re.compile(
    r"\b(?:weekdays?|workdays?|werktags?|wochentags?|d[ií]as? laborables?|jours? ouvr\w+"
    r"|feriali)\b",
    re.IGNORECASE,
)
_AT = re.compile(
    r"\b(?:at|um|a las|à|alle(?: ore)?)\s+(\d{1,2})(?:[:.h](\d\d))?\s*(am|pm|uhr|h|o['’]clock)?\b",
    re.IGNORECASE,
)
_OFTEN = re.compile(r"\bevery\s+(\d{1,2})\s+minutes\b", re.IGNORECASE)
_HOURLY = re.compile(r"\b(?:hourly|every hour|stündlich|jede stunde|cada hora)\b", re.IGNORECASE)
_WEEKLY = re.compile(r"\b(?:weekly|every week|wöchentlich|jede woche|cada semana)\b", re.IGNORECASE)
_MONTHLY = re.compile(r"\b(?:monthly|every month|monatlich|jeden monat|cada mes)\b", re.IGNORECASE)
_DAILY = re.compile(
    r"\b(?:daily|every (?:day|morning|evening)|täglich|jeden (?:tag|morgen)|cada día"
    r"|todos los días|chaque (?:jour|matin)|tous les jours|ogni (?:giorno|mattina))\b",
    re.IGNORECASE,
)
_TRIAGE = re.compile(
    r"\btriage\b.*?\b(?:in-?box|e?-?mails?|mailbox|posteingang|correos?)\b", re.IGNORECASE
)
_SWEEP = re.compile(
    r"\b(?:sweep|go through|report on|durchsuch\w*|prüf\w*|revisa\w*|parcour\w*|controlla)\b",
    re.IGNORECASE,
)
_ALSO_DIRECT = re.compile(
    r"\b(?:dm me|(?:send|tell|message) me|direct message|schick mir|env[ií]ame|envoie-moi"
    r"|mandami)\b",
    re.IGNORECASE,
)
_POST = re.compile(
    r"\b(?:post|send|write|report|put|poste|publica|publie)\b[^#]*?\b(?:to|in|into|en|dans)\s+"
    r"#?([\w-]+)",
    re.IGNORECASE,
)
_MAIL = re.compile(r"\bmail (?:it |them )?to\s+([^\s,;]+@[^\s,;]+\.\w+)", re.IGNORECASE)
_CHANNEL = re.compile(r"#?[\w-]*\*|#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_ZONE = re.compile(r"\b(?:[A-Z][A-Za-z]+/[A-Z]\w+|UTC)\b")
_TRACKER = re.compile(r"\bF[A-Z0-9]{6,}\b")
_NAMED = re.compile(r"\b(?:named|called)\s+['\"“]?([\w-]+)", re.IGNORECASE)
_DOLLARS = re.compile(r"\$(\d+(?:\.\d+)?)(?![\d.]| (?:a|per) month)")
_QUIET = re.compile(r"\b(?:quiet|only (?:if|when) something is new)\b", re.IGNORECASE)
_LIST = re.compile(
    r"\b(?:what(?:['’]s| is| are)? (?:\w+ )?scheduled|(?:list|show|which|what)\b.{0,20}\bschedules"
    r"|was ist geplant|qu[eé] (?:hay|est[aá]) programado|cosa è programmato)\b",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"^\W*(?:please\s+|can you\s+|could you\s+)?"
    r"(pause|resume|unpause|delete|remove|cancel)\s+(.+)$",
    re.IGNORECASE | re.DOTALL,
)
_ABOUT = re.compile(r"\b(?:schedule|sweep|triage|report|digest)s?\b", re.IGNORECASE)
_FILLER = re.compile(
    r"(?<![\w-])(?:the|my|schedule|sweep|called|named|please)(?![\w-])", re.IGNORECASE
)
_ROW = re.compile(r"^\s*\[schedule/([^\]]+)\]\s+(.*)$", re.MULTILINE)
_WAITS = "needs approval"


@dataclass(frozen=True)
class Turn:
    """What is done next: calls of tools, or what is said."""

    calls: tuple[dict[str, Any], ...] = ()
    text: str = ""


def turn(text: str, heard: Heard, free: bool) -> Turn | None:
    """The next turn of a request about schedules; None for any other, or without the tools."""
    if not heard.tools >= TOOLS:
        return None
    done = [e for e in heard.exchanges if e.name in TOOLS]
    last = done[-1] if done else None
    if last and last.name != "schedule_list":
        return Turn(text=_came_of(last.text, str(last.input.get("name", ""))))
    if _LIST.search(text):
        ask = last is None and free
        return _use("schedule_list") if ask else Turn(text=_listed(last.text if last else ""))
    if change := _CHANGE.match(text):
        return _changed(change[1].lower(), change[2], last.text if last else "", free)
    wanted = _create(text) if free else None
    return _use("schedule_create", **wanted) if wanted else None


def _use(name: str, /, **arguments: Any) -> Turn:
    return Turn(({"type": "tool_use", "name": name, "input": arguments},))


def _came_of(text: str, name: str) -> str:
    if _WAITS in text:
        return f"The schedule *{name}*: it waits for your approval below."
    return f"That was not done: {text.strip()}"


def _listed(text: str) -> str:
    rows = [line for _, line in _ROW.findall(text)]
    note = re.sub(r"<(items-\w+)>.*?</\1>", "", text, flags=re.DOTALL).strip()
    return "\n".join([*(f"- {row}" for row in rows), note])


def _changed(verb: str, rest: str, listed: str, free: bool) -> Turn | None:
    """A schedule is named in one word, or told by its kind and hour among those that are listed."""
    bare = _FILLER.sub(" ", rest).strip(" .!?*'\"").split()
    one = bare[0] if len(bare) == 1 and re.fullmatch(r"[\w-]+", bare[0]) else ""
    if not one and not _ABOUT.search(rest):
        return None
    if one and not _ABOUT.fullmatch(one):
        return _change(verb, one) if free else None
    if not listed:
        return _use("schedule_list") if free else None
    hits = [name for name, line in _ROW.findall(listed) if _fits(rest, name, line)]
    if len(hits) == 1 and free:
        return _change(verb, hits[0])
    which = "Several schedules fit" if hits else "No schedule that you may change here fits"
    return Turn(text=f"{which}: name it, please.\n{_listed(listed)}")


def _change(verb: str, name: str) -> Turn:
    if verb in ("pause", "resume", "unpause"):
        return _use("schedule_pause", name=name, **({} if verb == "pause" else {"resume": True}))
    return _use("schedule_delete", name=name)


def _fits(rest: str, name: str, line: str) -> bool:
    """Whether a line of the list is of the kind, and at the hour, that the words say."""
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", rest):
        return True
    kinds = {kind for kind in ("sweep", "triage") if kind in rest.lower()}
    hour = re.search(r"\b(\d{1,2})(?::\d\d)?\s*(am|pm|o['’]clock|uhr)?\b", rest, re.IGNORECASE)
    cron = re.search(r"at '\S+ (\S+) ", line)
    same = not hour or (cron is not None and cron[1] == str(_hour(hour[1], hour[2])))
    return bool(kinds or hour) and same and all(f": {kind}" in line for kind in kinds)


def _create(text: str) -> dict[str, Any] | None:
    """The arguments of the schedule that the words describe; None where they describe none."""
    kind = "triage" if _TRIAGE.search(text) else "sweep" if _SWEEP.search(text) else ""
    cron = _cron(text)
    if not kind or not cron:
        return None
    place = _POST.search(text)
    to = _mail(text) or ("dm" if _ALSO_DIRECT.search(text) else "")
    to = to or (f"#{place[1]}" if place and place[1] not in ("here", "hier") else "here")
    named = [c for c in _CHANNEL.findall(text) if c.lstrip("#") != to.lstrip("#")]
    channels = list(dict.fromkeys(named)) if kind == "sweep" else []
    if kind == "sweep" and not channels:
        return None
    given = {"name": _name(text, kind, channels), "kind": kind, "cron": cron, "to": to}
    return {**given, **({"channels": channels} if channels else {}), **_more(text)}


def _mail(text: str) -> str:
    found = _MAIL.search(text)
    return found[1].rstrip(".") if found else ""


def _more(text: str) -> Mapping[str, Any]:
    zone, tracker = _ZONE.search(text), _TRACKER.search(text)
    dollars = _DOLLARS.search(text)
    return {
        **({"zone": zone[0]} if zone else {}),
        **({"tracker": tracker[0]} if tracker else {}),
        **({"budget_usd": float(dollars[1])} if dollars else {}),
        **({"quiet": True} if _QUIET.search(text) else {}),
    }


def _name(text: str, kind: str, channels: list[str]) -> str:
    if named := _NAMED.search(text):
        return named[1].lower()
    about = re.sub(r"[^a-z0-9]+", "-", channels[0].lower()).strip("-") if channels else ""
    return "-".join(part for part in (kind, about) if part)[:40]


def _cron(text: str) -> str:
    """The crontab of the times that the words name; empty where they name none."""
    if often := _OFTEN.search(text):
        return f"*/{often[1]} * * * *"
    at = _AT.search(text)
    if _HOURLY.search(text):
        return "0 * * * *"
    hour, minute = (_hour(at[1], at[3]), int(at[2] or 0)) if at else (9, 0)
    words = re.findall(r"\w+", text.lower())
    days = [_DAY[word] for word in words if word in _DAY]
    if _WORK.search(text):
        days = ["mon-fri"]
    elif _WEEKLY.search(text) and not days:
        days = ["mon"]
    if _MONTHLY.search(text):
        return f"{minute} {hour} 1 * *"
    if not (days or at or _DAILY.search(text)):
        return ""
    return f"{minute} {hour} * * {','.join(dict.fromkeys(days)) or '*'}"


def _hour(hour: str, half: str | None) -> int:
    """The hour of a day: 12 am is midnight, 12 pm noon."""
    said = (half or "").lower()
    if said in ("am", "pm"):
        return int(hour) % 12 + (12 if said == "pm" else 0)
    return int(hour)
