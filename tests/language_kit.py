"""A language whose texts are all marked, so that a text without a mark comes from code."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Catalog
from babel.messages.pofile import write_po
from plain_kit import shown_texts

from config import words

OPEN, CLOSE = "⟦", "⟧"
SHOWN = ("text", "title", "fallback", "alt_text")
"""Keys of Block Kit whose text is shown."""
PLAIN = {"UTC", "USD"}
_MENTION = re.compile(r"<[@#][UWCD][A-Z0-9]+>|<!date[^<>]*>|<https?://[^<>|]*\|?|https?://\S+")


@pytest.fixture
def marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """German is English with each text between marks."""
    german = Catalog(locale="de")
    for message in words.catalog("en"):
        if message.id:
            texts = message.string or ""
            texts = [texts] if isinstance(texts, str) else list(texts)
            translations = [f"{OPEN}{text}{CLOSE}" for text in texts]
            german.add(message.id, tuple(translations) if message.pluralizable else translations[0])
    with catalogue(german, tmp_path, monkeypatch):
        yield


@contextmanager
def catalogue(added: Catalog, folder: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use this catalogue for its language within the block."""
    copy = folder / "catalogues"
    shutil.copytree(words.FOLDER, copy)
    with (copy / f"{added.locale}.po").open("wb") as file:
        write_po(file, added)
    patch.setattr(words, "FOLDER", copy)
    _forget()
    yield
    _forget()


def _forget() -> None:
    words._words.cache_clear()
    words.languages.cache_clear()


def unmarked_words(shown: Any, *content: str) -> list[str]:
    """Return the words without a mark that people see, except those of `content`."""
    depth, bare = 0, ""
    for letter in shown if isinstance(shown, str) else "\n".join(shown_texts(shown, shown=SHOWN)):
        depth += (letter == OPEN) - (letter == CLOSE)
        assert depth >= 0, "a text ends that did not begin"
        bare += letter if not depth and letter != CLOSE else ""
    assert depth == 0, "a text begins that does not end"
    bare = _MENTION.sub(" ", bare)
    for text in sorted(content, key=len, reverse=True):
        bare = bare.replace(text, " ")
    return [word for word in re.findall(r"[^\W\d_]{2,}", bare) if word not in PLAIN]
