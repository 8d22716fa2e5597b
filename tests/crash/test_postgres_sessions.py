"""Sessions in PostgreSQL: a process killed at a random moment loses nothing that was acknowledged, and leaves no mix (W5, W6)."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import Effort

from holdfast.session.output import StageOutput
from holdfast.session.state import Session, stage_files
from holdfast.session.store import SessionStore
from holdfast.workflow.run_settings import postgres_sessions

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def work(store: SessionStore, workflow_id: str, pipe: int) -> None:
    """Run a session as a runner does: raw data, stage files, commit, recovery point; each stage is said when it is acknowledged."""
    with store.lease(workflow_id, owner="worker"):
        session = store.load(workflow_id)
        while True:
            number = len(session.completed_stages) + 1
            stage = f"s{number}"
            ref = store.raw_put(workflow_id, f"page of {stage}".encode())
            output = StageOutput(stage, f"Stage {stage} is done.", raw_data_refs=(ref,))
            session = store.commit(
                replace(
                    session, completed_stages=(*session.completed_stages, stage), stage_outputs={**session.stage_outputs, stage: output}
                ),
                expect=session.revision,
                files=stage_files(number, stage, context="given", output="written"),
            )
            os.write(pipe, f"{number}\n".encode())
            store.checkpoint(session, f"after-{number:03d}")
            os.write(pipe, f"{number}.5\n".encode())


def killed(store: SessionStore, workflow_id: str, steps: int, moment: float) -> float:
    """Let a child work, kill it so many seconds after that many steps were acknowledged, and give what it acknowledged last."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        with suppress(BaseException):  # whatever happens, the child must not go on as a second test run
            os.close(reader)
            os.write(writer, b"0\n")
            work(store, workflow_id, writer)
        os._exit(1)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as said:
        begun = [said.readline() for _ in range(steps + 1)]
        time.sleep(moment)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        lines = [*begun, *said]
    assert os.WIFSIGNALED(status), "the worker ended by itself"
    return max(float(line) for line in lines if line.endswith("\n"))


def faults(store: SessionStore, workflow_id: str, acknowledged: float) -> list[str]:
    """What does not fit together."""
    session = store.load(workflow_id)
    done = len(session.completed_stages)
    found = []
    if done < int(acknowledged) or session.completed_stages != tuple(f"s{number + 1}" for number in range(done)):
        found.append(f"acknowledged {acknowledged}, completed {session.completed_stages}")
    if tuple(session.stage_outputs) != session.completed_stages or session.revision != done + 1:
        found.append(f"revision {session.revision}, outputs {tuple(session.stage_outputs)}")
    points = [point.name for point in store.checkpoints(workflow_id)]
    if f"after-{int(acknowledged):03d}" not in points and acknowledged % 1:
        found.append(f"acknowledged {acknowledged}, recovery points {points}")
    for name in points:
        store.load_checkpoint(workflow_id, name)
    for stage, output in session.stage_outputs.items():
        if store.raw_get(workflow_id, output.raw_data_refs[0]).data != f"page of {stage}".encode():
            found.append(f"the raw data of {stage} is not there")
    return found


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(effort: Effort, postgres: str, tmp_path: Path) -> None:
    choose = random.Random(effort.seed)
    store = postgres_sessions(postgres, folder=tmp_path, beat=0.05)
    total = 0
    for run in range(effort(10, 300)):
        workflow_id = f"run-{run // 5}"
        if run % 5 == 0:
            store.create(Session(workflow_id, task="survive"))
        before = len(store.load(workflow_id).completed_stages)
        store.backend.close()
        acknowledged = killed(store, workflow_id, choose.randrange(7), choose.uniform(0, 0.03))
        for fault in faults(store, workflow_id, max(acknowledged, before)):
            effort.fail(f"run {run}: {fault}")
        total += len(store.load(workflow_id).completed_stages) - before
    store.close()
    assert total > effort.runs, "the workers came to something"
