"""W7, W8: what a stage is given fits the tokens that are allowed, the oldest or least relevant leaves first, and the file names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Place, linear, output

from holdfast.errors import BudgetError
from holdfast.session.log import texts_of
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import LONGEST_FILE
from holdfast.tokens.counter import open_counter
from holdfast.workflow.stage_context import ContextBuilder, Material

COUNTER = open_counter()


def found(name: str, summary: str, *facts: str, **more: Any) -> StageOutput:
    return StageOutput(name, summary, tuple(Finding(fact, "doc") for fact in facts), **more)


def build(material: Material, limit: int | None, policy: Any = "oldest_first") -> Any:
    return ContextBuilder(lambda: COUNTER, max_tokens=limit, policy=policy).build(material)


def size(material: Material, prompt: str) -> int:
    return COUNTER.count_text(material.system_prompt) + COUNTER.count_text(prompt)


OUTPUTS = (
    found("first", "Bananas are yellow fruit. " * 8, "Bananas grow in bunches"),
    found("second", "The latency of the store is 12 ms. " * 8, "Latency p50 is 12 ms", "Latency p99 is 80 ms"),
    found("third", "Colours are a matter of taste. " * 8, "Blue is liked"),
)


def test_without_a_limit_everything_is_there() -> None:
    context = build(Material(stage="x", task="Go", outputs=OUTPUTS), None)
    assert context.evicted == () and len(context.given) == 3


def test_the_oldest_leaves_first_and_is_named() -> None:
    material = Material(stage="x", task="Compare the latency", outputs=OUTPUTS)
    context = build(material, 230)
    assert size(material, context.prompt) <= 230
    assert [given.stage_name for given in context.given] == ["second", "third"]
    assert "Bananas" not in context.prompt
    assert [one["name"] for one in context.evicted][:2] == ["first: finding", "first: summary"]
    assert all(one["tokens"] > 0 for one in context.evicted)


def test_what_has_least_to_do_with_the_task_leaves_first() -> None:
    material = Material(stage="x", task="Compare the latency of the store", outputs=OUTPUTS)
    context = build(material, 140, "least_relevant")
    assert size(material, context.prompt) <= 140
    assert [given.stage_name for given in context.given] == ["second"]


def test_memories_are_older_than_anything_in_the_session_and_the_worst_leaves_first() -> None:
    memories = tuple({"id": f"m{number}", "text": f"Memory number {number} about things. " * 3} for number in range(4))
    material = Material(stage="x", task="Go", outputs=(found("a", "short"),), retrieved=memories)
    whole = build(material, None)
    context = build(material, size(material, whole.prompt) - 30)
    assert context.given[0].stage_name == "a"
    assert [memory["id"] for memory in context.retrieved] == ["m0", "m1"]
    assert [one["name"] for one in context.evicted] == ["memory: m3", "memory: m2"]


def test_of_one_output_that_is_too_long_the_beginning_is_left() -> None:
    material = Material(stage="x", task="Go", outputs=(found("a", "A long story of many words. " * 200),))
    context = build(material, 120)
    assert size(material, context.prompt) <= 120
    assert context.given[0].summary.startswith("A long story")
    assert context.evicted[-1]["name"] == "a: summary, in part"


def test_what_must_be_given_and_does_not_fit_is_an_error_that_says_what_needs_how_much() -> None:
    with pytest.raises(BudgetError) as caught:
        build(Material(stage="x", task="Go " * 300, system_prompt="Be exact. " * 100, outputs=OUTPUTS), 200)
    assert caught.value.needs["system prompt"] > 200
    assert caught.value.window == 200


@pytest.mark.parametrize("policy", ["oldest_first", "least_relevant"])
def test_a_workflow_of_twenty_stages_fits_two_thousand_tokens_at_every_stage(tmp_path: Path, policy: str) -> None:
    place = Place(tmp_path)
    names = [f"s{number:02d}" for number in range(20)]
    words = "The measurements of this stage say a number of things that matter to the next one. "
    place.agent.script = {
        name: [output(name, summary=f"{name}: " + words * 12, key_findings=[{"fact": words * 2, "source": "doc"}] * 4)] for name in names
    }
    memory = {"working_memory": {"max_tokens": 2000, "eviction_policy": policy}}
    session = place.run(linear(*names, system_prompt="Weigh the findings."), session_config={"memory": memory})
    assert session.status == "completed"
    for request in place.agent.requests:
        assert COUNTER.count_text(request.system_prompt) + COUNTER.count_text(request.prompt) <= 2000
        assert request.budget == 2000
    kept = json.loads(place.file.read_text("utf-8"))["stages"]
    assert "evicted" not in kept["s00"]
    evicted = [one["name"] for one in kept["s19"]["evicted"]]
    assert any(name.startswith("s00: ") for name in evicted)
    shown = {given.stage_name for given in place.agent.requests[19].given}
    hidden = set(names[:19]) - shown
    assert hidden and all(f"{name}: summary" in evicted for name in hidden)
    assert "Left out" in (place.folder / "sessions/s1/stages/20-s19/context.md").read_text("utf-8")


def test_a_prompt_that_is_asked_again_still_fits(tmp_path: Path) -> None:
    place = Place(tmp_path)
    long = output("a", summary="Words that matter. " * 150)
    place.agent.script = {"a": [long], "b": [{"summary": 3, "key_findings": [{}] * 12}]}
    place.run(linear("a", "b"), session_config={"memory": {"working_memory": {"max_tokens": 400}}})
    assert len(place.agent.prompts("b")) == 2
    assert all(COUNTER.count_text(prompt) <= 400 for prompt in place.agent.prompts("b"))


def test_what_cannot_fit_halts_the_session_with_that_reason(tmp_path: Path) -> None:
    place = Place(tmp_path)
    session = place.run(linear("a", system_prompt="Be exact. " * 200), session_config={"memory": {"working_memory": {"max_tokens": 100}}})
    assert session.status == "halted"
    assert session.error is not None and "100 tokens" in session.error.message
    assert place.agent.ran == []


def test_the_files_of_a_long_workflow_do_not_grow_with_its_stages_and_the_log_keeps_every_word(tmp_path: Path) -> None:
    """W7: what stood there is named, with the place where it is; nothing else is left out."""
    place = Place(tmp_path)
    names = [f"s{number}" for number in range(60)]
    place.agent.script = {name: [output(name, summary=f"{name} says. " + "Words that are worth keeping. " * 40)] for name in names}
    assert place.run(linear(*names, system_prompt="# Be exact\n\n## always")).status == "completed"
    stages = place.folder / "sessions/s1/stages"
    given = {number: (stages / f"{number:02d}-s{number - 1}/context.md").read_text("utf-8") for number in (20, 50, 60)}
    assert place.agent.requests[19].prompt in given[20], "a short one is there word for word"
    assert max(len(given[50]), len(given[60])) <= LONGEST_FILE + 200
    assert "# Be exact\n\n## always" in given[60]
    assert "to s" in given[60] and "`output.md`" in given[60]
    assert "s58 says." in given[60] and "s1 says." not in given[60]
    with place.store.current("s1") as known:
        texts = texts_of(known.records())
    assert all(place.agent.requests[number].prompt in texts[f"{number + 1:02d}-s{number}/context.md"] for number in range(60))
    log = (place.folder / "sessions/s1/log.jsonl").read_bytes().splitlines()
    assert len(log[-2]) < 2 * len(log[5])
