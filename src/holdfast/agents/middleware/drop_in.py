"""What somebody relies on who changes nothing but the import of LangChain's middleware: its arguments, errors and hooks (S16).

`sizes` reads its arguments `trigger` and `keep`, the deprecated ones too. `ListCounter` counts with a function over a list of messages.
`LangChainHooks` are the methods of LangChain's middleware that others call: `before_model`, for a graph of one's own.
"""

from __future__ import annotations

import asyncio
import logging
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypedDict

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, RemoveMessage
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from holdfast.agents.middleware.thread_data import adrive, drive, thread_of
from holdfast.config import memory_sections as written
from holdfast.context.triggers import AllOf, AnyOf, Fraction, Messages, Size, Tokens, Trigger, parse_keep, parse_trigger
from holdfast.errors import ConfigError, WrongType, WrongValue
from holdfast.events import Bus, Event
from holdfast.tokens.counter import BaseCounter, TokenCounter
from holdfast.tokens.usage import Usage

if TYPE_CHECKING:
    from holdfast.context.window import ContextWindow, WindowLimits

KEEP: tuple[Literal["messages"], int] = ("messages", 20)
_KINDS = ("tokens", "messages", "fraction")
_OURS = (AllOf, AnyOf, Fraction, Messages, Tokens)
_ALIASES = {"amazon_bedrock": ("bedrock", "bedrock_converse"), "openai-mantle": ("openai",), "anthropic-mantle": ("anthropic",)}
"""Names of providers in messages, by the name in traces, where they differ."""


ContextSize = tuple[Literal["fraction"], float] | tuple[Literal["tokens"], int] | tuple[Literal["messages"], int]
"""LangChain's form of a size: `("fraction", 0.8)`, `("tokens", 4000)`, `("messages", 50)`."""


class TriggerClause(TypedDict, total=False):
    """LangChain's mapping of thresholds, all of which have to be met."""

    tokens: int
    messages: int
    fraction: float


class WrittenSize(TypedDict):
    """A size as the configuration writes it: `{type: fraction, value: 0.8}`."""

    type: Literal["fraction", "tokens", "messages"]
    value: float


class WrittenClause(TypedDict):
    """Several sizes as the configuration writes them, all of which have to be met."""

    all: Sequence[WrittenSize]


TriggerEntry = Size | AllOf | ContextSize | TriggerClause | WrittenSize | WrittenClause | written.Trigger
TriggerSpec = AnyOf | TriggerEntry | Sequence[TriggerEntry]
"""When to compact: one condition, or a list of which one is enough."""
KeepSpec = Size | ContextSize | WrittenSize | written.Condition
"""How much of the newest conversation stays."""


class Deprecated(TypedDict, total=False):
    """Arguments that LangChain's class still takes."""

    max_tokens_before_summary: int | None
    messages_to_keep: int


def sizes(trigger: Any, keep: Any, deprecated: Mapping[str, Any]) -> tuple[Trigger, Size, Any, Any]:
    """The policies, and what they were made of. Errors are ConfigErrors, and ValueError or TypeError as LangChain's are."""
    unknown = deprecated.keys() - {"max_tokens_before_summary", "messages_to_keep"}
    if unknown:
        raise TypeError(f"SummarizationMiddleware() got an unexpected keyword argument {min(unknown)!r}")
    if (most := deprecated.get("max_tokens_before_summary")) is not None or "max_tokens_before_summary" in deprecated:
        _warn("max_tokens_before_summary is deprecated. Use trigger=('tokens', value) instead.")
        trigger = ("tokens", most) if trigger is None and most is not None else trigger
    if "messages_to_keep" in deprecated:
        _warn("messages_to_keep is deprecated. Use keep=('messages', value) instead.")
        keep = ("messages", deprecated["messages_to_keep"]) if keep == KEEP else keep
    _check_trigger(trigger)
    _check_pair(keep, "keep")
    try:
        made = parse_trigger(trigger), parse_keep(keep)
    except ConfigError as error:
        raise WrongValue(error.message, key=error.key, hint=error.hint) from error
    return *made, _copied(trigger), keep


def _warn(message: str) -> None:
    warnings.warn(message, DeprecationWarning, stacklevel=4)


def _copied(trigger: Any) -> Any:
    if isinstance(trigger, Mapping):
        return dict(trigger)
    return [dict(item) if isinstance(item, Mapping) else item for item in trigger] if isinstance(trigger, list) else trigger


def _check_trigger(trigger: Any) -> None:
    if trigger is None or isinstance(trigger, _OURS) or hasattr(trigger, "model_fields"):
        return
    if isinstance(trigger, Mapping):
        _check_clause(trigger)
    elif isinstance(trigger, tuple) or (isinstance(trigger, list) and _is_pair(trigger)):
        _check_pair(trigger, "trigger")
    elif isinstance(trigger, list):
        for item in trigger:
            if isinstance(item, str | int | float) or item is None:
                raise WrongType(f"Unsupported trigger item type: {type(item)}", key="trigger", hint="For example ('tokens', 4000).")
            _check_trigger(item)
    else:
        raise WrongType(f"Unsupported trigger type: {type(trigger)}", key="trigger", hint="For example ('tokens', 4000).")


