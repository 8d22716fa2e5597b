"""What happens, as values. An event becomes a log line, a structured record, a server-sent event or a span: all from here.

An event class is a frozen dataclass with a `component` (who speaks) and a `text` (the line, with the fields in braces). `Bus.emit` hands
it to every sink; a sink that fails is reported in the log and never stops the work that it was told about.

Whose work an event tells of is its `scope`: who begins a turn, a session, a stage or a sub-agent says so with `within(...)`, and whatever
is emitted inside, in whichever thread, carries it.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, ClassVar

from holdfast.clock import stamp
from holdfast.redaction import redact, redact_text, visible, visible_json

Sink = Callable[["Event"], None]
"""Is told events. One that has a method `wants(kind)` is asked by it whether anybody listens to events of that kind."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Whose work it is, as far as is known: a conversation and its run, a session and its stage, a sub-agent, the agent."""

    thread: str | None = None
    run: str | None = None
    session: str | None = None
    stage: str | None = None
    subagent: str | None = None
    agent: str | None = None

    def as_dict(self) -> dict[str, str]:
        """What is known of it."""
        return {name: value for name, value in vars(self).items() if value is not None}


_scope: ContextVar[Scope] = ContextVar("holdfast_scope", default=Scope())  # noqa: B039 - frozen


@contextmanager
def within(**known: str | None) -> Iterator[Scope]:
    """What is emitted inside of the `with` tells of this, beside what was known already. The fields are those of `Scope`."""
    scope = Scope(**{**vars(_scope.get()), **known})
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        _scope.reset(token)


def current_scope() -> Scope:
    """Whose work is done here."""
    return _scope.get()


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened. Subclasses set `component` and `text`; `text` is ours and its braces name fields or properties."""

    component: ClassVar[str] = "Holdfast"
    text: ClassVar[str] = ""
    level: ClassVar[int] = logging.INFO

    @property
    def time(self) -> str:
        """When it was emitted; empty before."""
        moment: datetime | None = vars(self).get("_moment")
        return stamp(moment) if moment is not None else ""

    @property
    def scope(self) -> Scope:
        """Whose work it tells of: what was known where it was emitted, and what its own fields say."""
        around: Scope = vars(self).get("_scope") or Scope()
        own = {name: value for name in vars(around) if isinstance(value := vars(self).get(name), str)}
        return replace(around, **own) if own else around

    @classmethod
    def kind(cls) -> str:
        """The stable name of this kind of event in structured logs and streams: `SummaryMade` -> `summary_made`."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in cls.__name__).lstrip("_")


def line_of(event: Event) -> str:
    """One line, `[Component] text`. Values are data: control characters in them are written as escapes, secrets are hidden (C3)."""
    return f"[{event.component}] {event.text.format_map(_Values(event))}"


def record_of(event: Event) -> dict[str, Any]:
    """The structured form: kind, component, and the fields as plain values. Secrets in them are hidden (C3)."""
    return {
        "event": event.kind(),
        "component": event.component,
        **{name: redact(value) for name, value in dataclasses.asdict(event).items()},
    }


def envelope_of(event: Event, id: str) -> dict[str, Any]:
    """The form in streams and journals: number or name, time, kind, whose it is, and the fields. Secrets in them are hidden (C3)."""
    data = {name: redact(value) for name, value in dataclasses.asdict(event).items()}
    return {"v": 1, "id": id, "at": event.time, "kind": event.kind(), "scope": event.scope.as_dict(), "data": data}


class _Values(dict[str, str]):
    """Looks fields up by name while a line is made; what a value contains is never looked at again as a template."""

    def __init__(self, event: Event) -> None:
        super().__init__()
        self._event = event

    def __missing__(self, key: str) -> str:
        value = getattr(self._event, key)
        if isinstance(value, float):
            return f"{value:g}"
        if isinstance(value, tuple | list):
            return "[" + ", ".join(_shown(item) for item in value) + "]"
        return _shown(value)


def _shown(value: object) -> str:
    text = redact_text(value) if isinstance(value, str) else str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_REFERENCE = {
    "SummarizationMiddleware": "agents.middlewares.summarization_middleware",
    "MemoryMiddleware": "agents.middlewares.memory_middleware",
    "MemoryQueue": "agents.memory.queue",
    "MemoryUpdater": "agents.memory.updater",
    "MemoryStorage": "agents.memory.storage",
    "SubagentExecutor": "subagents.executor",
}
"""Where the reference logs what a component of ours tells, below either of its roots: the newer and the older name of its package."""
_ROOTS = ("deerflow", "src")


