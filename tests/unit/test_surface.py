"""P1, P2, O6: the public names are true, sorted and lazy, and the layers hold."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import holdfast

ROOT = Path(__file__).parents[2]


def test_every_public_name_exists_and_the_list_is_sorted() -> None:
    """P1"""
    assert holdfast.__all__ == sorted(holdfast.__all__)
    for name in holdfast.__all__:
        assert getattr(holdfast, name) is not None
    assert set(holdfast.__all__) <= set(dir(holdfast))


def test_an_unknown_name_is_an_attribute_error() -> None:
    try:
        holdfast.nothing_of_this_name  # noqa: B018
    except AttributeError as error:
        assert "nothing_of_this_name" in str(error)
    else:
        raise AssertionError("no error")


def test_every_error_that_is_raised_on_purpose_is_public() -> None:
    """P1: the errors belong to the surface."""
    from holdfast import errors

    named = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, errors.HoldfastError)}
    assert len(named) > 25
    assert named <= set(holdfast.__all__)


def loaded_after(code: str) -> set[str]:
    output = subprocess.run([sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in output.stdout.split()}


ROOMS = ["text", "search", "extract", "tokens", "context", "memory", "knowledge", "session", "workflow", "config", "durable", "testing"]
"""Those that must do without LangChain. A room has no names of its own: it is imported by module."""


HEAVY = {"langchain", "langchain_core", "langgraph", "langchain_openai", "numpy", "torch", "xllamacpp", "onnxruntime", "rs_bpe"}


def test_import_holdfast_loads_nothing_heavy() -> None:
    """P1"""
    assert not loaded_after("import holdfast") & (HEAVY | {"pydantic", "typer", "rich", "ruamel"})


def test_help_loads_nothing_heavy() -> None:
    """P1, O1"""
    run = "import sys; sys.argv = ['holdfast', '--help']\nfrom holdfast.app.main import main\ntry: main()\nexcept SystemExit: pass"
    assert not loaded_after(run) & (HEAVY | {"pydantic", "ruamel", "rich"})


def test_the_core_rooms_import_without_langchain_numpy_or_a_model() -> None:
    """P2, O6"""
    heads = ["holdfast.harness", *(f"holdfast.{room}" for room in ROOMS)]
    assert not loaded_after("\n".join(f"import {name}" for name in heads)) & (HEAVY - {"rs_bpe"})


WIRING = {
    "Checkpoints", "Conversation", "ExtractiveConversation", "FileArchive", "FileBackend", "Launcher", "MemoryService", "SessionStore",
    "SystemClock", "Threads", "create_chat_model", "make_lead_agent", "open_checkpoints", "open_memory", "open_parts", "open_session_store",
    "open_sessions", "open_skills", "run_workflow", "stage_agents",
}  # fmt: skip


def test_the_program_gets_everything_from_the_harness() -> None:
    """P1: one composition root. No command makes or opens a part itself."""
    found = []
    for file in sorted((ROOT / "src/holdfast/app").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            named = node.func if isinstance(node.func, ast.Name) else getattr(node.func, "value", None)  # Class(...), Class.open(...)
            if isinstance(named, ast.Name) and named.id in WIRING:
                found.append(f"{file.name}:{node.lineno} {named.id}")
    assert found == []


def test_a_room_imports_only_what_is_below_it(tmp_path: Path) -> None:
    """O6"""
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [linter, "--no-cache", "--config", ROOT / "pyproject.toml"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout


def test_stages_without_a_model_load_no_langchain() -> None:
    """P2, W18"""
    assert not loaded_after("import holdfast.harness, holdfast.agents.stages.stage_agents, holdfast.workflow.launcher") & HEAVY


def test_every_module_that_a_docstring_or_a_page_names_exists() -> None:
    """A newcomer follows these names: one that moved leads nowhere."""
    source = ROOT / "src" / "holdfast"
    pages = [*source.rglob("*.py"), *(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    named = [(page, name) for page in pages for name in re.findall(r"`([a-z_/]+\.py)\b", page.read_text(encoding="utf-8"))]
    assert len(named) > 50
    places = [source, source / "agents", ROOT, ROOT / "tests"]
    short = {
        path.name for folder in (source, ROOT / "tests") for path in folder.rglob("*.py")
    }  # a page names a neighbour by its name alone
    lost = [
        (page.name, name)
        for page, name in named
        if not any((place / name).exists() for place in [page.parent, *places]) and not (page.suffix == ".md" and name in short)
    ]
    assert lost == []
