"""When to compact and how much to keep, as values (S2, S3).

`AnyOf(Fraction(0.8), Messages(50))` is a policy; `parse_trigger` and `parse_keep` make one from the configuration's mappings and from
LangChain's tuples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from holdfast.errors import ConfigError


class Measure(NamedTuple):
    """How large a request is: all its tokens (system part and tools included), its messages, and the window of the model that
    will read it."""

    tokens: int
    messages: int
    window: int


@dataclass(frozen=True)
class Fraction:
    """A share of the run model's window."""

    value: float

    def reached(self, measure: Measure) -> bool:
        return measure.tokens >= self.value * measure.window

    def tokens(self, window: int) -> int | None:
        """The limit in tokens."""
        return int(self.value * window)


@dataclass(frozen=True)
class Tokens:
    """A number of tokens."""

    value: int

    def reached(self, measure: Measure) -> bool:
        return measure.tokens >= self.value

    def tokens(self, window: int) -> int | None:
        return self.value


@dataclass(frozen=True)
class Messages:
    """A number of messages."""

    value: int

    def reached(self, measure: Measure) -> bool:
        return measure.messages >= self.value

    def tokens(self, window: int) -> int | None:
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

_KINDS: dict[str, type[Fraction] | type[Tokens] | type[Messages]] = {"fraction": Fraction, "tokens": Tokens, "messages": Messages}


def parse_trigger(spec: Any) -> Trigger:
    """A policy from `{type, value}`, `(type, value)`, `{all: [...]}`, LangChain's clause mapping `{"tokens": 4000, "messages":
    10}`, or a list of them."""
    if spec is None:
        return Never
    if isinstance(spec, AnyOf):
        return spec
    if isinstance(spec, AllOf | Fraction | Tokens | Messages):
        return AnyOf((spec,))
    if isinstance(spec, Mapping) or _is_pair(spec):
        return AnyOf((_entry(spec),))
    if isinstance(spec, Sequence) and not isinstance(spec, str):
        return AnyOf(tuple(_entry(part) for part in spec))
    raise _wrong(spec)


def parse_keep(spec: Any) -> Size:
    """One amount to keep."""
    if isinstance(spec, Fraction | Tokens | Messages):
        return spec
    entry = _entry(spec)
    if isinstance(entry, AllOf):
        raise ConfigError("keep is one amount, not several.", key="keep", hint="For example {type: messages, value: 20}.")
    return entry


def _entry(spec: Any) -> Size | AllOf:
    if isinstance(spec, AllOf | Fraction | Tokens | Messages):
        return spec
    if _is_pair(spec):
        return _size(spec[0], spec[1])
    kind, value = getattr(spec, "type", None), getattr(spec, "value", None)
    if isinstance(kind, str):
        return _size(kind, value)
    every = spec.get("all") if isinstance(spec, Mapping) else getattr(spec, "all", None)
    if every is not None and not callable(every):
        return AllOf(tuple(size for part in every for size in [_entry(part)] if not isinstance(size, AllOf)))
    if isinstance(spec, Mapping):
        if "type" in spec:
            return _size(spec["type"], spec.get("value"))
        sizes = tuple(_size(kind, value) for kind, value in spec.items())
        if sizes:
            return sizes[0] if len(sizes) == 1 else AllOf(sizes)
    raise _wrong(spec)


def _size(kind: Any, value: Any) -> Size:
    if kind not in _KINDS or isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong((kind, value))
    if kind == "fraction":
        if not 0 < value <= 1:
            raise ConfigError(f"a fraction is above 0 and at most 1, not {value}.", key="fraction")
        return Fraction(float(value))
    if value < 1 or value != int(value):
        raise ConfigError(f"{kind} is a whole number of at least 1, not {value}.", key=str(kind))
    return _KINDS[kind](int(value))


def _is_pair(spec: Any) -> bool:
    return isinstance(spec, list | tuple) and len(spec) == 2 and isinstance(spec[0], str)


def _wrong(spec: Any) -> ConfigError:
    return ConfigError(
        f"{spec!r} is not a size.", hint="Use {type: fraction | tokens | messages, value: ...} or a pair such as ('tokens', 4000)."
    )
