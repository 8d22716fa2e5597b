"""`holdfast chat` where no model is configured: what stands on the screen (A14, W18)."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from holdfast.app.main import app


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "config.yaml").write_text("knowledge: {adapter: markdown}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_HOME", raising=False)
    monkeypatch.setenv("HOLDFAST_CONFIG", str(tmp_path / "config.yaml"))
    assert CliRunner().invoke(app, ["knowledge", "add", "The staging server is called heron"]).exit_code == 0
    return tmp_path


def test_quiet_shows_the_answer_alone(said: Path) -> None:
    """O1, W18: not the line that says how it was found; without -q it is there."""
    words = ["chat", "-p", "How is the staging server called?"]
    quiet, told = CliRunner().invoke(app, [*words, "-q"]).stdout, CliRunner().invoke(app, words).stdout
    assert quiet.startswith("- The staging server is called heron [") and "No model is configured" not in quiet and quiet.endswith("]\n")
    assert "No model is configured" in told


def test_a_file_is_given_with_a_question_and_one_that_cannot_be_looked_in_is_named(said: Path) -> None:
    """A9, W18: `-f` needs no model."""
    (said / "tea.txt").write_text("Tea costs 1.90 at the kiosk.")
    (said / "noise.txt").write_bytes(b"\xff\x00\x01" * 50)
    done = CliRunner().invoke(app, ["chat", "-q", "-p", "What does tea cost?", "-f", "tea.txt", "-f", "noise.txt"])
    assert done.stdout == "- Tea costs 1.90 at the kiosk. [tea.txt]\n"
    assert "noise.txt: not looked in: it is no text" in done.stderr
