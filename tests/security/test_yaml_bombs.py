"""No YAML from outside grows without end, however few bytes it has: aliases are counted wherever such a text is read (C1, K1, A12, W1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.agent_settings import load_agent
from holdfast.config.loading import config_from_values, load_config
from holdfast.config.migration import upgrade_text
from holdfast.config.reading import MAX_HEAD, read_head
from holdfast.config.tool_sections import read_extensions
from holdfast.deerflow import plan
from holdfast.errors import ConfigError, HoldfastError, InputError
from holdfast.knowledge.evaluation import read_conversations
from holdfast.knowledge.import_export import read_path
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.record_forms import parse
from holdfast.knowledge.records import Record
from holdfast.skills import SkillLibrary, parse_skill
from holdfast.workflow.workflow_file import load_workflow

LARGE = 2_000_000  # characters: what is made of a text of a few kilobytes is far below, what a bomb grows to is far above


def listed(width: int, depth: int) -> list[str]:
    """Lists of aliases of lists."""
    first = f"- &a0 [{', '.join(['x'] * width)}]"
    return [first, *(f"- &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth))]


def mapped(width: int, depth: int) -> list[str]:
    """The same with mappings, anchors in a place of their own and odd names of keys."""
    rows = [f"- &a0 {{{', '.join(f'k-{m}.{m}: x' for m in range(width))}}}"]
    return [*rows, *(f"- &a{n} {{{', '.join(f'k{m}: *a{n - 1}' for m in range(width))}}}" for n in range(1, depth))]


def repeated(width: int, depth: int) -> list[str]:
    """One long text, many times."""
    return [f"- &a{depth - 1} {'x' * 1000 * depth}", f"- [{', '.join([f'*a{depth - 1}'] * 1000 * width)}]"]


def under(name: str, lines: list[str], last: str = "") -> str:
    return "\n".join([f"{name}:", *(f"  {line}" for line in lines), *([last] if last else [])])


BOMBS = {"lists": listed(9, 8), "mappings": mapped(9, 8), "one long text": repeated(8, 8)}
NAMES = ("tags", "title", "extra", "license", "description", "name", "models", "id", "stages", "task", "prompt")
bombs = pytest.mark.parametrize("lines", BOMBS.values(), ids=BOMBS.keys())


@bombs
@pytest.mark.parametrize("name", NAMES)
def test_a_head_that_grows_is_refused_with_its_line(lines: list[str], name: str) -> None:
    with pytest.raises(ConfigError, match="aliases are filled in") as told:
        read_head(under(name, lines))
    assert told.value.line


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([listed, mapped, repeated]), st.integers(1, 12), st.integers(1, 12), st.sampled_from(NAMES), st.booleans())
def test_what_any_reader_makes_of_a_head_is_bounded(
    shape: Callable[[int, int], list[str]], width: int, depth: int, name: str, below: bool
) -> None:
    """K1, A12: whatever shape it has, and wherever in the head it stands, a record or a skill is small or refused."""
    head = under(name, shape(width, depth), f"license: *a{depth - 1}" if below else "")[:MAX_HEAD]
    try:
        record = parse(f"---\n{head}\n---\nThe depot is in Bern.\n".encode(), "n.md")
    except InputError:
        record = None
    skill = parse_skill(f"---\nname: evil\n{head}\n---\nDo it.\n", "evil")
    assert len(repr(record)) + len(repr(skill)) < LARGE


@bombs
def test_an_import_names_the_file_and_takes_in_the_rest(tmp_path: Path, lines: list[str]) -> None:
    """K1: what strangers wrote is read by the ordinary use of this."""
    (tmp_path / "a.md").write_text(f"---\n{under('tags', lines)}\n---\nThe depot is in Bern.\n")
    (tmp_path / "b.md").write_text("The mill is in Graz.\n")
    found = dict(read_path(tmp_path))
    assert "aliases are filled in" in str(found["a.md"])
    assert isinstance(found["b.md"], Record)


@bombs
def test_a_folder_of_markdown_says_which_file_it_is(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "a.md").write_text(f"---\n{under('title', lines)}\n---\nThe depot is in Bern.\n")
    (tmp_path / "b.md").write_text("The mill is in Graz.\n")
    with MarkdownStore(tmp_path, embedder=None) as store:
        assert [record.text for record in store.records()] == ["The mill is in Graz."]
        assert ["a.md" in problem for problem in store.stats().problems] == [True]


@bombs
def test_a_skill_among_others_is_told(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "custom" / "evil").mkdir(parents=True)
    (tmp_path / "custom" / "evil" / "SKILL.md").write_text(f"---\nname: evil\n{under('list', lines, 'license: *a7')}\n---\nDo it.\n")
    found = SkillLibrary(tmp_path).all()
    assert len(repr(found)) < LARGE
    assert "aliases are filled in" in " ".join(found.problems)


@bombs
@pytest.mark.parametrize("name", NAMES)
def test_settings_workflows_and_agents_that_grow_are_errors(tmp_path: Path, lines: list[str], name: str) -> None:
    """C1, W1, M3: files that a person named are read by the same reader."""
    text = under(name, lines)
    (tmp_path / "config.yaml").write_text(text)
    agent = tmp_path / "base" / "agents" / "coder"
    agent.mkdir(parents=True)
    (agent / "config.yaml").write_text(text)
    plain = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "base")})
    readers: list[Callable[[], Any]] = [
        lambda: load_config(tmp_path / "config.yaml"),
        lambda: upgrade_text(text, tmp_path / "config.yaml"),
        lambda: load_workflow(tmp_path / "config.yaml"),
        lambda: load_agent(plain, "coder"),
    ]
    for read in readers:
        with pytest.raises(ConfigError, match="aliases are filled in"):
            read()


@bombs
def test_an_installation_of_the_reference_that_grows_is_told(tmp_path: Path, lines: list[str]) -> None:
    """C6: nothing of it is made before that."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "config.yaml").write_text(under("models", lines))
    ours = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "base")})
    found = plan(tmp_path / "theirs", ours=ours, target=tmp_path / "config.yaml")
    assert "aliases are filled in" in str(found)
    assert len(str(found)) < LARGE


DEEP = {"lists": "[" * 100_000, "objects": '{"a":' * 100_000, "digits": "9" * 10_000}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP.keys())
def test_json_that_python_does_not_read_is_an_error_of_its_file(tmp_path: Path, text: str) -> None:
    """K1, K6, O5: as deep, or with as many digits, as one likes."""
    for name in ("a.json", "b.jsonl", "c.json"):
        (tmp_path / name).write_text(json.dumps({"text": "The mill is in Graz."}) if name == "c.json" else text)
    found = dict(read_path(tmp_path))
    assert isinstance(found["c.json"], Record)
    assert not isinstance(found["b.jsonl"], Record)
    assert len(found) == 3
    assert read_extensions(tmp_path / "a.json")[0] == {}
    with pytest.raises(HoldfastError):
        list(read_conversations(tmp_path / "b.jsonl"))
