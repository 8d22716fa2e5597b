"""Attempts at stages, each in a thread of its own, and one queue in which they come back.

The runner never waits for an agent alone: it waits for the queue, a deadline, the end of a pause, or somebody who says stop, whichever
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
class Outcome:
    """How an attempt ended: with a result or an error. Neither means that a pause is over and the stage may be tried again."""

    stage: str
    result: StageResult | None = None
    error: BaseException | None = None


@dataclass(eq=False)
class Attempt:
    """One attempt, or the pause before one."""

    stage: str
    deadline: float | None = None
    until: float | None = None
    """When the pause is over; None for an attempt that runs."""
    stop: threading.Event = field(default_factory=threading.Event)
    seconds: float | None = None
    hand: _Hand | None = None


class _Hand:
    """A thread that works on one attempt after the other. Making one for each stage would cost more than all the rest of the loop."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def do(self, job: Callable[[], None] | None) -> None:
        """Work on this next; None is the end."""
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class Floor:
    """Where attempts run. For one thread, the runner's; only the attempts themselves are in others."""

    def __init__(self, clock: Clock, stopped: Callable[[], bool]) -> None:
        self._clock = clock
        self._stopped = stopped
        self._back: SimpleQueue[tuple[Attempt, Outcome]] = SimpleQueue()
        self._attempts: dict[str, Attempt] = {}
        self._idle: list[_Hand] = []
        self._asked = clock.monotonic()

    @property
    def stages(self) -> frozenset[str]:
        """The stages that run or pause now."""
        return frozenset(self._attempts)

    def start(self, agent: StageAgent, request: StageRequest, attempt: Attempt, timeout: float | None) -> None:
        """Run the agent in a new thread."""
        attempt.seconds = timeout
        attempt.deadline = None if timeout is None else self._clock.monotonic() + timeout
        self._attempts[attempt.stage] = attempt
        attempt.hand = hand = self._idle.pop() if self._idle else _Hand(f"stage {attempt.stage}")

        def work() -> None:
            try:
                outcome = Outcome(attempt.stage, result=agent.run(request))
            except BaseException as error:  # noqa: BLE001 - whatever an agent raises, also SystemExit, is its stage's failure and is written down
                outcome = Outcome(attempt.stage, error=error)
            self._back.put((attempt, outcome))

        hand.do(work)

    def pause(self, stage: str, seconds: float) -> None:
        """Let the stage rest; its outcome comes when the time is over."""
        self._attempts[stage] = Attempt(stage, until=self._clock.monotonic() + seconds)

    def next(self) -> Outcome | None:
        """The next thing that happens, or None when somebody said stop."""
        while True:
            outcome = self._due()
            if outcome is not None:
                return outcome
            found = self._wait()
            if found is not None and self._attempts.get(found[0].stage) is found[0]:
                del self._attempts[found[0].stage]
                if found[0].hand is not None:
                    self._idle.append(found[0].hand)
                return found[1]
            if self.is_stopped():
                return None

    def give_up(self) -> None:
        """Tell every attempt to stop, forget them, and let the threads end, each when its agent has."""
        for attempt in self._attempts.values():
            attempt.stop.set()
            self._dismiss(attempt)
        self._attempts.clear()
        while self._idle:
            self._idle.pop().do(None)

    def _dismiss(self, attempt: Attempt) -> None:
        if attempt.hand is not None:
            attempt.hand.do(None)

    def _due(self) -> Outcome | None:
        """A pause that is over, or an attempt whose time is."""
        if all(attempt.until is None and attempt.deadline is None for attempt in self._attempts.values()):
            return None
        now = self._clock.monotonic()
        for name, attempt in list(self._attempts.items()):
            if attempt.until is not None and attempt.until <= now:
                del self._attempts[name]
                return Outcome(name)
            if attempt.deadline is not None and attempt.deadline <= now and self._back.empty():
                del self._attempts[name]
                attempt.stop.set()
                self._dismiss(attempt)
                return Outcome(name, error=TimedOut(f"it took longer than {attempt.seconds:g} seconds."))
        return None

    def _wait(self) -> tuple[Attempt, Outcome] | None:
        moments = [attempt.until or attempt.deadline for attempt in self._attempts.values()]
        known = [moment for moment in moments if moment is not None]
        wait = LONGEST_WAIT if not known else max(0.0, min(LONGEST_WAIT, min(known) - self._clock.monotonic()))
        if all(attempt.until is not None for attempt in self._attempts.values()):
            self._clock.sleep(wait)  # nobody can come back: the clock alone decides, also one that a test turns
            return None
        try:
            return self._back.get(timeout=wait)
        except Empty:
            return None

    def is_stopped(self) -> bool:
        """Whether somebody said stop. Asked often, so it does not look more than some twenty times a second."""
        now = self._clock.monotonic()
        if now - self._asked < LONGEST_WAIT / 2 and now != self._asked:
            return False
        self._asked = now
        return self._stopped()
