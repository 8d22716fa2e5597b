"""W17, W6: workers that are killed and a database that is restarted: every session completes once, and never are two in one."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.parts.worker_trial import Trial
from tests.conftest import Effort
from tests.crash.postgres_server import own_server


@pytest.mark.prove
def test_every_session_completes_once_whoever_dies(tmp_path: Path, effort: Effort, monkeypatch: pytest.MonkeyPatch) -> None:
    """W17: in `make prove` four workers and 200 sessions of five stages, two workers killed, PostgreSQL killed and started twice."""
    sessions = effort(6, 200)
    proving = effort.proving
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    with own_server() as server:

        def restart() -> None:
            server.kill()
            server.start()

        folder = tmp_path / "trial"
        folder.mkdir()
        trial = Trial(
            server.dsn,
            folder,
            sessions,
            workers=4 if proving else 2,
            seconds=0.2 if proving else 0.1,
            concurrency=4 if proving else 3,
            kills=2 if proving else 1,
            restarts=2 if proving else 1,
            seed=effort.seed,
            restart=restart,
        )
        found = trial.run()
    for key in (
        "not_completed",
        "workers_that_ended_badly",
        "outputs_lost",
        "outputs_doubled",
        "completed_stages_run_again",
        "two_in_one_session",
    ):
        if found[key]:
            effort.fail(f"{key}: {found[key]}")
    assert found["executions"] >= sessions * 5
    assert (found["killed"], found["restarts_of_postgresql"]) == ((2, 2) if proving else (1, 1))
