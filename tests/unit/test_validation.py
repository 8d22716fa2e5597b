"""What is wrong with a value from outside is said with its place and line, all of it at once (W3, W4)."""

from __future__ import annotations

from typing import Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from holdfast.validation import json_line, place_of, problems_of

TEXT = """{
  "name": 7,
  "of": ["a", {"b": [1,
    "c"]}],
  "deep": {"x": {"y": ""}}
}"""


class Inner(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    source: str
    count: int = Field(0, ge=0)


class Thing(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")

    name: str
    mood: Literal["good", "bad"]
    parts: list[Inner]
    note: str = Field("x", min_length=1)
    odd: int = 1

    @field_validator("odd")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError(f"must be odd, not {value}")
        return value


def test_every_problem_is_said_with_its_place() -> None:
    """W4"""
    value = {"name": 7, "mood": "so so", "parts": [{"source": None}, {"source": "s", "count": -1, "x": 1}, "text"], "note": "", "odd": 2}
    with pytest.raises(ValidationError) as caught:
        Thing.model_validate(value)
    assert [str(one) for one in problems_of(caught.value)] == [
        "name: must be text, not int 7",
        "mood: must be good or bad, not 'so so'",
        "parts[0].source: is missing",
        "parts[1].count: must be 0 or more, not int -1",
        "parts[1].x: is not known",
        "parts[2]: must be an object, not text",
        "note: is empty",
        "odd: must be odd, not 2",
    ]


def test_the_line_of_a_place_is_found() -> None:
    """W4"""
    places: list[list[str | int]] = [["name"], ["of"], ["of", 1, "b", 1], ["deep", "x", "y"]]
    assert [json_line(TEXT, loc) for loc in places] == [2, 3, 4, 5]
    assert json_line(TEXT, ["of", 1, "missing"]) == 3, "the thing around it"
    assert json_line("", ["a"]) is None
    with pytest.raises(ValidationError) as caught:
        Thing.model_validate({"name": 7, "mood": "bad", "parts": []})
    assert str(problems_of(caught.value, line_of=lambda loc: json_line(TEXT, loc))[0]) == "name: must be text, not int 7 (line 2)"
    assert place_of(["a", 0, "b"]) == "a[0].b"
