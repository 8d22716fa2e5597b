"""What a stage hands on: the contract of its output, as a value, as JSON, and as a JSON Schema for models (W3).

`parse_output` is the only gate through which an output comes in: from an agent, from a file that a person edited, from
`holdfast session fix`. It names every problem at once, each with its place, so that one repair can mend them all (W4).
A stage's own JSON Schema is checked when the workflow is loaded and applied to `data`; a `$ref` may lead to a place inside it or to one
of the published meta-schemas, which come with the library: nothing is ever fetched.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError, ValidationInfo, field_validator

from holdfast.durable import strict_json
from holdfast.errors import ConfigError, InputError, OutputInvalid
from holdfast.redaction import redact_text
from holdfast.validation import Loc, Problem, counted, kind_of, place_of, problems_of, shown, some

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
    return problems + ([Problem("data", f"{counted(len(errors) - _MOST, 'more problem')}")] if len(errors) > _MOST else [])


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


Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

_FINDING = ("fact", "source", "grounded")
_FIELDS = ("stage_name", "summary", "key_findings", "confidence", "next_stage_recommendations", "raw_data_refs", "data", "legacy")
_FENCE = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)

_TEXT = {"type": "string", "minLength": 1}
OUTPUT_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "stage_name": {**_TEXT, "description": "the name of this stage"},
        "summary": {**_TEXT, "description": "what was found or done, in a few sentences"},
        "key_findings": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "fact": {**_TEXT, "description": "one fact"},
                    "source": {**_TEXT, "description": "where it is from: an address, a document id, a raw reference"},
                },
                "required": ["fact", "source"],
            },
        },
        "confidence": {"type": "string", "enum": list(CONFIDENCES)},
        "next_stage_recommendations": {"type": "array", "items": _TEXT},
        "raw_data_refs": {"type": "array", "items": _TEXT},
    },
    "required": ["stage_name", "summary", "key_findings", "confidence", "next_stage_recommendations", "raw_data_refs"],
}
"""The contract as a JSON Schema, for constrained decoding. It asks for every field; `parse_output` forgives a missing list at the end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact with its source. `grounded` says whether the fact was found in that source; None means that nobody checked."""

    fact: str
    source: str
    grounded: bool | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StageOutput:
    """What a stage found, in the form that later stages are given.

    `data` is what fits the stage's own `output_schema`. `legacy` marks an output of an older file, whose form was free: all of it
    is in `data`. `extra` holds the members that Holdfast does not know; they are written again. Nothing inside is ever changed
    in place: the stores rely on that.
    """

    stage_name: str
    summary: str
    key_findings: tuple[Finding, ...] = ()
    confidence: Confidence = "medium"
    next_stage_recommendations: tuple[str, ...] = ()
    raw_data_refs: tuple[str, ...] = ()
    data: Any = None
    legacy: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


def parse_output(value: object, *, stage: str, schema: Mapping[str, Any] | None = None) -> StageOutput:
    """The output in `value`: a StageOutput, a mapping, or a text that is JSON or holds one fenced block of it.

    With `schema` (JSON Schema) its `data` has to fit that. OutputInvalid names every problem with its place, such as
    `key_findings[2].source: is missing`, and carries what was given as `raw`. ConfigError if the schema itself is wrong.
    """
    given = output_json(value) if isinstance(value, StageOutput) else value
    if isinstance(given, str):
        given, trouble = _from_text(given)
        if trouble is not None:
            raise _invalid(stage, [trouble], value)
    if not isinstance(given, Mapping):
        raise _invalid(stage, [f"the output: must be an object, not {kind_of(given)}"], value)
    problems: list[Problem] = []
    output: StageOutput | None = None
    try:
        output = read_output(given, stage)
    except ValidationError as error:
        problems = problems_of(error)
    formless = form_problems(output_json(output) if output is not None else {str(name): member for name, member in given.items()})
    problems += formless
    if schema is not None and given.get("legacy") is not True and not formless:
        problems += data_problems(given.get("data"), schema, stage=stage, missing=given.get("data") is None)
    if output is None or problems:
        raise _invalid(stage, [str(problem) for problem in problems], value)
    return output


def addressed(value: object, stage: str) -> object:
    """The value with the stage's name, where it is an object, or a text that holds one, that does not say whose output it is."""
    given = _from_text(value)[0] if isinstance(value, str) else value
    return {"stage_name": stage, **given} if isinstance(given, Mapping) and "stage_name" not in given else value


def read_output(value: Mapping[Any, Any], stage: str) -> StageOutput:
    """The output in a mapping. ValidationError, with every problem, if it does not fit the contract."""
    model = _OutputModel.model_validate({str(name): member for name, member in value.items()}, context={"stage": stage})
    return StageOutput(
        stage,
        model.summary,
        tuple(Finding(one.fact, one.source, one.grounded, dict(one.model_extra or {})) for one in model.key_findings),
        model.confidence,
        tuple(model.next_stage_recommendations),
        tuple(model.raw_data_refs),
        model.data,
        model.legacy,
        dict(model.model_extra or {}),
    )


_INSIDE = "\n" + "  " * 20  # a session and its log are around an output
_DEEPEST = strict_json.MAX_DEPTH - 20


def form_problems(value: Any) -> list[Problem]:
    """What JSON has no form for in a value, each with its place."""
    try:
        strict_json.encode_inside(value, _INSIDE)
    except InputError as error:
        return [*islice(_formless(value, ()), _MOST)] or [Problem("the output", error.message)]
    return []


