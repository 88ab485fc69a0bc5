"""Build and publish App Home: mailbox, schedules, permissions, and the pause button."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import StoreError
from bot.mailbox.oauth import Connecting, MailAccess
from bot.policy.policy import (
    DIRECT,
    Admission,
    AdmissionFacts,
    Permitted,
    PolicyFault,
    closest_rule,
    day_of,
    decide,
    needed_groups,
)
from bot.requests.capabilities import Capabilities, abilities
from bot.schedules import chat
from bot.schedules.store import ScheduleStore
from bot.slack.assistant_pane import attempt
from bot.slack.blocks import paragraph, rich
from bot.slack.people import ChannelFacts
from bot.storage.database import Database
from bot.storage.requests import RequestQueue
from config.sections import Policy
from scopes import ALL, MODULES
from scopes.effects import OPEN_MAIL
from scopes.slack import OPEN_CHANNELS
from scopes.slack_items import permalink, plain
from scopes.tool import one_line

CONNECT, CODE, CANCEL, DISCONNECT, FORGET = (
    "home_mail_connect",
    "home_mail_code",
    "home_mail_cancel",
    "home_mail_disconnect",
    "home_mail_forget",
)
"""Action ids of the mailbox buttons, and of the field for the code."""
ACTIONS = (CONNECT, CODE, CANCEL, DISCONNECT, FORGET)
MOST_CORRECTED, MAX_CORRECTED = 20, 130
"""Maximum number of corrections shown, and of characters in each."""
LINK = "home_mail_link"
"""Action id of the button that only opens a page."""
OFF = (
    "Your mail cannot be connected here yet: an administrator has to set google.client_id, "
    "GOOGLE_CLIENT_SECRET and serve.public_url (docs/google.md)."
)

PAUSE, RESUME = "home_pause", "home_resume"
"""Action ids of an administrator's buttons."""
MOST_SCHEDULES = 10
"""Schedules that are shown; the rest is counted."""
LAST_RUNS = 5
QUESTION_CHARS = 140
STATES = {"complete": "answered", "partial": "answered in part", "cancelled": "stopped"}
"""Status of a run -> what a user calls it, where that differs."""

Block = dict[str, Any]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LastRun:
    question: str
    status: str
    started: datetime
    cost_usd: float | None
    link: str | None
    """Link to its answer in Slack; None until there is one."""


@dataclass(frozen=True, slots=True)
class HomeFacts:
    """The contents of one user's Home."""

    refusal: str = ""
    """Why this user may not ask; empty if they may."""
    places: tuple[str, ...] = ()
    """Where this user's requests are answered, in sentences."""
    scopes: tuple[str, ...] = ()
    handles: Mapping[str, str] = field(default_factory=dict)
    """Handle -> title of everything that this user's requests may use now."""
    runs: tuple[LastRun, ...] = ()
    spent_usd: float = 0.0
    """US dollars spent by this user since 00:00 UTC."""
    daily_usd: float | None = None
    paused: str | None = None
    """Who paused the assistant; None = it is running."""
    admin: bool = False
    mail: MailAccess | None = None
    """State of this user's mailbox; None = mail is not available to them."""
    schedules: tuple[str, ...] = ()


def view(facts: HomeFacts) -> Block:
    """Render a user's Home as Block Kit."""
    return {"type": "home", "blocks": list(_blocks(facts))}


def _blocks(facts: HomeFacts) -> Iterator[Block]:
    if facts.paused is not None:
        by = f":double_vertical_bar: *Paused by {_who(facts.paused)}.*"
        yield _section(f"{by} New requests wait and are answered later.")
    if facts.admin:
        yield _actions(_button(RESUME, "Resume") if facts.paused is not None else _pause_button())
    if facts.refusal:
        yield _section(facts.refusal)
    else:
        yield _header("What I can do here")
        yield _section("\n".join(abilities(facts.scopes, facts.handles)))
        yield _header("Where I answer you")
        yield _section("\n".join(f"• {place}" for place in facts.places) or "Nowhere at present.")
    if facts.mail:
        yield from _mail_blocks(facts.mail)
    yield from schedule_blocks(facts.schedules)
    yield _header("Your last requests")
    for run in facts.runs[:LAST_RUNS]:
        yield from _run(run)
    if not facts.runs:
        yield _section("None yet.")
    yield {"type": "divider"}
    yield _context(_format_spent(facts))
    yield _context("Slack is connected.")


