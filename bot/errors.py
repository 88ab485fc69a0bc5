"""Errors that stop a command before or instead of a result."""

from __future__ import annotations


class SetupError(Exception):
    """Wrong use or set-up: `message` describes the fault, `hint` what to do. Exit code 2."""

    def __init__(self, code: str, message: str, hint: str) -> None:
        self.code, self.message, self.hint = code, message, hint
        super().__init__(f"{message} {hint}".strip())


class StoreError(SetupError):
    """The store cannot be used. No partial change was written."""

    def __init__(self, where: object, what: str, hint: str) -> None:
        self.where = str(where)
        super().__init__("store", f"The store {where} {what}.", hint)
