"""Filter threads that no model needs to see, by headers alone: spam, bounces, newsletters.

The two errors differ: a newsletter that passes costs one cheap call, a person's mail that is
filtered costs the trust in the digest. So a rule that might match a person's mail does not apply.
Only the defined meaning of a header counts (RFC 3834 Auto-Submitted, RFC 3464 and 5321 bounces,
RFC 2369 lists), not the look of a mail; reasons contain no text of strangers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from scopes.mail import INVITATIONS, MailMessage, MailThread

MAX_HEADER: Final = 2_000  # characters of one header that are examined

SPAM: Final = "filter.spam"
TRASH: Final = "filter.trash"
DRAFTS: Final = "filter.drafts"
OWN: Final = "filter.own"
BOUNCE: Final = "filter.bounce"
AUTO_REPLY: Final = "filter.replied"
GENERATED: Final = "filter.generated"
NO_REPLY: Final = "filter.no_reply"
NOTICE: Final = "filter.notice"
NEWSLETTER: Final = "filter.newsletter"

_ADDRESS = re.compile(r"[^\s<>,;:\"()\[\]]+@[^\s<>,;\"()]+")
_BRACKETED_ADDRESS = re.compile(r"<([^<>\s@]+@[^<>\s]+)>")
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
"""Last words of addresses that people rarely write from; `news`, `info`, `support` are excluded."""
_SHARED_DOMAINS = frozenset("ac co com edu gob gov govt ne net or org".split())
_LISTS = ("x-mailing-list", "mailing-list", "x-beenthere", "x-mailman-version", "x-ml-name")
"""Headers of software for discussion lists, some older than List-Post."""
_LIST_SENDER = re.compile(r"owner-|.*-(?:owner|admin|request|bounces)(?:[+=].*)?$", re.I)
_INVITATION_START = re.compile(rf"^(?:{'|'.join(INVITATIONS.values())}): ", re.M)
"""Start of the text of a calendar object that one person sent to another."""


def why_automatic(thread: MailThread, me: str) -> str | None:
    """Return why no person wrote this thread to `me`, or why it needs no answer; else None.

    One message by a person keeps the whole thread. An answer to `me` counts as a person's unless it
    is a bounce or an automatic reply: a help desk sends what people write through programs.
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
    """Return whether it was sent from this mailbox.

    Web forms forge the reader's address, so a copy in the inbox is no proof.
    """
    if message.labels & {"SENT", "INBOX", "SPAM"}:
        return "SENT" in message.labels
    return _mailboxes(message.text.sender) == {_mailbox(me)} and not _asks_answers(message)


def _certainly(message: MailMessage) -> str | None:
    """Return why a message is automatic in any place of a thread."""
    headers = message.headers
    if "SPAM" in message.labels:
        return SPAM
    if "TRASH" in message.labels:
        return TRASH
    if _is_bounce(message):
        return BOUNCE
    if _submission(headers) == "auto-replied" or _word(headers, "precedence") == "auto_reply":
        return AUTO_REPLY
    if "x-autoreply" in headers or "x-autorespond" in headers:
        return AUTO_REPLY
    if "".join(headers.get("return-path", "").split()) != "<>":
        return None
    return AUTO_REPLY if _answers(headers) else BOUNCE


def _probably(message: MailMessage) -> str | None:
    """Return why a message is automatic, for one that is not an answer."""
    says_so = _submission(message.headers) not in ("", "no")
    if _mass(message) and not _people_talk(message):
        return GENERATED if says_so else NEWSLETTER
    if _INVITATION_START.search(message.text.body) or _asks_answers(message):
        return None
    if says_so:
        return GENERATED
    if _on_list(message.headers):
        return None
    if _is_from(message, _is_no_reply):
        return NO_REPLY
    return NOTICE if _is_from(message, _is_notice) and not _is_reply(message) else None


def _is_bounce(message: MailMessage) -> bool:
    headers = message.headers
    return (
        headers.get("content-type", "").lower().lstrip().startswith("multipart/report")
        or "x-failed-recipients" in headers
        or any(each.startswith("mailer-daemon@") for each in _mailboxes(message.text.sender))
    )


