"""The catalogues: every text in five languages, a fallback to English, and no internal terms."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from document_kit import WINDOW, answer_document
from language_kit import catalogue
from plain_kit import engine_words, shown_texts

from bot.citations import CitationIndex
from bot.reports import frame
from bot.reports.documents import STATUSES
from bot.reports.slack import answer_message
from bot.tasks.base import answer_text, coverage_of
from config.settings import load_settings
from config.words import ENGLISH, Text, catalog, in_language, languages, phrase, words_of
from subagents.conversation import Ending
from subagents.evidence import SourceLog
from subagents.handoff import ParentRun
from subagents.result import SubagentResult

ROOT = Path(__file__).parents[1]
FOLDERS = ("bot", "scopes", "subagents")


def forms(language: str) -> dict[str, tuple[str, ...]]:
    """Return the forms of each key's text."""
    found = {}
    for message in catalog(language):
        if message.id:
            key = message.id if isinstance(message.id, str) else message.id[0]
            texts = message.string or ""
            found[key] = (texts,) if isinstance(texts, str) else tuple(texts)
    return found


def names(*texts: str) -> set[str]:
    return set(re.findall(r"{(\w+)}", "".join(texts)))


@pytest.mark.parametrize("language", languages())
def test_every_text_exists_in_five_languages(language: str) -> None:
    texts = forms(language)
    assert languages() == ("de", "en", "es", "fr", "it")
    missing = [key for key in forms(ENGLISH) if not all(texts.get(key) or ("",))]
    assert missing == []


@pytest.mark.parametrize("language", languages())
def test_texts_have_the_same_placeholders_in_each_language(language: str) -> None:
    english = forms(ENGLISH)
    texts = forms(language)
    assert texts.keys() <= english.keys()
    wrong = [
        key
        for key, translations in texts.items()
        if names(*translations) != names(*english[key])
        or len(translations) == 1 != len(english[key])
    ]
    assert wrong == []


USE = re.compile(r"""\b(?:phrase|fill|Text|words)\(\s*["']([^"']+)["']""")


def test_every_text_key_used_in_code_is_in_the_catalogue() -> None:
    keys = forms(ENGLISH).keys()
    areas = {key.partition(".")[0] for key in keys if "." in key}
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    used = {key for file in files for key in USE.findall(file.read_text("utf-8"))}
    assert sorted(key for key in used if key.partition(".")[0] in areas and key not in keys) == []
    assert len(used) > 100


def test_missing_translation_falls_back_to_english(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dutch = Catalog(locale="nl")
    dutch.add("solved", "opgelost")
    with catalogue(dutch, tmp_path, monkeypatch):
        words = words_of("nl-BE")
        assert (words("solved"), words("button.approve")) == ("opgelost", "Approve")


def test_language_applies_only_inside_its_context() -> None:
    later = Text("click.denied", {"by": Text("click.somebody")})
    with in_language("de-AT"):
        assert str(later) == "Jemand hat das schon abgelehnt."
        with in_language("fr"):
            assert phrase("button.deny") == "Refuser"
        assert phrase("button.deny") == "Ablehnen"
    assert phrase("button.deny") == "Deny"


# ---- no internal terms


REPLY = load_settings(env={}).reply
STOPS = tuple(frame.REASONS)


def subagent(number: int, status: str, stopped_by: str) -> SubagentResult:
    finding = {"id": f"F{number}.1", "claim": "It fails", "evidence": ["C1/1.1"]}
    return SubagentResult.model_validate(
        {
            **{"id": f"s{number}", "scope": "slack", "model": "fast", "contract": "answer"},
            **{"status": status, "stopped_by": stopped_by, "text": "Two are open."},
            **{"reason": f"handles: {stopped_by}", "findings": [finding]},
            "not_covered": ["#ops is not open to me"],
        }
    )


@pytest.mark.parametrize("stopped_by", STOPS)
@pytest.mark.parametrize("status", STATUSES)
def test_answers_contain_no_internal_terms(status: str, stopped_by: str) -> None:
    results = [subagent(1, status, stopped_by), subagent(2, "complete", "none")]
    citations = CitationIndex({}, {r.id: r for r in results}, SourceLog())
    ending = Ending(stopped_by, reason=f"needs_context: {stopped_by}")
    document = answer_document(
        {
            **{"status": status, "stopped_by": stopped_by, "windows": [WINDOW], "degraded": True},
            **{"answer": answer_text(results, ParentRun(ending), citations), "unsupported": 1},
            "coverage": coverage_of(results).model_dump(),
            "subagents": [each.model_dump() for each in results],
        }
    )
    messages = answer_message(document, "k", REPLY)
    view = frame.details_view(document, REPLY, 1.0)
    texts = list(shown_texts([[part.blocks for part in messages], view]))
    texts += [part.text for part in messages]
    assert len(texts) > 8
    assert [each for each in texts if engine_words(each)] == []


def test_english_catalogue_contains_no_internal_terms() -> None:
    texts = [text for each in forms(ENGLISH).values() for text in each]
    assert len(texts) > 500
    assert [each for each in texts if engine_words(re.sub(r"\{\w+\}", "", each))] == []