def _formless(value: Any, loc: Loc) -> Iterator[Problem]:
    if isinstance(value, dict | list | tuple):
        if len(loc) >= _DEEPEST:
            yield Problem(place_of(loc[:3]), f"is nested deeper than {_DEEPEST} levels")
            return
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(value, dict) and not isinstance(key, str):
                yield Problem(place_of(loc), f"the key {shown(key)} is not text, and JSON has no form for it")
            elif isinstance(value, dict) and _no_form(key) is not None:
                yield Problem(place_of(loc), f"the key {shown(key)} {_no_form(key)}")
            else:
                yield from _formless(member, (*loc, key))
    elif (why := _no_form(value)) is not None:
        yield Problem(place_of(loc), why)


def _no_form(value: object) -> str | None:
    """Why JSON has no form for a value that holds no others; None if it has one."""
    try:
        strict_json.encode(value)
    except InputError:
        if isinstance(value, str):
            return "holds half of a surrogate pair, which has no form in JSON; leave it out"
        if isinstance(value, float):
            return f"{'NaN' if math.isnan(value) else 'an infinity'} has no form in JSON; use null or a text"
        if isinstance(value, int):
            return "is a number of more digits than can be written; use a text"
        return f"{kind_of(value)} has no form in JSON; use text, numbers, lists and objects with text keys"
    return None


def legacy_output(stage: str, value: Any, summary: str | None = None) -> StageOutput:
    """An output of a file that was written before the contract: its value becomes `data`, and it is marked."""
    return StageOutput(stage, summary or f"Output of {stage}, kept from an older file.", data=value, legacy=True)


def output_json(output: StageOutput) -> dict[str, Any]:
    """The output as it is written. What is empty and optional is left out, except the fields that the contract names."""
    value: dict[str, Any] = {
        "stage_name": output.stage_name,
        "summary": output.summary,
        "key_findings": [_finding_json(finding) for finding in output.key_findings],
        "confidence": output.confidence,
        "next_stage_recommendations": list(output.next_stage_recommendations),
        "raw_data_refs": list(output.raw_data_refs),
    }
    if output.data is not None:
        value["data"] = output.data
    if output.legacy:
        value["legacy"] = True
    return {**value, **{name: member for name, member in output.extra.items() if name not in _FIELDS}}


def output_schema(stage_schema: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The contract together with a stage's own schema, which then describes `data`."""
    if stage_schema is None:
        return dict(OUTPUT_SCHEMA)
    return {
        **OUTPUT_SCHEMA,
        "properties": {**OUTPUT_SCHEMA["properties"], "data": embedded(stage_schema, "#/properties/data")},
        "required": [*OUTPUT_SCHEMA["required"], "data"],
    }


def grounded(output: StageOutput, verdicts: Sequence[bool | None]) -> StageOutput:
    """The output with a verdict for each finding, in order."""
    found = tuple(replace(one, grounded=verdict) for one, verdict in zip(output.key_findings, verdicts, strict=True))
    return replace(output, key_findings=found)


def _finding_json(finding: Finding) -> dict[str, Any]:
    value: dict[str, Any] = {"fact": finding.fact, "source": finding.source}
    if finding.grounded is not None:
        value["grounded"] = finding.grounded
    return {**value, **{name: member for name, member in finding.extra.items() if name not in _FINDING}}


def _filled(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    return text


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _finding(value: Any) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"must be an object with fact and source, not {kind_of(value)}")  # noqa: TRY004 - pydantic collects ValueErrors
    return {str(name): member for name, member in value.items()}


_Text = Annotated[str, AfterValidator(_filled)]
_Texts = Annotated[list[_Text], BeforeValidator(_listed)]


class _FindingModel(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    fact: _Text
    source: _Text
    grounded: bool | None = None


class _OutputModel(BaseModel):
    """A stage's output as it comes in, from an agent or from a file."""

    model_config = ConfigDict(strict=True, extra="allow")

    stage_name: _Text
    summary: _Text
    key_findings: Annotated[list[Annotated[_FindingModel, BeforeValidator(_finding)]], BeforeValidator(_listed)]
    confidence: Confidence
    next_stage_recommendations: _Texts = []
    raw_data_refs: _Texts = []
    data: Any = None
    legacy: bool = False

    @field_validator("stage_name")
    @classmethod
    def _is_this_stage(cls, name: str, info: ValidationInfo) -> str:
        stage = (info.context or {}).get("stage", name)
        if name != stage:
            raise ValueError(f"is {shown(name)}, but this is the stage {stage!r}")
        return name


_PLAIN = '{"summary": "...", "key_findings": [], "confidence": "medium"}'


def _from_text(text: str) -> tuple[Any, str | None]:
    """The value that a text is, or that its only fenced block is; models like to wrap their answer in one."""
    blocks = _FENCE.findall(text)
    body = blocks[0] if len(blocks) == 1 else text
    try:
        return json.loads(body), None
    except json.JSONDecodeError as error:
        if not text.strip():
            return None, "the output: is empty"
        words = "" if body.lstrip().startswith(("{", "[")) else f"; plain words go into {_PLAIN}"
        return None, f"the output: is not JSON: {error.msg} at line {error.lineno}, column {error.colno}{words}"
    except (ValueError, RecursionError) as error:
        return None, f"the output: is not JSON: {type(error).__name__}"


def _invalid(stage: str, problems: list[str], raw: object) -> OutputInvalid:
    clean = [redact_text(problem) for problem in problems]
    return OutputInvalid(
        f"the output of stage {stage!r} does not fit: {some(clean, 3, '; ')}.",
        problems=clean,
        raw=raw,
        stage=stage,
        hint="It needs stage_name, summary, key_findings [{fact, source}] and confidence.",
    )
