"""Runs sub-agents: each in a thread and an empty context of its own, a few at once, with caps that keep the work done so far (A2-A7).

All of them run on one asyncio loop. A sub-agent that waits for its place, runs, times out, is cancelled, fails or uses up its turns or
tokens ends in the same way: with a `SubagentResult`. `task_tool` makes the tool by which an agent hands work over.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphRecursionError

from holdfast.agents.middleware.thread_data import RunContext, files_thread, merge_artifacts, thread_of
from holdfast.agents.subagents.task_types import GENERAL, NO_RESPONSE, Emit, Registry, Status, SubagentResult, TaskReporter
from holdfast.agents.threads import SUBAGENT
from holdfast.clock import Clock, SystemClock
from holdfast.context.records import records_of
from holdfast.context.view import marks_of
from holdfast.events import Bus, within
from holdfast.ids import IdSource, RandomIds
from holdfast.secret_forms import replace_secrets
from holdfast.tracing import bare_context, span

if TYPE_CHECKING:
    from holdfast.agents.middleware.accounting import RunAccounts
    from holdfast.agents.subagents.task_types import SubagentType
    from holdfast.agents.threads import Threads
    from holdfast.agents.turn import LoopThread
    from holdfast.context.archive import Archive


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
class _Progress:
    """What a sub-agent has done so far; this is what a cap keeps."""

    said: str = ""
    turns: int = 0
    artifacts: list[str] = field(default_factory=list)
    fresh: list[BaseMessage] = field(default_factory=list)
    """Messages that are not in the archive yet."""
    ended: str | None = None


class Executor:
    """Starts sub-agents, at most `max_concurrent` at once; more wait in line, in the order in which they came."""

    def __init__(
        self,
        build: Callable[[SubagentType], Any],
        loop: LoopThread,
        *,
        max_concurrent: int = 3,
        places: asyncio.Semaphore | None = None,
        accounts: RunAccounts | None = None,
        archive: Archive | None = None,
        threads: Threads | None = None,
        bus: Bus | None = None,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        self._build, self._loop = build, loop
        self._places = places or asyncio.Semaphore(max_concurrent)
        self._accounts, self._archive, self._threads = accounts, archive, threads
        self._bus, self._clock, self._ids = bus or Bus(), clock or SystemClock(), ids or RandomIds()
        self._graphs: dict[str, Any] = {}
        self._running: dict[str, asyncio.Task[SubagentResult]] = {}  # changed on the loop only

    def start(self, task: Task, emit: Emit | None = None) -> Running:
        """Start one, or put it in line. `emit` is called with its events, from the loop's thread."""
        id = self._ids.new()
        thread = f"{SUBAGENT}{id}"
        head = {"task_id": id, "thread": thread, "parent": task.parent, "call": task.call, "description": task.description}
        reporter = TaskReporter(self._bus, emit, {**head, "subagent_type": task.type.name})
        future: Future[SubagentResult] = Future()
        future.set_running_or_notify_cancel()  # from here on nobody can cancel it; that is what `cancel` is for
        loop, context = self._loop.loop, bare_context()

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
            work = loop.create_task(self._run(task, id, thread, reporter), context=context)
            self._running[id] = work
            work.add_done_callback(ended)

        loop.call_soon_threadsafe(begin)
        return Running(id, thread, future, lambda: self.cancel(id))

    def cancel(self, id: str) -> None:
        """Stop one at once, also while it waits in line. One that has ended stays ended."""
        self._loop.loop.call_soon_threadsafe(self._stop, id)  # after the start that was asked for before

    def _stop(self, id: str) -> None:
        if (found := self._running.get(id)) is not None:
            found.cancel()

    def cancel_all(self) -> None:
        """Stop all that run or wait in line."""
        for id in self.running():
            self.cancel(id)

    def running(self) -> list[str]:
        """Those that run or wait in line."""
        return list(self._running)

    async def _run(self, task: Task, id: str, thread: str, reporter: TaskReporter) -> SubagentResult:
        about = {"gen_ai.agent.id": id, "gen_ai.agent.description": task.description}
        with (
            within(thread=thread, run=task.run, session=task.session, subagent=id, agent=task.type.name),
            span("invoke_agent", task.type.name, "AGENT", about) as traced,
        ):
            result = await self._result(task, id, thread, reporter)
            traced.set({"holdfast.status": result.status, "holdfast.turns": result.turns})
            return result

    async def _result(self, task: Task, id: str, thread: str, reporter: TaskReporter) -> SubagentResult:
        progress, began = _Progress(), self._clock.monotonic()
        status: Status
        reason = ""
        try:
            async with self._places:
                began = self._clock.monotonic()
                reporter.started(task.description, thread, task.max_turns)
                status, reason = await self._within_time(task, id, thread, progress, reporter)
        except asyncio.CancelledError:  # it is a result like any other; nothing above waits for the cancellation itself
            status = "cancelled"
        tokens = self._accounts.settle(id) if self._accounts is not None else 0
        result = SubagentResult(
            id,
            thread,
            status,
            progress.said or NO_RESPONSE,
            tuple(progress.artifacts),
            progress.turns,
            tokens,
            round(self._clock.monotonic() - began, 3),
            reason,
        )
        reporter.ended(result)
        return result

    async def _within_time(self, task: Task, id: str, thread: str, progress: _Progress, reporter: TaskReporter) -> tuple[Status, str]:
        limit = asyncio.timeout(task.type.timeout_seconds)
        try:
            async with limit:
                return await self._work(task, id, thread, progress, reporter), ""
        except GraphRecursionError:
            return "turn_capped", ""
        except Exception as error:  # noqa: BLE001 - whatever went wrong in a sub-agent is a result, never an exception in the parent
            if isinstance(error, TimeoutError) and limit.expired():
                return "timed_out", ""
            said = replace_secrets(str(error)).strip()
            return "failed", f"{type(error).__name__}: {said}" if said else type(error).__name__
        finally:
            await asyncio.shield(asyncio.to_thread(self._keep, thread, progress))

    async def _work(self, task: Task, id: str, thread: str, progress: _Progress, reporter: TaskReporter) -> Status:
        graph = self._graph(task.type)
        if self._threads is not None:
            await asyncio.to_thread(self._threads.note, thread, agent=task.type.name, parent=task.parent)
        asked = HumanMessage(task.prompt, id=self._ids.new("message"))
        progress.fresh.append(asked)
        config = {"configurable": {"thread_id": thread}, "recursion_limit": _STEPS_A_TURN * task.max_turns + 4}
        context = RunContext(session=task.session, run=task.run, subagent=id, files=task.files)
        steps: AsyncIterator[Any] = graph.astream({"messages": [asked]}, config, context=context, stream_mode="updates", durability="sync")
        async with aclosing(cast("Any", steps)):
            async for part in steps:
                calls = self._take(part, task, progress, reporter)
                if calls is None:
                    await asyncio.to_thread(self._keep, thread, progress)
                    continue
                if calls and self._accounts is not None and self._accounts.used_by(id) >= task.type.max_tokens:
                    return "token_capped"
                if calls and progress.turns >= task.max_turns:
                    return "turn_capped"
        return "turn_capped" if progress.ended == "loop" else "completed"

    def _take(self, part: Mapping[str, Any], task: Task, progress: _Progress, reporter: TaskReporter) -> bool | None:
        """Note what a step brought. For a step of the model: whether it calls tools, so that there is more to come."""
        calls: bool | None = None
        for node, update in part.items():
            for values in update if isinstance(update, list) else [update]:
                if not isinstance(values, Mapping):
                    continue
                progress.artifacts = merge_artifacts(progress.artifacts, values.get("artifacts"))
                messages = values.get("messages")
                new = [message for message in messages if isinstance(message, BaseMessage)] if isinstance(messages, list) else []
                progress.fresh += new
                answer = next((message for message in new if isinstance(message, AIMessage)), None) if node == "model" else None
                if answer is not None:
                    calls = self._turn(answer, task, progress, reporter)
        return calls

    @staticmethod
    def _turn(answer: AIMessage, task: Task, progress: _Progress, reporter: TaskReporter) -> bool:
        progress.ended = marks_of(answer).get("ended")
        if progress.ended is None:
            progress.turns += 1
        text = answer.text.strip()
        if text and (progress.ended is None or not progress.said):
            progress.said = text
        if progress.ended is None:
            reporter.turn(progress.turns, task.max_turns, text, [call["name"] for call in answer.tool_calls])
        return bool(answer.tool_calls)

    def _graph(self, type: SubagentType) -> Any:
        graph = self._graphs.get(type.name)
        if graph is None:
            graph = self._graphs[type.name] = self._build(type)
        return graph

    def _keep(self, thread: str, progress: _Progress) -> None:
        """What was said goes to the archive at once: it can be read while the sub-agent works, and after it died."""
        fresh, progress.fresh = progress.fresh, []
        if fresh and self._archive is not None:
            self._archive.add(thread, records_of(fresh))


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
    found = registry.find(type)
    context = runtime.context if isinstance(runtime.context, RunContext) else RunContext()
    parent = thread_of(runtime)
    return Task(
        found,
        description,
        prompt,
        found.turns(turns, TURNS),
        parent=parent,
        run=context.run,
        session=context.session or parent,
        files=files_thread(runtime),
        call=runtime.tool_call_id or "",
    )


def _emitter(runtime: ToolRuntime[Any, Any]) -> Emit:
    """The parent's stream writer, which only works inside of the parent's own context."""
    context, writer = contextvars.copy_context(), runtime.stream_writer

    def emit(event: dict[str, Any]) -> None:
        context.run(writer, event)

    return emit


def _message(result: SubagentResult, runtime: ToolRuntime[Any, Any]) -> ToolMessage:
    return ToolMessage(
        result.text(),
        tool_call_id=runtime.tool_call_id or "",
        name="task",
        status="success" if result.done or result.capped else "error",
        artifact=result.as_dict(),
    )
