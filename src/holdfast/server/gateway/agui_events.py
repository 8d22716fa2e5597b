"""A turn in the words of AG-UI, the protocol between agents and front ends such as CopilotKit (O3, A6, A13).

    async for frame in agui_events(...): ...       # server-sent events, made by the protocol's own encoder

The thread is ours and keeps everything: of the messages that a front end sends, those after its newest answer are new, and all of them
only where nobody knows the thread yet. Tools of the front end are offered to the model beside the agent's own; a call of one ends the run,
and the next run brings its result. Calls that wait for a person end the run as interrupts, and `resume` answers them.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ag_ui import core as ag
from ag_ui.encoder import EventEncoder

from holdfast.errors import HoldfastError, InputError
from holdfast.events import Compacted, Event, MemoryPersisted
from holdfast.server.wire import kind_name, model_failure
from holdfast.talk import Approval, ApprovalNeeded, Decision, Ended, ModelReplaced, Subagent, Token, ToolCalled, ToolFinished, TurnEvent
from holdfast.text.normalise import call_lines, framed

if TYPE_CHECKING:
    from holdfast.clock import IdSource
    from holdfast.events import Bus
    from holdfast.harness import Harness
    from holdfast.talk import Talk

_ANSWER = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}, "args": {"type": "object"}},
    "required": ["approved"],
}
"""What an approval is answered with: `args`, where given, are run in place of the model's."""
_SHOWN: dict[type[Event], str] = {Compacted: "compaction", MemoryPersisted: "memory"}
_END: Any = object()


def begin_turn(talk: Talk, asked: Any, known: bool, ids: IdSource) -> AsyncIterator[TurnEvent]:
    """The turn that a request asks for. InputError where it brings nothing new."""
    if asked.resume:
        return talk.adecide({one.interrupt_id: _decision(one) for one in asked.resume})
    fresh = list(asked.messages)
    if known:
        newest = max((at for at, message in enumerate(fresh) if message.role == "assistant"), default=-1)
        fresh = fresh[newest + 1 :]
    said = [one for one in fresh if one.role in ("user", "assistant", "tool")]
    if not said or said[-1].role == "assistant":
        raise InputError("there is no new message.", hint="Send a message of the user, or the result of a tool, after the newest answer.")
    if not hasattr(talk, "acontinue"):  # no model: there is nobody to call a tool
        return talk.asend("\n\n".join(_text(one.content) for one in said if one.role == "user"))
    from holdfast.server.gateway.client_request import ClientRequest, current, langchain_message  # LangChain

    system = [_text(one.content) for one in asked.messages if one.role in ("system", "developer")]
    system += [framed("context", one.value, about=one.description) for one in asked.context or ()]
    tools = [
        {"type": "function", "function": {"name": one.name, "description": one.description, "parameters": one.parameters or {}}}
        for one in asked.tools or ()
    ]
    request = ClientRequest("", [], system="\n\n".join(system), tools=tools, whole_calls=True)
    messages: Any = [langchain_message(_openai(one), ids.new("message")) for one in said]
    events: AsyncIterator[TurnEvent] = talk.acontinue(messages, begin=partial(current.set, request))
    return events


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part.text for part in content or () if part.type == "text")


def _openai(message: Any) -> dict[str, Any]:
    """A message of AG-UI in the form of OpenAI's chat API."""
    if message.role == "tool":
        failed = f"Error: {message.error}" if message.error else ""
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": _text(message.content) or failed}
    if message.role == "assistant":
        calls = [
            {"id": one.id, "function": {"name": one.function.name, "arguments": one.function.arguments}} for one in message.tool_calls or ()
        ]
        return {"role": "assistant", "content": message.content or "", "tool_calls": calls}
    if isinstance(message.content, str):
        return {"role": "user", "content": message.content}
    return {"role": "user", "content": [_part(one) for one in message.content]}


def _part(part: Any) -> dict[str, Any]:
    if part.type == "text":
        return {"type": "text", "text": part.text}
    source = getattr(part, "source", None)
    if part.type == "image" and source is not None:
        address = source.value if source.type == "url" else f"data:{source.mime_type};base64,{source.value}"
        return {"type": "image_url", "image_url": {"url": address}}
    raise InputError(f"a part of the kind {part.type!r} cannot be passed on.", hint="Send text or images.")


