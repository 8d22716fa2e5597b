"""Makes the events of a turn from what LangGraph streams. Nothing is told twice: an answer that came in tokens is not repeated whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from holdfast.agents.middleware.approval import Approval
from holdfast.agents.turn_events import ApprovalNeeded, Subagent, Token, ToolCalled, ToolFinished, TurnEvent
from holdfast.context.view import marks_of


@dataclass
class TurnReader:
    """Reads the stream of one turn, in the modes `messages`, `updates` and `custom`."""

    said: str = ""
    """What the model has said since its last tool call."""
    partial: str = ""
    """The part of an answer that is not in the state yet."""
    ended: str | None = None
    approvals: list[Approval] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)
    _heard: set[str] = field(default_factory=set)

    def read(self, mode: str, part: Any) -> Iterator[TurnEvent]:
        """The events in one piece of the stream."""
        if mode == "messages":
            yield from self._piece(*part)
        elif mode == "updates":
            yield from self._updates(part)
        elif isinstance(part, Mapping) and str(part.get("type", "")).startswith("task_"):
            yield Subagent(part)

    def _piece(self, message: BaseMessage, about: Mapping[str, Any]) -> Iterator[TurnEvent]:
        if about.get("langgraph_node") != "model" or not isinstance(message, AIMessage):
            return
        whole = not isinstance(message, AIMessageChunk)
        id = str(message.id)
        if whole and id in self._heard:
            return
        self._heard.add(id)
        if text := message.text:
            self.partial += text
            yield Token(text)

    def _updates(self, part: Mapping[str, Any]) -> Iterator[TurnEvent]:
        for node, update in part.items():
            if node == "__interrupt__":
                self.approvals = [one for found in update if (one := Approval.read(found.id, found.value)) is not None]
                yield ApprovalNeeded(tuple(self.approvals))
                continue
            for values in update if isinstance(update, list) else [update]:
                if not isinstance(values, Mapping):
                    continue
                self.artifacts += [path for path in values.get("artifacts") or () if path not in self.artifacts]
                messages = values.get("messages")
                for message in messages if isinstance(messages, list) else ():
                    yield from self._message(node, message)

    def _message(self, node: str, message: Any) -> Iterator[TurnEvent]:
        if node == "model" and isinstance(message, AIMessage):
            self.partial = ""
            self.said = message.text
            self.ended = marks_of(message).get("ended")
            for call in message.tool_calls:
                yield ToolCalled(str(call["id"]), call["name"], call["args"])
        elif node == "tools" and isinstance(message, ToolMessage):
            yield ToolFinished(message.tool_call_id, str(message.name or ""), message.status, message.text)
