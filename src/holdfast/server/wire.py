"""Values of the API: what a request may hold, pages of lists, and errors as RFC 9457 (`application/problem+json`), by their class.

Made for FastAPI; the library's own values never go out as they are, and no path of this machine, no secret is in an error. Also the OpenAPI
description: the problem form in it, the token where it is needed, and which methods a path has.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import quote

from fastapi import Depends, FastAPI, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, StringConstraints, ValidationError
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.routing import compile_path

from holdfast import errors
from holdfast.errors import HoldfastError, InputError
from holdfast.knowledge.records import read_moment
from holdfast.models.factory import secrets_of
from holdfast.models.failures import kind_of, typed
from holdfast.redaction import redact_text, without_paths
from holdfast.sandbox.uploads import clean_name
from holdfast.server.answers import describe_answers
from holdfast.validation import counted, place_of, thread_folder

if TYPE_CHECKING:
    from holdfast.config.sections import ModelConfig

T = TypeVar("T")


def _moment(written: Any) -> Any:
    """A date as the command line reads it: figures alone are none, whatever they count."""
    moment = written if isinstance(written, datetime) else read_moment(written) if isinstance(written, str) else None
    if moment is None:
        shown = str(written)[:80]
        raise PydanticCustomError(
            "not_a_date", "'{written}' is not a date: write it like 2026-05-08 or 2026-05-08T13:56:00Z", {"written": shown}
        )
    return moment


Moment = Annotated[datetime, BeforeValidator(_moment)]
"""A date with a time zone, UTC where it names none."""
_VISIBLE = (
    r"[^\x00-\x20\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u2064\u2066-\u206f\u2800\u3000\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]"
)

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
NEW_NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$"
AGENT = r"^[A-Za-z0-9_-]{1,64}$"
DAY = r"^(\d{4}-\d{2}-\d{2})?$"
_CURSOR = r"^n[0-9]{1,9}$"
_THREAD = r"^(?:[A-Za-z0-9._:-]{1,128}|~[A-Za-z0-9._-]{0,40}~[0-9a-f]{32})$"
_STAGE = r"^[^/\x00-\x1f\x7f]+$"
_IN_WORDS = {
    _VISIBLE: "needs at least one visible character",
    NAME: "must be a name of at most 128 letters, digits, `.`, `_` and `-` that begins with a letter or a digit",
    NEW_NAME: "must be a name of at most 100 letters, digits, `.`, `_` and `-` that begins with a letter or a digit",
    AGENT: "must be the name of an agent: at most 64 letters, digits, `_` and `-`",
    DAY: "must be a day, written like 2026-04-19",
    _CURSOR: "must be the `next` of the page before, as it came",
    _THREAD: "must be the id of a thread: at most 128 letters, digits, `.`, `_`, `:` and `-`",
    _STAGE: "must be the name of a stage: no `/`, and nothing that cannot be seen",
}
"""What each pattern wants, for people."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=100_000)]
VisibleText = Annotated[str, StringConstraints(min_length=1, max_length=100_000, pattern=_VISIBLE)]
"""A text with at least one character that can be seen."""
Short = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Share = Annotated[float, Strict(), Field(ge=0, le=1)]
Flag = Annotated[bool, Strict()]
Priority = Annotated[
    int,
    Strict(),
    Field(ge=-1_000_000, le=1_000_000),
    BeforeValidator(lambda value: int(value) if isinstance(value, float) and value.is_integer() else value),
]
"""A whole number as JSON knows it: 3.0 is one, true and "3" are none."""
Id = Annotated[str, Path(pattern=NAME)]
PointName = Annotated[str, StringConstraints(pattern=NAME)]
ThreadAddress = Annotated[str, Path(pattern=_THREAD, description="The id; of an odd one the name of its folder.")]
StageName = Annotated[str, Path(min_length=1, max_length=128, pattern=_STAGE)]
Agent = Annotated[str | None, Query(pattern=AGENT, description="The agent whose memory it is; none is the global one.")]
Limit = Annotated[int, Query(ge=1, le=500, description="How many at most.")]
Cursor = Annotated[str | None, Query(pattern=_CURSOR, description="Where the page before ended: its `next`.")]
Words = Annotated[str, Query(min_length=1, max_length=2_000, description="What to look for.")]
Follow = Annotated[bool, Query(description="Wait for what comes; else send what is there and end.")]
LastEventId = Annotated[str | None, Header(max_length=100)]
TOKEN = Depends(HTTPBearer(auto_error=False, description="The token that `holdfast serve --show-token` prints."))


