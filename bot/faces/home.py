"""App Home: what the assistant can do for this user, what it did, what it cost."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.accounts.connecting import Connecting, MailAccess
from bot.faces import home_mail, home_schedules
from bot.faces.abilities import Reach, abilities
from bot.faces.pane import attempt
from bot.policy.people import ChannelFacts
from bot.policy.policy import (
    DIRECT,
    Admission,
    Allowed,
    Asked,
    day_of,
    decide,
    groups_needed,
    ruling,
)
from bot.policy.policy_file import PolicyFault
from bot.requests.inbox import Inbox
from config.settings import Policy
from scopes import ALL, MODULES
from scopes.effects import OPEN_MAIL
from scopes.slack import OPEN_CHANNELS
from scopes.slack_items import permalink, plain
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


class Home:
    """Gathers what a user's Home shows, publishes it, and obeys its buttons."""

    def __init__(
        self,
        admission: Admission,
        web: AsyncWebClient,
        url: str,
        reach: Reach,
        connecting: Connecting | None = None,
    ) -> None:
        """`web` publishes; `url` is the workspace's address, as auth.test says it."""
        self._admission, self._web, self._url = admission, web, url
        self._reach, self._connecting = reach, connecting
        if connecting:
            connecting.publish = self.show

    async def show(self, user: str, team: str) -> None:
        """Publish the Home of a user who has opened it. Raises StoreError."""
        await publish(self._web, user, view(await self.facts(user, team)))

    async def press(self, action: str, user: str, team: str, typed: str = "") -> None:
        """A button was pressed, or a field filled in: do it if this user may, and show that."""
        if action in home_mail.ACTIONS:
            await self._press_mail(action, user, team, typed)
            return
        try:
            policy = await self._admission.file.read()
        except PolicyFault:
            policy = None
        if policy and user in policy.admins:
            if action == PAUSE:
                await self._admission.inbox.pause(f"<@{user}>")
            elif action == RESUME:
                await self._admission.inbox.resume()
        await self.show(user, team)

    async def _press_mail(self, action: str, user: str, team: str, typed: str) -> None:
        facts = await self.facts(user, team)
        if facts.mail and self._connecting:
            mail = await home_mail.obey(self._connecting, action, user, team, typed)
            facts = replace(facts, mail=mail)
        await publish(self._web, user, view(facts))

    async def facts(self, user: str, team: str) -> HomeFacts:
        inbox, paused = self._admission.inbox, await self._admission.inbox.paused()
        try:
            policy = await self._admission.file.read()
        except PolicyFault as fault:
            return HomeFacts(fault.reason, paused=paused)
        refusal, where, offered = offers(policy, await self._asked(policy, user, team))
        mail = await self._mail(user, offered)
        return HomeFacts(
            refusal=refusal,
            places=where,
            scopes=offered,
            handles={} if refusal else await self._handles(user, mail),
            runs=await last_runs(inbox, user, self._url),
            spent_usd=(await inbox.spent(user, day_of(datetime.now(UTC))))[0],
            daily_usd=policy.user_daily_usd,
            paused=paused,
            admin=user in policy.admins,
            mail=mail,
            schedules=await home_schedules.mine(inbox.database, user),
        )

    async def _handles(self, user: str, mail: MailAccess | None) -> dict[str, str]:
        own = {OPEN_MAIL: ""} if mail and mail.state != "off" else {}
        return {OPEN_CHANNELS: "", **own, **await self._reach.of(user)}

    async def _mail(self, user: str, offered: Sequence[str]) -> MailAccess | None:
        if self._connecting and _reads_mail(offered):
            return await self._connecting.access(user)
        return None

    async def _asked(self, policy: Policy, user: str, team: str) -> Asked:
        """The user with no place in particular, budgets apart."""
        asked = await self._admission.asked(policy, user, team, "", DIRECT)
        needed = groups_needed(policy, _somewhere(asked))
        more = {g: await self._admission.people.group(g) for g in needed}
        return replace(asked, groups={**asked.groups, **more}, user_usd=0.0, all_usd=0.0)


def offers(policy: Policy, asked: Asked) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Why this user may not ask anywhere (or nothing), else where, and with which scopes.

    Channels with rules of their own are not named: a user may not know of them.
    """
    free = policy.model_copy(update={"user_daily_usd": None, "daily_usd": None})
    direct, wide = decide(free, asked, 0.0), decide(free, _somewhere(asked), 0.0)
    places, scopes = [], dict[str, None]()
    if isinstance(direct, Allowed):
        places.append("In direct messages, such as the one beside this tab.")
        scopes |= dict.fromkeys(direct.limits.scopes)
    if isinstance(wide, Allowed):
        places.append("In channels that I am a member of, when you mention me.")
        scopes |= dict.fromkeys(wide.limits.scopes)
        if not ruling(policy, asked.user, "", "mention", None).mention_needed:
            places.append("In threads that I have answered in, also without a mention.")
    if policy.channels:
        places.append("Some channels have rules of their own; I say so where you ask.")
    if isinstance(direct, Allowed) or isinstance(wide, Allowed):
        return "", tuple(places), tuple(scopes)
    shown = wide if policy.direct.answer is False else direct
    return getattr(shown, "reason", ""), (), ()


def _somewhere(asked: Asked) -> Asked:
    """The same user, mentioning the assistant in a channel without rules of its own."""
    return replace(asked, kind="mention", facts=ChannelFacts("", "", shared=False, private=False))


async def last_runs(inbox: Inbox, user: str, url: str) -> tuple[LastRun, ...]:
    runs = []
    for run in await inbox.recent(user, LAST_RUNS):
        request = await inbox.request(run.request) if run.request else None
        answers = (request.reply or {}).get("ts") or () if request else ()
        link = None
        if request and answers:
            link = permalink(url, request.channel, str(answers[0]), request.thread_ts)
        runs.append(LastRun(run.question, run.status, run.started, run.cost_usd, link))
    return tuple(runs)


async def publish(web: AsyncWebClient, user: str, shown: Block) -> bool:
    """Show a Home; whether it is shown. A newer one in its place (`hash_conflict`) counts."""
    code = await attempt("App Home", web.views_publish(user_id=user, view=shown))
    return code in ("", "hash_conflict")


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


def _reads_mail(scopes: Sequence[str]) -> bool:
    return "email" in MODULES and ("email" in scopes or ALL in scopes)


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
