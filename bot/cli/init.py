"""Implement `assistant init`: write a settings file and a list of secrets to fill in."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from bot.errors import SetupError
from bot.terminal import DONE, errors_reported, say

HEAD = """\
# Settings of workspace-assistant. Every option is here with its default, commented out: uncomment
# what you change, together with the section above it. Secrets go into .env, never into this file.

"""
NEXT = """\
assistant.yaml and .env.example are written. Next:
  1. `assistant setup` creates the Slack app with you, asks for the secrets and writes .env
     (or copy .env.example to .env and fill it in).
  2. `assistant doctor` says what is missing.
  3. `assistant serve` runs the bot."""


def run_init() -> int:
    """Write both files into the working directory. Raises SetupError if one exists."""
    with errors_reported(False):
        texts = {Path("assistant.yaml"): settings_text(), Path(".env.example"): secrets_text()}
        if there := [str(path) for path in texts if path.exists()]:
            raise SetupError(
                "exists",
                f"{' and '.join(there)} exist here.",
                "Move them away, or use another folder.",
            )
        try:
            for path, text in texts.items():
                path.write_text(text, "utf-8")
        except OSError as error:
            why = str(error.strerror).lower()
            raise SetupError("file", f"{path} cannot be written: {why}.", "Fix that.") from error
        say(NEXT)
        return DONE


def settings_text() -> str:
    """Return the defaults, each line a comment, without the words about that file."""
    text = (files("config") / "default.yaml").read_text("utf-8")
    body = text[text.index("\nmodels:") + 1 :]
    return HEAD + "".join(f"# {line}".rstrip() + "\n" for line in body.splitlines())


def secrets_text() -> str:
    return (files("config") / "env.example").read_text("utf-8")
