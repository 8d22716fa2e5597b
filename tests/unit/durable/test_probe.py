"""P3, O1: what `holdfast doctor` is told about a disk."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from holdfast.durable.probe import probe


def test_a_probe_tells_what_it_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = probe(tmp_path)
    assert found.folder == str(tmp_path)
    assert found.writable
    assert found.fsync_ms is not None
    assert found.fsync_ms > 0
    assert found.free_bytes > 0
    assert found.file_locks
    command: list[str | Path] = ["findmnt", "--noheadings", "--output", "FSTYPE", "--target", tmp_path]
    assert found.file_system == subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no folder in memory here")  # noqa: S108  # asked about, not used
def test_a_disk_in_memory_is_doubted() -> None:
    found = probe("/dev/shm")  # noqa: S108
    assert found.file_system == "tmpfs"
    assert found.fsync_stubbed
    assert any("survives" in doubt for doubt in found.doubts)


def test_a_preloaded_library_that_eats_syncs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libeatmydata.so")
    assert any("eatmydata" in doubt for doubt in probe(tmp_path).doubts)


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    found = probe("/proc")
    assert not found.writable
    assert found.fsync_ms is None
    assert any("not writable" in doubt for doubt in found.doubts)


def test_a_folder_that_is_not_there_is_said_not_to_be_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        probe(tmp_path / "none")