def _decision(entry: Any) -> Decision:
    """What a person said. Anything that is not clearly a yes is a no."""
    payload = entry.payload if entry.status == "resolved" and isinstance(entry.payload, dict) else {}
    if payload.get("approved") is True:
        args = payload.get("args")
        return Decision("edit", args=args) if isinstance(args, dict) else Decision("approve")
    return Decision("reject", str(payload.get("reason") or ""))


# What happens


async def agui_events(
    asked: Any, begin: Callable[[], AsyncIterator[TurnEvent]], harness: Harness, thread: str, accept: str | None = None
) -> AsyncIterator[str]:
    """The frames of one run. Whoever stops listening stops the turn; what was said is kept."""
    encoder, told = EventEncoder(accept=accept or ""), _Told(asked)
    yield encoder.encode(ag.RunStartedEvent(thread_id=asked.thread_id, run_id=asked.run_id, protocol_version=ag.PROTOCOL_VERSION))
    try:
        async with aclosing(_with_activity(begin(), harness.bus, thread)) as events:
            async for event in events:
                for one in told.activity(event) if isinstance(event, Event) else told.turn(event):
                    yield encoder.encode(one)
    except HoldfastError as error:
        yield encoder.encode(ag.RunErrorEvent(message=error.public, code=kind_name(error)))
    except Exception as error:  # a model or a tool of the user's own may raise anything; the run tells it, the log has it
        if (failed := model_failure(error, harness.config.models)) is not None:
            yield encoder.encode(ag.RunErrorEvent(message=failed.public, code=kind_name(failed)))
            return
        logging.getLogger("holdfast.server").exception("an AG-UI run failed")
        yield encoder.encode(ag.RunErrorEvent(message=f"{type(error).__name__}: the server's log has it.", code="server-error"))


async def _with_activity(turn: AsyncIterator[TurnEvent], bus: Bus, thread: str) -> AsyncGenerator[TurnEvent | Event]:
    """The events of a turn, and those of the window and of memory that belong to it, in the order in which they come."""
    loop, queue = asyncio.get_running_loop(), asyncio.Queue[Any]()

    def heard(event: Event) -> None:
        if type(event) in _SHOWN and event.scope.thread == thread:
            with suppress(RuntimeError):  # the server is gone
                loop.call_soon_threadsafe(queue.put_nowait, event)

    async def pump() -> None:
        try:
            async for event in turn:
                queue.put_nowait(event)
        except Exception as error:  # noqa: BLE001 - raised again by the reader
            queue.put_nowait(error)
        finally:
            queue.put_nowait(_END)

    unsubscribe = bus.subscribe(_Listener(heard))
    pumping = asyncio.create_task(pump())
    try:
        while (event := await queue.get()) is not _END:
            if isinstance(event, Exception):
                raise event
            yield event
    finally:
        unsubscribe()
        pumping.cancel()
        await asyncio.wait([pumping])


@dataclass
class _Listener:
    """A sink that has nothing worked out for it."""

    heard: Callable[[Event], None]

    def wants(self, kind: type[Event]) -> bool:
        return kind in _SHOWN

    def __call__(self, event: Event) -> None:
        self.heard(event)


