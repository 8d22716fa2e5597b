"""Runs sub-agents: each in a thread and an empty context of its own, a few at once, with caps that keep the work done so far (A2-A7).

All of them run on one asyncio loop. A sub-agent that waits for its place, runs, times out, is cancelled, fails or uses up its turns or
tokens ends in the same way: with a `SubagentResult`, told by a `TaskReporter`. `task_tool` makes the tool by which an agent hands work
over; which types of sub-agent there are says `agent_settings.py`.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphRecursionError

from holdfast.agents.agent_settings import GENERAL, Registry
from holdfast.agents.middleware.base import RunContext, files_thread, merge_artifacts, thread_of
from holdfast.agents.middleware.memory import memory_use
from holdfast.agents.threads import SUBAGENT
from holdfast.context.records import records_of
from holdfast.context.view import marks_of
from holdfast.events import (
    Artifacts,
    Bus,
    TaskCancelled,
    TaskCompleted,
    TaskFailed,
    TaskOutput,
    TaskStarted,
    TaskThread,
    TaskTimedOut,
    TaskTurn,
    within,
)
from holdfast.models.failures import is_cut
from holdfast.redaction import replace_secrets
from holdfast.tracing import bare_context, span
from holdfast.validation import counted

if TYPE_CHECKING:
    from holdfast.agents.agent_loop import Parts
    from holdfast.agents.agent_settings import SubagentType


Status = Literal["completed", "failed", "timed_out", "cancelled", "turn_capped", "token_capped"]
NO_RESPONSE = "No response"


@dataclass(frozen=True)
class SubagentResult:
    """How a sub-agent ended, and its work up to then: its last words and the files it made."""

    id: str
    thread: str
    status: Status
    output: str = NO_RESPONSE
    artifacts: tuple[str, ...] = ()
    turns: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reason: str = ""
    """Why it failed; empty otherwise."""

    @property
    def done(self) -> bool:
        """Whether it ended by itself with an answer."""
        return self.status == "completed"

    @property
    def capped(self) -> bool:
        """Whether a limit of turns or tokens ended it; its work up to then is here."""
        return self.status in ("turn_capped", "token_capped")

    def text(self) -> str:
        """What the parent's model reads."""
        head = self._head()
        partial = f"Its work up to then:\n{self.output}" if head and self.output != NO_RESPONSE else self.output
        files = "Files: " + ", ".join(self.artifacts) if self.artifacts else ""
        return "\n\n".join(part for part in (head, partial, files) if part)

    def _head(self) -> str:
        match self.status:
            case "failed":
                return f"The sub-agent failed: {self.reason}"
            case "timed_out":
                return f"The sub-agent was stopped after {self.seconds:.0f} seconds."
            case "cancelled":
                return "The sub-agent was cancelled."
            case "turn_capped":
                return f"The sub-agent was stopped after {counted(self.turns, 'turn')}, before it was done."
            case "token_capped":
                return f"The sub-agent was stopped after {self.tokens} tokens, before it was done."
            case "completed":
                return ""

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {**asdict(self), "artifacts": list(self.artifacts)}


Kind = Literal["task_started", "task_running", "task_completed", "task_failed", "task_timed_out", "task_cancelled"]
Emit = Callable[[dict[str, Any]], None]

_ENDS: dict[str, Kind] = {"failed": "task_failed", "timed_out": "task_timed_out", "cancelled": "task_cancelled"}
_LOGGED = 500


