"""OpenAI's responses: items read into messages, and our pieces written as its answers and events."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from holdfast.errors import InputError
from holdfast.server.gateway.chat_wire import model_name, split_system
from holdfast.server.gateway.client_request import ClientRequest, text_of
from holdfast.server.gateway.gateway_core import Done, Piece, Text

_log = logging.getLogger("holdfast.server")
_TEXTS = ("input_text", "output_text", "text")


def read(body: Mapping[str, Any]) -> ClientRequest:
    """The request. InputError for what cannot be passed on."""
    if body.get("background"):
        raise InputError("`background` is not supported here.", hint="Use a stream.")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise InputError("`input` must be a text or a list of items.")
    said, system = split_system(_messages(items))
    told = [part for part in (body.get("instructions"), system) if isinstance(part, str) and part]
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    return ClientRequest(
        model=model_name(body),
        messages=said,
        system="\n\n".join(told),
        tools=_tools(body.get("tools")),
        tool_choice=_choice(body.get("tool_choice")),
        parameters=_parameters(body),
        stream=bool(body.get("stream")),
        previous=previous if isinstance(previous, str) else None,
        thread=named if isinstance(named, str) else None,
    )


def _messages(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as chat messages: calls belong to the answer before them."""
    found: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            found.append({"role": item.get("role", "user"), "content": _content(item.get("content"))})
        elif kind == "function_call":
            arguments = item.get("arguments") or "{}"
            call = {"id": str(item.get("call_id")), "type": "function", "function": {"name": str(item.get("name")), "arguments": arguments}}
            if not found or found[-1]["role"] != "assistant":
                found.append({"role": "assistant", "content": None})
            found[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            output = item.get("output")
            said = output if isinstance(output, str) else text_of(output) or json.dumps(output, ensure_ascii=False)
            found.append({"role": "tool", "tool_call_id": str(item.get("call_id")), "content": said})
        else:
            _log.info("an item of the kind %s is not passed on", str(kind)[:40])
    return found


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = [
        {"type": "text", "text": part.get("text")} if part.get("type") in _TEXTS else part for part in content if isinstance(part, dict)
    ]
    return parts[0]["text"] if len(parts) == 1 and parts[0].get("type") == "text" else parts


def _tools(tools: Any) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    for tool in tools or ():
        if isinstance(tool, Mapping) and tool.get("type") == "function" and isinstance(tool.get("name"), str):
            kept = {name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None}
            found.append({"type": "function", "function": kept})
        else:
            _log.info("a tool of the kind %s is not passed on", str(tool.get("type") if isinstance(tool, Mapping) else tool)[:40])
    return found


def _choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice if isinstance(choice, str) else None


def _parameters(body: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: body[name] for name in ("temperature", "top_p", "parallel_tool_calls", "service_tier") if body.get(name) is not None}
    if body.get("max_output_tokens") is not None:
        found["max_tokens"] = body["max_output_tokens"]
    reasoning = body.get("reasoning")
    if isinstance(reasoning, Mapping) and reasoning.get("effort"):
        found["reasoning_effort"] = reasoning["effort"]
    form = (body.get("text") or {}).get("format") if isinstance(body.get("text"), Mapping) else None
    if isinstance(form, Mapping) and form.get("type") == "json_schema":
        schema = {name: form[name] for name in ("name", "schema", "strict", "description") if form.get(name) is not None}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif isinstance(form, Mapping) and form.get("type") == "json_object":
        found["response_format"] = {"type": "json_object"}
    return found


def base(id: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """A response before anything was said."""
    kept = {name: body.get(name) for name in ("instructions", "previous_response_id", "temperature", "top_p", "max_output_tokens")}
    return {
        "id": id,
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "model": body.get("model"),
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "metadata": body.get("metadata") or {},
        "usage": None,
        **kept,
    }


def answer(id: str, body: Mapping[str, Any], done: Done) -> dict[str, Any]:
    """The whole response."""
    usage = {
        "input_tokens": done.usage.input_tokens,
        "input_tokens_details": {"cached_tokens": done.usage.cache_read},
        "output_tokens": done.usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": done.usage.reasoning},
        "total_tokens": done.usage.total,
    }
    cut = done.finish == "length"
    more = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {"status": "completed"}
    return {**base(id, body), **more, "output": _items(id, done), "usage": usage}


def _items(id: str, done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if done.answer["content"]:
        found.append(_message_item(id, str(done.answer["content"])))
    for call in done.answer.get("tool_calls") or ():
        said = {"call_id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        found.append({"type": "function_call", "id": f"fc_{call['id']}", "status": "completed", **said})
    return found


def _message_item(id: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{id[5:]}", "status": "completed", "role": "assistant", "content": [part]}


async def events(id: str, body: Mapping[str, Any], pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    """The response as it comes."""
    number, opened = 0, False
    place = {"item_id": f"msg_{id[5:]}", "output_index": 0, "content_index": 0}

    def event(kind: str, **more: Any) -> bytes:
        nonlocal number
        told = json.dumps({"type": kind, "sequence_number": number, **more}, ensure_ascii=False)
        number += 1
        return f"event: {kind}\ndata: {told}\n\n".encode("utf-8", "replace")

    yield event("response.created", response=base(id, body))
    yield event("response.in_progress", response=base(id, body))
    async for piece in pieces:
        if isinstance(piece, Text):
            if not opened:
                opened = True
                empty = {**_message_item(id, ""), "status": "in_progress", "content": []}
                yield event("response.output_item.added", output_index=0, item=empty)
                yield event("response.content_part.added", **place, part={"type": "output_text", "text": "", "annotations": []})
            yield event("response.output_text.delta", **place, delta=piece.text, logprobs=[])
        elif isinstance(piece, Done):
            final = answer(id, body, piece)
            for index, item in enumerate(final["output"]):
                for kind, more in _closing(index, item):
                    yield event(kind, **more)
            yield event("response.incomplete" if piece.finish == "length" else "response.completed", response=final)


def _closing(index: int, item: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """The events with which an item ends; for a call those with which it begins as well."""
    place = {"item_id": item["id"], "output_index": index}
    ended = ("response.output_item.done", {"output_index": index, "item": item})
    if item["type"] == "message":
        part = item["content"][0]
        return [
            ("response.output_text.done", {**place, "content_index": 0, "text": part["text"], "logprobs": []}),
            ("response.content_part.done", {**place, "content_index": 0, "part": part}),
            ended,
        ]
    return [
        ("response.output_item.added", {"output_index": index, "item": {**item, "status": "in_progress", "arguments": ""}}),
        ("response.function_call_arguments.delta", {**place, "delta": item["arguments"]}),
        ("response.function_call_arguments.done", {**place, "name": item["name"], "arguments": item["arguments"]}),
        ended,
    ]
