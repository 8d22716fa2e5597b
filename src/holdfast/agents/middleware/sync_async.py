"""Write a middleware once for sync and async: the work is a generator that yields what it wants done, and one of two loops does it.

`AroundModelCall` and `AroundToolCall` are the usual case: a generator that yields the request to pass on and gets the answer back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

T = TypeVar("T")


def drive(work: Generator[Any, Any, T], do: Callable[[Any], Any]) -> T:
    """Run the generator to its end. What `do` raises is thrown into it, so that its `except` and `finally` hold here too."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            want = step(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the generator's declared result
        try:
            step, value = work.send, do(want)
        except BaseException as error:  # noqa: BLE001 - cancellation goes through the generator as well, and comes out of it again
            step, value = work.throw, error


async def adrive(work: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]]) -> T:
    """As `drive`, awaiting what is wanted."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            want = step(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the generator's declared result
        try:
            step, value = work.send, await do(want)
        except BaseException as error:  # noqa: BLE001 - as above
            step, value = work.throw, error


class AroundModelCall(AgentMiddleware[Any, Any, Any]):
    """A middleware around each model call, by one generator: `response = yield request`."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Yield the request to ask the model with, once or not at all, and return the response."""
        raise NotImplementedError

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return drive(self.around_model(request), handler)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> Any:
        return await adrive(self.around_model(request), handler)


class AroundToolCall(AgentMiddleware[Any, Any, Any]):
    """A middleware around each tool call, by one generator: `result = yield request`."""

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Yield the request to run the tool with, once or not at all, and return the result."""
        raise NotImplementedError

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return drive(self.around_tool(request), handler)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        return await adrive(self.around_tool(request), handler)
