"""Read plain orders: what to keep, write or compute; any other order is not carried out."""

import ast
import re
from dataclasses import dataclass
from typing import Any

from bot.local.offline.conversation import OFFLINE
from bot.local.offline.words import fold

NOT_DONE = (
    "The offline rules carry out no such order; nothing was changed",
    "They keep a note («Note that ...») and write a file («Write a file NAME with the text ...»).",
)
"""What is said of an order that is not done: why, and what else there is to say."""
NO_SOURCE = (
    "The offline rules have nothing to read this in",
    "No database, folder, mailbox, page or workspace is given, and no note tells of it.",
)
NO_SEARCH = ("The offline rules cannot search the web", "They read the pages that a request names.")
_POLITE = (
    r"^\W*(?:(?:please|kindly|now|then|also|just|(?P<asks>can|could|would|will) you"
    r"|i want you to|and) +)*"
)
_VERBS = (
    "add|append|apply|approve|archive|assign|attach|book|build|buy|call|cancel|change|clean|clear"
    "|close|commit|configure|convert|copy|correct|create|cut|delete|deploy|disable|discard|dm"
    "|download|draft|draw|drop|edit|enable|execute|export|extend|fix|forward|generate|implement"
    "|improve|insert|install|invite|keep|make|mark|memorize|merge|migrate|modify|move|note|notify|paint"
    "|pay|plot|post|print|publish|push|put|redact|refactor|remember|remind|remove|rename|reorder"
    "|replace|reply|reschedule|reset|restart|restore|revert|rewrite|run|save|schedule|send|store"
    "|submit|subscribe|transfer|translate|uninstall|unsubscribe|update|upload|write|write down"
)
_ORDER = re.compile(rf"{_POLITE}(?:{_VERBS})\b(?! (?:on|about)\b)", re.IGNORECASE)
_TOLD = re.compile(
    rf"{_POLITE}(?:make|create|write|draft|generate|build|keep) (?:me )?(?:an? |the )?"
    r"(?:[\w-]+ ){0,3}?(?:list|summary|overview|comparison|digest|report)\b(?!\.)",
    re.IGNORECASE,
)
"""It asks for an answer: what is written is what is told."""
_KEEP = re.compile(
    rf"{_POLITE}(?:(?:keep|save|make|take|write|add|store)(?: down)?(?: me| an?| this| the| as| my"
    r"| own| short| new)* notes?(?: down)?(?:[ :,]+(?:that|of|about)\b)?"
    r"|(?:remember|note|memorize|keep in mind|write down)"
    r"(?: down)?(?: this| the following)?(?:,? that\b)?)[:,]? +(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_NO_NOTE = re.compile(
    r"(?:what|when|who|how|where|why|if|whether|to|called|named|titled)\b", re.IGNORECASE
)
_WRITE = re.compile(
    rf"{_POLITE}(?:write|create|make|add|save|put)(?: me)?(?: an?| the| new| small| short| text)*"
    r"(?: file)?(?: called| named)? +[`'\"]?(?P<path>[\w./-]*\.\w+)[`'\"]?,? *"
    r"(?:with (?:the |this )?(?:text|content|contents|words?|line)|containing|that (?:says|contains"
    r"|reads)|which (?:says|contains|reads)|saying)(?: is| of)?:? +(?P<text>\S.*)",
    re.IGNORECASE | re.DOTALL,
)
_AFTER = re.compile(
    r"(?:,? *(?:and|then)+ (?:then )?(?:commit|push|verify|check|read)\b[^.]*)\.?\s*$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"""^(["'`“«„])(.*?)(["'`”»“])[\s.]*$""", re.DOTALL)
_SUM = re.compile(
    r"^(?:please )?(?:what is|what's|how much is|compute|calculate)?:? *"
    r"(?P<sum>[\d(.-][\d\s.,()+*/\u00d7\u00f7-]*(?:(?:percent|%) of [\d.,]+)?)\s*=?\s*\??$",
    re.IGNORECASE,
)
_SHARE = re.compile(r"([\d.]+) *(?:percent|%) *of *([\d.]+)", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_LONGEST = 200
"""Characters of a sum."""
_OPERATORS = (ast.Add, ast.Sub, ast.Mult, ast.Div)


@dataclass(frozen=True)
class Writing:
    """A file to be written, letter by letter."""

    path: str
    text: str


def is_order(task: str) -> bool:
    """Return whether a task is to do something, and not to find out or tell something."""
    found = _ORDER.match(fold(task).replace("`", "")) or _ORDER.match(task)
    asks = task.rstrip().endswith("?") and not (found and found["asks"])
    return bool(found) and not asks and not _TOLD.match(task)


def to_keep(task: str) -> str:
    """Return the text of the note that a task wants kept; empty where it wants none."""
    found = _KEEP.match(task.strip())
    if not found or _NO_NOTE.match(found["text"]) or (task.endswith("?") and not found["asks"]):
        return ""
    return found["text"].rstrip("? \n") if found["asks"] else found["text"].strip()


def to_write(task: str) -> Writing | None:
    """Return the file that a task gives with its whole text."""
    found = _WRITE.match(task.strip())
    if not found:
        return None
    text = _AFTER.sub("", found["text"]).strip()
    quoted = _QUOTED.match(text)
    return Writing(found["path"], f"{quoted[2] if quoted else text}\n")


def sum_in(task: str) -> str:
    """Return the sum that is all a task asks for, as Python reads it; else empty."""
    found = _SUM.match(task.strip())
    if not found or len(task) > _LONGEST or _DATE.search(task):
        return ""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", found["sum"])
    text = text.replace("\u00d7", "*").replace("\u00f7", "/")
    text = _SHARE.sub(r"\1 * \2 / 100", text).strip()
    try:
        parts = list(ast.walk(ast.parse(text, mode="eval").body))
    except SyntaxError:
        return ""
    sums = [part for part in parts if isinstance(part, ast.BinOp)]
    plain = not any(isinstance(part, ast.Call | ast.Tuple) for part in parts)
    return text if sums and plain and all(isinstance(s.op, _OPERATORS) for s in sums) else ""


def open_end(why: str, more: str = "") -> dict[str, Any]:
    """Return the result of a task that was not done, with the reason as what it lacks."""
    text = " ".join(part for part in (f"{why}.", more, OFFLINE) if part)
    return {"text": text, "findings": [], "not_covered": [], "needs": why}
