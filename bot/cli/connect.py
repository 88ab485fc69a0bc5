"""Implement `assistant connect google`: connect the operator's own mailbox."""

from __future__ import annotations

import asyncio
import hmac
import os
import secrets
import sys
import threading
from collections.abc import Callable
from urllib.parse import parse_qsl, urlsplit

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.cli.output import CommandContext, on_database
from bot.errors import SetupError
from bot.mailbox.accounts import (
    OPERATOR,
    PERMISSIONS_PAGE,
    ConnectFailed,
    Credentials,
    disconnect,
    needed_oauth,
    oauth_of,
)
from bot.serving.web import serve_app
from bot.terminal import DONE, INCOMPLETE, dump, tell
from config.settings import Settings

BACK_PATH = "/google/callback"
WAIT_S = 600.0
"""Seconds to wait for the user to come back from Google."""
ENDED = "You may close this page, and go back to the terminal."


@on_database
async def run_connect(context: CommandContext, port: int) -> None:
    """Connect a mailbox and print its address."""
    address = await _connect(context.settings, Credentials(context.database), port)
    context.show({"account": OPERATOR, "address": address}, f"Connected: {address}.")


@on_database
async def run_disconnect(context: CommandContext) -> int:
    """Delete the tokens, and revoke them at Google."""
    gone = await disconnect(Credentials(context.database), oauth_of(context.settings), OPERATOR)
    if gone is None:
        said = "No mailbox is connected here."
    elif gone.shared:
        said = f"Disconnected: {gone.address}. Somebody else here has connected it, too, so what\n"
        said += "Google granted stays."
    else:
        said = f"Disconnected: {gone.address}. Google has revoked its tokens."
    revoked = bool(gone and not gone.fault and not gone.shared)
    found = {"account": OPERATOR, "address": gone and gone.address, "revoked": revoked}
    if gone is None or not gone.fault:
        context.show(found, said)
        return DONE
    if context.as_json:
        dump(found)
    tell(f"The tokens of {gone.address} are deleted here, but Google did not confirm it.")
    tell(f"{gone.fault} Remove the assistant yourself at {PERMISSIONS_PAGE}.")
    return INCOMPLETE


async def _connect(settings: Settings, store: Credentials, port: int) -> str:
    """Take the operator to Google and back; return the mailbox that is now stored."""
    oauth = needed_oauth(settings)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    callback = _Callback(state)
    try:
        async with serve_app(callback.app, "127.0.0.1", port, "Give --port another one.") as here:
            callback.redirect_uri = here + BACK_PATH
            page = oauth.address_to_open(callback.redirect_uri, state, verifier)
            tell(f"Open this page, and allow it:\n\n{page}\n")
            tell("Is the browser on another machine? Then paste here the address that it ends at.")
            code = await callback.code()
        tokens = await oauth.exchange(callback.redirect_uri, code, verifier)
    except ConnectFailed as error:
        raise SetupError("connect", str(error), "") from None
    address = tokens.address
    if before := await store.address(OPERATOR):
        same = before == address
        tell("It was connected before." if same else f"It takes the place of {before}.")
    await store.put(OPERATOR, tokens)
    return address


class _Callback:
    """Waits for one person to come back: to a loopback address, or by pasting the address."""

    def __init__(self, state: str) -> None:
        self._state = state
        self._arrived: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.redirect_uri = ""
        self.app = Starlette(routes=[Route(BACK_PATH, self._answer)])

    async def code(self) -> str:
        """Return the code from Google. Raises ConnectFailed, or SetupError if nobody comes back."""
        _read_lines(self._on_paste)
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._arrived
        except TimeoutError:
            why = f"Nobody came back from Google within {WAIT_S / 60:.0f} minutes."
            raise SetupError("connect", why, "Start again.") from None

    async def _answer(self, request: Request) -> Response:
        ended = self._take(dict(request.query_params))
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
        text = ENDED if ended else "This is not the page that the terminal has named."
        return PlainTextResponse(text, 200 if ended else 400, headers)

    def _on_paste(self, line: str) -> None:
        if line.strip() and not self._take(dict(parse_qsl(urlsplit(line.strip()).query))):
            tell("That is not the address: it holds code=... and the state of the page above.")

    def _take(self, query: dict[str, str]) -> bool:
        """Return whether this is an answer to our question; the first one ends the waiting."""
        if not hmac.compare_digest(query.get("state", "").encode(), self._state.encode()):
            return False
        if self._arrived.done():
            return True
        if code := query.get("code"):
            self._arrived.set_result(code)
        else:
            self._arrived.set_exception(ConnectFailed(query.get("error", "")))
        return True


def _read_lines(take: Callable[[str], None]) -> None:
    """Pass on each typed line. The thread ends with the process: a read cannot be cancelled."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        rest = b""
        try:
            terminal = sys.stdin.fileno()
            while chunk := os.read(terminal, 4096):  # the lock of sys.stdin would delay the exit
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    loop.call_soon_threadsafe(take, line.decode("utf-8", "replace"))
        except (OSError, ValueError, RuntimeError):  # no terminal, or the process is ending
            return

    threading.Thread(target=read, name="stdin", daemon=True).start()