def _check_clause(clause: Mapping[Any, Any]) -> None:
    """LangChain's mapping, all of whose thresholds have to be met; a mapping of the configuration's is checked where it is read."""
    if not clause:
        raise WrongValue("trigger clause must specify at least one of 'tokens', 'messages', 'fraction'", key="trigger")
    if clause.keys() & {"type", "all"}:
        return
    for kind, value in clause.items():
        if kind not in _KINDS:
            raise WrongValue(f"Unsupported trigger metric: {kind!r}", key="trigger", hint=f"Use one of {', '.join(_KINDS)}.")
        if isinstance(value, bool):
            raise WrongValue(f"{kind} trigger value must be numeric, got {value!r}", key="trigger")
        if kind == "fraction" and not isinstance(value, int | float):
            raise WrongValue(f"Fraction trigger values must be numeric, got {value!r}", key="trigger")
        if kind != "fraction" and not isinstance(value, int):
            raise WrongValue(f"{kind} trigger values must be integers, got {value!r}", key="trigger")
        _check_pair((kind, value), "trigger")


def _check_pair(pair: Any, name: str) -> None:
    if not _is_pair(pair):
        return
    kind, value = pair
    if kind not in _KINDS:
        raise WrongValue(f"Unsupported context size type {kind} for {name}.", key=name, hint=f"Use one of {', '.join(_KINDS)}.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    if kind == "fraction" and not 0 < value <= 1:
        raise WrongValue(f"Fractional {name} values must be between 0 and 1, got {value}.", key=name)
    if kind != "fraction" and value <= 0:
        raise WrongValue(f"{name} thresholds must be greater than 0, got {value}.", key=name)


def _is_pair(spec: Any) -> bool:
    return isinstance(spec, list | tuple) and len(spec) == 2 and isinstance(spec[0], str) and not isinstance(spec[1], str)


@dataclass(frozen=True, kw_only=True)
class CounterFailed(Event):
    """A token counter that was given raised. Our own count takes its place."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "The token counter failed ({reason}); our own count is used"
    reason: str


class ListCounter(BaseCounter):
    """Counts with LangChain's kind of counter: a function that is given a whole history and says its tokens.

    The function is never given a part of one: what it says of a list need not be the sum over its messages, and a server that is asked
    refuses a result without its call. Single messages and texts are counted by `own`; sums over a history are brought to what the function
    says (`count_list`).
    """

    def __init__(self, count: Callable[..., int], own: TokenCounter, bus: Bus) -> None:
        super().__init__()
        self.function, self._own, self._bus, self._failed = count, own, bus, False

    def count_text(self, text: str) -> int:
        return self._own.count_text(text)

    def count_message(self, message: Any) -> int:
        return self._own.count_message(message)

    def count_list(self, messages: Sequence[Any]) -> int:
        """What the function says; our own sum where it raises, which is said once."""
        if not messages:
            return 0
        try:
            return max(0, int(self.function(list(messages))))
        except Exception as error:  # noqa: BLE001 - it is the user's code and may ask a server: no reason to end the run
            if not self._failed:
                self._bus.emit(CounterFailed(reason=f"{type(error).__name__}: {error}"))
            self._failed = True
            return sum(map(self.count_message, messages))


def reported_tokens(messages: Sequence[Any], model: BaseChatModel | None) -> int:
    """What the provider said of the newest answer, its own tokens included; 0 where it was another provider or said nothing."""
    newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    usage = Usage.read(newest) if newest is not None else None
    said = newest.response_metadata.get("model_provider") if newest is not None else None
    if usage is None or model is None or not isinstance(said, str):
        return 0
    known = str(model._get_ls_params().get("ls_provider") or "")
    return usage.total if said == known or said in _ALIASES.get(known, ()) else 0


class LangChainHooks:
    """The hooks of LangChain's middleware, for those who call them: a graph of one's own, a subclass.

    In `create_agent` the work is done around the model call, so the class itself has no `before_model`: a node of its own would cost every
    call a step.
    """

    context_window: ContextWindow
    model: BaseChatModel | None
    _unnamed: str

    def _own_limits(self, messages: Sequence[Any]) -> WindowLimits:
        raise NotImplementedError

    def _do(self, thread: str, want: Any) -> Any:
        raise NotImplementedError

    async def _ado(self, thread: str, want: Any) -> Any:
        raise NotImplementedError

    def _before_model(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:
        """The update that compacts the state, or None."""
        messages, thread = state["messages"], thread_of(runtime) or self._unnamed
        room = self._own_limits(messages)
        if self.context_window.is_quiet(thread, messages, room):
            return None
        return self._update(thread, drive(self.context_window.prepare(thread, messages, room), lambda want: self._do(thread, want)))

    async def _abefore_model(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:
        """As `before_model`, awaited."""
        messages, thread = state["messages"], thread_of(runtime) or self._unnamed
        room = await asyncio.to_thread(self._own_limits, messages)
        if self.context_window.is_quiet(thread, messages, room):
            return None
        work = self.context_window.prepare(thread, messages, room)
        return self._update(thread, await adrive(work, lambda want: self._ado(thread, want), away=True))

    def _update(self, thread: str, prepared: Any) -> dict[str, Any] | None:
        if not prepared.changed:
            return None
        self.context_window.stored(thread)
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *prepared.messages]}

    def _should_summarize(self, messages: Sequence[Any], total_tokens: int) -> bool:
        """Whether a trigger is met by so many tokens, or by what the provider reported."""
        room = self._own_limits(messages)
        return self.context_window.policy.trigger.met(room.seen(room.measure(total_tokens, len(messages)))) is not None
