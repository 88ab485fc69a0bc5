"""Finds the messages that best match a question, by its content words."""

import re
from collections.abc import Sequence

from bot.local.mind.cues import fold, is_common, topics_of
from bot.local.mind.threads import Line, Thread

_WORD = re.compile(r"[^\W_]{3,}")
_NAME = re.compile(r"#[\w-]+|\b[CGDF][A-Z0-9]{6,}\b")
_PREFIX = 5
"""Letters by which two forms of a word are the same."""
_TOPIC = 1.5
"""Weight of a shared topic; a shared word weighs one."""


def keywords(question: str) -> tuple[frozenset[str], frozenset[str]]:
    """Content words (as prefixes) and topics of a question."""
    folded = fold(_NAME.sub(" ", question))
    words = (word for word in _WORD.findall(folded) if not is_common(word))
    return frozenset(word[:_PREFIX] for word in words), topics_of(folded)


def prefixes(folded: str) -> frozenset[str]:
    """The words of a folded text, as `keywords` gives them."""
    return frozenset(word[:_PREFIX] for word in _WORD.findall(folded))


def best_lines(
    wanted: tuple[frozenset[str], frozenset[str]], threads: Sequence[Thread]
) -> list[tuple[Thread, Line]]:
    """Messages that match, the best first; at most one a thread."""
    words, topics = wanted
    scored: list[tuple[float, Thread, Line]] = []
    for thread in threads:
        best = max(((_score(line, words, topics), line) for line in thread.lines), key=_first)
        if best[0] >= max(1.0, (len(words) + len(topics)) / 2):
            scored.append((best[0], thread, best[1]))
    scored.sort(key=lambda found: -found[0])
    return [(thread, line) for _, thread, line in scored]


def _first(pair: tuple[float, Line]) -> float:
    return pair[0]


def _score(line: Line, words: frozenset[str], topics: frozenset[str]) -> float:
    folded = fold(f"{line.text} {line.author}")
    return len(words & prefixes(folded)) + _TOPIC * len(topics & topics_of(folded))
