"""LangChain's own tests, run against Holdfast's SummarizationMiddleware (S16). Prints JSON and, on stderr, a table.

The tests are those of the source distribution of the LangChain that is installed; it is fetched by its name from the package index, kept
in the cache directory, and no part of this project.

summarization: LangChain's tests of its own middleware, with nothing but the import changed to `holdfast`.
agents: its tests of `create_agent`, with our middleware in every agent, beside the same run without us.

A test that passes without us and fails with us is `owed` unless `NOT_OWED` has a reason for it; the exit code is 1 when one is owed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import re
import site
import subprocess
import sys
import tarfile
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TEST_PACKAGES = ("syrupy", "langchain-tests", "pytest-socket", "pytest-mock", "pytest-recording", "vcrpy", "toml", "blockbuster")
SUMMARIZATION = "tests/unit_tests/agents/middleware/implementations/test_summarization.py"
AGENTS = "tests/unit_tests/agents"

_S = "test_summarization::test_"
_PRIVATE = "private API"
_DELIBERATE = "deliberate"
NOT_OWED: dict[str, tuple[str, str]] = {
    rf"{_S}(summarization_middleware_(before|abefore)_model_raises|summarization_middleware_e2e_failure|summarizer_errors_propagate)": (
        _DELIBERATE,
        "a summarizer that fails changes nothing and does not end the run (S10)",
    ),
    rf"{_S}summarization_middleware_(profile_inference|token_retention|full_workflow_async|keep_messages)": (
        _DELIBERATE,
        "the first user goal stays besides what `keep` says (S6)",
    ),
    rf"{_S}summarizer_(replaces_model_call|async)$": (_DELIBERATE, "the first user goal stays besides what `keep` says (S6)"),
    rf"{_S}summarization_middleware_(initialization|missing_profile)": (
        _DELIBERATE,
        "an unknown window is 8,192 tokens with one warning, never an error (T3)",
    ),
    rf"{_S}((and|or)_trigger_conditions|backward_compatibility_tuple|mixed_and_or|summarization_middleware_multiple_triggers)": (
        _DELIBERATE,
        "its fake model echoes the prompt, and an answer longer than what was given is no summary (S10)",
    ),
    rf"{_S}(create|acreate)_summary|{_S}summarization_middleware_(summary_creation|async_error|retries_transient)": (
        _PRIVATE,
        "_create_summary, _summary_model",
    ),
    rf"{_S}(chat_model_summarizer|summarizer_(accepts_runnable|empty_history|non_str)|a?sync_summarizer_on)": (
        _PRIVATE,
        "_create_summary, _summary_model, _get_profile_limits; what is asked for is in tests/unit/agents/test_langchain_arguments.py",
    ),
    rf"{_S}(summarizer_receives_trimmed|summarization_middleware_trim)": (_PRIVATE, "_trim_messages_for_summary"),
    rf"{_S}(summarization_cutoff|summarization_middleware_(find_safe|cutoff_at|binary_search|many_parallel))": (_PRIVATE, "_find_*cutoff*"),
    rf"{_S}(trigger_clauses|trigger_conditions|compound_trigger|empty_list_trigger)": (_PRIVATE, "_trigger_clauses, _trigger_conditions"),
    rf"{_S}summarization_middleware_(helper_methods|profile_edge|fraction_trigger_with_no_profile)": (_PRIVATE, "helper methods"),
    rf"{_S}(string_summarizer_is_resolved|summarization_before_model_uses_unscaled)": (_PRIVATE, "patches names inside LangChain's module"),
    r"(diagram|snapshot|mermaid|get_graph)": (
        "exact shape",
        "a picture of the graph, which has a node for tools once a middleware brings any",
    ),
    r"test_on_parsing_failure_all_ignores_max_tools": ("exact shape", "names all tools of the agent, which include those of the archive"),
    r"test_jump_to_is_ephemeral": ("exact shape", "with any tool, one of the user's own too, LangChain obeys the jump that it asks for"),
    r"test_tools::": ("exact shape", "counts the tools of the agent, which include those of the archive"),
}
"""Test (a regular expression over `file::name`): kind and reason."""


def cache_folder() -> Path:
    """Where what was downloaded is kept between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast" / "peers"


def tests_of(version: str) -> Path:
    """The unpacked source distribution of LangChain."""
    folder = cache_folder()
    unpacked = folder / f"langchain-{version}"
    if not unpacked.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        wanted = f"langchain=={version}"
        _run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "langchain", "-d", str(folder), wanted)
        with tarfile.open(folder / f"langchain-{version}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
    return unpacked


def interpreter() -> Path:
    """A Python that has everything this one has, and what LangChain's tests need besides."""
    folder = cache_folder() / f"venv-{sys.version_info.major}.{sys.version_info.minor}"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True)
        (folder / ".ready").touch()
    packages = next((folder / "lib").glob("python*/site-packages"))
    (packages / "beside.pth").write_text("".join(f"{path}\nimport site; site.addsitedir({path!r})\n" for path in site.getsitepackages()))
    _run(str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *TEST_PACKAGES)
    return python


