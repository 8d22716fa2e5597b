"""Threads that run stage attempts, with the stage's time-out and the pause before a retry. The runner's alone.

The runner never waits for an agent alone: it waits for a result, a time-out, the end of a pause, or somebody who says stop, whichever
comes first. An attempt that is given up goes on in its thread until its agent notices; nothing of it is used or kept. Whoever resumes the
session in this process waits for one that was stopped (`stopped_agent`), so that no stage is worked on twice at once; one that is over its
time is waited for by nobody.

The loop of the runner is in a thread of its own (`drive`), and whoever called it watches. An attempt that is alone runs in that thread,
because to hand it to another and back would take longer than all the rest of a stage; if its time is over, or somebody says stop, another
thread goes on with the loop, and the one that is left with the agent ends with it. Attempts at the same time have threads of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from holdfast.clock import Clock
from holdfast.events import current_scope, within
from holdfast.tracing import bare_context, span
from holdfast.workflow.agent import StageAgent, StageRequest, StageResult, as_result
from holdfast.workflow.transitions import TimedOut

LONGEST_WAIT = 0.1
"""Seconds until a request to stop is noticed at the latest."""

T = TypeVar("T")


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
    overdue: bool = False
    """Whether it was given up because its time was over."""
    given_up: bool = False
    """Whether nothing of it is wanted any more; its agent may ask."""
    job: Callable[[], AttemptOutcome] | None = None
    """What is to be done; None once it is begun."""
    worker: _Worker | None = None

    def is_given_up(self) -> bool:
        return self.given_up


_at_work: dict[str, list[Attempt]] = {}
"""The attempts whose agents are at work in this process, by the places of their sessions."""
_at_work_changed = threading.Condition()


@contextmanager
def _working(place: str, attempt: Attempt) -> Iterator[None]:
    with _at_work_changed:
        _at_work.setdefault(place, []).append(attempt)
    try:
        yield
    finally:
        with _at_work_changed:
            _at_work[place].remove(attempt)
            if not _at_work[place]:
                del _at_work[place]
            _at_work_changed.notify_all()


def stopped_agent(place: str, seconds: float, is_stopped: Callable[[], bool]) -> str | None:
    """The stage of this session whose agent was stopped and is still at work in this process after so many seconds, if there is one.

    None at once if there is none, or somebody says stop. `place` is that of the session.
    """
    until = time.monotonic() + seconds
    with _at_work_changed:
        while stages := [attempt.stage for attempt in _at_work.get(place, ()) if attempt.given_up and not attempt.overdue]:
            left = until - time.monotonic()
            if is_stopped():
                return None
            if left <= 0:
                return stages[0]
            _at_work_changed.wait(min(left, LONGEST_WAIT))
    return None


class _Worker:
    """A thread that works on one attempt after the other."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, job: Callable[[], None] | None) -> None:
        """Work on this next; None ends the thread."""
        self._jobs.put(job)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


class _Superseded(BaseException):
    """Ends a loop whose thread was left with its agent: another one goes on, or nobody. No error, and nobody catches it."""


@dataclass(eq=False)
class _Turn(Generic[T]):
    """A loop in a thread, until it is over or another one goes on with it."""

    over: threading.Event = field(default_factory=threading.Event)
    value: list[T] = field(default_factory=list)
    error: BaseException | None = None


