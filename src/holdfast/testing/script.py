"""What a scripted model is told to do: the steps of a script, and the request that each step answers.

A step is a plain text, an `AIMessage`, a list of `call(...)`, one of the values made by the functions here, or a function
of the `Request` that returns any of these. `ScriptedModel` in `models.py` plays them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

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
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage
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
    """The same step several times, or for ever."""

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
    """The same step `times` times; without a number, for all further calls."""
    return Repeat(step, times)
