"""One person's mailbox in Gmail: threads are read once, labels and drafts are never duplicated."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from html import unescape
from typing import Any

from scopes.cache import Cache
from scopes.google.client import GoogleClient
from scopes.google.errors import GoogleAbsent, GoogleError, GoogleUnsure
from scopes.google.gmail_compose import (
    MARK,
    ComposedMail,
    DeliveryReport,
    Letter,
    compose,
    find_answered,
    reply_subject,
)
from scopes.google.gmail_threads import (
    IN_MESSAGE,
    MESSAGE,
    TOO_MUCH,
    apart,
    bytes_of,
    content_of,
    thread_of,
    unread_message,
)
from scopes.mail import Changes, MailLabel, MailMessage, MailThread, ThreadRef
from scopes.programs import WorkerDied, WorkerProcess

ME = "me"
"""The mailbox of the token's user."""
PAGE_SIZE = 500
"""Objects requested in one call of a paged method."""
MAX_SEARCHED_MESSAGES = 10
"""Newest messages that are searched for one that may have been made."""
MAX_WRITE_ATTEMPTS = 2
"""Attempts of a write that Google refused with an internal error and did not do."""


def _bears(message: Mapping[str, Any], mail: ComposedMail) -> bool:
    headers = (message.get("payload") or {}).get("headers") or ()
    return any(
        str(h.get("name")).lower() == MARK.lower() and h.get("value") == mail.mark for h in headers
    )


READER = WorkerProcess("scopes.google.mail_text", seconds=5.0)
"""Reads the mails of this process: only this program parses text of strangers."""
MOST_KEPT, MOST_DOCUMENTS = 100, 8
"""Threads, and texts of attached files, that stay in memory."""


class HistoryTooOld(Exception):
    """Gmail no longer knows what has changed since then: everything has to be read again."""