class LogSink:
    """Writes events to the standard `logging` tree, under `holdfast.<Component>`. The record carries the event as `holdfast_event`.

    Who has set a logger of the reference to DEBUG (`deerflow.agents.memory`, `src.subagents`, ...) finds the line under its name. Each
    handler gets an event once, whatever is switched on.
    """

    def __init__(self) -> None:
        self._loggers: dict[str, tuple[logging.Logger, ...]] = {}

    def wants(self, kind: type[Event]) -> bool:
        """Whether such an event would be written at all."""
        return bool(self._switched_on(kind))

    def _switched_on(self, kind: type[Event]) -> list[logging.Logger]:
        """The loggers that would write such an event; those of the reference only where somebody set a level for them."""
        found = self._loggers.get(kind.component)  # the logging tree takes a lock to look a name up, and this is asked on every model call
        if found is None:
            place = _REFERENCE.get(kind.component)
            theirs = [f"{root}.{place}" for root in _ROOTS] if place else []
            found = self._loggers[kind.component] = tuple(map(logging.getLogger, (*theirs, f"holdfast.{kind.component}")))
        *others, ours = found
        chosen = [logger for logger in others if _has_level(logger) and logger.isEnabledFor(kind.level)]
        return [*chosen, ours] if ours.isEnabledFor(kind.level) else chosen

    def __call__(self, event: Event) -> None:
        loggers = self._switched_on(type(event))
        line, reached = line_of(event) if loggers else "", set[int]()
        for logger in loggers:
            record = logger.makeRecord(logger.name, event.level, "(holdfast)", 0, "%s", (line,), None, extra={"holdfast_event": event})
            record.exc_text = _traceback_below(event)
            if len(loggers) == 1:
                logger.handle(record)
            elif not logger.disabled and logger.filter(record):
                for handler in _handlers(logger):
                    if id(handler) not in reached and event.level >= handler.level:
                        reached.add(id(handler))
                        handler.handle(record)


def _traceback_below(event: Event) -> str | None:
    """The traceback of an event that has one, to stand below its line, each line indented: none of them can look like another event."""
    trace = getattr(event, "traceback", None)
    return "\n".join(f"    {_shown(line)}" for line in trace.splitlines()) if isinstance(trace, str) else None


def _has_level(logger: logging.Logger) -> bool:
    """Whether somebody set a level for it or for one above it, other than for all loggers."""
    above: logging.Logger | None = logger
    while above is not None and above.parent is not None:
        if above.level != logging.NOTSET:
            return True
        above = above.parent
    return False


def _handlers(logger: logging.Logger) -> Iterator[logging.Handler]:
    """All handlers that a record of this logger reaches."""
    above: logging.Logger | None = logger
    while above is not None:
        yield from above.handlers
        above = above.parent if above.propagate else None


class PlainLines(logging.Formatter):
    """Log records as lines of text, without secrets and without commands for a terminal, whoever wrote them."""

    def format(self, record: logging.LogRecord) -> str:
        return visible(redact_text(super().format(record)))


class JsonLines(logging.Formatter):
    """Log records as JSON, one object a line: time, level, logger, and the event's own record where there is one."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "holdfast_event", None)
        said = record_of(event) if isinstance(event, Event) else {"message": redact_text(record.getMessage())}
        head = {"time": stamp(datetime.fromtimestamp(record.created, UTC)), "level": record.levelname.lower(), "logger": record.name}
        if record.exc_info:
            said["traceback"] = redact_text(self.formatException(record.exc_info))
        return visible_json(json.dumps({**head, **said}, ensure_ascii=False, default=str))


class Bus:
    """Hands events to sinks. Safe for many threads; sinks are called in the thread that emits, in the order they were added."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks: tuple[Sink, ...] = sinks
        self._lock = threading.Lock()

    def emit(self, event: Event) -> None:
        """Tell every sink. The event knows from here on when and within what it was emitted."""
        vars(event).update(_moment=datetime.now(UTC), _scope=_scope.get())
        for sink in self._sinks:
            try:
                sink(event)
            except Exception:  # a watcher's failure must not stop the work it watches; it is logged with its traceback
                logging.getLogger("holdfast.events").exception("a sink failed on %s", event.kind())

    def wants(self, kind: type[Event]) -> bool:
        """Whether anybody listens to such an event: who has to work out its values asks first."""
        for sink in self._sinks:
            wants: Callable[[type[Event]], bool] | None = getattr(sink, "wants", None)
            if wants is None or wants(kind):
                return True
        return False

    def subscribe(self, sink: Sink) -> Callable[[], None]:
        """Add a sink; call what is returned to remove it again."""
        with self._lock:
            self._sinks = (*self._sinks, sink)

        def unsubscribe() -> None:
            with self._lock:
                self._sinks = tuple(s for s in self._sinks if s is not sink)

        return unsubscribe

    @contextmanager
    def collect(self) -> Iterator[list[Event]]:
        """All events emitted while the block runs, in order."""
        seen: list[Event] = []
        unsubscribe = self.subscribe(seen.append)
        try:
            yield seen
        finally:
            unsubscribe()


