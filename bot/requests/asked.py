"""What a run is asked to do, with all that was said around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scopes.intent import UNASKED, Intent
from scopes.label import TRUSTED, Label
from scopes.tool import Window
from subagents.delegate import ANYTHING, Allowed


@dataclass(frozen=True, slots=True)
class Request:
    """What a run is asked to do."""

    text: str
    window: Window
    fence: str = ""
    """Delimiter round the text of `files`; empty = any."""
    conversation: str = ""
    """The thread that it stands in, as lines with ids; data, never instructions."""
    files: tuple[Mapping[str, Any], ...] = ()
    """Content blocks of attached files."""
    earlier: tuple[Mapping[str, Any], ...] = ()
    """Findings of earlier answers in the thread, their ids made unique for this run."""
    here: Mapping[str, str] = field(default_factory=dict)
    """Ids that it may be answered from without being named: its own channel and thread."""
    label: Label = TRUSTED
    """Of the conversation and the files."""
    allowed: Allowed = ANYTHING
    said: str = ""
    """The requester's own message as Slack sent it, with its marks for channels and people."""
    intent: Intent = UNASKED
    """Whose words they are and where the answer goes; what they name is found out by `Ask`."""
