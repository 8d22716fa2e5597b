"""A stage's own JSON Schema: checked when the workflow is loaded, applied to `data`, never fetched from anywhere.

A `$ref` may lead to a place inside the schema or to one of the published meta-schemas, which come with the library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.errors import ConfigError
from holdfast.validation import Problem, place_of

_MOST = 20  # problems that are worth telling at once
_LONG = 200


def check_schema(schema: object, *, stage: str, file: str | None = None, line: int | None = None) -> None:
    """ConfigError, naming the place, if this is not a JSON Schema or if one of its `$ref` leads out of it."""
    _validator(schema, stage, file, line)


def data_problems(data: Any, schema: Mapping[str, Any], *, stage: str, missing: bool = False) -> list[Problem]:
    """What is wrong with `data`, each with its place. ConfigError if the schema is wrong."""
    from referencing.exceptions import Unresolvable

    validator = _validator(schema, stage, None, None)
    try:
        errors = sorted(validator.iter_errors(data), key=lambda error: [str(part) for part in error.absolute_path])
    except Unresolvable as error:
        raise _wrong(stage, f"a $ref leads nowhere: {error}", None, None) from error
    except RecursionError as error:
        raise _wrong(stage, "its $ref go round in a circle", None, None) from error
    if missing and errors:
        return [Problem("data", f"is missing; the stage {stage!r} has an output_schema")]
    problems = [Problem(place_of(["data", *error.absolute_path]), _short(error.message)) for error in errors[:_MOST]]
    return problems + ([Problem("data", f"{len(errors) - _MOST} more problems")] if len(errors) > _MOST else [])


def embedded(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The schema as a part of a larger one at `place`: its `$ref` to itself then lead there."""
    if "$id" in schema:  # a resource of its own: its references stay inside it
        return dict(schema)
    moved = _moved(schema, place)
    return {name: member for name, member in moved.items() if name != "$schema"}


def _moved(value: Any, place: str) -> Any:
    if isinstance(value, Mapping):
        return {
            key: place + member[1:] if key == "$ref" and isinstance(member, str) and member.startswith("#") else _moved(member, place)
            for key, member in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_moved(member, place) for member in value]
    return value


def _validator(schema: object, stage: str, file: str | None, line: int | None) -> Any:
    # these libraries come without types; the registry holds the published meta-schemas and has no way to fetch anything else
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
    from jsonschema.exceptions import SchemaError  # type: ignore[import-untyped]
    from jsonschema.validators import validator_for  # type: ignore[import-untyped]
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]

    if not isinstance(schema, Mapping):
        raise _wrong(stage, f"a JSON Schema is an object, not {type(schema).__name__}", file, line)
    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        where = "/".join(str(part) for part in error.absolute_path)
        raise _wrong(stage, f"{where + ': ' if where else ''}{_short(error.message)}", file, line) from error
    for reference in _references(schema):
        if not reference.startswith("#") and "://json-schema.org/" not in reference and not _inside(schema, reference):
            raise _wrong(stage, f"the $ref {reference[:_LONG]!r} leads out of the schema, and nothing is fetched", file, line)
    return kind(schema, registry=REGISTRY, format_checker=kind.FORMAT_CHECKER)


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, member in value.items():
            if key in ("$ref", "$dynamicRef") and isinstance(member, str):
                yield member
            yield from _references(member)
    elif isinstance(value, (list, tuple)):
        for member in value:
            yield from _references(member)


def _inside(schema: Any, reference: str) -> bool:
    """Whether a resource that the schema itself holds has this name."""
    target = reference.partition("#")[0]
    if isinstance(schema, Mapping):
        return schema.get("$id") == target or any(_inside(member, reference) for member in schema.values())
    return isinstance(schema, (list, tuple)) and any(_inside(member, reference) for member in schema)


def _short(message: str) -> str:
    return message if len(message) <= _LONG else f"{message[: _LONG - 3]}..."


def _wrong(stage: str, what: str, file: str | None, line: int | None) -> ConfigError:
    return ConfigError(
        f"the output_schema of stage {stage!r} cannot be used: {what}.",
        file=file,
        line=line,
        key="output_schema",
        hint="Write a JSON Schema whose references stay inside it.",
    )
