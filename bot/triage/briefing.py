"""The brief of one mail thread, made by code: what a triage tells each of its subagents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from config.prompt import prompt
from config.settings import Triage
from scopes.label import TRUSTED
from scopes.tool import Handles, Item, estimate_tokens
from subagents.brief import Brief, BriefDraft


@dataclass(frozen=True, slots=True)
class Reader:
    """Whose mailbox it is, and when it is read."""

    owner: str
    """Who may read what comes out of it: a Slack user id, or the address at the command line."""
    address: str
    today: date

    def introduced(self) -> str:
        return f"The reader is {self.address}. Today is {self.today:%A %Y-%m-%d}."


def brief_of(
    thread: str,
    subject: str,
    items: Sequence[Item],
    reader: Reader,
    settings: Triage,
    known: Sequence[str] = (),
    requester: str | None = None,
) -> Brief:
    """The brief of one thread: its text as material where it fits, else the thread to be read.

    `known` are sentences on what the reader has corrected before.
    """
    label = TRUSTED
    for item in items:
        label = label.join(item.label)
    fits = sum(estimate_tokens(i.line()) for i in items) <= settings.thread_tokens
    titles = {} if fits else {thread: "the thread"}
    draft = BriefDraft(
        task=prompt("triage_task"),
        description=f"Triage {subject}"[:120],
        scope="email",
        contract="triage",
        known=" ".join([reader.introduced(), *known]),
        output=_output(settings),
        handles=tuple(titles),
    )
    return Brief(
        draft,
        Handles(titles),
        None,
        label,
        settings.language,
        material=tuple(items) if fits else (),
        expects={thread: tuple(i.id for i in items)},
        requester=requester,
    )


def _output(settings: Triage) -> str:
    """The categories, and the language where the settings name none."""
    named = settings.categories.items()
    spoken = "" if settings.language else "Write in the language of the last mail. "
    return f"{spoken}category is one of:" + "".join(f"\n- {name}: {when}" for name, when in named)