_EVENT = {"type": "object", "properties": {name: {"type": "string"} for name in ("id", "event", "data")}}
STREAM: dict[int | str, dict[str, Any]] = {200: {"description": "Events", "content": {"text/event-stream": {"schema": _EVENT}}}}
"""How a stream is described: each event has an id, a kind, and an envelope as JSON text."""


def thread_address(thread: str) -> str:
    """A thread in an address: its id, or the name of its folder for an id that could not stand there, such as `../../etc`.

    >>> thread_address("trip-7"), thread_address("../../etc")[:5]
    ('trip-7', '~etc~')
    """
    try:
        return quote(thread_folder(thread), safe="")
    except InputError:  # no id of a thread, whoever wrote it
        return quote(thread, safe="")


def saved_as(name: str, how: str = "attachment") -> dict[str, str]:
    """The header by which a browser saves a file under this name, whatever letters it has (RFC 6266); old ones take the plain form.

    >>> saved_as("report.md")
    {'content-disposition': 'attachment; filename="report.md"'}
    >>> saved_as("Übersicht.txt", "inline")
    {'content-disposition': 'inline; filename="Ubersicht.txt"; filename*=UTF-8\'\'%C3%9Cbersicht.txt'}
    """
    name = clean_name(name)
    letters = "".join(one for one in unicodedata.normalize("NFKD", name) if not unicodedata.combining(one))
    plain = re.sub(r"[^ -~]|[\"\\\\%]", "_", letters)
    more = f"; filename*=UTF-8''{quote(name, safe='')}" if plain != name else ""
    return {"content-disposition": f'{how}; filename="{plain}"{more}'}


class Body(BaseModel):
    """A request's body: nothing in it that nobody asked for."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel):
    """A part of a list. `next` is the cursor of the part after it; none at the end."""

    items: list[dict[str, Any]]
    next: str | None = None


def page_of(items: Iterable[T], limit: int, cursor: str | None, shown: Any) -> Page:
    """The page of a list that begins at this cursor. Nothing after it is read."""
    start = int(cursor[1:]) if cursor else 0
    part = list(islice(items, start, start + limit + 1))
    return Page(items=[shown(item) for item in part[:limit]], next=f"n{start + limit}" if len(part) > limit else None)


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
    (errors.InTheWay, 409),
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


def clean(text: str) -> str:
    """A text without secrets, and without paths of this machine."""
    return without_paths(redact_text(text))


def status_of(error: HoldfastError) -> int:
    """The HTTP status that an error is answered with."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


def model_failure(error: Exception, models: Sequence[ModelConfig], name: str | None = None) -> HoldfastError | None:
    """An error that a model's client raised, in our words and without secrets; None where it is no failure of a model. The log has a line.

    Whatever was raised while a model was asked is the fault of what is behind us, whether or not anybody knows its kind.
    """
    if isinstance(error, HoldfastError) or (kind_of(error) is None and not _came_from_a_model(error)):
        return None
    made = typed(error, model=name, secrets=[secret for one in models for secret in secrets_of(one)])
    _log.warning("%s", made.public)
    return made


def _came_from_a_model(error: BaseException) -> bool:
    """Whether an error was raised while a model was asked, whoever's class the model's is."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == "langchain_core.language_models.chat_models":
            return True
        trace = trace.tb_next
    return False


def kind_name(error: HoldfastError) -> str:
    """`RevisionConflict` -> `revision-conflict`."""
    return "".join(f"-{c.lower()}" if c.isupper() else c for c in type(error).__name__).lstrip("-")


def problem(status: int, kind: str, detail: str | None, headers: Mapping[str, str] | None = None, **more: Any) -> JSONResponse:
    """An answer that says what is wrong."""
    body = Problem(type=f"urn:holdfast:{kind}", title=kind.replace("-", " "), status=status, detail=detail, **more)
    return JSONResponse(body.model_dump(exclude_none=True), status, media_type=MEDIA_TYPE, headers=dict(headers or {}))


_OPENAI = {401: "invalid_api_key", 404: "not_found"}
_ANTHROPIC = {
    **{400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error"},
    **{405: "invalid_request_error", 409: "invalid_request_error", 413: "request_too_large", 422: "invalid_request_error"},
    429: "rate_limit_error",
}


def openai_refusal(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """What went wrong, in OpenAI's form; `param` is the field of the request that is at fault."""
    kind = "server_error" if status >= 500 else "api_error" if status in (402, 429) else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


def anthropic_refusal(status: int, code: str, message: str, param: str | None = None) -> dict[str, Any]:
    """What went wrong, in Anthropic's form, which names no field but in its words."""
    return {"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": f"{message} ({code})"}}


