"""When to compact and how much to keep, as values, and how people write them (S2, S3).

`AnyOf((Fraction(0.8), Messages(50)))` is a policy. `parse_trigger` and `parse_keep` make one from whatever the configuration takes,
LangChain's tuples and mappings among it; `read_trigger` and `read_size` do that for a section of the file. `sizes` reads the arguments
`trigger` and `keep` of LangChain's middleware, the deprecated ones too, with its errors.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypedDict, TypeVar

from holdfast.config.section import MISSING, Misfit, described
from holdfast.errors import ConfigError, WrongType, WrongValue
from holdfast.validation import place_of


class Measure(NamedTuple):
    """How large a request is: all its tokens, its messages, the window of the model that will read it, and how many of the tokens are not
    the messages' (system part and tools). Tokens are the model's own, as far as it told us how it counts."""

    tokens: int
    messages: int
    window: int
    fixed: int = 0

    @property
    def history(self) -> int:
        """The tokens of the messages alone."""
        return self.tokens - self.fixed


@dataclass(frozen=True)
class Fraction:
    """A share of the run model's window; as a trigger, of the whole request."""

    type: Literal["fraction"] = field(default="fraction", kw_only=True, repr=False)
    value: float

    def reached(self, measure: Measure) -> bool:
        return measure.tokens >= self.value * measure.window

    def limit(self, window: int, fixed: int) -> int | None:
        """The tokens of a whole request at which this is reached; None where tokens do not decide."""
        return int(self.value * window)


@dataclass(frozen=True)
class Tokens:
    """A number of tokens; as a trigger, of the message history."""

    type: Literal["tokens"] = field(default="tokens", kw_only=True, repr=False)
    value: int

    def reached(self, measure: Measure) -> bool:
        return measure.history >= self.value

    def limit(self, window: int, fixed: int) -> int | None:
        return self.value + fixed


@dataclass(frozen=True)
class Messages:
    """A number of messages of the history; a summary is none of them."""

    type: Literal["messages"] = field(default="messages", kw_only=True, repr=False)
    value: int

    def reached(self, measure: Measure) -> bool:
        return measure.messages >= self.value

    def limit(self, window: int, fixed: int) -> int | None:
        return None


Size = Fraction | Tokens | Messages
"""One condition, or one amount to keep."""


@dataclass(frozen=True)
class AllOf:
    """Reached when every condition is."""

    all: tuple[Size, ...]

    def reached(self, measure: Measure) -> bool:
        return all(size.reached(measure) for size in self.all)


@dataclass(frozen=True)
class AnyOf:
    """Reached when one of the entries is. `met` says which, for the log."""

    entries: tuple[Size | AllOf, ...]

    def met(self, measure: Measure) -> Size | AllOf | None:
        for entry in self.entries:
            if entry.reached(measure):
                return entry
        return None


Never = AnyOf(())
"""No trigger: only the hard cap and a person's request compact."""

Trigger = AnyOf

_KINDS: dict[str, type[Size]] = {"fraction": Fraction, "tokens": Tokens, "messages": Messages}
_FORM = "must be {type: fraction|tokens|messages, value: ...}"
_T = TypeVar("_T")


def parse_trigger(spec: Any) -> Trigger:
    """A policy, or anything that `trigger` in the configuration may be. Raises ConfigError."""
    if isinstance(spec, AnyOf):
        return spec
    entries = _parsed(read_trigger, spec, "trigger")
    return AnyOf(entries or ())


def parse_keep(spec: Any) -> Size:
    """One amount to keep."""
    return _parsed(read_size, spec, "keep")


def _parsed(read: Callable[[Any], _T], spec: Any, key: str) -> _T:
    try:
        return read(spec)
    except Misfit as misfit:
        place = place_of((key, *misfit.at))
        found = "" if misfit.found is MISSING else f", not {described(misfit.found)}"
        raise ConfigError(
            f"{place} {misfit.wanted}{found}.", key=place, hint="For example ('tokens', 4000) or {type: messages, value: 20}."
        ) from misfit


def read_size(value: Any) -> Size:
    """A size from `{type, value}`, `[type, value]`, or itself. Raises Misfit with the path of the part that is wrong."""
    if isinstance(value, Size):
        return value
    if _is_pair(value):
        return _size(value[0], value[1], 0, 1)
    if not isinstance(value, Mapping):
        raise Misfit(_FORM, found=value)
    for key in value:
        if key not in ("type", "value"):
            raise Misfit(f"has no key of this name; it {_FORM}", key)
    for key in ("type", "value"):
        if key not in value:
            raise Misfit(f"needs `{key}`: it {_FORM}")
    return _size(value["type"], value["value"], "type", "value")