bus = Bus(LogSink())
"""The process-wide bus that parts use when they are given no other."""


class _Summarization(Event):
    component: ClassVar[str] = "SummarizationMiddleware"


@dataclass(frozen=True, kw_only=True)
class TokenCount(_Summarization):
    """How full the window is, counted before a model call."""

    text: ClassVar[str] = "Token count: {tokens} / {window} ({percent}%)"
    tokens: int
    window: int

    @property
    def percent(self) -> int:
        return round(100 * self.tokens / self.window) if self.window else 100


@dataclass(frozen=True, kw_only=True)
class TriggerMet(_Summarization):
    """A trigger was reached."""

    text: ClassVar[str] = "Trigger: {trigger} threshold met ({value})"
    trigger: str
    value: float


@dataclass(frozen=True, kw_only=True)
class CompactionPlanned(_Summarization):
    """Messages are about to leave the window."""

    text: ClassVar[str] = "Summarizing {removed} messages, keeping last {kept}"
    removed: int
    kept: int


@dataclass(frozen=True, kw_only=True)
class SummaryMade(_Summarization):
    """A summary is there."""

    text: ClassVar[str] = "Summary generated: {tokens} tokens"
    tokens: int


@dataclass(frozen=True, kw_only=True)
class Compacted(_Summarization):
    """The window after a compaction."""

    text: ClassVar[str] = "New message count: {messages}, token count: {tokens}"
    messages: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class UpdateQueued(Event):
    """A conversation waits to be learned from."""

    component: ClassVar[str] = "MemoryMiddleware"
    text: ClassVar[str] = "Queued conversation for {thread} ({messages} messages)"
    thread: str
    messages: int


@dataclass(frozen=True, kw_only=True)
class UpdateDebounced(Event):
    """An update waits for more of the same thread."""

    component: ClassVar[str] = "MemoryQueue"
    text: ClassVar[str] = "Debouncing update for {thread} ({seconds}s wait)"
    thread: str
    seconds: float


class _Updater(Event):
    component: ClassVar[str] = "MemoryUpdater"


@dataclass(frozen=True, kw_only=True)
class UpdateStarted(_Updater):
    """Learning from a conversation begins."""

    text: ClassVar[str] = "Processing update for {thread}"
    thread: str


@dataclass(frozen=True, kw_only=True)
class FactsExtracted(_Updater):
    """New facts were found."""

    text: ClassVar[str] = "Extracted {count} new facts (confidence: {confidences})"
    confidences: tuple[float, ...]

    @property
    def count(self) -> int:
        return len(self.confidences)


@dataclass(frozen=True, kw_only=True)
class MemoryUpdated(_Updater):
    """One of the summaries about the user changed."""

    text: ClassVar[str] = "Updated {slot}"
    slot: str


@dataclass(frozen=True, kw_only=True)
class MemoryPersisted(_Updater):
    """The memory document is on disk."""

    text: ClassVar[str] = "Memory persisted to {path}"
    path: str


class _Subagent(Event):
    component: ClassVar[str] = "SubagentExecutor"


@dataclass(frozen=True, kw_only=True)
class TaskStarted(_Subagent):
    """A sub-agent begins."""

    text: ClassVar[str] = 'Starting task: "{description}"'
    description: str


@dataclass(frozen=True, kw_only=True)
class TaskThread(_Subagent):
    """The thread that a sub-agent has to itself."""

    text: ClassVar[str] = "Isolated thread: {thread}"
    thread: str


@dataclass(frozen=True, kw_only=True)
class TaskTurn(_Subagent):
    """A sub-agent finished a turn."""

    text: ClassVar[str] = "Turn {turn}/{max_turns} completed"
    turn: int
    max_turns: int


@dataclass(frozen=True, kw_only=True)
class TaskCompleted(_Subagent):
    """A sub-agent is done."""

    text: ClassVar[str] = "Task completed after {turns} turns"
    turns: int


@dataclass(frozen=True, kw_only=True)
class TaskFailed(_Subagent):
    """A sub-agent failed."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Task failed after {turns} turns: {reason}"
    turns: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskTimedOut(_Subagent):
    """A sub-agent took too long."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Task timed out after {seconds}s, {turns} turns"
    turns: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class TaskCancelled(_Subagent):
    """A sub-agent was cancelled."""

    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "Task cancelled after {turns} turns"
    turns: int


@dataclass(frozen=True, kw_only=True)
class TaskOutput(_Subagent):
    """What a sub-agent returned."""

    text: ClassVar[str] = 'Final output: "{output}"'
    output: str


@dataclass(frozen=True, kw_only=True)
class Artifacts(_Subagent):
    """The files that a sub-agent made."""

    text: ClassVar[str] = "Artifacts: {artifacts}"
    artifacts: tuple[str, ...]