def in_form_of(path: str, said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A problem as whoever asks for this path reads it, with its media type: below `/v1` in the form of the API that is spoken there."""
    if not path.startswith("/v1/"):
        return MEDIA_TYPE, said
    status, kind = int(said["status"]), str(said["type"]).rpartition(":")[2]
    reference = f"Reference {said['reference']}." if said.get("reference") else None
    words = " ".join(filter(None, [said.get("detail") or str(said["title"]), said.get("hint"), reference]))
    form = anthropic_refusal if path.startswith("/v1/messages") else openai_refusal
    return "application/json", form(status, _OPENAI.get(status, kind.replace("-", "_")), words)


def told_at(path: str, said: JSONResponse) -> JSONResponse:
    """A problem as an answer to whoever asked for this path."""
    form, body = in_form_of(path, json.loads(bytes(said.body)))
    if form == said.media_type:
        return said
    kept = {name: value for name, value in said.headers.items() if not name.startswith("content-")}
    return JSONResponse(body, said.status_code, media_type=form, headers=kept)


async def of_ours(request: Request, error: Exception) -> JSONResponse:
    """The answer to one of our errors."""
    return problem_of(error) if isinstance(error, HoldfastError) else await of_others(request, error)


def problem_of(error: HoldfastError) -> JSONResponse:
    """One of our errors, told."""
    status = status_of(error)
    if status >= 500:
        return _server_error(status, kind_name(error), error.public, error)
    hint = clean(error.hint) if error.hint else None
    more: dict[str, Any] = {}
    if isinstance(error, errors.OutputInvalid):
        more["errors"] = [Place(at="/body", message=clean(one)) for one in error.problems]
    if isinstance(error, errors.ConfigError) and error.key:
        found = [error, *error.others]
        more["errors"] = [Place(at=str(one.key or ""), message=clean(one.message)) for one in found]
        more["hint"] = hint
        return problem(status, kind_name(error), f"{error.key}: {error.public}", **more)
    if isinstance(error, errors.Locked):
        return problem(status, "locked", error.public, {"retry-after": "1"}, owner=without_paths(error.owner or "") or None)
    return problem(status, kind_name(error), error.public, hint=hint, **more)


def _wrong(one: Mapping[str, Any]) -> str:
    """What is wrong with one value, in words and without a pattern."""
    limits = one.get("ctx") or {}
    if one["type"] == "string_pattern_mismatch":
        return _IN_WORDS.get(str(limits.get("pattern")), "is not written as it is wanted here")
    if one["type"] == "string_too_short":
        return f"needs at least {counted(limits['min_length'], 'character')}"
    if one["type"] == "string_too_long":
        return f"may have at most {limits['max_length']:,} characters"
    return redact_text(str(one["msg"]))


def unfit(error: ValidationError) -> InputError:
    """What is wrong with the fields of a form of a page."""
    return InputError("; ".join(f"{place_of(one['loc'])} {_wrong(one)}" for one in error.errors(include_url=False)) + ".")


async def of_validation(request: Request, error: Exception) -> JSONResponse:
    """The answer to a request that does not fit its description."""
    found = error.errors() if isinstance(error, RequestValidationError) else []
    sent = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    came = isinstance(error, RequestValidationError) and bool(error.body)
    if any(one["loc"] == ("body",) for one in found) and "json" not in sent and (sent or came):
        instead = f"not {clean(sent[:80])}" if sent else "and say so: it came without a `Content-Type`"
        return problem(415, "not-understood", f"The body must be JSON, {instead}.", hint="Send `Content-Type: application/json`.")
    if (broken := next((one for one in found if one["type"] == "json_invalid"), None)) is not None:
        why, at = str((broken.get("ctx") or {}).get("error", "it cannot be read")), broken["loc"][-1]
        where = f", at character {at}" if isinstance(at, int) else ""  # else its words say the line and the column
        return problem(422, "does-not-fit", f"The body is no JSON: {redact_text(why)}{where}.")
    places = [Place(at="/" + "/".join(str(part) for part in one["loc"]), message=_wrong(one)) for one in found]
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
        describe_answers(made)
        app.openapi_schema = made
    return app.openapi_schema


def allowed_methods(app: Any, path: str) -> list[str]:
    """The methods that a path has, over all routes; HEAD is answered wherever GET is."""
    described = app.openapi()["paths"].items()
    found = {name.upper() for form, operations in described if compile_path(form)[0].match(path) for name in operations if name in _METHODS}
    return sorted(found | {"HEAD"} if "GET" in found else found)
