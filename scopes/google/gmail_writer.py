"""Create drafts and send mail, once for each key whatever fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scopes.google.client import GoogleClient
from scopes.google.errors import GoogleAbsent, GoogleUnsure
from scopes.google.gmail_calls import ME, PAGE, UNITS, pages
from scopes.google.gmail_compose import (
    MARK,
    Composed,
    DeliveryReport,
    answered,
    compose,
    reply_subject,
)
from scopes.mail import MailThread

LAST = 10
"""Newest messages looked at for one that may have been made."""
ATTEMPTS = 2
"""Of a write that Google answered with an error of its own and did not do."""


@dataclass(frozen=True, slots=True)
class GmailWriter:
    """Drafts and sent mails of one mailbox. Its methods raise NoRecipient, and GoogleUnsure where
    it is not known whether it was done."""

    google: GoogleClient
    users: Any

    async def draft(self, own: str, thread: MailThread, body: str, key: str) -> str:
        """Return the id of a draft that answers who wrote last, and nobody else.

        `own` is our address.
        """
        answers, to = answered(thread, own)
        mail = compose(own, [to], reply_subject(answers.text.subject), body, key, answers)
        message = {"threadId": thread.id, "raw": mail.raw}
        request = self.users.drafts().create(userId=ME, body={"message": message})

        async def look() -> str:
            return await self._drafted(thread.id, mail)

        return await self._once(request, UNITS["drafts.create"], look)

    async def send(
        self,
        own: str,
        to: Sequence[str],
        subject: str,
        body: str,
        key: str,
        thread: MailThread | None = None,
        report: DeliveryReport | None = None,
    ) -> str:
        """Send a mail to these addresses; the id of the message."""
        mail = compose(own, to, subject, body, key, thread.last if thread else None, report)
        message = {"raw": mail.raw, **({"threadId": thread.id} if thread else {})}
        request = self.users.messages().send(userId=ME, body=message)

        async def look() -> str:
            return await self._sent(mail)

        return await self._once(request, UNITS["messages.send"], look)

    async def _once(self, request: Any, units: int, look: Callable[[], Awaitable[str]]) -> str:
        """Do it unless it was done, by this process or one before it."""
        for attempt in range(1, ATTEMPTS + 1):
            if found := await look():
                return found
            try:
                return str((await self.google.call(request, units, repeat=False))["id"])
            except GoogleUnsure as error:
                if not error.code or attempt == ATTEMPTS:  # it may yet be done
                    if found := await look():
                        return found
                    raise
        raise AssertionError("unreachable")

    async def _drafted(self, thread: str, mail: Composed) -> str:
        """Return the id of the draft that bears the mark, or of the message where it was sent by
        now.
        """
        request = self.users.threads().get(
            userId=ME, id=thread, format="metadata", metadataHeaders=[MARK]
        )
        found = await self.google.call(request, UNITS["threads.get"])
        marked = [str(m["id"]) for m in found.get("messages") or () if _bears(m, mail)]
        if not marked and mail.answers:
            return ""
        listing = self.users.drafts().list
        drafts = {
            str((each.get("message") or {}).get("id")): str(each["id"])
            async for page in pages(
                self.google, listing, UNITS["drafts.list"], {"maxResults": PAGE}
            )
            for each in page.get("drafts") or ()
        }
        if not marked:  # what names no message of the thread stands in one of its own
            newest = list(drafts)[:LAST]
            marked = list(filter(None, await self._all_marked(newest, mail)))
        return next((drafts[id] for id in marked if id in drafts), marked[0] if marked else "")

    async def _sent(self, mail: Composed) -> str:
        """Return the id of the sent message that bears the mark, or nothing."""
        searches = (
            {"labelIds": ["SENT"]},  # by label it is found at once, by words when it is indexed
            {"q": f"in:sent to:{mail.to[0]} newer_than:3d"},
        )
        seen: set[str] = set()
        for search in searches:
            request = self.users.messages().list(userId=ME, maxResults=LAST, **search)
            listed = (await self.google.call(request, UNITS["messages.list"])).get("messages") or ()
            new = [id for each in listed if (id := str(each["id"])) not in seen]
            if id := next(filter(None, await self._all_marked(new, mail)), ""):
                return id
            seen |= set(new)
        return ""

    async def _all_marked(self, ids: Sequence[str], mail: Composed) -> list[str]:
        return await asyncio.gather(*(self._marked(id, mail) for id in ids))

    async def _marked(self, id: str, mail: Composed) -> str:
        request = self.users.messages().get(
            userId=ME, id=id, format="metadata", metadataHeaders=[MARK]
        )
        try:
            found = await self.google.call(request, UNITS["messages.get"])
        except GoogleAbsent:
            return ""
        return id if _bears(found, mail) else ""


def _bears(message: Mapping[str, Any], mail: Composed) -> bool:
    headers = (message.get("payload") or {}).get("headers") or ()
    return any(
        str(h.get("name")).lower() == MARK.lower() and h.get("value") == mail.mark for h in headers
    )
