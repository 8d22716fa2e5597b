"""What clients of others speak: requests read into ours, and our pieces written as their answers and events (O3).

`CHAT` is OpenAI's chat completions, `RESPONSES` OpenAI's responses, `MESSAGES` Anthropic's messages.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.agents.middleware.broken_calls import is_object
from holdfast.errors import InputError
from holdfast.server.gateway.client_request import ClientRequest, text_of
from holdfast.server.gateway.gateway_core import CallPart, Done, Opened, Piece, Text
from holdfast.server.wire import anthropic_refusal, openai_refusal
from holdfast.tokens.accounts import Usage

_log = logging.getLogger("holdfast.server")
Json = Mapping[str, Any]


@dataclass(frozen=True)
class Dialect:
    """One way to speak. `answer` and `events` are given an id, the body of the request, and what was said."""

    prefix: str
    """Of the ids of its answers; `id_bytes` is how long the rest is."""
    id_bytes: int
    read: Callable[[Json], ClientRequest]
    """The request. InputError, with the name, for what cannot be passed on."""
    answer: Callable[[str, Json, Done], dict[str, Any]]
    """The whole answer."""
    events: Callable[[str, Json, AsyncIterator[Piece]], AsyncIterator[bytes]]
    """The answer as it comes."""
    refusal: Callable[[int, str, str, str | None], dict[str, Any]]
    """What went wrong, by status, code, words, and the field of the request that is at fault."""
    failure: Callable[[int, str, str, str | None], bytes]
    """The same, in the middle of a stream."""

    def new_id(self) -> str:
        """The id of an answer."""
        return self.prefix + secrets.token_hex(self.id_bytes)


def _model_name(body: Json) -> str:
    """The model that is asked for."""
    name = body.get("model")
    if not isinstance(name, str) or not 0 < len(name) <= 200:
        raise InputError("`model` must be the name of a model.", hint="`GET /v1/models` lists them.")
    return name


def _messages_in(body: Json) -> list[dict[str, Any]]:
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(one, dict) for one in messages):
        raise InputError("`messages` must be a list of messages.")
    return messages


def _split_system(messages: Sequence[Json]) -> tuple[list[Json], str]:
    """The conversation, and what the client tells the model about its task, as one text."""
    told = [text_of(one.get("content")) for one in messages if one.get("role") in ("system", "developer")]
    return [one for one in messages if one.get("role") not in ("system", "developer")], "\n\n".join(part for part in told if part)


def _event(value: Json) -> bytes:
    """A server-sent event, named by its type."""
    return f"event: {value['type']}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


# OpenAI's chat completions


_PASSED = (
    *("temperature", "top_p", "stop", "seed", "response_format", "frequency_penalty", "presence_penalty", "logit_bias"),
    *("parallel_tool_calls", "reasoning_effort", "verbosity", "service_tier"),
)
_EXTRA = frozenset(
    (
        *("top_k", "min_p", "top_a", "typical_p", "tfs_z", "repetition_penalty", "repeat_penalty", "repeat_last_n", "length_penalty"),
        *("mirostat", "mirostat_tau", "mirostat_eta", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_sequence_breakers"),
        *("xtc_probability", "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "samplers", "num_ctx", "keep_alive", "options"),
        *("min_tokens", "ignore_eos", "stop_token_ids", "bad_words", "include_stop_str_in_output", "skip_special_tokens"),
        *("spaces_between_special_tokens", "truncate_prompt_tokens", "use_beam_search", "cache_prompt", "id_slot", "priority"),
        *("chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message", "documents", "mm_processor_kwargs"),
        *("guided_json", "guided_regex", "guided_choice", "guided_grammar", "guided_decoding_backend", "structured_outputs"),
        *("grammar", "json_schema", "regex", "ebnf", "separate_reasoning", "enable_thinking", "thinking", "thinking_budget"),
        *("reasoning", "include_reasoning", "reasoning_format", "provider", "transforms", "route", "safe_prompt", "random_seed"),
    )
)
"""Fields that OpenAI's own API does not have and that servers which speak it commonly take. They are sent as they came."""
_OURS = frozenset(
    (
        *("model", "messages", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "tools", "tool_choice"),
        *("user", "safety_identifier", "metadata", "store", "prompt_cache_key", "prompt_cache_retention", "modalities"),
    )
)
"""Fields that are read here, and those that say who asks and what is to be stored: that is our business, and stays here."""
_REFUSED = ("logprobs", "top_logprobs", "audio", "functions", "function_call", "prediction", "web_search_options")


