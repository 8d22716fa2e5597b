"""Files, scopes, cache, revisions, damage and storages of one's own (M2, M3, M4, M5, M6, M7)."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from holdfast.config.loading import config_from_values
from holdfast.errors import InputError, RevisionConflict, WriteFailed
from holdfast.events import Bus
from holdfast.memory.document import Document
from holdfast.memory.document_file import Layout, PathBeside
from holdfast.memory.facts import Fact
from holdfast.memory.memory_store import Edit, MemoryDamaged, MemoryStore
from holdfast.memory.storage import CustomStorage, FileMemoryStorage, MemoryStorage, StorageFallback, open_storage


def learn(storage: MemoryStore, content: str, agent: str | None = None) -> None:
    fact = Fact(f"f-{content}", content, confidence=0.9)
    storage.change(agent, lambda document: Edit(document.with_fact(fact), "user", "test"))


def contents(storage: MemoryStore, agent: str | None = None) -> list[str]:
    return [fact.content for fact in storage.document(agent).facts]


def test_an_agent_reads_the_global_memory_until_it_has_learned_something(tmp_path: Path) -> None:
    storage = FileMemoryStorage(tmp_path)
    learn(storage, "canary-global")
    assert contents(storage, "coder") == ["canary-global"]
    learn(storage, "canary-coder", "Coder")
    learn(storage, "canary-writer", "writer")
    assert contents(storage, "coder") == ["canary-coder"]
    assert contents(storage, "writer") == ["canary-writer"]
    assert contents(storage) == ["canary-global"]
    for path, canary in (("memory.json", "global"), ("agents/coder/memory.json", "coder"), ("agents/writer/memory.json", "writer")):
        text = (tmp_path / path).read_text()
        assert [name for name in ("global", "coder", "writer") if f"canary-{name}" in text] == [canary]


def test_without_inheritance_an_agent_starts_empty(tmp_path: Path) -> None:
    storage = FileMemoryStorage(Layout.below(tmp_path, inherit=False))
    learn(storage, "global")
    assert contents(storage, "coder") == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", "x" * 65, "a b", "ä", "coder\n", ".", "a.b"])
def test_a_name_that_is_none_is_refused_everywhere(tmp_path: Path, name: str) -> None:
    storage = FileMemoryStorage(tmp_path / "base")
    for act in (
        storage.load,
        storage.reload,
        storage.own,
        storage.document,
        lambda n: storage.save({}, n),
        lambda n: learn(storage, "x", n),
    ):
        with pytest.raises(InputError):
            act(name)
    assert not (tmp_path / "base").exists()


def test_another_process_s_write_is_noticed_and_an_unchanged_file_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = FileMemoryStorage(tmp_path), FileMemoryStorage(tmp_path)
    learn(theirs, "one")
    assert contents(ours) == ["one"]
    path = tmp_path / "memory.json"
    os.utime(path, ns=(1, 1))  # long ago, so that nothing could have been written in the same tick
    first = ours.document()
    assert ours.document() is first
    learn(theirs, "two")
    assert contents(ours) == ["one", "two"]
    path.write_text(path.read_text().replace("two", "TWO"))  # the same size, in place, as an editor does it
    assert contents(ours) == ["one", "TWO"]


def test_save_compares_the_revision(tmp_path: Path) -> None:
    storage = FileMemoryStorage(tmp_path)
    learn(storage, "first")
    mine = storage.load()
    learn(storage, "second")
    mine["facts"].append({"id": "x", "content": "mine"})
    with pytest.raises(RevisionConflict) as caught:
        storage.save(mine)
    assert (caught.value.expected, caught.value.found) == (1, 2)
    fresh = storage.reload()
    fresh["facts"].append({"id": "x", "content": "mine"})
    assert storage.save(fresh) is True
    assert contents(storage) == ["first", "second", "mine"]
    assert storage.changes()[-1].by == "storage"
    with pytest.raises(RevisionConflict):
        storage.save({"facts": []})


def test_a_file_of_the_reference_is_opened_changed_and_saved(tmp_path: Path) -> None:
    fixture = Path(__file__).parents[2] / "fixtures" / "memory" / "plain_strings.json"
    (tmp_path / "memory.json").write_bytes(fixture.read_bytes())
    storage = FileMemoryStorage(tmp_path)
    learn(storage, "new")
    saved = json.loads((tmp_path / "memory.json").read_text())
    assert saved["revision"] == 1
    assert [fact["content"] for fact in saved["facts"]] == ["User prefers metric units", "The gauge speaks Modbus", "new"]
    assert saved["history"]["recentMonths"]["summary"] == "Replaced the paper log in May"


@pytest.mark.parametrize("damage", [b"", b"\0" * 40, b'{"facts": [', b"[1]", b'{"facts": 3}', b"\xff\xfe"])
def test_a_damaged_file_is_set_aside_and_reported_never_overwritten(tmp_path: Path, damage: bytes) -> None:
    bus = Bus()
    (tmp_path / "memory.json").write_bytes(damage)
    storage = FileMemoryStorage(tmp_path, bus=bus)
    with bus.collect() as events:
        assert storage.document() == Document()
        learn(storage, "after")
    aside = [path for path in tmp_path.iterdir() if ".damaged-" in path.name]
    assert [path.read_bytes() for path in aside] == [damage]
    assert [type(event) for event in events if isinstance(event, MemoryDamaged)] == [MemoryDamaged]
    assert storage.state.set_aside == (str(aside[0]),)
    assert contents(storage) == ["after"]


def test_somebody_who_does_not_know_the_lock_is_not_overwritten(tmp_path: Path) -> None:
    storage = FileMemoryStorage(tmp_path)
    learn(storage, "ours")
    path = tmp_path / "memory.json"
    calls: list[int] = []

    def edit(document: Document) -> Edit:
        if not calls:  # an editor writes while we think
            value = json.loads(path.read_text())
            value["facts"].append({"id": "theirs", "content": "theirs"})
            path.write_text(json.dumps(value))
        calls.append(1)
        return Edit(document.with_fact(Fact("second", "second")), "user", "test")

    storage.change(None, edit)
    assert len(calls) == 2
    assert contents(storage) == ["ours", "theirs", "second"]


def test_storage_path_is_in_the_base_or_absolute_or_beside_the_file_with_a_warning(tmp_path: Path) -> None:
    bus = Bus()
    base = {"HOLDFAST_HOME": str(tmp_path / "state")}
    config = config_from_values({"memory": {"storage_path": "mem/user.json"}}, environ=base, cwd=tmp_path)
    assert Layout.of(config, bus=bus).shared == tmp_path / "state" / "mem" / "user.json"
    config = config_from_values({"memory": {"storage_path": str(tmp_path / "abs.json")}}, environ=base, cwd=tmp_path)
    assert Layout.of(config, bus=bus).shared == tmp_path / "abs.json"
    file = tmp_path / "project" / "config.yaml"
    file.parent.mkdir()
    file.write_text("memory: {storage_path: memory.json}\n")
    (file.parent / "memory.json").write_text("{}")
    from holdfast.config.loading import load_config

    with bus.collect() as events:
        assert Layout.of(load_config(file, environ=base), bus=bus).shared == file.parent / "memory.json"
    assert [type(event) for event in events] == [PathBeside]
    with bus.collect():
        assert FileMemoryStorage(Layout.of(config, bus=bus)).where("coder") == str(tmp_path / "state" / "agents" / "coder" / "memory.json")


def test_a_file_elsewhere_has_its_history_and_what_was_set_aside_beside_it(tmp_path: Path) -> None:
    """M2, M14: also for a name of its own, and agents stay in the base directory."""
    (tmp_path / "there").mkdir()
    file = tmp_path / "there" / "user.json"
    file.write_text("[heron]")
    storage = FileMemoryStorage(Layout.below(tmp_path / "state", str(file)))
    learn(storage, "one")
    learn(storage, "own", "coder")
    assert storage.where() == str(file)
    assert sorted(path.name for path in (tmp_path / "there" / "user.d").glob("*.jsonl")) == ["history.jsonl"]
    assert (tmp_path / "state" / "agents" / "coder" / "memory.json").exists()
    assert [change.revision for change in FileMemoryStorage(Layout.below(tmp_path / "state", str(file))).changes()] == [1]
    assert len(list((tmp_path / "there").glob("user.json.damaged-*"))) == 1
    assert storage.remove_set_aside(None, lambda data: b"heron" in data) == 1
    assert not list((tmp_path / "there").glob("user.json.damaged-*Z"))
    assert list(storage.scopes()) == [None, "coder"]


class Shelf(MemoryStorage):
    """A storage of one's own."""

    kept: ClassVar[dict[str | None, str]] = {}
    refuses = False

    def load(self, agent_name: str | None = None) -> dict[str, Any]:
        return json.loads(self.kept.get(agent_name, "{}"))  # type: ignore[no-any-return]

    reload = load

    def save(self, memory_data: dict[str, Any], agent_name: str | None = None) -> bool:
        if not self.refuses:
            self.kept[agent_name] = json.dumps(memory_data)
        return not self.refuses


