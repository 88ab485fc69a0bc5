"""App Home as Slack shows it: what one user may ask, their last requests, an admin's button."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bot.accounts.connecting import MailAccess
from bot.faces import home_mail, home_schedules
from bot.faces.abilities import abilities
from scopes.slack_items import plain
from scopes.tool import one_line

PAUSE, RESUME = "home_pause", "home_resume"
"""Action ids of an admin's buttons."""
LAST_RUNS = 5
QUESTION_CHARS = 140

STATES = {"complete": "answered", "partial": "answered in part", "cancelled": "stopped"}
"""Status of a run -> what a user calls it, where that differs."""

Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LastRun:
    question: str
    status: str
    started: datetime
    cost_usd: float | None
    link: str | None
    """To its answer in Slack; None while there is none."""


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """What one user's Home shows."""

    refusal: str = ""
    """Why this user may not ask; empty for one who may."""
    places: tuple[str, ...] = ()
    """Where requests of this user are answered, in sentences."""
    scopes: tuple[str, ...] = ()
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handle -> title of all that requests of this user may work with now."""
    runs: tuple[LastRun, ...] = ()
    spent_usd: float = 0.0
    """By this user since 00:00 UTC."""
    daily_usd: float | None = None
    paused: str | None = None
    """Who paused the assistant; None = it is at work."""
    admin: bool = False
    mail: MailAccess | None = None
    """How it stands with this user's mailbox; None = mail is nothing that they may ask about."""
    schedules: tuple[str, ...] = ()


def view(facts: HomeFacts) -> Block:
    """The Home of a user, as Block Kit."""
    return {"type": "home", "blocks": list(_blocks(facts))}


def _blocks(facts: HomeFacts) -> Iterator[Block]:
    if facts.paused is not None:
        by = f":double_vertical_bar: *Paused by {_who(facts.paused)}.*"
        yield _section(f"{by} New requests wait and are answered later.")
    if facts.admin:
        yield _button(paused=facts.paused is not None)
    if facts.refusal:
        yield _section(facts.refusal)
    else:
        yield _header("What I can do here")
        yield _section("\n".join(abilities(facts.scopes, facts.handles)))
        yield _header("Where I answer you")
        yield _section("\n".join(f"• {place}" for place in facts.places) or "Nowhere at present.")
    if facts.mail:
        yield from home_mail.blocks(facts.mail)
    yield from home_schedules.blocks(facts.schedules)
    yield _header("Your last requests")
    for run in facts.runs[:LAST_RUNS]:
        yield from _run(run)
    if not facts.runs:
        yield _section("None yet.")
    yield {"type": "divider"}
    yield _context(_spent(facts))
    yield _context("Slack is connected.")


def _run(run: LastRun) -> Iterator[Block]:
    question = one_line(plain(run.question, {})) or "(no text)"
    if len(question) > QUESTION_CHARS:
        question = question[: QUESTION_CHARS - 1].rstrip() + "…"
    yield {"type": "section", "text": {"type": "plain_text", "text": question}}
    stamp = f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    when = f"<!date^{int(run.started.timestamp())}^{{date_short_pretty}} {{time}}|{stamp}>"
    link = [f"<{run.link}|Open the answer>"] if run.link else []
    state = STATES.get(run.status, run.status)
    yield _context(" · ".join([state, *_cost(run.cost_usd), when, *link]))


def _cost(usd: float | None) -> list[str]:
    if usd is None:
        return []
    return [f"${usd:.2f}" if usd >= 0.01 or usd == 0 else "under $0.01"]


def _spent(facts: HomeFacts) -> str:
    spent = f"You have spent ${facts.spent_usd:.2f}"
    limit = "" if facts.daily_usd is None else f" of ${facts.daily_usd:.2f}"
    return f"{spent}{limit} today. A new day begins at 00:00 UTC."


def _who(by: str) -> str:
    return by if re.fullmatch(r"<@[UW][A-Z0-9]+>", by) else html.escape(one_line(by), quote=False)


def _section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text[:3000]}}


def _header(text: str) -> Block:
    return {"type": "header", "text": {"type": "plain_text", "text": text}}


def _context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": text}]}


def _button(*, paused: bool) -> Block:
    """Pause, which asks once more, or resume."""
    words = "Resume" if paused else "Pause for everybody"
    button: Block = {
        "type": "button",
        "action_id": RESUME if paused else PAUSE,
        "text": {"type": "plain_text", "text": words},
    }
    if not paused:
        told = "What is at work is finished; new requests wait until you resume."
        button["style"] = "danger"
        button["confirm"] = {
            "title": {"type": "plain_text", "text": "Pause the assistant?"},
            "text": {"type": "plain_text", "text": told},
            "confirm": {"type": "plain_text", "text": "Pause"},
            "deny": {"type": "plain_text", "text": "Cancel"},
        }
    return {"type": "actions", "elements": [button]}