class _Told:
    """Makes AG-UI's events of ours. Messages and calls have numbers of their own below the run's id."""

    def __init__(self, asked: Any) -> None:
        self._thread, self._run = asked.thread_id, asked.run_id
        self._theirs = frozenset(tool.name for tool in asked.tools or ())
        self._message: str | None = None
        self._number = 0
        self._held: list[ToolCalled] = []
        """Calls of the front end's tools: they count when the turn ends with them, and are dropped where it goes on without."""
        self._waiting: Sequence[Approval] = ()

    def turn(self, event: TurnEvent) -> list[Any]:
        """What to tell of an event of the turn."""
        if isinstance(event, Token):
            return [*self._begun(), ag.TextMessageContentEvent(message_id=self._message or "", delta=event.text)] if event.text else []
        if isinstance(event, ToolCalled) and event.name in self._theirs:
            self._held.append(event)
            return self._closed()
        if isinstance(event, ToolCalled):
            return [*self._closed(), *self._call(event)]
        if isinstance(event, ModelReplaced):  # the answer begins anew, in a message of its own
            return self._closed()
        if isinstance(event, ToolFinished):
            self._held.clear()
            return [*self._closed(), ag.ToolCallResultEvent(message_id=self._new(), tool_call_id=event.id, content=event.text, role="tool")]
        if isinstance(event, Subagent):
            return self._subagent(event)
        if isinstance(event, ApprovalNeeded):
            self._waiting = event.approvals
            return self._closed()
        return self._ended(event)

    def activity(self, event: Event) -> list[Any]:
        """A compaction, or what was learned."""
        content = {name: value for name, value in asdict(event).items() if name != "path"}
        return [ag.ActivitySnapshotEvent(message_id=self._new(), activity_type=f"holdfast.{_SHOWN[type(event)]}", content=content)]

    def _new(self) -> str:
        self._number += 1
        return f"{self._run}-{self._number}"

    def _begun(self) -> list[Any]:
        if self._message is not None:
            return []
        self._message = self._new()
        return [ag.TextMessageStartEvent(message_id=self._message, role="assistant")]

    def _closed(self) -> list[Any]:
        if self._message is None:
            return []
        ended, self._message = self._message, None
        return [ag.TextMessageEndEvent(message_id=ended)]

    def _call(self, call: ToolCalled) -> list[Any]:
        args = json.dumps(dict(call.args), ensure_ascii=False, default=str)
        return [
            ag.ToolCallStartEvent(tool_call_id=call.id, tool_call_name=call.name),
            ag.ToolCallArgsEvent(tool_call_id=call.id, delta=args),
            ag.ToolCallEndEvent(tool_call_id=call.id),
        ]

    def _subagent(self, event: Subagent) -> list[Any]:
        told = event.event
        kind, id = str(told.get("type", "")), str(told.get("task_id", ""))
        if kind == "task_started":
            name, does, call = str(told.get("subagent_type", "")), str(told.get("description", "")), str(told.get("call") or "")
            return [ag.SubagentStartedEvent(subagent_run_id=id, name=name, description=does, parent_tool_call_id=call)]
        if kind == "task_running":
            content = {name: told.get(name) for name in ("turn", "max_turns", "tools")}
            told_as: dict[str, Any] = {"message_id": self._new(), "activity_type": "holdfast.subagent", "subagent_run_id": id}
            return [ag.ActivitySnapshotEvent(content=content, **told_as)]
        if kind == "task_completed":
            return [ag.SubagentFinishedEvent(subagent_run_id=id, result=told.get("result"))]
        return [ag.SubagentErrorEvent(subagent_run_id=id, message=kind.removeprefix("task_").replace("_", " "), code=kind)]

    def _ended(self, event: Ended) -> list[Any]:
        found = []
        ours = event.reason in ("clarification", "loop", "bad_calls")  # a question, or why it was stopped
        if ours and event.text and self._message is None:
            found += [*self._begun(), ag.TextMessageContentEvent(message_id=self._message or "", delta=event.text)]
        found += self._closed()
        for call in self._held:
            found += self._call(call)
        outcome: Any
        if self._waiting:
            outcome = ag.RunFinishedInterruptOutcome(interrupts=[_interrupt(one) for one in self._waiting])
        elif event.reason == "cancelled":
            outcome = ag.RunFinishedCancelledOutcome()
        else:
            outcome = ag.RunFinishedSuccessOutcome(pending_tool_call_ids=[call.id for call in self._held] or None)
        result = {"reason": event.reason, "tokens": event.tokens, "artifacts": list(event.artifacts)}
        return [*found, ag.RunFinishedEvent(thread_id=self._thread, run_id=self._run, outcome=outcome, result=result)]


def _interrupt(waiting: Approval) -> Any:
    words = "\n".join(call_lines(waiting.tool, waiting.args))
    about = {"tool": waiting.tool, "args": json.loads(json.dumps(dict(waiting.args), default=str))}
    return ag.Interrupt(id=waiting.id, reason="approval", message=words, tool_call_id=waiting.call, response_schema=_ANSWER, metadata=about)
