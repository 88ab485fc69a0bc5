"""The catalogues: every text in five languages, and what a missing one or language comes to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from language_kit import catalogue

from config.words import ENGLISH, Text, catalog, in_language, languages, phrase, words_of

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
            text = file.read_text("utf-8")
            named = re.search(r"\b(?:phrase|fill|Text|words)\(", text)
            for node in ast.walk(ast.parse(text)) if named else ():
                if isinstance(node, ast.Call) and node.args:
                    name = getattr(node.func, "id", "")
                    first = node.args[0]
                    if name in ("phrase", "fill", "Text", "words") and isinstance(
                        first, ast.Constant
                    ):
                        calls.add(str(first.value))
    assert sorted(key for key in calls if key.partition(".")[0] in areas and key not in known) == []
    assert len(calls) > 100


def test_a_text_that_a_language_lacks_is_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dutch = Catalog(locale="nl")
    dutch.add("solved", "opgelost")
    with catalogue(dutch, tmp_path, monkeypatch):
        told = words_of("nl-BE")
        assert (told("solved"), told("button.approve")) == ("opgelost", "Approve")


def test_the_language_holds_inside_and_not_after() -> None:
    later = Text("click.denied", {"by": Text("click.somebody")})
    with in_language("de-AT"):
        assert str(later) == "Jemand hat das schon abgelehnt."
        with in_language("fr"):
            assert phrase("button.deny") == "Refuser"
        assert phrase("button.deny") == "Ablehnen"
    assert phrase("button.deny") == "Deny"
