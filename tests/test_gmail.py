"""A mailbox is read completely and once; its labels, drafts and mails are created once."""

from __future__ import annotations

import re
from email import message_from_bytes
from email.policy import default
from typing import Any

import pytest
from gmail_kit import START, Office, id_of, office, stored_message
from mail_kit import ME, mail
from standins.google_faults import Fault

from scopes.google.errors import GoogleAbsent, GoogleUnsure
from scopes.google.gmail_compose import MARK, NoRecipient, mark_of
from scopes.google.gmail_threads import TOO_MUCH
from scopes.google.mail_text import NO_CONTENT, NO_SENSE, message_of

SENT = frozenset({"SENT"})


def resource(content: Any) -> dict[str, Any]:
    return {"id": "m1", "threadId": "t1", "internalDate": "1736154000000", "payload": content}


async def test_thread_is_read_completely_oldest_first_for_forty_units() -> None:
    messages = (
        stored_message(2, mail(2, "Yes.", sender="Ana <ana@acme.example>", reply_to="1")),
        stored_message(1, mail(1, "Grüße, can you?", Cc="Bo <bo@x.example>")),
    )
    async with office(*messages) as at:
        found = await at.gmail.thread(id_of(1))
        assert at.units() == 40
    first, last = found.messages
    assert (first.id, last.id, found.id) == (id_of(1), id_of(2), id_of(1))
    assert (first.text.sender, first.text.subject) == ("Customer 1 <c1@shop.example>", "Order 1001")
    assert (first.text.body, first.text.cc) == ("Grüße, can you?", ("Bo <bo@x.example>",))
    assert first.at == START.replace(hour=10)
    assert first.labels == {"INBOX"}
    assert last.text.body == "Yes."


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (resource(None), NO_CONTENT),
        (resource("text"), NO_SENSE),
        (resource({"mimeType": "text/plain"}) | {"labelIds": 7}, NO_SENSE),
        (resource({"mimeType": "text/plain", "body": {"data": "é"}}), NO_SENSE),
        (resource({"mimeType": "text/plain", "headers": [7]}), NO_SENSE),
    ],
)
def test_unreadable_message_has_a_fault_and_no_text(message: dict[str, Any], why: str) -> None:
    read = message_of(message)
    assert read.fault == why
    assert read.text.body == ""


async def test_mail_too_expensive_to_parse_does_not_affect_others() -> None:
    bomb = "".join(f"<font color={n}></p><p>" for n in range(30_000))
    as_html = mail(1, bomb).replace(b"text/plain", b"text/html")
    async with office(
        stored_message(1, as_html), stored_message(2, mail(2, "Fine.", reply_to="1"))
    ) as at:
        thread = await at.gmail.thread(id_of(1))
    assert [m.fault for m in thread.messages] == [TOO_MUCH, ""]
    assert thread.last.text.body == "Fine."


async def names_on(at: Office, thread: str) -> set[str]:
    names = {label.id: label.name for label in await at.made().labels()}
    return {names[each] for each in (await at.made().thread(thread)).last.labels}


async def test_labels_are_set_by_name_and_created_when_missing() -> None:
    async with office(stored_message(1, mail(1))) as at:
        for _ in range(2):
            await at.gmail.relabel(id_of(1), ["Triage/To do", "STARRED"], ["INBOX", "Never there"])
        assert await names_on(at, id_of(1)) == {"Triage/To do", "STARRED"}
        await at.made().relabel(id_of(1), ["triage/TO DO"], ["starred"])
        assert await names_on(at, id_of(1)) == {"Triage/To do"}
        assert [label.name for label in await at.made().labels() if label.own] == ["Triage/To do"]
        assert at.count_calls("labels.create") == 1
        with pytest.raises(GoogleAbsent):
            await at.gmail.relabel(id_of(7), ["STARRED"], [])


@pytest.mark.parametrize("kind", ["500", "lost", "drop"])
async def test_label_is_created_once_despite_a_failed_response(kind: str) -> None:
    async with office(stored_message(1, mail(1))) as at:
        at.local.faults += [Fault("labels.create", kind), Fault("threads.modify", kind)]
        await at.gmail.relabel(id_of(1), ["Later"], [])
        assert "Later" in await names_on(at, id_of(1))
        assert [e.name for e in await at.made().labels() if e.own] == ["Later"]


def mail_of(at: Office, id: str) -> Any:
    """Return a message of the mailbox as a mail."""
    return message_from_bytes(at.local.gmail.messages[id].raw, policy=default)


def drafts(at: Office) -> list[Any]:
    return [mail_of(at, id) for id in at.local.gmail.drafts.values()]


ANSWER = "Dear Kim,\n\nyes – gladly.\n\nAna"


