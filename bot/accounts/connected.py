"""The Google accounts that are connected: which mailbox is whose, and how one is let go."""

from __future__ import annotations

from dataclasses import dataclass

from bot.accounts.credentials import Credentials, Tokens
from bot.accounts.google_oauth import ConnectFailed, GoogleOauth

GOOGLE = "google"
"""The provider under which tokens are stored."""
OPERATOR = "operator"
"""The account of the command line; no Slack user is called so."""


@dataclass(frozen=True, slots=True)
class Gone:
    """A mailbox that was disconnected."""

    address: str
    fault: str = ""
    """Why Google does not know of it; empty = it does."""
    shared: bool = False
    """Somebody else here has connected it, too: what Google granted stays theirs."""


async def connected(store: Credentials, account: str) -> str:
    """The address of an account's mailbox; empty = none is connected. Raises StoreError."""
    tokens = await store.get(GOOGLE, account)
    return _address(tokens) if tokens else ""


async def disconnect(store: Credentials, oauth: GoogleOauth | None, account: str) -> Gone | None:
    """Delete an account's tokens, and revoke them at Google; None = there were none.

    What Google grants is one grant for each mailbox and client, so it is revoked with the last of
    those who connected that mailbox. Raises StoreError.
    """
    tokens = await store.get(GOOGLE, account)
    if tokens is None:
        return None
    address = _address(tokens)
    await store.delete(GOOGLE, account)
    if address in [await connected(store, other) for other, _ in await store.accounts(GOOGLE)]:
        return Gone(address, shared=True)
    try:
        if oauth is None:
            raise ConnectFailed("invalid_client")
        await oauth.revoke(tokens)
    except ConnectFailed as error:
        return Gone(address, str(error))
    return Gone(address)


def _address(tokens: Tokens) -> str:
    known = tokens.get("address")
    return known.get_secret_value() if known else "a mailbox"
