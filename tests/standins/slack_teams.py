"""Several workspaces behind one address, as Slack serves them to an app that they installed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from bot.local.slack.server import arguments
from bot.local.slack.state import APP_ID, BOT_ID, BOT_USER
from standins.connections import replay
from standins.slack import LocalSlack

CLIENT_ID, CLIENT_SECRET = "1.2", "client-secret"
INSTALLER = "U0ANA"
COMPANY = "E0GRID"
"""An organization of Enterprise Grid, which all the workspaces belong to."""


def token_of(owner: str) -> str:
    """The token of a workspace, or of the company."""
    return f"xoxb-of-{owner}"


@dataclass
class SeveralSlacks:
    """The workspaces behind one address: each call goes to the workspace of its token.

    The company's token is good in all of them that approve the app; each call has to name one,
    though Slack asks that of some methods only (api.slack.com/enterprise/apps/changes-apis).
    """

    slacks: Mapping[str, LocalSlack]
    """Team id -> workspace. The first one opens the sockets of all."""
    secret: str = CLIENT_SECRET
    """Of the app's client."""
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Team and method of each call; no team if the token belongs to none."""
    approved: list[str] = field(default_factory=list)
    """Workspaces in which the company's installation is approved."""
    refused: list[str] = field(default_factory=list)
    """Methods that the company's token was refused for lack of a workspace."""
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    """Team id -> the app that answers for it, if that is not the workspace itself."""
    sockets: ASGIApp | None = None
    """What serves the websockets of all, if that is not the first workspace."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await (self.sockets or self._app_for(""))(scope, receive, send)
            return
        request = Request(scope, receive)
        body = await request.body()
        method = scope["path"].rpartition("/")[2]
        owner = request.headers.get("authorization", "").removeprefix("Bearer xoxb-of-")
        if method == "oauth.v2.access":
            form = await request.form()
            client = request.headers.get("authorization", "").removeprefix("Basic ")
            id, _, secret = base64.b64decode(client).decode().partition(":")
            app: ASGIApp = JSONResponse(self._access(str(form.get("code")), id, secret))
        elif owner == COMPANY:
            app = self._of_company(method, await arguments(request))
        else:
            app = self._of(owner, method)
        await app(scope, replay(body, receive), send)

    def _app_for(self, team: str) -> ASGIApp:
        """The app of a workspace; of the first one, if it is unknown."""
        chosen = team if team in self.slacks else next(iter(self.slacks))
        return self.apps.get(chosen) or self.slacks[chosen].app

    def _of(self, team: str, method: str) -> ASGIApp:
        self.calls.append((team if team in self.slacks else "", method))
        return self._app_for(team)

    def _of_company(self, method: str, args: Mapping[str, Any]) -> ASGIApp:
        """Answer a call with the company's token, or let the workspace answer that it names."""
        if method == "auth.teams.list":
            teams = [{"id": team, "name": team} for team in self.approved]
            body = {"ok": True, "teams": teams, "response_metadata": {"next_cursor": ""}}
            return JSONResponse(body)
        team = str(args.get("team_id") or "")
        if method == "auth.test":
            self.calls.append((team, method))
            body = {
                "ok": True,
                "url": "https://grid.enterprise.slack.com/",
                "team": "Grid",
                "user": "assistant",
                "team_id": COMPANY,
                "user_id": BOT_USER,
                "bot_id": BOT_ID,
                "enterprise_id": COMPANY,
                "is_enterprise_install": True,
            }
            return JSONResponse(body)
        if team not in self.approved:
            self.refused.append(method)
            code = "team_access_not_granted" if team else "missing_argument"
            return JSONResponse({"ok": False, "error": code})
        return self._of(team, method)

    def _access(self, code: str, client: str, secret: str) -> Mapping[str, Any]:
        if client != CLIENT_ID:
            return {"ok": False, "error": "invalid_client_id"}
        if secret != self.secret:
            return {"ok": False, "error": "bad_client_secret"}
        owner = code.removeprefix("code-of-")
        if owner not in (*self.slacks, COMPANY):
            return {"ok": False, "error": "invalid_code"}
        party, is_company = {"id": owner, "name": owner}, owner == COMPANY
        return {
            "ok": True,
            "app_id": APP_ID,
            "access_token": token_of(owner),
            "token_type": "bot",
            "scope": "chat:write",
            "bot_user_id": BOT_USER,
            "team": None if is_company else party,
            "enterprise": party if is_company else None,
            "is_enterprise_install": is_company,
            "authed_user": {"id": INSTALLER},
        }
