"""What a stage hands on: the contract of its output, as a value, as JSON, and as a JSON Schema for models (W3).

`parse_output` is the only gate through which an output comes in: from an agent, from a file that a person edited, from
`holdfast session fix`. It names every problem at once, each with its place, so that one repair can mend them all (W4).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from holdfast.errors import OutputInvalid
from holdfast.session.schemas import data_problems, embedded

Confidence = Literal["high", "medium", "low"]
CONFIDENCES: tuple[Confidence, ...] = get_args(Confidence)

_FINDING = ("fact", "source", "grounded")
_FIELDS = ("stage_name", "summary", "key_findings", "confidence", "next_stage_recommendations", "raw_data_refs", "data", "legacy")
_FENCE = re.compile(r"^[ \t]*```[a-zA-Z]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_SHOWN = 60

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
        raise _invalid(stage, [f"the output: must be an object, not {_kind(given)}"], value)
    reading = _Reading(given)
    output = reading.output(stage)
    problems = reading.problems
    if schema is not None and not output.legacy:
        problems += data_problems(output.data, schema, stage=stage, missing=given.get("data") is None)
    if problems:
        raise _invalid(stage, problems, value)
    return output


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


class _Reading:
    """Reads the members of one output and collects what is wrong with them."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self.value = value
        self.problems: list[str] = []

    def output(self, stage: str) -> StageOutput:
        name = self._text("stage_name")
        if name and name != stage:
            self.problems.append(f"stage_name: is {_shown(name)}, but this is the stage {stage!r}")
        legacy = self.value.get("legacy", False)
        if not isinstance(legacy, bool):
            self.problems.append(f"legacy: must be true or false, not {_kind(legacy)}")
        return StageOutput(
            stage,
            self._text("summary"),
            self._findings(),
            self._confidence(),
            self._texts("next_stage_recommendations"),
            self._texts("raw_data_refs"),
            self.value.get("data"),
            legacy is True,
            {str(key): member for key, member in self.value.items() if key not in _FIELDS},
        )

    def _text(self, name: str) -> str:
        return self._check_text(self.value, name, name)

    def _check_text(self, holder: Mapping[str, Any], name: str, place: str) -> str:
        found = holder.get(name)
        if found is None:
            self.problems.append(f"{place}: is missing")
        elif not isinstance(found, str):
            self.problems.append(f"{place}: must be text, not {_kind(found)}")
        elif not found.strip():
            self.problems.append(f"{place}: is empty")
        else:
            return found
        return ""

    def _confidence(self) -> Confidence:
        found = self.value.get("confidence")
        for known in CONFIDENCES:
            if found == known:
                return known
        wanted = "must be high, medium or low"
        self.problems.append("confidence: is missing; " + wanted if found is None else f"confidence: {wanted}, not {_shown(found)}")
        return "low"

    def _findings(self) -> tuple[Finding, ...]:
        if "key_findings" not in self.value:
            self.problems.append("key_findings: is missing; a list, which may be empty")
        found = []
        for index, member in enumerate(self._list("key_findings")):
            place = f"key_findings[{index}]"
            if not isinstance(member, Mapping):
                self.problems.append(f"{place}: must be an object with fact and source, not {_kind(member)}")
                continue
            fact, source = (self._check_text(member, name, f"{place}.{name}") for name in ("fact", "source"))
            verdict = member.get("grounded")
            if verdict is not None and not isinstance(verdict, bool):
                self.problems.append(f"{place}.grounded: must be true, false or left out, not {_kind(verdict)}")
                verdict = None
            found.append(Finding(fact, source, verdict, {str(k): v for k, v in member.items() if k not in _FINDING}))
        return tuple(found)

    def _texts(self, name: str) -> tuple[str, ...]:
        found = []
        for index, member in enumerate(self._list(name)):
            if isinstance(member, str) and member.strip():
                found.append(member)
            else:
                self.problems.append(f"{name}[{index}]: must be text, not {_kind(member)}")
        return tuple(found)

    def _list(self, name: str) -> Sequence[Any]:
        found = self.value.get(name, ())
        if isinstance(found, (list, tuple)):
            return found
        self.problems.append(f"{name}: must be a list, not {_kind(found)}")
        return ()


def _from_text(text: str) -> tuple[Any, str | None]:
    """The value that a text is, or that its only fenced block is; models like to wrap their answer in one."""
    blocks = _FENCE.findall(text)
    body = blocks[0] if len(blocks) == 1 else text
    try:
        return json.loads(body), None
    except json.JSONDecodeError as error:
        what = "is empty" if not text.strip() else f"is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        return None, f"the output: {what}"
    except (ValueError, RecursionError) as error:
        return None, f"the output: is not JSON: {type(error).__name__}"


def _invalid(stage: str, problems: list[str], raw: object) -> OutputInvalid:
    from holdfast.session.secrecy import clean_text

    clean = [clean_text(problem) for problem in problems]
    some = "; ".join(clean[:3]) + (f"; and {len(clean) - 3} more" if len(clean) > 3 else "")
    return OutputInvalid(
        f"the output of stage {stage!r} does not fit: {some}.",
        problems=clean,
        raw=raw,
        stage=stage,
        hint="It needs stage_name, summary, key_findings [{fact, source}] and confidence.",
    )


def _kind(value: object) -> str:
    kinds = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return next((word for kind, word in kinds.items() if type(value) is kind), f"{type(value).__name__} {_shown(value)}")


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 3] + "..."
