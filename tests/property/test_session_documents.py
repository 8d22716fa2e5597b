"""Whatever a session holds comes back; whatever a file holds is a session or a clear error (W2, W3, O7)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import HoldfastError, OutputInvalid
from holdfast.session.document import SessionRenderer, decode_session, parse_session, render_session, session_json
from holdfast.session.editor import differences, scrubbed
from holdfast.session.log import commit_record, fold
from holdfast.session.output import CONFIDENCES, Finding, StageOutput, output_json, parse_output
from holdfast.session.state import STAGE_STATUSES, STATUSES, Session, SessionError, StageRecord
from holdfast.text.needle import Needle
from holdfast.text.normalise import normalise

text = st.text(st.characters(blacklist_categories=["Cs"]), max_size=30)
words = text.filter(lambda value: bool(value.strip()))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
members = st.dictionaries(text.map(lambda value: f"x{value}"), plain, max_size=2)
names = st.text("abcdefghij-_.0123456789", min_size=1, max_size=12).map(lambda value: f"s{value}")
findings = st.builds(Finding, words, words, st.none() | st.booleans(), members)


def outputs(stage: str) -> st.SearchStrategy[StageOutput]:
    texts = st.lists(words, max_size=2).map(tuple)
    return st.builds(
        StageOutput,
        st.just(stage),
        words,
        st.lists(findings, max_size=2).map(tuple),
        st.sampled_from(CONFIDENCES),
        texts,
        texts,
        plain,
        st.booleans(),
        members,
    )


records = st.builds(
    StageRecord,
    st.sampled_from(STAGE_STATUSES),
    st.integers(0, 9),
    st.integers(0, 9),
    st.none() | text,
    st.none() | text,
    st.none() | st.floats(0, 1e6),
    st.none() | st.integers(0, 10**9),
    st.none() | st.floats(0, 1e6),
    st.none() | text,
    st.lists(members, max_size=2).map(tuple),
    st.booleans(),
    st.none() | text,
    st.lists(members, max_size=2).map(tuple),
    members,
)
errors = st.builds(
    SessionError,
    st.none() | st.just("s1"),
    st.just("timeout"),
    st.just("it took too long"),
    st.lists(st.just("a problem"), max_size=2).map(tuple),
    st.none() | st.just({"raw": ["output"]}),
    st.none() | st.just("2026"),
    st.none() | st.just("wait"),
    st.just({}),
)


@st.composite
def sessions(draw: st.DrawFn) -> Session:
    stages = draw(st.lists(names, max_size=4, unique=True))
    return Session(
        workflow_id=draw(names),
        task=draw(text),
        topic_tag=draw(words),
        status=draw(st.sampled_from(STATUSES)),
        current_stage=draw(st.none() | text),
        next_stage=draw(st.none() | text),
        completed_stages=tuple(stages[: draw(st.integers(0, 4))]),
        stage_outputs={name: draw(outputs(name)) for name in stages},
        memory_snapshots=tuple(draw(st.lists(members, max_size=2))),
        stages={name: draw(records) for name in stages},
        error=draw(st.none() | errors),
        retrieved=tuple(draw(st.lists(members, max_size=2))),
        workflow_hash=draw(text),
        created_at=draw(text),
        updated_at=draw(text),
        revision=draw(st.integers(0, 10**6)),
        lineage=draw(st.none() | st.fixed_dictionaries({"from": text, "note": plain})),
        usage=draw(members),
        extra=draw(members),
    )


@given(sessions())
@settings(max_examples=150, deadline=None)
def test_a_session_comes_back_from_its_bytes_as_it_was(session: Session) -> None:
    data = render_session(session)
    assert decode_session(data, "x.json") == session
    assert data.decode() == json.dumps(session_json(session), indent=2, ensure_ascii=False) + "\n"
    assert decode_session(b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"), "x.json") == session


@given(sessions(), sessions())
@settings(max_examples=60, deadline=None)
def test_a_renderer_that_wrote_another_state_before_writes_the_same_bytes(one: Session, two: Session) -> None:
    renderer = SessionRenderer()
    mixed = replace(two, stage_outputs={**one.stage_outputs, **two.stage_outputs}, stages=one.stages, extra={})
    for session in (one, mixed, two, one):
        assert renderer.encode(renderer.document(session)) == render_session(session)
    assert differences(one, one) == []
    assert bool(differences(one, mixed)) == (
        session_json(replace(one, revision=0, updated_at="")) != session_json(replace(mixed, revision=0, updated_at=""))
    )


@given(outputs("s1"))
@settings(max_examples=100, deadline=None)
def test_an_output_comes_back_from_its_json(output: StageOutput) -> None:
    value = json.loads(json.dumps(output_json(output)))
    assert parse_output(value, stage="s1") == output
    assert parse_output(json.dumps(value), stage="s1") == output


@given(st.dictionaries(st.sampled_from([*output_json(StageOutput("s", "x")), "data", "legacy", "other"]), plain, max_size=8))
@settings(max_examples=200, deadline=None)
def test_any_value_is_an_output_or_a_list_of_problems(value: dict[str, Any]) -> None:
    try:
        output = parse_output(value, stage="s1")
    except OutputInvalid as error:
        assert error.problems
    else:
        assert parse_output(output_json(output), stage="s1") == output


@given(st.dictionaries(st.sampled_from([*session_json(Session("w")), "other"]), plain, max_size=10), st.sampled_from([0, 1]))
@settings(max_examples=200, deadline=None)
def test_any_document_is_a_session_or_an_error_of_ours(value: dict[str, Any], version: int) -> None:
    try:
        session = parse_session(value | {"schema_version": version})
    except HoldfastError:
        return
    assert parse_session(session_json(session)) == session


@given(sessions(), st.data())
@settings(max_examples=60, deadline=None)
def test_a_file_that_is_cut_or_hit_is_never_taken_for_another_kind_of_error(session: Session, data: st.DataObject) -> None:
    whole = bytearray(render_session(session))
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        del whole[at:]
    else:
        whole[at] = data.draw(st.integers(0, 255))
    try:
        decode_session(bytes(whole), "x.json")
    except HoldfastError as error:
        assert "x.json" in str(error)


@given(sessions(), words.filter(lambda value: len(normalise(value)) > 2))
@settings(max_examples=60, deadline=None)
def test_what_is_forgotten_is_gone_and_a_session_remains(session: Session, needle: str) -> None:
    marked = replace(
        session, task=f"First. {needle}. Last.", memory_snapshots=({"stage": "s", "summary": needle},), extra={"note": [needle]}
    )
    wanted = Needle(needle)
    after, count = scrubbed(marked, wanted)
    if wanted.in_text("[forgotten]"):
        return  # what is asked for stands in the mark itself
    assert not wanted.in_value([after.task, *after.memory_snapshots[0].values(), dict(after.extra)])
    assert parse_session(session_json(after)) == after
    assert count


@given(sessions(), sessions())
@settings(max_examples=40, deadline=None)
def test_the_changes_between_two_states_make_one_of_the_other(one: Session, two: Session) -> None:
    """W2, W5: whatever changed, a record of the log holds it, and folding gives it back, in the order of the file."""
    old, new = session_json(one), session_json(replace(two, workflow_id=one.workflow_id))
    records = [commit_record({}, old), commit_record(old, new)]
    kept = json.loads(json.dumps(records))
    folded = fold([kept[0], {**kept[1], "after": old["revision"]}])
    assert folded.problem is None
    assert json.dumps(parse_back(folded.document)) == json.dumps(parse_back(new))
    assert commit_record(new, new)["changes"] == []


@given(sessions(), sessions())
@settings(max_examples=60, deadline=None)
def test_a_record_made_with_what_the_renderer_knows_is_the_one_made_without(one: Session, two: Session) -> None:
    """W2, W5: which outputs and records are new is known from the rendering; comparing everything finds the same."""
    grown = replace(one, stages={**one.stages, **two.stages}, stage_outputs={**one.stage_outputs, **two.stage_outputs})
    renderer, old = SessionRenderer(), dict[str, Any]()
    for session in (one, grown, replace(grown, stages=one.stages), two, one):
        new = renderer.document(session)
        record = commit_record(old, new, news=renderer.news)
        assert json.dumps(record) == json.dumps(commit_record(old, new))
        assert json.dumps(commit_record(dict(old), new, news=renderer.news)) == json.dumps(record), "of another document nothing is known"
        old = new


def parse_back(document: dict[str, Any]) -> dict[str, Any]:
    return session_json(parse_session(document))
