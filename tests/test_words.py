"""The catalogues: every text in five languages, and what a missing one or language comes to."""

from __future__ import annotations

import ast
import re
from datetime import date
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from language_kit import catalogue

from config.words import (
    ENGLISH,
    Text,
    catalog,
    current,
    in_language,
    language_name,
    languages,
    phrase,
    spoken_language,
    words_of,
)

ROOT = Path(__file__).parents[1]


def forms(language: str) -> dict[str, tuple[str, ...]]:
    """The forms of each key's text."""
    found = {}
    for message in catalog(language):
        if message.id:
            key = message.id if isinstance(message.id, str) else message.id[0]
            texts = message.string or ""
            found[key] = (texts,) if isinstance(texts, str) else tuple(texts)
    return found


def names(text: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", text))


@pytest.mark.parametrize("language", languages())
def test_every_text_exists_in_five_languages(language: str) -> None:
    texts = forms(language)
    assert languages() == ("de", "en", "es", "fr", "it")
    missing = [key for key in forms(ENGLISH) if not all(texts.get(key) or ("",))]
    assert missing == []


@pytest.mark.parametrize("language", languages())
def test_texts_fill_in_the_same_in_each_language(language: str) -> None:
    english = forms(ENGLISH)
    texts = forms(language)
    assert texts.keys() <= english.keys()
    wrong = [
        key
        for key, told in texts.items()
        if set().union(*map(names, told)) != set().union(*map(names, english[key]))
        or len(told) == 1 != len(english[key])
    ]
    assert wrong == []


def test_every_text_that_code_names_is_in_the_catalogue() -> None:
    known = forms(ENGLISH).keys()
    areas = {key.partition(".")[0] for key in known if "." in key}
    calls = set[str]()
    for folder in ("bot", "scopes", "subagents"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Call) and node.args:
                    name = getattr(node.func, "id", "")
                    first = node.args[0]
                    if name in ("phrase", "fill", "Text", "words") and isinstance(
                        first, ast.Constant
                    ):
                        calls.add(str(first.value))
    assert sorted(key for key in calls if key.partition(".")[0] in areas and key not in known) == []
    assert len(calls) > 100


@pytest.mark.parametrize("language", ["ja", "", None, "xx-YY", "../../etc/passwd"])
def test_a_language_without_a_catalogue_is_english(language: str | None) -> None:
    with in_language(language):
        assert current().language == ENGLISH
        assert phrase("button.approve") == "Approve"


def test_a_text_that_a_language_lacks_is_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dutch = Catalog(locale="nl")
    dutch.add("solved", "opgelost")
    with catalogue(dutch, tmp_path, monkeypatch):
        told = words_of("nl-BE")
        assert (told("solved"), told("button.approve")) == ("opgelost", "Approve")


def test_an_unknown_key_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        phrase("button.no_such")


def test_the_language_holds_inside_and_not_after() -> None:
    later = Text("click.denied", {"by": Text("click.somebody")})
    with in_language("de-AT"):
        assert str(later) == "Jemand hat das schon abgelehnt."
        with in_language("fr"):
            assert phrase("button.deny") == "Refuser"
        assert phrase("button.deny") == "Ablehnen"
    assert phrase("button.deny") == "Deny"


@pytest.mark.parametrize(
    ("language", "day", "number", "usd", "distance", "either"),
    [
        ("en-US", "14 Mar 2025", "12,345", "$1,234.50", "in 2 days", "a, b or c"),
        ("de-DE", "14. März 2025", "12.345", "1.234,50 $", "in 2 Tagen", "a, b oder c"),
        ("it-IT", "14 mar 2025", "12.345", "1.234,50 $", "tra 2 giorni", "a, b o c"),
    ],
)
def test_numbers_days_and_lists_are_those_of_the_language(
    language: str, day: str, number: str, usd: str, distance: str, either: str
) -> None:
    words = words_of(language)
    shown = words.date(date(2025, 3, 14)), words.number(12345), words.usd(1234.5)
    assert (*shown, words.distance(2), words.list(["a", "b", "c"], "or")) == (
        *(day, number, usd),
        *(distance, either),
    )


def test_a_plural_has_the_forms_of_its_language() -> None:
    told = {code: [words_of(code)("channels", n=n) for n in (0, 1, 2)] for code in ("de", "fr")}
    assert told["de"] == ["0 Kanäle", "1 Kanal", "2 Kanäle"]
    assert told["fr"] == ["0 canal", "1 canal", "2 canaux"]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Was ist in #support-es noch offen?", "de"),
        ("<@U0BOT> Wer ist für <#C1|the-and-is> zuständig?", "de"),
        ("Which of our customers wait for us?", "en"),
        ('In which channel did Ana write "la carta no funciona en el terminal"?', "en"),
        ("¿Qué está pendiente en #soporte?", "es"),
        ("Qu'est-ce qui est ouvert ?", "fr"),
        ("Quali clienti aspettano una risposta?", "it"),
        ("Übersetze `what is the status of the order`", ""),
        ("> what is the status of the order\nDanke", ""),
        ("triage my inbox", ""),
        ("Que problemas estão em aberto?", ""),
        ("ist the", ""),
        ("", ""),
    ],
)
def test_a_request_tells_its_language_only_where_it_is_clear(text: str, language: str) -> None:
    assert spoken_language(text) == language


@pytest.mark.parametrize(
    ("code", "name"),
    [("pt-BR", "Portuguese (Brazil)"), ("de", "German"), ("xx-YY", "xx-YY")],
)
def test_a_model_is_told_the_name_of_a_language(code: str, name: str) -> None:
    assert language_name(code) == name
