"""Destinations are the places that a request asks to write to, not those it only reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timing import cpu_limit

from scopes.intent import find_named, places_to_write

A, B, OPS = "C1AAAAAAA", "C2BBBBBBB", "C3CCCCCCC"
BOARD, GENERAL, SUPPORT = "C4BOARDDD", "C5GENERAL", "C6SUPPORT"
NAMES = {A: "a", B: "b", OPS: "ops", BOARD: "board", GENERAL: "general", SUPPORT: "support"}
CHANNELS = list(NAMES.items())
ANA = "U0ANA"
LINK = f"https://acme.slack.com/archives/{A}/p1740498077000100"


@pytest.mark.parametrize(
    ("request_text", "places"),
    [
        ("Post 'Deploy done' in #ops", {OPS}),
        ('post "in #a we trust" in #b', {B}),
        (f"send it to {OPS}", {OPS}),
        ("please announce the update in #ops", {OPS}),
        ("What is new in #a? Then post a two-line summary of it in #b.", {B}),
        ("Could you summarise #a and post it to #b?", {B}),
        ("post the summary of #a to #b and #ops", {B, OPS}),
        ("post it in #a, #b and #ops", {A, B, OPS}),
        ("post it in #a &amp; #b", {A, B}),
        ("Post the news in #a. Then share the numbers in #b.", {A, B}),
        ("Post in #b that we are late", {B}),
        ("Please post in #b: We are late. More at 9.", {B}),
        (f"can you share this in <#{OPS}|ops>?", {OPS}),
        ("Can you let #ops know that the checkout is back?", {OPS}),
        ("let #a and #b know that it is over", {A, B}),
        (f"please tell <@{ANA}> that we are late", {ANA}),
        (f"Tell <@{ANA}> what Bob wrote to #ops", {ANA}),
        (f"Send <@{ANA}> the open points of #a", {ANA}),
        (f"react with :eyes: to {LINK}", {f"{A}/1740498077.000100"}),
        (f"React to {LINK} with a rocket", {f"{A}/1740498077.000100"}),
        (f"Put a check mark on <{LINK}?thread_ts=1.2&amp;cid=C1|x>", {f"{A}/1740498077.000100"}),
        (f"Reply to {LINK}: we are on it", {f"{A}/1740498077.000100"}),
        ("Fasse #a zusammen und poste es in #b", {B}),
        ("Publica un resumen de #a en #b, gracias", {B}),
        ("Résume #a, puis publie le résumé dans #b", {B}),
    ],
)
def test_destinations_are_found_in_requests_to_write(request_text: str, places: set[str]) -> None:
    assert places_to_write(request_text, CHANNELS) == places


READS = (
    # unclear wordings wait for a card
    "Post what happened in #a to #b",
    "Post it in #b, if Ana agrees",
    "Post the plans of Bob in #b",
    "Summarise #a\nand post it to #b",
    "Research prices for me and post them in #b",
    "stuur dit naar #b",
    "tell @ana that we are late",
    "Post it in #secret",
    "Reply to #support",
    # what is only read
    "",
    "what happened in #a and #b?",
    "Tell me what was said in #a",
    "Write a short list of all problems of it in #a that are open in #b",
    # what only sounds like an order
    f"Message <@{ANA}> wrote to me",
    "Share price discussion in #board, please sum up.",
    "Say hi! What is new in #board?",
    "Share the discussion in #board (last week) with me",
    "Send the report Ana posted to #board, thanks",
    "Send the tickets in #support thanks to which we lost Acme",
    "Send a list of who wrote to #board",
    "Find tickets asking us to call and send the invoice to #support",
    "Post it in #general?",
    "Post in #general: are we late?",
    "Write in #general and #board what?",
    "Post it in #general: what do they say?",
    "Can you see who is allowed to post the news in #general?",
    "Do not post it in #general",
    "Send it to me before I post it to #board",
    "Post it here, not in #board",
    "Ana asked me to post the list in #general",
    "Post the discussion in #board",
    "Put the threads in #board into a table",
    "Let me know what is in #board",
    "Post the numbers nobody shared in #board",
    "Post it notes in #general",
    "Share this week in #board",
    "Put #board and #general side by side",
    # what somebody else wrote
    "Ana wrote: hi. Post it in #general",
    'What does "Hi. Post it in #general',
    f"What is <@{ANA}>'s mail 'Hi. Please post it in #board'",
    "> Hi. Post it in #general\nWhat does this mean?",
    "```Hi. Post it in #general",
    "Begin forwarded message\nPlease post the list in #general.\nKim",
)


@pytest.mark.parametrize("request_text", READS)
def test_requests_without_a_plain_order_to_write_have_no_destination(request_text: str) -> None:
    assert places_to_write(request_text, CHANNELS) == frozenset()


STREETS = [("C0STRASSE", "strasse"), ("C0STRASZE", "straße")]


@pytest.mark.parametrize(
    ("name", "found"),
    [("strasse", {"C0STRASSE"}), ("straße", {"C0STRASZE"}), ("STRASSE", set()), ("Straße", set())],
)
def test_channel_names_equal_under_case_folding_are_distinguished(
    name: str, found: set[str]
) -> None:
    assert places_to_write(f"say hi in #{name}", STREETS) == found
    assert set(find_named(f"what is new in #{name}?", STREETS)) == found
    assert places_to_write(f"say hi in #{name}", STREETS[:1]) == {"C0STRASSE"}


@pytest.mark.parametrize(
    "unit",
    ["and then ", "\n", " ", '"', "„", "‘", "http://", "#board, ", "post it in #b and ", "let a "],
)
def test_very_long_requests_are_searched_for_destinations_quickly(unit: str) -> None:
    with cpu_limit(0.5):
        places_to_write(f"post it {unit * (100_000 // len(unit))}", CHANNELS)


@given(st.text(max_size=300))
def test_found_destinations_always_occur_in_the_text(text: str) -> None:
    for place in places_to_write(text, CHANNELS):
        named = place.partition("/")[0]
        name = NAMES.get(named, named)
        assert name.casefold() in text.casefold() or named in text
