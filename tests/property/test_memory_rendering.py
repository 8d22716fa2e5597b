"""For any document and budget: never over it, one block, nothing breaks out of it; documents and changes survive JSON (M2, M12)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.memory.document import Document, Summary, parse, to_json
from holdfast.memory.facts import SLOTS, Fact, Origin
from holdfast.memory.history import Change, differences, from_record, redone, to_record, undone
from holdfast.memory.rendering import SHORTENED, compose
from holdfast.tokens.counter import open_counter

count = open_counter().count_text
nasty = st.sampled_from(
    [
        "</memory>",
        "<memory>",
        "\n## Key Facts\n",
        "\u2028",
        "数据库",
        "🚀🚀",
        "a" * 300,
        "(Memory truncated to fit token limit)",
        "\x00",
        "…",
    ]
)
words = st.lists(
    st.one_of(st.text(max_size=30), nasty, st.sampled_from(["PostgreSQL 16", "prefers", "in Graz", "deploys on Fridays"])), max_size=12
)
texts = words.map(" ".join).map(lambda text: text.encode("utf-8", "replace").decode())
origins = st.builds(
    Origin, st.sampled_from(["user", "tool", "unknown"]), st.none() | texts.filter(bool), quote=st.none() | texts.filter(bool)
)
fact_values = st.builds(
    Fact,
    id=st.integers(0, 10**6).map(lambda n: f"f{n}"),
    content=texts,
    category=st.sampled_from(["preference", "correction", "context"]),
    confidence=st.floats(0, 1),
    created=st.sampled_from(["", "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"]),
    origin=origins,
    status=st.sampled_from(["active", "provisional"]),
    confirmations=st.integers(1, 9),
    extra=st.dictionaries(st.sampled_from(["team", "note"]), st.integers() | texts, max_size=2),
)
documents = st.builds(
    Document,
    facts=st.lists(fact_values, max_size=100, unique_by=lambda fact: fact.id).map(tuple),
    slots=st.dictionaries(st.sampled_from(SLOTS), st.builds(Summary, texts, st.just("2026-01-01")), max_size=6),
    revision=st.integers(0, 99),
    extra=st.dictionaries(st.sampled_from(["ours", "theirs"]), st.integers(), max_size=2),
)


def check(document: Document, budget: int) -> None:
    rendering = compose(document, budget, count)
    text = rendering.text
    assert rendering == compose(document, budget, count)
    if not text:
        return
    assert rendering.tokens == count(text) <= budget
    assert text.startswith("<memory>\n")
    assert text.endswith("\n</memory>")
    assert (text.count("<"), text.count(">")) == (2, 2)
    heads = [line for line in text.splitlines() if line.startswith("#")]
    assert heads == [head for head in ("## User Context", "## Recent History", "## Key Facts") if head in heads]
    assert (text.splitlines()[-2] == SHORTENED) == bool(rendering.left_out)


@pytest.mark.prove
def test_a_rendering_is_never_over_its_budget(effort: Effort) -> None:
    runs = effort(150, 1000)

    @settings(max_examples=runs, deadline=None, database=None, derandomize=not effort.proving)
    @given(documents, st.integers(0, 3000))
    def prove(document: Document, budget: int) -> None:
        check(document, budget)

    prove()


@pytest.mark.prove
def test_a_hundred_facts_are_never_over_the_budget(effort: Effort) -> None:
    runs = effort(30, 1000)
    full = st.builds(
        Document,
        facts=st.lists(texts, min_size=100, max_size=100).map(
            lambda said: tuple(Fact(f"f{n}", text, confidence=0.9) for n, text in enumerate(said))
        ),
    )

    @settings(max_examples=runs, deadline=None, database=None, derandomize=not effort.proving)
    @given(full, st.integers(1, 2000))
    def prove(document: Document, budget: int) -> None:
        check(document, budget)

    prove()


@settings(max_examples=80, deadline=None)
@given(documents)
def test_a_document_survives_json(document: Document) -> None:
    again = parse(json.loads(json.dumps(to_json(document))))
    assert again.facts == document.facts
    assert to_json(again) == to_json(document)


@settings(max_examples=80, deadline=None)
@given(documents, documents)
def test_every_change_can_be_redone_and_undone(before: Document, after: Document) -> None:
    change = Change("c", "2026-03-01T00:00:00Z", before.revision + 1, "user", "test", differences(before, after))
    assert from_record(json.loads(json.dumps(to_record(change)))) == change
    forth = redone(before, change)
    assert differences(forth, after) == ()
    assert differences(undone(forth, change), before) == ()
