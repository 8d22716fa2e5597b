"""P1, P2, C4, C6: one place that knows the concrete classes, with clock, ids, disk and bus as parameters."""

from __future__ import annotations

from pathlib import Path

import pytest

import holdfast
from holdfast.config.loading import config_from_values
from holdfast.errors import ModelNotConfigured, StorageError
from holdfast.events import Bus
from holdfast.testing.clock import CountingIds, FakeClock


def test_everything_works_without_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    harness = holdfast.build()
    assert harness.base == tmp_path / ".holdfast"
    assert harness.window() == 8192
    assert harness.budget().window == 8192
    assert harness.counter.count_text("hello world") == 2
    assert not harness.base.exists(), "building writes nothing"
    assert harness.make_base().is_dir()


def test_the_window_of_a_configured_model_is_split(tmp_path: Path) -> None:
    """T3, T4"""
    config = config_from_values({"models": [{"name": "m", "use": "openai", "model": "gpt-4o", "max_input_tokens": 8000}]}, cwd=tmp_path)
    harness = holdfast.build(config, clock=FakeClock(), ids=CountingIds(), bus=Bus())
    assert harness.budget("m").as_dict()["memory"] == 500
    with pytest.raises(ModelNotConfigured, match="m"):
        harness.window("other")


def test_an_older_schema_is_one_warning(tmp_path: Path) -> None:
    """C4"""
    file = tmp_path / "config.yaml"
    file.write_text("memory:\n  token_counting: char\n")
    bus = Bus()
    with bus.collect() as seen:
        harness = holdfast.build(file, bus=bus)
    assert [type(event).__name__ for event in seen] == ["ConfigUpgraded"]
    assert harness.config.memory.token_counter.startswith("approx")


def test_a_base_directory_that_cannot_be_made_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C6"""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "file" / "home"))
    with pytest.raises(StorageError, match="file"):
        holdfast.build().make_base()


def test_the_parts_are_made_when_they_are_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """P1"""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    harness = holdfast.build(config_from_values({}), clock=FakeClock(), ids=CountingIds())
    assert harness.archive.threads() == []
    harness.memory.add("User likes tea")
    assert (tmp_path / "home" / "memory.json").exists()
    assert "likes tea" in harness.memory.render_for()
    harness.memory.close()