async def test_draft_is_addressed_to_the_last_other_sender() -> None:
    messages = (
        stored_message(1, mail(1, sender="Bo <bo@x.example>")),
        stored_message(2, mail(2, reply_to="1", Reply_To="e@evil.example", Cc="c@x.example")),
        stored_message(3, mail(3, sender="Ana <alias@x.example>", to="bo@x.example"), 1, SENT),
    )
    async with office(*messages) as at:
        thread = await at.gmail.thread(id_of(1))
        await at.gmail.draft(thread, ANSWER, "run/t1")
        (draft,) = drafts(at)
        assert (draft["To"], draft["From"]) == ("c2@shop.example", ME)
        assert draft["Subject"] == "Re: Order 1002"
        assert draft["Cc"] is draft["Bcc"] is draft["Reply-To"] is None
        assert draft["In-Reply-To"] == "<m2@shop.example>"
        assert draft["References"] == "<m1@shop.example> <m2@shop.example>"
        assert draft.get_content().split() == ANSWER.split()
        assert draft[MARK] == mark_of(ME, "run/t1")
        assert at.local.gmail.sent == []


@pytest.mark.parametrize("kind", ["lost", "drop", "500", "429", "malformed"])
@pytest.mark.parametrize("named", [True, False])
async def test_draft_is_created_once_despite_a_failed_response(kind: str, named: bool) -> None:
    raw = mail(1) if named else re.sub(rb"Message-ID:[^\n]*\n", b"", mail(1))
    async with office(stored_message(1, raw)) as at:
        at.local.faults.append(Fault("drafts.create", kind))
        thread = await at.gmail.thread(id_of(1))
        try:
            await at.gmail.draft(thread, ANSWER, "a")
        except GoogleUnsure:
            assert kind == "drop"
        first = await at.made().draft(thread, "Other words.", "a")
        assert len(drafts(at)) == 1
        assert await at.made().draft(thread, ANSWER, "b") != first, "another key, another draft"


@pytest.mark.parametrize(
    "sender", ["", "nobody", "Kim <kim@localhost>", "a@b.example, c@d.example <>", f"Me <{ME}>"]
)
async def test_no_draft_is_created_without_a_valid_recipient(sender: str) -> None:
    raw = f"From: {sender}\r\nTo: {ME}\r\nSubject: x\r\n\r\nHello".encode()
    async with office(stored_message(1, raw)) as at:
        with pytest.raises(NoRecipient):
            await at.gmail.draft(await at.gmail.thread(id_of(1)), ANSWER, "a")
        assert drafts(at) == []


async def test_mail_and_model_text_cannot_inject_headers() -> None:
    raw = (
        "From: =?utf-8?q?Kim=0D=0ABcc:_evil=40evil.example?= <kim@client.example>\r\n"
        f"To: {ME}\r\nSubject: =?utf-8?q?Offer=0D=0ABcc:_evil=40evil.example?=\r\n"
        "Message-ID: <m1@client.example>\r\n\r\nHello"
    ).encode()
    async with office(stored_message(1, raw)) as at:
        thread = await at.gmail.thread(id_of(1))
        await at.gmail.draft(thread, "x\r\nBcc: evil@evil.example\r\n\r\ny", "a")
        (draft,) = drafts(at)
        assert draft["Bcc"] is None
        assert draft["To"] == "kim@client.example"
        assert "\n" not in draft["Subject"]
        await at.gmail.send(["kim@client.example"], "a\r\nBcc: evil@evil.example", "b", "k")
        (id,) = at.local.gmail.sent
        assert mail_of(at, id)["Bcc"] is None
        for to in ([], ["Kim <kim@client.example>"], ["a@x.example\nBcc: b@x.example"]):
            with pytest.raises(NoRecipient):
                await at.gmail.send(to, "Hi", "x", "other")


@pytest.mark.parametrize("kind", ["", "lost", "drop", "500", "429", "malformed"])
async def test_mail_is_sent_once_despite_a_failed_response(kind: str) -> None:
    async with office(stored_message(1, mail(1))) as at:
        at.local.faults += [Fault("messages.send", kind)] if kind else []
        for _ in range(3):
            try:
                await at.made().send(
                    ["kim@client.example", "bo@x.example"], "Hi", "Words – all.", "a"
                )
            except GoogleUnsure:
                assert kind == "drop"
        (id,) = at.local.gmail.sent
        assert mail_of(at, id)["To"] == "kim@client.example, bo@x.example"
        assert mail_of(at, id).get_content().strip() == "Words – all."
        for n in range(12):
            await at.gmail.send(["bo@x.example"], "Hi", "x", f"other{n}")
        assert await at.made().send(["kim@client.example"], "Hi", "Words – all.", "a") == id
