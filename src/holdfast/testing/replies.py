"""Turns a scripted answer into a LangChain message, and a message into the pieces in which it is streamed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from pydantic import BaseModel

from holdfast.errors import InputError
from holdfast.testing.script import Call, Computed, Reply, Request, Structured, tool_name

_WORDS = re.compile(r"\S+\s*|\s+")
_PIECE = 12  # characters of tool arguments in one chunk
_PER_MESSAGE = 3  # tokens around every message


def count_quarters(text: str) -> int:
    """A simple count: a token for every four characters begun."""
    return -(-len(text) // 4)


def count_request(request: Request, count: Callable[[str], int]) -> int:
    """The tokens of everything that was sent: texts, tool calls and tool definitions."""
    messages = sum(count(_spoken(message)) + _PER_MESSAGE for message in request.messages)
    return messages + sum(count(json.dumps(tool, sort_keys=True, default=str)) for tool in request.tools)


def as_reply(step: Any, request: Request) -> Reply:
    """The answer that a plain step stands for."""
    if isinstance(step, Reply):
        return step
    if isinstance(step, str):
        return Reply(step)
    if isinstance(step, Call):
        return Reply(calls=(step,))
    if isinstance(step, Structured):
        return _structured(step, request)
    if isinstance(step, BaseModel | Mapping):
        return _structured(Structured(step), request)
    if isinstance(step, Sequence) and step and all(isinstance(part, Call) for part in step):
        return Reply(calls=tuple(step))
    raise InputError(
        f"step {request.number} of the script is {step!r}, which is no step.",
        hint="Use a text, an AIMessage, calls, reply, structured, raises, delay, hostile, repeat, or a function of the request.",
    )


def _structured(step: Structured, request: Request) -> Reply:
    value = step.value.model_dump(mode="json") if isinstance(step.value, BaseModel) else step.value
    if not request.tools or (request.response_format is not None and step.tool is None):
        return Reply(json.dumps(value), usage=step.usage)
    return Reply(calls=(Call(step.tool or _output_tool(step.value, value, request), value),), usage=step.usage)


def _output_tool(original: Any, value: Any, request: Request) -> str:
    """Which of the bound tools takes this value: by the name of its class, as the only one, or by its fields."""
    names = request.tool_names
    if type(original).__name__ in names:
        return type(original).__name__
    if len(names) == 1:
        return names[0]
    keys = set(value) if isinstance(value, Mapping) else set()
    fitting = [tool_name(tool) for tool in request.tools if _takes(tool, keys)]
    if len(fitting) == 1:
        return fitting[0]
    raise InputError(
        f"call {request.number} binds the tools {', '.join(names)}: it is not clear which one the structured answer is for.",
        hint='Name it: structured(value, tool="...").',
    )


def _takes(tool: Mapping[str, Any], keys: set[str]) -> bool:
    parameters = tool.get("function", {}).get("parameters", {})
    return set(parameters.get("required", ())) <= keys <= set(parameters.get("properties", {}))


def as_message(
    answer: Reply | AIMessage, request: Request, *, count: Callable[[str], int], reports: bool = True, model_name: str = "scripted"
) -> AIMessage:
    """The message that is sent back, with ids and the usage that was scripted or counted."""
    if isinstance(answer, AIMessage):
        message = answer.model_copy(deep=True)
        scripted: Any = message.usage_metadata or Computed()
        reason = message.response_metadata.get("finish_reason")
    else:
        message = _message(answer, request)
        scripted, reason = answer.usage, answer.finish_reason
    if isinstance(scripted, Computed):
        scripted = _counted(message, request, count) if reports else None
    message.usage_metadata = cast("UsageMetadata | None", dict(scripted) if scripted is not None else None)
    asks = bool(message.tool_calls or message.invalid_tool_calls)
    message.response_metadata = {
        "model_name": model_name,
        **message.response_metadata,
        "finish_reason": reason or ("tool_calls" if asks else "stop"),
    }
    return message


def _message(answer: Reply, request: Request) -> AIMessage:
    good, bad = [], []
    for number, asked in enumerate(answer.calls, 1):
        name, identity = asked.name, asked.id or f"call_{request.number}_{number}"
        args = _parsed(asked.args)
        if args is None:
            bad.append(invalid_tool_call(name=name, args=str(asked.args), id=identity, error="the arguments are not valid JSON"))
        else:
            good.append(tool_call(name=name, args=args, id=identity))
    content: Any = answer.content if isinstance(answer.content, str) else [dict(block) for block in answer.content]
    return AIMessage(content=content, tool_calls=good, invalid_tool_calls=bad, id=answer.id)


def _parsed(args: Mapping[str, Any] | str) -> dict[str, Any] | None:
    if not isinstance(args, str):
        return dict(args)
    try:
        value = json.loads(args)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _counted(message: AIMessage, request: Request, count: Callable[[str], int]) -> UsageMetadata:
    sent, answered = count_request(request, count), count(_spoken(message))
    return UsageMetadata(input_tokens=sent, output_tokens=answered, total_tokens=sent + answered)


def _spoken(message: BaseMessage) -> str:
    """All that a model reads or writes of a message, as one text."""
    content = message.content if isinstance(message.content, str) else json.dumps(message.content, sort_keys=True, default=str)
    calls = [*getattr(message, "tool_calls", ()), *getattr(message, "invalid_tool_calls", ())]
    return content + "".join(f"{made['name']}{json.dumps(made['args'], sort_keys=True, default=str)}" for made in calls)


def chunks_of(message: AIMessage, *, broken: bool = False) -> Iterator[ChatGenerationChunk]:
    """The pieces in which a message is streamed: word by word, then the tool calls, then usage and the end.

    A `broken` one has no end: an error follows.
    """
    if isinstance(message.content, str):
        for word in _WORDS.findall(message.content):
            yield _chunk(message, content=word)
    else:
        for number, block in enumerate(message.content):
            yield _chunk(message, content=[{**block, "index": number}] if isinstance(block, dict) else block)
    for number, made in enumerate([*message.tool_calls, *message.invalid_tool_calls]):
        args = made["args"] if isinstance(made["args"], str) else json.dumps(made["args"])
        yield _chunk(message, tool_call_chunks=[tool_call_chunk(name=made["name"], args="", id=made["id"], index=number)])
        for start in range(0, len(args), _PIECE):
            piece = tool_call_chunk(name=None, args=args[start : start + _PIECE], id=None, index=number)
            yield _chunk(message, tool_call_chunks=[piece])
    if not broken:
        yield _chunk(
            message,
            usage_metadata=message.usage_metadata,
            response_metadata=message.response_metadata,
            additional_kwargs=message.additional_kwargs,
            chunk_position="last",
        )


def _chunk(message: AIMessage, **parts: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(**{"content": "", "id": message.id, **parts}))
