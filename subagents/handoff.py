"""A parent whose context fills up hands over to a fresh session, with a package made by code."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from config.prompt import prompt
from scopes.label import Label
from scopes.tool import ToolContext, estimate_tokens
from subagents.agent import Agent, Workflow
from subagents.brief import Block, text_block
from subagents.conversation import Ending, Spec
from subagents.delegate import MANY, ONE
from subagents.events import ParentHandedOver
from subagents.evidence import Reading
from subagents.fence import shorten
from subagents.prices import Usage
from subagents.run import Run
from subagents.toolbox import Toolbox
from subagents.trajectory import Origin
from subagents.view import fitted

MAX_SESSIONS = 5
"""Sessions of one request; each gets a share of the context for what was learned before it."""
PACKAGE_SHARE = 0.25
"""Share of `context_limit` that a package may take: below the share at which it is reminded."""


@dataclass
class ParentRun:
    """A parent's work over all its sessions."""

    ending: Ending
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    steps: int = 0
    sessions: int = 0


def package(
    request: str, ending: Ending, views: Mapping[str, str], label: Label, max_tokens: int
) -> Block:
    """What the next session must know: goal, state, the views so far with their ids, the label."""
    state = shorten(ending.text, 300) or "nothing was written yet"
    head = [
        prompt("handoff"),
        f"GOAL: {shorten(request, 500)}",
        f"STATE: {len(views)} subagents have returned. Last words of the earlier session: {state}",
        f"LABEL: {json.dumps(label.to_json())}",
        "OPEN: whatever of the goal the results below do not answer.",
        "RESULTS:",
    ]
    room = max_tokens - estimate_tokens("\n".join(head))
    return text_block("\n".join([*head, fitted(views, room)]))


async def run_parent(
    run: Run,
    spec: Spec,
    toolbox: Toolbox,
    ctx: ToolContext,
    request: str,
    workflow: Workflow | None,
    views: Callable[[], Mapping[str, str]],
    begin: Callable[[str, str], None],
    reading: Reading,
) -> ParentRun:
    """Run sessions until one ends by itself. `begin(context, before)` declares each of them.

    `reading` takes in what its own tools return, and the label of all that the answer rests on.
    Steps are shared: a request does not get more of them by handing over.
    """
    done = ParentRun(Ending("none"))
    opening = spec.opening
    before = ""
    while True:
        done.sessions += 1
        context = f"p{done.sessions}"
        begin(context, before)
        session = replace(
            spec,
            context=context,
            opening=opening,
            max_steps=max(1, spec.max_steps - done.steps),
            handoff_at=spec.handoff_at if done.sessions < MAX_SESSIONS else None,
        )
        names = frozenset({ONE, MANY})
        agent = Agent(run, session, toolbox, ctx, workflow, names, reading)
        done.ending = await agent.run()
        _add(done, agent)
        ctx = replace(agent.ctx, label=reading.label)
        if done.ending.stopped_by != "handoff":
            return done
        reading.forget_unsent()
        before = context
        cap = int(PACKAGE_SHARE * spec.context_limit)
        made = package(request, done.ending, views(), reading.label, cap)
        opening = [*spec.opening, (Origin.HANDOFF, made, before)]
        run.emit(ParentHandedOver(done.sessions + 1))


def _add(done: ParentRun, agent: Agent) -> None:
    done.usage += agent.usage
    known = done.cost_usd is not None and agent.cost_usd is not None
    done.cost_usd = (done.cost_usd or 0) + (agent.cost_usd or 0) if known else None
    done.steps += agent.steps
