"""Which messages are one conversation, where nobody has said so: by whom they refer to.

Gmail also looks at subjects and people; those guesses are left out, because a wrong one hides a
mail under another.
"""

import re
from collections.abc import Iterable, Sequence

from bot.local.google.gmail_headers import Headers, every, first

TOLD = "X-GM-THRID "
"""What begins the name of a thread that Google gave."""

_ID = re.compile(r"<([^<>\s]{3,900})>")


def message_id(headers: Headers) -> str:
    """The Message-ID without its brackets; empty where there is none."""
    return next(iter(_ids(first(headers, "message-id"))), "")


def references(headers: Headers) -> list[str]:
    """The ids of the messages that this one follows."""
    return [id for value in every(headers, "references", "in-reply-to") for id in _ids(value)]


def _ids(value: str) -> list[str]:
    return _ID.findall(value)


class Conversations:
    """Sets of things that belong together; they grow together as references tell."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def join(self, names: Iterable[str]) -> None:
        """Say that all of these are of one conversation."""
        roots = [self.root(name) for name in names]
        for root in roots[1:]:
            self._parents[self.root(root)] = self.root(roots[0])

    def root(self, name: str) -> str:
        """The one name that stands for the conversation of this one."""
        above = self._parents.setdefault(name, name)
        while above != name:
            self._parents[name] = self._parents[above]
            name, above = above, self._parents[above]
        return name


def threads_of(mails: Sequence[Headers]) -> list[str]:
    """For each message a name of its conversation, the same for all of one conversation.

    A message joins those that it refers to, also over ones that are not there. What carries an
    `X-GM-THRID` is in the thread of that name only.
    """
    conversations = Conversations()
    told = [_told(headers) for headers in mails]
    for number, headers in enumerate(mails):
        if not told[number]:
            ids = [message_id(headers), *references(headers)]
            conversations.join([f"number {number}", *(f"id {id}" for id in ids if id)])
    homes: dict[str, str] = {}
    for name, headers in zip(told, mails, strict=True):
        if name and (id := message_id(headers)):
            homes.setdefault(conversations.root(f"id {id}"), name)
    roots = [name or conversations.root(f"number {n}") for n, name in enumerate(told)]
    return [homes.get(root, root) for root in roots]


def _told(headers: Headers) -> str:
    number = first(headers, "x-gm-thrid")
    return f"{TOLD}{number}" if re.fullmatch(r"[0-9]{1,19}", number) else ""