class Broken(MemoryStorage):
    def __init__(self) -> None:
        raise RuntimeError("no connection")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ModuleType("shelves")
    made.Shelf, made.Broken, made.NotOne = Shelf, Broken, dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "shelves", made)
    monkeypatch.setattr(Shelf, "kept", {})


def opened(tmp_path: Path, path: str, bus: Bus | None = None) -> MemoryStore:
    config = config_from_values({"memory": {"storage_class": path}}, environ={"HOLDFAST_HOME": str(tmp_path)})
    return open_storage(config, bus=bus or Bus())


@pytest.mark.parametrize("path", ["shelves:Shelf", "shelves.Shelf"])
def test_a_class_of_one_s_own_keeps_the_documents(tmp_path: Path, module: None, path: str) -> None:
    storage = opened(tmp_path, path)
    assert isinstance(storage, CustomStorage)
    assert storage.state.state == "good"
    learn(storage, "global")
    assert contents(storage, "coder") == ["global"]
    learn(storage, "own", "coder")
    assert contents(storage, "coder") == ["own"]
    assert not (tmp_path / "memory.json").exists()
    assert [change.revision for change in storage.changes()] == [1]


def test_a_storage_that_keeps_nothing_is_an_error(tmp_path: Path, module: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shelf, "refuses", True)
    with pytest.raises(WriteFailed):
        learn(opened(tmp_path, "shelves:Shelf"), "x")


