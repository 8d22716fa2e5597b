"""Memory of the user for any LangChain `create_agent`: it is in the prompt, and what is said is learned from (M8, M12, S18, S19).

The system part with `<memory>` and the date is rendered at the first call of a thread and again only after a compaction. What was learned
since, what the question is about, and a new date ride on the newest user message as a reminder and stay there, so between two compactions
the prefix of the request does not change by a byte.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langgraph.types import Command

from holdfast.agents.memory_tools import memory_tools
from holdfast.clock import Clock, SystemClock, stamp
from holdfast.context.view import MARK, marks_of
from holdfast.events import UpdateQueued
from holdfast.ids import IdSource, RandomIds
from holdfast.memory.filtering import turns_of

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from holdfast.memory.service import MemoryService

_REMINDER_TOKENS = 300


class MemoryState(AgentState[Any]):
    """What the thread's checkpoint remembers of the memory that is in its prompt."""

    holdfast_memory: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class _Shown(NamedTuple):
    """The frozen part: the text in the system prompt, the facts that the thread has seen, and since when."""

    epoch: int
    text: str
    date: str
    since: str
    facts: tuple[str, ...]

    @classmethod
    def read(cls, record: object) -> _Shown | None:
        if not isinstance(record, Mapping) or not isinstance(record.get("text"), str):
            return None
        known = record.get("facts")
        facts = tuple(str(id) for id in known) if isinstance(known, list | tuple) else ()
        return cls(int(record.get("epoch", 0)), record["text"], str(record.get("date", "")), str(record.get("since", "")), facts)

    def written(self) -> dict[str, Any]:
        return {**self._asdict(), "facts": list(self.facts)}


class MemoryMiddleware(AgentMiddleware[Any, Any, Any]):
    """Puts what is known about the user into the prompt, and queues what is said to be learned from.

    Put it before `SummarizationMiddleware` in the list. Without a service, memory is kept below the base directory that the command line
    would use here. `learn=False` only injects (for sub-agents). In the mode `tool` the agent has memory tools and nothing is queued.
    """

    state_schema = MemoryState

    def __init__(
        self,
        service: MemoryService | None = None,
        *,
        agent: str | None = None,
        learn: bool = True,
        date: bool = True,
        clock: Clock | None = None,
        ids: IdSource | None = None,
    ) -> None:
        super().__init__()
        self.service = service or _default_service()
        self.agent, self._learn, self._date = agent, learn, date
        self._clock = clock or SystemClock()
        self._unnamed = (ids or RandomIds()).new("thread")
        tool_mode = self.service.settings.enabled and self.service.settings.mode == "tool"
        self.tools: Sequence[BaseTool] = memory_tools(self.service, agent) if tool_mode else []

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Inject, call the model, and after the final answer queue the turn."""
        sending, update = self._injected(request)
        response = handler(sending)
        self._queue(request, response)
        return _with(response, update)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited; files are read and written in a thread."""
        sending, update = await asyncio.to_thread(self._injected, request)
        response = await handler(sending)
        await asyncio.to_thread(self._queue, request, response)
        return _with(response, update)

    def leaving(self, thread: str, messages: Sequence[Any]) -> None:
        """A hook for `SummarizationMiddleware(on_leave=[memory.leaving])`: what leaves the window is queued before it goes (S18)."""
        self._enqueue(thread, messages)

    # what goes into the prompt

    def _injected(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any]]:
        state: Mapping[str, Any] = request.state  # with the keys of the other middlewares
        epoch = int((state.get("holdfast_window") or {}).get("epoch", 0))
        known = _Shown.read(state.get("holdfast_memory"))
        shown = known if known is not None and known.epoch == epoch else self._rendered(epoch)
        update: dict[str, Any] = {}
        messages: list[Any] = request.messages
        reminded, shown_now = self._reminded(messages, shown)
        if reminded is not None:
            messages = [*messages[:-1], reminded]
            update["messages"] = [reminded]
        if shown_now != known:
            update["holdfast_memory"] = shown_now.written()
        changed = messages is not request.messages
        system = _joined(request.system_message, shown.text)
        if system is request.system_message and not changed:
            return request, update
        return request.override(system_message=system, messages=messages), update

    def _rendered(self, epoch: int) -> _Shown:
        rendering = self.service.rendering_for(self.agent)
        today = self._today()
        parts = [rendering.text, f"Today is {today}." if today else ""]
        return _Shown(epoch, "\n\n".join(part for part in parts if part), today, stamp(self._clock.now()), rendering.facts)

    def _today(self) -> str:
        return self._clock.now().strftime("%A, %Y-%m-%d") if self._date else ""

    def _reminded(self, messages: Sequence[BaseMessage], shown: _Shown) -> tuple[BaseMessage | None, _Shown]:
        """The newest user message with a reminder before its text, if there is something to say, and what is shown by then."""
        newest = messages[-1] if messages else None
        if not isinstance(newest, HumanMessage) or not newest.id or marks_of(newest):
            return None, shown
        question = newest.text
        new = self.service.learned_since(shown.since, self.agent, shown=shown.facts, budget=_REMINDER_TOKENS)
        fitting = self.service.reminder_for(self.agent, question, shown=(*shown.facts, *new.facts), budget=_REMINDER_TOKENS)
        today = self._today()
        lines = [f"Today is {today}." if today != shown.date else "", new.text.strip(), fitting.text.strip()]
        said = "\n".join(line for line in lines if line)
        if not said:
            return None, shown
        now = shown._replace(date=today, since=stamp(self._clock.now()), facts=(*shown.facts, *new.facts, *fitting.facts))
        text: list[Any] = [{"type": "text", "text": f"<reminder>\n{said}\n</reminder>"}]
        content = newest.content
        text += [{"type": "text", "text": content}] if isinstance(content, str) else content
        extras = {**newest.additional_kwargs, MARK: {"reminded": True}}
        return newest.model_copy(update={"content": text, "additional_kwargs": extras}), now

    # what is learned from

    def _queue(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        final = next((message for message in response.result if isinstance(message, AIMessage)), None)
        if final is None or final.tool_calls or final.invalid_tool_calls:
            return
        start = 0
        for index, message in enumerate(request.messages):
            if isinstance(message, AIMessage) and not message.tool_calls:
                start = index + 1
        self._enqueue(self._thread(request), [*request.messages[start:], final])

    def _enqueue(self, thread: str, messages: Sequence[Any]) -> None:
        if not self._learn:
            return
        turns = turns_of(messages, time=stamp(self._clock.now()))
        if any(turn.kind == "user" for turn in turns) and self.service.enqueue(thread, turns, self.agent) is not None:
            self.service.store.bus.emit(UpdateQueued(thread=thread, messages=len(turns)))

    def _thread(self, request: ModelRequest[Any]) -> str:
        info = getattr(request.runtime, "execution_info", None)
        return str(getattr(info, "thread_id", None) or self._unnamed)


def _joined(system: SystemMessage | None, block: str) -> SystemMessage | None:
    """The system message with a block after it."""
    if not block:
        return system
    if system is None:
        return SystemMessage(block)
    content = system.content
    joined: Any = f"{content}\n\n{block}" if isinstance(content, str) else [*content, {"type": "text", "text": block}]
    return system.model_copy(update={"content": joined})


def _with(response: ModelResponse[Any], update: dict[str, Any]) -> Any:
    """The response, with a state update if there is one."""
    return ExtendedModelResponse(response, Command(update=update)) if update else response


def _default_service() -> MemoryService:
    from holdfast.agents.memory_service import open_memory
    from holdfast.config.loading import load_config

    return open_memory(load_config())
