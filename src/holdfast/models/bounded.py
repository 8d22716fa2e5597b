"""Makes a JSON schema safe for a small model that is held to it token by token.

An answer that is cut at `max_tokens` is not JSON, and small models loop: so every text, list, number and map gets a bound,
chosen so that the longest possible answer still fits. A number between 0 and 1 is asked as a whole percentage, which small
models get right more often, and turned back by `restore`. A character is counted as a token, the worst case of plain text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from holdfast.errors import InputError

Schema: TypeAlias = Mapping[str, Any]
_SHORT_TEXT, _LONG_TEXT = 8, 200  # a text is given at least the one and at most wishes for the other
_FEW_ITEMS, _MOST_ITEMS = 3, 64
_WISH = 600  # no part wishes for more than this, or nested lists would leave nothing for the others
_KEY = 24  # characters of a key in a free map
_BIGGEST = 10**15
_FORMATS = {"date": 12, "time": 24, "date-time": 36, "duration": 26, "uuid": 38, "ipv4": 17, "ipv6": 41, "email": 66, "hostname": 66}
_DEPTH = 2  # how often a schema may contain itself


@dataclass(frozen=True)
class Bounded:
    """A schema with bounds. `size` is the length of its longest answer; `restore` turns an answer into what the caller asked for."""

    schema: dict[str, Any]
    size: int
    restore: Callable[[Any], Any]
    changes: bool = False  # whether `restore` does anything


def bound_schema(schema: Schema, max_tokens: int) -> Bounded:
    """Bound a schema so that its longest answer has at most `max_tokens` characters, written without spaces.

    Bounds that are tighter already are kept. Optional fields that do not fit are left out. Raises InputError when even the
    shortest answer would not fit, or the schema contains itself without an end.
    """
    node = _parse(schema, schema, ())
    if node is None:
        raise InputError("the schema contains itself without an end.", hint="Make one of the fields that lead back optional.")
    if node.floor() > max_tokens:
        raise InputError(
            f"the shortest answer in this schema has {node.floor()} characters, and max_tokens is {max_tokens}.",
            hint="Raise max_tokens, or ask for fewer fields.",
        )
    return node.fit(max_tokens)


def _same(value: Any) -> Any:
    return value


class _Node(Protocol):
    """A part of a schema that knows how long its answers can be."""

    def floor(self) -> int:
        """The fewest characters in which it can be answered usefully."""

    def want(self) -> int:
        """The characters that it would like to have."""

    def fit(self, budget: int) -> Bounded:
        """Itself, bounded to `budget`, which is never below `floor`."""

    def accepts(self, value: Any) -> bool:
        """Whether an answer looks like this one: to find the branch that was taken."""


@dataclass(frozen=True)
class _Fixed:
    """A value of a known greatest length: a constant, a choice of values, a number, a truth."""

    schema: dict[str, Any]
    size: int
    kinds: tuple[type, ...] = ()
    values: tuple[Any, ...] | None = None
    percent: bool = False

    def floor(self) -> int:
        return self.size

    def want(self) -> int:
        return self.size

    def fit(self, budget: int) -> Bounded:
        return Bounded(self.schema, self.size, _from_percent if self.percent else _same, self.percent)

    def accepts(self, value: Any) -> bool:
        if self.values is not None:
            return value in self.values
        return isinstance(value, self.kinds) and (bool in self.kinds or not isinstance(value, bool))


def _from_percent(value: Any) -> Any:
    return value / 100 if isinstance(value, int | float) and not isinstance(value, bool) else value


@dataclass(frozen=True)
class _Text:
    schema: dict[str, Any]
    least: int
    most: int | None

    def floor(self) -> int:
        return 2 + max(self.least, min(_SHORT_TEXT, self.most if self.most is not None else _SHORT_TEXT))

    def want(self) -> int:
        return 2 + max(self.least, min(_LONG_TEXT, self.most if self.most is not None else _LONG_TEXT))

    def fit(self, budget: int) -> Bounded:
        most = max(self.least, budget - 2 if self.most is None else min(self.most, budget - 2))
        return Bounded({**self.schema, "maxLength": most}, most + 2, _same)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str)


@dataclass(frozen=True)
class _List:
    item: _Node | None
    least: int
    most: int

    def floor(self) -> int:
        return 2 + (self.item.floor() + 1 if self.item else 0) * self.least

    def want(self) -> int:
        return max(self.floor(), min(_WISH, 2 + (self.item.want() + 1 if self.item else 0) * min(self.most, 8)))

    def fit(self, budget: int) -> Bounded:
        room = budget - 2
        if self.item is None or room <= self.item.floor():
            return Bounded({"type": "array", "items": {"type": "null"}, "maxItems": 0}, 2, _same)
        item = self.item
        roomy, tight = room // (item.want() + 1), room // (item.floor() + 1)
        count = max(self.least, min(self.most, max(roomy, min(tight, _FEW_ITEMS))))
        each = item.fit(room // max(count, 1) - 1)
        schema = {"type": "array", "items": each.schema, "minItems": self.least, "maxItems": count}

        def restore(value: Any) -> Any:
            return [each.restore(part) for part in value] if isinstance(value, list) else value

        return Bounded(schema, 2 + count * (each.size + 1), restore if each.changes else _same, each.changes)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, list)


@dataclass(frozen=True)
class _Record:
    """An object with named fields, or a list of fixed places when `keyed` is false."""

    fields: tuple[tuple[str, _Node, bool], ...]
    keyed: bool = True

    def _frame(self, key: str) -> int:
        return len(json.dumps(key)) + 2 if self.keyed else 1  # the key, a colon and a comma

    def floor(self) -> int:
        return 2 + sum(self._frame(key) + node.floor() for key, node, required in self.fields if required)

    def want(self) -> int:
        return max(self.floor(), min(_WISH, 2 + sum(self._frame(key) + node.want() for key, node, _ in self.fields)))

    def fit(self, budget: int) -> Bounded:
        left = budget - self.floor()
        taken: list[tuple[str, _Node, bool]] = []
        for key, node, required in self.fields:
            cost = 0 if required else self._frame(key) + node.floor()
            if cost <= left:
                left -= cost
                taken.append((key, node, required))
        wishes = sum(node.want() - node.floor() for _, node, _ in taken)
        parts: dict[str, Bounded] = {}
        for key, node, _ in taken:
            wish = node.want() - node.floor()
            parts[key] = node.fit(node.floor() + (left * wish // wishes if wishes else 0))
        size = 2 + sum(self._frame(key) + part.size for key, part in parts.items())
        changes = any(part.changes for part in parts.values())
        return Bounded(self._schema(parts, [key for key, _, required in taken if required]), size, self._restore(parts), changes)

    def _schema(self, parts: Mapping[str, Bounded], required: list[str]) -> dict[str, Any]:
        schemas = {key: part.schema for key, part in parts.items()}
        if not self.keyed:
            places = list(schemas.values())
            return {"type": "array", "prefixItems": places, "items": False, "minItems": len(places), "maxItems": len(places)}
        return {"type": "object", "properties": schemas, "required": required, "additionalProperties": False}

    def _restore(self, parts: Mapping[str, Bounded]) -> Callable[[Any], Any]:
        def restore(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: parts[key].restore(inner) if key in parts else inner for key, inner in value.items()}
            if isinstance(value, list):
                return [part.restore(inner) for part, inner in zip(parts.values(), value, strict=False)]
            return value

        return restore

    def accepts(self, value: Any) -> bool:
        if not self.keyed:
            return isinstance(value, list) and len(value) == len(self.fields)
        if not isinstance(value, dict):
            return False
        nodes = {key: node for key, node, _ in self.fields}
        known = set(value) <= set(nodes) and {key for key, _, required in self.fields if required} <= set(value)
        return known and all(nodes[key].accepts(inner) for key, inner in value.items())


@dataclass(frozen=True)
class _Map:
    """An object with free keys."""

    value: _Node
    least: int
    most: int

    def _entry(self, value: int) -> int:
        return _KEY + 4 + value

    def floor(self) -> int:
        return 2 + self.least * self._entry(self.value.floor())

    def want(self) -> int:
        return max(self.floor(), min(_WISH, 2 + min(self.most, 8) * self._entry(self.value.want())))

    def fit(self, budget: int) -> Bounded:
        room = budget - 2
        roomy, tight = room // self._entry(self.value.want()), room // self._entry(self.value.floor())
        count = max(self.least, min(self.most, max(roomy, min(tight, _FEW_ITEMS))))
        if count == 0:
            return Bounded({"type": "object", "properties": {}, "additionalProperties": False}, 2, _same)
        each = self.value.fit(room // count - self._entry(0))
        schema = {
            "type": "object",
            "patternProperties": {f"^[A-Za-z0-9_ .-]{{1,{_KEY}}}$": each.schema},
            "additionalProperties": False,
            "minProperties": self.least,
            "maxProperties": count,
        }

        def restore(value: Any) -> Any:
            return {key: each.restore(inner) for key, inner in value.items()} if isinstance(value, dict) else value

        return Bounded(schema, 2 + count * self._entry(each.size), restore if each.changes else _same, each.changes)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, dict)


@dataclass(frozen=True)
class _Choice:
    branches: tuple[_Node, ...]

    def floor(self) -> int:
        fixed = [branch.floor() for branch in self.branches if isinstance(branch, _Fixed)]  # `null` must not fall away for a character
        return max([min(branch.floor() for branch in self.branches), *fixed])

    def want(self) -> int:
        return max(branch.want() for branch in self.branches)

    def fit(self, budget: int) -> Bounded:
        fitting = [(branch, branch.fit(budget)) for branch in self.branches if branch.floor() <= budget]
        changes = any(part.changes for _, part in fitting)

        def restore(value: Any) -> Any:
            taken = next((part for branch, part in fitting if branch.accepts(value)), None)
            return taken.restore(value) if taken is not None else value

        return Bounded({"anyOf": [part.schema for _, part in fitting]}, max(part.size for _, part in fitting), restore, changes)

    def accepts(self, value: Any) -> bool:
        return any(branch.accepts(value) for branch in self.branches)


def _parse(schema: Any, root: Schema, stack: tuple[str, ...]) -> _Node | None:
    """The node of a schema; None where it leads back into itself for the third time."""
    if not isinstance(schema, Mapping):
        return _Text({"type": "string"}, 0, None)  # `true`, or nothing said: a text is the safest answer
    if "$ref" in schema:
        reference = str(schema["$ref"])
        return None if stack.count(reference) >= _DEPTH else _parse(_resolve(reference, root), root, (*stack, reference))
    if "const" in schema or "enum" in schema:
        values = tuple([schema["const"]] if "const" in schema else schema["enum"])
        compact = max(len(json.dumps(value, separators=(",", ":"))) for value in values)
        return _Fixed({"enum": list(values)}, compact, values=values)
    for several in ("anyOf", "oneOf"):
        if several in schema:
            return _choice([_parse(branch, root, stack) for branch in schema[several]])
    if "allOf" in schema:
        return _parse(_merged(schema, root), root, stack)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _choice([_parse({**schema, "type": one}, root, stack) for one in kind])
    if kind == "object" or "properties" in schema:
        return _object(schema, root, stack)
    if kind == "array" or "items" in schema or "prefixItems" in schema:
        return _array(schema, root, stack)
    return _scalar(schema, kind)


def _resolve(reference: str, root: Schema) -> Any:
    place: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        key = step.replace("~1", "/").replace("~0", "~")
        if not reference.startswith("#") or not isinstance(place, Mapping) or key not in place:
            raise InputError(f"the schema refers to {reference!r}, which is not in it.", hint="Put the definition under $defs.")
        place = place[key]
    return place


def _merged(schema: Schema, root: Schema) -> dict[str, Any]:
    merged: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in schema["allOf"]:
        known = _resolve(str(part["$ref"]), root) if "$ref" in part else part
        properties = {**merged.get("properties", {}), **known.get("properties", {})}
        required = [*merged.get("required", ()), *known.get("required", ())]
        merged = {**known, **merged, **({"properties": properties, "required": required} if properties else {})}
    return merged


def _choice(branches: list[_Node | None]) -> _Node | None:
    possible = tuple(branch for branch in branches if branch is not None)
    if len(possible) < 2:
        return possible[0] if possible else None
    return _Choice(possible)


def _object(schema: Schema, root: Schema, stack: tuple[str, ...]) -> _Node | None:
    required = set(schema.get("required", ()))
    fields: list[tuple[str, _Node, bool]] = []
    for key, part in schema.get("properties", {}).items():
        node = _parse(part, root, stack)
        if node is not None:
            fields.append((key, node, key in required))
        elif key in required:
            return None
    free = schema.get("additionalProperties", not fields)
    if fields or free is False:
        return _Record(tuple(fields))
    value = _parse(free, root, stack)
    least = int(schema.get("minProperties", 0))
    return (
        _Map(value, least, max(least, min(_MOST_ITEMS, int(schema.get("maxProperties", _MOST_ITEMS)))))
        if value is not None
        else _Record(())
    )


def _array(schema: Schema, root: Schema, stack: tuple[str, ...]) -> _Node | None:
    if places := schema.get("prefixItems"):
        nodes = [_parse(place, root, stack) for place in places]
        whole = [(str(number), node, True) for number, node in enumerate(nodes) if node is not None]
        return _Record(tuple(whole), keyed=False) if len(whole) == len(nodes) else None
    item = _parse(schema.get("items", True), root, stack)
    least = int(schema.get("minItems", 0))
    if item is None and least:
        return None
    return _List(item, least, max(least, min(_MOST_ITEMS, int(schema.get("maxItems", _MOST_ITEMS)))))


def _scalar(schema: Schema, kind: Any) -> _Node:
    if kind == "boolean":
        return _Fixed({"type": "boolean"}, 5, (bool,))
    if kind == "null":
        return _Fixed({"type": "null"}, 4, (type(None),))
    if kind in ("integer", "number"):
        return _number(schema, kind)
    most = schema.get("maxLength")
    plain: dict[str, Any] = {"type": "string", "minLength": int(schema.get("minLength", 0))}
    form, pattern = schema.get("format"), schema.get("pattern")
    if form in _FORMATS:
        return _Text({**plain, "format": form}, _FORMATS[form] - 2, _FORMATS[form] - 2)
    if isinstance(pattern, str) and pattern.startswith("^") and pattern.endswith("$"):
        plain["pattern"] = pattern
    return _Text(plain, plain["minLength"], int(most) if most is not None else None)


def _number(schema: Schema, kind: str) -> _Node:
    low, high = schema.get("minimum"), schema.get("maximum")
    above, below = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    least = above if low is None else low
    most = below if high is None else high
    if kind == "number" and least is not None and most is not None and least >= 0 and most <= 1:
        start = math.floor(least * 100) + 1 if low is None else math.ceil(least * 100)
        end = math.ceil(most * 100) - 1 if high is None else math.floor(most * 100)
        return _Fixed({"type": "integer", "minimum": start, "maximum": end}, 3, (int, float), percent=True)
    bounds: dict[str, Any] = {"minimum": -_BIGGEST if least is None else least, "maximum": _BIGGEST if most is None else most}
    if low is None and above is not None:
        bounds["exclusiveMinimum"] = bounds.pop("minimum")
    if high is None and below is not None:
        bounds["exclusiveMaximum"] = bounds.pop("maximum")
    digits = max(len(str(math.trunc(bound))) for bound in bounds.values())
    if kind == "integer":
        return _Fixed({"type": "integer", **bounds}, digits + 1, (int,))
    step = schema.get("multipleOf", 0.0001)
    return _Fixed({"type": "number", "multipleOf": step, **bounds}, digits + 8, (int, float))
