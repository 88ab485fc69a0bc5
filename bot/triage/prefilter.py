"""Threads that no model needs to see, told by headers alone: spam, bounces, programs, newsletters.

Two wrongs are not alike: a newsletter that is let through costs one cheap call, a person's mail
that is not costs the trust in the digest. So a rule that might meet a person's mail gives way.
What counts is what a header is defined to say (RFC 3834 Auto-Submitted, RFC 3464 and 5321 bounces,
RFC 2369 lists), not what a mail looks like; nothing that a stranger wrote stands in a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from scopes.mail import MailMessage, MailThread
from scopes.reduction.invite import METHODS

MAX_HEADER: Final = 2_000  # characters of one header that are looked at

SPAM: Final = "marked as spam"
DRAFTS: Final = "only drafts"
OWN: Final = "only your own mail"
BOUNCE: Final = "a delivery report (a bounce or a delay)"
REPLIED: Final = "an automatic answer (out of office)"
GENERATED: Final = "sent by a program, as it says itself"
NO_REPLY: Final = "from an address that takes no answers"
NOTICE: Final = "from an address for automatic notices"
NEWSLETTER: Final = "a newsletter or other mass mail"

_ADDRESS = re.compile(r"[^\s<>,;:\"()\[\]]+@[^\s<>,;\"()]+")
_MEANT = re.compile(r"<([^<>\s@]+@[^<>\s]+)>")
_REPLY = re.compile(
    r"\s*(?:\[[^\]]{1,60}\]\s*){0,3}"
    r"(?:re|aw|antw|antwort|sv|vs|odp|odg|ynt|rif|r|rép|res|ref|отв|回复|答复|回覆|返信|답장)"
    r"(?:\[\d+\])?\s*[:\uff1a]",
    re.I,
)
_NO_REPLY = re.compile(
    r"(?:^|[._+-])(?:no|not|do[._-]?not|dont|never)[._-]?(?:reply|replies|respond|answer)"
    r"|noreply|donotreply|nicht[._-]?antworten|keine[._-]?antwort|ne[._-]?pas[._-]?repondre"
    r"|(?:^|[._+-])no[._-]?responder|n[aã]o[._-]?respond|non[._-]?rispondere|niet[._-]?(?:be)?antwoord",
    re.I,
)
_NOTICES = frozenset(
    "alert alerts announcement announcements autoreply autoresponder bounce bounces"
    " newsflash newsletter newsletters notice notification notifications notify".split()
)
"""Last words of addresses that people seldom write from; `news`, `info`, `support` are not such."""
_SHARED = frozenset("ac co com edu gob gov govt ne net or org".split())
_LISTS = ("x-mailing-list", "mailing-list", "x-beenthere", "x-mailman-version", "x-ml-name")
"""Written by the software of lists where people talk, some older than List-Post."""
_LIST_SENDER = re.compile(r"owner-|.*-(?:owner|admin|request|bounces)(?:[+=].*)?$", re.I)
_INVITES = re.compile(rf"^(?:{'|'.join(METHODS.values())}): ", re.M)
"""How the reduction begins what it tells of a calendar object that somebody sent to somebody."""


def why_automatic(thread: MailThread, me: str) -> str | None:
    """Why nobody wrote this thread to `me` or nobody should answer it; None where somebody did.

    One message by a person keeps the whole thread, and what answers `me` is a person's unless it
    is a bounce or an automatic answer: a help desk sends what people write through programs.
    """
    sent = [m for m in thread.messages if "DRAFT" not in m.labels]
    if not sent:
        return DRAFTS
    reason, answered = OWN, False
    for message in sent:
        if _own(message, me):
            answered = True
            continue
        found = _certainly(message) or (None if answered else _probably(message))
        if found is None:
            return None
        reason = found
    return reason


def _own(message: MailMessage, me: str) -> bool:
    """Sent from this mailbox; web forms forge the reader's address, so the inbox is no proof."""
    if message.labels & {"SENT", "INBOX", "SPAM"}:
        return "SENT" in message.labels
    return _mailboxes(message.text.sender) == {_mailbox(me)} and not _asks_answers(message)


def _certainly(message: MailMessage) -> str | None:
    """What is automatic wherever it stands."""
    headers = message.headers
    if "SPAM" in message.labels:
        return SPAM
    if _is_bounce(message):
        return BOUNCE
    if _submitted(headers) == "auto-replied" or _word(headers, "precedence") == "auto_reply":
        return REPLIED
    if "x-autoreply" in headers or "x-autorespond" in headers:
        return REPLIED
    if "".join(headers.get("return-path", "").split()) != "<>":
        return None
    return REPLIED if _answers(headers) else BOUNCE


