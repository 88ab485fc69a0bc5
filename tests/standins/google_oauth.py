"""Google's OAuth as the tests need it: what it grants can be changed, and it keeps a log."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from bot.local.google import oauth
from bot.local.google.oauth import CLIENT_ID, CLIENT_SECRET, Grant, Json, OAuthRefused

__all__ = ["CLIENT_ID", "CLIENT_SECRET", "LocalGoogleOauth"]

AS_ITSELF = ("bigquery", "spreadsheets")
"""OAuth scopes, the last part of their names, that a service account may have for itself."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"


@dataclass
class LocalGoogleOauth(oauth.LocalGoogleOauth):
    """An authorization server whose next answers are changed by its fields, at any time.

    The signature of a service account is not checked.
    """

    denies: str = ""
    """An error that the next ones come back with, such as `access_denied`."""
    scope: str | None = None
    """What is granted instead of what was asked for."""
    redirect_uris: Sequence[str] | None = None
    """The only addresses to come back to; None = any, as a loopback client may."""
    requests: list[tuple[str, Json]] = field(default_factory=list)
    """What was asked: path and parameters, secrets among them."""

    async def auth(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.requests.append(("/auth", asked))
        redirect = asked.get("redirect_uri", "")
        if self.redirect_uris is not None and redirect not in self.redirect_uris:
            return PlainTextResponse("Error 400: redirect_uri_mismatch", 400)
        if self.denies:
            told = {"error": self.denies, "state": asked.get("state", "")}
            return RedirectResponse(f"{redirect}?{urlencode(told)}", 302)
        return await super().auth(request)

    def granted(self, asked: str) -> str:
        return self.scope or asked

    async def sent(self, request: Request) -> Json:
        sent = await super().sent(request)
        self.requests.append((request.url.path, sent))
        return sent

    def tokens_for(self, sent: Json) -> Json:
        if sent.get("grant_type") == JWT_BEARER:
            return self._delegated(sent)
        return super().tokens_for(sent)

    def _delegated(self, sent: Json) -> Json:
        """A service account that acts for somebody, or for itself where no mailbox is opened."""
        part = str(sent.get("assertion", "")).split(".")[1:2]
        claims = json.loads(base64.urlsafe_b64decode(f"{part[0]}===")) if part else {}
        scope = str(claims.get("scope", ""))
        who = claims.get("sub") or (scope.rpartition("/")[2] in AS_ITSELF and claims.get("iss"))
        if not who:
            raise OAuthRefused("unauthorized_client", 401)
        grant = Grant(who, scope)
        self.grants.append(grant)
        return self.access(grant)
