"""Connections to Google: each used by one thread at a time, and nothing is sent twice unasked."""

from __future__ import annotations

import contextlib
import http.client
import selectors
import socket
from typing import Any

import httplib2  # type: ignore[import-untyped]
from google.oauth2.credentials import Credentials
from google_auth_httplib2 import AuthorizedHttp  # type: ignore[import-untyped]
from googleapiclient.model import RawModel  # type: ignore[import-untyped]

from scopes.google.errors import LOST, Garbled
from scopes.tool import readable


class _SentOnce:
    """A connection that tells its line when something was sent.

    Where a server closes it without an answer httplib2 sends the request again, also one that
    changes something (`Http._conn_request`, BadStatusLine). It does not do so for other errors.
    """

    line: Http

    def request(self, *args: Any, **kwargs: Any) -> None:
        if self.line.hung_up:
            raise ConnectionAbortedError("Nobody waits for it any more.")
        self.line.sent = True
        super().request(*args, **kwargs)  # type: ignore[misc]

    def getresponse(self) -> http.client.HTTPResponse:
        try:
            return super().getresponse()  # type: ignore[misc, no-any-return]
        except (http.client.BadStatusLine, http.client.ResponseNotReady):
            raise ConnectionResetError("The connection was closed before an answer.") from None


class _Plain(_SentOnce, httplib2.HTTPConnectionWithTimeout):  # type: ignore[misc]
    pass


class _Secure(_SentOnce, httplib2.HTTPSConnectionWithTimeout):  # type: ignore[misc]
    pass


class Http(httplib2.Http):  # type: ignore[misc]
    """httplib2's client without its repeats and redirects; connections are kept while they live."""

    def __init__(self, timeout_s: float, direct: bool) -> None:
        """`direct` = past the proxy that the environment may name."""
        proxy = None if direct else httplib2.proxy_info_from_environment
        super().__init__(timeout=timeout_s, proxy_info=proxy)
        self.follow_redirects = False  # an API has none, and the token is for Google alone
        self.begin(fresh=False)
        self._plain = type("Plain", (_Plain,), {"line": self})
        self._secure = type("Secure", (_Secure,), {"line": self})

    def begin(self, *, fresh: bool) -> None:
        """Make ready for another request, over a new connection if `fresh`: one that was idle may
        be dead unnoticed.
        """
        self.fresh = fresh
        self.sent = False
        """Whether the request left, or began to leave, this machine."""
        self.hung_up = False
        """Nothing more is sent."""

    def request(self, uri: str, *args: Any, **kwargs: Any) -> Any:
        """As httplib2's; raises OSError, HTTPException or HttpLib2Error when it was lost."""
        for connection in self.connections.values():
            if connection.sock and (self.fresh or _readable(connection.sock)):
                connection.close()
        kwargs["connection_type"] = self._secure if uri.startswith("https:") else self._plain
        answered = False
        try:
            answer = super().request(uri, *args, **kwargs)
            answered = True
            return answer
        finally:
            if not answered:  # httplib2 keeps some connections that are in the middle of something
                self.drop()

    def drop(self) -> None:
        for connection in self.connections.values():
            connection.close()

    def hang_up(self) -> None:
        """End what goes on, from another thread: it fails there as a lost connection."""
        self.hung_up = True
        for connection in list(self.connections.values()):
            if sock := connection.sock:
                with contextlib.suppress(OSError):  # not yet connected, or gone
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _readable(sock: socket.socket) -> bool:
    """Return whether an idle connection has something to say, which is that it has ended."""
    with selectors.DefaultSelector() as selector:
        selector.register(sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def execute(request: Any, token: str, line: Http) -> dict[str, Any]:
    """Return the answer to a request of the client library's, made on a thread of its own.

    Raises HttpError, Garbled, or what says that the connection was lost.
    """
    bearer = Credentials(token)  # type: ignore[no-untyped-call]
    authorized = AuthorizedHttp(bearer, line, refresh_status_codes=())
    try:
        body = request.execute(http=authorized)
    except LOST:  # some are ValueErrors, too
        raise
    except (AttributeError, ValueError, RecursionError):  # so the library fails on nonsense
        raise Garbled from None
    if isinstance(request.postproc.__self__, RawModel):  # a method that answers nothing
        return {}
    if not isinstance(body, dict):
        raise Garbled
    return dict(readable(body))
