"""Connects to Claude at its provider: Anthropic's own API, Amazon Bedrock or Google Vertex."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, TypeAlias

from anthropic import (
    AsyncAnthropic,
    AsyncAnthropicBedrock,
    AsyncAnthropicVertex,
    DefaultAioHttpClient,
)
from google.auth.exceptions import GoogleAuthError

from config.sections import Models
from scopes.pages.hosts import is_here

Client: TypeAlias = AsyncAnthropic | AsyncAnthropicBedrock | AsyncAnthropicVertex

NAMES = {"anthropic": "Anthropic", "bedrock": "Amazon Bedrock", "vertex": "Google Vertex"}
GOOGLE_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


def _credential_errors() -> tuple[type[Exception], ...]:
    if find_spec("botocore") is None:
        return (GoogleAuthError,)
    from botocore.exceptions import BotoCoreError

    return (GoogleAuthError, BotoCoreError)


NO_CREDENTIALS = _credential_errors()
"""Raised by a call whose credentials cannot be renewed; nothing was sent."""


class ProviderNotReady(Exception):
    """A provider that cannot be called yet: what is missing, and what to do about it."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(f"{message} {hint}")


def http_client(base_url: str | None) -> DefaultAioHttpClient:
    """Return an HTTP client for the service at this address (None = the provider's)."""
    return DefaultAioHttpClient(trust_env=not (base_url and is_here(base_url)))


def open_client(
    models: Models, key: str | None, base_url: str | None, timeout_s: float | None = None
) -> Client:
    """Return the SDK's client of the provider that the settings choose; it retries nothing.

    `key` is the API key; Bedrock and a compatible server may need none. Raises ProviderNotReady.
    """
    shared: dict[str, Any] = {
        "base_url": base_url,
        "max_retries": 0,
        "timeout": timeout_s or models.timeout_s,
        "open_telemetry": False,
        "http_client": http_client(base_url),
    }
    if models.provider == "bedrock":
        return _bedrock(models, key, shared)
    if models.provider == "vertex":
        return _vertex(models, shared)
    return AsyncAnthropic(api_key=key or "none", **shared)


def _bedrock(models: Models, key: str | None, shared: dict[str, Any]) -> AsyncAnthropicBedrock:
    _need("bedrock", "boto3", "botocore")
    if key is None:
        _find_aws_credentials()
    return AsyncAnthropicBedrock(aws_region=models.region, api_key=key, **shared)


def _find_aws_credentials() -> None:
    import boto3

    hint = (
        "Give the process a role, or set AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
        "or AWS_BEARER_TOKEN_BEDROCK."
    )
    try:
        found = boto3.Session().get_credentials()
    except NO_CREDENTIALS as error:
        raise ProviderNotReady("no_credentials", f"AWS credentials: {error}.", hint) from error
    if found is None:
        raise ProviderNotReady("no_credentials", "No AWS credentials were found.", hint)


def _vertex(models: Models, shared: dict[str, Any]) -> AsyncAnthropicVertex:
    _need("vertex", "google.auth", "requests")
    import google.auth

    try:
        credentials, project = google.auth.default(scopes=[GOOGLE_SCOPE])
    except GoogleAuthError as error:
        raise ProviderNotReady(
            "no_credentials",
            "No Google credentials were found.",
            "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS "
            "to a key file.",
        ) from error
    project_id = models.project or project
    if not project_id:
        raise ProviderNotReady(
            "no_project", "The credentials name no Google project.", "Set models.project."
        )
    assert models.region, "the settings need it for this provider"
    return AsyncAnthropicVertex(
        region=models.region, project_id=project_id, credentials=credentials, **shared
    )


def _need(provider: str, *modules: str) -> None:
    """Raise ProviderNotReady if a package of the provider's extra is missing."""
    if not all(find_spec(each) for each in modules):
        raise ProviderNotReady(
            "missing_extra",
            f"{NAMES[provider]} needs packages that are not there.",
            f"Install workspace-assistant[{provider}].",
        )


def explicit_marks(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body with the cache mark of the whole request on its last block.

    Bedrock and Vertex refuse the mark that Anthropic's API places itself.
    """
    copy = dict(body)
    mark = copy.pop("cache_control", None)
    if mark is None:
        return copy
    *before, last = copy["messages"]
    *blocks, end = last["content"]
    content = [*blocks, {**end, "cache_control": mark}]
    copy["messages"] = [*before, {**last, "content": content}]
    return copy
