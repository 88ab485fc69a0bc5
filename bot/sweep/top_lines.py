"""The few lines that a parent writes over a report whose parts are already made by code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from bot.requests.asked import Request
from config.prompt import prompt
from scopes.tool import Handles, ToolContext
from subagents.agent import Agent
from subagents.brief import text_block
from subagents.conversation import Spec
from subagents.errors import BudgetExceeded
from subagents.purse import Amount
from subagents.result import SubagentResult, joined
from subagents.run import Run
from subagents.toolbox import Toolbox
from subagents.trajectory import Context, Origin

Opening = tuple[str, Origin, str]
"""A block that the parent begins with: text, why it is there, and the subagent that it shows."""


@dataclass
class TopLines:
    """The one model call of a report's parent, paid for before the subagents begin."""

    run: Run
    kind: str
    """`sweep` or `triage`: the scope that its context is recorded under."""
    prompt: str
    """Name of the file in config/prompts/, without `.md`."""
    context: str = "p1"

    @property
    def _held(self) -> str:
        return f"{self.run.id}/{self.context}/final"

    def begin(self) -> None:
        """Record the parent's context, so that subagents can name it."""
        self.run.sink.context(
            Context(
                run=self.run.id,
                id=self.context,
                parent=None,
                kind="parent",
                scope=self.kind,
                model=self.run.model.name("parent"),
                template=self.prompt,
                tools=(),
                created=datetime.now(UTC),
            )
        )

    async def hold(self) -> None:
        """Keep the call affordable whatever the subagents spend."""
        model, limits = self.run.model, self.run.limits
        worst = model.worst("parent", limits.max_fanout_tokens, model.role("parent").max_tokens)
        try:
            await self.run.purse.keep(self._held, worst)
        except BudgetExceeded:
            return  # then the lines are made by code

    async def release(self) -> None:
        """Give back what was kept and not spent."""
        await self.run.purse.settle(self._held, Amount())

    async def write(
        self, request: Request, opening: Sequence[Opening], shown: Sequence[SubagentResult]
    ) -> tuple[str, Agent]:
        """What the parent wrote over these results, and the agent that it did."""
        agent = self._agent(request, opening, shown)
        return (await agent.run()).text, agent

    def _agent(
        self, request: Request, opening: Sequence[Opening], shown: Sequence[SubagentResult]
    ) -> Agent:
        limits = self.run.limits
        spec = Spec(
            run=self.run.id,
            context=self.context,
            role="parent",
            system=[text_block(prompt(self.prompt))],
            tools=[],
            opening=[(origin, text_block(text), ref) for text, origin, ref in opening],
            max_steps=3,
            context_limit=limits.parent_context,
            seconds=max(1.0, self.run.purse.seconds_left()),
            contract=None,
            single=True,
        )
        ctx = ToolContext(
            run=self.run.id,
            requester=self.run.requester,
            handles=Handles(),
            label=joined(shown),
            window=request.window,
            clients={},
            max_output_tokens=0,
        )
        return Agent(self.run, spec, Toolbox({}, self.run.gate, 1.0, ""), ctx)
