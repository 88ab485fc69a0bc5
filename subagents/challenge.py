"""The challenge: findings of specialists are judged by others, and code counts the verdicts."""

from __future__ import annotations

from subagents.contracts import OpinionDraft


class Opinion(OpinionDraft):
    """What one judge says about one finding; code adds whose it is."""

    judge: str