class TimedExecutor:
    """Runs attempts in threads and gives back one outcome at a time."""

    def __init__(
        self, clock: Clock, stop_requested: Callable[[], bool], idle: Callable[[], None] = lambda: None, *, place: str = ""
    ) -> None:
        """`idle` is called whenever nothing has happened for a while. `place` is that of the session."""
        self._place = place
        self._clock = clock
        self._idle_again = idle
        self._stop_requested = stop_requested
        self._finished: SimpleQueue[tuple[Attempt, AttemptOutcome]] = SimpleQueue()
        self._attempts: dict[str, Attempt] = {}
        self._idle: list[_Worker] = []
        self._asked = clock.monotonic()
        self._turn: _Turn[object] | None = None
        self._here: Attempt | None = None
        """The attempt that runs in the loop's own thread."""
        self._in_loop = threading.Lock()
        """Held by whoever is in the loop or changes anything here; not while an agent runs in the loop's thread."""

    @property
    def stages(self) -> frozenset[str]:
        """The stages that run or pause now."""
        return frozenset(self._attempts)

    def drive(self, loop: Callable[[], T], go_on: Callable[[AttemptOutcome | None], T]) -> T:
        """Run the loop, in which `start` and `next` are called, and give what it gives or raise what it raises.

        `go_on` is the loop from where `next` has given this outcome. On return, also by an error, nobody is in the loop any more.
        """
        turn = self._begin(loop)
        seen: Attempt | None = None
        try:
            while not turn.over.wait(LONGEST_WAIT / 2):
                last, seen = seen, self._here
                if seen is not None and seen is last:  # else the loop goes on by itself, and sees to everything
                    with self._in_loop:
                        turn = self._watched(turn, go_on)
        finally:
            self._turn = None
            with self._in_loop:  # it is over, or its thread is left with an agent
                pass
        if turn.error is not None:
            raise turn.error
        return turn.value[0]

    def _begin(self, work: Callable[[], T]) -> _Turn[T]:
        turn: _Turn[T] = _Turn()
        self._turn = turn  # type: ignore[assignment]  # only whose turn it is counts, not what comes of it
        threading.Thread(target=copy_context().run, args=(self._take, turn, work), name="workflow", daemon=True).start()
        return turn

    def _take(self, turn: _Turn[T], work: Callable[[], T]) -> None:
        with self._in_loop:
            try:
                self._check(turn)
                turn.value.append(work())
            except _Superseded:
                return
            except BaseException as error:  # noqa: BLE001 - raised again by `drive`, in the thread that waits for it
                turn.error = error
        turn.over.set()

    def _watched(self, turn: _Turn[T], go_on: Callable[[AttemptOutcome | None], T]) -> _Turn[T]:
        """An agent has been at work for a while: the turn goes on, or to another thread."""
        if turn.over.is_set():
            return turn
        outcome = self._due()
        if outcome is not None or self.is_stopped():
            self._here = None
            return self._begin(lambda: go_on(outcome))
        self._idle_again()
        return turn

    def _check(self, turn: object) -> None:
        if self._turn is not turn:
            raise _Superseded

    def start(self, agent: StageAgent, request: StageRequest, attempt: Attempt, timeout: float | None) -> None:
        """Let the agent run, at the latest when `next` is called. After `timeout` seconds its outcome is TimedOut."""
        attempt.timeout = timeout
        attempt.deadline = None if timeout is None else self._clock.monotonic() + timeout
        self._attempts[attempt.stage] = attempt

        scope, context = current_scope(), bare_context()  # of the run; an agent's context is otherwise its own

        def asked() -> StageResult:
            about = {
                "gen_ai.agent.name": attempt.stage,
                "holdfast.attempt": request.attempt,
                "holdfast.agent_type": request.stage.agent_type,
            }
            with within(**scope.as_dict(), stage=attempt.stage), span("invoke_agent", attempt.stage, "AGENT", about):
                return as_result(agent.run(request))

        def work() -> AttemptOutcome:
            try:
                with _working(self._place, attempt):
                    return AttemptOutcome(attempt.stage, result=context.run(asked))
            except BaseException as error:  # noqa: BLE001 - whatever an agent raises, also SystemExit, is its stage's failure and is written down
                return AttemptOutcome(attempt.stage, error=error)

        attempt.job = work

    def pause(self, stage: str, seconds: float) -> None:
        """Let the stage rest; its outcome comes when the time is over."""
        self._attempts[stage] = Attempt(stage, paused_until=self._clock.monotonic() + seconds)

    def next(self) -> AttemptOutcome | None:
        """The next thing that happens, or None when somebody said stop."""
        turn = self._turn
        while True:
            self._check(turn)
            outcome = self._due()
            if outcome is not None:
                return outcome
            if len(self._attempts) == 1 and turn is not None:
                (only,) = self._attempts.values()
                if only.job is not None:
                    return self._run_here(only, only.job)
            self._hand_out()
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

    def _run_here(self, attempt: Attempt, job: Callable[[], AttemptOutcome]) -> AttemptOutcome:
        """Run the only attempt there is in this thread. What waits meanwhile is seen to by `drive`."""
        turn, attempt.job = self._turn, None
        self._here = attempt
        self._in_loop.release()
        try:
            outcome = job()
        finally:
            self._in_loop.acquire()
        self._check(turn)
        self._here = None
        del self._attempts[attempt.stage]
        return outcome

    def _hand_out(self) -> None:
        """Give every attempt that is not begun a thread of its own."""
        for attempt in self._attempts.values():
            if attempt.job is not None:
                job, attempt.job = attempt.job, None
                attempt.worker = self._idle.pop() if self._idle else _Worker(f"stage {attempt.stage}")
                attempt.worker.submit(lambda attempt=attempt, job=job: self._finished.put((attempt, job())))  # type: ignore[misc]  # bound now

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
        attempt.given_up = True
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
                attempt.overdue = True
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