@dataclass(frozen=True)
class TaskReporter:
    """Reports what one sub-agent does, to the parent's stream and the bus. A listener that has gone away is no reason to stop."""

    bus: Bus
    emit: Emit | None
    head: dict[str, Any] = field(default_factory=dict)
    """What every event says: the ids of task, thread and call, and the description."""

    def started(self, description: str, thread: str, max_turns: int) -> None:
        """It has its place and begins."""
        self._send("task_started", max_turns=max_turns)
        self.bus.emit(TaskStarted(description=description))
        self.bus.emit(TaskThread(thread=thread))

    def turn(self, turn: int, max_turns: int, text: str, tools: list[str]) -> None:
        """It finished a turn: what it said and what it calls next."""
        self._send("task_running", turn=turn, max_turns=max_turns, text=text, tools=tools)
        self.bus.emit(TaskTurn(turn=turn, max_turns=max_turns))

    def ended(self, result: SubagentResult) -> None:
        """It ended, in whatever way."""
        kind = _ENDS.get(result.status, "task_completed")
        more = {"stop_reason": result.status} if kind == "task_completed" else {}
        self._send(kind, result=result.as_dict(), **more)
        match result.status:
            case "failed":
                self.bus.emit(TaskFailed(turns=result.turns, reason=result.reason))
            case "timed_out":
                self.bus.emit(TaskTimedOut(turns=result.turns, seconds=round(result.seconds, 1)))
            case "cancelled":
                self.bus.emit(TaskCancelled(turns=result.turns))
            case _:
                self.bus.emit(TaskCompleted(turns=result.turns))
        output = result.output if len(result.output) <= _LOGGED else f"{result.output[:_LOGGED]} ..."
        self.bus.emit(TaskOutput(output=output))
        self.bus.emit(Artifacts(artifacts=result.artifacts))

    def _send(self, kind: Kind, **values: Any) -> None:
        if self.emit is None:
            return
        try:
            self.emit({"type": kind, **self.head, **values})
        except Exception:  # the parent's stream may be closed by now, in any way; the work goes on
            logging.getLogger("holdfast.SubagentExecutor").debug("nobody takes %s any more", kind, exc_info=True)


_BAD_CALLS = "its tool calls did not arrive whole, again and again; a smaller task, or a higher limit of its model, helps"
_WAS_CUT = "\n(This answer was cut at its token limit.)"
_STATUS: dict[str | None, Status] = {"loop": "turn_capped", "bad_calls": "failed"}
_STEPS_A_TURN = 2  # model and tools are a step each


@dataclass(frozen=True)
class Task:
    """What a sub-agent is to do, and for whom."""

    type: SubagentType
    description: str
    prompt: str
    max_turns: int
    parent: str | None = None
    run: str | None = None
    session: str | None = None
    files: str | None = None
    call: str = ""


@dataclass(frozen=True)
class Running:
    """A sub-agent that was started. `future` gives its result, and is never cancelled itself."""

    id: str
    thread: str
    future: Future[SubagentResult]
    _cancel: Callable[[], None] = field(repr=False)

    def result(self, timeout: float | None = None) -> SubagentResult:
        """Wait for it."""
        return self.future.result(timeout)

    def cancel(self) -> None:
        """Stop it at once. It still has a result: what it had done by then."""
        self._cancel()


@dataclass
class _Run:
    """A sub-agent at work, and what it has done so far: this is what a cap keeps."""

    task: Task
    id: str
    thread: str
    reporter: TaskReporter
    said: str = ""
    turns: int = 0
    artifacts: list[str] = field(default_factory=list)
    fresh: list[BaseMessage] = field(default_factory=list)
    """Messages that are not in the archive yet."""
    ended: str | None = None

    def take(self, part: Mapping[str, Any]) -> bool | None:
        """Note what a step brought. For a step of the model: whether it calls tools, so that there is more to come."""
        calls: bool | None = None
        for node, update in part.items():
            for values in update if isinstance(update, list) else [update]:
                if not isinstance(values, Mapping):
                    continue
                self.artifacts = merge_artifacts(self.artifacts, values.get("artifacts"))
                messages = values.get("messages")
                new = [message for message in messages if isinstance(message, BaseMessage)] if isinstance(messages, list) else []
                self.fresh += new
                answer = next((message for message in new if isinstance(message, AIMessage)), None) if node == "model" else None
                if answer is not None:
                    calls = self._turn(answer)
        return calls

    def _turn(self, answer: AIMessage) -> bool:
        self.ended, text = marks_of(answer).get("ended"), answer.text.strip()
        if text and not answer.tool_calls and is_cut(answer):
            text += _WAS_CUT
        if text and (self.ended is None or not self.said):
            self.said = text
        if self.ended is None:
            self.turns += 1
            self.reporter.turn(self.turns, self.task.max_turns, text, [call["name"] for call in answer.tool_calls])
        return bool(answer.tool_calls)


