"""Which requests of a mail thread still wait for its reader."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from bot.local.mind.cues import Turn, fold, read_turn
from bot.local.mind.mail_cues import asks, has, words
from bot.local.mind.mail_read import Mail, Person, Talk, hail, people_of, without_hail

CALENDAR = re.compile(
    r"Calendar (?:invitation|cancellation|event)|(?:Reply to|Proposal of another time)\b.{0,20}"
    r"calendar invitation"
)
"""How code begins the facts of an invitation in a mail."""
HEADER = re.compile(r"\b(?:To|Cc|cc|Sent|Subject): .*\b(?:To|Cc|cc|Sent|Subject): ?|-{8}")
"""A line that heads a mail inside of a mail."""
_SHORT = 25
"""Most words of a mail by which somebody else takes a request on."""
_THANKS = 12
"""Most words beside the thanks in a mail that ends a matter."""


@dataclass(frozen=True)
class Ask:
    """One sentence that asks, verbatim, and the mail it stands in."""

    text: str
    mail: Mail


def pending(talk: Talk) -> list[Ask]:
    """What others ask of the reader and nobody has settled, oldest first.

    The reader's own answer settles what came before it; so does the asker who says that it is
    solved, or somebody else who takes it on.
    """
    open_ones: list[Ask] = []
    for mail in talk.mails:
        if mail.own:
            open_ones = []
            continue
        if open_ones and _settles(mail, open_ones[-1].mail, read_turn(mail.text, talk.language)):
            open_ones = []
        open_ones += [Ask(text, mail) for text in _asked(mail, talk)]
    return open_ones


def is_settled(talk: Talk) -> bool:
    """Whether the last word says that it is solved, or only thanks."""
    last = talk.mails[-1]
    turn = read_turn(last.text, talk.language)
    if len(talk.mails) == 1 and not turn.thanks:
        return False  # it tells of something done, to people who had not asked
    if turn.question or any(asks(s, talk.language) for s in last.sentences):
        return False
    return turn.solved or (turn.thanks and turn.rest <= _THANKS)


def orders_machine(talk: Talk) -> Mail | None:
    """The first mail that gives orders to a program which reads it; its requests do not count."""
    return next((m for m in talk.mails if has("machine", fold(m.text + m.forwarded))), None)


def _settles(mail: Mail, asked: Mail, turn: Turn) -> bool:
    asked_more = turn.question
    if mail.by == asked.by:
        return not asked_more and (turn.solved or (turn.thanks and turn.rest <= _THANKS))
    takes = turn.promises or turn.passes or turn.solved
    return takes and not asked_more and turn.words <= _SHORT


def _asked(mail: Mail, talk: Talk) -> Iterator[str]:
    """The sentences of a mail that ask something of the reader."""
    if has("machine", fold(mail.text + mail.forwarded)):
        return
    found = mail.sentences
    if not _meant(mail, talk, found[0] if found else ""):
        return
    for sentence in found:
        if CALENDAR.search(sentence) or HEADER.search(sentence):
            continue
        said = without_hail(sentence, talk.language)
        if asks(said, talk.language) and not _to_another(sentence, mail, talk):
            yield said


def _meant(mail: Mail, talk: Talk, first: str) -> bool:
    """Whether a mail speaks to the reader: not to somebody it greets, nor with only a copy."""
    greeted = fold(hail(first, talk.language))
    copied = any(p.address == talk.reader.address for p in mail.cc)
    named = _names(greeted)
    mine = bool(talk.reader.names & named)
    if mine or words("any", "team").search(greeted):
        return True
    if any(p.names & named for p in people_of(talk) if p != mail.by):
        return False
    return not copied or bool(talk.reader.names & _names(fold(mail.text)))


def _to_another(sentence: str, mail: Mail, talk: Talk) -> bool:
    """Whether a sentence calls somebody else by name: "Nils, could you ...?"."""
    called = re.match(r"@?([A-ZÀ-Þ][\w'’-]+)(?: [A-ZÀ-Þ][\w'’-]+)?[,:]", sentence)
    if not called:
        return False
    names = _names(fold(called[1]))
    return any(p.names & names for p in _others(mail, talk)) and not talk.reader.names & names


def _others(mail: Mail, talk: Talk) -> list[Person]:
    return [p for p in people_of(talk) if p != mail.by]


def _names(folded: str) -> set[str]:
    return set(re.findall(r"\w{3,}", folded))
