"""The mailboxes of those who ask in Slack: each opened for one run, with its owner's rights."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from bot.accounts.credentials import Credentials
from bot.accounts.mail_credentials import mail_credentials
from bot.errors import SetupError, StoreError
from config.settings import Settings
from scopes.google.client import Google, GoogleError
from scopes.google.gmail import Gmail
from scopes.google.quota import Quota

log = logging.getLogger(__name__)

Address = Callable[[str], Awaitable[str | None]]
"""The mail address of a Slack user, as the workspace vouches for it; None = not known."""


@dataclass
class Mailboxes:
    """Opens the mailbox of a Slack user; what each asks of Google in a minute is counted once."""

    settings: Settings
    store: Credentials
    address: Address
    _quotas: dict[str, Quota] = field(default_factory=dict)

    async def open(self, user: str | None) -> OpenedMail | None:
        """The mailbox of this user; None where none is connected, or it cannot be opened."""
        if user is None:
            return None
        try:
            address = await self.address(user) if self.settings.google.service_account else None
            access = await mail_credentials(self.settings, self.store, user, address)
        except (SetupError, StoreError, GoogleError) as error:
            log.warning("the mailbox of %s cannot be opened: %s", user, error)
            return None
        if access is None:
            return None
        quota = self._quotas.setdefault(user, Quota(self.settings.google.units_per_minute))
        endpoint = self.settings.endpoints.gmail_api_endpoint
        google = Google(access, self.settings.google, endpoint, quota)
        return OpenedMail(Gmail(google, user), google)


@dataclass(frozen=True)
class OpenedMail:
    """A mailbox that is open, until `aclose`."""

    gmail: Gmail
    google: Google

    async def aclose(self) -> None:
        await self.google.aclose()
