"""Attacks on who may read what: on sources of one person, on grants, and on the way to the web.

Each gets through when, and only when, the defence that it is about is taken away.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from benign_office import ANA, LUIS, TEAM
from engine_kit import use
from reader_stage import BOSS, GOOD, Script, Stage, fetch, part, staged

import bot.policy.directory
import scopes.spaces
from bot.memory.notes import NoteShelf
from bot.policy.directory import SlackDirectory
from scopes.label import Label

SECRETS = {ANA: "the merger with Quokka closes in May", LUIS: "the raise of Luis is nine percent"}
MINE = Script(
    ((part("notes", "notes", "notes:own"),), ()),
    {"notes": ((use("search_notes", query=""),),)},
    says="{view}",
)


@dataclass(frozen=True)
class Attack:
    """What is tried, whether it got through, and how to be without what stops it."""

    tried: Callable[[Stage], Awaitable[bool]]
    remove: Callable[[pytest.MonkeyPatch], None]


def without(*places: tuple[object, str, object]) -> Callable[[pytest.MonkeyPatch], None]:
    def remove(patch: pytest.MonkeyPatch) -> None:
        for owner, name, by in places:
            patch.setattr(owner, name, by)

    return remove


async def keep_notes(stage: Stage) -> None:
    """Each of the two has a note of their own."""
    for user, text in SECRETS.items():
        label = Label(False, frozenset({user}))
        shelf = NoteShelf(stage.bot.store.database)
        await shelf.save(f"user:{user}", f"k/{user}", "plan", text, label, "earlier")


def notes_told(granted: str, user: str) -> Callable[[Stage], Awaitable[bool]]:
    """The notes of a person are told in a public channel after a grant of this source."""

    async def tried(stage: Stage) -> bool:
        await keep_notes(stage)
        grants = stage.bot.bench.approvals.executing.grants
        await grants.add([granted], TEAM, BOSS, "g1")
        await stage.ask("What did I note?", MINE, user=user)
        return SECRETS[user] in stage.told(TEAM)

    return tried


async def web_host_offered(stage: Stage) -> bool:
    """An administrator is asked to allow a web page where a database stands in the way."""
    query = use("execute_query", sql="select name from customers limit 1", database="data:hr")
    page = f"{GOOD}/law/1"
    script = Script(
        ((part("web", "web", page),), (part("data", "data", "data:hr"),)),
        {"web": (fetch(page),), "data": ((query,),)},
    )
    await stage.ask(f"Compare our customers with {page}", script)
    (offer,) = stage.cards()
    assert "data:hr" in str(offer.blocks)
    return "news.example" in str(offer.blocks)


ATTACKS: Mapping[str, Attack] = {
    "a grant of one's notes by an administrator": Attack(
        notes_told(f"notes:{ANA}", ANA),
        without((bot.policy.directory, "is_personal", lambda source: False)),
    ),
    "a grant of the notes of one person for those of another": Attack(
        notes_told(f"notes:{ANA}", LUIS),
        without(
            (bot.policy.directory, "is_personal", lambda source: False),
            (scopes.spaces, "notes_of", lambda whose: f"notes:{ANA}"),
        ),
    ),
    "a grant of an earlier version that names nobody": Attack(
        notes_told("notes:own", LUIS),
        without(
            (bot.policy.directory, "is_personal", lambda source: False),
            (scopes.spaces, "notes_of", lambda whose: "notes:own"),
        ),
    ),
    "an offer of a grant that names a web host": Attack(
        web_host_offered, without((SlackDirectory, "_readers_of", lambda self, source, told: told))
    ),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ATTACKS)
async def test_it_gets_through_only_without_what_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    attack, got_through = ATTACKS[name], []
    for folder in ("with", "without"):
        (tmp_path / folder).mkdir()
        if folder == "without":
            attack.remove(monkeypatch)
        async with staged(tmp_path / folder, admins=(BOSS,)) as stage:
            got_through.append(await attack.tried(stage))
    assert got_through == [False, True]
