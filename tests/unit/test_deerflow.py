"""C6: an installation of the reference is taken over once, without changing it, and nothing of ours is overwritten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.deerflow import apply, plan
from holdfast.errors import InputError
from holdfast.testing.clock import FakeClock

MEMORY = {
    "user": {"workContext": {"summary": "Billing", "updatedAt": ""}},
    "facts": [{"id": "f1", "content": "Uses PostgreSQL", "team": "x"}],
}
FACT = """---
id: fact-9
schemaVersion: 2
category: preference
confidence: 0.9
status: active
createdAt: "2026-06-20T08:15:30Z"
source: {type: conversation, threadId: thread-7}
---
# Short answers
Wants short answers: "no padding".
"""


def write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "old"
    write(root / "config.yaml", "# mine\nmemory: {enabled: true}\n")
    write(root / "backend/.deer-flow/memory.json", MEMORY)
    write(root / "backend/.deer-flow/agents/Coder/memory.json", {"facts": []})
    write(root / "backend/.deer-flow/agents/bad name!/memory.json", {"facts": []})
    write(root / "backend/.deer-flow/users/ann/memory.json", {"facts": [{"id": "a", "content": "Ann"}]})
    write(root / "backend/.deer-flow/users/bob/agents/writer/memory.json", {"facts": []})
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    yield root
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before, "the installation was changed"


def take(source: Path, home: Path) -> None:
    apply(plan(source, base=home, config_target=home.parent / "config.yaml"), clock=FakeClock())


def test_global_agent_and_user_memory_and_the_configuration_come_along(installation: Path, tmp_path: Path) -> None:
    home = tmp_path / "new" / ".holdfast"
    take(installation, home)
    assert json.loads((home / "memory.json").read_text()) == MEMORY
    assert (home / "agents/coder/memory.json").exists()
    assert json.loads((home / "users/ann/memory.json").read_text())["facts"][0]["content"] == "Ann"
    assert (home / "users/bob/agents/writer/memory.json").exists()
    assert "# mine" in (tmp_path / "new/config.yaml").read_text()
    assert not list(home.rglob("bad name*"))


def test_it_is_done_once(installation: Path, tmp_path: Path) -> None:
    home = tmp_path / "new" / ".holdfast"
    take(installation, home)
    with pytest.raises(InputError, match="taken over on"):
        take(installation, home)


def test_what_is_ours_is_never_overwritten_and_nothing_is_half_done(installation: Path, tmp_path: Path) -> None:
    home = tmp_path / "new" / ".holdfast"
    write(home / "agents/coder/memory.json", {"facts": [{"id": "mine"}]})
    with pytest.raises(InputError, match="something else already"):
        take(installation, home)
    assert not (home / "memory.json").exists()
    assert json.loads((home / "agents/coder/memory.json").read_text()) == {"facts": [{"id": "mine"}]}


def test_the_only_user_becomes_the_global_memory(tmp_path: Path) -> None:
    write(tmp_path / "old/.deer-flow/users/ann/memory.json", MEMORY)
    take(tmp_path / "old", tmp_path / "home")
    assert json.loads((tmp_path / "home/memory.json").read_text()) == MEMORY


def test_facts_that_are_markdown_files_become_facts(tmp_path: Path) -> None:
    folder = tmp_path / "old/agents/__default__"
    write(folder / "memory.json", {"version": "2.0", "user": MEMORY["user"]})
    write(folder / "facts/ab/fact-9.md", FACT)
    write(folder / "facts/cd/fact-10.md", FACT.replace("fact-9", "fact-10").replace("active", "removed"))
    write(folder / "facts/ef/fact-11.md", "no front matter")
    found = plan(tmp_path / "old", base=tmp_path / "home", config_target=tmp_path / "c.yaml")
    (step,) = found.steps
    assert step.target == tmp_path / "home/memory.json"
    (fact,) = step.content["facts"]
    assert fact["id"] == "fact-9"
    assert fact["content"] == 'Wants short answers: "no padding".'
    assert (fact["confidence"], fact["source"]) == (0.9, "thread-7")
    assert [path.name for path, _ in found.unreadable] == ["fact-11.md"]


def test_a_damaged_file_is_named_and_the_rest_taken_over(installation: Path, tmp_path: Path) -> None:
    write(tmp_path / "half/memory.json", '{"facts": [')
    write(tmp_path / "half/agents/coder/memory.json", MEMORY)
    found = plan(tmp_path / "half", base=tmp_path / "home", config_target=tmp_path / "c.yaml")
    assert [path.name for path, _ in found.unreadable] == ["memory.json"]
    assert len(found.steps) == 1


def test_a_folder_without_anything_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither"):
        plan(tmp_path, base=tmp_path / "home", config_target=tmp_path / "c.yaml")
    with pytest.raises(InputError, match="not a folder"):
        plan(tmp_path / "absent", base=tmp_path / "home", config_target=tmp_path / "c.yaml")
