"""The samples: five customer success channels of a fictional company, its bug tracker, and a
mailbox of fifty threads of Helena Vasconcelos, who owns billing there.

The data is in `bot/local/sample/`. The id of a message is derived from its time, and stays the same
when other messages are edited.
"""

from typing import Any

import yaml
from pydantic import TypeAdapter

from bot.local.google.mbox import Mailbox, load_mbox
from bot.local.samples import OWNER, SAMPLE_FOLDER
from bot.local.workspace import Workspace

_CHANNELS = ("csm-spain", "csm-france", "csm-italy", "csm-switzerland", "csm-germany")


def load_sample() -> Workspace:
    """Return the sample as a local workspace, with the same values, ids and times at every call."""
    channels = [read_data(name) for name in _CHANNELS]
    workspace = {**read_data("people"), "channels": channels, "lists": [read_data("tracker")]}
    return TypeAdapter(Workspace).validate_python(workspace)


def load_sample_mailbox() -> Mailbox:
    """Return the sample as a local mailbox, with the same values, ids and times at every call."""
    return load_mbox(SAMPLE_FOLDER / "mailbox.mbox", f"{OWNER}.vasconcelos@almadora.example")


def read_data(name: str) -> Any:
    """Return the content of one data file of the sample, not yet validated."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load((SAMPLE_FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), loader)
