"""The APIs of others: `/v1` (models, chat completions, responses, messages), and `/agui` for front ends that speak AG-UI (O3).

A client of `/v1` changes its base address and its key, and nothing else. Headers say what was done: `X-Holdfast-Thread`,
`X-Holdfast-Placed` (starts, continues, resumes, branches), `X-Holdfast-Sent-Tokens`, `X-Holdfast-Compacted`. A client may send
`X-Holdfast-Thread`, `X-Holdfast-Memory: off` and `X-Holdfast-Learn: on`. Errors have the forms by which the clients of others choose their
exception, and whether they try again. AG-UI is streamed as server-sent events by the protocol's own encoder.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import APIRouter, Path, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError

from holdfast import errors
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.server.runs import MEDIA_TYPE
from holdfast.server.services import Services, Use
from holdfast.server.wire import AGENT, STREAM, TOKEN, clean, model_failure
from holdfast.validation import missing_extra

if TYPE_CHECKING:
    from holdfast.server.gateway.client_request import ClientRequest
    from holdfast.server.gateway.dialects import Dialect

router = APIRouter(prefix="/v1", tags=["gateway"], dependencies=[TOKEN])
_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, said in {
        **{400: "Not understood", 401: "No token", 402: "Limit reached", 403: "Wrong origin", 404: "Not there", 409: "In the way"},
        **{413: "Too large", 415: "Not understood", 421: "Wrong host", 422: "Does not fit", 429: "Too many"},
        **{500: "Failed", 502: "Refused upstream", 503: "Not available", 504: "Too slow upstream"},
    }.items()
}
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


@router.get("/models", responses=_ANSWERS)
def models_list(use: Use) -> dict[str, Any]:
    """The configured models, and our own agents as `holdfast/NAME`."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "holdfast"} for name in use.gateway.models()],
    }


@router.get("/models/{id:path}", responses=_ANSWERS)
def models_read(use: Use, id: str) -> dict[str, Any]:
    """One of them."""
    if id not in use.gateway.models():
        raise NotThere(f"there is no model named {id[:80]!r}.", hint="`GET /v1/models` lists them.")
    return {"id": id, "object": "model", "created": 0, "owned_by": "holdfast"}


@router.post("/messages/count_tokens", openapi_extra=_BODY, responses=_ANSWERS)
async def messages_count(use: Use, request: Request) -> Response:
    """How many tokens a request of Anthropic's form has, by our own count."""
    from holdfast.server.gateway.dialects import MESSAGES  # LangChain

    try:
        asked = MESSAGES.read(_body(await request.body()))
        texts = [asked.system, *(json.dumps(dict(one), ensure_ascii=False) for one in (*asked.messages, *asked.tools))]
        count = use.harness.counter.count_text
        return JSONResponse({"input_tokens": await asyncio.to_thread(lambda: sum(count(text) for text in texts if text))})
    except InputError as error:
        said = told(error, use)
        return JSONResponse(MESSAGES.refusal(*said), said.status)


@router.post("/chat/completions", openapi_extra=_BODY, responses=_ANSWERS)
async def chat_completions(use: Use, request: Request) -> Response:
    """OpenAI's chat completions."""
    from holdfast.server.gateway.dialects import CHAT  # LangChain

    return await _answered(use, request, CHAT)


@router.post("/responses", openapi_extra=_BODY, responses=_ANSWERS)
async def responses(use: Use, request: Request) -> Response:
    """OpenAI's responses."""
    from holdfast.server.gateway.dialects import RESPONSES  # LangChain

    return await _answered(use, request, RESPONSES, noted=True)


@router.post("/messages", openapi_extra=_BODY, responses=_ANSWERS)
async def messages(use: Use, request: Request) -> Response:
    """Anthropic's messages."""
    from holdfast.server.gateway.dialects import MESSAGES  # LangChain

    return await _answered(use, request, MESSAGES)


_NOT_OFFERED = (
    "embeddings",
    "completions",
    "moderations",
    "files",
    "batches",
    "audio/{part:path}",
    "images/{part:path}",
    "responses/{part}",
)


def _not_offered(request: Request) -> Response:
    """What others have below this address and we do not."""
    offered = "`/v1/models`, `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/messages/count_tokens` are."
    raise NotThere(f"`{request.url.path[:80]}` is not offered here.", hint=offered)


for _path in _NOT_OFFERED:
    router.add_api_route(f"/{_path}", _not_offered, methods=["GET", "POST", "DELETE"], include_in_schema=False)


