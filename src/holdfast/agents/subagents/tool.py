"""The tool by which an agent hands work to a sub-agent: `task(description, prompt, subagent_type, max_turns)` (A2)."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.middleware.thread_data import RunContext, files_thread
from holdfast.agents.subagents.events import Emit
from holdfast.agents.subagents.executor import Executor, Task
from holdfast.agents.subagents.registry import GENERAL, Registry
from holdfast.agents.subagents.results import SubagentResult

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
            "Hand a part of the work to a sub-agent with a window of its own, and get back what it found. It sees nothing of this "
            "conversation, so the prompt must say everything: what to do, what is known, what to give back. Call it several times in "
            f"one message for parts that can run at once. `description`: three to five words. `subagent_type`: {types}."
        ),
    )


def _task(registry: Registry, description: str, prompt: str, type: str, turns: int, runtime: ToolRuntime[Any, Any]) -> Task:
    found = registry.find(type)
    context = runtime.context if isinstance(runtime.context, RunContext) else RunContext()
    thread = ((runtime.config or {}).get("configurable") or {}).get("thread_id")
    parent = str(thread) if thread else None
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
