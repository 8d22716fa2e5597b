"""The contract of a stage's output: what fits, what does not, and how it is said (W3, W4)."""

from __future__ import annotations

import json
import socket
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import ConfigError, OutputInvalid
from holdfast.session.output import OUTPUT_SCHEMA, Finding, StageOutput, addressed, check_schema, output_json, output_schema, parse_output

SHARED = Path(__file__).parents[4] / "shared" / "reference" / "stage_output.json"
GOOD: dict[str, Any] = {
    "stage_name": "web_research",
    "summary": "Two of the three stores answer in under 20 ms.",
    "key_findings": [{"fact": "Cold start takes 2.4 s", "source": "https://example.org/report#cold"}],
    "confidence": "medium",
    "next_stage_recommendations": ["Check the figure against a second source"],
    "raw_data_refs": ["raw:sha256-3f1c"],
}
PRICES = {
    "type": "object",
    "properties": {"price": {"type": "number"}, "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
    "required": ["price"],
    "$defs": {"item": {"type": "object", "required": ["name"]}},
}


def problems(value: object, **more: Any) -> list[str]:
    with pytest.raises(OutputInvalid) as caught:
        parse_output(value, stage="web_research", **more)
    assert caught.value.raw is value
    assert caught.value.stage == "web_research"
    return list(caught.value.problems)


def test_a_sound_output_is_read_and_written_as_it_was() -> None:
    output = parse_output(GOOD, stage="web_research")
    assert output.key_findings == (Finding("Cold start takes 2.4 s", "https://example.org/report#cold"),)
    assert output_json(output) == GOOD
    if SHARED.exists():
        shared = json.loads(SHARED.read_text())
        assert output_json(parse_output(shared, stage="web_research")) == shared


def test_what_nobody_knows_survives_and_cannot_pass_for_a_field() -> None:
    value = GOOD | {"mood": {"a": [1]}, "key_findings": [{**GOOD["key_findings"][0], "page": 7, "grounded": False}]}
    output = parse_output(value, stage="web_research")
    assert output.extra == {"mood": {"a": [1]}}
    assert output.key_findings[0].extra == {"page": 7}
    assert output.key_findings[0].grounded is False
    assert output_json(output) == value
    assert output_json(StageOutput("s", "real", extra={"summary": "false"}))["summary"] == "real"


def test_every_problem_is_named_with_its_place_at_once() -> None:
    value = {
        "stage_name": "planning",
        "summary": "  ",
        "key_findings": [{"fact": "a", "source": "b"}, "text", {"fact": 7}, {"fact": "c", "source": "d", "grounded": "yes"}],
        "confidence": "very",
        "next_stage_recommendations": "none",
        "raw_data_refs": ["ok", 3],
    }
    said = problems(value)
    assert "stage_name: is 'planning', but this is the stage 'web_research'" in said
    assert "summary: is empty" in said
    assert "key_findings[1]: must be an object with fact and source, not text" in said
    assert "key_findings[2].fact: must be text, not int 7" in said
    assert "key_findings[2].source: is missing" in said
    assert any(one.startswith("key_findings[3].grounded:") for one in said)
    assert "confidence: must be high, medium or low, not 'very'" in said
    assert "next_stage_recommendations: must be a list, not text" in said
    assert "raw_data_refs[1]: must be text, not int 3" in said
    assert len(said) == 9


@pytest.mark.parametrize("field", ["stage_name", "summary", "key_findings", "confidence"])
def test_a_field_that_the_contract_needs_is_missed(field: str) -> None:
    said = problems({name: member for name, member in GOOD.items() if name != field})
    assert len(said) == 1
    assert said[0].startswith(f"{field}: is missing")


def test_lists_at_the_end_may_be_left_out() -> None:
    short = {name: member for name, member in GOOD.items() if name not in ("next_stage_recommendations", "raw_data_refs")}
    assert parse_output(short, stage="web_research").raw_data_refs == ()


@pytest.mark.parametrize("wrapped", ["{}", "```json\n{}\n```", "Here it is:\n\n```\n{}\n```\nDone."])
def test_text_may_be_json_or_hold_one_block_of_it(wrapped: str) -> None:
    assert output_json(parse_output(wrapped.replace("{}", json.dumps(GOOD)), stage="web_research")) == GOOD


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("I could not do it.", 'column 1; plain words go into {"summary": "...", "key_findings": [], "confidence": "medium"}'),
        ('{"summary": "a",\n }', "at line 2, column 2"),
        ("[1, 2]", "must be an object, not a list"),
        ("[" * 100_000, "is not JSON"),
        (json.dumps(GOOD)[:-10], "is not JSON"),
    ],
)
def test_text_that_is_no_output_is_refused_with_the_reason(text: str, said: str) -> None:
    assert said in problems(text)[0]


def test_what_is_advised_for_plain_words_is_an_output() -> None:
    advised = json.loads(problems("Three boats are in.")[0].partition("go into ")[2])
    assert parse_output(addressed(advised, "web_research"), stage="web_research").confidence == "medium"


@pytest.mark.parametrize("value", [None, 7, [GOOD], object()])
def test_a_value_that_is_no_object_is_refused(value: object) -> None:
    assert "must be an object" in problems(value)[0]


def _nested(levels: int) -> Any:
    return [] if levels == 0 else [_nested(levels - 1)]


