"""Errors in the forms by which the clients of others choose their exception, and whether they try again."""

from __future__ import annotations

import logging
from typing import Any

from fastapi.responses import JSONResponse

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.models.failures import kind_of
from holdfast.redaction import redact_text, without_paths

_log = logging.getLogger("holdfast.server")
_BY_KIND = {
    "rate_limit": (429, "rate_limit_exceeded"),
    "quota": (429, "insufficient_quota"),
    "timeout": (504, "upstream_timeout"),
    "overflow": (400, "context_length_exceeded"),
    "invalid": (400, "invalid_request"),
    "not_found": (502, "upstream_not_found"),
    "authentication": (502, "upstream_authentication"),
    "permission": (502, "upstream_permission"),
}
"""By how a call of the model behind us failed. That its key is wrong is not the client's key: 502."""
_BY_CLASS: tuple[tuple[type[HoldfastError], int, str], ...] = (
    (errors.ModelNotConfigured, 404, "model_not_found"),
    (errors.NotThere, 404, "not_found"),
    (errors.BudgetError, 400, "context_length_exceeded"),
    (errors.LimitExceeded, 402, "limit_exceeded"),
    (errors.Locked, 409, "conflict"),
    (errors.InputError, 400, "invalid_request"),
    (errors.ConfigError, 400, "invalid_request"),
)
_ANTHROPIC = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def told(error: Exception) -> tuple[int, str, str]:
    """Status, code and words. What nobody foresaw is in the log; the answer says only that."""
    if isinstance(error, HoldfastError):
        hint = f" {without_paths(redact_text(error.hint))}" if error.hint else ""
        for kind, status, code in _BY_CLASS:
            if isinstance(error, kind):
                return status, code, f"{error.public}{hint}"
        if isinstance(error, errors.CallFailed):
            status, code = _BY_KIND.get(error.kind, (503, "upstream_unavailable"))
            return status, code, error.public
        _log.error("the gateway failed", exc_info=error)
        return (503, "unavailable", error.public) if not isinstance(error, errors.Damaged) else (500, "server_error", error.public)
    kind_found = kind_of(error)
    if kind_found in _BY_KIND or kind_found in ("server", "connection"):
        status, code = _BY_KIND.get(str(kind_found), (503, "upstream_unavailable"))
        return status, code, without_paths(redact_text(str(error)))[:1_000]
    _log.error("the gateway failed", exc_info=error)
    return 500, "server_error", "Something went wrong here. The server's log has it."


def openai_body(status: int, code: str, message: str) -> dict[str, Any]:
    """OpenAI's form."""
    kind = "invalid_request_error" if status in (400, 404, 409, 422) else "server_error" if status >= 500 else "api_error"
    return {"error": {"message": message, "type": kind, "code": code, "param": None}}


def anthropic_body(status: int, code: str, message: str) -> dict[str, Any]:
    """Anthropic's form."""
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": f"{message} ({code})"}}


def openai_error(error: Exception) -> JSONResponse:
    """The answer to a failed request of an OpenAI client."""
    status, code, message = told(error)
    return JSONResponse(openai_body(status, code, message), status)


def anthropic_error(error: Exception) -> JSONResponse:
    """The answer to a failed request of an Anthropic client."""
    status, code, message = told(error)
    return JSONResponse(anthropic_body(status, code, message), status)
