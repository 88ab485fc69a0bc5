"""Texts without invisible characters and secrets, and cells without formulas."""

from __future__ import annotations

import base64
import csv
import io
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from timing import cpu_limit

from scopes.clean import SECRET_PLACEHOLDER, csv_cell, find_unsettled, printable, redact
from subagents.evidence import normal


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc\x0bd\u2028e", "a\nb\nc\nd\ne"),
        ("nul\x00 bell\x07 escape\x1b[31m del\x7f", "nul bell escape[31m del"),
        ("ev\u200bil \u2060 \ufeff soft\xadhyphen", "evil   softhyphen"),
        ("user\u202egpj.exe \u2066x\u2069", "usergpj.exe x"),
        ("half \ud83d of a pair", "half  of a pair"),
        ("private \ue000\U000f0001 unassigned \u0378", "private  unassigned "),
        ("x\ufe0f\ufe01\U000e0101y", "xy"),
        ("blank\u2800\u3164\u115f\u034f.", "blank."),
        ("\uff45\uff56\uff49\uff4c\uff0e\uff45\uff58", "evil.ex"),
        ("\uff1c\uff20U1\uff1e \ufe6bchannel \uff3bx\uff3d", "<@U1> @channel [x]"),
        ("10\xb2 m\xb3 \xbd \u2460 \u2122 \u2026", "10\xb2 m\xb3 \xbd \u2460 \u2122 \u2026"),
        ("\u4f60\u597d\uff0c\u4e16\u754c\uff01\uff08\u5168\u89d2\uff09\u3000\u3002",) * 2,
        ("\u304b\u3099 \uff76\uff9e \u3131\u314b \u0e19\u0e33",
         "\u304c \uff76\uff9e \u3131\u314b \u0e19\u0e33"),
        ("\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u0915\u094d\u200d\u0937",) * 2,
        ("ex\u200cample \u200d", "example "),
        ("\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f\u200d\U0001f525",) * 2,
        ("\U0001f469\u200d\u200d\U0001f469", "\U0001f469\U0001f469"),
    ],
)  # fmt: skip
def test_invisible_characters_are_removed_and_visible_text_is_kept(text: str, shown: str) -> None:
    assert printable(text) == shown


@hypothesis_settings(max_examples=100)
@given(st.text(st.characters(), max_size=60))
def test_printable_leaves_no_hidden_characters_and_is_idempotent(text: str) -> None:
    shown = printable(text)
    for at, letter in enumerate(shown):
        category = unicodedata.category(letter)
        if letter in "\u200c\u200d":
            assert 0 < at < len(shown) - 1
        elif letter not in "\n\t":
            assert category not in ("Cc", "Cf", "Co", "Cs", "Zl", "Zp")
            assert category != "Cn" or "\U0001f000" <= letter <= "\U0001faff"
            assert not "\U000e0000" <= letter <= "\U000e01ef"
    assert printable(shown) == shown
    assert unicodedata.is_normalized("NFC", shown)


PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA75Nwxl9cTzmpBqz4\nqYk3kQIDAQABAoIBAA==\n"
    "-----END RSA PRIVATE KEY-----"
)
FERNET = base64.urlsafe_b64encode(b"0123456789abcdef0123456789abcdef").decode()
GOOGLE = "AIzaSyA-1234567890abcdefghijklmnopqrstu"
WORDY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
SECRETS = [
    "ASIAIOSFODNN7EXAMPLE", "xoxp-1-2-3-abc", "sk-abcdefghijklmnopqrstuv0123456789",
    "xoxb-2345-6789-aBcDeF", "xoxe.xoxp-1-Mi0yLTk", "xoxc-12-34-ab", "xapp-1-A012-345-abcdef",
    "sk-ant-api03-AbC_d-9", "sk-proj-abcdefghij0123456789_ABCD", "AKIAIOSFODNN7EXAMPLE", GOOGLE,
    "ya29.a0AfH6SMBx-1234567890", "1//0gAbCdEfGhIjKlMnOpQrStUvWx", "GOCSPX-abcdef1234567890abcd",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345", "github_pat_11ABCDEFG0abcdefghij_0123456789",
    "glpat-abcdefghij0123456789", "sk_live_0123456789abcdefghij", "rk_test_0123456789abcdefghij",
    "whsec_0123456789abcdefABCDEF", "SG.abcdefghijklmnop12.abcdefghijklmnop34",
    "hf_abcdefghijklmnopqrstuvwxyz012345",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTYifQ.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P", PEM,
]  # fmt: skip
TELLTALE = [
    ("aws_secret_access_key = {}", WORDY),
    ("AWS secret: `{}`", WORDY),
    ("Authorization: Bearer {}", "abc.def~ghi"),
    ('curl -H "X-Api-Key: {}"', "k3y-of-mine"),
    ("use bearer {} here", "abcdefghijklmnopqrstuvwxyz"),
    ("postgres://u:{}@h/d failed", "hunter2"),
    ("wss://w.slack.com/link/?app_id=1&ticket={}", "a-b-c"),
    ("password = '{}'", "correct horse battery"),
    ("password='{} is unclosed", "hunter2"),
    ("**Password:** {}", "hunter2"),
    ('{{"client_secret": "{}"}}', "letters-only"),
    ("ENCRYPTION_KEY={}", FERNET),
    ("the key is {}", FERNET),
]


@pytest.mark.parametrize("secret", SECRETS, ids=lambda s: s[:12])
def test_known_secret_formats_are_redacted(secret: str) -> None:
    for around in ("{}", "it is {}, keep it", "`{}`", "({}).", '"{}"', "> {}\n"):
        shown = redact(around.format(secret))
        assert shown == around.format(SECRET_PLACEHOLDER)
        assert redact(shown) == shown


@pytest.mark.parametrize("kind", ["", "RSA ", "ENCRYPTED ", "PGP "])
def test_private_key_header_is_redacted_with_and_without_the_key(kind: str) -> None:
    header = f"-----BEGIN {kind}PRIVATE KEY{' BLOCK' if kind == 'PGP ' else ''}-----"
    for text, shown in {
        f"It is {header}, then lines.": f"It is {SECRET_PLACEHOLDER}, then lines.",
        f"{header}\nMIIE": f"{SECRET_PLACEHOLDER}\nMIIE",
        f"{PEM.rpartition(chr(10))[0]}\nThat was it.": f"{SECRET_PLACEHOLDER}\nThat was it.",
        header.replace("PRIVATE", "PUBLIC"): header.replace("PRIVATE", "PUBLIC"),
    }.items():
        assert redact(text) == shown


@pytest.mark.parametrize(("around", "secret"), TELLTALE)
def test_values_in_secret_contexts_are_redacted(around: str, secret: str) -> None:
    shown = redact(around.format(secret))
    assert secret not in shown
    assert SECRET_PLACEHOLDER in shown
    assert redact(shown) == shown


@pytest.mark.parametrize(
    "text",
    [
        "Order 100-2345-6789 of 2024-05-06, invoice INV-2024-000123, SKU sk-12",
        "https://local.slack.com/archives/C0/p1740498077000100?thread_ts=1.2&cid=C0",
        "at 12:30 the bearer of news: mail a@b.example",
        "The risk-assessment-for-project-2024-phase-2 task-list is open",
        "Password: please reset it. The password is on the note. Token: none",
        "Set password=<your password>, token=${TOKEN}, api_key=os.environ['KEY'], secret=***",
        "Paste the token (xoxb-...), or sk-ant-... of Anthropic",
        "max_tokens=4096, tokens: 1200, key: value, keys = 3",
        "https://support.example/?ticket=48213 and ticket=48213",
        "eyJ is how base64 of JSON begins; v1.2.3-rc.4+build5; 10.0.0.1:8080",
        "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIE\n-----END CERTIFICATE-----",
        "xoxo-hugs from Ana; AKIA is a prefix; ghp_short; 1//0 is undefined",
    ],
)
def test_ordinary_text_is_not_redacted(text: str) -> None:
    assert redact(text) == text


