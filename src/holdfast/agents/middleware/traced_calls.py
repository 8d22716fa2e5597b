"""The middleware that makes a span of each model call and each tool call of an agent (O2). Without somebody who traces it does nothing."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import ToolMessage

from holdfast.agents.middleware.thread_data import AroundModelCall, AroundToolCall
from holdfast.agents.model_spans import asked, told_result, tool_run
from holdfast.tracing import captures, tracing

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest


class TracingMiddleware(AroundModelCall, AroundToolCall):
    """Tells what the model was asked and which tools ran. Innermost: a span is what was really sent, and each try has its own."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, in a span."""
        if not tracing():
            return (yield request)
        system = request.system_message.text if captures() and request.system_message is not None else ""
        with asked(request.model, request.messages, system) as heard:
            response = yield request
            heard.append(response.result[-1] if response.result else None)
        return response

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool, in a span."""
        if not tracing():
            return (yield request)
        call = request.tool_call
        with tool_run(call["name"], str(call["id"]), call["args"]) as traced:
            result = yield request
            if isinstance(result, ToolMessage):
                told_result(traced, result)
        return result
