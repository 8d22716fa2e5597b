"""When to compact and how much to keep, as values (S2, S3).

`AnyOf(Fraction(0.8), Messages(50))` is a policy; `parse_trigger` and `parse_keep` make one from whatever the configuration takes
(`config/memory_sections.py` reads it), LangChain's tuples and mappings among it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from holdfast.config import memory_sections as written
from holdfast.config.problems import MISSING, Misfit, described
from holdfast.errors import ConfigError


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

    value: float

    def reached(self, measure: Measure) -> bool:
        return measure.tokens >= self.value * measure.window

    def limit(self, window: int, fixed: int) -> int | None:
        """The tokens of a whole request at which this is reached; None where tokens do not decide."""
        return int(self.value * window)


@dataclass(frozen=True)
class Tokens:
    """A number of tokens; as a trigger, of the message history."""

    value: int

    def reached(self, measure: Measure) -> bool:
        return measure.history >= self.value

    def limit(self, window: int, fixed: int) -> int | None:
        return self.value + fixed


@dataclass(frozen=True)
class Messages:
    """A number of messages of the history; a summary is none of them."""

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

    sizes: tuple[Size, ...]

    def reached(self, measure: Measure) -> bool:
        return all(size.reached(measure) for size in self.sizes)


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

_POLICIES = (AllOf, Fraction, Tokens, Messages)
_T = TypeVar("_T")


def parse_trigger(spec: Any) -> Trigger:
    """A policy, one entry of it, or anything that `trigger` in the configuration may be. Raises ConfigError."""
    if spec is None:
        return Never
    if isinstance(spec, AnyOf):
        return spec
    if isinstance(spec, _POLICIES):
        return AnyOf((spec,))
    if isinstance(spec, list | tuple) and any(isinstance(part, _POLICIES) for part in spec):
        return AnyOf(tuple(entry for part in spec for entry in parse_trigger(part).entries))
    return AnyOf(tuple(_policy(entry) for entry in _read(written.read_trigger, spec, "trigger") or ()))


def parse_keep(spec: Any) -> Size:
    """One amount to keep."""
    if isinstance(spec, Fraction | Tokens | Messages):
        return spec
    return _size(_read(written.read_condition, spec, "keep"))


def _read(read: Callable[[Any], _T], spec: Any, key: str) -> _T:
    try:
        return read(spec)
    except Misfit as misfit:
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in misfit.at)
        found = "" if misfit.found is MISSING else f", not {described(misfit.found)}"
        raise ConfigError(
            f"{key}{path} {misfit.wanted}{found}.", key=f"{key}{path}", hint="For example ('tokens', 4000) or {type: messages, value: 20}."
        ) from misfit


def _policy(entry: written.Trigger) -> Size | AllOf:
    return AllOf(tuple(map(_size, entry.all))) if isinstance(entry, written.AllOf) else _size(entry)


def _size(condition: written.Condition) -> Size:
    if condition.type == "fraction":
        return Fraction(float(condition.value))
    return Tokens(int(condition.value)) if condition.type == "tokens" else Messages(int(condition.value))
