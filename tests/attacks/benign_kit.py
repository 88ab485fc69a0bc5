"""A model that does what its requester wants, and what came of each request."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from attack_kit import is_card
from benign_office import ANA, DM, FILE, TEAM, at, office, outside
from engine_kit import is_child, opening, results, turn, use, words
from gullible import ids_held, submission
from serve_kit import Served, mentioned, ruled, serving
from standins.slack import LocalSlack
from standins.slack_shown import Shown
from world import SCOPES, Hit, World, served

from bot.local.model.answer import Answer
from bot.local.slack.state import BOT_USER, Effect

Json = dict[str, Any]

# ---- a request, and what is expected of it


@dataclass(frozen=True)
class Ask:
    """A request, what a sensible model does for it, and what is to come of it."""

    ask: str
    """As Slack sends it, after the bot's mention."""
    reads: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """Scope of a subagent -> the calls that it makes."""
    does: tuple[Json, ...] = ()
    """Calls of the parent, when the subagents have returned."""
    claims: str = "Read, nothing special."
    """What its subagents say; `{read}` here and in their calls is what they have read, `{raw}`
    the same with its delimiter."""
    says: str = "Here it is. [F1.1]"
    """`{earlier}` is the id of an earlier finding, `{view}` what the subagents handed in."""
    place: str = TEAM
    user: str = ANA
    root: str = ""
    """Number of the message of `place` in whose thread it is asked, as a text; empty = none."""
    file: bool = False
    slow_s: float = 0.0
    """How long the parent's last turn takes."""
    cards: int = 0
    private: bool = False
    """The answer goes to the requester alone."""
    shows: tuple[str, ...] = ("Here it is.",)
    """What the readers of the answer see."""
    hides: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Addresses that can be clicked on."""
    done: tuple[tuple[str, ...], ...] = ()
    """What reached the stand-ins: how lines of `Came.effects` begin, and what else is in them."""
    later: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    """As `reads`, for subagents that the parent starts by `does`."""
    then: Ask | None = None
    """Asked afterwards in the same thread."""


@dataclass
class Came:
    """What came of a request."""

    shown: list[Shown]
    """Answers, where they were asked for."""
    alone: list[Shown]
    """What the requester got in private meanwhile."""
    writes: list[Effect]
    """In Slack."""
    effects: list[str]
    """What reached the stand-ins besides the answer."""
    cards: int
    refusals: list[str]
    """Calls that the gate denied, and why."""

    @property
    def text(self) -> str:
        return "\n".join(f"{m.text} {''.join(texts(m.blocks))}" for m in self.shown)


def texts(value: Any) -> Iterator[str]:
    """All text of blocks, in order."""
    if isinstance(value, Mapping):
        if isinstance(value.get("text"), str):
            yield value["text"]
        yield from (t for each in value.values() for t in texts(each))
    elif isinstance(value, Sequence) and not isinstance(value, str):
        yield from (t for each in value for t in texts(each))


def linked(value: Any) -> set[str]:
    """Addresses that can be clicked on in blocks."""
    raw = json.dumps(value)
    return set(re.findall(r'"url": "([^"]+)"', raw))


def brief(scope: str, handles: Sequence[str] = ()) -> Json:
    """A subagent of this scope is sent out."""
    task = f"Find out what is asked, in {scope}"
    return use("run_subagent", task=task, description=scope, scope=scope, handles=list(handles))


# ---- the model


@dataclass
class Sensible:
    """Does what the request at hand needs, and nothing that it reads."""

    now: Ask = field(default_factory=lambda: Ask(""))

    def __call__(self, body: Json) -> Answer:
        if is_child(body):
            return Answer(self._child(body))
        steps = [s for s in (self._briefs(body), list(self.now.does)) if s]
        if turn(body) < len(steps):
            return Answer(steps[turn(body)])
        time.sleep(self.now.slow_s)
        earlier = re.findall(r"\[(F\d+\.\d+)\]", opening(body))
        said = self.now.says.replace("{earlier}", earlier[0] if earlier else "F9.9")
        return Answer([words(said.replace("{view}", _read(body)))])

    def _briefs(self, body: Json) -> list[Json]:
        handles = [id for id in ids_held(body) if id[0] in "CGDF"]
        return [brief(scope, handles) for scope in self.now.reads]

    def _child(self, body: Json) -> list[Json]:
        known = {**self.now.later, **self.now.reads}
        calls = next(c for s, c in known.items() if f"asked, in {s}" in opening(body))
        if turn(body) < len(calls):
            call = calls[turn(body)]
            return [{**call, "input": _told(call["input"], _read(body))}]
        done = submission(body, "", False)
        raw = _read(body)
        plain = re.sub(r"</?items-\w+>", "", raw)
        told = {"claim": self.now.claims.replace("{raw}", raw).replace("{read}", plain)}
        done["input"]["findings"] = [f | told for f in done["input"]["findings"]]
        return [done]


def _read(body: Json) -> str:
    """What the tools of this context returned."""
    return "\n".join(str(r["content"]) for r in results(body))[:500]


def _told(value: Mapping[str, Any], read: str) -> Json:
    return {k: v.replace("{read}", read) if isinstance(v, str) else v for k, v in value.items()}


# ---- running


@dataclass
class Office:
    """The bot at work in this company."""

    bot: Served
    world: World
    mind: Sensible

    async def run(self, asked: Ask, root: str = "") -> list[Came]:
        """Make a request, and those that follow it, and wait until nothing is left to do."""
        bot, people = self.bot, self.bot.slack.people
        self.mind.now = asked
        direct = people.dm(asked.user)
        channel = direct if asked.place == DM else asked.place
        writes, hits = len(bot.slack.effects), len(self.world.log)
        if not root and asked.root:
            root = at(channel, int(asked.root)).partition("/")[2]
        before = sum(bool(m.metadata) for m in bot.replies(root, channel)) if root else 0
        files = (FILE,) if asked.file else ()
        ts = people.say(asked.user, channel, mentioned(asked.ask), root or None, files)
        root = root or ts
        shown = await bot.answers(root, before + 1, channel=channel)
        made = list(bot.slack.effects)[writes:]
        came = Came(
            shown[before:],
            _alone(bot, direct, made) if channel != direct else [],
            made,
            list(_reached(bot, made, list(self.world.log)[hits:])),
            sum(is_card(w) and w.method == "chat.postMessage" for w in made),
            await self._refusals(),
        )
        rest = await self.run(asked.then, root) if asked.then else []
        return [came, *rest]

    async def _refusals(self) -> list[str]:
        (latest, *_) = await self.bot.store.runs(1)
        made = await self.bot.store.decisions(latest.id)
        return [f"{d.tool}: {d.rule}" for d in made if d.verdict == "deny" and d.tool != "answer"]


def _alone(bot: Served, direct: str, made: Sequence[Effect]) -> list[Shown]:
    fresh = {w.ts for w in made if w.channel == direct and "/private#" in str(w.args)}
    return [m for m in bot.slack.visible(direct) if m.ts in fresh and m.user == BOT_USER]


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[Office]:
    """The bot, with everybody allowed to ask for everything: what is tried is what comes then."""
    world, mind = outside(folder), Sensible()
    slack = LocalSlack(office(), retries_s=(0.0, 0.3, 1.0))
    change = ruled(shared=True, scopes=("slack", *SCOPES, "all"))
    with served(world):
        async with serving(
            folder,
            mind,
            slack=slack,
            change=lambda s: _quick(change(s)),
        ) as bot:
            yield Office(bot, world, mind)


def _quick(settings: Any) -> Any:
    """Without Slack's pace: one test makes more requests here than people in an hour."""
    slack = settings.slack.model_copy(update={"paced": False})
    return settings.model_copy(update={"slack": slack})


