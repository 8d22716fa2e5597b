"""An agent that makes the same call again and again is told so, and then stopped (A1).

What counts is the same tool with the same arguments within one turn of the user. The result of the third such call carries a warning;
after the fifth the model is not asked again, and the turn ends with a message that says why.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.types import Command

from holdfast.context.view import MARK, marks_of

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

_WARNING = "[This is call {count} of {name} with the same arguments. It will not give anything new: do something else, or answer now.]"
_STOPPED = "I stopped: {name} was called {count} times with the same arguments, and nothing new came of it."


class LoopGuardMiddleware(AgentMiddleware[Any, Any, Any]):
    """Warns at `warn` equal calls and ends the turn at `stop`. Tools named in `exempt` (polling ones) may repeat."""

    def __init__(self, *, warn: int = 3, stop: int = 5, exempt: Sequence[str] = ()) -> None:
        super().__init__()
        self._warn, self._stop, self._exempt = warn, max(stop, warn), frozenset(exempt)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Ask the model, unless it goes round in circles."""
        stopped = self._stopped(request.messages)
        return stopped if stopped is not None else handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited."""
        stopped = self._stopped(request.messages)
        return stopped if stopped is not None else await handler(request)

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]) -> Any:
        """Run the tool; a warning is added to the result of a repeated call."""
        return self._warned(request, handler(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> Any:
        """The same, awaited."""
        return self._warned(request, await handler(request))

    def _counts(self, messages: Sequence[BaseMessage]) -> Counter[tuple[str, str]]:
        calls = (call for message in since_user(messages) if isinstance(message, AIMessage) for call in message.tool_calls)
        return Counter(_signature(call) for call in calls if call["name"] not in self._exempt)

    def _stopped(self, messages: Sequence[BaseMessage]) -> ModelResponse[Any] | None:
        if not messages or not isinstance(messages[-1], ToolMessage):
            return None
        for (name, _), count in self._counts(messages).most_common(1):
            if count >= self._stop:
                return ModelResponse(result=[ended_by("loop", _STOPPED.replace("{name}", name).replace("{count}", str(count)))])
        return None

    def _warned(self, request: ToolCallRequest, result: Any) -> Any:
        call = request.tool_call
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str) or call["name"] in self._exempt:
            return result
        state: Any = request.state
        messages = state.get("messages", ()) if isinstance(state, Mapping) else ()
        count = self._counts(messages)[_signature(call)]
        if count < self._warn:
            return result
        warning = _WARNING.replace("{name}", call["name"]).replace("{count}", str(count))
        return result.model_copy(update={"content": f"{result.content}\n{warning}"})


def since_user(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages after the newest one that the user wrote; a summary is not the user's."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage) and "summary" not in marks_of(messages[index]):
            return messages[index + 1 :]
    return messages


def ended_by(reason: str, text: str) -> AIMessage:
    """An answer that was not written by the model, and why the turn ended with it."""
    return AIMessage(text, additional_kwargs={MARK: {"ended": reason}})


def _signature(call: Mapping[str, Any]) -> tuple[str, str]:
    return str(call["name"]), json.dumps(call.get("args"), sort_keys=True, default=str)
