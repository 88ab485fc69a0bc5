"""Sign in with Slack: the page on which a person agrees, and the token that says who they are.

docs.slack.dev/authentication/sign-in-with-slack.
"""

import html
import secrets
import time
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from urllib.parse import urlencode

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from jwt.algorithms import RSAAlgorithm
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.local.slack.server import API_PATH, LocalSlack, arguments, json_response

CLIENT_ID, CLIENT_SECRET = "1.2", "slack-client-secret"
ISSUER = "https://slack.com"
PATH, KEYS = "/openid/connect/authorize", "/openid/connect/keys"
LIFE_S = 300.0


@cache
def signing_key(name: str = "slack") -> RSAPrivateKey:
    return generate_private_key(65_537, 2_048)


@dataclass
class SignIn:
    """The pages of one workspace for one app, which may send people back to `redirect_uri` only."""

    slack: LocalSlack
    redirect_uri: str
    user: str = ""
    """Who uses the browser, as Slack knows."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Claims that the next tokens have instead of the right ones."""
    signed: tuple[Any, str] = field(default_factory=lambda: (signing_key(), "RS256"))
    """Key and algorithm of the next tokens."""
    client_secret: str = CLIENT_SECRET
    error: str = ""
    """An error instead of the next tokens."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """What browsers came with."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Add the pages to the local Slack."""
        self.slack.app.router.routes[:0] = [
            Route(PATH, self._page, methods=["GET"]),
            Route(PATH, self._decide, methods=["POST"]),
            Route(KEYS, self._keys, methods=["GET"]),
            Route(f"{API_PATH}openid.connect.token", self._token, methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        """The page on which a person allows it, or not."""
        asked = dict(request.query_params)
        self.asked.append(asked)
        wanted = {"client_id": CLIENT_ID, "redirect_uri": self.redirect_uri}
        wanted |= {"response_type": "code", "scope": "openid"}
        if {name: asked.get(name) for name in wanted} != wanted:
            return HTMLResponse("This request is not valid.", 400)
        page = '<!doctype html><html lang="en"><title>Slack</title><form method="post">'
        buttons = "<button name=go value=yes>Allow</button><button name=go value=no>Cancel</button>"
        shown = f"<p>Sign in as {html.escape(self.user)}</p>"
        return HTMLResponse(f"{page}{shown}{buttons}</form></html>")

    async def _keys(self, request: Request) -> Response:
        """The keys that sign tokens."""
        key = RSAAlgorithm.to_jwk(signing_key().public_key(), as_dict=True)
        return json_response({"keys": [{**key, "kid": "one", "use": "sig", "alg": "RS256"}]})

    async def _decide(self, request: Request) -> Response:
        asked, pressed = dict(request.query_params), await arguments(request)
        back = {"state": asked.get("state", "")}
        if pressed.get("go") == "yes":
            code = secrets.token_urlsafe(16)
            self.codes[code] = asked | {"user": self.user}
            back["code"] = code
        else:
            back["error"] = "access_denied"
        return RedirectResponse(f"{self.redirect_uri}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        """openid.connect.token."""
        sent = await arguments(request)
        asked = self.codes.pop(str(sent.get("code")), None)
        if (sent.get("client_id"), sent.get("client_secret")) != (CLIENT_ID, self.client_secret):
            return json_response({"ok": False, "error": "bad_client_secret"})
        if self.error:
            return json_response({"ok": False, "error": self.error})
        if asked is None:
            return json_response({"ok": False, "error": "invalid_code"})
        if sent.get("redirect_uri") != asked["redirect_uri"]:
            return json_response({"ok": False, "error": "bad_redirect_uri"})
        token = jwt.encode(self._claims(asked), *self.signed, headers={"kid": "one"})
        token_of = {"access_token": f"xoxp-{asked['user']}", "token_type": "Bearer"}
        return json_response({"ok": True, **token_of, "id_token": token})

    def _claims(self, asked: dict[str, str]) -> dict[str, Any]:
        now = int(time.time())
        return {
            "iss": ISSUER,
            "sub": asked["user"],
            "aud": CLIENT_ID,
            "exp": now + int(LIFE_S),
            "iat": now,
            "nonce": asked.get("nonce", ""),
            "https://slack.com/team_id": self.slack.state.team.id,
            "https://slack.com/user_id": asked["user"],
            **self.changed,
        }