KEY = "-----BEGIN PRIVATE KEY-----"
REPETITIVE = ("password=", "key ", "sk-", "eyJaaaaaaaa.", "://", "a://b:", "'", "-----BEGIN ")


@pytest.mark.parametrize(
    "text",
    [
        *((piece * 12_000)[:12_000] for piece in REPETITIVE),
        *(f"{piece} " for piece in ("a" * 10_000, "-----END" * 1_250, "token='" * 1_400 + "\n")),
        "a" + "\u0301\u0327" * 200_000,
        "a" + "\U0001d165\u0301" * 200_000,
        KEY * 10_000,
        "Lorem ipsum dolor sit amet, consectetur. " * 20_000,
    ],
    ids=range(15),
)
def test_long_text_of_strangers_is_cleaned_in_bounded_time(text: str) -> None:
    with cpu_limit(3):
        for clean in (redact, find_unsettled, printable, normal):
            clean(text)


def test_endless_combining_marks_are_cut_and_ordinary_ones_kept() -> None:
    assert len(printable("a" + "\u0344\u0f73" * 1_000)) < 100
    assert len(normal("a" + "\uff9e\u0301" * 1_000)) < 100
    many = "a" + "\u0301" * 29 + "\u0327"
    assert unicodedata.normalize("NFD", printable(many)) == unicodedata.normalize("NFD", many)


def test_keys_without_an_end_are_redacted_to_the_next_end() -> None:
    text = f"{KEY}\nshort\n{KEY}\nshort\n{KEY.replace('BEGIN', 'END')}"
    assert redact(text) == f"{SECRET_PLACEHOLDER}\nshort\n{SECRET_PLACEHOLDER}"


FORMULAS = ("=1+1", "+cmd|x", "-2+3", "-1e", "-2e5+3", "@SUM(A1)", " =1", "\uff1d1")


@pytest.mark.parametrize(
    ("cell", "escaped"),
    [
        ("x,=1+1", "x,'=1+1"),
        ('x; ""=1', 'x;\' ""=1'),
        ("x\t-1|y", "x\t'-1|y"),
        ("note\n@SUM(A1)", "note\n'@SUM(A1)"),
        ("\t=1", "'\t'=1"),
        ("\r=1", "'\r'=1"),
        ("sep=|", "'sep=|"),
        ('"SEP=;"', '\'"SEP=;"'),
        *((formula, f"'{formula}") for formula in FORMULAS),
        *((plain, plain) for plain in ("", "a=b", "-12.5", "+49", "-3%", "-1.2e-05", "'=1")),
        ("1;-2;3e5,+4%\n-1.5",) * 2,
        ("a, b; c=d",) * 2,
        ("x;'=1",) * 2,
    ],
)
def test_formula_in_a_csv_cell_is_escaped_for_any_separator(cell: str, escaped: str) -> None:
    assert csv_cell(cell) == escaped
    assert csv_cell(escaped) == escaped


@hypothesis_settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text("=+-@x1 ,;\t\n\"'|", max_size=9), max_size=4), max_size=4))
def test_csv_table_contains_no_formula_for_any_separator(rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out).writerows([csv_cell(cell) for cell in row] for row in rows)
    for mark in ",;\t":
        for row in csv.reader(io.StringIO(out.getvalue(), newline=""), delimiter=mark):
            for cell in row:
                begins = cell.strip()[:1] in tuple("=+-@")
                assert not begins or re.match(r'[+-]?1+(?:[",;\t\n]|$)', cell), out.getvalue()
