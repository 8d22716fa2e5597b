"""What workers tell: sessions that change hands or are given up, a database that goes and comes back, schedules, limits (O2, W17)."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from holdfast.events import Event


@dataclass(frozen=True, kw_only=True)
class WorkerEvent(Event):
    component: ClassVar[str] = "Worker"
    level: ClassVar[int] = logging.WARNING


@dataclass(frozen=True, kw_only=True)
class SessionTakenOver(WorkerEvent):
    """The worker that had a session gave no sign of life; another one goes on with it."""

    text: ClassVar[str] = "Session {session} is taken over: its worker gave no sign of life"

    session: str


@dataclass(frozen=True, kw_only=True)
class AdvanceFailed(WorkerEvent):
    """A session could not be advanced, and is tried again later."""

    text: ClassVar[str] = "Session {session} could not be advanced ({failures} of {retries}), again in {seconds} s: {problem}"

    session: str
    failures: int
    retries: int
    seconds: float
    problem: str


@dataclass(frozen=True, kw_only=True)
class SessionGivenUp(WorkerEvent):
    """A session is not tried again until somebody queues it."""

    text: ClassVar[str] = "Session {session} is given up: {problem} `holdfast resume {session}` queues it again"
    level: ClassVar[int] = logging.ERROR

    session: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class DatabaseAway(WorkerEvent):
    """The database cannot be reached; the worker tries again until it can."""

    text: ClassVar[str] = "The database is away ({problem}); trying again until it is back"

    problem: str


@dataclass(frozen=True, kw_only=True)
class DatabaseBack(WorkerEvent):
    """It is there again."""

    text: ClassVar[str] = "The database is back"


@dataclass(frozen=True, kw_only=True)
class ScheduleFailed(WorkerEvent):
    """A moment of a schedule has come and its session could not be begun."""

    text: ClassVar[str] = "The schedule {schedule} could not be begun: {problem}"
    level: ClassVar[int] = logging.ERROR

    schedule: str
    problem: str


@dataclass(frozen=True, kw_only=True)
class CallWaits(WorkerEvent):
    """A call of a model waits until the limits of all workers allow it."""

    text: ClassVar[str] = "A call of {model} waits for its limits"
    level: ClassVar[int] = logging.INFO

    model: str
