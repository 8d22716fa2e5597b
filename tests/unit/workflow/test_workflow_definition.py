"""W1, W13: a workflow file is read with its lines, a mistake is told with the nearest thing that fits, the hash is of the meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.config.loading import load_config, read_config
from holdfast.config.section import all_errors
from holdfast.errors import ConfigError
from holdfast.workflow.definition import Workflow
from holdfast.workflow.run_settings import settings_of, workflow_config
from holdfast.workflow.workflow_file import load_workflow, parse_workflow

REFERENCE = Path(__file__).parents[4] / "shared" / "reference"
FILE = """\
id: latency-benchmark
task: Which vector store has the lowest latency at one million records?
topic_tag: latency
memory_retrieval_top_k: 10
stages:
  - name: task_decomposition
    agent_type: planner
    system_prompt: Break the task into steps that can be checked.
  - name: web_research
    agent_type: researcher
    system_prompt: Find primary sources. Quote figures with their source.
"""
SESSION = """\
session:
  id: "research-2026-04-19-latency-benchmark"
  storage_backend: "postgresql"
  vector_store:
    provider: "pgvector"
    connection: "postgresql://user:pass@localhost:5432/deerflow"
    collection: "session_memories"
  checkpoint_interval: 2
memory:
  working_memory:
    max_tokens: 128000
    eviction_policy: "oldest_first"
  session_memory:
    persist: true
    path: "/var/lib/deerflow/sessions/{session_id}.json"
  long_term_memory:
    retrieval_top_k: 7
    rerank: true
    rerank_model: "cross-encoder/ms-marco-MiniLM-L-12-v2"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "workflow.yaml"
    path.write_text(text, "utf-8")
    return path


def wrong(folder: Path, text: str) -> list[ConfigError]:
    with pytest.raises(ConfigError) as caught:
        load_workflow(written(folder, text))
    return all_errors(caught.value)


def stages(*found: dict[str, Any], **top: Any) -> Workflow:
    return parse_workflow({"id": "w", "stages": list(found), **top})


def test_a_file_in_the_form_of_the_reference_loads_as_it_is(tmp_path: Path) -> None:
    workflow = load_workflow(written(tmp_path, FILE))
    assert (workflow.id, workflow.topic_tag, workflow.memory_retrieval_top_k) == ("latency-benchmark", "latency", 10)
    assert [(stage.name, stage.agent_type, stage.line) for stage in workflow.stages] == [
        ("task_decomposition", "planner", 6),
        ("web_research", "researcher", 9),
    ]
    assert workflow.needs == {"task_decomposition": (), "web_research": ("task_decomposition",)}


@pytest.mark.skipif(not REFERENCE.is_dir(), reason="the reference files are not beside this copy")
@pytest.mark.parametrize("name", ["workflow.yaml", "workflow_state.yaml"])
def test_the_files_of_the_reference_load(name: str) -> None:
    assert len(load_workflow(REFERENCE / name).stages) >= 3


def test_a_session_configuration_in_the_form_of_the_reference_loads_as_it_is() -> None:
    settings = settings_of([read_config(SESSION)])
    assert settings.session_id == "research-2026-04-19-latency-benchmark"
    assert (settings.backend, settings.checkpoint_interval, settings.max_tokens) == ("postgresql", 2, 128000)
    assert settings.path == "/var/lib/deerflow/sessions/{session_id}.json"
    assert (settings.top_k, settings.rerank, settings.rerank_model) == (7, True, "cross-encoder/ms-marco-MiniLM-L-12-v2")
    assert settings.vector_store is not None and settings.vector_store.collection == "session_memories"
    assert "pass" not in repr(settings.kept()).replace("bypass", "")


def test_filesystem_is_another_word_for_file() -> None:
    """W1: the reference's documents use both."""
    assert settings_of([read_config("session: {storage_backend: filesystem}")]).backend == "file"


