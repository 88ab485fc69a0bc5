"""Reads threads as a model would see them, and tells by rules who has to act next.

The input is the text of a tool result; the state of a thread follows from who wrote, who spoke last
and what the last turns say (`bot.local.mind.cues`). Rules, not a language model.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.local.mind.cues import Turn, fold, language_of, read_turn

_LINE = re.compile(
    r"^(?P<indent> *)\[(?P<id>[^\]\s]+/[^\]\s]+)\] "
    r"(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d) (?P<rest>.*)$"
)
_META = re.compile(r" \{([^{}]*)\}$")
_KNOWN_META = re.compile(r"^(?:reactions: |edited$|files: |before window$|bot$)")
_SHORT_TEXT = 400
"""Most characters of a reply that may be only "me too"."""
_SHORT_REST = 8
"""Most words beside the thanks in a turn that only thanks."""
_SHORT_NOTE = 60
"""Most words of a helper's turn that only says "we look into it"; longer ones propose something."""
_DONE = frozenset(
    {"white_check_mark", "heavy_check_mark", "ballot_box_with_check", "tada", "solved", "done",
     "checkered_flag", "ok_white_check_mark"}
)  # fmt: skip


@dataclass(frozen=True)
class Line:
    """One message as shown: who wrote what, when (UTC), and what code noted beside it."""

    id: str
    at: datetime
    author: str
    text: str
    reactions: tuple[tuple[str, int], ...] = ()
    bot: bool = False


@dataclass(frozen=True)
class Thread:
    """A root and its replies in order of time; `lines` is never empty."""

    lines: tuple[Line, ...]

    @property
    def root(self) -> Line:
        return self.lines[0]

    @property
    def replies(self) -> tuple[Line, ...]:
        """Answers of people other than the asker; bots and "me too" are not answers."""
        return tuple(
            line
            for line in self.lines[1:]
            if line.author != self.root.author and not line.bot and not _me_too(line)
        )


@dataclass(frozen=True)
class Verdict:
    """The state of a thread and the message that decides it."""

    state: str
    decided_by: Line
    why: str


def parse_threads(text: str) -> list[Thread]:
    """The threads of one tool result; lines that are not messages are passed over."""
    groups: list[list[Line]] = []
    for raw in text.splitlines():
        found = _LINE.match(raw)
        if not found:
            continue
        line = _line(found["id"], found["at"], found["rest"])
        if found["indent"] and groups:
            groups[-1].append(line)
        else:
            groups.append([line])
    return [Thread(tuple(group)) for group in groups]


