"""Tool results over a limit go to a file and to the archive as soon as they arrive; head, tail and reference take their place (A11).

A result that never enters the window whole cannot blow it, and need not be cleared from it later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from holdfast.agents.message_factory import LangChainMessages
from holdfast.context.offload import clipped
from holdfast.context.records import records_of
from holdfast.context.view import marks_of, text_of
from holdfast.ids import IdSource, RandomIds
from holdfast.tokens.counter import TokenCounter, open_counter

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from holdfast.context.archive import Archive
    from holdfast.context.offload import Outputs


class ToolOutputMiddleware(AgentMiddleware[Any, Any, Any]):
    """Bounds what a tool may put into the window.

    `limit` is in tokens. Tools named in `exempt` (reading tools that page by themselves) are let be. Use the archive of the summarization
    middleware, so that `read_history` finds the whole result.
    """

    def __init__(
        self,
        archive: Archive,
        outputs: Outputs | None = None,
        *,
        limit: int = 4_000,
        keep: int = 1_000,
        exempt: tuple[str, ...] = ("read_file", "read_history"),
        counter: TokenCounter | None = None,
        ids: IdSource | None = None,
        unnamed: str = "unnamed",
    ) -> None:
        super().__init__()
        self.archive, self.outputs = archive, outputs
        self._limit, self._keep, self._exempt, self._unnamed = limit, min(keep, limit), frozenset(exempt), unnamed
        self._counter = counter or open_counter()
        self._forge, self._ids = LangChainMessages(), ids or RandomIds()

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolMessage | Command[Any]]) -> Any:
        """Run the tool and bound its result."""
        result = handler(request)
        return self._bounded(request, result) if self._is_oversize(request, result) else result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[ToolMessage | Command[Any]]]
    ) -> Any:
        """The same, awaited; files are written in a thread."""
        result = await handler(request)
        return await asyncio.to_thread(self._bounded, request, result) if self._is_oversize(request, result) else result

    def _is_oversize(self, request: ToolCallRequest, result: Any) -> bool:
        if not isinstance(result, ToolMessage) or request.tool_call["name"] in self._exempt or marks_of(result).get("archived"):
            return False
        return self._counter.count_until(text_of(result), self._limit) is None

    def _bounded(self, request: ToolCallRequest, result: Any) -> Any:
        whole = result if result.id else self._forge.with_id(result, self._ids.new("tool"))
        thread = str((getattr(request.runtime, "config", None) or {}).get("configurable", {}).get("thread_id") or self._unnamed)
        self.archive.add(thread, records_of([whole]))
        id, text = str(whole.id), text_of(whole)
        place = self.outputs.keep(thread, id, text) if self.outputs is not None else None
        short = clipped(text, self._keep, id=id, count=self._counter.count_text, place=place)
        return self._forge.with_text(whole, short, marks={"archived": "clipped"})
