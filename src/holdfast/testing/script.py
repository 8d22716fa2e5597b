"""What a scripted model is told to do: the steps of a script, and the request that each step answers.

A step is a plain text, an `AIMessage`, a list of `call(...)`, one of the values made by the functions here, or a function
of the `Request` that returns any of these. `ScriptedModel` in `models.py` plays them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
    ModelTimeoutError,
)
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from pydantic import BaseModel

from holdfast.errors import InputError

ERRORS: Mapping[str, type[Exception]] = {
    "overflow": ContextOverflowError,
    "rate_limit": ModelRateLimitError,
    "timeout": ModelTimeoutError,
    "connection": ModelConnectionError,
    "server": ModelAPIError,
    "invalid": ModelInvalidRequestError,
    "unauthorized": ModelAuthenticationError,
    "forbidden": ModelPermissionDeniedError,
    "not_found": ModelNotFoundError,
}
"""Short names for the typed errors of LangChain that a provider's client raises."""


class Computed:
    """The mark for usage that the model counts itself."""

    def __repr__(self) -> str:
        return "COMPUTED"


COMPUTED = Computed()
Usage: TypeAlias = "Mapping[str, Any] | Computed | None"


@dataclass(frozen=True)
class Request:
    """What was sent in one call. `number` counts the calls of a model from 1; messages are copies as they were then."""

    number: int
    messages: tuple[BaseMessage, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_choice: Any = None
    response_format: Any = None
    stop: tuple[str, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    thread: str = ""
    streamed: bool = False
    asynchronous: bool = False

    @property
    def last(self) -> BaseMessage:
        return self.messages[-1]

    @property
    def system(self) -> str:
        """All system texts, one under the other."""
        return "\n".join(message.text for message in self.messages if isinstance(message, SystemMessage))

    @property
    def text(self) -> str:
        """Everything that was sent, as `type: text` lines, for a test that only asks whether something is in it."""
        return "\n".join(f"{message.type}: {message.text}" for message in self.messages)

    @property
    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool_name(tool) for tool in self.tools)


def tool_name(tool: Mapping[str, Any]) -> str:
    """The name in a tool definition: OpenAI's form, or a provider's own."""
    function = tool.get("function")
    return str(function["name"] if isinstance(function, Mapping) else tool.get("name") or tool.get("type") or "")


@dataclass(frozen=True)
class Call:
    """One tool call. `args` as text is sent as it is, so that broken JSON can be scripted."""

    name: str
    args: Mapping[str, Any] | str = field(default_factory=dict)
    id: str | None = None


@dataclass(frozen=True)
class Reply:
    """An answer: text or content blocks, tool calls, the reported usage, and why it ended."""

    content: str | Sequence[Mapping[str, Any]] = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = COMPUTED
    finish_reason: str | None = None
    id: str | None = None


@dataclass(frozen=True)
class Structured:
    """A value in the form that was asked for: a call of the output tool, or JSON text when a response format was sent."""

    value: Any
    tool: str | None = None
    usage: Usage = COMPUTED


@dataclass(frozen=True)
class Failure:
    """An error instead of an answer; when streamed, after the text `after` has been sent."""

    error: BaseException | type[BaseException]
    after: str = ""


@dataclass(frozen=True)
class Delay:
    """Waits before the answer and, when streamed, `pace` seconds before every further piece."""

    seconds: float
    then: Step
    pace: float = 0.0


@dataclass(frozen=True)
class Hostile:
    """A bad answer by name, made to fit what was asked."""

    name: str
    size: int = 20_000


@dataclass(frozen=True)
class Repeat:
    """One step several times, or for ever."""

    step: Step
    times: int | None = None


Answer: TypeAlias = "str | AIMessage | Call | Sequence[Call] | Reply | Structured | Mapping[str, Any] | BaseModel"
Step: TypeAlias = "Answer | Failure | BaseException | Delay | Hostile | Repeat | Callable[[Request], Any]"


def call(name: str, args: Mapping[str, Any] | str | None = None, *, id: str | None = None) -> Call:
    """A tool call. Several in a list are parallel calls: `[call("ls"), call("read", {"path": "a"})]`."""
    return Call(name, {} if args is None else args, id)


def reply(
    content: str | Sequence[Mapping[str, Any]] = "",
    *calls: Call,
    usage: Usage = COMPUTED,
    finish_reason: str | None = None,
    id: str | None = None,
) -> Reply:
    """An answer with text and calls. `usage=None` reports none; a mapping is reported as it is, right or wrong."""
    return Reply(content, calls, usage, finish_reason, id)


def structured(value: Any, *, tool: str | None = None, usage: Usage = COMPUTED) -> Structured:
    """An answer in the schema that was asked for. `tool` names the output tool where several would fit."""
    return Structured(value, tool, usage)


def raises(error: BaseException | type[BaseException] | str, message: str | None = None, *, after: str = "") -> Failure:
    """An error: an instance, a class, or one of the names in `ERRORS`."""
    if isinstance(error, str):
        kind = ERRORS.get(error)
        if kind is None:
            raise InputError(f"no error is called {error!r}.", hint=f"Use one of {', '.join(ERRORS)}, or give the exception itself.")
        return Failure(kind(message or f"scripted: {error}"), after)
    if isinstance(error, type):
        return Failure(error(message or "scripted") if issubclass(error, Exception) else error, after)
    return Failure(error, after)


def delay(seconds: float, then: Step, *, pace: float = 0.0) -> Delay:
    """Wait on the model's clock, then do `then`. `pace` is waited between the pieces of a streamed answer."""
    return Delay(seconds, then, pace)


def repeat(step: Step, times: int | None = None) -> Repeat:
    """One step `times` times; without a number, for all further calls."""
    return Repeat(step, times)


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
