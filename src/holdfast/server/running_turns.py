"""Turns that run for somebody who may go away: a task each, which owns the conversation, and a stream that anybody may follow (A13).

A turn belongs to the server, not to the request that began it: a client that leaves loses nothing, and comes back to its events.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.clock import Clock, stamp
from holdfast.errors import HoldfastError, Locked, NotThere
from holdfast.ids import IdSource
from holdfast.redaction import redact
from holdfast.server.event_stream import EventStream
from holdfast.server.problem_details import kind_name
from holdfast.talk import Ended, Subagent, Token, ToolCalled, ToolFinished, TurnEvent, as_dict

if TYPE_CHECKING:
    from holdfast.talk import Talk

_KEPT = 500
"""Runs whose events can still be read after they ended."""


@dataclass
class ToolUse:
    """A call of a tool in a turn, and what came of it so far. `task` is the newest event of the sub-agent that it started."""

    id: str
    name: str
    args: Mapping[str, Any]
    status: str = "running"
    text: str = ""
    task: Mapping[str, Any] | None = None


@dataclass
class Progress:
    """What a turn has said and done so far, in its order: texts, and uses of tools. For who looks in while it runs."""

    said: str = ""
    """What the user said; empty for a turn that goes on."""
    held: int = 0
    """How many messages the conversation had before it."""
    steps: list[str | ToolUse] = field(default_factory=list)

    def take(self, event: TurnEvent) -> None:
        """Note what happened."""
        if isinstance(event, Token):
            if self.steps and isinstance(self.steps[-1], str):
                self.steps[-1] += event.text
            else:
                self.steps.append(event.text)
        elif isinstance(event, ToolCalled):
            self.steps.append(ToolUse(event.id, event.name, event.args))
        elif isinstance(event, ToolFinished) and (use := self._use(event.id)) is not None:
            use.status, use.text = event.status, event.text
        elif isinstance(event, Subagent) and (use := self._use(str(event.event.get("call")))) is not None:
            use.task = {**(use.task or {}), **event.event}

    def _use(self, id: str) -> ToolUse | None:
        return next((step for step in reversed(self.steps) if isinstance(step, ToolUse) and step.id == id), None)


@dataclass
class Run:
    """One turn: what is known of it now. `status` is running, completed, failed, cancelled, or why it ended else."""

    id: str
    thread: str
    agent: str | None
    created: str
    stream: EventStream
    status: str = "running"
    text: str = ""
    tokens: int = 0
    artifacts: tuple[str, ...] = ()
    error: str | None = None
    ended: str | None = None
    progress: Progress = field(default_factory=Progress, repr=False)
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class RunningTurns:
    """The runs of this server. Used on its loop alone."""

    def __init__(self, ids: IdSource, clock: Clock, dropped: Callable[[int], object] = lambda _: None) -> None:
        self._ids, self._clock, self._dropped = ids, clock, dropped
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def begin(self, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]], *, said: str = "", held: int = 0) -> Run:
        """Start a turn and give its run; `said` is what the user said and `held` how many messages there were before.

        Locked while another one of the same thread runs here.
        """
        busy = next((run for run in self._runs.values() if run.thread == talk.thread and run.status == "running"), None)
        if busy is not None:
            raise Locked(f"a turn of this thread is under way: {busy.id}.", owner=busy.id, hint="Wait for it, or cancel it.")
        stream = EventStream(asyncio.get_running_loop(), dropped=self._dropped)
        run = Run(self._ids.new("run"), talk.thread, talk.agent_name, stamp(self._clock.now()), stream)
        run.progress = Progress(said, held)
        self._runs[run.id] = run
        run.task = asyncio.create_task(self._drive(run, talk, turn))
        self._forget_old()
        return run

    async def _drive(self, run: Run, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]]) -> None:
        self._tell(run, "run_started", {})
        try:
            async for event in turn():
                run.progress.take(event)
                if isinstance(event, Ended):
                    run.status, run.text = event.reason, event.text
                    run.tokens, run.artifacts = event.tokens, event.artifacts
                    self._tell(run, "run_ended", {"reason": event.reason, "text": event.text, "tokens": event.tokens}, last=True)
                else:
                    told = as_dict(event)
                    self._tell(run, told.pop("type"), told)
            if run.status == "running":
                self._failed(run, "the turn came to no end.", "failed")
        except asyncio.CancelledError:
            self._failed(run, "the turn was stopped.", "cancelled")
            raise
        except HoldfastError as error:
            self._failed(run, error.public, "failed", kind_name(error))
        except Exception as error:  # a model or a tool of the user's own may raise anything; the run tells it, the log has it
            self._failed(run, f"{type(error).__name__}: the server's log has it.", "failed")
            logging.getLogger("holdfast.server").exception("run %s failed", run.id)
        finally:
            run.ended = stamp(self._clock.now())
            await asyncio.shield(asyncio.to_thread(talk.close))

    def _failed(self, run: Run, why: str, status: str, kind: str = "error") -> None:
        run.status, run.error = status, why
        self._tell(run, "run_failed" if status == "failed" else "run_ended", {"reason": status, "error": why, "kind": kind}, last=True)

    def _tell(self, run: Run, kind: str, data: dict[str, Any], *, last: bool = False) -> None:
        scope = {"thread": run.thread, "run": run.id, **({"agent": run.agent} if run.agent else {})}
        envelope = {"v": 1, "at": stamp(self._clock.now()), "kind": kind, "scope": scope, "data": redact(data)}
        run.stream.publish(kind, envelope, last=last)

    def find(self, id: str) -> Run:
        """The run of this id. NotThere for one that never was, or that ended long ago."""
        found = self._runs.get(id)
        if found is None:
            raise NotThere(f"there is no run {id[:80]!r} here.", hint="Its conversation has what was said.")
        return found

    def of_thread(self, thread: str) -> list[Run]:
        """The runs of a thread, the newest first."""
        return [run for run in reversed(self._runs.values()) if run.thread == thread]

    @property
    def running(self) -> list[Run]:
        """Those that have not ended."""
        return [run for run in self._runs.values() if run.status == "running"]

    async def cancel(self, run: Run) -> None:
        """Stop it, and wait until it is over. What was said stays in the conversation."""
        if run.task is not None and not run.task.done():
            run.task.cancel()
            await asyncio.wait([run.task])

    async def stop(self, seconds: float) -> None:
        """Stop all of them."""
        tasks = [run.task for run in self.running if run.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _forget_old(self) -> None:
        for id in [id for id, run in self._runs.items() if run.status != "running"][: max(0, len(self._runs) - _KEPT)]:
            del self._runs[id]
