"""One subagent: a new context made only from its frozen brief, and its result."""

from __future__ import annotations

import logging
from collections.abc import Callable

from scopes.label import TRUSTED, Label
from scopes.tool import ToolContext
from subagents.agent import Agent
from subagents.brief import SpawnedBrief
from subagents.conversation import Ending, Spec
from subagents.events import SubagentFinished, SubagentStarted
from subagents.result import SubagentResult, crash_result, settle
from subagents.run import Run
from subagents.toolbox import Toolbox, crash_text

log = logging.getLogger(__name__)


async def run_subagent(
    run: Run, frozen: SpawnedBrief, on_reply: Callable[[], None] | None = None
) -> SubagentResult:
    """Run one subagent from its frozen brief to its result; raise nothing that it does.

    `on_reply` is called each time the model has replied to it, and at its end.
    """
    try:
        run.emit(SubagentStarted(frozen.id))
        result = await _work(run, frozen, on_reply)
    except Exception as error:  # top-level boundary: one subagent's run
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        result = crash_result(frozen, crash_text("its run", error))
    finally:
        if on_reply:
            on_reply()
    run.emit(finished_event(result))
    return result


def finished_event(result: SubagentResult) -> SubagentFinished:
    """Return the event for the end of a subagent."""
    return SubagentFinished(
        result.id,
        result.status,
        result.stopped_by,
        len(result.findings),
        result.cost_usd,
        Label.of(result.label) if result.label else TRUSTED,
    )


async def _work(
    run: Run, frozen: SpawnedBrief, on_reply: Callable[[], None] | None
) -> SubagentResult:
    agent = _agent(run, frozen, on_reply)
    try:
        ending = await agent.run()
    except Exception as error:  # what was read and spent so far is kept
        log.exception("subagent %s of %s crashed", frozen.id, run.id)
        ending = Ending("tool_error", text=agent.text, reason=crash_text("its run", error))
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
        **settle(ending, int(frozen.id.removeprefix("s")), draft.contract, agent.reading),
    )


def _spec(run: Run, frozen: SpawnedBrief, on_reply: Callable[[], None] | None) -> Spec:
    brief, limits = frozen.brief, run.limits
    if brief.panel:
        brief.panel.check()
    return Spec(
        run=run.id,
        context=frozen.id,
        role=f"subagent_{frozen.model}",
        system=frozen.system,
        tools=frozen.tools,
        opening=list(brief.blocks(frozen.delimiter)),
        max_steps=limits.files_steps if brief.draft.scope == "files" else limits.subagent_steps,
        context_limit=limits.child_context,
        seconds=frozen.seconds,
        spare=frozen.spare,
        contract=brief.draft.contract,
        effort=brief.draft.effort,
        on_reply=on_reply,
        divisible=brief.divisible,
        single=bool(brief.material) and not brief.handles.titles,
    )


def _agent(run: Run, frozen: SpawnedBrief, on_reply: Callable[[], None] | None) -> Agent:
    brief, limits = frozen.brief, run.limits
    run.declare(
        frozen.id,
        scope=brief.draft.scope,
        role=f"subagent_{frozen.model}",
        template=frozen.template,
        tools=[tool["name"] for tool in frozen.tools],
        kind="subagent",
        parent=frozen.parent,
    )
    tools = {tool.name: tool for tool in brief.tools(run.clients)}
    agent = Agent(
        run,
        _spec(run, frozen, on_reply),
        Toolbox(tools, run.gate, limits.tool_timeout_s, frozen.delimiter),
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
        ),
    )
    agent.reading.expect(brief.expects)
    agent.reading.add(brief.material, {})
    agent.reading.given = len(agent.reading.items)
    agent.reading.delimiter = frozen.delimiter
    if brief.panel:
        rules = [(item.id.rpartition("@")[0], item.author) for item in brief.panel.references]
        run.sink.saw(run.id, rules)
        agent.reading.asked = (*brief.panel.categories, *brief.panel.ids)
    run.sink.saw(run.id, [(item.id, item.author) for item in brief.material])
    return agent