def _mail_blocks(mail: MailAccess) -> Iterator[Block]:
    """Yield the state of the mailbox, and the buttons for it."""
    yield _header("Your mail")
    if mail.note:
        yield _text(mail.note)
    if mail.state == "off":
        yield _text(OFF)
    elif mail.state == "delegated":
        yield _text("I may read the mailbox of your own address, by your company's rules.")
    elif mail.state == "absent":
        yield _text("Gmail is not connected. What I read in your mailbox is for you alone.")
        yield _actions(_button(CONNECT, "Connect Gmail", style="primary"))
    elif mail.state == "offered":
        yield _text(
            "Go on in the browser within ten minutes: allow it at Google, and come back with the "
            "code that you are shown at the end."
        )
        link = _button(LINK, "Open the page", style="primary", url=mail.link)
        yield _actions(link, _button(CANCEL, "Cancel"))
    elif mail.state == "waiting":
        yield _text(f"{mail.address} waits for the code on the page in your browser, ten minutes.")
        yield _code_field()
        yield _actions(_button(CANCEL, "Cancel"))
    else:
        yield _text(f"Gmail is connected as {mail.address}.")
        told = f"I forget how to open {mail.address}, and tell Google so. Your mail stays as it is."
        sure = _confirm("Disconnect Gmail?", told[:300], "Disconnect")
        end = _button(DISCONNECT, "Disconnect", style="danger", confirm=sure)
        yield _actions(_button(CONNECT, "Connect again"), end)
    if mail.corrected:  # addresses come from strangers, so they are cut
        lines = [each[:MAX_CORRECTED] for each in mail.corrected]
        yield _text(
            "\n".join(["What you have set right in digests:", *_list(lines, MOST_CORRECTED)])
        )
        yield _actions(_button(FORGET, "Forget all of it"))


def _code_field() -> Block:
    return {
        "type": "input",
        "dispatch_action": True,
        "label": _plain("Code"),
        "hint": _plain("Type it yourself, from your own browser, and press Enter."),
        "element": {
            "type": "plain_text_input",
            "action_id": CODE,
            "max_length": 20,
            "dispatch_action_config": {"trigger_actions_on": ["on_enter_pressed"]},
        },
    }


def schedule_blocks(lines: Sequence[str]) -> Iterator[Block]:
    """Yield the section on schedules; nothing for a user without any."""
    if lines:
        yield _header("Your schedules")
        # rich text, as crontabs contain markup characters
        yield rich(paragraph("\n".join(_list(lines, MOST_SCHEDULES))[:3000]))


def _list(lines: Sequence[str], most: int) -> list[str]:
    more = len(lines) - most
    return [*(f"• {line}" for line in lines[:most]), *([f"and {more} more"] if more > 0 else [])]


def _run(run: LastRun) -> Iterator[Block]:
    question = one_line(plain(run.question, {})) or "(no text)"
    if len(question) > QUESTION_CHARS:
        question = question[: QUESTION_CHARS - 1].rstrip() + "…"
    yield _text(question)
    stamp = f"{run.started.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    when = f"<!date^{int(run.started.timestamp())}^{{date_short_pretty}} {{time}}|{stamp}>"
    link = [f"<{run.link}|Open the answer>"] if run.link else []
    state = STATES.get(run.status, run.status)
    yield _context(" · ".join([state, *_cost(run.cost_usd), when, *link]))


def _cost(usd: float | None) -> list[str]:
    if usd is None:
        return []
    return [f"${usd:.2f}" if usd >= 0.01 or usd == 0 else "under $0.01"]


def _format_spent(facts: HomeFacts) -> str:
    spent = f"You have spent ${facts.spent_usd:.2f}"
    limit = "" if facts.daily_usd is None else f" of ${facts.daily_usd:.2f}"
    return f"{spent}{limit} today. A new day begins at 00:00 UTC."


def _who(by: str) -> str:
    return by if re.fullmatch(r"<@[UW][A-Z0-9]+>", by) else html.escape(one_line(by), quote=False)


def _pause_button() -> Block:
    told = "Requests that are running are finished; new requests wait until you resume."
    sure = _confirm("Pause the assistant?", told, "Pause")
    return _button(PAUSE, "Pause for everybody", style="danger", confirm=sure)


def _button(action: str, words: str, **more: Any) -> Block:
    return {"type": "button", "action_id": action, "text": _plain(words), **more}


def _confirm(title: str, text: str, words: str) -> Block:
    told = {"title": title, "text": text, "confirm": words, "deny": "Cancel"}
    return {name: _plain(each) for name, each in told.items()}


def _actions(*buttons: Block) -> Block:
    return {"type": "actions", "elements": list(buttons)}


