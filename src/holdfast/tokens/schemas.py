"""Tool definitions as the JSON that is sent, and their counts, worked out once for each tool.

A tool is a plain dict (sent as it is), an object with `name`, `description` and a schema (LangChain's tools, met by their shape), a
pydantic model, or a function with annotations.
"""

from __future__ import annotations

import inspect
import json
import threading
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

_TYPES: dict[object, str] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    type(None): "null",
    list: "array",
    dict: "object",
}
_INJECTED = frozenset({"self", "cls", "runtime", "config", "callbacks", "run_manager"})
"""Parameters that are filled in by the program: the model never sees them."""


def tool_json(tool: object) -> str:
    """The text that a request carries for this tool. What cannot be written as JSON is written as its `str`."""
    return json.dumps(tool_schema(tool), ensure_ascii=False, default=str)


def tool_schema(tool: object) -> object:
    """The definition of a tool in the OpenAI form; a dict is returned as it is."""
    if isinstance(tool, Mapping):
        return tool
    name = _text(getattr(tool, "name", None)) or _text(getattr(tool, "__name__", None)) or type(tool).__name__
    parameters = _parameters(tool)
    description = _text(getattr(tool, "description", None)) or inspect.cleandoc(getattr(tool, "__doc__", None) or "")
    if isinstance(parameters, Mapping):
        inner = parameters.get("description")
        parameters = {key: value for key, value in parameters.items() if key != "description"}
        description = description or _text(inner)
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _parameters(tool: object) -> object:
    for attribute in ("tool_call_schema", "args_schema"):
        schema = getattr(tool, attribute, None)
        if schema is not None:
            return _without_titles(_schema_of(schema))
    if isinstance(getattr(tool, "args", None), Mapping):
        return _without_titles({"type": "object", "properties": tool.args})  # type: ignore[attr-defined]  # just looked at
    if inspect.isclass(tool):
        return _without_titles(_schema_of(tool))
    if callable(tool):
        return _signature_schema(tool)
    return {"type": "object", "properties": {}}


def _schema_of(schema: object) -> object:
    maker = getattr(schema, "model_json_schema", None) or getattr(schema, "schema", None)
    return maker() if callable(maker) else schema if isinstance(schema, Mapping) else {"type": "object", "properties": {}}


def _without_titles(schema: object, *, names: bool = False) -> object:
    """The titles that pydantic adds are not sent; a property that is called `title` stays."""
    if isinstance(schema, Mapping):
        return {
            key: _without_titles(value, names=key in ("properties", "$defs") and not names)
            for key, value in schema.items()
            if names or key != "title" or not isinstance(value, str)
        }
    if isinstance(schema, list | tuple):
        return [_without_titles(item) for item in schema]
    return schema


def _signature_schema(function: Callable[..., object]) -> dict[str, object]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some built-in functions have none
        return {"type": "object", "properties": {}}
    try:
        hints = typing.get_type_hints(function)
    except (NameError, TypeError, AttributeError):  # an annotation that only a type checker can follow
        hints = {}
    properties: dict[str, object] = {}
    required = []
    for name, parameter in signature.parameters.items():
        if name in _INJECTED or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        prop = _type_schema(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
        else:
            prop["default"] = parameter.default
        properties[name] = prop
    return {"type": "object", "properties": properties, "required": required}


def _type_schema(hint: object) -> dict[str, object]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _type_schema(arguments[0])
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [_type_schema(argument) for argument in arguments]}
    if origin in (list, tuple, set):
        return {"type": "array", "items": _type_schema(arguments[0]) if arguments else {}}
    known = _TYPES.get(origin or hint)
    return {"type": known} if known else {}


class ToolCounts:
    """Counts of tools, by identity and then by what a copy has in common. Safe for many threads; keeps at most `most` tools.

    A tool that is changed in place after it was counted keeps its old count.
    """

    def __init__(self, count: Callable[[str], int], *, most: int = 1000) -> None:
        self._count = count
        self._most = most
        self._by_object: dict[int, tuple[object, int]] = {}
        self._by_kind: dict[tuple[object, ...], tuple[object, int]] = {}
        self._lock = threading.Lock()

    def __call__(self, tool: object) -> int:
        entry = self._by_object.get(id(tool))
        if entry is not None and entry[0] is tool:  # the entry holds the tool, so its id cannot have been given to another
            return entry[1]
        kind = self._kind(tool)
        known = self._by_kind.get(kind) if kind else None
        tokens = known[1] if known else self._count(tool_json(tool))
        with self._lock:
            for table in (self._by_object, self._by_kind):
                if len(table) >= self._most:
                    table.clear()
            self._by_object[id(tool)] = (tool, tokens)
            if kind:
                self._by_kind[kind] = (tool, tokens)
        return tokens

    @staticmethod
    def _kind(tool: object) -> tuple[object, ...] | None:
        """What a copy of a tool shares with it: name, description and the very same schema object."""
        schema = None if isinstance(tool, Mapping) else getattr(tool, "args_schema", None)
        return None if schema is None else (type(tool), getattr(tool, "name", None), getattr(tool, "description", None), id(schema))