def _round() -> list[Any]:
    ring: list[Any] = []
    ring += [ring, ring]
    return ring


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"v": float("nan")}, "data.v: NaN has no form in JSON; use null or a text"),
        ({"v": [1, float("-inf")]}, "data.v[1]: an infinity has no form in JSON; use null or a text"),
        ({"v": date(2026, 4, 19)}, "data.v: date datetime.date(2026, 4, 19) has no form in JSON"),
        ({"v": Path("x")}, "data.v: PosixPath PosixPath('x') has no form in JSON"),
        ({"v": Decimal("1.5")}, "data.v: Decimal Decimal('1.5') has no form in JSON"),
        ({"v": {1}}, "data.v: set {1} has no form in JSON"),
        ({"v": {7: "x"}}, "data.v: the key 7 is not text"),
        ({"v": "half \ud800"}, "data.v: holds half of a surrogate pair"),
        ({"half \ud800": 1}, "data: the key 'half \\ud800' holds half of a surrogate pair"),
        ({"v": 10**5000}, "data.v: is a number of more digits than can be written"),
        (_nested(190), "data[0][0]: is nested deeper than 180 levels"),
        (_round(), "data[0][0]: is nested deeper than 180 levels"),
    ],
)
def test_a_value_that_has_no_form_in_json_is_a_problem_of_its_place(data: Any, said: str) -> None:
    """W3, W4: such an output could not be kept."""
    assert problems(GOOD | {"data": data}, schema={})[0].startswith(said)


def test_texts_and_unknown_members_without_a_form_are_named_beside_the_rest() -> None:
    """W4: all at once, also in an output that does not fit otherwise, and in one that came as text."""
    half = {"fact": "half \ud800", "source": "b", "seen": {2}}
    value = GOOD | {"summary": "half \udfff", "mood": float("inf"), "key_findings": [half]}
    places = ["summary", "key_findings[0].fact", "key_findings[0].seen", "mood"]
    assert [one.partition(":")[0] for one in problems(value)] == places
    assert [one.partition(":")[0] for one in problems(value | {"confidence": "very"})] == ["confidence", *places]
    assert problems(json.dumps(GOOD | {"data": [float("nan")]})) == ["data[0]: NaN has no form in JSON; use null or a text"]


def test_a_secret_in_a_bad_output_is_not_in_the_message() -> None:
    value = GOOD | {"stage_name": "postgresql://ada:hunter2@db/x"}
    with pytest.raises(OutputInvalid) as caught:
        parse_output(value, stage="web_research")
    assert "hunter2" not in str(caught.value)
    assert "hunter2" not in " ".join(caught.value.problems)


# The stage's own schema


def test_data_has_to_fit_the_schema_of_the_stage() -> None:
    good = GOOD | {"data": {"price": 3, "items": [{"name": "a"}]}}
    assert parse_output(good, stage="web_research", schema=PRICES).data == good["data"]
    said = problems(GOOD | {"data": {"price": "3", "items": [{"name": "a"}, {}]}}, schema=PRICES)
    assert "data.price: '3' is not of type 'number'" in said
    assert "data.items[1]: 'name' is a required property" in said
    assert problems(GOOD, schema=PRICES) == ["data: is missing; the stage 'web_research' has an output_schema"]


def test_a_schema_that_is_content_with_nothing_needs_no_data() -> None:
    assert parse_output(GOOD, stage="web_research", schema={"type": ["object", "null"]}).data is None


def test_an_output_of_an_older_file_is_not_held_to_a_schema() -> None:
    legacy = GOOD | {"legacy": True, "data": "free form"}
    assert parse_output(legacy, stage="web_research", schema=PRICES).legacy


def test_a_reference_to_somewhere_else_is_refused_and_never_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("somebody asked the network")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket, "getaddrinfo", connect)
    for place in ("http://example.org/schema.json", "https://example.org/x#/a", "file:///etc/passwd", "other.json"):
        with pytest.raises(ConfigError, match="leads out"):
            parse_output(GOOD | {"data": {}}, stage="web_research", schema={"properties": {"a": {"$ref": place}}})
    for place in ("#/$defs/none", "https://json-schema.org/not-published", "http://example.org/?://json-schema.org/"):
        with pytest.raises(ConfigError, match="leads nowhere"):
            parse_output(GOOD | {"data": {}}, stage="web_research", schema={"$ref": place})


@pytest.mark.parametrize("schema", [{"type": "strange"}, {"required": "a"}, [], "text", {"properties": {"a": {"minimum": "x"}}}])
def test_a_bad_schema_is_a_mistake_of_the_configuration(schema: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        check_schema(schema, stage="s", file="flow.yaml", line=7)
    assert (caught.value.file, caught.value.line, caught.value.key) == ("flow.yaml", 7, "output_schema")


def test_a_schema_that_goes_round_in_a_circle_is_told_of() -> None:
    with pytest.raises(ConfigError, match="circle"):
        parse_output(GOOD | {"data": {}}, stage="web_research", schema={"$ref": "#"})


def test_the_combined_schema_describes_the_whole_output() -> None:
    import jsonschema  # type: ignore[import-untyped]  # the library has no types

    combined = output_schema(PRICES)
    checker = jsonschema.Draft202012Validator(combined)
    assert checker.is_valid(GOOD | {"data": {"price": 3, "items": [{"name": "a"}]}})
    assert not checker.is_valid(GOOD | {"data": {"price": 3, "items": [{}]}}), "references of the inner schema lead to its new place"
    assert not checker.is_valid(GOOD)
    assert jsonschema.Draft202012Validator(dict(OUTPUT_SCHEMA)).is_valid(GOOD)
    assert output_schema() == OUTPUT_SCHEMA
    assert "data" not in OUTPUT_SCHEMA["properties"], "the shared one is not changed"