@pytest.mark.parametrize("path", ["shelves:Broken", "shelves:NotOne", "shelves:Missing", "no_such_module.X", "os:system"])
def test_a_class_that_cannot_be_loaded_is_said_and_files_are_used(tmp_path: Path, module: None, path: str) -> None:
    bus = Bus()
    with bus.collect() as events:
        storage = opened(tmp_path, path, bus)
    assert isinstance(storage, FileMemoryStorage)
    assert [event.asked for event in events if isinstance(event, StorageFallback)] == [path]
    assert (storage.state.state, storage.state.asked) == ("fallback", path)
    assert storage.state.message
    learn(storage, "kept")
    assert (tmp_path / "memory.json").exists()


def test_the_reference_s_path_of_the_file_storage_is_ours(tmp_path: Path) -> None:
    storage = opened(tmp_path, "src.agents.memory.storage.FileMemoryStorage")
    assert isinstance(storage, FileMemoryStorage)
    assert storage.state.state == "good"


WRITTEN_FOR_THE_REFERENCE = """
import json, pathlib
from {package}.agents.memory.storage import MemoryStorage, create_empty_memory

class Shelf(MemoryStorage):
    folder = pathlib.Path(__file__).parent

    def load(self, agent_name=None, *, user_id=None):
        file = self.folder / f"{{agent_name or 'all'}}.shelf"
        return json.loads(file.read_text()) if file.exists() else create_empty_memory()

    reload = load

    def save(self, memory_data, agent_name=None, *, user_id=None, expected_revision=None):
        (self.folder / f"{{agent_name or 'all'}}.shelf").write_text(json.dumps(memory_data))
        return True
"""


@pytest.mark.parametrize("package", ["deerflow", "src"])
def test_a_class_written_for_the_reference_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """M5: its import works while the class is loaded, and no module of that name is left behind."""
    name = f"shelves_for_{package}"
    (tmp_path / f"{name}.py").write_text(WRITTEN_FOR_THE_REFERENCE.format(package=package))
    monkeypatch.syspath_prepend(tmp_path)
    storage = opened(tmp_path / "base", f"{name}.Shelf")
    assert storage.state.state == "good"
    learn(storage, "Likes tea")
    assert "Likes tea" in (tmp_path / "all.shelf").read_text()
    assert [fact.content for fact in opened(tmp_path / "base", f"{name}:Shelf").document().facts] == ["Likes tea"]
    assert not [known for known in sys.modules if known.startswith(("deerflow", "src.agents"))]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.agents.memory.storage")
    sys.modules.pop(name)


def test_an_installed_package_of_that_name_is_never_shadowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """M5: what is really there wins, and its storage classes work as well."""
    real = tmp_path / "deerflow" / "agents" / "memory"
    real.mkdir(parents=True)
    for folder in (real, real.parent, real.parent.parent):
        (folder / "__init__.py").write_text("")
    (real / "storage.py").write_text("import abc\nREAL = True\nclass MemoryStorage(abc.ABC): pass\ndef create_empty_memory(): return {}\n")
    text = WRITTEN_FOR_THE_REFERENCE.format(package="deerflow") + "from deerflow.agents.memory.storage import REAL\n"
    (tmp_path / "shelves_beside_it.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        storage = opened(tmp_path / "base", "shelves_beside_it:Shelf")
        learn(storage, "Likes tea")
        assert (storage.state.state, (tmp_path / "all.shelf").exists()) == ("good", True)
        assert sys.modules["deerflow.agents.memory.storage"].REAL
    finally:
        for known in [known for known in sys.modules if known.partition(".")[0] in ("deerflow", "shelves_beside_it")]:
            del sys.modules[known]
