"""A LangGraph agent that serves each request as it asks: another agent, another model, with thinking, without sub-agents (M3, A1).

    graph.invoke(given, {"configurable": {"thread_id": "t", "agent_name": "coder", "model_name": "small"}})

All graphs that are made for requests keep the same state in the same checkpoints, so a thread can go from one to the next, and whatever
only looks at or changes the state does not need to know which of them it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from langchain_core.runnables.config import RunnableConfig, ensure_config, merge_configs
from langgraph.graph.state import CompiledStateGraph

from holdfast.agents.middleware.thread_data import RequestSettings

Choose = Callable[[RequestSettings], "CompiledStateGraph[Any, Any, Any, Any] | None"]
"""Gives the graph for a request; None for the one that was asked."""


class RequestGraph(CompiledStateGraph[Any, Any, Any, Any]):
    """A graph as `create_agent` makes it, which hands a request over where another one serves it."""

    def __init__(self, *, choose: Choose, **parts: Any) -> None:
        super().__init__(**parts)
        self.choose = choose

    @classmethod
    def of(cls, graph: CompiledStateGraph[Any, Any, Any, Any], choose: Choose) -> RequestGraph:
        """The same graph, with a choice."""
        return cls(choose=choose, **{name: part for name, part in vars(graph).items() if name != "__orig_class__"})

    def stream(self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **settings: Any) -> Iterator[Any]:
        """As LangGraph's. Raises InputError or ModelNotConfigured before anything happens when the request names what there is not."""
        request, config = self._request(config, context)
        other = self.choose(request) if request != RequestSettings() else None
        chosen: Any = other if other is not None else super()
        yield from chosen.stream(input, config, context=context, **settings)

    async def astream(
        self, input: Any, config: RunnableConfig | None = None, *, context: Any = None, **settings: Any
    ) -> AsyncIterator[Any]:
        """As `stream`. What has to be read or made for the request is done in a thread."""
        request, config = self._request(config, context)
        other = await asyncio.to_thread(self.choose, request) if request != RequestSettings() else None
        chosen: Any = other if other is not None else super()
        async for part in chosen.astream(input, config, context=context, **settings):
            yield part

    def _request(self, config: RunnableConfig | None, context: Any) -> tuple[RequestSettings, RunnableConfig]:
        merged = merge_configs(self.config, config)
        return RequestSettings.read(ensure_config(merged), context), merged
