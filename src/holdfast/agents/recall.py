"""The tools by which an agent finds what left its window: `search_history` and `read_history` (S9)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.context import recall
from holdfast.context.archive import Archive


def recall_tools(archive: Archive, unnamed: Callable[[], str]) -> list[BaseTool]:
    """Both tools over one archive. The thread is the one that the agent runs in; `unnamed` says it for a run without one."""

    def thread(config: RunnableConfig) -> str:
        settings: dict[str, Any] = config.get("configurable") or {}
        return str(settings.get("thread_id") or unnamed())

    def search_history(query: str, config: RunnableConfig, top_k: int = 5) -> str:
        """Search the earlier part of this conversation that is no longer in view. Use names, numbers and rare words."""
        return recall.search_history(archive, thread(config), query, top_k)

    def read_history(id: str, config: RunnableConfig, around: int = 0, start: int = 0) -> str:
        """Read an earlier message of this conversation word for word by its id, with `around` messages before and after it."""
        return recall.read_history(archive, thread(config), id, around, start)

    return [StructuredTool.from_function(search_history), StructuredTool.from_function(read_history)]