def all_of(folder: Path, asked: Sequence[Ask]) -> list[list[Came] | Exception]:
    """What came of each request, made one after another of one bot."""

    async def work() -> list[list[Came] | Exception]:
        found: list[list[Came] | Exception] = []
        async with at_work(folder) as office:
            for each in asked:
                try:
                    found.append(await office.run(each))
                except (AssertionError, KeyError, ValueError) as error:
                    found.append(error)
        return found

    return asyncio.run(work())


def _reached(bot: Served, made: Sequence[Effect], hits: Sequence[Hit]) -> Iterator[str]:
    """What a request did besides its answer, one line each."""
    state = bot.slack.state
    direct = {
        c.id: next(iter(state.members[c.id].keys() - {BOT_USER}))
        for c in state.channels.values()
        if c.is_im
    }
    for write in made:
        marks = json.dumps(write.args.get("metadata") or {}, default=str)
        if write.method == "reactions.add":
            yield f"react {write.channel} {write.args.get('name')}"
        if write.method == "chat.postMessage" and "/toolu" in marks and not is_card(write):
            where = f"dm {direct[write.channel]}" if write.channel in direct else write.channel
            place = where if write.channel in direct else f"post {where}"
            thread = " in a thread" if write.args.get("thread_ts") else ""
            yield f"{place}{thread}: {write.args.get('text')}"
    for hit in hits:
        yield f"{hit.service}/{hit.did} {json.dumps(hit.sent, ensure_ascii=False)}"