def _mass(message: MailMessage) -> bool:
    """Return whether it is mass mail; Feedback-ID alone only names the service (Amazon SES)."""
    headers = message.headers
    if "list-unsubscribe" in headers:
        return True
    if _word(headers, "precedence") in ("bulk", "junk"):
        return not _answers(headers)  # trackers add it to people's messages in a ticket
    promoted = "CATEGORY_PROMOTIONS" in message.labels or _is_from(message, _is_notice)
    return "feedback-id" in headers and promoted


def _people_talk(message: MailMessage) -> bool:
    """Return whether a person may have written mail with unsubscribe headers: lists, web forms."""
    return _is_reply(message) or _on_list(message.headers) or _replies_elsewhere(message)


def _on_list(headers: Mapping[str, str]) -> bool:
    """Return whether people can write to the list.

    `List-Post: NO`, or a web page, means that they cannot (RFC 2369).
    """
    if "mailto:" in headers.get("list-post", "").lower():
        return True
    senders = _mailboxes(headers.get("sender", "")) | _mailboxes(headers.get("errors-to", ""))
    return any(name in headers for name in _LISTS) or any(
        _LIST_SENDER.match(each.partition("@")[0]) for each in senders
    )


def _is_reply(message: MailMessage) -> bool:
    """Return whether both the headers and the subject mark it as a reply.

    One sign is not enough: mass mail sometimes has a false `Re:`, and programs thread their
    notices.
    """
    return _answers(message.headers) and _REPLY.match(message.text.subject) is not None


def _answers(headers: Mapping[str, str]) -> bool:
    return "@" in headers.get("in-reply-to", "") or "@" in headers.get("references", "")


def _asks_answers(message: MailMessage) -> bool:
    """Return whether answers go to another address that a person may read.

    Such as in web forms, help desks and invites. A message that declares itself automatic must also
    answer something, or ask for answers outside its own domain.
    """
    if _submission(message.headers) in ("", "no") or _is_reply(message):
        return bool(_reply_addresses(message))
    return _replies_elsewhere(message)


def _replies_elsewhere(message: MailMessage) -> bool:
    answered = {_domain(each) for each in _reply_addresses(message)}
    return bool(answered - {_domain(each) for each in _mailboxes(message.text.sender)})


def _reply_addresses(message: MailMessage) -> set[str]:
    """Return the addresses for answers, other than the sender's, that accept them."""
    addresses = _mailboxes(message.headers.get("reply-to", "")) - _mailboxes(message.text.sender)
    return {each for each in addresses if not _is_no_reply(each)}


def _is_from(message: MailMessage, kind: Callable[[str], bool]) -> bool:
    """Return whether every address that the message is from is of a kind."""
    senders = _mailboxes(message.text.sender)
    return bool(senders) and all(map(kind, senders))


def _is_no_reply(address: str) -> bool:
    return _NO_REPLY.search(address.partition("@")[0]) is not None


def _is_notice(address: str) -> bool:
    return re.split(r"[._+-]", address.partition("@")[0])[-1] in _NOTICES


def _submission(headers: Mapping[str, str]) -> str:
    """Return the keyword of Auto-Submitted without its parameters and comments (RFC 3834, 5)."""
    return _word(headers, "auto-submitted")


def _word(headers: Mapping[str, str], name: str) -> str:
    return re.split(r"[;\s(]", headers.get(name, "").strip().lower(), maxsplit=1)[0]


def _mailboxes(value: str) -> set[str]:
    """Return the addresses in a header, compared as mail servers do, ignoring those in names."""
    value = value[:MAX_HEADER]
    return {_mailbox(each) for each in _BRACKETED_ADDRESS.findall(value) or _ADDRESS.findall(value)}


def _mailbox(address: str) -> str:
    local, _, domain = address.strip().lower().rpartition("@")
    return f"{local.partition('+')[0] or local}@{domain}"


def _domain(address: str) -> str:
    """Return the approximate owner domain: two labels, three below `co.uk` and similar."""
    labels = address.rpartition("@")[2].split(".")
    return ".".join(labels[-3:] if labels[-2:-1] and labels[-2] in _SHARED_DOMAINS else labels[-2:])