def run_tests(python: Path, tests: Path, what: str, *, ours: bool) -> dict[str, tuple[str, str]]:
    """Every test and how it ended: (passed, failed or skipped; the message)."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [str(python), "-m", "pytest", what, "-q", "--no-header", "-p", "no:cacheprovider", f"--junitxml={report}"]
        command += ["-p", "langchain_plugin"] if ours else []
        environ = {**os.environ, "HOLDFAST_HOME": f"{scratch}/home", "PYTHONPATH": str(HERE)}
        done = subprocess.run(command, cwd=tests, env=environ, capture_output=True, text=True, check=False)
        if not report.exists():
            raise SystemExit(f"pytest did not run:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        return dict(_case(case) for case in ElementTree.parse(report).getroot().iter("testcase"))  # noqa: S314 - pytest's own file


def _case(case: ElementTree.Element) -> tuple[str, tuple[str, str]]:
    name = f"{case.get('classname', '').removeprefix('tests.unit_tests.agents.')}::{case.get('name')}"
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return name, ("skipped" if kind == "skipped" else "failed", (found.get("message") or "").strip()[:300])
    return name, ("passed", "")


def summarization(python: Path, tests: Path) -> dict[str, Any]:
    """Its tests of its own middleware, against ours."""
    original = tests / SUMMARIZATION
    changed = original.with_name("test_summarization_holdfast.py")
    text, count = re.subn(r"^    SummarizationMiddleware,\n", "", original.read_text(), count=1, flags=re.MULTILINE)
    if count != 1:
        raise SystemExit("the import of LangChain's tests is not where it was.")
    changed.write_text(
        text.replace("from langchain.chat_models", "from holdfast import SummarizationMiddleware\nfrom langchain.chat_models", 1)
    )
    try:
        control = run_tests(python, tests, SUMMARIZATION, ours=False)
        ours = run_tests(python, tests, str(changed.relative_to(tests)), ours=False)
    finally:
        changed.unlink()
    return compared({_short(name): end for name, end in control.items()}, {_short(name): end for name, end in ours.items()})


def agents(python: Path, tests: Path) -> dict[str, Any]:
    """Its tests of agents, with our middleware in every one."""
    return compared(run_tests(python, tests, AGENTS, ours=False), run_tests(python, tests, AGENTS, ours=True))


def compared(control: dict[str, tuple[str, str]], ours: dict[str, tuple[str, str]]) -> dict[str, Any]:
    """Figures, and each test that fails only with us."""
    new = {name: message for name, (end, message) in ours.items() if end == "failed" and control.get(name, ("",))[0] == "passed"}
    reasons = {name: next((why for pattern, why in NOT_OWED.items() if re.search(pattern, name)), None) for name in new}
    return {
        "tests": len(control),
        "passed without us": sum(end == "passed" for end, _ in control.values()),
        "passed with us": sum(end == "passed" for end, _ in ours.values()),
        "owed": {name: new[name] for name, why in reasons.items() if why is None},
        "not owed": {name: {"kind": why[0], "reason": why[1]} for name, why in reasons.items() if why is not None},
    }


def _short(name: str) -> str:
    return name.replace("test_summarization_holdfast", "test_summarization")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


def table(result: dict[str, Any]) -> str:
    """For people."""
    lines = []
    for suite in ("summarization", "agents"):
        if (found := result.get(suite)) is None:
            continue
        figures = f"{found['tests']} tests, {found['passed without us']} pass without us, {found['passed with us']} with us"
        lines.append(f"\n{suite}: {figures}; owed and failing: {len(found['owed'])}")
        kinds = Counter((why["kind"], why["reason"]) for why in found["not owed"].values())
        lines += [f"  {count:4}  {kind}: {reason}" for (kind, reason), count in sorted(kinds.items())]
        lines += [f"  OWED  {name}: {message.splitlines()[0] if message else ''}" for name, message in found["owed"].items()]
    return "\n".join(lines)


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="*", help="summarization, agents (both without one)")
    wanted = parser.parse_args().suite or ["summarization", "agents"]
    version = importlib.metadata.version("langchain")
    python, tests = interpreter(), tests_of(version)
    result: dict[str, Any] = {"langchain": version}
    for name, suite in (("summarization", summarization), ("agents", agents)):
        if name in wanted:
            result[name] = suite(python, tests)
    print(json.dumps(result, indent=2))
    print(table(result), file=sys.stderr)
    return 1 if any(result[name]["owed"] for name in wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
