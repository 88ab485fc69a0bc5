"""What a triage tells each subagent, and what its parent is told of the verdict."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

import pytest

from bot.tasks.triage import Reader, brief_of
from config.settings import load_settings
from scopes.mail import SHOWN, MailMessage, MailText, item_of
from scopes.tool import Item
from subagents.brief import Brief
from subagents.delimiter import new_delimiter
from subagents.overlap import shingles
from subagents.result import SubagentResult
from subagents.summary import parent_view

ME = "marit@nordkran.example"
AT = datetime(2026, 5, 4, 9, tzinfo=UTC)
TRIAGE = load_settings(env={}).triage
READER = Reader(ME, ME, date(2026, 5, 5))
OTHERS = tuple(f"Person {n} <p{n}@nordkran.example>" for n in range(9))


def mail(body: str, to: tuple[str, ...] = (ME,), cc: tuple[str, ...] = ()) -> Item:
    text = MailText("Cranes", "Bodil <bodil@havn.example>", to, cc, AT, body, (), (), (), "")
    return item_of(MailMessage("1" * 16, "1" * 16, AT, text, {}), ME, ME, "")


def brief(language: str | None) -> Brief:
    settings = TRIAGE.model_copy(update={"language": language})
    return brief_of("1" * 16, "Cranes", [mail("Can you come?")], READER, settings)


def result(*facts: str) -> SubagentResult:
    value: dict[str, Any] = {"category": "customer", "priority": "high", "deadline": ""}
    value |= {"asked_of_me": True, "key_facts": list(facts), "proposed_action": "Answer."}
    value["evidence"] = []
    ended: dict[str, Any] = {"id": "s1", "status": "complete", "stopped_by": "none"}
    return SubagentResult(**ended, scope="email", model="fast", contract="triage", value=value)


def test_a_brief_names_its_language_and_every_category_with_its_use() -> None:
    open_, german = (brief(language).text(new_delimiter()) for language in (None, "de"))
    assert "LANGUAGE: as OUTPUT says" in open_
    assert "language of the last mail" in open_
    assert "LANGUAGE: de" in german
    assert "language of the last mail" not in german
    assert all(f"\n- {name}: {when}" in open_ for name, when in TRIAGE.categories.items())


@pytest.mark.parametrize("field", ["to", "cc"])
def test_the_reader_is_named_wherever_they_stand_among_many_recipients(field: str) -> None:
    people = (*OTHERS[:7], f"Marit <{ME.upper()}>", *OTHERS[7:])
    notes = mail("Hello", **{field: people}).notes
    said = next(note for note in notes if note.startswith(f"{field} "))
    assert ME.upper() in said
    assert said.count("@") == SHOWN + 1
    assert said.endswith(", and 4 more")


def test_facts_that_follow_each_other_in_a_mail_make_no_excerpt_of_it_in_the_view() -> None:
    facts = ("The contract ends on 31 March", "The new draft raises the fee to 0.24 %")
    source = shingles(". ".join(facts))
    written = set().union(*map(shingles, facts))
    shown = shingles(parent_view(result(*facts), 500))
    assert source - written
    assert source & shown <= written