def _line(item: str, at: str, rest: str) -> Line:
    notes: list[str] = []
    meta = _META.search(rest)
    if meta and all(_KNOWN_META.match(note) for note in meta[1].split("; ") if note):
        notes, rest = meta[1].split("; "), rest[: meta.start()]
    author, _, said = rest.partition(": ")
    reactions: list[tuple[str, int]] = []
    for note in notes:
        if note.startswith("reactions: "):
            for part in note.removeprefix("reactions: ").split(", "):
                name, _, count = part.rpartition(" ")
                reactions.append((name, int(count)) if count.isdigit() else (part, 1))
    when = datetime.strptime(at, "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
    return Line(item, when, author, said, tuple(reactions), "bot" in notes)


def join(pages: Iterable[str]) -> list[Thread]:
    """The threads of all pages of one channel; a thread cut by a page end is put together again."""
    threads: dict[str, Thread] = {}
    for page in pages:
        for thread in parse_threads(page):
            known = threads.get(thread.root.id)
            if known:
                ids = {line.id for line in known.lines}
                more = tuple(line for line in thread.lines if line.id not in ids)
                thread = Thread(known.lines + more)
            threads[thread.root.id] = thread
    return list(threads.values())


def judge(thread: Thread, language: str = "en") -> Verdict:
    """State of a thread: unanswered, unsolved, waiting, solved or none, with what decides it.

    `language` is that of the channel: what a thread too short to tell is read in.
    """
    tongue = language_of(fold(" ".join(line.text for line in thread.lines)), language)
    turns = _turns(thread)
    if not turns:
        return Verdict("none", thread.root, "posted by a bot")
    if _is_talk(thread, turns, tongue):
        return Verdict("none", thread.root, "neither a question nor a problem")
    verdict = _by_words(turns, tongue)
    if verdict.state in ("unanswered", "waiting") or turns[-1].helper:
        for line in reversed(thread.lines):
            if _DONE & {name for name, _ in line.reactions}:
                return Verdict("solved", line, "marked as done by a reaction")
    return verdict


@dataclass(frozen=True)
class _Side:
    """Consecutive messages of the asking side, or of the helping side."""

    helper: bool
    lines: tuple[Line, ...]

    def read(self, tongue: str) -> Turn:
        return read_turn(" . ".join(line.text for line in self.lines), tongue)


def _turns(thread: Thread) -> list[_Side]:
    helpers = {line.id for line in thread.replies}
    turns: list[_Side] = []
    for line in thread.lines:
        helper = line.id in helpers
        if line.bot:
            continue
        if turns and turns[-1].helper == helper:
            turns[-1] = _Side(helper, (*turns[-1].lines, line))
        else:
            turns.append(_Side(helper, (line,)))
    return turns


def _me_too(line: Line) -> bool:
    return len(line.text) < _SHORT_TEXT and read_turn(line.text).me_too


def _is_talk(thread: Thread, turns: Sequence[_Side], tongue: str) -> bool:
    """An announcement or small talk: no title, no question, nothing wrong, whoever asks."""
    if thread.root.bot or read_turn(thread.root.text, tongue).notice:
        return True
    asking = [turn.read(tongue) for turn in turns if not turn.helper]
    told = any(turn.asks or turn.troubled for turn in asking)
    return not told and not thread.root.text.startswith(("*", "["))


def _by_words(turns: Sequence[_Side], tongue: str) -> Verdict:
    last = turns[-1]
    by, turn = last.lines[-1], last.read(tongue)
    if len(turns) == 1:
        return _alone(last, tongue)
    if last.helper:
        asker = turns[-2] if len(turns) > 2 else _Side(False, turns[0].lines[1:])
        return _helper_last(by, turn, asker.read(tongue))
    if turn.solved:
        return Verdict("solved", by, "the asker says that it is solved")
    if turn.promises and not turn.fails:
        return Verdict("waiting", by, "the asker will try and report")
    if turn.open:
        return Verdict("unsolved", by, "the asker says that it is still open")
    if any(turn.read(tongue).solved for turn in turns[2:-1] if not turn.helper):
        return Verdict("solved", by, "the asker said before that it is solved")
    asked = turns[-2].read(tongue).question
    if (
        turn.thanks
        and not turn.supplies
        and turn.rest <= (_SHORT_REST // 2 if asked else _SHORT_REST)
    ):
        return Verdict("solved", by, "the asker thanks and asks nothing more")
    return Verdict("unsolved", by, "the asker answered and nobody came back")


def _helper_last(by: Line, turn: Turn, before: Turn) -> Verdict:
    """`before` is the asker's last turn; it is empty where that was the question itself."""
    if before.solved:
        return Verdict("solved", by, "the asker said that it is solved")
    if turn.solved and (turn.thanks or turn.words <= _SHORT_REST):
        return Verdict("solved", by, "a helper says that it is done")
    if turn.passes and not turn.question and turn.words <= _SHORT_NOTE:
        return Verdict("unsolved", by, "a helper looks into it or has no answer")
    if before.thanks and not before.supplies and not before.open and before.rest <= _SHORT_REST:
        return Verdict("solved", by, "the asker thanked and asked nothing more")
    return Verdict("waiting", by, "a helper asked or proposed something")


def _alone(side: _Side, tongue: str) -> Verdict:
    """Nobody else wrote."""
    root, later = side.lines[0], side.lines[1:]
    if later and read_turn(" . ".join(line.text for line in later), tongue).solved:
        return Verdict("solved", later[-1], "the asker found the answer")
    first = read_turn(root.text, tongue)
    if first.settled:
        return Verdict("solved", root, "the question tells its own answer")
    if any(line.author != root.author for line in later):
        return Verdict("unsolved", side.lines[-1], "others have it too and nobody helped")
    return Verdict("unanswered", root, "nobody replied")