def _read_chat(body: Json) -> ClientRequest:
    for name in _REFUSED:
        if body.get(name):
            raise InputError(f"`{name}` is not supported here.", hint="Leave it out.")
    _refuse_unknown(body, _EXTRA.union(_PASSED, _REFUSED, _OURS))
    if body.get("modalities") not in (None, ["text"]):
        raise InputError("`modalities` can only be text here.", hint="Leave it out.")
    if body.get("n") not in (None, 1):
        raise InputError("`n` can only be 1 here.", hint="Send several requests: each becomes a branch.")
    said, system = _split_system(_messages_in(body))
    parameters = {name: body[name] for name in _PASSED if body.get(name) is not None}
    limit = next((name for name in ("max_completion_tokens", "max_tokens") if body.get(name)), None)
    if limit is not None:
        parameters["max_tokens"] = body[limit]
    return ClientRequest(
        model=_model_name(body),
        messages=said,
        system=system,
        tools=_chat_tools(body.get("tools")),
        tool_choice=body.get("tool_choice"),
        parameters=parameters,
        extra={name: body[name] for name in _EXTRA if body.get(name) is not None},
        limit_name=limit,
        stream=bool(body.get("stream")),
    )


def _refuse_unknown(body: Json, known: Collection[str]) -> None:
    """InputError, by name, for fields that nobody here knows: to leave them out would change what is asked without a word."""
    strange = sorted(name for name, value in body.items() if name not in known and value is not None)
    if strange:
        raise InputError(f"`{strange[0][:80]}` cannot be passed on.", hint="Leave it out.")


def _chat_tools(tools: Any) -> list[Json]:
    """The client's tools. InputError for what is none."""
    found: list[Json] = []
    for tool in tools or ():
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise InputError("`tools` must be functions with a name.", hint='Each is {"type": "function", "function": {"name": ...}}.')
        found.append({"type": "function", "function": dict(function)})
    return found


def _chat_usage(usage: Usage) -> dict[str, Any]:
    """What was really sent and said."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


def _chat_answer(id: str, body: Json, done: Done) -> dict[str, Any]:
    message = {**done.answer, "content": done.answer["content"] or None, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": done.finish}
    head = {"id": id, "created": int(time.time()), "model": body["model"]}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": _chat_usage(done.usage)}


async def _chat_events(id: str, body: Json, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    options = body.get("stream_options")
    with_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    head = {"id": id, "created": int(time.time()), "model": body["model"], "object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _data({**head, "choices": [choice], **({"usage": None} if with_usage else {})})

    yield chunk({"role": "assistant", "content": ""})
    async for piece in pieces:
        if isinstance(piece, Text):
            yield chunk({"content": piece.text})
        elif isinstance(piece, CallPart):
            yield chunk({"tool_calls": [_call_delta(piece)]})
        elif isinstance(piece, Done):
            yield chunk({}, piece.finish)
            if with_usage:
                yield _data({**head, "choices": [], "usage": _chat_usage(piece.usage)})
    yield b"data: [DONE]\n\n"


def _call_delta(piece: CallPart) -> dict[str, Any]:
    function: dict[str, Any] = {"arguments": piece.args}
    found: dict[str, Any] = {"index": piece.index, "function": function}
    if piece.name:
        function["name"] = piece.name
    if piece.id:
        found |= {"id": piece.id, "type": "function"}
    return found


def _data(value: Json) -> bytes:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


def _chat_failure(status: int, code: str, message: str, param: str | None = None) -> bytes:
    return _data(openai_refusal(status, code, message, param))


CHAT = Dialect("chatcmpl-", 12, _read_chat, _chat_answer, _chat_events, openai_refusal, _chat_failure)


# OpenAI's responses


_TEXTS = ("input_text", "output_text", "text")
_READ = frozenset(
    (
        *("model", "input", "instructions", "previous_response_id", "conversation", "tools", "tool_choice", "stream", "stream_options"),
        *("temperature", "top_p", "parallel_tool_calls", "service_tier", "max_output_tokens", "reasoning", "text", "background"),
        *("include", "store", "metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "truncation"),
        *("top_logprobs", "max_tool_calls", "client_metadata"),
    )
)
"""Fields of OpenAI's responses: those that are read here, and those about storing and showing, which stay here."""


