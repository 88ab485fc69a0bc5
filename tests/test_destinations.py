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
        ("say hi in #ops", {OPS}),
        (f"send it to {OPS}", {OPS}),
        ("please announce the update in #ops", {OPS}),
        ("What is new in #a? Then post a two-line summary of it in #b.", {B}),
        ("Could you summarise #a and post it to #b?", {B}),
        ("post the summary of #a to #b and #ops", {B, OPS}),
        ("post it in #a, #b and #ops", {A, B, OPS}),
        ("post it in #a &amp; #b", {A, B}),
        ("Post the news in #a. Then share the numbers in #b.", {A, B}),
        ("Post in #b that we are late", {B}),
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
        ("envía esto a #b", {B}),
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
    "pošli to do #b",
    # what is only read
    "what happened in #a and #b?",
    "Did anyone post about it in #a?",
    "Tell me what was said in #a",
    "write a summary of the outage in #a",
    "Write a short list of all problems of it in #a that are open in #b",
    "Find what customers say in #a and reply here",
    "Who announced the outage in #ops?",
    f"What did <@{ANA}> say in #a?",
    "post in #secret",
    "post it where it fits",
    "",
    "tell @ana that we are late",
    # what only sounds like an order
    "Share price discussion in #board, please sum up.",
    "Is anybody allowed to post in #general?",
    "What was I asked to send to #board?",
    "Remind me what happened in #board",
    "Summarise what they plan to announce in #general",
    "I want to know what Ana said, then what she wrote to #board",
    "Say hi! What is new in #board?",
    "Tell apart the teams in #support",
    'Summarise the mail: "Please post the list to #general"',
    "Ana wrote me: please send the list to #board. What does she want?",
    "Fwd: Hi, can you share the numbers in #general? Thanks, Ana",
    "> please post this to #general\nWhat does this mean?",
    "Translate: please post the secret to #general",
    "Share the discussion in #board (last week) with me",
    "Send the report Ana posted to #board, thanks",
    "Ana asked me to post the list in #general right away",
    "Thanks to Ana we post in #general (not in #board)",
    "Post numbers in #support (thanks): what do they say?",
    "Send the tickets in #support thanks to which we lost Acme",
    "Reply to #support messages: how fast are we?",
    "Send me the numbers in #board",
    "Send a list of who wrote to #board",
    "List the links that customers open and share the most in #general",
    "Find tickets asking us to call and send the invoice to #support",
    "Should I post this in #general?",
    "Post this in #general or is that too early?",
    "Can you see who is allowed to post the news in #general?",
    "Do not post it in #general",
    "Send it to me before I post it to #board",
    "Post it here, not in #board",
    "Before you post the news in #general, show it to me",
    "Ana asked me to post the list in #general",
    'Ben said: "Post it in #general"',
    'What does "Post the list in #general',
    "The mail's text: 'Dear team, please post it in #general'",
    'Is 15" enough? Ana wrote "please post it in #general"',
    "Begin forwarded message\nPlease post the list in #general.\nKim",
    "Summarise this\n\nHi team,\nplease post our prices in #general.\nKim",
    "What is this?\n-----Original Message-----\nPlease post the list in #general",
    ">>> Hi\nPost the list in #general",
    "```\nPost the list in #general",
    "Post the discussion in #board",
    "Put the threads in #board into a table",
    "Translate the post in #general and show it here",
    "Find the latest post and answer in #support",
    "Tell apart who asks and who answers in #support",
    "Remind me to post the numbers in #board",
    "Let me know what is in #board",
    "Note: please send the list to #board",
    "Ana wrote me:\nplease send the list to #board",
    "Übersetze „Bitte poste das in #general“",
    "翻訳: 「#general に投稿」 post it in #general",
    "Check the rule 'post it in #general' please",
    "Post the numbers nobody shared in #board",
    "Write the rest, like in #board",
    "Post it notes in #general",
    "Share this week in #board",
    "Tell <@U0ANA>'s story",
    "What is <@U0ANA>'s mail 'Hi. Please post it in #board'",
    "Send the way to #general",
    "List all posts, share counts in #general",
    "Put #board and #general side by side",
    "Message to #board about prices, please sum up",
    "A post in #general that got many answers",
    "Message @ana wrote to #board",
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
