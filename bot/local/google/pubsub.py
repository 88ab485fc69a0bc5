"""Pub/Sub of the local Google: topics, subscriptions, and messages that come until acknowledged."""

import asyncio
import base64
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count

from bot.local.google.call import Call, Json, Method, invalid
from bot.local.google.errors import GoogleRefused

TOKEN = "ya29.local-pubsub"
"""The access token that may pull."""
ACCOUNT = "bot@local.iam.gserviceaccount.com"
"""Whose it is."""
ACK_S = 10.0
"""A message that was not acknowledged comes again after so long: Pub/Sub's own default."""
LOOK_S = 0.01
MOST = 1_000
SCOPES = frozenset({"pubsub", "cloud-platform"})
CONSUME = "pubsub.subscriptions.consume"


@dataclass(slots=True)
class Message:
    id: str
    data: bytes
    published: float
    """Seconds since 1970."""
    ack_id: str = ""
    """Of its last delivery."""
    free: float = 0.0
    """When it may be delivered again."""
    attempts: int = 0


@dataclass(slots=True)
class Subscription:
    topic: str
    ack_s: float = ACK_S
    messages: list[Message] = field(default_factory=list)
    acknowledged: list[Message] = field(default_factory=list)


class PubsubState:
    """Topics and their subscriptions; `subscriptions` is open to tests, under `lock`."""

    def __init__(self, now: Callable[[], float] = time.time, hold_s: float = 1.0) -> None:
        """`hold_s`: how long a pull stays open while there is nothing."""
        self.now, self.hold_s = now, hold_s
        self.lock = threading.RLock()
        self._published = threading.Condition(self.lock)
        self.subscriptions: dict[str, Subscription] = {}
        self._numbers = count(1)

    def subscribe(self, topic: str, subscription: str, ack_s: float = ACK_S) -> Subscription:
        """Make a subscription: it gets what is published from now on."""
        with self.lock:
            made = self.subscriptions[subscription] = Subscription(topic, ack_s)
            return made

    def publish(self, topic: str, data: bytes) -> None:
        """Tell all subscriptions of a topic; where there is none, nobody hears it."""
        with self.lock:
            id = f"{next(self._numbers):016d}"
            for each in self.subscriptions.values():
                if each.topic == topic:
                    each.messages.append(Message(id, data, self.now()))
            self._published.notify_all()

    def deliver_again(self, subscription: str) -> int:
        """Bring back what was acknowledged, as Pub/Sub may at any time; how many."""
        with self.lock:
            held = self.subscriptions[subscription]
            again, held.acknowledged = held.acknowledged, []
            held.messages += [Message(m.id, m.data, m.published) for m in again]
            return len(again)

    def waiting(self, subscription: str) -> int:
        """Messages that were not acknowledged."""
        with self.lock:
            return len(self.subscriptions[subscription].messages)

    async def held(self, path: Mapping[str, str]) -> None:
        """Wait until there is something to pull, or as long as a pull stays open."""
        end = time.monotonic() + self.hold_s
        await asyncio.to_thread(self._held, name_of(path), end)

    def _held(self, subscription: str, end: float) -> None:
        with self._published:
            while time.monotonic() < end:
                found = self.subscriptions.get(subscription)
                if found is None or any(m.free <= self.now() for m in found.messages):
                    return
                self._published.wait(LOOK_S)  # a message may become free by time alone


def name_of(path: Mapping[str, str]) -> str:
    return f"projects/{path.get('project')}/subscriptions/{path.get('subscription')}"


def _subscription(call: Call[PubsubState]) -> Subscription:
    name = name_of(call.path)
    found = call.state.subscriptions.get(name)
    if found is None:
        raise GoogleRefused("notFound", f"Resource not found (resource={name.split('/')[-1]}).")
    return found


def _pull(call: Call[PubsubState]) -> Json:
    most = call.body.get("maxMessages")
    if not isinstance(most, int) or most < 1:
        invalid("The value for max_messages must be greater than 0.")
        return {}
    held, now, found = _subscription(call), call.state.now(), list[Json]()
    for message in [m for m in held.messages if m.free <= now][: min(most, MOST)]:
        message.attempts += 1
        message.free, message.ack_id = now + held.ack_s, f"{message.id}-{message.attempts}"
        found.append({"ackId": message.ack_id, "message": _message_json(message)})
    return {"receivedMessages": found} if found else {}


def _message_json(message: Message) -> Json:
    at = datetime.fromtimestamp(message.published, UTC)
    data = base64.b64encode(message.data).decode()
    return {"data": data, "messageId": message.id, "publishTime": f"{at:%Y-%m-%dT%H:%M:%S.%fZ}"}


def _acknowledge(call: Call[PubsubState]) -> Json:
    ids, held = set(call.names("ackIds")), _subscription(call)
    if not ids:
        invalid("No ack ids were given.")
    done = [m for m in held.messages if m.ack_id in ids]  # an id that ended is let pass
    held.acknowledged += done
    held.messages = [m for m in held.messages if m.ack_id not in ids]
    return {}


def _permissions(call: Call[PubsubState]) -> Json:
    """Of a subscription that does not exist nobody has any, as Google's documents say."""
    known = name_of(call.path) in call.state.subscriptions
    held = [each for each in call.names("permissions") if known and each == CONSUME]
    return {"permissions": held} if held else {}


_AT = "v1/projects/{project}/subscriptions/{subscription}"
PULL = "pubsub.projects.subscriptions.pull"
METHODS: Mapping[str, Method] = {
    PULL: Method(
        "POST",
        f"{_AT}:pull",
        _pull,
        0,
        SCOPES,
        body=frozenset({"maxMessages", "returnImmediately"}),
    ),
    "pubsub.projects.subscriptions.acknowledge": Method(
        "POST", f"{_AT}:acknowledge", _acknowledge, 0, SCOPES, body=frozenset({"ackIds"})
    ),
    "pubsub.projects.subscriptions.testIamPermissions": Method(
        "POST",
        f"{_AT}:testIamPermissions",
        _permissions,
        0,
        SCOPES,
        body=frozenset({"permissions"}),
    ),
}
