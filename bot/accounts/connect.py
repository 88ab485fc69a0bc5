"""`assistant connect google`: the operator's own mailbox, from the terminal."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import sys
import threading
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.accounts.connected import GOOGLE, OPERATOR, connected, disconnect
from bot.accounts.credentials import Credentials
from bot.accounts.google_oauth import PERMISSIONS_PAGE, ConnectFailed, needed_oauth, oauth_of
from bot.cli.outcome import DONE, INCOMPLETE, dump, guarded, say, tell
from bot.errors import SetupError
from bot.serving.web import served
from bot.storage.database import Database
from bot.storage.vault import vault_of
from config.settings import Settings, load_settings

BACK_PATH = "/google/callback"
WAIT_S = 600.0
"""Seconds until nobody is expected to come back from Google any more."""
ENDED = "You may close this page, and go back to the terminal."


def run_connect(port: int, as_json: bool) -> int:
    """Connect a mailbox; its address is printed."""

    async def work(settings: Settings, store: Credentials) -> int:
        address = await _connected(settings, store, port)
        if as_json:
            dump({"account": OPERATOR, "address": address})
        else:
            say(f"Connected: {address}.")
        return DONE

    return _on_credentials(work, as_json)


def run_disconnect(as_json: bool) -> int:
    """Delete the tokens, and have Google revoke them."""

    async def work(settings: Settings, store: Credentials) -> int:
        gone = await disconnect(store, oauth_of(settings), OPERATOR)
        if as_json:
            revoked = bool(gone and not gone.fault and not gone.shared)
            dump({"account": OPERATOR, "address": gone and gone.address, "revoked": revoked})
        elif gone is None:
            say("No mailbox is connected here.")
        elif gone.shared:
            say(f"Disconnected: {gone.address}. Somebody else here has connected it, too, so what")
            say("Google granted stays.")
        elif not gone.fault:
            say(f"Disconnected: {gone.address}. Google has revoked its tokens.")
        if gone is None or not gone.fault:
            return DONE
        tell(f"The tokens of {gone.address} are deleted here, but Google could not be told.")
        tell(f"{gone.fault} Remove the assistant yourself at {PERMISSIONS_PAGE}.")
        return INCOMPLETE

    return _on_credentials(work, as_json)


async def _connected(settings: Settings, store: Credentials, port: int) -> str:
    """Take the operator to Google and back; the mailbox that is stored then."""
    oauth = needed_oauth(settings)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    desk = _Desk(state)
    try:
        async with served(desk.app, "127.0.0.1", port) as here:
            desk.redirect_uri = here + BACK_PATH
            page = oauth.address_to_open(desk.redirect_uri, state, verifier)
            tell(f"Open this page, and allow it:\n\n{page}\n")
            tell("Is the browser on another machine? Then paste here the address that it ends at.")
            code = await desk.code()
        tokens = await oauth.exchange(desk.redirect_uri, code, verifier)
    except ConnectFailed as error:
        raise SetupError("connect", str(error), "") from None
    except SetupError as error:
        hint = "Give --port another one." if error.code == "serve" else error.hint
        raise SetupError("connect", error.message, hint) from None
    address = tokens["address"].get_secret_value()
    if before := await connected(store, OPERATOR):
        same = before == address
        tell("It was connected before." if same else f"It takes the place of {before}.")
    await store.put(GOOGLE, OPERATOR, tokens)
    return address


class _Desk:
    """Waits for one person to come back: to a loopback address, or by what is pasted."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""
        self.app = Starlette(routes=[Route(BACK_PATH, self._answer)])

    async def code(self) -> str:
        """What they bring from Google. Raises ConnectFailed, or SetupError when nobody comes."""
        _read_lines(self._pasted)
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._arrived
        except TimeoutError:
            why = f"Nobody came back from Google within {WAIT_S / 60:.0f} minutes."
            raise SetupError("connect", why, "Begin anew.") from None

    async def _answer(self, request: Request) -> Response:
        ended = self._take(dict(request.query_params))
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
        told = ENDED if ended else "This is not the page that the terminal has named."
        return PlainTextResponse(told, 200 if ended else 400, headers)

    def _pasted(self, line: str) -> None:
        if line.strip() and not self._take(dict(parse_qsl(urlsplit(line.strip()).query))):
            tell("That is not the address: it holds code=... and the state of the page above.")

    def _take(self, query: dict[str, str]) -> bool:
        """Whether this is an answer to what we have asked; a first one ends the waiting."""
        if not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return False
        if self._arrived.done():
            return True
        if query.get("code"):
            self._arrived.set_result(query["code"])
        else:
            self._arrived.set_exception(ConnectFailed(query.get("error", "")))
        return True


def _read_lines(take: Callable[[str], None]) -> None:
    """Hand on each line that is typed. The thread ends with the process: a read cannot be ended."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        rest = b""
        try:
            terminal = sys.stdin.fileno()
            while chunk := os.read(terminal, 4096):  # sys.stdin's own lock would hold up the end
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    loop.call_soon_threadsafe(take, line.decode("utf-8", "replace"))
        except (OSError, ValueError, RuntimeError):  # no terminal, or all is over
            return

    threading.Thread(target=read, name="stdin", daemon=True).start()


def _on_credentials(work: Callable[[Settings, Credentials], Awaitable[int]], as_json: bool) -> int:
    async def go(settings: Settings) -> int:
        vault = vault_of(settings)
        database = await Database.open(settings.data_dir, settings.database_url, vault)
        try:
            return await work(settings, Credentials(database))
        finally:
            await database.aclose()

    return guarded(lambda: asyncio.run(go(load_settings())), as_json)
