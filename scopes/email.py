"""The `email` scope: the requester's own mailbox, read, sorted, drafted in, and sent from."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from config.words import phrase
from scopes.documents.text import DocumentRefused, DocumentText, read_document
from scopes.effects import MAIL_THREAD, OPEN_MAIL, Access, Effect, MailThreadId, PreparedCall, Said
from scopes.google.errors import GoogleAbsent, GoogleError, GoogleUnsure
from scopes.google.gmail import Gmail, HistoryTooOld, within
from scopes.google.gmail_compose import NoRecipient, find_answered, is_address, reply_subject
from scopes.label import TRUSTED_LABEL, Label
from scopes.mail import MAIL_PROGRAM_ADVICE, Attachment, MailMessage, MailThread, item_of, label_of
from scopes.notes import read_note, save_note, search_notes
from scopes.tool import (
    Item,
    ToolContext,
    ToolError,
    ToolResult,
    Window,
    check_text,
    fit_items,
    not_found,
    page_start,
    parts_of,
    tokens_of,
    tool,
    under,
)

TITLE = "a mail thread"
"""Name of a thread in instructions: its subject is a stranger's text."""
MAX_FOUND = 1_000
"""Threads of one search that can be shown, page by page."""
MAX_HITS = 15
"""Threads that one search shows; each is read whole for it, so reading it then costs nothing."""
EXCERPT_CHARS = 300
"""Characters of a message that a search shows."""
MAX_ATTACHMENT = 25_000_000
"""Bytes of a file that is read: as much as Gmail attaches to a mail."""
MAX_CHARS = 400_000
"""Characters that are read of a file, as of a page."""
MAX_LABEL = 225
"""Characters of a label's name (Gmail's limit)."""
MAX_RECIPIENTS = 25
MOVABLE = frozenset({"STARRED", "IMPORTANT"})
"""Labels of Gmail's own that a model may set and take away; others would hide a mail."""
OWNED_BY_GMAIL = re.compile(r"(?i)(?:INBOX|UNREAD|TRASH|SPAM|SENT|DRAFTS?|CHATS?|BIN|CATEGORY_\w+)")

_ID = re.compile(r"[0-9A-Za-z]{1,32}")


def _an_address(text: str) -> str:
    if not is_address(text):
        raise ValueError("is not the bare address of a mailbox, like ana@example.com")
    return text


Address = Annotated[str, AfterValidator(_an_address)]
Labels = Annotated[tuple[Annotated[str, Field(max_length=MAX_LABEL)], ...], Field(max_length=10)]


@tool(needs=OPEN_MAIL, client=Gmail)
async def search_mail(ctx: ToolContext, query: str = "", cursor: str = "") -> ToolResult:
    """Find threads of the window by Gmail's search."""
    mailbox, query, window = _mailbox(ctx), query.strip(), ctx.window
    if window:
        query = within(query, window.oldest, window.latest + timedelta(seconds=1))
    start = page_start(cursor, MAX_FOUND)
    end = start + MAX_HITS
    refs = await mailbox.find(query, end + 1)
    found = await asyncio.gather(*(_find_thread(mailbox, ref.id) for ref in refs[start:end]))
    shown = [_as_of(each, window) for each in found if each is not None]
    threads = [each for each in shown if each and _is_in(each.last, window)]
    address = await mailbox.address()
    items = tuple(_hit(each, mailbox.owner, address) for each in threads)
    more = f'More: call again with cursor="{end}", or narrow the query.' if refs[end:] else ""
    note = (
        f"Mailbox {address}: {len(items)} threads in window; read_mail_thread reads one."
        if items
        else "No thread of the window matches."
    )
    handles = {each.id: TITLE for each in threads}
    cut = f"a search of the mailbox was cut: {end} threads were read of more"
    return ToolResult(
        items,
        truncated=more,
        handles=handles,
        note=note,
        label=TRUSTED_LABEL if items else _own(mailbox),
        undone={"search mail": cut if more else ""},
        lists={"mail threads that were found": tuple(handles)},
        reads=tuple(each.id for each in threads if _is_short(each)),
    )


