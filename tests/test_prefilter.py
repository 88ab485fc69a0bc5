"""Mail that is filtered before any model reads it, and mail of people, which is not."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from gmail_kit import gmail_message

from bot.tasks.prefilter import (
    AUTO_REPLY,
    BOUNCE,
    DRAFTS,
    GENERATED,
    NEWSLETTER,
    NO_REPLY,
    NOTICE,
    OWN,
    SPAM,
    TRASH,
    why_automatic,
)
from config.words import phrase
from scopes.mail import MailMessage, MailThread

ME = "ana.ruiz@shop.example"
ANSWERS = "In-Reply-To: <1@shop.example>"
UNSUBSCRIBE = "List-Unsubscribe: <https://mail.example/u/1>"
FORM = "From: Web form <noreply@shop.example>"
PROGRAM = "Auto-Submitted: auto-generated"
RE_ORDER = "Subject: Re: The order"


def mail(*headers: str, labels: str = "INBOX UNREAD", body: str = "Hello") -> MailMessage:
    """A message with these headers; from a customer unless they say otherwise."""
    names = {each.partition(":")[0].lower() for each in headers}
    defaults = {"from": "From: Bo Lind <bo@corp.example>", "subject": "Subject: The order"}
    lines = [line for name, line in defaults.items() if name not in names]
    raw = "\r\n".join([*headers, *lines, f"To: {ME}", "", body]).encode("utf-8", "replace")
    return gmail_message(raw, labels=labels.split())


def sent_mail(*headers: str) -> MailMessage:
    return mail(f"From: {ME}", *headers, labels="SENT")


def why(*messages: MailMessage) -> str | None:
    return why_automatic(MailThread("t", messages), ME)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (mail(labels="SPAM"), SPAM),
        (mail(labels="TRASH"), TRASH),
        (mail(labels="DRAFT"), DRAFTS),
        (sent_mail(), OWN),
        (mail("From: Ana <ana.ruiz+orders@shop.example>", labels=""), OWN),
        (mail("Return-Path: <>"), BOUNCE),
        (mail("Content-Type: multipart/report; report-type=delivery-status; boundary=b"), BOUNCE),
        (mail("Return-Path: <>", ANSWERS, "Subject: Automatic reply: Re: The order"), AUTO_REPLY),
        (mail("Auto-Submitted: auto-generated (failure)"), GENERATED),
        (mail(PROGRAM, "Precedence: bulk", UNSUBSCRIBE), GENERATED),
        (mail(PROGRAM, "List-Post: <mailto:talk@lists.example>"), GENERATED),
        (mail(PROGRAM, "From: shop@acme.example", "Reply-To: help@mail.acme.example"), GENERATED),
        (mail("From: Bank <nicht-antworten@bank.example>"), NO_REPLY),
        (mail(FORM, "Reply-To: <no-reply@shop.example>"), NO_REPLY),
        (mail('From: "bo@corp.example" <no-reply@acme.example>'), NO_REPLY),
        (mail("From: Build <alerts@ci.example>"), NOTICE),
        (mail(UNSUBSCRIBE), NEWSLETTER),
        (mail(UNSUBSCRIBE, "List-Post: NO"), NEWSLETTER),
        (mail("Precedence: bulk"), NEWSLETTER),
        (mail("Feedback-ID: 1:2:3:acme", labels="INBOX CATEGORY_PROMOTIONS"), NEWSLETTER),
    ],
)
def test_automatic_and_own_mail_is_filtered_with_a_reason(
    message: MailMessage, reason: str
) -> None:
    assert why(message) == reason


@pytest.mark.parametrize(
    "message",
    [
        mail(),
        mail("Auto-Submitted: no"),
        mail("Feedback-ID: 1:2:3:AmazonSES"),
        mail("From: Noreen Plyler <noreen.plyler@corp.example>"),
        mail("From: noreply@acme.example <bo@corp.example>"),
        mail("From: News desk <news@paper.example>"),
        mail("From: Bo <notify@forge.example>", "Subject: Re: The order", ANSWERS),
        mail("From: nobody that can be read"),
        mail("Subject: Undelivered parcel: failure notice"),
        replace(mail(), headers={}, fault="broken"),
        # others who write in my name
        mail(f"From: {ME}"),
        mail(f"From: {ME}", "Reply-To: cleo@home.example", labels=""),
        mail(f"From: {ME} <bo@corp.example>", labels=""),
        # a list where people talk
        mail("List-Post: <mailto:talk@lists.example>", UNSUBSCRIBE, "Precedence: bulk"),
        mail("Precedence: bulk", "Sender: talk-bounces+ana=shop.example@lists.example"),
        mail("Subject: Re: [talk] The order", ANSWERS, UNSUBSCRIBE, "Precedence: bulk"),
        mail("Subject: [talk] AW: The order", "References: <1@shop.example>", UNSUBSCRIBE),
        mail("From: Bo <notifications@forge.example>", "List-Post: <mailto:r+1@forge.example>"),
        # a person who wants replies at another address wrote it
        mail(FORM, "Reply-To: Customer <cleo@home.example>", PROGRAM),
        mail("From: form@a.co.uk", "Reply-To: cleo@b.co.uk", PROGRAM),
        mail("From: Bo at Acme <no-reply@acme.example>", "Reply-To: Acme desk <id7@acme.example>"),
        mail("From: desk@acme.example", "Reply-To: id7@acme.example", PROGRAM, RE_ORDER, ANSWERS),
    ],
)
def test_mail_possibly_written_by_a_person_is_not_filtered(message: MailMessage) -> None:
    assert why(message) is None


def test_replies_to_the_owner_are_kept_except_bounces_and_auto_replies() -> None:
    tools = mail("From: Acme <noreply@acme.example>", PROGRAM, ANSWERS)
    assert why(sent_mail(), tools) is None
    assert why(tools, sent_mail()) == GENERATED
    assert why(sent_mail(), mail("Auto-Submitted: auto-replied", ANSWERS)) == AUTO_REPLY
    assert why(sent_mail(), mail("From: MAILER-DAEMON@mx.example", ANSWERS)) == BOUNCE


def test_one_message_by_a_person_keeps_a_thread_whose_last_message_is_automatic() -> None:
    assert why(mail(), mail(UNSUBSCRIBE)) is None


def test_filter_reason_contains_no_words_of_the_message() -> None:
    order = "From: Obey me <noreply-obey@acme.example>"
    assert why(mail(order, "Subject: obey")) == NO_REPLY


def test_mail_docs_list_every_filter_reason() -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "mail.md").read_text("utf-8")
    rows = re.findall(r"^\| (.+?) \|", page.partition("## What is filtered")[2], re.MULTILINE)
    reasons = [SPAM, TRASH, DRAFTS, OWN, BOUNCE, AUTO_REPLY]
    reasons += [GENERATED, NO_REPLY, NOTICE, NEWSLETTER]
    assert rows[: len(reasons) + 1] == ["reason", *map(phrase, reasons)]
