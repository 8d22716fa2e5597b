"""Sizes of a conversation as settings: when to summarize (`trigger`) and how much to keep (`keep`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.config.problems import Misfit

Kind = Literal["fraction", "tokens", "messages"]
_KINDS = ("fraction", "tokens", "messages")
_FORM = "must be {type: fraction|tokens|messages, value: ...}"


@dataclass(frozen=True)
class Condition:
    """A size: a fraction of the window, a number of tokens or of messages. As a trigger it is met when it is reached (>=)."""

    type: Kind
    value: float | int


@dataclass(frozen=True)
class AllOf:
    """Met when every one of its conditions is."""

    all: tuple[Condition, ...]


Trigger = Condition | AllOf


def read_condition(value: Any) -> Condition:
    """A condition from `{type, value}`, `[type, value]`, or itself. Raises Misfit with the path of the part that is wrong."""
    if isinstance(value, Condition):
        return value
    if isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str):
        return _condition(value[0], value[1], 0, 1)
    if not isinstance(value, Mapping):
        raise Misfit(_FORM, found=value)
    for key in value:
        if key not in ("type", "value"):
            raise Misfit(f"has no key of this name; it {_FORM}", key)
    for key in ("type", "value"):
        if key not in value:
            raise Misfit(f"needs `{key}`: it {_FORM}")
    return _condition(value["type"], value["value"], "type", "value")


def _condition(kind: Any, size: Any, kind_at: str | int, size_at: str | int) -> Condition:
    if kind not in _KINDS:
        raise Misfit("must be one of fraction, tokens, messages", kind_at, found=kind)
    number = _number(size)
    if number is None:
        raise Misfit("must be a number", size_at, found=size)
    if kind == "fraction":
        if not 0 < number <= 1:
            raise Misfit("must be more than 0 and at most 1 for a fraction", size_at, found=size)
        return Condition(kind, float(number))
    if number < 1 or number != int(number):
        raise Misfit(f"must be a whole number of {kind}, 1 or more", size_at, found=size)
    return Condition(kind, int(number))


def _number(size: Any) -> float | int | None:
    if isinstance(size, str):  # from the environment, or a number in quotes
        try:
            size = float(size) if len(size) < 40 else math.nan
        except ValueError:
            return None
    if isinstance(size, bool) or not isinstance(size, int | float) or not -1e15 < size < 1e15:
        return None
    return size


def read_trigger(value: Any) -> tuple[Trigger, ...] | None:
    """The entries of `trigger`, any of which is enough: one condition or a list; an entry `{all: [...]}` needs all of its conditions."""
    if value is None:
        return None
    if isinstance(value, Condition | AllOf | Mapping) or _is_pair(value):
        return (_entry(value),)
    if not isinstance(value, list | tuple):
        raise Misfit(f"{_FORM}, or a list of such", found=value)
    return tuple(_inside(index, _entry, entry) for index, entry in enumerate(value))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and isinstance(value[0], str)


def _entry(value: Any) -> Trigger:
    if isinstance(value, AllOf):
        return value
    if not (isinstance(value, Mapping) and "all" in value):
        return read_condition(value)
    conditions = value["all"]
    if len(value) > 1:
        raise Misfit("stands alone: put the other condition into its list", "all")
    if not isinstance(conditions, list | tuple) or not conditions:
        raise Misfit("must be a list of conditions", "all")
    if _is_pair(conditions):
        conditions = [conditions]
    return AllOf(tuple(_inside("all", _inside, index, read_condition, entry) for index, entry in enumerate(conditions)))


def _inside(at: str | int, read: Any, *arguments: Any) -> Any:
    """Read a part, and say where it is when it does not fit."""
    try:
        return read(*arguments)
    except Misfit as misfit:
        raise Misfit(misfit.wanted, at, *misfit.at, found=misfit.found) from None
