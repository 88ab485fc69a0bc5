"""Which threads of a channel are about one issue, and which tracker item is about it.

By signs that need no dictionary (tracker keys, acronyms, rare words) and a few common topics. It is
liberal where messages name their customers, since those are reports about one product, and careful
elsewhere, where most threads are an issue of their own.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bot.local.mind.cues import fold, is_common, topics_of
from bot.local.mind.threads import Line, Thread

_KEY = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_ACRONYM = re.compile(r"\b(?:[A-Z]{3,6}\b|[A-Z]{2}(?=-[^\W\d_]))")
_FORMATS = frozenset(
    "CSV DOC DOCX FAQ GIF HTML JPEG JPG JSON PDF PNG TXT URL USB XLS XLSX XML ZIP".split()
)
"""Acronyms that tell nothing of what is wrong."""
_TAG = re.compile(r"\[([^\W\d_][^\[\]|]{1,60})\]")
_LABELLED = re.compile(
    r"\b(?:[Cc]ustomer|[Cc]lient[ei]?|[Kk]unde|[Kk]lant|[Kk]lient|[Zz]ákazník|[Kk]und)(?:: | )"
    r"([A-ZÀ-Þ][\w'’&.-]*(?: (?:[A-ZÀ-Þ&][\w'’.-]*|de|del|della|di|du|la|le|am|und|y|et))*)"
)
_WORD = re.compile(r"[^\W\d_]{5,}")
_STEM = 6
"""Letters that stand for a word, so that its endings do not matter."""
_HEAD = 300
"""Characters of a first message that tell what it is about."""
_RARE = 0.34
"""Largest share of a channel's threads in which a word still tells them apart."""
_TAGGED = 0.25
"""Share of threads that open with a name in brackets where that is a channel's custom."""
_WEIGHTS = {"key": 3.0, "acronym": 2.0, "topic": 1.0, "stem": 0.5}

Sign = tuple[str, str]
"""Kind (a key of `_WEIGHTS`) and folded text."""


@dataclass(frozen=True)
class TrackerItem:
    """One line of a tracker list."""

    id: str
    text: str
    key: str
    """Like `BUG-12`; empty where the item has none."""
    closed: bool


def names_customers(threads: Sequence[Thread]) -> bool:
    """Whether this channel's messages open with the customer's name in square brackets."""
    tags = [tag[1] for thread in threads if (tag := _TAG.match(thread.root.text))]
    return len(set(tags)) >= 2 and len(tags) >= _TAGGED * len(threads)


def customers_of(thread: Thread, tagged: bool) -> dict[str, Line]:
    """Customer names as written, and the message that names each first.

    Forms read: `[Name]` where the channel does so, and `Customer: Name`, `cliente Name` and alike.
    """
    found: dict[str, Line] = {}
    for line in thread.lines:
        if line.bot:
            continue
        names = _TAG.findall(line.text) if tagged else []
        for name in [*names, *_LABELLED.findall(line.text)]:
            found.setdefault(name.strip(" .,"), line)
    return {name: line for name, line in found.items() if name}


def signs_of(thread: Thread) -> frozenset[Sign]:
    """What a thread is about: keys from anywhere in it, the rest from its first message."""
    head = _TAG.sub(" ", thread.root.text)[:_HEAD]
    whole = " ".join(line.text for line in thread.lines)
    return keys_in(whole) | text_signs(head)


def keys_in(text: str) -> frozenset[Sign]:
    """The tracker keys that a text names, like `BUG-12`."""
    return frozenset(("key", key.lower()) for key in _KEY.findall(text))


def text_signs(text: str) -> frozenset[Sign]:
    """Acronyms, topics and rare words of a text."""
    folded = fold(text)
    shouted = sum(c.isupper() for c in text) * 3 > sum(c.isalpha() for c in text)
    acronyms = () if shouted else _ACRONYM.findall(_KEY.sub(" ", text))
    words = (word for word in _WORD.findall(folded) if not is_common(word))
    return frozenset(
        [("acronym", word.lower()) for word in acronyms if word not in _FORMATS]
        + [("topic", name) for name in topics_of(folded)]
        + [("stem", word[:_STEM]) for word in words]
    )


def group(threads: Sequence[Thread], states: Mapping[str, str], tagged: bool) -> list[list[Thread]]:
    """Threads of one issue and one state together, in the order of their first messages.

    `states` maps root ids to states.
    """
    signs = {thread.root.id: signs_of(thread) for thread in threads}
    spread = Counter(sign for found in signs.values() for sign in found)
    common = {
        sign
        for sign, count in spread.items()
        if sign[0] == "stem" and count > max(2, _RARE * len(threads))
    }
    groups: list[list[Thread]] = []
    for thread in threads:
        mine = signs[thread.root.id] - common
        home = next(
            (
                members
                for members in groups
                if states[members[0].root.id] == states[thread.root.id]
                and any(alike(mine, signs[other.root.id] - common, tagged) for other in members)
            ),
            None,
        )
        if home is None:
            groups.append([thread])
        else:
            home.append(thread)
    return groups


def alike(one: frozenset[Sign], two: frozenset[Sign], tagged: bool) -> bool:
    """Whether signs of two texts are of one issue; `tagged` as `names_customers` tells it."""
    shared = one & two
    if any(kind == "key" for kind, _ in shared):
        return True
    if not tagged:
        stems = [sum(kind == "stem" for kind, _ in signs) for signs in (shared, one, two)]
        return stems[0] >= 4 and stems[0] * 2 >= max(stems[1:])
    strong = any(kind != "stem" for kind, _ in shared)
    return strong and sum(_WEIGHTS[kind] for kind, _ in shared) >= 2


def match_tracker(threads: Sequence[Thread], items: Sequence[TrackerItem]) -> TrackerItem | None:
    """The tracker item that these threads name by key, or else share most words and topics with."""
    return _best(frozenset().union(*(signs_of(thread) for thread in threads)), items)


def same_as(text: str, items: Sequence[TrackerItem]) -> TrackerItem | None:
    """The tracker item that a text is about, told in the same way."""
    return _best(keys_in(text) | text_signs(text), items)


def _best(signs: frozenset[Sign], items: Sequence[TrackerItem]) -> TrackerItem | None:
    named = [item for item in items if item.key and ("key", item.key.lower()) in signs]
    if named:
        return next((item for item in named if not item.closed), named[0])
    shared = [(signs & text_signs(item.text), item) for item in items]
    scored = [(sum(_WEIGHTS[kind] for kind, _ in s), item) for s, item in shared if len(s) > 1]
    best = max(scored, key=lambda pair: pair[0], default=(0.0, None))
    return best[1] if best[0] >= 2 else None


_ITEM = re.compile(r"^\s*\[(F[^\]/]+/[^\]]+)\] (.*)$")
_CLOSED = re.compile(
    r"\bstatus: (?:closed|done|resolved|fixed|cerrado|fermé|chiuso|erledigt)\b", re.I
)


def parse_tracker(text: str) -> list[TrackerItem]:
    """The items of a tracker list as a tool result shows them."""
    items = []
    for raw in text.splitlines():
        if found := _ITEM.match(raw):
            key = _KEY.search(found[2])
            items.append(
                TrackerItem(
                    found[1], found[2], key[0] if key else "", bool(_CLOSED.search(found[2]))
                )
            )
    return items
