"""A parent whose context fills up hands over to a new session, with a package made by code."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from config.prompts import prompt
from scopes.label import Label
from scopes.tool import ToolContext, estimate_tokens
from subagents.agent import Agent
from subagents.brief import Block, text_block
from subagents.conversation import Ending, Spec
from subagents.delegation import Delegation
from subagents.delimiter import shorten
from subagents.events import ParentHandedOver
from subagents.prices import Usage, sum_usd
from subagents.summary import overview
from subagents.trajectory import Origin

MAX_SESSIONS = 5
"""Maximum sessions of one request; each gets a share of the context for earlier results."""
PACKAGE_SHARE = 0.25
"""Share of `context_limit` that a package may take: below the share for the reminder."""


@dataclass
class ParentRun:
    """A parent's work over all its sessions."""

    ending: Ending
    usage: Usage = field(default_factory=Usage)
    cost_usd: float | None = 0.0
    steps: int = 0
    sessions: int = 0


def package(
    request: str, ending: Ending, delegation: Delegation, label: Label, max_tokens: int
) -> Block:
    """Return the package for the next session: goal, state, views so far with their ids, label."""
    results = list({result.id: result for result in delegation.returned}.values())
    state = shorten(ending.text, 300) or "nothing was written yet"
    head = [
        prompt("handoff"),
        f"GOAL: {shorten(request, 500)}",
        f"STATE: {len(results)} subagents have returned. "
        f"Last words of the earlier session: {state}",
        f"LABEL: {json.dumps(label.to_json())}",
        "OPEN: whatever of the goal the results below do not answer.",
        "RESULTS:",
    ]
    room = max_tokens - estimate_tokens("\n".join(head))
    each = delegation.fanout.run.limits.max_result_tokens
    return text_block("\n".join([*head, overview(results, each, room)]))


async def run_parent(
    open_agent: Callable[[Spec, ToolContext], Agent],
    spec: Spec,
    ctx: ToolContext,
    request: str,
    delegation: Delegation,
) -> ParentRun:
    """Run sessions until one ends by itself; `open_agent` makes the agent of each.

    All share one log of what their tools return, and their steps: a handoff does not give a request
    more steps.
    """
    done, run = ParentRun(Ending("none")), delegation.fanout.run
    opening = spec.opening
    while True:
        done.sessions += 1
        context = delegation.fanout.parent = f"p{done.sessions}"
        names = spec.tool_names
        run.declare(context, scope="parent", role=spec.role, template="parent", tools=names)
        session = replace(
            spec,
            context=context,
            opening=opening,
            max_steps=max(1, spec.max_steps - done.steps),
            handoff_at=spec.handoff_at if done.sessions < MAX_SESSIONS else None,
        )
        agent = open_agent(session, ctx)
        done.ending = await agent.run()
        done.usage += agent.usage
        done.cost_usd = sum_usd(done.cost_usd, agent.cost_usd)
        done.steps += agent.steps
        reading = agent.reading
        ctx = replace(agent.ctx, label=reading.label)
        if done.ending.stopped_by != "handoff":
            return done
        reading.forget_unsent()
        cap = int(PACKAGE_SHARE * spec.context_limit)
        block = package(request, done.ending, delegation, reading.label, cap)
        opening = [*spec.opening, (Origin.HANDOFF, block, context)]
        run.emit(ParentHandedOver(done.sessions + 1))
