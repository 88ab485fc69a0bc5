"""The local Pub/Sub, driven by Google's own client and held to Google's own discovery document."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from engine_kit import MUX
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials
from google_contract import departures, discovery, methods
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]

from bot.local.google.mbox import Mailbox
from bot.local.google.pubsub import CONSUME, METHODS
from bot.local.google.pubsub import TOKEN as PULLER
from bot.local.google.server import TOKEN, Fault, LocalGoogle

ME = "ana@acme.example"
TOPIC, NAME = "projects/p/topics/mail", "projects/p/subscriptions/bot"
WEEK_S = 7 * 24 * 3600


class World:
    """A local Google whose clock a test moves, and a client whose answers are all checked."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
        self.google = LocalGoogle(Mailbox(ME, ()), now=lambda: self.at)
        self.google.pubsub.hold_s = 0.0
        self.held = self.google.pubsub.subscribe(TOPIC, NAME)
        self.url = ""
        self.clients: dict[tuple[str, str], Any] = {}

    def client(self, api: str, version: str, token: str) -> Any:
        if (api, token) not in self.clients:
            self.clients[api, token] = self._built(api, version, token)
        return self.clients[api, token]

    def _built(self, api: str, version: str, token: str) -> Any:
        return build(
            api,
            version,
            credentials=Credentials(token),  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=self.url),
            static_discovery=True,
        )

    def call(self, name: str, token: str = PULLER, subscription: str = NAME, **body: Any) -> Any:
        found = self.client("pubsub", "v1", token).projects().subscriptions()
        which = "resource" if name == "testIamPermissions" else "subscription"
        request = getattr(found, name)(**{which: subscription, "body": body})
        answer = request.execute()
        assert departures("pubsub.v1", request.methodId, answer) == []
        return answer

    def pull(self, most: int = 10) -> list[dict[str, Any]]:
        return list(self.call("pull", maxMessages=most).get("receivedMessages", ()))

    def watch(self, **more: Any) -> dict[str, Any]:
        users = self.client("gmail", "v1", TOKEN).users()
        return dict(users.watch(userId="me", body={"topicName": TOPIC, **more}).execute())


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    with MUX.serving(made.google.app) as url:
        made.url = url
        yield made
        for client in made.clients.values():
            client.close()


def said(received: dict[str, Any]) -> Any:
    return json.loads(base64.b64decode(received["message"]["data"]))


def test_every_method_is_one_of_googles(world: World) -> None:
    for name, method in METHODS.items():
        told = methods("pubsub.v1")[name]
        schema = discovery("pubsub.v1")["schemas"][told["request"]["$ref"]]
        place = method.path.replace("{project}", "{projectsId}")
        assert place.replace("{subscription}", "{subscriptionsId}") == told["flatPath"]
        assert method.http == told["httpMethod"]
        assert method.body <= schema["properties"].keys()
        assert method.scopes <= {scope.split("/")[-1] for scope in told_scopes(told)}


def told_scopes(told: dict[str, Any]) -> list[str]:
    return list(told["scopes"])


def test_a_change_of_a_watched_mailbox_is_published_until_the_watch_ends(world: World) -> None:
    state = world.google.gmail
    state.add(b"Subject: before\n\n.", ["INBOX"])
    told = world.watch()
    assert int(told["expiration"]) == round((world.at + WEEK_S) * 1000)
    held = state.add(b"Subject: after\n\n.", ["INBOX"])
    state.relabel([held.id], ["STARRED"], [])
    world.at += WEEK_S
    state.add(b"Subject: late\n\n.", ["INBOX"])

    assert [said(each)["emailAddress"] for each in world.pull()] == [ME] * 3
    assert said(world_again(world)[-1])["historyId"] == state.history_id - 1


def world_again(world: World) -> list[dict[str, Any]]:
    """What comes again, as it was not acknowledged."""
    world.at += world.held.ack_s
    return world.pull()


def test_a_watch_of_some_labels_tells_of_them_alone(world: World) -> None:
    world.watch(labelIds=["INBOX"])
    world.google.gmail.add(b"Subject: a\n\n.", ["SPAM"])
    world.google.gmail.add(b"Subject: b\n\n.", ["INBOX"])
    assert len(world.pull()) == 2, "of the watch itself, and of one mail"


def test_a_message_comes_until_it_is_acknowledged(world: World) -> None:
    for number in range(3):
        world.google.pubsub.publish(TOPIC, str(number).encode())
    world.google.pubsub.publish("projects/p/topics/other", b"x")
    first = world.pull(2)
    rest = world.pull()
    assert (len(first), len(rest), world.pull()) == (2, 1, [])
    world.call("acknowledge", ackIds=[first[0]["ackId"], "of-nobody"])
    again = world_again(world)
    assert [said(each) for each in again] == [1, 2]
    world.call("acknowledge", ackIds=[first[1]["ackId"]])
    assert world.google.pubsub.waiting(NAME) == 2, "that id ended when the message came again"
    world.call("acknowledge", ackIds=[each["ackId"] for each in again])
    assert world_again(world) == []
    assert world.google.pubsub.deliver_again(NAME) == 3


def test_a_pull_waits_for_a_while(world: World) -> None:
    world.google.pubsub.hold_s = 0.2
    began = time.monotonic()
    assert world.pull() == []
    assert time.monotonic() - began >= 0.2
    world.google.pubsub.publish(TOPIC, b"1")
    assert len(world.pull()) == 1


@pytest.mark.parametrize(
    ("name", "token", "subscription", "body", "code"),
    [
        ("pull", PULLER, NAME, {}, 400),
        ("pull", PULLER, NAME, {"maxMessages": 0}, 400),
        ("acknowledge", PULLER, NAME, {"ackIds": []}, 400),
        ("pull", PULLER, "projects/p/subscriptions/none", {"maxMessages": 1}, 404),
        ("pull", TOKEN, NAME, {"maxMessages": 1}, 403),
    ],
)
def test_what_google_refuses_is_refused(
    world: World, name: str, token: str, subscription: str, body: dict[str, Any], code: int
) -> None:
    with pytest.raises(HttpError) as refused:
        world.call(name, token, subscription, **body)
    assert refused.value.resp.status == code


def test_who_may_pull_mail_messages_may_not_read_mail(world: World) -> None:
    users = world.client("gmail", "v1", PULLER).users()
    with pytest.raises(HttpError) as refused:
        users.getProfile(userId="me").execute()
    assert refused.value.resp.status == 403


def test_permissions_are_those_of_a_subscription_that_is_there(world: World) -> None:
    asked = [CONSUME, "pubsub.subscriptions.delete"]
    assert world.call("testIamPermissions", permissions=asked) == {"permissions": [CONSUME]}
    other = "projects/p/subscriptions/none"
    assert world.call("testIamPermissions", subscription=other, permissions=asked) == {}


@pytest.mark.parametrize(("kind", "code"), [("403", 403), ("503", 503), ("429", 429)])
def test_faults_are_those_of_the_other_services(world: World, kind: str, code: int) -> None:
    world.google.faults.append(Fault("subscriptions.pull", kind))
    with pytest.raises(HttpError) as refused:
        world.pull()
    assert refused.value.resp.status == code
    assert world.pull() == []
