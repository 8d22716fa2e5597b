"""O3, P3, O1: what `holdfast doctor` says of the model and is told about a disk, and how it is drawn on a narrow terminal."""

from __future__ import annotations

import io
import socket
import subprocess
from pathlib import Path

import pytest

import holdfast
from holdfast.app.commands.maintenance import _draw_checks
from holdfast.app.output import clean_console
from holdfast.config.loading import config_from_values
from holdfast.health import Check, examine, probe


def model_check(tmp_path: Path, **settings: str) -> Check:
    values = {"models": [{"name": "main", "use": "openai", "model": "m", "api_key": "none", **settings}]}
    config = config_from_values(values, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with holdfast.build(config) as harness:
        return next(check for check in examine(harness, whole=False) if check.about == "model")


def test_a_configured_server_of_this_machine_that_does_not_answer_is_told(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # nobody listens at it, and nobody else gets it
        port = held.getsockname()[1]
        silent = model_check(tmp_path, base_url=f"http://127.0.0.1:{port}/v1")
        assert silent.state == "note"
        assert f"Nothing answers at 127.0.0.1, port {port}" in silent.text
        held.listen()
        there = model_check(tmp_path, base_url=f"http://127.0.0.1:{port}/v1")
    assert (there.state, there.text) == ("good", "main is the first model in config.yaml.")


@pytest.mark.parametrize("more", [{}, {"base_url": "https://models.example.org/v1"}])
def test_a_model_elsewhere_is_not_asked_and_that_is_told(tmp_path: Path, more: dict[str, str]) -> None:
    found = model_check(tmp_path, **more)
    assert found.state == "good"
    assert "It was not asked" in found.text


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_findings_fit_the_terminal_and_keep_their_indent(width: int) -> None:
    checks = [
        Check("versions", "good", "holdfast 0.1.0, Python 3.11.7, Linux 6.18.44, and some more words that need a second line."),
        Check("base directory", "note", "/home/ann/.local/share/holdfast (the default), which is not there yet; it is made when needed."),
    ]
    console = clean_console()(file=io.StringIO(), width=width, force_terminal=True, color_system=None, highlight=False)
    _draw_checks(console, checks)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert all(line.startswith(("ok ", "note ", "  ")) for line in lines)
    assert sum(line.startswith(("ok ", "note ")) for line in lines) == 2


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


def test_the_line_about_the_sandbox_is_about_the_one_that_is_configured(tmp_path: Path) -> None:
    """O1, A10: a folder that is not there, a class that is not there, the host."""

    def told(**sandbox: object) -> list[tuple[str, str]]:
        config = config_from_values({"sandbox": sandbox}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
        with holdfast.build(config) as harness:
            return [(check.state, check.text) for check in examine(harness, whole=False) if check.about == "sandbox"]

    state, text = told(mounts=[{"host_path": "/nonexistent/data", "container_path": "/mnt/data"}])[0]
    assert state == "bad" and "/nonexistent/data is not a folder" in text
    ((state, text),) = told(use="no.such:Thing")
    assert state == "bad" and "no.such:Thing" in text


def test_a_memory_that_is_over_its_limit_says_so(tmp_path: Path) -> None:
    """M11, O1"""
    config = config_from_values({"memory": {"max_facts": 1}}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with holdfast.build(config) as harness:
        harness.memory.add("Likes tea")
        harness.memory.add("Lives in Oslo")
        (text,) = [check.text for check in examine(harness, whole=False) if check.about == "memory"]
    assert text.startswith("facts: global 2 of 1 (memory.max_facts)")
