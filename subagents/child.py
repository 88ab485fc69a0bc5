"""One subagent: a fresh context made of its frozen brief alone, and the result that it ends in."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import scopes
from scopes.closing import Closing
from scopes.label import TRUSTED, Label
from scopes.tool import ToolContext, ToolResult
from subagents.agent import Agent
from subagents.brief import Frozen
from subagents.conversation import Ending, Spec
from subagents.events import SubagentFinished, SubagentStarted
from subagents.gate import Gate
from subagents.result import SubagentResult, crashed, settle
from subagents.run import Run
from subagents.toolbox import Toolbox, crash_text
from subagents.trajectory import Context, Origin

log = logging.getLogger(__name__)

STOPPED = "as the request was stopped"


async def run_child(
    run: Run, frozen: Frozen, on_reply: Callable[[], None] | None = None
) -> SubagentResult:
    """One subagent from its frozen brief to its result; nothing that it does raises.

    `on_reply` is called each time the model has replied to it, and at its end.
    """
    draft = frozen.brief.draft
    try:
        run.emit(SubagentStarted(frozen.id))
        result = await _worked(run, frozen, on_reply)
    except Exception as error:  # the seam: one subagent's run
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        reason = crash_text("its run", error)
        result = crashed(frozen.id, draft.scope, frozen.model, draft.contract, reason)
    finally:
        if on_reply:
            on_reply()
    run.emit(
        SubagentFinished(
            result.id,
            result.status,
            result.stopped_by,
            len(result.findings),
            result.cost_usd,
            Label.of(result.label) if result.label else TRUSTED,
        )
    )
    return result


async def _worked(run: Run, frozen: Frozen, on_reply: Callable[[], None] | None) -> SubagentResult:
    agent = _agent(run, frozen, on_reply)
    try:
        ending = await agent.run()
    except Exception as error:  # what was read and spent so far is kept
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        ending = Ending("tool_error", text=agent.text, reason=crash_text("its run", error))
    if frozen.brief.beside and ending.stopped_by == "none":
        try:
            agent.reading.undone |= await _closed(run, agent)
        except Exception:  # its result is whole; what it told of its writes stands
            log.exception("what subagent %s of %s wrote stays aside", frozen.id, run.id)
    draft = frozen.brief.draft
    return SubagentResult(
        id=frozen.id,
        scope=draft.scope,
        model=frozen.model,
        contract=draft.contract,
        usage=agent.usage.to_json(),
        cost_usd=agent.cost_usd,
        steps=agent.steps,
        tool_calls=agent.tool_calls,
        **settle(ending, number_of(frozen.id), draft.contract, agent.reading),
    )


async def _closed(run: Run, agent: Agent) -> dict[str, str]:
    """Let come what this context left with the clients; what stays undone."""
    child = agent.spec.context
    key = f"{run.id}/{child}/close"
    ctx = replace(agent.ctx, label=agent.reading.label, context=child, key=key)

    async def close() -> dict[str, Any]:
        return {"undone": await closed(run.gate, ctx, stopped=bool(run.stop))}

    undone: dict[str, str] = (await run.checkpoint.step(key, close))["undone"]
    return undone


async def closed(gate: Gate, ctx: ToolContext, *, stopped: bool = False) -> dict[str, str]:
    """Bring what a context left where it belongs, where the gate allows it now, by the rights and
    the label of now; what stays undone, by the keys of `ToolResult.undone`."""
    closing = [client for client in ctx.clients.values() if isinstance(client, Closing)]
    undone: dict[str, str] = {}
    for left in [each for client in closing for each in client.left(ctx.context)]:
        found = None if stopped else await gate.call(ctx.context, ctx, left.tool, left.args)
        if isinstance(found, ToolResult):
            undone |= found.undone
        else:
            why = f"as the gate's rule of {found.rule} wants it" if found else STOPPED
            undone[left.name] = left.kept.format(why)
    return undone


def number_of(child: str) -> int:
    return int(child.removeprefix("s"))


def _context(run: Run, frozen: Frozen) -> Context:
    return Context(
        run=run.id,
        id=frozen.id,
        parent=frozen.parent,
        kind="subagent",
        scope=frozen.brief.draft.scope,
        model=run.model.name(f"subagent_{frozen.model}"),
        template=frozen.template,
        tools=tuple(t["name"] for t in frozen.tools),
        created=datetime.now(UTC),
    )


def _spec(run: Run, frozen: Frozen, on_reply: Callable[[], None] | None) -> Spec:
    brief, limits = frozen.brief, run.limits
    instructions, findings, material = brief.blocks(frozen.fence)
    opening = [(Origin.BRIEF, instructions, "")]
    opening += [(Origin.FINDINGS, findings, "")] if findings else []
    opening += [(Origin.MATERIAL, material, "")] if material else []
    return Spec(
        run=run.id,
        context=frozen.id,
        role=f"subagent_{frozen.model}",
        system=frozen.system,
        tools=frozen.tools,
        opening=opening,
        max_steps=limits.files_steps if brief.draft.scope == "files" else limits.subagent_steps,
        context_limit=limits.child_context,
        seconds=frozen.seconds,
        spare=frozen.spare,
        contract=brief.draft.contract,
        effort=brief.draft.effort,
        on_reply=on_reply,
        single=bool(brief.material) and not brief.handles.titles,
    )


def _agent(run: Run, frozen: Frozen, on_reply: Callable[[], None] | None) -> Agent:
    brief, limits = frozen.brief, run.limits
    run.sink.context(_context(run, frozen))
    tools = {t.name: t for t in scopes.offered(brief.draft.scope, run.clients)}
    agent = Agent(
        run,
        _spec(run, frozen, on_reply),
        Toolbox(tools, run.gate, limits.tool_timeout_s, frozen.fence),
        ToolContext(
            run=run.id,
            requester=run.requester,
            handles=brief.handles,
            label=brief.label,
            window=brief.window,
            clients=run.clients,
            max_output_tokens=limits.max_tool_output_tokens,
            intent=brief.intent,
            scope=brief.draft.scope,
            beside=brief.beside,
        ),
    )
    agent.reading.task = "\n".join([brief.draft.task, *brief.draft.questions])
    agent.reading.expect(brief.expects)
    agent.reading.add(brief.material, {})
    run.sink.saw(run.id, ((item.id, item.author) for item in brief.material))
    return agent
