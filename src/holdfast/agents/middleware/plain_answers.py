"""A model that is too weak to work with tools is not offered any: it answers from its prompt, in which the memory of the user is (A15)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ModelResponse


class PlainAnswersMiddleware(AgentMiddleware[Any, Any, Any]):
    """Takes the tools out of every request."""

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Ask the model, without tools."""
        return handler(request.override(tools=[]))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited."""
        return await handler(request.override(tools=[]))
