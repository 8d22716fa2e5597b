"""`ask_clarification`: the agent asks the user, the turn ends with the question, and the answer goes on from there (A13)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.middleware.loop_guard import ended_by

ASK = "ask_clarification"
_ASKED = "The question was put to the user. The answer is the next message."


def ask_clarification(question: str, options: list[str] | None = None) -> str:
    """Ask the user when the task cannot be done well without knowing more. Ask one short question; `options` are answers to choose from.

    Ends your turn: call nothing else beside it.
    """
    return _ASKED


class ClarificationMiddleware(AgentMiddleware[Any, Any, Any]):
    """Ends the turn when the model has asked. The question becomes the answer of the turn, whatever else was called beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [StructuredTool.from_function(ask_clarification)]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Ask the model, unless the user was asked."""
        asked = question_in(request.messages)
        return ModelResponse(result=[ended_by("clarification", asked)]) if asked is not None else handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited."""
        asked = question_in(request.messages)
        return ModelResponse(result=[ended_by("clarification", asked)]) if asked is not None else await handler(request)


def question_in(messages: Sequence[BaseMessage]) -> str | None:
    """The question that the newest calls put to the user, with its options, or None."""
    answered = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            if message.status != "error":
                answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            asked = [call for call in message.tool_calls if call["name"] == ASK and call["id"] in answered]
            return "\n\n".join(_question(call["args"]) for call in asked) if asked else None
        else:
            return None
    return None


def _question(args: dict[str, Any]) -> str:
    options = args.get("options") or ()
    lines = [str(args.get("question") or "").strip(), *(f"{number}. {option}" for number, option in enumerate(options, 1))]
    return "\n".join(line for line in lines if line)
