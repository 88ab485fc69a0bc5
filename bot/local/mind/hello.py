"""What the offline mind says to who only greets, thanks, or asks what it can do."""

import re
from collections.abc import Sequence

from bot.local.mind.cues import asked_for, fold, read_turn, spoken, without
from bot.local.mind.hearing import Heard
from bot.local.mind.request import CHANNEL, NOTHING, Asked, listed_channels
from bot.local.mind.search import keywords
from bot.local.mind.talk import say

_FEW = 3
"""Most words beside a greeting that say nothing more."""


def greets(asked: Asked) -> bool:
    """Whether a request says hello or asks what can be done here, and nothing else."""
    if asked.text in ("", NOTHING):
        return True
    folded = fold(asked.text)
    if CHANNEL.search(asked.text) or not (spoken("able", folded) or spoken("hello", folded)):
        return False
    rest = without("here", without("hello", without("able", folded)))
    if asked_for(rest) or any(keywords(rest)):
        return len(re.findall(r"\w+", rest)) == 1 and not asked_for(rest) and "?" not in rest
    return bool(spoken("able", folded)) or len(re.findall(r"\w+", rest)) <= _FEW


def thanks(asked: Asked) -> bool:
    """Whether a request only thanks."""
    turn = read_turn(asked.text, asked.language)
    return turn.thanks and not turn.question and turn.rest <= _FEW and turn.words <= 3 * _FEW


def hello(asked: Asked, heard: Heard) -> str:
    """What can be done here, with requests that name channels of this workspace."""
    language = asked.language
    examples = [f"- {example}" for example in _examples(asked, heard)]
    return "\n".join([say(language, "hello"), say(language, "try"), *examples])


def _examples(asked: Asked, heard: Heard) -> list[str]:
    language = asked.language
    listed = {key: f"#{name}" for key, (name, _) in listed_channels(heard).items()}
    own = [asked.title(asked.here)] if asked.here else []
    names = list(dict.fromkeys([*own, *listed.values()]))
    told = [say(language, "ex_open", names[0])] if names else []
    if len(names) > 1:
        told.append(say(language, "ex_compare", names[0], names[1]))
        prefix = _prefix(names)
        told.append(say(language, "ex_sweep", prefix) if prefix else say(language, "ex_all"))
    if heard.block("FINDINGS OF EARLIER ANSWERS"):
        told = [say(language, "ex_more"), *told[:2]]
    return told


def _prefix(names: Sequence[str]) -> str:
    """The first word that most channels share with the first one, as in `csm-spain`."""
    first = re.split(r"[-_]", names[0].lstrip("#"))[0]
    shared = [name for name in names if re.match(rf"#{re.escape(first)}[-_]", name)]
    return first if len(shared) > 1 else ""
