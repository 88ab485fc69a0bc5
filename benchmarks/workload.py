"""The work of both sides of a measurement: briefs, a tool without network, wide limits."""

from __future__ import annotations

import json

from config.settings import Settings, load_settings
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL
from scopes.slack_reader import ChannelInfo
from subagents.brief import Brief, BriefDraft

LATENCY_S = 0.2
ROUNDS = 2
"""Tool rounds of a subagent; `submit_result` follows."""
CALLS = ROUNDS + 1
IDEAL_S = CALLS * LATENCY_S
"""The critical path: the calls of one subagent, one after another, at any number of siblings."""

CHANNELS = [
    ChannelInfo(f"C0BENCH{k}", f"support-{market}", False, f"Customer questions, {market}")
    for k, market in enumerate(("spain", "france", "italy", "germany", "switzerland"))
]


def settings_for(concurrency: int) -> Settings:
    """Return the defaults, with limits that allow `concurrency` subagents at once."""
    settings = load_settings(env={"ASSISTANT_DATA_DIR": "unused"})
    wide = {"max_concurrency": concurrency, "cost_usd": 1e6, "tokens": 10**12, "steps": 10**6}
    limits = settings.limits.model_copy(update=wide)
    return settings.model_copy(update={"limits": limits})


def briefs(number: int) -> list[Brief]:
    """Return so many different briefs, each with instructions for the scripted model."""
    handles = Handles({c.id: f"#{c.name}" for c in CHANNELS})
    return [
        Brief(
            BriefDraft(
                task=task(k),
                description=f"Bench {k}",
                scope="slack",
                contract="answer",
                handles=tuple(handles.titles),
            ),
            handles,
            None,
            TRUSTED_LABEL,
        )
        for k in range(1, number + 1)
    ]


def task(number: int) -> str:
    claim = {"claim": "There is a channel for Spain.", "evidence": [CHANNELS[0].id]}
    submission = {"text": f"Answer {number}.", "findings": [claim]}
    lines = [
        f"Say which markets have a support channel (question {number}).",
        f"BENCH-ROUNDS: {ROUNDS}",
        'BENCH-ARGS: {"match": "support"}',
        f"BENCH-SUBMIT: {json.dumps(submission)}",
    ]
    return "\n".join(lines)
