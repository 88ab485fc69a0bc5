"""The errors of the engine; each carries its data."""

from __future__ import annotations


class EngineError(Exception):
    """Base of the engine's errors."""


class BudgetExceeded(EngineError):
    """A reservation would have exceeded a cap of the run; nothing was reserved."""

    def __init__(self, what: str, spent: int, wanted: int, limit: int) -> None:
        self.what, self.spent, self.wanted, self.limit = what, spent, wanted, limit
        super().__init__(f"{what}: {spent} spent or reserved, {wanted} wanted, limit {limit}")


class BriefRefused(EngineError):
    """A brief was refused; `field` names what to change. It costs nothing."""

    def __init__(self, field: str, reason: str) -> None:
        self.field, self.reason = field, reason
        super().__init__(f"{field}: {reason}")


class ModelFailed(EngineError):
    """The model gave no usable reply within its attempts; `kind` is rate_limit or model_error."""

    def __init__(self, kind: str, reason: str, attempts: int, passing: bool = False) -> None:
        self.kind, self.reason, self.attempts = kind, reason, attempts
        self.passing = passing
        """True if another try may succeed later."""
        super().__init__(f"{reason} (after {attempts} attempts)" if attempts > 1 else reason)


class ModelMisconfigured(EngineError):
    """The model cannot be called at all (key, address, model name): the user must fix it."""