class Gmail:
    """The mailbox of a `GoogleClient`. One for each run: it reads no thread twice."""

    def __init__(self, google: GoogleClient, owner: str, cursor: str = "") -> None:
        """`owner` is a Slack user id, or the mailbox's address at the command line.

        `cursor` is the history id at which the last triage ended, if there was one.
        """
        self.google, self.owner, self.cursor = google, owner, cursor
        self._users: Any = google.gmail()
        self._get_thread: Any = self._users.threads().get  # the library rebuilds it on each access
        self._address = ""
        self._labels: list[MailLabel] | None = None
        self._threads = Cache(most=MOST_KEPT)
        self.documents = Cache(most=MOST_DOCUMENTS)
        """Texts of the attachments that were read recently, by item id."""

    async def aclose(self) -> None:
        """Close its connections."""
        await self.google.aclose()

    async def address(self) -> str:
        """Return the mailbox's own address."""
        if not self._address:
            await self._profile()
        return self._address

    async def history(self) -> str:
        """Return the current history id, from which `changes` can start."""
        return str((await self._profile())["historyId"])

    async def find(self, query: str = "", limit: int | None = None) -> list[ThreadRef]:
        """Return the threads that Gmail's search finds, newest first; all without a limit."""
        arguments: dict[str, Any] = {"userId": ME, "maxResults": min(PAGE_SIZE, limit or PAGE_SIZE)}
        arguments |= {"q": query} if query else {}
        found: dict[str, ThreadRef] = {}
        async for page in self.google.pages(self._users.threads(), **arguments):
            refs = map(_ref, page.get("threads") or ())
            found |= {ref.id: ref for ref in refs if ref.id not in found}
            if limit is not None and len(found) >= limit:
                break
        return list(found.values())[:limit]

    async def thread(self, id: str) -> MailThread:
        """Return the whole thread, fetched only once. Raises GoogleAbsent."""
        return await self._threads.get((id,), lambda: self._thread(id))

    async def _thread(self, id: str) -> MailThread:
        request = self._get_thread(userId=ME, id=id, format="full")
        resource = await self.google.call(request)
        messages = [each for each in resource.get("messages") or () if isinstance(each, Mapping)]
        if not messages:
            raise GoogleAbsent("There is no message in this thread any more.", 404)
        found = await asyncio.gather(*map(self._message, messages))
        history = str(resource.get("historyId") or "")
        return await asyncio.to_thread(thread_of, id, history, found)  # a long one takes a second

    async def _message(self, resource: Mapping[str, Any]) -> MailMessage:
        texts = await self._texts(resource)
        coded = {id: base64.b64encode(text).decode() for id, text in texts.items()}
        try:
            answer = await READER.ask(json.dumps([resource, coded]).encode())
            return MESSAGE.validate_json(answer)
        except WorkerDied:
            return unread_message(resource, TOO_MUCH)

    async def _texts(self, message: Mapping[str, Any]) -> Mapping[str, bytes]:
        """Return the parts of a message's text that Gmail stores separately, by attachment id."""
        found: dict[str, bytes] = {}

        async def fetch(id: str) -> None:
            with suppress(GoogleAbsent, ValueError):  # it no longer exists
                found[id] = await self.attachment(str(message.get("id")), id)

        await asyncio.gather(*map(fetch, apart(message)))
        return found

    async def attachment(self, message: str, key: str) -> bytes:
        """Return an attachment by its `Attachment.key`. Raises GoogleAbsent, ValueError."""
        if key.startswith(IN_MESSAGE):
            whole = self._users.messages().get(userId=ME, id=message, format="full")
            resource = await self.google.call(whole)
            return content_of(resource, key.removeprefix(IN_MESSAGE))
        request = self._users.messages().attachments().get(userId=ME, messageId=message, id=key)
        found = await self.google.call(request)
        return bytes_of(str(found.get("data") or ""))

    async def changes(self, since: str) -> Changes:
        """Return the changes since a history id. Raises HistoryTooOld."""
        arguments = {
            "startHistoryId": since,
            "historyTypes": ["messageAdded"],
            "maxResults": PAGE_SIZE,
        }
        threads, reached = dict[str, None](), since
        try:
            async for page in self.google.pages(self._users.history(), userId=ME, **arguments):
                reached = str(page.get("historyId") or reached)
                for record in page.get("history") or ():
                    for added in record.get("messagesAdded") or ():
                        threads[str(added["message"]["threadId"])] = None
        except GoogleAbsent as error:
            raise HistoryTooOld(f"nothing is known from history id {since[:20]} on") from error
        return Changes(reached, tuple(threads))

    async def labels(self) -> list[MailLabel]:
        """Return all labels, including the system's."""
        if self._labels is None:
            request = self._users.labels().list(userId=ME)
            found = (await self.google.call(request)).get("labels") or ()
            self._labels = [
                MailLabel(str(e["id"]), str(e["name"]), e.get("type") == "user") for e in found
            ]
        return self._labels

    async def relabel(self, thread: str, add: Sequence[str], remove: Sequence[str]) -> None:
        """Add and remove labels by name; a missing label of the user is created.

        It can be repeated with the same outcome. Raises GoogleAbsent.
        """
        added = [await self._label(name) for name in dict.fromkeys(add)]
        removed = [await self._label_id(name) for name in dict.fromkeys(remove)]
        body = {"addLabelIds": added, "removeLabelIds": [id for id in removed if id]}
        if not any(body.values()):
            return
        request = self._users.threads().modify(userId=ME, id=thread, body=body)
        await self.google.call(request)
        self._threads.forget(thread)

    async def _label_id(self, name: str) -> str:
        """Return the id of a label; for Gmail, names that differ only in case are the same."""
        wanted = name.casefold()
        return next((e.id for e in await self.labels() if e.name.casefold() == wanted), "")

    async def _label(self, name: str) -> str:
        if id := await self._label_id(name):
            return id
        body = {"name": name, "labelListVisibility": "labelShow", "messageListVisibility": "show"}
        request = self._users.labels().create(userId=ME, body=body)
        self._labels = None
        try:
            return await self._create(request)
        except GoogleError as error:
            if error.code == 409 and (id := await self._label_id(name)):
                return id
            raise

    async def draft(self, thread: MailThread, body: str, key: str) -> str:
        """Return the id of a draft that answers only the last writer.

        There is one for each key, even if an answer of Google was lost. Raises NoRecipient, and
        GoogleUnsure if it is unknown whether there is one.
        """
        own = await self.address()
        answers, to = find_answered(thread, own)
        letter = Letter([to], reply_subject(answers.text.subject), body)
        mail = compose(own, letter, key, answers)
        message = {"threadId": thread.id, "raw": mail.raw}
        request = self._users.drafts().create(userId=ME, body={"message": message})
        look = partial(self._find_draft, thread.id, mail)
        draft_id = await self._once(request, look)
        self._threads.forget(thread.id)
        return draft_id

    async def send(
        self,
        to: Sequence[str],
        subject: str,
        body: str,
        key: str,
        report: DeliveryReport | None = None,
    ) -> str:
        """Send a mail to these addresses, once for each key; return the id of the message.

        Raises NoRecipient, and GoogleUnsure if it is unknown whether it was sent.
        """
        own = await self.address()
        mail = compose(own, Letter(to, subject, body), key, report=report)
        request = self._users.messages().send(userId=ME, body={"raw": mail.raw})
        return await self._once(request, partial(self._find_sent, mail))

    async def _once(self, request: Any, look: Callable[[], Awaitable[str]]) -> str:
        """Do it unless this process or an earlier one did it."""
        for attempt in range(1, MAX_WRITE_ATTEMPTS + 1):
            if found := await look():
                return found
            try:
                return await self._create(request, repeat=False)
            except GoogleUnsure as error:
                if not error.code or attempt == MAX_WRITE_ATTEMPTS:  # it may still be done
                    if found := await look():
                        return found
                    raise
        raise AssertionError("unreachable")

    async def _create(self, request: Any, *, repeat: bool = True) -> str:
        """Return the id of the object that a request creates."""
        return str((await self.google.call(request, repeat=repeat))["id"])

    async def _find_draft(self, thread: str, mail: ComposedMail) -> str:
        """Return the id of the draft with the mark, or of the message if it was sent."""
        request = self._users.threads().get(
            userId=ME, id=thread, format="metadata", metadataHeaders=[MARK]
        )
        found = await self.google.call(request)
        marked = [str(m["id"]) for m in found.get("messages") or () if _bears(m, mail)]
        if not marked and mail.answers:
            return ""
        listing = self.google.pages(self._users.drafts(), userId=ME, maxResults=PAGE_SIZE)
        drafts = {
            str((each.get("message") or {}).get("id")): str(each["id"])
            async for page in listing
            for each in page.get("drafts") or ()
        }
        if not marked:  # a mail that names no message of the thread has its own thread
            newest = list(drafts)[:MAX_SEARCHED_MESSAGES]
            marked = list(filter(None, await self._all_marked(newest, mail)))
        return next((drafts[id] for id in marked if id in drafts), marked[0] if marked else "")

    async def _find_sent(self, mail: ComposedMail) -> str:
        """Return the id of the sent message with the mark, or ""."""
        searches = (
            {"labelIds": ["SENT"]},  # a label finds it at once, words only when it is indexed
            {"q": f"in:sent to:{mail.to[0]} newer_than:3d"},
        )
        seen: set[str] = set()
        for search in searches:
            request = self._users.messages().list(
                userId=ME, maxResults=MAX_SEARCHED_MESSAGES, **search
            )
            listed = (await self.google.call(request)).get("messages") or ()
            new = [id for each in listed if (id := str(each["id"])) not in seen]
            if id := next(filter(None, await self._all_marked(new, mail)), ""):
                return id
            seen |= set(new)
        return ""

    async def _all_marked(self, ids: Sequence[str], mail: ComposedMail) -> list[str]:
        return await asyncio.gather(*(self._find_marked(id, mail) for id in ids))

    async def _find_marked(self, id: str, mail: ComposedMail) -> str:
        request = self._users.messages().get(
            userId=ME, id=id, format="metadata", metadataHeaders=[MARK]
        )
        try:
            found = await self.google.call(request)
        except GoogleAbsent:
            return ""
        return id if _bears(found, mail) else ""

    async def _profile(self) -> Mapping[str, Any]:
        found = await self.google.call(self._users.getProfile(userId=ME))
        self._address = str(found["emailAddress"])
        return found


def _ref(each: Mapping[str, Any]) -> ThreadRef:
    snippet = unescape(str(each.get("snippet") or ""))  # Gmail escapes it as in HTML
    return ThreadRef(str(each["id"]), snippet, str(each.get("historyId") or ""))


def within(query: str, oldest: datetime, latest: datetime | None = None) -> str:
    """Return the query for `[oldest, latest)`; Gmail takes seconds since 1970."""
    parts = [f"({query})"] if query else []
    parts.append(f"after:{max(0, int(oldest.timestamp()))}")
    parts += [f"before:{int(latest.timestamp())}"] if latest else []
    return " ".join(parts)
