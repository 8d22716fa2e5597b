"""The tools by which an agent keeps its own memory of the user, in the mode `tool` (M15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool

from holdfast.agents.middleware.thread_data import thread_of
from holdfast.memory import tools
from holdfast.memory.facts import turns_of

if TYPE_CHECKING:
    from holdfast.memory.service import MemoryService


def memory_tools(service: MemoryService, agent: str | None = None) -> list[BaseTool]:
    """Search, add, update and remove, and writing of blocks where there are any. What the user typed in the thread is the source."""

    def said(runtime: ToolRuntime[Any, Any]) -> dict[str, Any]:
        return {"turns": turns_of(runtime.state.get("messages", ())), "thread": thread_of(runtime)}

    def memory_search(query: str, top_k: int = 8) -> str:
        """Search what is known about the user."""
        return tools.memory_search(service, query, agent=agent, top_k=top_k)

    def memory_add(content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remember a fact about the user that the user stated. Write it as a description, for example: User prefers short answers."""
        return tools.memory_add(service, content, agent=agent, **said(runtime))

    def memory_update(id: str, content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Put a corrected fact in place of the one with this id."""
        return tools.memory_update(service, id, content, agent=agent, **said(runtime))

    def memory_remove(id: str) -> str:
        """Remove a fact that is no longer true, by its id."""
        return tools.memory_remove(service, id, agent=agent)

    def memory_write_block(name: str, text: str) -> str:
        """Replace the text of one of your memory blocks."""
        return tools.memory_write_block(service, name, text, agent=agent)

    functions: list[Any] = [memory_search, memory_add, memory_update, memory_remove]
    if service.settings.blocks:
        functions.append(memory_write_block)
    return [StructuredTool.from_function(function) for function in functions]
