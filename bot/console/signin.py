"""Sign in with Slack (OpenID Connect), for a console that is reachable from elsewhere.

https://docs.slack.dev/authentication/sign-in-with-slack, without PKCE: Slack allows it only to apps
that are permanently marked as public clients. The client secret and the state in a cookie bind
Slack's answer to the browser that asked. Slack itself then identifies the user
(`openid.connect.userInfo`), so there is no token to check here.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Literal, TypeVar
from urllib.parse import urlencode, urljoin

import aiohttp
import sqlalchemy as sa
from pydantic import BaseModel, Field, SecretStr
from slack_sdk.errors import SlackApiError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from bot.console.app import PATH, refusal
from bot.errors import SetupError, StoreError
from bot.policy.policy import PolicyFile
from bot.slack.people import People
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from bot.storage.tables import oauth_states
from config.settings import Settings
from scopes.slack_client import web_client

log = logging.getLogger(__name__)

ATTEMPT_LIFETIME = timedelta(minutes=10)
"""Maximum time from the click on `Sign in with Slack` to the return."""
SESSION_LIFETIME = timedelta(hours=12)
SIGN_IN, BACK, SIGN_OUT = "/sign-in", "/sign-in/back", "/sign-out"
"""Paths below the console's."""
AUTHORIZE = "../openid/connect/authorize"
"""Slack's page, relative to its API."""
TEAM, USER = "https://slack.com/team_id", "https://slack.com/user_id"
"""Names of claims."""
MOST_CHARS = 4_000
_PAGE = re.compile(rf"{PATH}/(\w[\w.-]*(/\w[\w.-]*)*)?")
_CODE = re.compile(r"[a-z_]{1,40}")


class _CookieContent(BaseModel, frozen=True):
    """The content of an encrypted cookie, valid until it expires."""

    id: str = Field(default_factory=lambda: secrets.token_urlsafe(32))
    expires: datetime


class SignInAttempt(_CookieContent, frozen=True):
    """A sign-in in progress in this browser; its id is the state of OAuth."""

    kind: Literal["attempt"] = "attempt"
    page: str = f"{PATH}/"
    """The requested page."""


class Session(_CookieContent, frozen=True):
    """An administrator who is signed in."""

    kind: Literal["session"] = "session"
    team: str
    user: str


S = TypeVar("S", bound=_CookieContent)


class SignInRefused(Exception):
    """The sign-in failed; the text is a sentence with the reason."""


class Administrators:
    """The people who may see the console of one workspace."""

    def __init__(self, team: str, policy: PolicyFile, people: People) -> None:
        self.team, self._policy, self._people = team, policy, people

    async def check(self, user: str, strict: bool) -> None:
        """Raise SignInRefused unless this user is an administrator and a full member.

        `strict`: also raise it if Slack does not tell whether they are still a member.
        """
        admins = await self._policy.admins()
        if user not in admins:
            names = await self._people.names(sorted(admins)[:3], self.team)
            contacts = " or ".join(names.values()) or "whoever runs the bot"
            raise SignInRefused(f"{user} is no administrator of the bot. Ask {contacts}.")
        person = await self._people.person(user, self.team, fresh=strict)
        if person is None and strict:
            raise SignInRefused("Slack does not tell at the moment who you are.")
        if person is not None and person.kind != "member":
            raise SignInRefused("Only full members of the workspace may see the console.")


