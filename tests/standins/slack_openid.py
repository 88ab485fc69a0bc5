"""Sign in with Slack: the page on which a person agrees, and the method that says who they are.

docs.slack.dev/authentication/sign-in-with-slack.
"""

import html
import secrets
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from bot.local.slack.server import API_PATH, LocalSlack, arguments, json_response

CLIENT_ID, CLIENT_SECRET = "1.2", "slack-client-secret"
PATH = "/openid/connect/authorize"


@dataclass
class SignIn:
    """The pages of one workspace for one app, which may send people back to `redirect_uri` only."""

    slack: LocalSlack
    redirect_uri: str
    user: str = ""
    """Who uses the browser, as Slack knows."""
    changed: dict[str, Any] = field(default_factory=dict)
    """Claims that are returned instead of the right ones."""
    client_secret: str = CLIENT_SECRET
    error: str = ""
    """An error instead of the next tokens."""
    asked: list[dict[str, str]] = field(default_factory=list)
    """Query parameters of the requests for the page."""
    codes: dict[str, dict[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Add the pages to the local Slack."""
        self.slack.app.router.routes[:0] = [
            Route(PATH, self._page, methods=["GET"]),
            Route(PATH, self._decide, methods=["POST"]),
            Route(f"{API_PATH}openid.connect.token", self._token, methods=["POST"]),
            Route(f"{API_PATH}openid.connect.userInfo", self._user_info, methods=["POST"]),
        ]

    async def _page(self, request: Request) -> Response:
        """The page on which a person allows it, or not."""
        query = dict(request.query_params)
        self.asked.append(query)
        wanted = {"client_id": CLIENT_ID, "redirect_uri": self.redirect_uri}
        wanted |= {"response_type": "code", "scope": "openid"}
        if {name: query.get(name) for name in wanted} != wanted:
            return HTMLResponse("This request is not valid.", 400)
        page = '<!doctype html><html lang="en"><title>Slack</title><form method="post">'
        buttons = "<button name=go value=yes>Allow</button><button name=go value=no>Cancel</button>"
        text = f"<p>Sign in as {html.escape(self.user)}</p>"
        return HTMLResponse(f"{page}{text}{buttons}</form></html>")

    async def _decide(self, request: Request) -> Response:
        query, form = dict(request.query_params), await arguments(request)
        back = {"state": query.get("state", "")}
        if form.get("go") == "yes":
            code = secrets.token_urlsafe(16)
            self.codes[code] = query | {"user": self.user}
            back["code"] = code
        else:
            back["error"] = "access_denied"
        return RedirectResponse(f"{self.redirect_uri}?{urlencode(back)}", 302)

    async def _token(self, request: Request) -> Response:
        """openid.connect.token."""
        form = await arguments(request)
        grant = self.codes.pop(str(form.get("code")), None)
        client = b64encode(f"{CLIENT_ID}:{self.client_secret}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {client}":
            return json_response({"ok": False, "error": "bad_client_secret"})
        if self.error:
            return json_response({"ok": False, "error": self.error})
        if grant is None:
            return json_response({"ok": False, "error": "invalid_code"})
        if form.get("redirect_uri") != grant["redirect_uri"]:
            return json_response({"ok": False, "error": "bad_redirect_uri"})
        token_of = {"access_token": f"xoxp-{grant['user']}", "token_type": "Bearer"}
        return json_response({"ok": True, **token_of})

    async def _user_info(self, request: Request) -> Response:
        """openid.connect.userInfo."""
        user = request.headers.get("authorization", "").removeprefix("Bearer xoxp-")
        claims = {"sub": user, "https://slack.com/user_id": user}
        claims |= {"https://slack.com/team_id": self.slack.state.team.id}
        return json_response({"ok": True, **claims, **self.changed})
