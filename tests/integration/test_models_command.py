"""`holdfast models list` and `install`: what is shown, what is never shown, and that looking costs no LangChain (A15, C3, T3)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from holdfast.app.commands.settings import models_app as app
from holdfast.errors import InputError

SECRET = "sk-never-show-this-0123456789"  # noqa: S105 - a key that must not be shown

FILE = f"""
models:
  - name: gpt
    use: langchain_openai:ChatOpenAI
    model: gpt-4o-mini
    api_key: $TEST_MODELS_KEY
    pricing: {{input: 0.15, output: 0.6}}
  - name: claude
    use: anthropic
    model: some-claude
    api_key: {SECRET}
    max_input_tokens: 50000
    lightweight: true
  - name: local
    use: llama.cpp
    model: smollm2
  - name: "[bold]strange[/bold]"
    model: whatever
    base_url: http://127.0.0.1:1/v1
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TEST_MODELS_KEY", "HOLDFAST_MODEL"):
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "config.yaml"
    path.write_text(FILE, encoding="utf-8")
    return path


def listed(file: Path) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["list", "--json", "--config", str(file)])
    assert done.exit_code == 0, done.output
    value = json.loads(done.stdout)
    assert isinstance(value, dict)
    return value


def test_the_list_tells_window_with_source_abilities_price_key_and_package(file: Path) -> None:
    """A15, T3"""
    gpt, claude, local, strange = listed(file)["models"]
    assert (gpt["window"], gpt["window_source"], gpt["price"]) == (128_000, "profile", "0.15 / 0.6 USD")
    assert (gpt["key"], gpt["ready"]) == ("TEST_MODELS_KEY is missing", False)
    assert (claude["window"], claude["window_source"], claude["key"]) == (50_000, "max_input_tokens", "given")
    assert "pip install langchain-anthropic" in claude["package"]
    assert local["can"] == ["json"]
    assert (strange["window"], strange["window_source"], strange["key"]) == (8192, "default", "not needed")


def test_the_list_tells_which_model_is_used_and_which_does_the_side_work(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S14: one whose package is missing is passed over."""
    monkeypatch.setenv("TEST_MODELS_KEY", SECRET)
    value = listed(file)
    assert value["used"] == {"name": "gpt", "why": "gpt is the first model in config.yaml."}
    assert (value["summaries"], value["memory"]) == ("gpt", "gpt")
    assert "claude cannot be used now (a package is missing: pip install langchain-anthropic), so gpt" in value["passed_over"]
    assert "claude cannot be used now" in CliRunner().invoke(app, ["list", "--config", str(file)]).output.replace("\n", " ")


def test_a_key_that_is_there_is_told_and_not_shown(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""
    monkeypatch.setenv("TEST_MODELS_KEY", SECRET)
    assert listed(file)["models"][0]["key"] == "TEST_MODELS_KEY is set"
    for arguments in (["list"], ["list", "--json"]):
        assert SECRET not in CliRunner().invoke(app, [*arguments, "--config", str(file)]).output


def test_the_table_marks_what_is_used_and_names_what_is_missing(file: Path) -> None:
    output = CliRunner().invoke(app, ["list", "--config", str(file)]).output
    assert "*  gpt" in output
    assert "gpt: TEST_MODELS_KEY is missing" in output
    assert "pip install langchain-anthropic" in output
    assert "[bold]" in output  # what the file says is text, never markup


def test_without_a_model_the_list_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A15"""
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:1")
    monkeypatch.setenv("HOLDFAST_MODEL", "groq:nothing-here")  # looks for no server, whatever runs on this machine
    monkeypatch.delenv("GROQ_API_KEY", raising=False)
    path = tmp_path / "config.yaml"
    path.write_text("", encoding="utf-8")
    value = listed(path)
    assert value["used"]["name"] is None
    assert value["models"] == []
    assert any("OPENAI_API_KEY" in line for line in value["how_to_get_one"])
    output = CliRunner().invoke(app, ["list", "--config", str(path)]).output
    assert "llama.cpp" in output


def test_the_list_imports_no_langchain_where_the_windows_are_told(file: Path) -> None:
    """A15, P1: else the model's class is asked for its profile."""
    file.write_text(
        FILE.replace("model: gpt-4o-mini", "model: gpt-4o-mini\n    max_input_tokens: 128000").replace(
            "whatever", "x\n    max_input_tokens: 1"
        )
    )
    code = (
        "import sys\nfrom holdfast.app.commands.settings import models_app as app\n"
        f"try: app(['list', '--config', {str(file)!r}])\nexcept SystemExit: pass\nprint(*sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in output.splitlines()[-1].split()}
    assert "holdfast" in loaded
    assert not loaded & {"langchain", "langchain_core", "langchain_openai", "langgraph", "openai", "xllamacpp", "numpy"}


def test_weights_that_nobody_knows_are_an_error_that_names_those_that_are() -> None:
    """A15"""
    done = CliRunner().invoke(app, ["install", "gpt-17"])
    assert isinstance(done.exception, InputError)
    assert "smollm2" in str(done.exception)


@pytest.mark.parametrize("command", [[], ["list"], ["install"], ["test"]])
def test_every_help_has_an_example(command: list[str]) -> None:
    """O1"""
    assert "Example: holdfast models" in CliRunner().invoke(app, [*command, "--help"]).output