@tool(client=Gmail)
async def read_mail_thread(ctx: ToolContext, thread: MailThreadId, cursor: str = "") -> ToolResult:
    """Read a thread, oldest first. Follow `cursor` to the end."""
    mailbox = _mailbox(ctx)
    found = _as_of(await _thread(mailbox, thread), ctx.window)
    if found is None:
        raise ToolError(not_found(MAIL_THREAD, thread))
    address = await mailbox.address()
    pieces = list(_pieces(found, mailbox.owner, address, ctx.max_output_tokens))
    kept, _, more = _page(ctx, pieces, cursor)
    count = f"{len(found.messages)} messages in thread."
    note = f"Mailbox {address}: {count}{'' if more else ' Last page.'}"
    holds = {found.id: tuple(piece.id for piece in pieces)}
    label = label_of(found.id, mailbox.owner)
    handles = {found.id: TITLE}
    return ToolResult(kept, holds, more, handles, note, label, reads=(found.id,))


@tool(client=Gmail)
async def read_attachment(ctx: ToolContext, file: MailThreadId, cursor: str = "") -> ToolResult:
    """Read an attached file: thread/message/number."""
    mailbox = _mailbox(ctx)
    mail, named = _message(await _thread(mailbox, file), file)
    number, attachment = _find_attachment(mail, named)
    id = f"{mail.item_id}/{number}"
    label = label_of(mail.thread, mailbox.owner)
    with under(label):
        document = await _document(mailbox, mail, attachment, id)
    whole = item_of(mail, mailbox.owner, await mailbox.address(), mail.item_id)
    pieces = [
        replace(
            whole, id=f"{id}~{n}" if n > 1 else id, text=text, notes=(), unread="", verbatim=True
        )
        for n, text in enumerate(parts_of(document.text), 1)
    ]
    kept, end, more = _page(ctx, pieces, cursor)
    cut = ""
    if more:
        cut = f"{_name_of(number, mail)} was read to part {end} of {len(pieces)}"
    elif document.cut:
        more = cut = f"the end of {_name_of(number, mail)} was not read"
    note = f"Attachment {number}: {document.facts}.{'' if more else ' Last page.'}"
    return ToolResult(kept, truncated=more, note=note, label=label, undone={f"read {id}": cut})


@tool(needs=OPEN_MAIL, client=Gmail)
async def list_labels(ctx: ToolContext) -> ToolResult:
    """List the mailbox's labels."""
    mailbox, label = _mailbox(ctx), _own(_mailbox(ctx))
    items = tuple(
        Item(f"label/{each.id}", each.name + ("" if each.own else " (Gmail's)"), None, label)
        for each in await mailbox.labels()
    )
    return ToolResult(items, note=f"{len(items)} labels.", label=label)


@tool(needs=OPEN_MAIL, client=Gmail)
async def sync_state(ctx: ToolContext) -> ToolResult:
    """Tell what came since the last triage."""
    mailbox = _mailbox(ctx)
    new = "There was no triage yet."
    if mailbox.cursor:
        try:
            count = len((await mailbox.changes(mailbox.cursor)).threads)
            new = f"{count} threads got mail since the last triage."
        except HistoryTooOld:
            new = "The last triage is too long ago to tell what is new."
    note = f"Mailbox {await mailbox.address()}, history {await mailbox.history()}. {new}"
    return ToolResult(note=note, label=_own(mailbox))


@tool(Access.WRITE, client=Gmail)
async def apply_label(
    ctx: ToolContext,
    thread: MailThreadId,
    add: Labels = (),
    remove: Labels = (),
) -> ToolResult:
    """Label a thread; missing labels are made."""
    mailbox, id = _mailbox(ctx), _id(thread)
    added, removed = [_label(name) for name in add], [_label(name) for name in remove]
    if not (added or removed):
        raise ToolError("Name at least one label to add or remove.")
    try:
        await mailbox.relabel(id, added, removed)
    except GoogleAbsent:
        raise ToolError(not_found(MAIL_THREAD, thread)) from None
    except GoogleError as error:
        raise ToolError(f"Nothing was labelled. {error}") from error
    return ToolResult(note="Labelled.", label=label_of(id, mailbox.owner))


async def _prepare_draft(ctx: ToolContext, thread: str, body: str) -> PreparedCall:
    """Return the draft as it would be made now; it names the mail that it answers."""
    mailbox = _mailbox(ctx)
    message, to = await _find_original(mailbox, await _thread(mailbox, thread), thread)
    check_text(body)
    facts = {"to": to, "subject": reply_subject(message.text.subject)}
    return PreparedCall({"thread": message.item_id, "body": body}, facts)


