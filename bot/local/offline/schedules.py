"""Set up, list, pause and delete schedules, as a plain order says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bot.local.offline.calls import use
from bot.local.offline.conversation import Conversation

TOOLS = frozenset({"schedule_create", "schedule_list", "schedule_pause", "schedule_delete"})
_DAY = re.compile(r"\b(mon|tues|wednes|thurs|fri|satur|sun)days?\b", re.IGNORECASE)
_AT = re.compile(r"\bat\s+(\d{1,2})(?::(\d\d))?\s*(am|pm)?\b", re.IGNORECASE)
_OFTEN = re.compile(r"\bevery\s+(\d{1,2})\s+minutes\b", re.IGNORECASE)
_SPANS = {
    "hour": re.compile(r"\b(?:hourly|every hour)\b", re.IGNORECASE),
    "day": re.compile(r"\b(?:daily|every (?:day|morning|evening))\b", re.IGNORECASE),
    "weekday": re.compile(r"\b(?:week|work)days?\b", re.IGNORECASE),
    "week": re.compile(r"\b(?:weekly|every week)\b", re.IGNORECASE),
    "month": re.compile(r"\b(?:monthly|every month)\b", re.IGNORECASE),
}
_TRIAGE = re.compile(r"\btriage\b.*?\b(?:in-?box|e?-?mails?|mailbox)\b", re.IGNORECASE)
_SWEEP = re.compile(r"\bsweep\b", re.IGNORECASE)
_DIRECT = re.compile(r"\b(?:dm|send|tell|message) me\b", re.IGNORECASE)
_POST = re.compile(r"\b(?:post|send|write|report)\b[^#]*?\b(?:to|in)\s+#?([\w-]+)", re.IGNORECASE)
_MAIL = re.compile(r"\bmail (?:it |them )?to\s+([^\s,;]+@[^\s,;]+\.\w+)", re.IGNORECASE)
_CHANNEL = re.compile(r"#?[\w-]*\*|#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_ZONE = re.compile(r"\b(?:[A-Z][A-Za-z]+/[A-Z]\w+|UTC)\b")
_TRACKER = re.compile(r"\bF[A-Z0-9]{6,}\b")
_NAMED = re.compile(r"\b(?:named|called)\s+['\"“]?([\w-]+)", re.IGNORECASE)
_DOLLARS = re.compile(r"\$(\d+(?:\.\d+)?)(?![\d.]| (?:a|per) month)")
_QUIET = re.compile(r"\bquiet\b", re.IGNORECASE)
_LIST = re.compile(
    r"\b(?:what(?:['’]s| is) scheduled|(?:list|show|which)\b.{0,20}\bschedules)", re.I
)
_CHANGE = re.compile(r"^\W*(?:please\s+)?(pause|resume|delete)\s+(.+)$", re.IGNORECASE | re.DOTALL)
_ABOUT = re.compile(r"\b(?:schedule|sweep|triage)s?\b", re.IGNORECASE)
_ASKS = re.compile(r"\W*(?:what|which|who|how|why|did|does)\b", re.IGNORECASE)
_ROW = re.compile(r"^\s*\[schedule/([^\]]+)\]\s+(.*)$", re.MULTILINE)
_WAITS = "needs approval"


@dataclass(frozen=True)
class Turn:
    """What is done next: calls of tools, or what is said."""

    calls: tuple[dict[str, Any], ...] = ()
    text: str = ""


def turn(text: str, talk: Conversation, free: bool) -> Turn | None:
    """Return the next turn of a request about schedules; None for any other one."""
    if not talk.tools >= TOOLS:
        return None
    done = [exchange for exchange in talk.exchanges if exchange.name in TOOLS]
    last = done[-1] if done else None
    if last and last.name != "schedule_list":
        waits = f"The schedule *{last.input.get('name', '')}*: it waits for your approval below."
        refused = f"That was not done: {last.text.strip()}"
        return Turn(text=waits if _WAITS in last.text else refused)
    listed = last.text if last else ""
    if _LIST.search(text):
        return Turn((use("schedule_list"),)) if free and not last else _listed(listed)
    if change := _CHANGE.match(text):
        return _changed(change[1].lower(), change[2], listed, free)
    wanted = _create(text) if free and not _ASKS.match(text) else None
    return Turn((use("schedule_create", **wanted),)) if wanted else None


def _listed(text: str, head: str = "") -> Turn:
    rows = [f"- {line}" for _, line in _ROW.findall(text)]
    note = re.sub(r"<(items-\w+)>.*?</\1>", "", text, flags=re.DOTALL).strip()
    return Turn(text="\n".join(part for part in (head, *rows, note) if part))


def _changed(verb: str, rest: str, listed: str, free: bool) -> Turn | None:
    """Change the schedule that is named, or the only one of its kind and hour in the list."""
    bare = re.sub(r"\b(?:the|my|schedule)\b|[^\w-]", " ", rest, flags=re.IGNORECASE).split()
    if len(bare) == 1 and not _ABOUT.fullmatch(bare[0]):
        return Turn((_change(verb, bare[0]),)) if free else None
    if not _ABOUT.search(rest):
        return None
    if not listed:
        return Turn((use("schedule_list"),)) if free else None
    hits = [name for name, line in _ROW.findall(listed) if _fits(rest, name, line)]
    if len(hits) == 1 and free:
        return Turn((_change(verb, hits[0]),))
    return _listed(listed, "Name the schedule, please:")


def _change(verb: str, name: str) -> dict[str, Any]:
    if verb == "delete":
        return use("schedule_delete", name=name)
    resume = {"resume": True} if verb == "resume" else {}
    return use("schedule_pause", name=name, **resume)


def _fits(rest: str, name: str, line: str) -> bool:
    """Return whether a line of the list is of the name, or of the kind and hour, that is said."""
    if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", rest):
        return True
    kinds = [kind for kind in ("sweep", "triage") if kind in rest.lower()]
    hour = re.search(r"\b(\d{1,2})(?::\d\d)?\s*(am|pm)?\b", rest, re.IGNORECASE)
    at = re.search(r"\bat (\d\d):\d\d \(", line)
    same = not hour or (at is not None and int(at[1]) == _hour(hour[1], hour[2]))
    return bool(kinds or hour) and same and all(f": {kind}" in line for kind in kinds)


def _create(text: str) -> dict[str, Any] | None:
    """Return the arguments of the schedule that the words describe; None where they lack some."""
    kind = "triage" if _TRIAGE.search(text) else "sweep" if _SWEEP.search(text) else ""
    cron = _cron(text)
    place, mail = _POST.search(text), _MAIL.search(text)
    to = f"#{place[1]}" if place and place[1] != "here" else "here"
    to = mail[1].rstrip(".") if mail else "dm" if _DIRECT.search(text) else to
    named = [c for c in _CHANNEL.findall(text) if c.lstrip("#") != to.lstrip("#")]
    channels = list(dict.fromkeys(named)) if kind == "sweep" else []
    if not kind or not cron or (kind == "sweep" and not channels):
        return None
    zone, tracker, dollars = _ZONE.search(text), _TRACKER.search(text), _DOLLARS.search(text)
    return {
        **{"name": _name(text, kind, channels), "kind": kind, "cron": cron, "to": to},
        **({"channels": channels} if channels else {}),
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
    """Return the crontab of the times that the words name; an empty text where they name none."""
    if (often := _OFTEN.search(text)) and int(often[1]) < 60:
        return f"*/{often[1]} * * * *"
    spans = {name for name, words in _SPANS.items() if words.search(text)}
    if "hour" in spans:
        return "0 * * * *"
    at = _AT.search(text)
    hour, minute = (_hour(at[1], at[3]), int(at[2] or 0)) if at else (9, 0)
    if "month" in spans:
        return f"{minute} {hour} 1 * *"
    days = [day[:3].lower() for day in _DAY.findall(text)] or (["mon"] if "week" in spans else [])
    if "weekday" in spans:
        days = ["mon-fri"]
    if not (days or at or spans):
        return ""
    return f"{minute} {hour} * * {','.join(dict.fromkeys(days)) or '*'}"


def _hour(hour: str, half: str | None) -> int:
    """Return the hour of a day: 12 am is midnight, 12 pm noon."""
    afternoon = (half or "").lower()
    return int(hour) % 12 + 12 * (afternoon == "pm") if afternoon else int(hour)
