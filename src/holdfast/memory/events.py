"""What memory tells besides the log lines of the reference, which are in `holdfast.events`."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

from holdfast.events import Event


class _StorageEvent(Event):
    component: ClassVar[str] = "MemoryStorage"


class _QueueEvent(Event):
    component: ClassVar[str] = "MemoryQueue"


@dataclass(frozen=True, kw_only=True)
class PathBeside(_StorageEvent):
    """The memory file is not in the base directory, but beside the configuration."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{path} is used as it is; there is none at {expected}"
    path: str
    expected: str


@dataclass(frozen=True, kw_only=True)
class StorageFallback(_StorageEvent):
    """The configured storage could not be loaded, so files are used."""

    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "{asked} cannot be used, so memory is kept in files: {reason}"
    asked: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class MemoryDamaged(_StorageEvent):
    """A document could not be read. It was moved out of the way, and nothing of it was overwritten."""

    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "{path} is damaged and was set aside as {aside}: {reason} {then}"
    path: str
    aside: str
    reason: str
    then: str = ""
    """What stands in its place."""


@dataclass(frozen=True, kw_only=True)
class QueueDamaged(_QueueEvent):
    """The queue could not be read. It was moved out of the way and made again."""

    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = (
        "{path} is damaged and was set aside as {aside}: {reason} Conversations in it that could be read and wait again: {kept}. "
        "Facts are as they were; what was said is in `holdfast history`"
    )
    path: str
    aside: str
    kept: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class UpdateFailed(_QueueEvent):
    """Learning from a conversation failed; it is tried again."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Update for {thread} failed ({error}); trying again in {seconds}s"
    thread: str
    error: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class UpdateGivenUp(_QueueEvent):
    """Learning from a conversation failed too often. It stays in the queue until somebody asks for another try (`memory retry`)."""

    level: ClassVar[int] = logging.ERROR
    text: ClassVar[str] = "Gave up on update for {thread} after {attempts} attempts: {error}"
    thread: str
    attempts: int
    error: str


@dataclass(frozen=True, kw_only=True)
class UpdateLeft(_QueueEvent):
    """The process ended before a conversation could be learned from. The next one that uses this memory does it."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Update for {thread} is left for the next process ({error})"
    thread: str
    error: str