@tool(Access.WRITE, Effect.DRAFT, client=Gmail, prepare=_prepare_draft)
async def create_draft(ctx: ToolContext, thread: MailThreadId, body: Said) -> ToolResult:
    """Draft a reply to who wrote last. Nothing is sent."""
    mailbox = _mailbox(ctx)
    found = await _thread(mailbox, thread)
    check_text(body)
    await _find_original(mailbox, found, thread)
    try:
        await mailbox.draft(found, body, ctx.key)
    except GoogleUnsure as error:
        raise ToolError("It is not known whether the draft was made. Say so.") from error
    except GoogleError as error:
        raise ToolError(f"No draft was made. {error}") from error
    return ToolResult(note=phrase("done.draft"), label=label_of(found.id, mailbox.owner))


@tool(Access.EGRESS, Effect.SEND, needs=OPEN_MAIL, client=Gmail)
async def send_mail(
    ctx: ToolContext,
    to: Annotated[list[Address], Field(min_length=1, max_length=MAX_RECIPIENTS)],
    subject: Said,
    body: Said,
) -> ToolResult:
    """Send a mail, once approved. `to`: bare addresses."""
    mailbox = _mailbox(ctx)
    check_text(subject)
    check_text(body)
    try:
        await mailbox.send(to, subject, body, ctx.key)
    except NoRecipient:
        raise ToolError("It was not sent: give bare addresses, like ana@example.com.") from None
    except GoogleUnsure as error:
        raise ToolError(
            "Gmail gave no answer, and it is not known whether the mail was sent: look into the "
            "sent mails before you ask for it again."
        ) from error
    except GoogleError as error:
        raise ToolError(f"It was not sent. {error}") from error
    return ToolResult(note=phrase("done.mailed", to=", ".join(to)), label=_own(mailbox))


TOOLS = (
    *(search_mail, read_mail_thread, read_attachment, list_labels, sync_state),
    *(apply_label, create_draft, send_mail),
    *(save_note, search_notes, read_note),
)


def _mailbox(ctx: ToolContext) -> Gmail:
    """Return the mailbox of the requester; for anybody else there is none."""
    found = ctx.clients.get(Gmail)
    if not isinstance(found, Gmail) or ctx.requester not in (None, found.owner):
        raise ToolError("No mailbox of the requester is connected. Say so in your result.")
    return found


def _own(mailbox: Gmail) -> Label:
    """Return the label of a fact about the mailbox as a whole."""
    return label_of("search", mailbox.owner)


def _id(thread: str) -> str:
    """Return the id of a thread, also from a message's. Raises ToolError if it cannot be one."""
    id = thread.partition("/")[0]
    if not _ID.fullmatch(id):
        raise ToolError(not_found(MAIL_THREAD, thread))
    return id


async def _thread(mailbox: Gmail, thread: str) -> MailThread:
    try:
        return await mailbox.thread(_id(thread))
    except GoogleAbsent:
        raise ToolError(not_found(MAIL_THREAD, thread)) from None


def _message(found: MailThread, named: str) -> tuple[MailMessage, str]:
    """Return the message that `thread/message/file` names, and the number of the file."""
    _, _, rest = named.partition("/")
    id, _, file = rest.partition("/")
    for message in found.messages:
        if message.id == id.partition("~")[0]:
            return message, file
    raise ToolError("Name the message of the file: `thread/message/number`.")


def _find_attachment(mail: MailMessage, named: str) -> tuple[int, Attachment]:
    """Return the number and the facts of the attachment with this number."""
    files = mail.text.attachments
    number = int(named) if re.fullmatch(r"[0-9]{1,4}", named) else 0
    if not 1 <= number <= len(files):
        raise ToolError(f"Give a number: {len(files)} files are attached, counted from 1 on.")
    return number, files[number - 1]


async def _document(mailbox: Gmail, mail: MailMessage, file: Attachment, id: str) -> DocumentText:
    """Return the text of an attachment; one that was read recently is not fetched again.

    Raises ToolError if it is not read, without its name, since a stranger chose that.
    """

    async def fetch_document() -> DocumentText:
        return await read_document(await mailbox.attachment(mail.id, file.key), MAX_CHARS)

    try:
        if file.size > MAX_ATTACHMENT:
            raise DocumentRefused(f"is larger than {MAX_ATTACHMENT // 1_000_000} MB")
        if not file.key:
            raise DocumentRefused(f"is not handed out by Gmail: {MAIL_PROGRAM_ADVICE}")
        return await mailbox.documents.get((id,), fetch_document)
    except (GoogleAbsent, ValueError):
        refusal = "is not in the mailbox any more"
    except DocumentRefused as error:
        refusal = str(error)
    number = id.rpartition("/")[2]
    unread = ToolError(f"Attachment {number} {refusal}.")
    unread.undone = {f"read {id}": f"{_name_of(number, mail)} {refusal}"}
    raise unread


