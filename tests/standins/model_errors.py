"""A refusal of the Messages API: status, error type and message."""

from typing import Any, NoReturn

Json = dict[str, Any]


class Refused(Exception):
    """The API refuses a request; the server answers with this status and error type."""

    def __init__(
        self, status: int, kind: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        """`headers` are added to the answer, such as `retry-after` in seconds."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = headers or {}


def invalid(message: str) -> NoReturn:
    """Refuse with 400 `invalid_request_error`."""
    raise Refused(400, "invalid_request_error", message)


def error_body(kind: str, message: str, request_id: str) -> Json:
    """The body of every error answer (platform.claude.com, API errors)."""
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }


def only(value: Json, allowed: frozenset[str], where: str) -> None:
    """Refuse keys that the API does not know."""
    if not allowed.issuperset(value):
        name = next(key for key in value if key not in allowed)
        invalid(f"{where}{name}: Extra inputs are not permitted")


def an_object(value: Any, where: str) -> Json:
    """`value` when it is a JSON object, else a refusal."""
    if not isinstance(value, dict):
        invalid(f"{where}: Input should be a valid dictionary")
    return value


def a_list(value: Any, where: str) -> list[Any]:
    """`value` when it is a JSON array, else a refusal."""
    if not isinstance(value, list):
        invalid(f"{where}: Input should be a valid list")
    return value


def a_string(value: Any, where: str) -> str:
    """`value` when it is a string, else a refusal."""
    if not isinstance(value, str):
        invalid(f"{where}: Input should be a valid string")
    return value


def one_of(value: Any, choices: tuple[str, ...], where: str) -> str:
    """`value` when it is one of `choices`, else a refusal that lists them."""
    if not isinstance(value, str) or value not in choices:
        named = ", ".join(repr(choice) for choice in choices[:-1])
        invalid(f"{where}: Input should be {named} or {choices[-1]!r}")
    return value
