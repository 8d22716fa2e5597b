"""A tool that fails tells the model so, and the run goes on (A1).

Without this an exception in a tool ends the run with the call unanswered, and the next request of the thread is refused by the provider.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from holdfast.text.secrets import redact

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

_LONGEST = 2_000


class ToolErrorMiddleware(AgentMiddleware[Any, Any, Any]):
    """Turns any exception of a tool into a tool message with the status `error`. Put it inside of all that looks at results."""

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]) -> Any:
        """Run the tool."""
        try:
            return _storable(handler(request))
        except GraphBubbleUp:  # an interrupt is no failure
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and none of it may end the run
            return failed_result(request.tool_call, error)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> Any:
        """The same, awaited. A cancellation goes through."""
        try:
            return _storable(await handler(request))
        except GraphBubbleUp:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return failed_result(request.tool_call, error)


def failed_result(call: Mapping[str, Any], error: BaseException) -> ToolMessage:
    """What the model is told: the kind of error and its words, without secrets and not without end."""
    said = redact(str(error)).strip()
    text = f"Error: {type(error).__name__}: {said}" if said else f"Error: {type(error).__name__}"
    if len(text) > _LONGEST:
        text = f"{text[:_LONGEST]} ..."
    return ToolMessage(text, tool_call_id=str(call.get("id") or ""), name=call.get("name"), status="error")


def _storable(result: Any) -> Any:
    """The result without an artifact that a checkpoint has no form for: it would end the run when the step is saved."""
    if isinstance(result, ToolMessage) and result.artifact is not None and not _is_plain(result.artifact):
        return result.model_copy(update={"artifact": None})
    return result


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool | bytes)