def _name_of(number: int | str, mail: MailMessage) -> str:
    """Name an attachment for a requester, without words of strangers."""
    day = f" of {mail.at:%Y-%m-%d %H:%M} UTC" if mail.at else ""
    return f"attachment {number} of the mail{day}"


async def _find_original(mailbox: Gmail, found: MailThread, named: str) -> tuple[MailMessage, str]:
    """Return the message that a draft answers, if it is the named one, and its recipient."""
    own, (_, _, id) = await mailbox.address(), named.partition("/")
    until = next((n for n, m in enumerate(found.messages, 1) if m.id == id), None)
    try:
        message, to = find_answered(found, own)
        before = find_answered(replace(found, messages=found.messages[:until]), own)[0]
    except NoRecipient:
        raise ToolError("Nobody in this thread can be answered by mail.") from None
    if before is not message:
        raise ToolError(
            "No draft was made: the thread got mail after that message. Read it, then ask for a "
            "draft by the id of the thread alone."
        )
    return message, to


async def _find_thread(mailbox: Gmail, id: str) -> MailThread | None:
    """Return a thread that a search has found; None if it no longer exists."""
    with suppress(GoogleAbsent):
        return await mailbox.thread(id)
    return None


def _as_of(thread: MailThread, window: Window | None) -> MailThread | None:
    """Return a thread as it was at the end of the window; None if it began later."""
    last = window.latest if window else None
    kept = tuple(m for m in thread.messages if not (last and m.at and m.at >= last))
    return replace(thread, messages=kept) if kept else None


def _is_in(message: MailMessage, window: Window | None) -> bool:
    """Return whether a mail came in the window; a query alone could say otherwise."""
    return window is None or message.at is None or window.holds(message.at)


def _is_short(thread: MailThread) -> bool:
    """Return whether a search shows it whole."""
    return len(thread.messages) == 1 and len(thread.last.text.body) <= EXCERPT_CHARS


def _hit(thread: MailThread, owner: str, address: str) -> Item:
    """Return the newest message of a thread, with the beginning of what it says."""
    last, count = thread.last, len(thread.messages)
    item = item_of(last, owner, address, last.item_id)
    text = f"Subject: {thread.subject}. {last.text.body[:EXCERPT_CHARS].strip()}"
    whole = "whole" if _is_short(thread) else "beginning of the newest"
    return replace(
        item, text=text, unread="", notes=(f"{count} messages, {whole} shown", *item.notes)
    )


def _pieces(thread: MailThread, owner: str, address: str, most: int) -> Iterator[Item]:
    """Yield the messages as items; one longer than a page continues in parts with other ids."""
    opens = thread.messages[0].item_id
    for message in thread.messages:
        item = item_of(message, owner, address, opens)
        first, *rest = parts_of(item.text) if tokens_of(item) > most else [item.text]
        yield replace(item, text=first)
        for number, part in enumerate(rest, 2):
            goes_on = replace(item, id=f"{item.id}~{number}", text=part, at=None, notes=())
            yield replace(goes_on, thread=opens, unread="")


def _page(
    ctx: ToolContext, pieces: Sequence[Item], cursor: str
) -> tuple[tuple[Item, ...], int, str]:
    """Return the items of a page, the place of the next one, and how to get it if there is one."""
    start = page_start(cursor, len(pieces))
    kept = fit_items(pieces[start:], ctx.max_output_tokens)
    end = start + len(kept)
    return kept, end, f'More: call again with cursor="{end}".' if end < len(pieces) else ""


def _label(name: str) -> str:
    """Return a label that a model may move: none that deletes or classifies a mail."""
    name = " ".join(name.split())
    if name.upper() in MOVABLE:
        return name.upper()
    if not name or OWNED_BY_GMAIL.fullmatch(name):
        raise ToolError(f"The label {name[:40]!r} cannot be set or taken away here.")
    return name
