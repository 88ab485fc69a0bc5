"""A refusal of the Messages API: status, error type and message."""

from typing import Any, NoReturn

Json = dict[str, Any]


class ApiRefusal(Exception):
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
    raise ApiRefusal(400, "invalid_request_error", message)


def error_body(kind: str, message: str, request_id: str) -> Json:
    """The body of every error answer (platform.claude.com, API errors)."""
    return {
        "type": "error",
        "error": {"type": kind, "message": message},
        "request_id": request_id,
    }
