"""A stand-in for Google's OAuth: it asks nobody, remembers its grants, and keeps a log.

It is as strict as Google about clients, PKCE, codes that are used twice or too late, and tokens
that expired: developers.google.com/identity/protocols/oauth2/web-server. The signature of a service
account is not checked. What it grants can be changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT_ID = "local-client.apps.googleusercontent.com"
CLIENT_SECRET = "local-client-secret"
CODE_S = 600.0
TOKEN_S = 3_599
AS_ITSELF = ("bigquery", "spreadsheets")
"""OAuth scopes, the last part of their names, that a service account may have for itself."""
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"

Json = dict[str, Any]


@dataclass(slots=True)
class Grant:
    """The access that one person granted to one client; it is revoked as a whole."""

    address: str
    scope: str
    redirect_uri: str = ""
    challenge: str = ""
    code: str = ""
    refresh_token: str = ""
    revoked: bool = False


class OAuthRefused(Exception):
    """An answer of the token endpoint that is not 200."""

    def __init__(self, error: str, status: int = 400, description: str = "") -> None:
        self.status, self.body = status, {"error": error, "error_description": description or error}
        super().__init__(error)


@dataclass
class LocalGoogleOauth:
    """One authorization server; tests change its fields at any time."""

    address: str = "ana@acme.example"
    """The mailbox to which the next visitor of `/auth` grants access."""
    now: Callable[[], float] = time.time
    grants: list[Grant] = field(default_factory=list)
    scope: str | None = None
    """The scope that is granted instead of the requested one."""
    requests: list[tuple[str, Json]] = field(default_factory=list)
    """Path and parameters of each request, with secrets."""
    _tokens: dict[str, tuple[Grant, float]] = field(default_factory=dict)
    _codes: dict[str, tuple[Grant, float]] = field(default_factory=dict)

    @property
    def app(self) -> Starlette:
        return Starlette(routes=self.routes())

    def routes(self, below: str = "") -> list[Route]:
        """Return the routes, to be served also beside other services of Google's."""
        return [
            Route(f"{below}/auth", self._auth),
            Route(f"{below}/token", self._token, methods=["POST"]),
            Route(f"{below}/revoke", self._revoke, methods=["POST"]),
        ]

    def whose(self, token: str) -> str | None:
        """Return the mailbox that an access token opens; None for an expired or unknown one."""
        grant, ends = self._tokens.get(token, (None, 0.0))
        return grant.address if grant and not grant.revoked and self.now() < ends else None

    def revoke(self, address: str) -> None:
        """Remove the app at Google, as the owner of the mailbox."""
        for grant in self.grants:
            grant.revoked = grant.revoked or grant.address == address

    # ---- the browser

    async def _auth(self, request: Request) -> Response:
        params = dict(request.query_params)
        self.requests.append(("/auth", params))
        redirect = params.get("redirect_uri", "")
        if params.get("client_id") != CLIENT_ID:
            return PlainTextResponse("Error 401: invalid_client", 401)
        if params.get("response_type") != "code" or params.get("code_challenge_method") != "S256":
            return PlainTextResponse("Error 400: invalid_request", 400)
        grant = Grant(self.address, self.scope or params["scope"], redirect)
        grant.challenge, grant.code = params["code_challenge"], f"4/0{secrets.token_urlsafe(48)}"
        if params.get("access_type") == "offline" and "consent" in params.get("prompt", ""):
            grant.refresh_token = f"1//0{secrets.token_urlsafe(48)}"
        self.grants.append(grant)
        self._codes[grant.code] = (grant, self.now() + CODE_S)
        answer = {"state": params.get("state", ""), "code": grant.code, "scope": grant.scope}
        return RedirectResponse(f"{redirect}?{urlencode(answer)}", 302)

    # ---- the client

    async def _token(self, request: Request) -> Response:
        form = await self._read_form(request)
        try:
            return JSONResponse(self._tokens_for(form))
        except OAuthRefused as refusal:
            return JSONResponse(refusal.body, refusal.status)

    def _tokens_for(self, form: Json) -> Json:
        """Return the answer to a request of the token endpoint."""
        kind = form.get("grant_type")
        if kind == JWT_BEARER:
            return self._exchange_assertion(form)
        if form.get("client_id") != CLIENT_ID or form.get("client_secret") != CLIENT_SECRET:
            raise OAuthRefused("invalid_client", 401)
        if kind == "authorization_code":
            return self._exchange_code(form)
        if kind == "refresh_token":
            return self._refresh_access(form)
        raise OAuthRefused("unsupported_grant_type")

    def _exchange_code(self, form: Json) -> Json:
        grant, ends = self._codes.pop(form.get("code", ""), (None, 0.0))
        verifier = str(form.get("code_verifier", ""))
        proof = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode()
        if grant is None or self.now() > ends or proof.rstrip("=") != grant.challenge:
            raise OAuthRefused("invalid_grant", description="Malformed auth code.")
        if form.get("redirect_uri") != grant.redirect_uri:
            raise OAuthRefused("redirect_uri_mismatch")
        refresh = {"refresh_token": grant.refresh_token} if grant.refresh_token else {}
        return {**self._access(grant), **refresh}

    def _refresh_access(self, form: Json) -> Json:
        token = form.get("refresh_token")
        found = [g for g in self.grants if token and g.refresh_token == token and not g.revoked]
        if not found:
            raise OAuthRefused("invalid_grant", description="Token has been expired or revoked.")
        return self._access(found[0])

    def _access(self, grant: Grant) -> Json:
        token = f"ya29.{secrets.token_urlsafe(48)}"
        self._tokens[token] = (grant, self.now() + TOKEN_S)
        about = {"expires_in": TOKEN_S, "scope": grant.scope, "token_type": "Bearer"}
        return {"access_token": token, **about}

    async def _revoke(self, request: Request) -> Response:
        """Revoke all grants of that person: https://developers.google.com/identity/protocols/oauth2"""
        form = await self._read_form(request)
        token = str(form.get("token", ""))
        held = [g for g in self.grants if token and g.refresh_token == token]
        held += [self._tokens[token][0]] if token in self._tokens else []
        if not held or held[0].revoked:
            error = {"error": "invalid_token", "error_description": "Token expired or revoked"}
            return JSONResponse(error, 400)
        self.revoke(held[0].address)
        return JSONResponse({})

    def _exchange_assertion(self, form: Json) -> Json:
        """Grant a service account access for somebody, or for itself where it opens no mailbox."""
        part = str(form.get("assertion", "")).split(".")[1:2]
        claims = json.loads(base64.urlsafe_b64decode(f"{part[0]}===")) if part else {}
        scope = str(claims.get("scope", ""))
        who = claims.get("sub") or (scope.rpartition("/")[2] in AS_ITSELF and claims.get("iss"))
        if not who:
            raise OAuthRefused("unauthorized_client", 401)
        grant = Grant(who, scope)
        self.grants.append(grant)
        return self._access(grant)

    async def _read_form(self, request: Request) -> Json:
        form = dict(parse_qsl((await request.body()).decode()))
        self.requests.append((request.url.path, form))
        return form