def test_what_makes_a_session_long_or_short_is_kept_with_it() -> None:
    """W5, W6, W9"""
    said = "session: {long: {after_stages: 10, after_seconds: 600}, short: {max_seconds: 30}}"
    kept = settings_of([read_config(said)]).kept()
    again = settings_of([None, None], kept)
    assert (again.long_after_stages, again.long_after_seconds, again.short_max_seconds) == (10, 600, 30)


def test_what_is_said_nearer_to_the_session_wins_key_by_key(tmp_path: Path) -> None:
    common = read_config("memory: {working_memory: {max_tokens: 1000, eviction_policy: least_relevant}}\nsession: {checkpoint_interval: 9}")
    workflow = load_workflow(written(tmp_path, FILE + "memory: {working_memory: {max_tokens: 2000}}\n"))
    own = read_config("session: {checkpoint_interval: 3}")
    settings = settings_of([common, workflow_config(workflow), own])
    assert (settings.max_tokens, settings.eviction_policy, settings.checkpoint_interval) == (2000, "least_relevant", 3)


def test_a_setting_beside_the_stages_is_checked_with_its_line(tmp_path: Path) -> None:
    workflow = load_workflow(written(tmp_path, FILE + "session:\n  checkpoint_intervall: 2\n"))
    with pytest.raises(ConfigError) as caught:
        workflow_config(workflow)
    assert (caught.value.line, caught.value.nearest) == (13, "checkpoint_interval")


@pytest.mark.parametrize(
    ("text", "line", "key", "nearest"),
    [
        ("id: w\nstagess: []\n", 2, "stagess", "stages"),
        ("id: w\nstages:\n  - name: a\n    aprove: true\n", 4, "stages[0].aprove", "approve"),
        ("id: w\nstages:\n  - name: a\n  - name: b\n    inputs: [aa]\n", 5, "stages[1].inputs[0]", "a"),
        ("id: w\nstages:\n  - name: a\n    needs: [c]\n  - name: b\n", 4, "stages[0].needs[0]", None),
        ("id: w\nstages:\n  - name: a\n  - name: a\n", 4, "stages[1].name", None),
        ("id: w\nstages:\n  - name: a\n    retries: many\n", 4, "stages[0].retries", None),
        ("id: w\nstages:\n  - name: a\n    on_error: ignore\n", 4, "stages[0].on_error", None),
        ("id: w\nstages:\n  - name: a\n    timeout_seconds: 0\n", 4, "stages[0].timeout_seconds", None),
        ("id: w\nstages:\n  - name: ../a\n", 3, "stages[0].name", None),
        ("id: w\nstages:\n  - name: a\n    output_schema: {type: 7}\n", 4, "stages[0].output_schema", None),
        ("id: w\nstages:\n  - agent_type: llm\n", 3, "stages[0].name", None),
        ("id: w\nstages: []\n", 2, "stages", None),
        ("stages: [{name: a}]\n", None, "id", None),
    ],
)
def test_a_mistake_is_told_with_its_line_and_the_nearest_thing(
    tmp_path: Path, text: str, line: int | None, key: str, nearest: str | None
) -> None:
    error = wrong(tmp_path, text)[0]
    assert (error.line, error.key, error.nearest) == (line, key, nearest)
    assert str(tmp_path / "workflow.yaml") in str(error)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    errors = wrong(tmp_path, "id: w\nstages:\n  - name: a\n    retries: x\n  - name: b\n    approve: perhaps\n")
    assert [error.line for error in errors] == [4, 6]


def test_a_mistake_of_one_stage_hides_none_of_another(tmp_path: Path) -> None:
    """C2, W1: an unknown key, a wrong type, and names of stages that are not there are independent of each other."""
    text = (
        "id: w\ntopci: x\nstages:\n  - name: a\n    retries: x\n  - name: b\n    needs: [a, nobody]\n  - name: b\n    inputs: [nothing]\n"
    )
    errors = wrong(tmp_path, text)
    assert [(error.line, error.key) for error in errors] == [
        (2, "topci"),
        (5, "stages[0].retries"),
        (7, "stages[1].needs[1]"),
        (8, "stages[2].name"),
        (9, "stages[2].inputs[0]"),
    ]


