"""M2, W2: keys that the configuration puts elsewhere are read, written, listed and removed there."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.storage.backend import Append, Put
from holdfast.storage.files import FileBackend


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    return tmp_path / "elsewhere"


@pytest.fixture
def backend(tmp_path: Path, elsewhere: Path) -> FileBackend:
    places = {
        "memory.json": str(elsewhere / "mine.json"),
        "memory.d/": str(elsewhere / "mine.d"),
        "sessions/{session_id}.json": "runs/{session_id}.json",
        "deep/{name}/state.json": "elsewhere/{name}/deep.json",
    }
    return FileBackend(tmp_path / "base", places=places)


def test_moved_keys_are_files_elsewhere_that_nobody_else_may_read(backend: FileBackend, elsewhere: Path, tmp_path: Path) -> None:
    backend.write(Put("memory.json", b"1"), Append("memory.d/history.jsonl", [{"n": 1}]), Put("sessions/a.json", b"2"))
    backend.write(Put("sessions/a/x", b"3"), Put("deep/n/state.json", b"4"))
    assert (elsewhere / "mine.json").read_bytes() == b"1"
    assert (elsewhere / "mine.d/history.jsonl").exists()
    assert (tmp_path / "base/runs/a.json").read_bytes() == b"2"
    assert (tmp_path / "base/sessions/a/x").read_bytes() == b"3"
    assert (tmp_path / "base/elsewhere/n/deep.json").read_bytes() == b"4"
    assert {path.stat().st_mode & 0o777 for path in (elsewhere / "mine.json", tmp_path / "base/runs/a.json")} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (elsewhere, tmp_path / "base/runs")} == {0o700}


def test_moved_keys_are_listed_under_their_keys_and_once(backend: FileBackend, tmp_path: Path) -> None:
    backend.write(Put("memory.json", b"1"), Append("memory.d/history.jsonl", [{"n": 1}]), Put("sessions/a.json", b"2"))
    backend.write(Put("sessions/a/x", b"3"), Put("deep/n/state.json", b"4"), Put("plain", b"5"))
    (tmp_path / "base/memory.json").write_bytes(b"from before it was moved")
    (tmp_path / "base/sessions/b.json").write_bytes(b"from before it was moved")
    every = ["deep/n/state.json", "memory.d/history.jsonl", "memory.json", "plain", "sessions/a.json", "sessions/a/x"]
    assert [item.key for item in backend.list()] == every
    assert [item.key for item in backend.list("sessions/")] == ["sessions/a.json", "sessions/a/x"]
    assert [item.key for item in backend.list("memory.d/")] == ["memory.d/history.jsonl"]
    assert [*backend.children("sessions")] == ["a", "a.json"]
    assert [*backend.children("memory.d")] == ["history.jsonl"]
    assert [*backend.children("deep")] == ["n"]
    assert backend.remove("sessions/") == 2
    assert [item.key for item in backend.list("sessions/")] == []
    assert (tmp_path / "base/runs").exists()


def test_a_pattern_that_would_put_all_sessions_into_one_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        FileBackend(tmp_path, places={"sessions/{session_id}.json": "all.json"})


def test_links_of_the_owner_are_followed_and_links_deeper_down_are_not(tmp_path: Path) -> None:
    """A9: what an agent links into its folder is not listed, and so neither forgotten nor removed."""
    big, base = tmp_path / "big", tmp_path / "base"
    big.mkdir()
    (base / "threads/1").mkdir(parents=True)
    (base / "sessions").symlink_to(big)
    (base / "threads/1/link").symlink_to(big)
    backend = FileBackend(base)
    backend.write(Put("sessions/a.json", b"1"))
    assert (big / "a.json").exists()
    assert [item.key for item in backend.list()] == ["sessions/a.json"]
    backend.remove("threads/1/")
    assert (big / "a.json").exists() and not (base / "threads/1").exists()


def test_what_belongs_to_others_is_not_listed(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    backend.write(Put("a", b"1"))
    for name in (
        "queue.db-wal",
        "queue.db-shm",
        "x.lock",
        "memory.d/lock",
        ".new-0123456789abcdef.tmp",
        "postgres/PG_VERSION",
        "postgres/base/1",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(b"")
    assert [item.key for item in backend.list()] == ["a"]