def _read_response(body: Json) -> ClientRequest:
    if body.get("background"):
        raise InputError("`background` is not supported here.", hint="Use a stream.")
    _refuse_unknown(body, _EXTRA.union(_READ))
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise InputError("`input` must be a text or a list of items.")
    said, system = _split_system(_items_read(items))
    told = [part for part in (body.get("instructions"), system) if isinstance(part, str) and part]
    previous, conversation = body.get("previous_response_id"), body.get("conversation")
    named = conversation.get("id") if isinstance(conversation, Mapping) else conversation
    return ClientRequest(
        model=_model_name(body),
        messages=said,
        system="\n\n".join(told),
        tools=_response_tools(body.get("tools")),
        tool_choice=_response_choice(body.get("tool_choice")),
        parameters=_response_parameters(body),
        extra={name: body[name] for name in _EXTRA - _READ if body.get(name) is not None},
        stream=bool(body.get("stream")),
        limit_name="max_output_tokens" if body.get("max_output_tokens") is not None else None,
        previous=previous if isinstance(previous, str) else None,
        thread=named if isinstance(named, str) else None,
    )


def _items_read(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items as chat messages: calls belong to the answer before them."""
    found: list[dict[str, Any]] = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            found.append({"role": item.get("role", "user"), "content": _item_content(item.get("content"))})
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


def _item_content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts = [
        {"type": "text", "text": part.get("text")} if part.get("type") in _TEXTS else part for part in content if isinstance(part, dict)
    ]
    return parts[0]["text"] if len(parts) == 1 and parts[0].get("type") == "text" else parts


def _response_tools(tools: Any) -> list[Json]:
    found: list[Json] = []
    for tool in tools or ():
        if isinstance(tool, Mapping) and tool.get("type") == "function" and isinstance(tool.get("name"), str):
            kept = {name: tool[name] for name in ("name", "description", "parameters", "strict") if tool.get(name) is not None}
            found.append({"type": "function", "function": kept})
        else:
            _log.info("a tool of the kind %s is not passed on", str(tool.get("type") if isinstance(tool, Mapping) else tool)[:40])
    return found


def _response_choice(choice: Any) -> Any:
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return choice if isinstance(choice, str) else None


def _response_parameters(body: Json) -> dict[str, Any]:
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


def _response_base(id: str, body: Json) -> dict[str, Any]:
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
        "tools": [tool for tool in body.get("tools") or () if _response_tools([tool])],  # those that the model was given
        "metadata": body.get("metadata") or {},
        "usage": None,
        **kept,
    }


def _response_answer(id: str, body: Json, done: Done) -> dict[str, Any]:
    usage = {
        "input_tokens": done.usage.input_tokens,
        "input_tokens_details": {"cached_tokens": done.usage.cache_read},
        "output_tokens": done.usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": done.usage.reasoning},
        "total_tokens": done.usage.total,
    }
    cut = done.finish == "length"
    more = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}} if cut else {"status": "completed"}
    return {**_response_base(id, body), **more, "output": _response_items(id, done), "usage": usage}


def _response_items(id: str, done: Done) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if done.answer["content"]:
        found.append(_message_item(id, str(done.answer["content"])))
    for call in done.answer.get("tool_calls") or ():
        said = {"call_id": call["id"], "name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        status = "incomplete" if done.finish == "length" and not is_object(said["arguments"]) else "completed"
        found.append({"type": "function_call", "id": f"fc_{call['id']}", "status": status, **said})
    return found


def _message_item(id: str, text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "id": f"msg_{id[5:]}", "status": "completed", "role": "assistant", "content": [part]}


async def _response_events(id: str, body: Json, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    number, opened = 0, False
    place = {"item_id": f"msg_{id[5:]}", "output_index": 0, "content_index": 0}

    def event(kind: str, **more: Any) -> bytes:
        nonlocal number
        number += 1
        return _event({"type": kind, "sequence_number": number - 1, **more})

    yield event("response.created", response=_response_base(id, body))
    yield event("response.in_progress", response=_response_base(id, body))
    async for piece in pieces:
        if isinstance(piece, Text):
            if not opened:
                opened = True
                empty = {**_message_item(id, ""), "status": "in_progress", "content": []}
                yield event("response.output_item.added", output_index=0, item=empty)
                yield event("response.content_part.added", **place, part={"type": "output_text", "text": "", "annotations": []})
            yield event("response.output_text.delta", **place, delta=piece.text, logprobs=[])
        elif isinstance(piece, Done):
            final = _response_answer(id, body, piece)
            for index, item in enumerate(final["output"]):
                for kind, more in _closing(index, item):
                    yield event(kind, **more)
            yield event("response.incomplete" if piece.finish == "length" else "response.completed", response=final)


def _closing(index: int, item: Json) -> list[tuple[str, dict[str, Any]]]:
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


def _response_failure(status: int, code: str, message: str, param: str | None = None) -> bytes:
    return _event({"type": "error", "sequence_number": 0, "code": code, "message": message, "param": param})


RESPONSES = Dialect("resp_", 20, _read_response, _response_answer, _response_events, openai_refusal, _response_failure)


# Anthropic's messages


_STOPS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}


def _read_messages(body: Json) -> ClientRequest:
    parameters = {name: body[name] for name in ("temperature", "top_p", "max_tokens") if body.get(name) is not None}
    if body.get("stop_sequences"):
        parameters["stop"] = body["stop_sequences"]
    return ClientRequest(
        model=_model_name(body),
        messages=[one for message in _messages_in(body) for one in _blocks_read(message)],
        system=text_of(body.get("system")) if body.get("system") else "",
        tools=_message_tools(body.get("tools")),
        tool_choice=_message_choice(body.get("tool_choice")),
        parameters=parameters,
        extra={"top_k": body["top_k"]} if body.get("top_k") is not None else {},
        limit_name="max_tokens" if body.get("max_tokens") is not None else None,
        stream=bool(body.get("stream")),
    )


def _blocks_read(message: Json) -> list[dict[str, Any]]:
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
            parts.append({"type": "image_url", "image_url": {"url": _image_address(block.get("source"))}})
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


def _image_address(source: Any) -> str:
    source = source if isinstance(source, Mapping) else {}
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return str(source.get("url") or "")


def _message_tools(tools: Any) -> list[Json]:
    found: list[Json] = []
    for tool in tools or ():
        if not isinstance(tool, Mapping) or not isinstance(tool.get("name"), str) or not isinstance(tool.get("input_schema"), Mapping):
            continue  # a tool that only Anthropic's own servers run
        function = {"name": tool["name"], "description": str(tool.get("description") or ""), "parameters": dict(tool["input_schema"])}
        found.append({"type": "function", "function": function})
    return found


def _message_choice(choice: Any) -> Any:
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    return {"auto": "auto", "any": "required", "none": "none"}.get(str(kind))


def _message_usage(done: Done) -> dict[str, Any]:
    usage = done.usage
    fresh = max(0, usage.input_tokens - usage.cache_read - usage.cache_write)
    cached = {"cache_read_input_tokens": usage.cache_read, "cache_creation_input_tokens": usage.cache_write}
    return {"input_tokens": fresh, "output_tokens": usage.output_tokens, **cached}


def _message_answer(id: str, body: Json, done: Done) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": done.answer["content"]}] if done.answer["content"] else []
    for call in done.answer.get("tool_calls") or ():
        name, text = call["function"]["name"], call["function"]["arguments"]
        if is_object(text):  # outside of a stream there is no form for a part of a call
            content.append({"type": "tool_use", "id": call["id"], "name": name, "input": json.loads(text or "{}", strict=False)})
    head = {"id": id, "type": "message", "role": "assistant", "model": body["model"], "content": content}
    calls = any(block["type"] == "tool_use" for block in content)
    reason = "end_turn" if done.finish == "tool_calls" and not calls else _STOPS[done.finish]
    return {**head, "stop_reason": reason, "stop_sequence": None, "usage": _message_usage(done)}


async def _message_events(id: str, body: Json, pieces: AsyncIterator[Piece]) -> AsyncIterator[bytes]:
    index, open_block = -1, ""

    def event(kind: str, **more: Any) -> bytes:
        return _event({"type": kind, **more})

    def begin(block: dict[str, Any], name: str) -> list[bytes]:
        nonlocal index, open_block
        ended = [event("content_block_stop", index=index)] if open_block else []
        index, open_block = index + 1, name
        return [*ended, event("content_block_start", index=index, content_block=block)]

    async for piece in pieces:
        if isinstance(piece, Opened):
            started = {"id": id, "type": "message", "role": "assistant", "model": body["model"], "content": [], "stop_reason": None}
            usage = {"input_tokens": piece.tokens, "output_tokens": 1}
            yield event("message_start", message={**started, "stop_sequence": None, "usage": usage})
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
            yield event("message_delta", delta={"stop_reason": _STOPS[piece.finish], "stop_sequence": None}, usage=_message_usage(piece))
            yield event("message_stop")


def _message_failure(status: int, code: str, message: str, param: str | None = None) -> bytes:
    return _event(anthropic_refusal(status, code, message))


MESSAGES = Dialect("msg_", 12, _read_messages, _message_answer, _message_events, anthropic_refusal, _message_failure)