def _probably(message: MailMessage) -> str | None:
    """What is automatic where it answers nobody."""
    says_so = _submitted(message.headers) not in ("", "no")
    if _mass(message) and not _people_talk(message):
        return GENERATED if says_so else NEWSLETTER
    if _INVITES.search(message.text.body) or _asks_answers(message):
        return None
    if says_so:
        return GENERATED
    if _on_list(message.headers):
        return None
    if _named(message, _is_no_reply):
        return NO_REPLY
    return NOTICE if _named(message, _is_notice) and not _is_reply(message) else None


def _is_bounce(message: MailMessage) -> bool:
    headers = message.headers
    return (
        headers.get("content-type", "").lower().lstrip().startswith("multipart/report")
        or "x-failed-recipients" in headers
        or any(each.startswith("mailer-daemon@") for each in _mailboxes(message.text.sender))
    )


def _mass(message: MailMessage) -> bool:
    """Sent to many at once; Feedback-ID alone says only which service sent it (Amazon SES: all)."""
    headers = message.headers
    if "list-unsubscribe" in headers:
        return True
    if _word(headers, "precedence") in ("bulk", "junk"):
        return not _answers(headers)  # trackers write it on what people say in a ticket
    promoted = "CATEGORY_PROMOTIONS" in message.labels or _named(message, _is_notice)
    return "feedback-id" in headers and promoted


def _people_talk(message: MailMessage) -> bool:
    """What speaks against mass mail although it can be unsubscribed from: lists and web forms."""
    return _is_reply(message) or _on_list(message.headers) or _answered_elsewhere(message)


def _on_list(headers: Mapping[str, str]) -> bool:
    """On a list that people can write to; `List-Post: NO`, or a web page, is none (RFC 2369)."""
    if "mailto:" in headers.get("list-post", "").lower():
        return True
    senders = _mailboxes(headers.get("sender", "")) | _mailboxes(headers.get("errors-to", ""))
    return any(name in headers for name in _LISTS) or any(
        _LIST_SENDER.match(each.partition("@")[0]) for each in senders
    )


def _is_reply(message: MailMessage) -> bool:
    """By both signs: mass mail has a false `Re:` now and then, a program threads its notices."""
    return _answers(message.headers) and _REPLY.match(message.text.subject) is not None


def _answers(headers: Mapping[str, str]) -> bool:
    return "@" in headers.get("in-reply-to", "") or "@" in headers.get("references", "")


def _asks_answers(message: MailMessage) -> bool:
    """Asks for answers at another address that a person may read: web forms, help desks, invites.

    What calls itself automatic must also answer something, or ask for them outside its own domain.
    """
    if _submitted(message.headers) in ("", "no") or _is_reply(message):
        return bool(_answered_at(message))
    return _answered_elsewhere(message)


def _answered_elsewhere(message: MailMessage) -> bool:
    answered = {_domain(each) for each in _answered_at(message)}
    return bool(answered - {_domain(each) for each in _mailboxes(message.text.sender)})


def _answered_at(message: MailMessage) -> set[str]:
    """Where answers are wanted, other than at the sender's, and taken."""
    wanted = _mailboxes(message.headers.get("reply-to", "")) - _mailboxes(message.text.sender)
    return {each for each in wanted if not _is_no_reply(each)}


def _named(message: MailMessage, kind: Callable[[str], bool]) -> bool:
    """Whether every address that the message is from is of a kind."""
    senders = _mailboxes(message.text.sender)
    return bool(senders) and all(map(kind, senders))


def _is_no_reply(address: str) -> bool:
    return _NO_REPLY.search(address.partition("@")[0]) is not None


def _is_notice(address: str) -> bool:
    return re.split(r"[._+-]", address.partition("@")[0])[-1] in _NOTICES


def _submitted(headers: Mapping[str, str]) -> str:
    """The keyword of Auto-Submitted without its parameters and comments (RFC 3834, 5)."""
    return _word(headers, "auto-submitted")


def _word(headers: Mapping[str, str], name: str) -> str:
    return re.split(r"[;\s(]", headers.get(name, "").strip().lower(), maxsplit=1)[0]


def _mailboxes(value: str) -> set[str]:
    """Addresses in a header, compared as mail servers do; a name may hold one that is not meant."""
    value = value[:MAX_HEADER]
    return {_mailbox(each) for each in _MEANT.findall(value) or _ADDRESS.findall(value)}


def _mailbox(address: str) -> str:
    local, _, domain = address.strip().lower().rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}"


def _domain(address: str) -> str:
    """Whose address it is, near enough: two labels, three below `co.uk` and its like."""
    labels = address.rpartition("@")[2].split(".")
    return ".".join(labels[-3:] if labels[-2:-1] and labels[-2] in _SHARED else labels[-2:])
