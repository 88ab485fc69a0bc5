"""What the bot shows beside its answers: App Home, the agent pane, cards; who may press what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.accounts.connecting import Connecting
from bot.approval.approvals import Approvals
from bot.approval.clicking import After
from bot.approval.clicks import Clicked, Submitted
from bot.faces import home_mail, pane
from bot.faces.abilities import Reach
from bot.faces.home import Home
from bot.faces.home_view import PAUSE, RESUME
from bot.hearing.heard import Acted, Opened, Pressed
from bot.policy.policy import Admission
from bot.policy.policy_file import PolicyFault
from bot.requests.inbox import Incoming
from bot.triage.digest_acting import DigestActing
from config.settings import Settings

HOME_TAB = "home"


class Faces:
    """What follows when somebody opens, presses or looks at something."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        web: AsyncWebClient,
        url: str,
        approvals: Approvals,
        digests: DigestActing,
        reach: Reach,
    ) -> None:
        """`url` is the workspace's address, as auth.test says it."""
        self._admission, self._web, self._approvals = admission, web, approvals
        self._digests = digests
        self.connecting = Connecting(settings, admission.inbox.database, web, url)
        self._home = Home(admission, web, url, reach, self.connecting)
        self._looking = pane.Looking()

    def looked(self, opened: Opened) -> None:
        """Remember what a user turned to: the next message may be about it."""
        self._looking.note(opened.event)

    def folded(self, event: Mapping[str, Any]) -> Mapping[str, Any]:
        """The event of a request, with what its user looks at."""
        return self._looking.folded(event)

    async def opened(self, opened: Opened) -> None:
        """Show Home, or prompts in the pane. Raises StoreError."""
        if opened.tab == HOME_TAB:
            await self._home.show(opened.user, opened.team)
            return
        event = {**opened.event, "channel": opened.channel}
        await pane.suggest(self._web, self._admission.people, event)

    async def pressed(self, pressed: Pressed) -> None:
        """Obey a button or a field of Home. Raises StoreError."""
        if pressed.action in (PAUSE, RESUME, *home_mail.ACTIONS):
            await self._home.press(pressed.action, pressed.user, pressed.team, pressed.typed)

    async def acted(self, acted: Acted) -> None:
        """Do what is clicked below a thread of a digest. Raises StoreError."""
        await self._digests.act(acted)

    async def clicked(self, click: Clicked | Submitted) -> After:
        """Decide by a card. Raises StoreError."""
        return await self._approvals.clicked(click)

    async def begun(self, request: Incoming) -> None:
        """Name a conversation after the request that it begins with."""
        if request.kind == "dm" and request.thread_ts == request.ts:
            await pane.entitle(self._web, request.channel, request.ts, request.text)

    async def is_admin(self, user: str) -> bool:
        """Whether the policy of now names this user; nobody while it is wrong."""
        try:
            return user in (await self._admission.file.read()).admins
        except PolicyFault:
            return False
