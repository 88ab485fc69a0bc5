"""What one context does inside a step: a model call or a batch of tools, within what is left.

Here, and nowhere else in a loop, the clock, the purse and the stop flag are read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from scopes.tool import ToolContext
from subagents.conversation import Conversation
from subagents.errors import BudgetExceeded, ModelFailed, ModelMisconfigured
from subagents.model import Call
from subagents.purse import Amount
from subagents.run import Run
from subagents.toolbox import MIN_OUTPUT_TOKENS, Toolbox, ToolCall, failed

FINAL_SHARE, FINAL_SECONDS = 0.15, 30.0
"""Time kept back for the final call: this share of the whole, at most so many seconds."""
REMINDER_TOKENS = 200
LIMIT_OF = {"nanousd": "cost", "tokens": "tokens", "steps": "steps"}
DELEGATE = "Your context is filling up: delegate this with run_subagent."


@dataclass
class Steps:
    """The steps of one context. Each returns plain JSON; a limit comes back as `{limit}`."""

    run: Run
    talk: Conversation
    toolbox: Toolbox
    began: float = field(default_factory=time.monotonic)

    @property
    def max_tokens(self) -> int:
        return self.run.model.role(self.talk.spec.role).max_tokens

    def seconds_left(self) -> float:
        own = self.talk.spec.seconds - (time.monotonic() - self.began)
        return min(own, self.run.purse.seconds_left() - self.talk.spec.spare)

    @property
    def _kept_seconds(self) -> float:
        """What the final call needs of the time that is left."""
        return min(FINAL_SHARE * self.talk.spec.seconds, FINAL_SECONDS)

    async def model(self, seq: int, final: bool) -> dict[str, Any]:
        """One model call: a reply, `{limit}` where only the final call is left, or `{error}`."""
        run, left = self.run, self.seconds_left() - (0.0 if final else self._kept_seconds)
        if left <= 0:
            return {"limit": "time"}
        try:
            async with self._within(left):
                reply = await run.model.complete(
                    await self._reserved(self._call(seq), final),
                    purse=run.purse,
                    governor=run.governor,
                    sink=run.sink,
                )
        except TimeoutError:
            return {"limit": "user" if run.stop else "time"}
        except BudgetExceeded as error:
            return {"limit": LIMIT_OF[error.what]}
        except ModelMisconfigured as error:
            return {"error": "model_error", "reason": str(error)}
        except ModelFailed as error:
            return {"error": error.kind, "reason": str(error), "passing": error.passing}
        return reply.to_json()

    async def _reserved(self, call: Call, final: bool) -> Call:
        """The call, with room for it; before any but the final one, with room for that as well.

        All or nothing: contexts that each held their final call alone would wait for each other.
        """
        worst = self.run.model.worst(call.role, call.prompt_tokens, call.max_tokens)
        last = self.talk.spec.final_key
        wanted = (
            {last: worst} if final else {last: self._final(self.max_tokens), call.key(1): worst}
        )
        await self.run.purse.hold(wanted, behind=call.behind)
        return replace(call, held=last if final else call.key(1))

    def _call(self, seq: int) -> Call:
        spec = self.talk.spec
        return Call(
            run=spec.run,
            context=spec.context,
            seq=seq,
            role=spec.role,
            system=spec.system,
            tools=spec.tools,
            messages=self.talk.messages,
            prompt_tokens=self.talk.prompt_tokens,
            max_tokens=self.max_tokens,
            effort=spec.effort,
            behind=(spec.final_key,),
            on_text=spec.on_text,
            on_restart=spec.on_restart,
            single=spec.single,
        )

    async def tools(self, ctx: ToolContext, calls: Sequence[ToolCall]) -> dict[str, Any]:
        """One batch of ordinary tools, sized so that the final call stays possible."""
        spec, prompt = self.talk.spec, self.talk.prompt_tokens
        free = spec.context_limit - prompt - self.max_tokens - REMINDER_TOKENS
        each = min(self.run.limits.max_tool_output_tokens, free // len(calls))
        if each < MIN_OUTPUT_TOKENS:
            return {"limit": "tokens"}
        if spec.remind_at and prompt > spec.remind_at:
            return {"results": [failed(DELEGATE) for _ in calls]}
        try:
            async with self._within(self.seconds_left() - self._kept_seconds):
                wanted = {spec.final_key: self._final(each * len(calls))}
                await self.run.purse.hold(wanted, behind=wanted)
            async with self._within(self.seconds_left()):
                found = await self.toolbox.batch(spec.context, ctx, calls, each)
        except BudgetExceeded as error:
            return {"limit": LIMIT_OF[error.what]}
        except TimeoutError:
            return {"limit": "user" if self.run.stop else "time"}
        items = (item for each in found for item in each["items"])
        self.run.sink.saw(spec.run, ((item["id"], item["author"]) for item in items))
        return {"results": found}

    async def make_room(self) -> dict[str, Any]:
        """Keep the call affordable that will read what the subagents of this turn return."""
        try:
            async with self._within(self.seconds_left() - self._kept_seconds):
                worst = self._final(self.run.limits.max_fanout_tokens)
                await self.run.purse.keep(self.talk.spec.final_key, worst)
        except TimeoutError:
            return {"limit": "user" if self.run.stop else "time"}
        except BudgetExceeded as error:
            return {"limit": LIMIT_OF[error.what]}
        return {}

    def _final(self, more: int) -> Amount:
        """What one more call may cost, its prompt longer by `more` tokens than it is now."""
        prompt = self.talk.prompt_tokens + more + REMINDER_TOKENS
        return self.run.model.worst(self.talk.spec.role, prompt, self.max_tokens)

    @asynccontextmanager
    async def _within(self, seconds: float) -> AsyncIterator[None]:
        """Raises TimeoutError when this time is over, or the user stops the run."""
        async with asyncio.timeout(max(0.1, seconds)) as scope:
            with self.run.stop.watching(scope):
                yield

    async def release(self) -> None:
        """Give back what was held for a final call that was not needed."""
        await self.run.purse.settle(self.talk.spec.final_key, Amount())
