"""OpenAI's chat completions: a request read into ours, and our pieces written as its answers and chunks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from holdfast.errors import InputError
from holdfast.server.gateway.client_request import ClientRequest, text_of
from holdfast.server.gateway.gateway_core import CallPart, Done, Piece, Text
from holdfast.tokens.usage import Usage

_PASSED = (
    *("temperature", "top_p", "stop", "seed", "response_format", "frequency_penalty", "presence_penalty", "logit_bias"),
    *("parallel_tool_calls", "reasoning_effort", "verbosity", "service_tier", "top_k", "min_p", "repeat_penalty"),
)
_REFUSED = ("logprobs", "top_logprobs", "audio", "functions", "function_call", "prediction", "web_search_options")


def read(body: Mapping[str, Any]) -> ClientRequest:
    """The request. InputError, with the name, for what cannot be passed on."""
    for name in _REFUSED:
        if body.get(name):
            raise InputError(f"`{name}` is not supported here.", hint="Leave it out.")
    if body.get("n") not in (None, 1):
        raise InputError("`n` can only be 1 here.", hint="Send several requests: each becomes a branch.")
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise InputError("`messages` must be a list of messages.")
    said, system = split_system(messages)
    parameters = {name: body[name] for name in _PASSED if body.get(name) is not None}
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    if most is not None:
        parameters["max_tokens"] = most
    return ClientRequest(
        model=model_name(body),
        messages=said,
        system=system,
        tools=tools_of(body.get("tools")),
        tool_choice=body.get("tool_choice"),
        parameters=parameters,
        stream=bool(body.get("stream")),
    )


def model_name(body: Mapping[str, Any]) -> str:
    """The model that is asked for."""
    name = body.get("model")
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise InputError("`model` must be the name of a model.", hint="`GET /v1/models` lists them.")
    return name


def tools_of(tools: Any) -> list[Mapping[str, Any]]:
    """The client's tools. InputError for what is none."""
    found: list[Mapping[str, Any]] = []
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError("`tools` must be functions with a name.", hint='Each is {"type": "function", "function": {"name": ...}}.')
        found.append({"type": "function", "function": dict(function)})
    return found


def split_system(messages: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """The conversation, and what the client tells the model about its task, as one text."""
    told = [text_of(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
    return [one for one in messages if one.get("role") not in ("system", "developer")], "\n\n".join(part for part in told if part)


def usage_of(usage: Usage) -> dict[str, Any]:
    """What was really sent and said."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def head(id: str, model: str) -> dict[str, Any]:
    """What every answer and every chunk begins with."""
    return {"id": id, "created": int(time.time()), "model": model}


def answer(id: str, model: str, done: Done) -> dict[str, Any]:
    """The whole answer."""
    message = {**done.answer, "content": done.answer["content"] or None, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": done.finish}
    return {**head(id, model), "object": "chat.completion", "choices": [choice], "usage": usage_of(done.usage)}


async def chunks(id: str, model: str, pieces: AsyncIterator[Piece], *, with_usage: bool) -> AsyncIterator[bytes]:
    """The answer as it comes."""
    first = head(id, model)

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return data({**first, "object": "chat.completion.chunk", "choices": [choice], **({"usage": None} if with_usage else {})})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in pieces:
        if isinstance(piece, Text):
            yield chunk({"content": piece.text})
        elif isinstance(piece, CallPart):
            yield chunk({"tool_calls": [_call_delta(piece)]})
        elif isinstance(piece, Done):
            yield chunk({}, piece.finish)
            if with_usage:
                yield data({**first, "object": "chat.completion.chunk", "choices": [], "usage": usage_of(piece.usage)})
    yield b"data: [DONE]\n\n"


def _call_delta(piece: CallPart) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": piece.args}
    found: dict[str, Any] = {"index": piece.index, "function": function}
    if piece.name:
        function["name"] = piece.name
    if piece.id:
        found |= {"id": piece.id, "type": "function"}
    return found


def data(value: Mapping[str, Any]) -> bytes:
    """One unnamed event."""
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode("utf-8", "replace")
