"""A search that a model makes: a call of its own, paid by the run and recorded like any other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from config.prompt import prompt
from scopes.anthropic_search import (
    MODEL_TOOL,
    PRICE_NANOUSD,
    PROMPT_TOKENS,
    hits_in,
    searches_in,
)
from scopes.searching import Hit, Searching
from scopes.tool import SourceFailed, ToolError
from subagents.brief import text_block
from subagents.errors import BudgetExceeded, ModelFailed, ModelMisconfigured
from subagents.model import Call, Reply
from subagents.purse import Amount
from subagents.run import Run
from subagents.trajectory import Context, Origin

ROLE = "subagent_fast"
PROMPT = "web_search"


@dataclass
class ModelSearch:
    """Searches for one run, once it is bound to it."""

    run: Run | None = None

    async def search(self, query: str, limit: int, key: str) -> Sequence[Hit]:
        """What the model found; `key` is that of a tool's call: `<run>/<context>/<call>`."""
        assert self.run, "bound where the run is opened"
        run, fee = self.run, f"{key}/search"
        final = f"{key.rpartition('/')[0]}/final"  # the context that searches holds it meanwhile
        try:
            await run.purse.reserve(fee, Amount(PRICE_NANOUSD), behind=(final,))
        except BudgetExceeded:
            raise ToolError("No money is left for a search. Work with what you have.") from None
        spent = Amount(PRICE_NANOUSD)  # unless a reply says otherwise
        try:
            reply = await self._ask(run, query, key, (fee, final))
            spent = Amount(searches_in(reply.content) * PRICE_NANOUSD)
        except BudgetExceeded:
            spent = Amount()
            raise ToolError("No money is left for a search. Work with what you have.") from None
        except ModelMisconfigured as error:
            raise SourceFailed("the model refuses to search: its key or settings") from error
        except ModelFailed:
            raise ToolError("The search gave no answer. Try once more.") from None
        finally:
            await run.purse.settle(fee, spent)
        if not spent.nanousd:
            raise ToolError("Nothing was searched. Try other words.")
        return hits_in(reply.content, limit)

    async def _ask(self, run: Run, query: str, key: str, held: Sequence[str]) -> Reply:
        context = f"search-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
        system, asked = text_block(prompt(PROMPT)), text_block(query)
        self._record(run, context, key)
        run.sink.note(run.id, context, Origin.PROMPT, system)
        run.sink.note(run.id, context, Origin.SCHEMA, MODEL_TOOL, MODEL_TOOL["name"])
        run.sink.note(run.id, context, Origin.BRIEF, asked)
        call = Call(
            run=run.id,
            context=context,
            seq=1,
            role=ROLE,
            system=[system],
            tools=[MODEL_TOOL],
            messages=[{"role": "user", "content": [asked]}],
            prompt_tokens=PROMPT_TOKENS,
            max_tokens=run.model.role(ROLE).max_tokens,
            behind=held,
            single=True,
        )
        reply = await run.model.complete(
            call, purse=run.purse, governor=run.governor, sink=run.sink
        )
        for block in reply.content:  # what the API has found is what this context has read
            run.sink.note(run.id, context, Origin.MATERIAL, block)
        return reply

    def _record(self, run: Run, context: str, key: str) -> None:
        run.sink.context(
            Context(
                run=run.id,
                id=context,
                parent=key.split("/")[1] if key.count("/") > 1 else None,
                kind="search",
                scope="web",
                model=run.model.name(ROLE),
                template=PROMPT,
                tools=(MODEL_TOOL["name"],),
                created=datetime.now(UTC),
            )
        )


def bind(run: Run) -> None:
    """Let the search of a run be paid by that run, where a model makes it."""
    search = run.clients.get(Searching)
    if isinstance(search, ModelSearch):
        search.run = run
