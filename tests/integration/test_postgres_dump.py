"""O7: a dump of a real server, made and put back with the commands of docs/workers.md, into a database that never saw Holdfast."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from tests.crash.postgres_server import own_server

from holdfast.config.loading import config_from_values
from holdfast.harness import Harness, build
from holdfast.health import examine
from holdfast.knowledge.records import Record
from holdfast.session.state import Session


def opened(dsn: str) -> Harness:
    values: dict[str, Any] = {
        "session": {"storage_backend": "postgresql", "connection": dsn},
        "knowledge": {"adapter": "postgres", "dsn": dsn},
        "memory": {"dsn": dsn},
    }
    return build(config_from_values(values))


def database(dsn: str, name: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    parts = conninfo_to_dict(dsn) | {"dbname": name}
    return make_conninfo("", **{key: str(value) for key, value in parts.items() if value is not None})


@pytest.mark.parametrize("extension", [True, False], ids=["with the extension", "without it"])
def test_a_dump_restored_into_a_new_database_holds_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, extension: bool) -> None:
    """Sessions, memory and knowledge. Without the extension pg_restore complains, and nothing is missing all the same."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with own_server() as server:
        old, new = database(server.dsn, "old"), database(server.dsn, "new")
        with opened(old) as harness:
            harness.sessions.create(Session("s1", task="Count herons."))
            harness.memory.add("User keeps bees")
            harness.knowledge.add([Record("Gamma is a staging server in Frankfurt.")])
        dump = tmp_path / "holdfast.dump"
        with dump.open("wb") as file:
            subprocess.run([server.tool("pg_dump"), "--format=custom", "--schema=holdfast", old], stdout=file, check=True)
        if extension:
            with psycopg.connect(new, autocommit=True) as connection:
                connection.execute("CREATE EXTENSION vector")
        words = [str(server.tool("pg_restore")), "--clean", "--if-exists", "--dbname", new, str(dump)]
        done = subprocess.run(words, check=False, capture_output=True)
        assert (done.returncode == 0) is extension, done.stderr.decode()
        with opened(new) as harness:
            assert harness.sessions.load("s1").task == "Count herons."
            assert len(harness.memory.facts_with("keeps bees")) == 1
            assert [hit.record.text for hit in harness.knowledge.search("Gamma")] == ["Gamma is a staging server in Frankfurt."]
            assert harness.knowledge.stats().vectors == 1
            assert [check for check in examine(harness) if check.state == "bad"] == []