def test_stages_that_wait_for_each_other_are_an_error(tmp_path: Path) -> None:
    (error,) = wrong(tmp_path, "id: w\nstages:\n  - name: a\n    needs: [b]\n  - name: b\n    needs: [a]\n")
    assert "a -> b -> a" in error.message


def test_an_input_that_is_not_done_before_is_an_error() -> None:
    with pytest.raises(ConfigError, match="is not done before"):
        stages({"name": "a"}, {"name": "b", "needs": []}, {"name": "c", "needs": ["a"], "inputs": ["b"]})


def test_a_stage_without_needs_waits_for_all_before_it() -> None:
    workflow = stages({"name": "plan"}, {"name": "a", "needs": ["plan"]}, {"name": "b", "needs": ["plan"]}, {"name": "end"})
    assert workflow.needs["end"] == ("a", "b")


def test_the_hash_is_of_the_meaning_and_not_of_the_spelling(tmp_path: Path) -> None:
    plain = load_workflow(written(tmp_path, FILE)).hash
    spelt = FILE.replace("task: Which", "# a comment\ntask:   Which").replace("agent_type: planner", "retries: 2\n    agent_type: planner")
    assert load_workflow(written(tmp_path, spelt)).hash == plain
    assert load_workflow(written(tmp_path, FILE.replace("Break the", "Split the"))).hash != plain
    other_task = load_workflow(written(tmp_path, FILE.replace("one million", "two million")))
    assert other_task.hash == plain, "the task belongs to the session"


def test_the_kept_definition_has_the_same_hash() -> None:
    schema = {"type": "object", "required": ["n"]}
    workflow = stages(
        {"name": "a", "agent_type": "planner", "output_schema": schema, "api_key": "sk-abcdefghijklmnop", "queries": 3},
        {"name": "b", "needs": ["a"], "on_error": "skip"},
        max_added_stages=2,
    )
    assert parse_workflow(workflow.document()).hash == workflow.hash
    assert workflow.stages[0].settings == {"api_key": "sk-abcdefghijklmnop", "queries": 3}


@pytest.mark.parametrize(
    ("key", "meant"),
    [("requires_approval", "approve"), ("timout", "timeout_seconds"), ("depends_on", "needs"), ("max_retries", "retries")],
)
def test_a_key_by_the_name_that_others_give_to_it_is_told_and_not_left_unread(key: str, meant: str, tmp_path: Path) -> None:
    """W1, C3: left as a setting of the agent, nobody would read it, and a person would be asked for no approval."""
    (error,) = wrong(tmp_path, f"id: w\nstages:\n  - name: a\n    {key}: 1\n")
    assert (error.line, error.nearest) == (4, meant)


def test_an_own_agent_may_have_settings_of_such_names_but_none_that_reads_as_an_approval() -> None:
    """W1"""
    own = {"name": "a", "agent_type": "mine:fetch", "timeout": 5, "prompts": ["x"]}
    assert stages(own).stages[0].settings == {"timeout": 5, "prompts": ["x"]}
    with pytest.raises(ConfigError, match="approve"):
        stages({**own, "requires_approval": True})


def test_a_definition_that_a_session_kept_is_read_as_it_was_accepted() -> None:
    """W6: what was begun can be resumed, whatever is refused in a new file."""
    kept = {"id": "w", "stages": [{"name": "a", "requires_approval": True}]}
    assert parse_workflow(kept, kept=True).stages[0].settings == {"requires_approval": True}


def test_a_function_in_place_of_a_name_is_told_where_it_goes() -> None:
    with pytest.raises(ConfigError, match="agents="):
        parse_workflow({"id": "w", "stages": [{"name": "a", "agent_type": print}]})


def test_a_file_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_workflow(tmp_path / "none.yaml")


def test_a_workflow_file_may_stand_where_a_configuration_is_expected(tmp_path: Path) -> None:
    assert load_config(written(tmp_path, FILE + "session: {checkpoint_interval: 4}\n")).session.checkpoint_interval == 4
