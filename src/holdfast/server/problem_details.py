"""Errors as an answer: RFC 9457 (`application/problem+json`), by the class of the error. No path of this machine, no secret is in one.

Also the OpenAPI description: the problem form in it, the token where it is needed, and which methods a path has.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from holdfast import errors
from holdfast.errors import HoldfastError
from holdfast.redaction import redact_text, without_paths

MEDIA_TYPE = "application/problem+json"
TOLD = "holdfast.told"
"""In the scope of a request whose error is answered, and in the log."""
_log = logging.getLogger("holdfast.server")


class Place(BaseModel):
    """One thing that does not fit, and where it stands: `/body/confidence`."""

    at: str
    message: str


class Problem(BaseModel):
    """What went wrong. `hint` says what would mend it; `reference` is in the server's log beside the whole story."""

    type: str
    title: str
    status: int
    detail: str | None = None
    hint: str | None = None
    errors: list[Place] | None = None
    owner: str | None = None
    reference: str | None = None


_STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (errors.NotThere, 404),
    (errors.OutputInvalid, 422),
    (errors.BudgetError, 422),
    (errors.LimitExceeded, 402),
    (errors.Locked, 409),
    (errors.RevisionConflict, 409),
    (errors.WorkflowChanged, 409),
    (errors.ModelNotConfigured, 409),
    (errors.SandboxUnavailable, 409),
    (errors.ExtraMissing, 409),
    (errors.OutsideRoot, 400),
    (errors.DiskFull, 503),
    (errors.StoreUnavailable, 503),
    (errors.StorageError, 500),
    (errors.ModelError, 503),
    (errors.InputError, 400),
    (errors.ConfigError, 400),
    (errors.WorkflowError, 409),
    (errors.SandboxError, 400),
)
"""The first that fits counts."""

_KINDS = {400: "bad-request", 404: "not-there", 405: "method-not-allowed", 413: "too-large", 415: "not-understood", 422: "does-not-fit"}


def status_of(error: HoldfastError) -> int:
    """The HTTP status that an error is answered with."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def kind_name(error: HoldfastError) -> str:
    """`RevisionConflict` -> `revision-conflict`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in type(error).__name__).lstrip("-")


def problem(status: int, kind: str, detail: str | None, headers: Mapping[str, str] | None = None, **more: Any) -> JSONResponse:
    """An answer that says what is wrong."""
    body = Problem(type=f"urn:holdfast:{kind}", title=kind.replace("-", " "), status=status, detail=detail, **more)
    return JSONResponse(body.model_dump(exclude_none=True), status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


async def of_ours(request: Request, error: Exception) -> JSONResponse:
    """The answer to one of our errors."""
    return problem_of(error) if isinstance(error, HoldfastError) else await of_others(request, error)


def problem_of(error: HoldfastError) -> JSONResponse:
    """One of our errors, told."""
    status = status_of(error)
    if status >= 500:
        return _server_error(status, kind_name(error), error.public, error)
    hint = without_paths(redact_text(error.hint)) if error.hint else None
    more: dict[str, Any] = {}
    if isinstance(error, errors.OutputInvalid):
        more["errors"] = [Place(at="/body", message=without_paths(redact_text(one))) for one in error.problems]
    if isinstance(error, errors.Locked):
        return problem(status, "locked", error.public, {"retry-after": "1"}, owner=without_paths(error.owner or "") or None)
    return problem(status, kind_name(error), error.public, hint=hint, **more)


async def of_validation(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that does not fit its description."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    places = [Place(at="/" + "/".join(str(part) for part in one["loc"]), message=redact_text(str(one["msg"]))) for one in found]
    return problem(422, "does-not-fit", "The request does not fit.", errors=places)


async def of_http(request: Request, error: Exception) -> JSONResponse:
    """The answer to what the framework refuses."""
    if not isinstance(error, HTTPException):
        return await of_others(request, error)
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        described = allowed_methods(request.app, request.url.path)  # of an operation of the API; pages are not described
        headers["allow"] = ", ".join(described) or headers.get("allow", "GET")
    return problem(error.status_code, _KINDS.get(error.status_code, "error"), without_paths(str(error.detail)), headers)


async def of_others(request: Request, error: Exception) -> JSONResponse:
    """The answer to what nobody foresaw: the log has it, the answer only says where to look."""
    request.scope[TOLD] = True
    return _server_error(500, "server-error", "Something went wrong here.", error)


def _server_error(status: int, kind: str, detail: str, error: Exception) -> JSONResponse:
    reference = secrets.token_hex(6)
    _log.error("request failed (%s): %s", reference, redact_text(f"{type(error).__name__}: {error}"), exc_info=error)
    return problem(status, kind, detail, hint="The server's log has it, under this reference.", reference=reference)


_METHODS = ("get", "put", "post", "delete", "patch", "head", "options", "trace")
_PROBLEMS = {
    400: "Bad request",
    401: "No token",
    403: "Wrong origin",
    404: "Not there",
    409: "In the way",
    413: "Too large",
    415: "Not understood",
    421: "Wrong host",
    422: "Does not fit",
    500: "Failed",
    503: "Not available",
    504: "Too slow",
}
_REFERENCE = {"$ref": "#/components/schemas/Problem"}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/problem+json": {"schema": _REFERENCE}}} for code, said in _PROBLEMS.items()
}
"""What every operation may answer besides what it is for."""


def describe(app: FastAPI, problem: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The description of the whole API, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        made.setdefault("components", {}).setdefault("schemas", {}).update({**definitions, "Problem": problem})
        app.openapi_schema = made
    return app.openapi_schema


def allowed_methods(app: Any, path: str) -> list[str]:
    """The methods that a path has, over all routes."""
    described = app.openapi()["paths"].items()
    return sorted(
        {name.upper() for form, operations in described if compile_path(form)[0].match(path) for name in operations if name in _METHODS}
    )