async def _answered(use: Services, request: Request, dialect: Dialect, *, noted: bool = False) -> Response:
    """The answer of a turn, or what went wrong, in the words of this dialect; what is `noted` can be gone on from by its id."""
    asked: ClientRequest | None = None
    try:
        body = _body(await request.body())
        asked = _with_headers(dialect.read(body), request)
        return await _respond(use, request, dialect, body, asked, noted=noted)
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets it in the form that it understands; the log has the rest
        said = told(error, use, asked)
        wait = error.retry_after if isinstance(error, errors.CallFailed) else None
        return JSONResponse(dialect.refusal(*said), said.status, headers={"retry-after": str(ceil(wait))} if wait else None)


def _body(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        raise InputError("the body is no JSON.") from None
    if not isinstance(found, dict):
        raise InputError("the body must be a JSON object.")
    return found


def _with_headers(asked: Any, request: Request) -> Any:
    """The request with what its headers say."""
    headers = request.headers
    thread = headers.get("x-holdfast-thread") or asked.thread
    memory, learn = (_SWITCH.get(headers.get(f"x-holdfast-{name}", "").lower()) for name in ("memory", "learn"))
    return replace(asked, thread=thread, memory=memory, learn=learn, address=str(request.base_url).rstrip("/"))


async def _respond(
    use: Services, request: Request, dialect: Dialect, body: dict[str, Any], asked: ClientRequest, *, noted: bool
) -> Response:
    """Run the turn. A stream is begun when the model has begun to answer: until then an error is an error, with its status."""
    from holdfast.server.gateway.client_request import is_again, key_of
    from holdfast.server.gateway.gateway_core import Done

    id = dialect.new_id()
    key, again, repeats = key_of(request.url.path, body, request.headers), is_again(request.headers), use.gateway.repeats
    if not asked.stream:
        done = await repeats.answered(key, again, lambda: _done(use.gateway.turn(asked)))
        if noted:
            use.gateway.index.note_response(id, done.thread, done.seq)
        if await request.is_disconnected():
            repeats.unheard(key)
        return JSONResponse(dialect.answer(id, body, done), headers=_said(done))
    held = repeats.heard(key) if again else None
    pieces = held.told_again() if held is not None else use.gateway.turn(asked).__aiter__()
    first = await anext(pieces)

    async def rest() -> AsyncIterator[Any]:
        yield first
        async for piece in pieces:
            if isinstance(piece, Done):
                if noted:
                    use.gateway.index.note_response(id, piece.thread, piece.seq)
                repeats.keep(key, piece)
            yield piece

    async def frames() -> AsyncIterator[bytes]:
        with use.counted():
            try:
                async for frame in dialect.events(id, body, rest()):
                    yield frame
            except Exception as error:  # noqa: BLE001 - the status is out already: the stream says it
                yield dialect.failure(*told(error, use, asked))

    return StreamingResponse(frames(), media_type=MEDIA_TYPE, headers=_said(first))


async def _done(pieces: AsyncIterator[Any]) -> Any:
    """The end of a turn that nobody hears on the way."""
    from holdfast.server.gateway.gateway_core import Done

    async for piece in pieces:
        if isinstance(piece, Done):
            return piece
    raise InputError("the model said nothing.")


def _said(piece: Any) -> dict[str, str]:
    """What was done, in headers."""
    found = {"x-holdfast-thread": piece.thread, "x-holdfast-placed": piece.how} if hasattr(piece, "thread") else {}
    if hasattr(piece, "tokens"):
        found |= {"x-holdfast-sent-tokens": str(piece.tokens), "x-holdfast-compacted": "true" if piece.compacted else "false"}
    if getattr(piece, "waiting", 0):
        found |= {"x-holdfast-waiting": str(piece.waiting)}
    return found


_log = logging.getLogger("holdfast.server")
_BY_KIND = {
    "rate_limit": (429, "rate_limit_exceeded"),
    "quota": (429, "insufficient_quota"),
    "timeout": (504, "upstream_timeout"),
    "overflow": (400, "context_length_exceeded"),
    "max_tokens": (400, "invalid_request"),
    "invalid": (400, "invalid_request"),
    "not_found": (502, "upstream_not_found"),
    "authentication": (502, "upstream_authentication"),
    "permission": (502, "upstream_permission"),
    "garbled": (502, "upstream_bad_answer"),
    "broken_off": (502, "upstream_broke_off"),
    "unknown": (502, "upstream_failed"),
}
"""By how a call of the model behind us failed. That its key is wrong is not the client's key: 502."""
_BY_CLASS: tuple[tuple[type[HoldfastError], int, str], ...] = (
    (errors.ModelNotConfigured, 404, "model_not_found"),
    (errors.NotThere, 404, "not_found"),
    (errors.BudgetError, 400, "context_length_exceeded"),
    (errors.LimitExceeded, 402, "limit_exceeded"),
    (errors.Locked, 409, "conflict"),
    (errors.InputError, 400, "invalid_request"),
    (errors.MissingVariable, 503, "not_configured"),
    (errors.ConfigError, 400, "invalid_request"),
)


class Told(NamedTuple):
    """What went wrong, for a client; `param` is the field of its request that is at fault."""

    status: int
    code: str
    words: str
    param: str | None = None


def told(error: Exception, use: Services, asked: ClientRequest | None = None) -> Told:
    """What to say of an error. What nobody foresaw is in the log; the answer says only that.

    Whatever was raised while a model was called is the fault of what is behind us, whether or not anybody knows its kind.
    """
    if isinstance(error, HoldfastError):
        return _told_ours(error, use, asked)
    made = model_failure(error, use.harness.config.models, asked.model if asked is not None else None)
    if made is None:
        _log.error("the gateway failed", exc_info=error)
        return Told(500, "server_error", "Something went wrong here. The server's log has it.")
    return _told_ours(made, use, asked)


def _told_ours(error: HoldfastError, use: Services, asked: ClientRequest | None) -> Told:
    hint = f" {clean(error.hint)}" if error.hint else ""
    for kind, status, code in _BY_CLASS:
        if isinstance(error, kind):
            return Told(status, code, f"{error.public}{hint}")
    if isinstance(error, errors.CallFailed):
        status, code = _BY_KIND.get(error.kind, (503, "upstream_unavailable"))
        words = _by_its_name(error, use, asked)
        name = asked.limit_name if asked is not None else None
        if error.kind != "max_tokens":
            return Told(status, code, words)
        return Told(status, code, f"{words}{hint}".replace("`max_tokens` of the request", f"`{name or 'max_tokens'}` of the request"), name)
    _log.error("the gateway failed", exc_info=error)
    return Told(503, "unavailable", error.public) if not isinstance(error, errors.Damaged) else Told(500, "server_error", error.public)


def _by_its_name(error: errors.CallFailed, use: Services, asked: ClientRequest | None) -> str:
    """The words of an error with the name by which clients ask for the model, where they have the provider's."""
    named = [one.name for one in use.harness.config.models if error.model in (one.name, one.model)]
    name = next((name for name in (asked.model if asked is not None else None, error.model, *named) if name in named), error.model)
    return error.public.replace(f"model {error.model!r}", f"model {name!r}")


agui_router = APIRouter(prefix="/agui", tags=["agui"], dependencies=[TOKEN])
AgentName = Annotated[str, Path(pattern=AGENT)]
_AGUI_INPUT: dict[str, Any] = {
    "type": "object",
    "description": "`RunAgentInput` of AG-UI: `threadId` names the conversation, `tools` are the front end's, `resume` answers interrupts.",
    "properties": {
        "threadId": {"type": "string"},
        "runId": {"type": "string"},
        "messages": {"type": "array", "items": {"type": "object"}},
    },
    "required": ["threadId", "runId", "messages"],
}
_AGUI_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": _AGUI_INPUT}}, "required": True}}


@agui_router.post("", openapi_extra=_AGUI_BODY, responses=STREAM, response_class=Response)
async def agui_run(use: Use, request: Request) -> Response:
    """Run a turn of the lead agent, or of the agent that a known thread belongs to."""
    return await _agui(use, request, None)


@agui_router.post("/{agent}", openapi_extra=_AGUI_BODY, responses=STREAM, response_class=Response)
async def agui_agent_run(use: Use, request: Request, agent: AgentName) -> Response:
    """Run a turn of this agent."""
    return await _agui(use, request, agent)


async def _agui(use: Services, request: Request, agent: str | None) -> Response:
    try:
        from ag_ui.core import RunAgentInput

        from holdfast.server.gateway.agui_events import agui_events, begin_turn
    except ModuleNotFoundError as error:
        raise (missing_extra(error) or error) from error
    try:
        asked = RunAgentInput.model_validate_json(await request.body())
    except ValidationError as error:
        raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_input=False)]) from error
    known, owner = await asyncio.to_thread(_owner, use, asked.thread_id)
    use.check_agent(agent)
    if known and agent not in (None, owner):
        raise InputError("this thread belongs to another agent.", hint="Take its own address, or another threadId.")
    talk = await asyncio.to_thread(use.talk, asked.thread_id, owner if known else agent)
    turn = begin_turn(talk, asked, known, use.harness.ids)

    async def frames() -> Any:
        with use.counted():
            try:
                async for frame in agui_events(asked, lambda: turn, use.harness, talk.thread, request.headers.get("accept")):
                    yield frame
            finally:
                await asyncio.to_thread(talk.close)

    return StreamingResponse(frames(), media_type=MEDIA_TYPE, headers={"x-holdfast-thread": talk.thread})


def _owner(use: Services, thread: str) -> tuple[bool, str | None]:
    """Whether somebody has talked in this thread, and whose it is."""
    try:
        return True, use.agent_of(thread)
    except NotThere:
        return False, None
