"""The words of a question that say what it asks for; a short list, in English."""

from __future__ import annotations

import re
import unicodedata

_LETTERS = 5
"""Letters by which two forms of a word are the same."""
_WORD = re.compile(r"[^\W_]{3,}")
_NAME = re.compile(r"#[\w-]+|\b[CGDF][A-Z0-9]{6,}\b|https?://\S+")
_COMMON = frozenset(
    """about after all and any are asked asks been before being between both but can channel
    channels could did does doing done each every find for from get give had has have her his
    how into its know last list look may mention mentioned more most much must need not now off
    one only other our out over please read said say says search see she should show since some
    still summarise summarize tell than that the their them then there these they thing things
    this thread threads today under until used was week were what when where which while who
    whom whose why will with word words would you your question questions issue issues open
    happened happens new problem problems answer catch mail mails email emails note notes noted
    web internet online use uses
    """.split()
)
_OPEN = r"open|broken|needs? (?:action|attention|an answer)|todo|to do"
"""Words for what needs action, answered or not."""
_STATES = {
    "unanswered": r"unanswered|no (?:answer|reply)|nobody (?:has )?(?:answered|replied)",
    "unsolved": rf"unsolved|unresolved|not (?:yet )?(?:solved|resolved)|{_OPEN}",
    "waiting": r"waiting|wait for",
    "known": r"known (?:bugs?|issues?)",
    "declined": r"declined|rejected",
    "solved": r"(?<!not )(?<!not yet )(?:solved|resolved)|fixed|closed",
}


def fold(text: str) -> str:
    """Return a text in lower case and without accents."""
    plain = unicodedata.normalize("NFKD", text.replace("ß", "ss").casefold())
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def words_of(text: str) -> frozenset[str]:
    """Return the beginnings of the words of a text."""
    return frozenset(word[:_LETTERS] for word in _WORD.findall(fold(text)))


def content_words(question: str) -> frozenset[str]:
    """Return the beginnings of the words that tell what a question is about."""
    return frozenset(word[:_LETTERS] for word in named_words(question))


def named_words(question: str) -> list[str]:
    """Return the words that tell what a question is about, folded, each once."""
    plain = _NAME.sub(" ", question)
    for state in _STATES.values():
        plain = re.sub(rf"\b(?:{state})\b", " ", plain, flags=re.IGNORECASE)
    return [word for word in dict.fromkeys(_WORD.findall(fold(plain))) if word not in _COMMON]


def states_in(question: str) -> set[str]:
    """Return the states of threads that a question asks for; open ones include unanswered ones."""
    text = question.lower()
    found = {name for name, words in _STATES.items() if re.search(rf"\b(?:{words})\b", text)}
    if re.search(rf"\b(?:{_OPEN})\b", text):
        found.add("unanswered")
    return found
