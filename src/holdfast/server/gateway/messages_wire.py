"""Anthropic's messages: a request read into ours, and our pieces written as its answers and events."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from holdfast.errors import InputError
from holdfast.server.gateway.chat_wire import model_name
from holdfast.server.gateway.client_request import ClientRequest, text_of
from holdfast.server.gateway.gateway_core import CallPart, Done, Opened, Piece, Text

_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def read(body: Mapping[str, Any]) -> ClientRequest:
    """The request. InputError for what cannot be passed on."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise InputError("`messages` must be a list of messages.")
    parameters = {name: body[name] for name in ("temperature", "top_p", "top_k", "max_tokens") if body.get(name) is not None}
    if body.get("stop_sequences"):
        parameters["stop"] = body["stop_sequences"]
    return ClientRequest(
        model=model_name(body),
        messages=[one for message in messages for one in _messages(message)],
        system=text_of(body.get("system")) if body.get("system") else "",
        tools=_tools(body.get("tools")),
        tool_choice=_choice(body.get("tool_choice")),
        parameters=parameters,
        stream=bool(body.get("stream")),
    )


def _messages(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One message as chat messages: results of tools stand in a user's message there, and by themselves here."""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, str) or content is None:
        return [{"role": role, "content": content or ""}]
    found: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "text":
            parts.append({"type": "text", "text": str(block.get("text") or "")})
        elif kind == "image":
            parts.append({"type": "image_url", "image_url": {"url": _address(block.get("source"))}})
        elif kind == "tool_use":
            said = json.dumps(block.get("input") or {}, ensure_ascii=False)
            calls.append({"id": str(block.get("id")), "type": "function", "function": {"name": str(block.get("name")), "arguments": said}})
        elif kind == "tool_result":
            found.append({"role": "tool", "tool_call_id": str(block.get("tool_use_id")), "content": text_of(block.get("content") or "")})
        elif kind not in ("thinking", "redacted_thinking"):
            raise InputError(
                f"a block of the kind {str(kind)[:40]!r} cannot be passed on.", hint="Send text, images, tool_use or tool_result."
            )
    if parts or calls:
        words: Any = parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts
        found.append({"role": role, "content": words or None, **({"tool_calls": calls} if calls else {})})
    return found


def _address(source: Any) -> str:
    source = source if isinstance(source, Mapping) else {}
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return str(source.get("url") or "")


def _tools(tools: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for tool in tools or ():
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), Mapping):
            continue  # a tool that only Anthropic's own servers run
        function = {"name": tool["name"], "description": str(tool.get("description") or ""), "parameters": dict(tool["input_schema"])}
        found.append({"type": "function", "function": function})
    return found


def _choice(choice: Any) -> Any:
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return {"auto": "auto", "any": "required", "none": "none"}.get(str(kind))


def _usage(done: Done) -> dict[str, Any]:
    usage = done.usage
    fresh = max(0, usage.input_tokens - usage.cache_read - usage.cache_write)
    cached = {"cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write}
    return {"input_tokens": fresh, "output_tokens": usage.output_tokens, **cached}


def _calls(done: Done) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": json.loads(call["function"]["arguments"])}
        for call in done.answer.get("tool_calls") or ()
    ]


def answer(id: str, model: str, done: Done) -> dict[str, Any]:
    """The whole answer."""
    text = [{"type": "text", "text": done.answer["content"]}] if done.answer["content"] else []
    head = {"id": id, "type": "message", "role": "assistant", "model": model, "content": [*text, *_calls(done)]}
    return {**head, "stop_reason": _STOPS[done.finish], "stop_sequence": None, "usage": _usage(done)}


async def events(id: str, model: str, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """The answer as it comes."""
    index, open_block = -1, ""

    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **more}, ensure_ascii=False)}\n\n".encode("utf-8", "replace")

    def begin(block: dict[str, Any], name: str) -> list[bytes]:
        nonlocal index, open_block
        ended = [event("content_block_stop", index=index)] if open_block else []
        index, open_block = index + 1, name
        return [*ended, event("content_block_start", index=index, content_block=block)]

    async for piece in pieces:
        if isinstance(piece, Opened):
            started: dict[str, Any] = {"id": id, "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": None}
            yield event(
                "message_start", message={**started, "stop_sequence": None, "usage": {"input_tokens": piece.tokens, "output_tokens": 1}}
            )
        elif isinstance(piece, Text):
            for frame in begin({"type": "text", "text": ""}, "text") if open_block != "text" else ():
                yield frame
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece.text})
        elif isinstance(piece, CallPart):
            name = f"call-{piece.index}"
            empty: dict[str, Any] = {"type": "tool_use", "id": piece.id, "name": piece.name, "input": {}}
            for frame in begin(empty, name) if open_block != name else ():
                yield frame
            if piece.args:
                yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": piece.args})
        elif isinstance(piece, Done):
            if open_block:
                yield event("content_block_stop", index=index)
            yield event("message_delta", delta={"stop_reason": _STOPS[piece.finish], "stop_sequence": None}, usage=_usage(piece))
            yield event("message_stop")
