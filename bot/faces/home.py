"""App Home: what the assistant can do for this user, what it did, what it cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from slack_sdk.web.async_client import AsyncWebClient

from bot.accounts.connecting import Connecting, MailAccess
from bot.faces import home_mail, home_schedules
from bot.faces.abilities import Reach
from bot.faces.home_view import LAST_RUNS, PAUSE, RESUME, Block, HomeFacts, LastRun, view
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
from scopes.slack_items import permalink


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


def _reads_mail(scopes: Sequence[str]) -> bool:
    return "email" in MODULES and ("email" in scopes or ALL in scopes)
