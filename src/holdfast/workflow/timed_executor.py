"""Thread pool that runs stage attempts, with the stage's time-out and the pause before a retry. Not thread-safe: the runner's alone.

The runner never waits for an agent alone: it waits for a result, a time-out, the end of a pause, or somebody who says stop, whichever
comes first. An attempt that is given up goes on in its thread until its agent notices; nothing of it is used or kept.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from holdfast.clock import Clock
from holdfast.workflow.agent import StageAgent, StageRequest, StageResult
from holdfast.workflow.retry_policy import TimedOut

LONGEST_WAIT = 0.1
"""Seconds until a request to stop is noticed at the latest."""


@dataclass(frozen=True)
class AttemptOutcome:
    """How an attempt ended: with a result or an error. Neither means that a pause is over and the stage may be tried again."""

    stage: str
    result: StageResult | None = None
    error: BaseException | None = None


@dataclass(eq=False)
class Attempt:
    """One attempt, or the pause before one."""

    stage: str
    timeout: float | None = None
    deadline: float | None = None
    """When the time-out is reached, by the monotonic clock."""
    paused_until: float | None = None
    """When the pause is over; None for an attempt that runs."""
    stop: threading.Event = field(default_factory=threading.Event)
    worker: _Worker | None = None


class _Worker:
    """A thread that works on one attempt after the other: a new one for each stage would cost more than all the rest of the loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, job: Callable[[], None] | None) -> None:
        """Work on this next; None ends the thread."""
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class TimedExecutor:
    """Runs attempts in worker threads and gives back one outcome at a time."""

    def __init__(self, clock: Clock, stop_requested: Callable[[], bool], idle: Callable[[], None] = lambda: None) -> None:
        """`idle` is called whenever nothing has happened for a while."""
        self._clock = clock
        self._idle_again = idle
        self._stop_requested = stop_requested
        self._finished: SimpleQueue[tuple[Attempt, AttemptOutcome]] = SimpleQueue()
        self._attempts: dict[str, Attempt] = {}
        self._idle: list[_Worker] = []
        self._asked = clock.monotonic()

    @property
    def stages(self) -> frozenset[str]:
        """The stages that run or pause now."""
        return frozenset(self._attempts)

    def start(self, agent: StageAgent, request: StageRequest, attempt: Attempt, timeout: float | None) -> None:
        """Run the agent in a worker thread. After `timeout` seconds its outcome is TimedOut."""
        attempt.timeout = timeout
        attempt.deadline = None if timeout is None else self._clock.monotonic() + timeout
        self._attempts[attempt.stage] = attempt
        attempt.worker = worker = self._idle.pop() if self._idle else _Worker(f"stage {attempt.stage}")

        def work() -> None:
            try:
                outcome = AttemptOutcome(attempt.stage, result=agent.run(request))
            except BaseException as error:  # noqa: BLE001 - whatever an agent raises, also SystemExit, is its stage's failure and is written down
                outcome = AttemptOutcome(attempt.stage, error=error)
            self._finished.put((attempt, outcome))

        worker.submit(work)

    def pause(self, stage: str, seconds: float) -> None:
        """Let the stage rest; its outcome comes when the time is over."""
        self._attempts[stage] = Attempt(stage, paused_until=self._clock.monotonic() + seconds)

    def next(self) -> AttemptOutcome | None:
        """The next thing that happens, or None when somebody said stop."""
        while True:
            outcome = self._due()
            if outcome is not None:
                return outcome
            found = self._wait()
            if found is not None and self._attempts.get(found[0].stage) is found[0]:
                del self._attempts[found[0].stage]
                if found[0].worker is not None:
                    self._idle.append(found[0].worker)
                return found[1]
            if self.is_stopped():
                return None
            if found is None:
                self._idle_again()

    def give_up(self) -> None:
        """Tell every attempt to stop, forget them, and let the threads end, each when its agent has."""
        for attempt in self._attempts.values():
            self._abandon(attempt)
        self._attempts.clear()
        while self._idle:
            self._idle.pop().submit(None)

    def is_stopped(self) -> bool:
        """Whether somebody said stop. Asked often, so it does not look more than some twenty times a second."""
        now = self._clock.monotonic()
        if now - self._asked < LONGEST_WAIT / 2 and now != self._asked:
            return False
        self._asked = now
        return self._stop_requested()

    def _abandon(self, attempt: Attempt) -> None:
        attempt.stop.set()
        if attempt.worker is not None:
            attempt.worker.submit(None)

    def _due(self) -> AttemptOutcome | None:
        """A pause that is over, or an attempt whose time is."""
        if all(attempt.paused_until is None and attempt.deadline is None for attempt in self._attempts.values()):
            return None
        now = self._clock.monotonic()
        for name, attempt in list(self._attempts.items()):
            if attempt.paused_until is not None and attempt.paused_until <= now:
                del self._attempts[name]
                return AttemptOutcome(name)
            if attempt.deadline is not None and attempt.deadline <= now and self._finished.empty():
                del self._attempts[name]
                self._abandon(attempt)
                return AttemptOutcome(name, error=TimedOut(f"it took longer than {attempt.timeout:g} seconds."))
        return None

    def _wait(self) -> tuple[Attempt, AttemptOutcome] | None:
        moments = [attempt.paused_until or attempt.deadline for attempt in self._attempts.values()]
        known = [moment for moment in moments if moment is not None]
        wait = LONGEST_WAIT if not known else max(0.0, min(LONGEST_WAIT, min(known) - self._clock.monotonic()))
        if all(attempt.paused_until is not None for attempt in self._attempts.values()):
            self._clock.sleep(wait)  # nobody can come back: the clock alone decides, also one that a test turns
            return None
        try:
            return self._finished.get(timeout=wait)
        except Empty:
            return None
