"""The Events API over HTTP: signed requests to the app's request URL."""

import hashlib
import hmac
import json
import threading
import time
import uuid
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode, urlsplit

from bot.local.slack.delivery import ACK_S, VERIFICATION_TOKEN, Done, Envelope, Outcome

_JSON = "application/json"
_FORM = "application/x-www-form-urlencoded"


class Requests:
    """Sends each event in a short-lived thread of its own, so that a slow app delays no other."""

    def __init__(self, url: str, signing_secret: str, ack_s: float = ACK_S) -> None:
        """`url` is where the app takes events, interactivity and slash commands alike."""
        self._url = urlsplit(url)
        self._secret = signing_secret.encode()
        self._ack_s = ack_s
        self._closed = threading.Event()

    @property
    def is_reachable(self) -> bool:
        return not self._closed.is_set()

    def close(self) -> None:
        """Send nothing more."""
        self._closed.set()

    def carry(self, envelope: Envelope, attempt: int, reason: str, done: Done) -> None:
        headers = {}
        if attempt:
            headers = {"x-slack-retry-num": str(attempt), "x-slack-retry-reason": reason}
        body, kind = _body(envelope)
        self._start(lambda: done(self._post(body, kind, headers)))

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        def wait() -> None:
            if not self._closed.wait(seconds):
                action()

        self._start(wait)

    def verify(self) -> bool:
        """Whether the app answers the challenge, as Slack asks before it accepts a request URL."""
        challenge = uuid.uuid4().hex
        sent = {"token": VERIFICATION_TOKEN, "challenge": challenge, "type": "url_verification"}
        outcome = self._post(json.dumps(sent), _JSON, {})
        answer = outcome.answer
        return challenge in (answer, isinstance(answer, dict) and answer.get("challenge"))

    def _start(self, action: Callable[[], None]) -> None:
        threading.Thread(target=action, name="local-slack-request", daemon=True).start()

    def _post(self, body: str, kind: str, headers: dict[str, str]) -> Outcome:
        connection = HTTPConnection(
            self._url.hostname or "", self._url.port, timeout=max(self._ack_s, 0.001)
        )
        path = self._url.path or "/"
        path = f"{path}?{self._url.query}" if self._url.query else path
        try:
            connection.request(
                "POST", path, body.encode(), {"content-type": kind, **self._signed(body), **headers}
            )
            response = connection.getresponse()
            return _outcome(response, response.read())
        except TimeoutError:
            return Outcome("http_timeout")
        except (OSError, HTTPException):
            return Outcome("connection_failed")
        finally:
            connection.close()

    def _signed(self, body: str) -> dict[str, str]:
        """docs.slack.dev/authentication/verifying-requests-from-slack."""
        at = str(int(time.time()))
        digest = hmac.new(self._secret, f"v0:{at}:{body}".encode(), hashlib.sha256).hexdigest()
        return {"x-slack-request-timestamp": at, "x-slack-signature": f"v0={digest}"}


def _body(envelope: Envelope) -> tuple[str, str]:
    match envelope.kind:
        case "events_api":
            return envelope.body, _JSON
        case "interactive":
            return urlencode({"payload": envelope.body}), _FORM
    return urlencode(envelope.payload), _FORM


def _outcome(response: HTTPResponse, body: bytes) -> Outcome:
    if 200 <= response.status < 300:
        return Outcome(answer=_answer(response, body))
    return Outcome("http_error", final=response.headers.get("x-slack-no-retry") == "1")


def _answer(response: HTTPResponse, body: bytes) -> Any:
    text = body.decode("utf-8", "replace")
    if not response.headers.get("content-type", "").startswith(_JSON):
        return text or None
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text
