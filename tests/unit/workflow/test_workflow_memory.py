"""W9: long-term memory is looked up before a session and added to after it, each finding once, whatever happens in between."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Place, linear, output

from holdfast.errors import StoreUnavailable
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.records import Record
from holdfast.knowledge.store import AddReport
from holdfast.workflow.control import approve


@pytest.fixture
def knowledge(tmp_path: Path) -> Iterator[MarkdownStore]:
    with MarkdownStore(tmp_path / "knowledge") as store:
        yield store


def remembered(knowledge: MarkdownStore) -> list[Record]:
    return sorted(knowledge.records(), key=lambda record: record.position or 0)


def test_the_task_and_the_parameters_are_looked_up_under_the_topic(place: Place, knowledge: MarkdownStore) -> None:
    knowledge.add(
        [
            Record("The latency of the store is 12 ms in Frankfurt", tags=("latency",), source="doc-1"),
            Record("The latency of bananas is unknown", tags=("fruit",)),
        ]
    )
    workflow = {**linear("a"), "task": "Measure latency", "topic_tag": "latency", "parameters": {"city": "Frankfurt"}}
    place.run(workflow, knowledge=knowledge)
    found = json.loads(place.file.read_text("utf-8"))["retrieved"]
    assert [one["text"] for one in found] == ["The latency of the store is 12 ms in Frankfurt"]
    assert found[0]["why"]
    assert "12 ms in Frankfurt" in place.agent.requests[0].prompt
    assert place.agent.requests[0].retrieved[0]["source"] == "doc-1"


def test_a_workflow_without_a_topic_looks_everywhere(place: Place, knowledge: MarkdownStore) -> None:
    knowledge.add([Record("Latency is 12 ms", tags=("latency",)), Record("Latency is 13 ms")])
    session = place.run({**linear("a"), "task": "Measure latency"}, knowledge=knowledge)
    assert len(session.retrieved) == 2


def test_no_more_is_looked_up_than_asked_for(place: Place, knowledge: MarkdownStore) -> None:
    knowledge.add([Record(f"Latency number {number}") for number in range(9)])
    session = place.run({**linear("a"), "task": "Latency", "memory_retrieval_top_k": 3}, knowledge=knowledge)
    assert len(session.retrieved) == 3
    none = place.run({**linear("a"), "task": "Latency", "memory_retrieval_top_k": 0}, knowledge=knowledge, session_id="s2")
    assert none.retrieved == ()


def test_findings_are_stored_with_tag_source_session_and_trust(place: Place, knowledge: MarkdownStore) -> None:
    sure = output("a", key_findings=[{"fact": "One", "source": "d1"}, {"fact": "Two", "source": "d2", "grounded": False}])
    unsure = output("b", confidence="low", key_findings=[{"fact": "Three", "source": "d3"}, {"fact": "One", "source": "d1"}])
    place.agent.script = {"a": [sure], "b": [unsure]}
    place.run({**linear("a", "b"), "topic_tag": "latency"}, knowledge=knowledge)
    records = remembered(knowledge)
    assert [(record.text, record.source, record.trust) for record in records] == [
        ("One", "d1", "medium"),
        ("Two", "d2", "low"),
        ("Three", "d3", "low"),
    ]
    assert {(record.tags, record.session, record.kind) for record in records} == {(("latency",), "s1", "finding")}


def test_what_a_person_approved_is_trusted_more(place: Place, knowledge: MarkdownStore) -> None:
    place.run(linear("a", approve=True), knowledge=knowledge)
    assert remembered(knowledge) == [], "nothing is stored before the session is completed"
    approve(place.store, "s1")
    place.resume(knowledge=knowledge)
    assert [record.trust for record in remembered(knowledge)] == ["high"]


def test_a_finding_is_as_trusted_as_its_least_trusted_source(place: Place, knowledge: MarkdownStore) -> None:
    """K1: of a retrieved memory, of a document that a stage lists, of any source that says the same; approval does not wash it clean."""
    knowledge.add([Record("Latency is 12 ms", id="k-outside", trust="low"), Record("Latency is 13 ms", id="k-typed", trust="high")])
    documents = [{"id": "page.html", "ref": "raw:sha256-1", "trust": "low"}, {"id": "notes.md", "trust": "medium"}]
    findings = [
        {"fact": "From outside", "source": "k-outside"},
        {"fact": "Typed", "source": "k-typed"},
        {"fact": "From a page", "source": "page.html#speed"},
        {"fact": "By its raw data", "source": "elsewhere", "raw": "raw:sha256-1"},
        {"fact": "Notes that a page repeats", "source": "notes.md", "also": [{"source": "page.html"}]},
        {"fact": "Nobody rated it", "source": "somewhere"},
    ]
    place.agent.script = {"a": [output("a", key_findings=findings, data={"documents": documents})]}
    place.run({**linear("a", approve=True), "task": "Latency"}, knowledge=knowledge)
    approve(place.store, "s1")
    place.resume(knowledge=knowledge)
    found = {record.text: record.trust for record in remembered(knowledge) if record.kind == "finding"}
    assert found == {
        "From outside": "low",
        "Typed": "high",
        "From a page": "low",
        "By its raw data": "low",
        "Notes that a page repeats": "low",
        "Nobody rated it": "high",
    }


class Killed(BaseException):
    """As sudden as a kill, for what runs in this process."""


class Sudden:
    """A knowledge store under which the process dies right after it has stored something."""

    def __init__(self, inner: MarkdownStore) -> None:
        self._inner = inner

    def add(self, records: Iterable[Record], **settings: Any) -> AddReport:
        self._inner.add(records, **settings)
        raise Killed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_findings_are_stored_once_even_when_the_process_dies_between_storing_and_saying_so(place: Place, knowledge: MarkdownStore) -> None:
    with pytest.raises(Killed):
        place.run(linear("a", "b"), knowledge=Sudden(knowledge))
    assert json.loads(place.file.read_text("utf-8"))["completed_stages"] == ["a", "b"]
    session = place.resume(knowledge=knowledge)
    assert session.status == "completed"
    assert place.agent.ran == ["a", "b"]
    assert [record.text for record in remembered(knowledge)] == ["a found something", "b found something"]


class Unreachable:
    def __getattr__(self, name: str) -> Any:
        raise StoreUnavailable("the database cannot be reached.")


def test_a_memory_that_cannot_be_reached_stops_the_run_and_can_be_resumed(place: Place, knowledge: MarkdownStore) -> None:
    with pytest.raises(StoreUnavailable):
        place.run(linear("a"), knowledge=Unreachable())
    assert place.agent.ran == []
    assert place.resume(knowledge=knowledge).status == "completed"


def test_short_sessions_may_do_without(place: Place, knowledge: MarkdownStore) -> None:
    short = {"session": {"short": {"max_stages": 2}}}
    session = place.run(linear("a", "b"), knowledge=knowledge, session_config=short)
    assert "retrieved_at" not in session.extra and remembered(knowledge) == []
    place.run(linear("a", "b", "c"), knowledge=knowledge, session_config=short, session_id="s2")
    assert len(remembered(knowledge)) == 3


def test_sessions_may_be_short_by_the_time_that_they_took(place: Place, knowledge: MarkdownStore) -> None:
    """W9: how long a session takes is known at its end, so it looks memory up like any other and stores nothing."""
    knowledge.add([Record("Finding out is hard", tags=("general",))])
    short = {"session": {"short": {"max_seconds": 60}}}
    place.agent.script = {"a": [lambda request: place.clock.advance(60) or output("a")]}
    session = place.run({**linear("a"), "task": "Finding out"}, knowledge=knowledge, session_config=short)
    assert len(session.retrieved) == 1 and len(remembered(knowledge)) == 1
    place.agent.script = {"a": [lambda request: place.clock.advance(61) or output("a")]}
    place.run(linear("a"), knowledge=knowledge, session_config=short, session_id="s2")
    assert {record.session for record in remembered(knowledge)} == {None, "s2"}


def test_the_store_that_a_session_configuration_names_is_opened(place: Place, tmp_path: Path) -> None:
    wanted = {"session": {"vector_store": {"provider": "markdown", "connection": str(tmp_path / "named")}}}
    place.run(linear("a"), session_config=wanted)
    with MarkdownStore(tmp_path / "named") as store:
        assert [record.text for record in store.records()] == ["a found something"]
