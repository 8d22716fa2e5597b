"""A bounded schema has no answer longer than the budget, and gives back what was asked for (A15)."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from holdfast.errors import InputError
from holdfast.models.bounded import bound_schema


class Fact(BaseModel):
    content: str
    category: Literal["preference", "goal"]
    confidence: float = Field(ge=0, le=1)
    older: float | None = Field(default=None, ge=0, le=1)


class Facts(BaseModel):
    facts: list[Fact]
    note: str = ""


class Tree(BaseModel):
    label: str
    children: list[Tree] = []


def longest(schema: dict[str, Any]) -> str:
    """The longest answer that a bounded schema allows, as compact JSON: written here anew, from the schema alone."""
    if "anyOf" in schema:
        return max((longest(branch) for branch in schema["anyOf"]), key=len)
    if "enum" in schema or "const" in schema:
        return max((json.dumps(value, separators=(",", ":")) for value in schema.get("enum", [schema.get("const")])), key=len)
    kind = schema["type"]
    if kind == "string":
        return f'"{"x" * int(schema["maxLength"])}"'
    if kind == "integer":
        bounds = [schema.get(key, 0) for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")]
        return max((str(int(bound)) for bound in bounds), key=len)
    if kind == "number":
        return str(int(max(abs(schema.get(key, 0)) for key in ("minimum", "maximum")))) + ".1234"
    if kind == "array" and "prefixItems" in schema:
        return "[" + ",".join(longest(place) for place in schema["prefixItems"]) + "]"
    if kind == "array":
        return "[" + ",".join([longest(schema["items"])] * schema["maxItems"]) + "]"
    if "patternProperties" in schema:
        (value,) = schema["patternProperties"].values()
        return "{" + ",".join([f'"{"k" * 24}":{longest(value)}'] * schema["maxProperties"]) + "}"
    if kind == "object":
        return "{" + ",".join(f"{json.dumps(key)}:{longest(part)}" for key, part in schema["properties"].items()) + "}"
    return {"boolean": "false", "null": "null"}[kind]


scalars = st.one_of(
    st.just({"type": "string"}),
    st.builds(
        lambda least, more: {"type": "string", "minLength": least, "maxLength": least + more}, st.integers(0, 5), st.integers(0, 500)
    ),
    st.just({"type": "integer"}),
    st.builds(lambda low, more: {"type": "integer", "minimum": low, "maximum": low + more}, st.integers(-999, 999), st.integers(0, 999)),
    st.sampled_from([{"type": "number"}, {"type": "number", "minimum": 0, "maximum": 1}, {"type": "boolean"}, {"type": "null"}, {}]),
    st.builds(lambda values: {"enum": values}, st.lists(st.text("abc", max_size=6), min_size=1, max_size=4)),
    st.sampled_from([{"type": ["string", "null"]}, {"type": "string", "format": "date"}, {"const": {"a": 1}}]),
)


def compound(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    names = st.text("abcdefg", min_size=1, max_size=6)
    return st.one_of(
        st.builds(lambda item, most: {"type": "array", "items": item, **({"maxItems": most} if most else {})}, inner, st.integers(0, 9)),
        st.builds(lambda item, least: {"type": "array", "items": item, "minItems": least}, inner, st.integers(0, 2)),
        st.builds(lambda places: {"type": "array", "prefixItems": places}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda fields, some: {"type": "object", "properties": fields, "required": list(fields)[:some]},
            st.dictionaries(names, inner, min_size=1, max_size=5),
            st.integers(0, 5),
        ),
        st.builds(lambda value: {"type": "object", "additionalProperties": value}, inner),
        st.builds(lambda branches: {"anyOf": branches}, st.lists(inner, min_size=1, max_size=3)),
    )


@settings(deadline=None)
@given(st.recursive(scalars, compound, max_leaves=12), st.integers(40, 2000))
def test_the_longest_answer_of_a_bounded_schema_fits_the_budget(schema: dict[str, Any], budget: int) -> None:
    try:
        bounded = bound_schema(schema, budget)
    except InputError as error:
        assert "max_tokens" in str(error)
        return
    assert len(longest(bounded.schema)) <= bounded.size <= budget


def test_bounds_that_are_tighter_stay_and_wider_ones_are_narrowed() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 5}, "b": {"type": "string", "maxLength": 9000}}}
    parts = bound_schema(schema, 200).schema["properties"]
    assert parts["a"]["maxLength"] == 5
    assert 50 < parts["b"]["maxLength"] < 200


def test_texts_and_lists_without_bounds_get_them() -> None:
    parts = bound_schema(Facts.model_json_schema(), 600).schema["properties"]
    assert parts["note"]["maxLength"] > 8
    assert parts["facts"]["maxItems"] >= 2
    assert parts["facts"]["items"]["properties"]["content"]["maxLength"] >= 20


def test_fractions_are_asked_as_percents_and_turned_back() -> None:
    bounded = bound_schema(Facts.model_json_schema(), 600)
    fact = bounded.schema["properties"]["facts"]["items"]["properties"]
    assert fact["confidence"] == {"type": "integer", "minimum": 0, "maximum": 100}
    answer = {
        "facts": [{"content": "x", "category": "goal", "confidence": 90, "older": None}, {"content": "y", "confidence": 7, "older": 100}]
    }
    assert bounded.changes
    assert bounded.restore(answer) == {
        "facts": [
            {"content": "x", "category": "goal", "confidence": 0.9, "older": None},
            {"content": "y", "confidence": 0.07, "older": 1.0},
        ]
    }


@pytest.mark.parametrize(
    ("bounds", "percents"),
    [
        ({"minimum": 0.5, "maximum": 1}, (50, 100)),
        ({"exclusiveMinimum": 0, "exclusiveMaximum": 1}, (1, 99)),
        ({"minimum": 0, "maximum": 0.25}, (0, 25)),
    ],
)
def test_parts_of_the_unit_range_keep_their_limits(bounds: dict[str, float], percents: tuple[int, int]) -> None:
    schema = bound_schema({"type": "number", **bounds}, 50).schema
    assert (schema["type"], schema["minimum"], schema["maximum"]) == ("integer", *percents)


def test_other_numbers_stay_numbers_and_are_not_turned_back() -> None:
    bounded = bound_schema({"type": "number", "minimum": 0, "maximum": 10}, 50)
    assert bounded.schema["type"] == "number"
    assert bounded.restore(9.5) == 9.5
    assert not bounded.changes


def test_the_branch_that_was_taken_is_the_one_turned_back() -> None:
    percent = {
        "type": "object",
        "properties": {"kind": {"const": "p"}, "v": {"type": "number", "minimum": 0, "maximum": 1}},
        "required": ["kind"],
    }
    count = {"type": "object", "properties": {"kind": {"const": "c"}, "v": {"type": "integer"}}, "required": ["kind"]}
    bounded = bound_schema({"anyOf": [percent, count]}, 200)
    assert bounded.restore({"kind": "p", "v": 50}) == {"kind": "p", "v": 0.5}
    assert bounded.restore({"kind": "c", "v": 50}) == {"kind": "c", "v": 50}


def test_a_schema_that_contains_itself_ends_after_a_few_steps() -> None:
    bounded = bound_schema(Tree.model_json_schema(), 400)
    assert len(longest(bounded.schema)) <= 400
    endless = {"$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}}, "required": ["next"]}}, "$ref": "#/$defs/n"}
    with pytest.raises(InputError, match="contains itself"):
        bound_schema(endless, 400)


def test_optional_fields_give_way_before_required_ones() -> None:
    schema = {"type": "object", "properties": {"extra": {"type": "string"}, "needed": {"type": "string"}}, "required": ["needed"]}
    assert list(bound_schema(schema, 28).schema["properties"]) == ["needed"]
    assert list(bound_schema(schema, 80).schema["properties"]) == ["extra", "needed"]


def test_a_budget_that_is_too_small_is_refused_with_both_numbers() -> None:
    with pytest.raises(InputError, match=r"has \d+ characters, and max_tokens is 12"):
        bound_schema(Facts.model_json_schema(), 12)


def test_a_reference_to_nowhere_is_refused() -> None:
    with pytest.raises(InputError, match="#/\\$defs/Missing"):
        bound_schema({"$ref": "#/$defs/Missing"}, 100)


def test_parts_of_all_of_are_joined() -> None:
    schema = {
        "$defs": {"base": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}},
        "allOf": [{"$ref": "#/$defs/base"}, {"properties": {"b": {"type": "boolean"}}}],
    }
    bounded = bound_schema(schema, 200).schema
    assert list(bounded["properties"]) == ["a", "b"]
    assert bounded["required"] == ["a"]


def test_patterns_that_are_not_anchored_and_unknown_formats_are_left_out() -> None:
    assert "pattern" not in bound_schema({"type": "string", "pattern": "[a-z]"}, 50).schema
    assert bound_schema({"type": "string", "pattern": "^[a-z]+$"}, 50).schema["pattern"] == "^[a-z]+$"
    assert "format" not in bound_schema({"type": "string", "format": "uri"}, 50).schema
