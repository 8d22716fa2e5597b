"""`/v1`: models, chat completions, responses, messages. A client changes its base address and its key, and nothing else.

Headers say what was done: `X-Holdfast-Thread`, `X-Holdfast-Placed` (starts, continues, resumes, branches), `X-Holdfast-Sent-Tokens`,
`X-Holdfast-Compacted`. A client may send `X-Holdfast-Thread`, `X-Holdfast-Memory: off` and `X-Holdfast-Learn: on`. Errors have the forms by
which the clients of others choose their exception, and whether they try again.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from holdfast import errors
from holdfast.errors import HoldfastError, InputError
from holdfast.models.failures import kind_of
from holdfast.redaction import redact_text, without_paths
from holdfast.server.event_stream import MEDIA_TYPE
from holdfast.server.services import Services, services_of
from holdfast.server.wire import TOKEN

router = APIRouter(prefix="/v1", tags=["gateway"], dependencies=[TOKEN])
Use = Annotated[Services, Depends(services_of)]
_BODY: dict[str, Any] = {"requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}, "required": True}}
_ANSWERS: dict[int | str, dict[str, Any]] = {
    code: {"description": said, "content": {"application/json": {"schema": {"type": "object"}}}}
    for code, said in {
        **{400: "Not understood", 402: "Limit reached", 404: "Not there", 409: "In the way", 422: "Does not fit", 429: "Too many"},
        **{500: "Failed", 502: "Refused upstream", 503: "Not available", 504: "Too slow upstream"},
    }.items()
}
_SWITCH = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


@router.get("/models")
def models_list(use: Use) -> dict[str, Any]:
    """The configured models, and our own agents as `holdfast/NAME`."""
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": "holdfast"} for name in use.gateway.models()],
    }


@router.post("/chat/completions", openapi_extra=_BODY, responses=_ANSWERS)
async def chat_completions(use: Use, request: Request) -> Response:
    """OpenAI's chat completions."""
    from holdfast.server.gateway import chat_wire  # LangChain

    id = f"chatcmpl-{secrets.token_hex(12)}"

    async def respond(body: dict[str, Any]) -> Response:
        asked = _with_headers(chat_wire.read(body), request)
        options = body.get("stream_options")
        usage = isinstance(options, dict) and bool(options.get("include_usage"))
        return await _respond(
            use,
            request,
            body,
            asked,
            whole=lambda done: chat_wire.answer(id, asked.model, done),
            stream=lambda pieces: chat_wire.chunks(id, asked.model, pieces, with_usage=usage),
            failed=lambda status, code, said: chat_wire.data(openai_body(status, code, said)),
        )

    return await _guarded(request, respond, openai_error)


@router.post("/responses", openapi_extra=_BODY, responses=_ANSWERS)
async def responses(use: Use, request: Request) -> Response:
    """OpenAI's responses."""
    from holdfast.server.gateway import responses_wire  # LangChain

    id = f"resp_{secrets.token_hex(20)}"

    async def respond(body: dict[str, Any]) -> Response:
        asked = _with_headers(responses_wire.read(body), request)

        def failed(status: int, code: str, said: str) -> bytes:
            event = {"type": "error", "sequence_number": 0, "code": code, "message": said, "param": None}
            return f"event: error\ndata: {json.dumps(event)}\n\n".encode()

        return await _respond(
            use,
            request,
            body,
            asked,
            whole=lambda done: responses_wire.answer(id, body, done),
            stream=lambda pieces: responses_wire.events(id, body, pieces),
            failed=failed,
            note=lambda done: use.gateway.index.note_response(id, done.thread, done.seq),
        )

    return await _guarded(request, respond, openai_error)


@router.post("/messages", openapi_extra=_BODY, responses=_ANSWERS)
async def messages(use: Use, request: Request) -> Response:
    """Anthropic's messages."""
    from holdfast.server.gateway import messages_wire  # LangChain

    id = f"msg_{secrets.token_hex(12)}"

    async def respond(body: dict[str, Any]) -> Response:
        asked = _with_headers(messages_wire.read(body), request)

        def failed(status: int, code: str, said: str) -> bytes:
            return f"event: error\ndata: {json.dumps(anthropic_body(status, code, said))}\n\n".encode()

        return await _respond(
            use,
            request,
            body,
            asked,
            whole=lambda done: messages_wire.answer(id, asked.model, done),
            stream=lambda pieces: messages_wire.events(id, asked.model, pieces),
            failed=failed,
        )

    return await _guarded(request, respond, anthropic_error)


async def _guarded(request: Request, respond: Callable[[dict[str, Any]], Any], refuse: Callable[[Exception], Response]) -> Response:
    """The answer, or what went wrong in the client's own form."""
    try:
        answer: Response = await respond(_body(await request.body()))
    except Exception as error:  # noqa: BLE001 - whatever it is, the client gets it in the form that it understands; the log has the rest
        return refuse(error)
    return answer


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
    return replace(asked, thread=thread, memory=memory, learn=learn)


async def _respond(
    use: Services,
    request: Request,
    body: dict[str, Any],
    asked: Any,
    *,
    whole: Callable[[Any], dict[str, Any]],
    stream: Callable[[AsyncIterator[Any]], AsyncIterator[bytes]],
    failed: Callable[[int, str, str], bytes],
    note: Callable[[Any], None] = lambda done: None,
) -> Response:
    """Run the turn. A stream is begun when the model has begun to answer: until then an error is an error, with its status."""
    from holdfast.server.gateway.gateway_core import Done
    from holdfast.server.gateway.repeats import is_again, key_of, told_again

    key, again, repeats = key_of(request.url.path, body, request.headers), is_again(request.headers), use.repeats
    if not asked.stream:
        done = await repeats.answered(key, again, lambda: _done(use.gateway.turn(asked)))
        note(done)
        if await request.is_disconnected():
            repeats.unheard(key)
        return JSONResponse(whole(done), headers=_said(done))
    held = repeats.heard(key) if again else None
    pieces = told_again(held) if held is not None else use.gateway.turn(asked).__aiter__()
    first = await anext(pieces)

    async def rest() -> AsyncIterator[Any]:
        yield first
        async for piece in pieces:
            if isinstance(piece, Done):
                note(piece)
                repeats.keep(key, piece)
            yield piece

    async def frames() -> AsyncIterator[bytes]:
        with use.counted():
            try:
                async for frame in stream(rest()):
                    yield frame
            except Exception as error:  # noqa: BLE001 - the status is out already: the stream says it
                yield failed(*told(error))

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
    return found


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