class SlackSignIn:
    """Identifies the user of a browser, and their workspace, by Slack."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        cipher: Cipher,
        find: Callable[[str], Administrators | None],
        team: str = "",
    ) -> None:
        """`find` takes the id of a workspace; None = it is not served.

        `team`: the only served workspace; empty = there are several. Raises SetupError.
        """
        web = web_client(settings.endpoints.slack_api_url, timeout=settings.slack.timeout_s)
        self._public = (settings.console.public_url or "").rstrip("/")
        self._secure = self._public.startswith("https://")
        self._client_id, self._client_secret = _client(settings)
        self._authorize = urljoin(web.base_url, AUTHORIZE)
        self._cipher, self._database = cipher, database
        self._find, self._web, self._team = find, web, team

    def public_routes(self) -> list[Route]:
        """Return the public routes."""
        return [Route(SIGN_IN, self.leave), Route(BACK, self.back)]

    def routes(self) -> list[Route]:
        """Return the routes of those who are signed in."""
        return [Route(SIGN_OUT, self.sign_out, methods=["POST"])]

    def session(self, request: Request) -> Session | None:
        """Return the session of the browser; None if there is none, or it has ended."""
        return self._unseal(Session, request.cookies.get(self._cookie(Session), ""))

    async def admit(self, request: Request, team: str) -> Response | None:
        """Return None for an administrator of this workspace, else the page to send instead."""
        session, admins = self.session(request), self._find(team)
        if session is None or session.team != team or await self._was_used(session):
            return self.ask(request)
        if admins is None:
            return self._refuse("This workspace is not served at the moment.", 503, request)
        try:
            await admins.check(session.user, strict=False)
        except SignInRefused as why:
            return self._refuse(str(why), 403, request)
        request.state.visitor = session.user
        return None

    def ask(self, request: Request) -> Response:
        """Return the page with the sign-in button."""
        had_one = request.cookies.get(self._cookie(Session))
        why = "You are not signed in any more." if had_one else "Sign in to see the console."
        return self._refuse(why, 401, request)

    async def leave(self, request: Request) -> Response:
        """Redirect to Slack; a cookie records the attempt in this browser."""
        page = request.query_params.get("page", "")
        attempt = SignInAttempt(expires=_after(ATTEMPT_LIFETIME))
        if _PAGE.fullmatch(page):
            attempt = attempt.model_copy(update={"page": page})
        parameters = {
            "response_type": "code",
            "scope": "openid",
            "client_id": self._client_id,
            "state": attempt.id,
            "redirect_uri": self._redirect_uri,
            **({"team": self._team} if self._team else {}),
        }
        away = self._redirect(f"{self._authorize}?{urlencode(parameters)}")
        self._put(away, attempt, ATTEMPT_LIFETIME)
        return away

    async def back(self, request: Request) -> Response:
        """Handle the return from Slack."""
        try:
            attempt = await self._finish(request)
            code = request.query_params.get("code", "")[:MOST_CHARS]
            team, user = await self._identify(code)
            admins = self._find(team)
            if admins is None:
                raise SignInRefused(
                    "You signed in with an account of another workspace."
                    if self._team
                    else "The bot does not serve the workspace that you signed in with."
                )
            await admins.check(user, strict=True)
        except SignInRefused as why:
            log.warning("a sign-in to the console was refused: %s", why)
            refused = self._refuse(str(why), 403)
            self._drop(refused, SignInAttempt)
            return refused
        except StoreError as error:
            log.error("%s", error)
            return self._refuse("The bot's database cannot be used at the moment.", 503)
        log.info("%s of %s has signed in to the console", user, team)
        welcome = self._redirect(self._public + attempt.page)
        self._drop(welcome, SignInAttempt)
        session = Session(expires=_after(SESSION_LIFETIME), team=team, user=user)
        self._put(welcome, session, SESSION_LIFETIME)
        return welcome

    async def sign_out(self, request: Request) -> Response:
        """End the session, also for any other browser with its cookie."""
        if session := self.session(request):
            await self._use(session)
            log.info("%s has signed out of the console", session.user)
        response = self._refuse("You are signed out.", 200)
        self._drop(response, Session)
        return response

    @property
    def _redirect_uri(self) -> str:
        return self._public + PATH + BACK

    async def _finish(self, request: Request) -> SignInAttempt:
        """Return the attempt of this answer, once."""
        attempt = self._unseal(SignInAttempt, request.cookies.get(self._cookie(SignInAttempt), ""))
        state = request.query_params.get("state", "")
        if attempt is None or not hmac.compare_digest(attempt.id.encode(), state.encode()):
            raise SignInRefused("This sign-in is over, or was not started in this browser.")
        if not await self._use(attempt):
            raise SignInRefused("This sign-in was used before.")
        if error := request.query_params.get("error"):
            raise SignInRefused(f"Slack did not sign you in{_error_code(error)}.")
        return attempt

    async def _use(self, cookie: _CookieContent) -> bool:
        """Record the use of a sign-in or the end of a session; return whether it is the first."""
        row = {"state": _digest(cookie.id), "account": "", "phase": "used", "tries": 0, "body": ""}
        insert = self._database.insert(oauth_states).values(**row, expires=cookie.expires)
        return bool(await self._database.write(insert.on_conflict_do_nothing()))

    async def _was_used(self, cookie: _CookieContent) -> bool:
        used = sa.select(oauth_states.c.state).where(oauth_states.c.state == _digest(cookie.id))
        return bool(await self._database.read(used))

    async def _identify(self, code: str) -> tuple[str, str]:
        """Return the workspace and the user of this code from Slack."""
        web, secret = self._web, self._client_secret.get_secret_value()
        sent = {"code": code, "redirect_uri": self._redirect_uri}
        try:
            response = await web.openid_connect_token(self._client_id, secret, **sent)
            token = str(response.get("access_token"))
            claims = await web.openid_connect_userInfo(token=token)
        except SlackApiError as error:
            why = _error_code(str(error.response.get("error")))
            raise SignInRefused(f"Slack did not confirm who you are{why}.") from None
        except (aiohttp.ClientError, TimeoutError):
            raise SignInRefused("Slack cannot be reached at the moment.") from None
        return str(claims.get(TEAM)), str(claims.get(USER))

    def _refuse(self, reason: str, status: int, request: Request | None = None) -> Response:
        page = urlencode({"page": request.url.path}) if request else ""
        return refusal(reason, status, sign_in=f"{self._public}{PATH}{SIGN_IN}?{page}")

    def _redirect(self, url: str) -> Response:
        return RedirectResponse(url, 303, {"cache-control": "no-store"})

    def _cookie(self, kind: type[_CookieContent]) -> str:
        name = "console" if kind is Session else "console-sign-in"
        return f"__Host-{name}" if self._secure else name

    def _put(self, response: Response, sealed: _CookieContent, life: timedelta) -> None:
        response.set_cookie(
            self._cookie(type(sealed)),
            self._cipher.encrypt(sealed.model_dump_json()),
            max_age=int(life.total_seconds()),
            path="/",
            secure=self._secure,
            httponly=True,
            samesite="lax",  # the browser sends it on the way back from Slack
        )

    def _drop(self, response: Response, kind: type[_CookieContent]) -> None:
        response.delete_cookie(
            self._cookie(kind), path="/", secure=self._secure, httponly=True, samesite="lax"
        )

    def _unseal(self, kind: type[S], cookie: str) -> S | None:
        """Return the content of a cookie; None if it is forged, of another kind, or expired."""
        try:
            found = kind.model_validate_json(self._cipher.decrypt(cookie[:MOST_CHARS]))
        except (StoreError, ValueError):
            return None
        return found if found.expires > datetime.now(UTC) else None


class TeamAccess:
    """Admits administrators of one workspace, after Slack has identified them."""

    def __init__(self, sign_in: SlackSignIn, team: str) -> None:
        self.sign_in, self._team = sign_in, team

    async def admit(self, request: Request) -> Response | None:
        """See `ConsoleAccess`."""
        return await self.sign_in.admit(request, self._team)


def _client(settings: Settings) -> tuple[str, SecretStr]:
    """Return the OAuth client of the Slack app. Raises SetupError."""
    id = settings.slack.client_id or settings.console.client_id
    secret = settings.secrets.slack_client_secret
    if not id or not secret:
        what = "console.public_url needs the OAuth client of the Slack app."
        hint = "Set console.client_id and SLACK_CLIENT_SECRET: Basic Information has both."
        raise SetupError("console", what, hint)
    return id, secret


def _after(life: timedelta) -> datetime:
    return datetime.now(UTC) + life


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _error_code(code: str) -> str:
    """Return the code of an error in brackets, if it is Slack's."""
    return f" ({code})" if _CODE.fullmatch(code) else ""
