"""Records: what is checked and brought to one form, and the way through JSON and Markdown (K1)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.knowledge.record_forms import parse, render
from holdfast.knowledge.records import Hit, Record, Why, from_json, least_trusted, merged, to_json
from holdfast.knowledge.store import (
    AddReport,
    Filter,
    hit_from_json,
    hit_to_json,
    holds,
    report_from_json,
    snippet_and_why,
    stats_from_json,
)
from holdfast.text.needle import Needle

words = st.text(min_size=1).filter(lambda text: text.strip() != "" and text.strip("\0 ") != "")
plain_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
records = st.builds(
    Record,
    words,
    id=st.text(max_size=60),
    tags=st.lists(st.text(max_size=20), max_size=4).map(tuple),
    session=st.none() | st.text(max_size=30),
    source=st.none() | st.text(max_size=30),
    speaker=st.none() | st.text(max_size=30),
    time=st.none() | st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)),  # noqa: DTZ001 - hypothesis adds the zone
    kind=st.text(max_size=12),
    trust=st.sampled_from(["low", "medium", "high"]),
    position=st.none() | st.integers(-(2**31), 2**31),
    role=st.sampled_from([None, "person", "assistant"]),
    extra=st.dictionaries(st.text(max_size=10), plain_json, max_size=3),
)


@settings(deadline=None)
@given(records)
def test_every_record_survives_json(record: Record) -> None:
    assert from_json(json.loads(json.dumps(to_json(record)))) == record


@settings(deadline=None)
@given(records)
def test_every_record_survives_a_markdown_file(record: Record) -> None:
    assert parse(render(record), "any.md") == record


@settings(deadline=None)
@given(records)
def test_the_head_of_a_markdown_file_is_yaml_that_others_read_alike(record: Record) -> None:
    from ruamel.yaml import YAML

    head = render(record).decode().split("---\n")[1]
    value = YAML(typ="safe", pure=True).load(head)
    assert value["id"] == record.id
    assert value.get("tags", []) == list(record.tags)
    assert value.get("speaker") == record.speaker


@settings(deadline=None)
@given(records)
def test_every_hit_survives_json(record: Record) -> None:
    hit = Hit(record, 1.25, Why(words=("a", "b"), keyword=0.5, time=1.0, notes=("said",)), (record, Record("answer")))
    assert hit_from_json(json.loads(json.dumps(hit_to_json(hit)))) == hit


def test_a_time_is_kept_in_utc_to_the_millisecond() -> None:
    berlin = timezone(timedelta(hours=2))
    record = Record("x", time=datetime(2026, 5, 4, 11, 0, 0, 123456, tzinfo=berlin))
    assert record.time == datetime(2026, 5, 4, 9, 0, 0, 123000, tzinfo=UTC)
    assert record.id == Record("x", time=datetime(2026, 5, 4, 9, 0, 0, 123999, tzinfo=UTC)).id


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"text": "  "}, "no text"),
        ({"text": 5}, "not int"),
        ({"text": "x", "tags": "infra"}, "several"),
        ({"text": "x", "trust": "huge"}, "level of trust"),
        ({"text": "x", "role": "robot"}, "role"),
        ({"text": "x", "position": "3"}, "whole number"),
        ({"text": "x", "position": True}, "whole number"),
        ({"text": "x", "time": "today"}, "moment"),
        ({"text": "x", "time": datetime(2026, 5, 4)}, "zone"),  # noqa: DTZ001 - a time without a zone is what is refused
        ({"text": "x", "extra": {"a": object()}}, "JSON"),
        ({"text": "x", "id": "i" * 201}, "longer"),
    ],
)
def test_what_cannot_be_a_record_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        Record(**arguments)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], "object"),
        ({"no": 1}, "text"),
        ({"text": "x", "time": "soon"}, "ISO 8601"),
        ({"text": "x", "time": 5}, "date"),
        ({"text": "x", "extra": 3}, "extra"),
        ({"text": "x", "schema": 99}, "newer"),
    ],
)
def test_json_that_is_no_record_is_refused(value: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        from_json(value)


def test_members_that_are_not_known_are_kept() -> None:
    assert from_json({"text": "x", "colour": "blue"}).extra == {"colour": "blue"}


def test_everything_that_is_wrong_with_a_record_is_said_at_once() -> None:
    """K1: a record from a file, a Markdown head or a server is checked as a whole, each place with what is wrong there."""
    value = {"text": "x", "tags": ["a", 1], "trust": "huge", "position": "3", "role": "robot", "time": "soon"}
    with pytest.raises(InputError) as raised:
        from_json(value)
    said = str(raised.value)
    for problem in (
        "tags[1]: must be text, not int 1",
        "trust: must be low, medium or high, not 'huge'",
        "position: must be a whole number, not text",
        "role: must be person or assistant, not 'robot'",
        "time: 'soon' is not a date of ISO 8601",
    ):
        assert problem in said


def test_what_no_file_can_hold_is_replaced_in_json_too() -> None:
    """K1: half a surrogate pair in a line of JSON is no reason to refuse the record."""
    record = from_json({"text": "a\ud800b", "tags": ["t\0"], "\udc00": {"\ud800": ["\ud800"]}})
    assert record == Record("a\ufffdb", tags=("t\ufffd",), extra={"\ufffd": {"\ufffd": ["\ufffd"]}})


def test_answers_of_a_server_that_are_none_are_refused_with_the_reason() -> None:
    """K2, O5: what a knowledge server says is data from outside."""
    with pytest.raises(InputError, match="not a hit: score: must be a number"):
        hit_from_json({"record": {"text": "x"}, "score": "high"})
    with pytest.raises(InputError, match="added: must be a whole number"):
        report_from_json({"added": "many"})
    with pytest.raises(InputError, match="oldest"):
        stats_from_json({"oldest": "long ago"}, "mcp", "here")
    assert report_from_json({"added": None, "ids": ["a"], "more": 1}) == AddReport(ids=("a",))


def test_what_no_file_can_hold_is_replaced() -> None:
    assert Record("a\0b\ud800c", extra={"x": "\ud800"}).text == "a\ufffdb\ufffdc"


def test_merging_keeps_the_tags_of_both_and_nothing_of_another_text() -> None:
    old, new = Record("x", id="1", tags=("a",), extra={"p": 1}), Record("x", id="1", tags=("b",), trust="high")
    assert merged(old, new) == Record("x", id="1", tags=("a", "b"), trust="high", extra={"p": 1})
    assert merged(old, Record("y", id="1")) == Record("y", id="1")


def test_something_derived_is_as_trusted_as_its_least_trusted_source() -> None:
    assert least_trusted(["high", "low"]) == "low"
    assert least_trusted(["high"]) == "high"
    assert least_trusted([]) == "low"


def test_a_reason_is_one_line() -> None:
    line = str(Why(words=("stage", "server"), keyword=2.5, sentence=0.61, time=1.0, speaker=1.0, notes=("reranked",)))
    assert line == "words stage, server (2.50); meaning 0.61; time 1.00; said by the one who is asked about; reranked"
    assert str(Why()) == "no reason given"


def test_a_record_without_a_time_is_in_no_period() -> None:
    moment = datetime(2026, 5, 4, tzinfo=UTC)
    assert not Filter.of((), moment, None, None).admits(Record("x"))
    assert Filter.of((), None, None, None).admits(Record("x"))


def test_a_text_to_forget_is_found_wherever_people_wrote() -> None:
    needle = Needle("Elm “Street”")
    for record in (
        Record('an ELM  "street"'),
        Record("x", speaker='elm "street"'),
        Record("x", extra={"a": [{"b": 'the elm "street" 5'}]}),
    ):
        assert holds(needle, record)
    assert not holds(needle, Record("elm road"))


def test_why_a_record_was_found_tells_what_is_in_sight_from_what_stands_elsewhere_in_it() -> None:
    """K3: nobody looks in vain for a word in the part that is shown."""
    text = "- Device: laser; Form: training form\n- Device: saw; Form: signature of the manager\n- Device: drill; Form: none"
    shown, why = snippet_and_why(Hit(Record(text, kind="document"), 1.0, Why(words=("laser", "train", "form", "signatur"))))
    assert "training form" in shown.text and "signature" not in shown.text
    assert why == "it says “laser”, “training” and “Form”; elsewhere it says “signature”"
