"""A trial of workers: sessions in a queue, workers as processes that are killed, a PostgreSQL that is restarted, and a ledger of what ran.

Every execution of a stage is a line `begin` and a line `end` in a file, with the process and the time, and a token that the stage's output
carries. From these and the sessions it follows whether every session completed, whether an output was lost or taken twice, and whether two
processes ever were in one session. Used by `benchmarks/workers.py` and by `tests/crash`.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.config.loading import config_from_values
from holdfast.harness import build
from holdfast.workers.session_queue import SessionQueue
from holdfast.workflow.agent import StageRequest

ROOT = Path(__file__).parents[2]
AGENT = "benchmarks.parts.worker_trial:stage"
_WORDS = "Two of the three stores answer in under 20 ms at one million vectors; the third needs a warm cache. "


def stage(request: StageRequest) -> dict[str, Any]:
    """An agent that takes as long as TRIAL_SECONDS says, and notes in TRIAL_LEDGER when it begins and ends."""
    token = f"{os.getpid()}-{secrets.token_hex(6)}"
    ledger, seconds = os.environ.get("TRIAL_LEDGER"), float(os.environ.get("TRIAL_SECONDS", "0"))
    note(ledger, "begin", request.session_id, request.stage.name, token)
    if seconds:
        time.sleep(seconds * random.uniform(0.5, 1.5))
    note(ledger, "end", request.session_id, request.stage.name, token)
    return {"summary": f"{token} {_WORDS}", "key_findings": [{"fact": _WORDS, "source": "doc-1"}], "confidence": "high"}


def note(ledger: str | None, what: str, session: str, name: str, token: str) -> None:
    """One line, whole, whoever else writes."""
    if ledger is not None:
        line = f"{time.monotonic():.6f} {what} {session} {name} {token}\n"
        handle = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)


def workflow(stages: int) -> dict[str, Any]:
    return {"id": "trial", "task": "Survive.", "stages": [{"name": f"s{n}", "agent_type": AGENT, "retries": 3} for n in range(stages)]}


def settings(dsn: str) -> dict[str, Any]:
    return {"holdfast_version": 1, "session": {"storage_backend": "postgresql", "connection": dsn}}


@dataclass
class Trial:
    """What is tried, and what was seen."""

    dsn: str
    folder: Path
    sessions: int
    workers: int
    stages: int = 5
    concurrency: int = 4
    seconds: float = 0.2
    seed: int = 1
    kills: int = 2
    restarts: int = 2
    restart: Callable[[], None] | None = None
    killed: dict[int, float] = field(default_factory=dict)
    """When which process was killed."""
    restarted: list[float] = field(default_factory=list)

    @property
    def ledger(self) -> Path:
        return self.folder / "ledger"

    def start(self, number: int) -> subprocess.Popen[bytes]:
        """A worker as a person starts it."""
        (self.folder / "config.yaml").write_text(json.dumps(settings(self.dsn)))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),  # what is beside this file is tried, whatever is installed
            "HOLDFAST_HOME": str(self.folder / f"home-{number}"),
            "TRIAL_LEDGER": str(self.ledger),
            "TRIAL_SECONDS": str(self.seconds),
        }
        words = ["worker", "--config", str(self.folder / "config.yaml"), "--name", f"w{number}", "--concurrency", str(self.concurrency)]
        with (self.folder / f"worker-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "holdfast.app.main", *words], env=environment, stdout=log, stderr=log, cwd=self.folder
            )

    def run(self) -> dict[str, Any]:
        """Queue, start, kill and restart, wait, and say what came of it. Raises TimeoutError after ten minutes."""
        os.environ["HOLDFAST_HOME"] = str(self.folder / "home")
        with build(config_from_values(settings(self.dsn))) as harness:
            queue = SessionQueue.open(harness.sessions)
            launcher = harness.launcher(store=queue.store)
            names = [f"trial-{number:05d}" for number in range(self.sessions)]
            for name in names:
                queue.create(launcher, workflow(self.stages), session_id=name, options={"remember": False})
            began = time.monotonic()
            processes = [self.start(number) for number in range(self.workers)]
            try:
                self._disturb(processes)
                self._wait(queue)
                took = time.monotonic() - began
            finally:
                codes = _ended(processes)
            loaded = {name: queue.store.load(name) for name in names}
            outputs = {
                name: {stage: output.summary.split()[0] for stage, output in one.stage_outputs.items()} for name, one in loaded.items()
            }
            found = judged(self.lines(), outputs, [f"s{n}" for n in range(self.stages)], self.killed)
            unfinished = [name for name, one in loaded.items() if one.status != "completed"]
            deaths = queue.database.one("SELECT sum(deaths) FROM queued_sessions")
        left = [code for process, code in codes.items() if process not in self.killed and code != 0]
        return {
            "sessions": self.sessions,
            "stages": self.sessions * self.stages,
            "workers": self.workers,
            "killed": len(self.killed),
            "restarts_of_postgresql": len(self.restarted),
            "seconds": round(took, 1),
            "not_completed": unfinished[:10],
            "workers_that_ended_badly": left,
            "sessions_counted_with_a_death": int(deaths[0] or 0) if deaths else 0,
            **found,
        }

    def lines(self) -> list[tuple[float, str, str, str, str]]:
        if not self.ledger.exists():
            return []
        parts = [line.split() for line in self.ledger.read_text().splitlines()]
        return [(float(at), what, session, name, token) for at, what, session, name, token in parts]

    def _disturb(self, processes: list[subprocess.Popen[bytes]]) -> None:
        """Kills and restarts at random points of the way, each once so many stages have ended."""
        chance = random.Random(self.seed)
        whole = self.sessions * self.stages
        deeds = ["kill"] * self.kills + (["restart"] * self.restarts if self.restart is not None else [])
        chance.shuffle(deeds)
        points = sorted(chance.uniform(0.1, 0.8) for _ in deeds)
        victims = chance.sample(processes, self.kills)
        for deed, point in zip(deeds, points, strict=True):
            self._until(lambda point=point: sum(line[1] == "end" for line in self.lines()) >= whole * point)  # type: ignore[misc]  # bound now
            time.sleep(chance.uniform(0, self.seconds))
            if deed == "kill":
                victim = victims.pop()
                victim.send_signal(signal.SIGKILL)
                self.killed[victim.pid] = time.monotonic()
            elif self.restart is not None:
                self.restart()
                self.restarted.append(time.monotonic())

    def _wait(self, queue: SessionQueue) -> None:
        def nothing_left() -> bool:
            try:
                return queue.left() == 0
            except Exception:  # noqa: BLE001 - the server may just be starting
                return False

        self._until(nothing_left)

    def _until(self, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 600
        while not true():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the trial does not end; see {self.folder}")
            time.sleep(0.1)


def _ended(processes: list[subprocess.Popen[bytes]]) -> dict[int, int]:
    codes = {}
    for process in processes:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
    for process in processes:
        try:
            codes[process.pid] = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            codes[process.pid] = process.wait()
    return codes


def judged(
    lines: list[tuple[float, str, str, str, str]], outputs: Mapping[str, Mapping[str, str]], stages: list[str], killed: Mapping[int, float]
) -> dict[str, Any]:
    """What the ledger and the outputs say together."""
    lost, doubled, again, overlaps, recovery = [], [], [], [], []
    by_session: dict[str, list[tuple[float, str, str, str]]] = {}
    for at, what, session, name, token in sorted(lines):
        by_session.setdefault(session, []).append((at, what, name, token))
    for session, kept in outputs.items():
        seen = by_session.get(session, [])
        ended = {token for _, what, _, token in seen if what == "end"}
        lost += [f"{session}/{name}" for name in stages if kept.get(name) not in ended]
        doubled += [session] if len(set(kept.values())) != len(kept) else []
        furthest = -1
        open_ones: dict[str, tuple[float, int]] = {}
        for at, what, name, token in seen:
            pid = int(token.partition("-")[0])
            if what == "end":
                open_ones.pop(token, None)
                continue
            for other, (began, owner) in list(open_ones.items()):
                if owner in killed and killed[owner] <= at:
                    del open_ones[other]
                    if began < killed[owner]:
                        recovery.append(at - killed[owner])
                else:
                    overlaps.append(f"{session}/{name}")
            if stages.index(name) < furthest:
                again.append(f"{session}/{name}")
            furthest = max(furthest, stages.index(name))
            open_ones[token] = (at, pid)
    begun = sum(line[1] == "begin" for line in lines)
    return {
        "executions": begun,
        "outputs_lost": lost[:10],
        "outputs_doubled": doubled[:10],
        "completed_stages_run_again": again[:10],
        "two_in_one_session": overlaps[:10],
        "sessions_in_the_hands_of_the_killed": len(recovery),
        "recovery_seconds_median": round(statistics.median(recovery), 2) if recovery else None,
        "recovery_seconds_most": round(max(recovery), 2) if recovery else None,
    }
