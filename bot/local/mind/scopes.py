"""Which scope a piece of a request needs, by the handles that its parent holds and by words."""

import re
from dataclasses import dataclass

from bot.local.mind.cues import asked_for, fold
from bot.local.mind.hearing import Heard
from bot.local.mind.orders import sum_in, to_keep, to_write

_HANDLE = re.compile(r"(?<![\w:])((?:data|files|notes|mail|web):[\w.-]+)(?: \(([^()]*)\))?")
_FACTS = re.compile(r"^(?:MAIL|NOTES|DATA|WEB|FILES): ", re.MULTILINE)
URL = re.compile(r"https?://[^\s<>|]+[^\s<>|.,;:!?)]")
_CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b|/archives/")
_SLACK = re.compile(r"\b(?:slack|channels?|threads?)\b")
_WORDS = {
    "web": r"web|internet|online|website|look up",
    "email": r"e-?mails?|mails|mail|inbox|mailbox",
    "notes": r"notes?|remember|asked before|(?:earlier|past) conversations?",
    "files": r"\w+\.(?:py|md|toml|txt|cfg)|py files?|files?|folders?|checkout"
    r"|repositor(?:y|ies)|repo|framework|codebase|modules?|functions?|articles?",
    "data": r"select .*\bfrom|how many|how much|total|sum|average|mean|top \d+|number of|count"
    r"|revenue|orders?|sales|refund(?:s|ed)?|distinct|databases?|tables?|query|amount|highest|largest|lowest|biggest"
    r"|most|per (?:month|week|day|year|market|country|customer)|list of",
}
"""Scope -> what is said of things in it; the first one that fits counts."""
_MAKES = re.compile(r"\b(?:writ\w+|creat\w+|draft\w*|mak\w+)\b.*\b(?:files?|modules?|articles?)\b")
_NUMBERED = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+(?=\S)")
_ASKS = re.compile(
    r"(?:,|;)\s+(?:and\s+)?(?=(?:what|which|who|how|where|when|list|find|write|summari[sz]e)\b)"
    r"|\s+and\s+(?=(?:what|which|who|how (?:many|much))\b)",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.?!])\s+(?=[A-Z\"'(¿¡])")
_GOES_ON = re.compile(
    r"^(?:return|note|represent|consider|use|then|and|also|it|answer"
    r"|(?:draw|plot|keep|save|export|show) (?:it|them|this))\b",
    re.I,
)
_FEW = 4
"""Fewer words than these are no question of their own."""


@dataclass(frozen=True)
class Piece:
    """A part of a request that one scope can answer."""

    text: str
    scope: str
    handles: tuple[str, ...] = ()
    """Empty for Slack, whose places are found by name."""


def pieces(request: str, heard: Heard) -> list[Piece]:
    """The parts of a request by scope; none where all of it is for Slack."""
    held = _held(heard)
    if not held:
        return []
    found = [_piece(text, held, heard) for text in _parts(request, held, heard)]
    return found if any(piece.scope != "slack" for piece in found) else []


def _held(heard: Heard) -> dict[str, str]:
    """Handles of the facts -> titles."""
    told = "\n".join(heard.told).partition("\nFENCE:")[2]
    lines = [line for line in told.splitlines() if _FACTS.match(line)]
    return {k: v for line in lines for k, v in _HANDLE.findall(line)}


def _parts(request: str, held: dict[str, str], heard: Heard) -> list[str]:
    if len(_NUMBERED.findall(request)) > 1:
        return [part.strip() for part in _NUMBERED.split(request) if part.strip()]
    found: list[str] = []
    for sentence in _SENTENCE.split(request.strip()):
        asks = found and found[-1].endswith("?")
        if found and (_GOES_ON.match(sentence) or not (asks and _begins(sentence))):
            found[-1] = f"{found[-1]} {sentence}"
        else:
            found.append(sentence)
    return [part for each in found for part in _halves(each, held, heard)]


def _begins(sentence: str) -> bool:
    """Whether a sentence after a question is a request of its own."""
    return sentence.rstrip().endswith("?") or len(sentence.split()) >= _FEW


def _halves(text: str, held: dict[str, str], heard: Heard) -> list[str]:
    """The clauses of a sentence, where they are for different scopes."""
    parts: list[str] = []
    start = 0
    for found in _ASKS.finditer(text):
        if len(text[found.end() :].split()) >= _FEW and found.start() > start:
            parts.append(text[start : found.start()])
            start = found.end()
    parts.append(text[start:])
    scopes = [scope_of(part, held, heard) for part in parts]
    return parts if len(set(scopes)) == len(scopes) > 1 else [text]


def _piece(text: str, held: dict[str, str], heard: Heard) -> Piece:
    scope = scope_of(text, held, heard)
    return Piece(text, scope, tuple(_handles(scope, text, held)))


def scope_of(text: str, held: dict[str, str], heard: Heard) -> str:
    """The scope that a piece needs, of those that something is held for."""
    folded = " ".join(text.lower().split())
    reads_slack = "list_channels" in heard.tools
    if to_keep(text) and any(handle.startswith("notes:") for handle in held):
        return "notes"
    if sum_in(text) and any(handle.startswith("web:") for handle in held):
        return "web"
    if reads_slack and (_CHANNEL.search(text) or _SLACK.search(folded)):
        return "slack"
    if URL.search(text):
        return "web"
    makes = bool(_MAKES.search(folded)) or to_write(text) is not None
    kinds = {"mail": "email"}
    open_ones = {kinds.get(h.partition(":")[0], h.partition(":")[0]) for h in held}
    if set(held) & {"files:run"} == {h for h in held if h.startswith("files:")}:
        open_ones -= set() if makes else {"files"}
    said = [scope for scope in _WORDS if says(scope, text)]
    if reads_slack and asked_for(fold(text)) - {"act", "open"} and "email" not in said:
        return "slack"
    if "files" in open_ones and makes:
        return "files"
    if fits := [scope for scope in said if scope in open_ones]:
        return fits[0]
    given = [scope for scope in ("data", "files", "email") if scope in open_ones]
    if reads_slack or _CHANNEL.search(text):
        return "slack"
    return next(iter(given), "notes" if "notes" in open_ones else "slack")


def says(scope: str, text: str) -> bool:
    """Whether a text names what a scope is for."""
    folded = " ".join(text.lower().split())
    return re.search(rf"(?<!\w)(?:{_WORDS[scope]})(?!\w)", folded) is not None


def _handles(scope: str, text: str, held: dict[str, str]) -> list[str]:
    """What a subagent of that scope is given."""
    if scope == "slack":
        return []
    if scope == "web":
        return [*dict.fromkeys(URL.findall(text)), *(h for h in held if h.startswith("web:"))]
    prefix = {"email": "mail:"}.get(scope, f"{scope}:")
    own = [h for h in held if h.startswith(prefix)]
    named = [h for h in own if re.search(rf"\b{re.escape(held[h] or h[len(prefix) :])}\b", text)]
    if scope == "data":
        own = named or own
    if scope == "files":
        own = (named or [h for h in own if h != "files:run"] or own)[:1]
    notes = [h for h in held if h.startswith("notes:")]
    wants_notes = scope == "files" and re.search(
        r"\b(?:notes?|article|conversations?)\b", text.lower()
    )
    return own + (notes if wants_notes else [])