def _section(markup: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": markup[:3000]}}


def _text(text: str) -> Block:
    """Return a section that Slack does not parse."""
    return {"type": "section", "text": _plain(text[:3000])}


def _header(text: str) -> Block:
    return {"type": "header", "text": _plain(text)}


def _context(markup: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": markup}]}


def _plain(text: str) -> Block:
    return {"type": "plain_text", "text": text, "emoji": False}


class Home:
    """Collects the contents of a user's Home, publishes it, and handles its buttons."""

    def __init__(
        self,
        admission: Admission,
        web: AsyncWebClient,
        url: str,
        reach: Capabilities,
        connecting: Connecting,
    ) -> None:
        """`web` publishes; `url` is the workspace's address, as auth.test returns it."""
        self._admission, self._web, self._url = admission, web, url
        self._reach, self._connecting = reach, connecting
        connecting.publish = self.show

    async def show(self, user: str, team: str) -> None:
        """Publish Home for a user who opened it. Raises StoreError."""
        await publish(self._web, user, view(await self.facts(user, team)))

    async def press(self, action: str, user: str, team: str, typed: str = "") -> None:
        """Handle a button or field if this user may use it, and publish the result."""
        facts = await self.facts(user, team)
        if action in ACTIONS and facts.mail:
            mail = await self._change_mail(self._connecting, action, user, team, typed)
            facts = replace(facts, mail=mail)
        elif action in (PAUSE, RESUME) and facts.admin:
            inbox = self._admission.inbox
            await (inbox.pause(f"<@{user}>") if action == PAUSE else inbox.resume())
            facts = replace(facts, paused=await inbox.paused_by())
        await publish(self._web, user, view(facts))

    async def _change_mail(
        self, connecting: Connecting, action: str, user: str, team: str, typed: str
    ) -> MailAccess:
        if action == CONNECT:
            return await connecting.begin(user, team)
        if action == CODE:
            return await connecting.confirm(user, typed)
        if action == CANCEL:
            return await connecting.cancel(user)
        if action == DISCONNECT:
            return await connecting.disconnect(user)
        return await connecting.forget_corrections(user)

    async def facts(self, user: str, team: str) -> HomeFacts:
        inbox, paused = self._admission.inbox, await self._admission.inbox.paused_by()
        try:
            policy = await self._admission.file.read()
        except PolicyFault as fault:
            return HomeFacts(fault.reason, paused=paused)
        refusal, where, offered = offers(policy, await self._admission_facts(policy, user, team))
        mail = await self._mail(user, offered)
        return HomeFacts(
            refusal=refusal,
            places=where,
            scopes=offered,
            handles={} if refusal else await self._handles(user, mail),
            runs=await last_runs(inbox, user, self._url),
            spent_usd=(await inbox.spending(user, day_of(datetime.now(UTC))))[0],
            daily_usd=policy.user_daily_usd,
            paused=paused,
            admin=user in policy.admins,
            mail=mail,
            schedules=await _schedules(inbox.database, user),
        )

    async def _handles(self, user: str, mail: MailAccess | None) -> dict[str, str]:
        own = {OPEN_MAIL: ""} if mail and mail.state != "off" else {}
        return {OPEN_CHANNELS: "", **own, **await self._reach.of(user)}

    async def _mail(self, user: str, offered: Sequence[str]) -> MailAccess | None:
        if _reads_mail(offered):
            return await self._connecting.access(user)
        return None

    async def _admission_facts(self, policy: Policy, user: str, team: str) -> AdmissionFacts:
        """Return the policy's view of the user without a particular place or budgets."""
        asked = await self._admission.gather_facts(policy, user, team, "", DIRECT)
        needed = needed_groups(policy, _somewhere(asked))
        more = {g: await self._admission.people.group(g) for g in needed}
        return replace(asked, groups={**asked.groups, **more}, user_usd=0.0, all_usd=0.0)


def offers(policy: Policy, asked: AdmissionFacts) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return why this user may not ask anywhere (or nothing), where they may, and their scopes.

    Channels with rules of their own are not named: a user may not know that they exist.
    """
    free = policy.model_copy(update={"user_daily_usd": None, "daily_usd": None})
    direct, wide = decide(free, asked, 0.0), decide(free, _somewhere(asked), 0.0)
    places, scopes = [], dict[str, None]()
    if isinstance(direct, Permitted):
        places.append("In direct messages, such as the one beside this tab.")
        scopes |= dict.fromkeys(direct.scopes)
    if isinstance(wide, Permitted):
        places.append("In channels that I am a member of, when you mention me.")
        scopes |= dict.fromkeys(wide.scopes)
        if not closest_rule(policy, asked.user, "", "mention", None).mention_needed:
            places.append("In threads that I have answered in, also without a mention.")
    if policy.channels:
        places.append("Some channels have rules of their own; I say so where you ask.")
    if isinstance(direct, Permitted) or isinstance(wide, Permitted):
        return "", tuple(places), tuple(scopes)
    shown = wide if policy.direct.answer is False else direct
    return getattr(shown, "reason", ""), (), ()


def _somewhere(asked: AdmissionFacts) -> AdmissionFacts:
    """Return the same user, mentioning the assistant in a channel without rules of its own."""
    return replace(asked, kind="mention", facts=ChannelFacts("", "", shared=False, private=False))


async def _schedules(database: Database, user: str) -> tuple[str, ...]:
    """Return a line for each of this user's schedules; nothing if they cannot be read now."""
    now = datetime.now(UTC)
    try:
        rows = [row for row in await ScheduleStore(database).all() if row.spec.owner == user]
    except StoreError as error:
        log.error("%s", error)
        return ()
    return tuple(
        chat.line(row, now, reading=", ".join(row.spec.channels) or "your mailbox") for row in rows
    )


async def last_runs(inbox: RequestQueue, user: str, url: str) -> tuple[LastRun, ...]:
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
    """Publish a Home; return whether it is shown. A newer one (`hash_conflict`) counts."""
    code = await attempt("App Home", web.views_publish(user_id=user, view=shown))
    return code in ("", "hash_conflict")


def _reads_mail(scopes: Sequence[str]) -> bool:
    return "email" in MODULES and ("email" in scopes or ALL in scopes)
