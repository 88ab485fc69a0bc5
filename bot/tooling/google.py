"""Google for databases and sheets: as a service account, or with the operator's own token."""

from __future__ import annotations

from pathlib import Path

from bot.errors import SetupError
from config.settings import Settings
from scopes.google.auth import Sentences, delegated_credentials, token_credentials
from scopes.google.client import Google, GoogleError

HELP = "docs/google.md tells how it is set up."


def has_credentials(settings: Settings, own: Path | None, *, operator: bool) -> bool:
    """Whether there is anything to open a source with; `own` is the key file that it names."""
    token = operator and settings.secrets.google_access_token
    return bool(own or settings.google.service_account or token)


def google_of(
    settings: Settings,
    source: str,
    own: Path | None,
    scope: str,
    endpoint: str | None,
    *,
    operator: bool,
) -> Google | None:
    """What opens a source of the settings (`data.sheets.targets`); None = there are no credentials.

    Its own service account goes first, then the token of who is at the command line, then the
    service account of all. Raises SetupError where the key file cannot be used.
    """
    google, token = settings.google, settings.secrets.google_access_token
    if not own and operator and token:
        return Google(token_credentials(token.get_secret_value()), google, endpoint)
    key = own or (Path(google.service_account) if google.service_account else None)
    if key is None:
        return None
    setting = f"{source}.service_account" if own else "google.service_account"
    sentences = Sentences(
        f"Google does not accept the key in {setting}: make a new one.",
        f"Google does not accept the key in {setting}: its account was deleted.",
        setting,
    )
    oauth = settings.endpoints.google_oauth_endpoint
    try:
        access = delegated_credentials(key, None, oauth, google.timeout_s, (scope,), sentences)
    except GoogleError as error:
        raise SetupError("google", f"{source}: {error}", HELP) from None
    return Google(access, google, endpoint)


def missing_credentials(source: str) -> str:
    """What is said where a source has none."""
    return (
        f"{source} has no credentials: name a key file in {source}.service_account or in "
        "google.service_account (docs/google.md)."
    )