class Executor:
    """Starts sub-agents, as many at once as there are `places` among the parts; more wait in line, in the order in which they came."""

    def __init__(self, build: Callable[[SubagentType], Any], parts: Parts) -> None:
        self._build, self._parts = build, parts
        self._graphs: dict[str, Any] = {}
        self._running: dict[str, asyncio.Task[SubagentResult]] = {}  # changed on the loop only

    def start(self, task: Task, emit: Emit | None = None) -> Running:
        """Start one, or put it in line. `emit` is called with its events, from the loop's thread."""
        id = self._parts.ids.new()
        thread = f"{SUBAGENT}{id}"
        head = {"task_id": id, "thread": thread, "parent": task.parent, "call": task.call, "description": task.description}
        reporter = TaskReporter(self._parts.bus, emit, {**head, "subagent_type": task.type.name})
        future: Future[SubagentResult] = Future()
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it; that is what `cancel` is for
        loop, context = self._parts.loop.loop, bare_context()
        context.run(memory_use.set, memory_use.get())

        def ended(done: asyncio.Task[SubagentResult]) -> None:
            self._running.pop(id, None)
            if done.cancelled():  # before its first step
                result = SubagentResult(id, thread, "cancelled")
                reporter.ended(result)
                future.set_result(result)
            elif (error := done.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(done.result())

        def begin() -> None:
            work = self._running[id] = loop.create_task(self._run(_Run(task, id, thread, reporter)), context=context)
            work.add_done_callback(ended)

        loop.call_soon_threadsafe(begin)
        return Running(id, thread, future, lambda: self.cancel(id))

    def cancel(self, id: str) -> None:
        """Stop one at once, also while it waits in line. One that has ended stays ended."""

        def stop() -> None:
            if (found := self._running.get(id)) is not None:
                found.cancel()

        self._parts.loop.loop.call_soon_threadsafe(stop)  # after the start that was asked for before

    def cancel_all(self) -> None:
        """Stop all that run or wait in line."""
        for id in self.running():
            self.cancel(id)

    def running(self) -> list[str]:
        """Those that run or wait in line."""
        return list(self._running)

    async def _run(self, run: _Run) -> SubagentResult:
        task, kind = run.task, run.task.type.name
        about = {"gen_ai.agent.id": run.id, "gen_ai.agent.description": task.description}
        with (
            within(thread=run.thread, run=task.run, session=task.session, subagent=run.id, agent=kind),
            span("invoke_agent", kind, "AGENT", about) as traced,
        ):
            result = await self._result(run)
            traced.set({"holdfast.status": result.status, "holdfast.turns": result.turns})
            return result

    async def _result(self, run: _Run) -> SubagentResult:
        clock = self._parts.clock
        began, reason = clock.monotonic(), ""
        status: Status
        try:
            async with self._parts.places:
                began = clock.monotonic()
                run.reporter.started(run.task.description, run.thread, run.task.max_turns)
                status, reason = await self._within_time(run)
        except asyncio.CancelledError:  # it is a result like any other; nothing above waits for the cancellation itself
            status = "cancelled"
        tokens, seconds = self._parts.accounts.settle(run.id), round(clock.monotonic() - began, 3)
        said, made = run.said or NO_RESPONSE, tuple(run.artifacts)
        result = SubagentResult(run.id, run.thread, status, said, made, run.turns, tokens, seconds, reason)
        run.reporter.ended(result)
        return result

    async def _within_time(self, run: _Run) -> tuple[Status, str]:
        limit = asyncio.timeout(run.task.type.timeout_seconds)
        try:
            async with limit:
                return await self._work(run), _BAD_CALLS if run.ended == "bad_calls" else ""
        except GraphRecursionError:
            return "turn_capped", ""
        except Exception as error:  # noqa: BLE001 - whatever went wrong in a sub-agent is a result, never an exception in the parent
            if isinstance(error, TimeoutError) and limit.expired():
                return "timed_out", ""
            said = replace_secrets(str(error)).strip()
            return "failed", f"{type(error).__name__}: {said}" if said else type(error).__name__
        finally:
            await asyncio.shield(asyncio.to_thread(self._keep, run))

    async def _work(self, run: _Run) -> Status:
        task, parts = run.task, self._parts
        graph = self._graphs.get(task.type.name)
        if graph is None:
            graph = self._graphs[task.type.name] = self._build(task.type)
        await asyncio.to_thread(parts.threads.note, run.thread, agent=task.type.name, parent=task.parent)
        asked = HumanMessage(task.prompt, id=parts.ids.new("message"))
        run.fresh.append(asked)
        config = {"configurable": {"thread_id": run.thread}, "recursion_limit": _STEPS_A_TURN * task.max_turns + 4}
        context = RunContext(session=task.session, run=task.run, subagent=run.id, files=task.files)
        steps: AsyncIterator[Any] = graph.astream({"messages": [asked]}, config, context=context, stream_mode="updates", durability="sync")
        async with aclosing(cast("Any", steps)):
            async for part in steps:
                calls = run.take(part)
                if calls is None:
                    await asyncio.to_thread(self._keep, run)
                    continue
                if calls and parts.accounts.used_by(run.id) >= task.type.max_tokens:
                    return "token_capped"
                if calls and run.turns >= task.max_turns:
                    return "turn_capped"
        return _STATUS.get(run.ended, "completed")

    def _keep(self, run: _Run) -> None:
        """What was said goes to the archive at once: it can be read while the sub-agent works, and after it died."""
        fresh, run.fresh = run.fresh, []
        if fresh:
            self._parts.archive.add(run.thread, records_of(fresh))


TURNS = 20


def task_tool(executor: Executor, registry: Registry) -> BaseTool:
    """The tool. Its result is what the sub-agent said at the end and the files it made; how it got there stays in its own thread."""

    def task(
        description: str, prompt: str, runtime: ToolRuntime[Any, Any], subagent_type: str = GENERAL, max_turns: int = TURNS
    ) -> ToolMessage:
        started = executor.start(_task(registry, description, prompt, subagent_type, max_turns, runtime), _emitter(runtime))
        try:
            return _message(started.result(), runtime)
        except BaseException:  # the parent is interrupted: nobody wants the result any more
            started.cancel()
            raise

    async def atask(
        description: str, prompt: str, runtime: ToolRuntime[Any, Any], subagent_type: str = GENERAL, max_turns: int = TURNS
    ) -> ToolMessage:
        started = executor.start(_task(registry, description, prompt, subagent_type, max_turns, runtime), _emitter(runtime))
        try:
            return _message(await asyncio.shield(asyncio.wrap_future(started.future)), runtime)
        except asyncio.CancelledError:
            started.cancel()
            raise

    types = ", ".join(registry)
    return StructuredTool.from_function(
        task,
        coroutine=atask,
        name="task",
        description=(
            "Hand a part of the work to a sub-agent. It sees nothing but the prompt. `description`: three to five words. "
            f"`subagent_type`: {types}."
        ),
    )


def _task(registry: Registry, description: str, prompt: str, type: str, turns: int, runtime: ToolRuntime[Any, Any]) -> Task:
    found, parent = registry.find(type), thread_of(runtime)
    context = runtime.context if isinstance(runtime.context, RunContext) else RunContext()
    whose = {"parent": parent, "run": context.run, "session": context.session or parent, "files": files_thread(runtime)}
    return Task(found, description, prompt, found.turns(turns, TURNS), call=runtime.tool_call_id or "", **whose)


def _emitter(runtime: ToolRuntime[Any, Any]) -> Emit:
    """The parent's stream writer, which only works inside of the parent's own context."""
    context, writer = contextvars.copy_context(), runtime.stream_writer
    return lambda event: context.run(writer, event)


def _message(result: SubagentResult, runtime: ToolRuntime[Any, Any]) -> ToolMessage:
    return ToolMessage(
        result.text(),
        tool_call_id=runtime.tool_call_id or "",
        name="task",
        status="success" if result.done or result.capped else "error",
        artifact=result.as_dict(),
    )