def _size(kind: Any, size: Any, kind_at: str | int, size_at: str | int) -> Size:
    if not isinstance(kind, str) or kind not in _KINDS:
        raise Misfit("must be one of fraction, tokens, messages", kind_at, found=kind)
    number = _number(size)
    if number is None:
        raise Misfit("must be a number", size_at, found=size)
    if kind == "fraction":
        if not 0 < number <= 1:
            raise Misfit("must be more than 0 and at most 1 for a fraction", size_at, found=size)
        return Fraction(float(number))
    if number < 1 or number != int(number):
        raise Misfit(f"must be a whole number of {kind}, 1 or more", size_at, found=size)
    return _KINDS[kind](int(number))


def _number(size: Any) -> float | int | None:
    if isinstance(size, str):  # from the environment, or a number in quotes
        try:
            size = float(size) if len(size) < 40 else math.nan
        except ValueError:
            return None
    if isinstance(size, bool) or not isinstance(size, int | float) or not -1e15 < size < 1e15:
        return None
    return size


def read_trigger(value: Any) -> tuple[Size | AllOf, ...] | None:
    """The entries of `trigger`, any of which is enough: one condition or a list; an entry `{all: [...]}` needs all of its conditions."""
    if value is None:
        return None
    if isinstance(value, Size | AllOf | Mapping) or _is_pair(value):
        return (_entry(value),)
    if not isinstance(value, list | tuple):
        raise Misfit(f"{_FORM}, or a list of such", found=value)
    return tuple(_inside(index, _entry, entry) for index, entry in enumerate(value))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)


def _entry(value: Any) -> Size | AllOf:
    if isinstance(value, AllOf):
        return value
    if isinstance(value, Mapping) and value and all(kind in _KINDS for kind in value):  # LangChain's clauses: {tokens: 4000, messages: 10}
        sizes = tuple(_size(kind, size, kind, kind) for kind, size in value.items())
        return sizes[0] if len(sizes) == 1 else AllOf(sizes)
    if not (isinstance(value, Mapping) and "all" in value):
        return read_size(value)
    conditions = value["all"]
    if len(value) > 1:
        raise Misfit("stands alone: put the other condition into its list", "all")
    if not isinstance(conditions, list | tuple) or not conditions:
        raise Misfit("must be a list of conditions", "all")
    if _is_pair(conditions):
        conditions = [conditions]
    return AllOf(tuple(_inside("all", _inside, index, read_size, entry) for index, entry in enumerate(conditions)))


def _inside(at: str | int, read: Any, *arguments: Any) -> Any:
    """Read a part, and say where it is when it does not fit."""
    try:
        return read(*arguments)
    except Misfit as misfit:
        raise Misfit(misfit.wanted, at, *misfit.at, found=misfit.found) from None


# The arguments of LangChain's middleware, read as ours: who changes nothing but the import relies on them, and on their errors (S16)


KEEP: tuple[Literal["messages"], int] = ("messages", 20)
_OURS = (AllOf, AnyOf, Fraction, Messages, Tokens)


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


TriggerEntry = Size | AllOf | ContextSize | TriggerClause | WrittenSize | WrittenClause
TriggerSpec = AnyOf | TriggerEntry | Sequence[TriggerEntry]
"""When to compact: one condition, or a list of which one is enough."""
KeepSpec = Size | ContextSize | WrittenSize
"""How much of the newest conversation stays."""


class Deprecated(TypedDict, total=False):
    """Arguments that LangChain's class still takes."""

    max_tokens_before_summary: int | None
    messages_to_keep: int
    summary_prefix: str


def sizes(trigger: Any, keep: Any, deprecated: Mapping[str, Any]) -> tuple[Trigger, Size, Any, Any]:
    """The policies, and what they were made of. Errors are ConfigErrors, and ValueError or TypeError as LangChain's are."""
    unknown = deprecated.keys() - {"max_tokens_before_summary", "messages_to_keep", "summary_prefix"}
    if unknown:
        raise TypeError(f"SummarizationMiddleware() got an unexpected keyword argument {min(unknown)!r}")
    if (most := deprecated.get("max_tokens_before_summary")) is not None or "max_tokens_before_summary" in deprecated:
        _warn("max_tokens_before_summary is deprecated. Use trigger=('tokens', value) instead.")
        trigger = ("tokens", most) if trigger is None and most is not None else trigger
    if "messages_to_keep" in deprecated:
        _warn("messages_to_keep is deprecated. Use keep=('messages', value) instead.")
        keep = ("messages", deprecated["messages_to_keep"]) if keep == KEEP else keep
    if "summary_prefix" in deprecated:
        _warn("summary_prefix is deprecated and has no effect: a summary says itself what it is.")
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
    elif isinstance(trigger, tuple) or (isinstance(trigger, list) and _is_size(trigger)):
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
    if not _is_size(pair):
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


def _is_size(spec: Any) -> bool:
    return _is_pair(spec) and not isinstance(spec[1], str)
