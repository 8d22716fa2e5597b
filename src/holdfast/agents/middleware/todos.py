"""`write_todos`: the agent's own list of what is to be done, which survives a compaction (A10, A13).

The list is in the conversation where it was written. After a compaction, which takes that away, the open items stand at the end of the
system part until the next one, so that the prefix of the request stays the same in between (S19).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.tools import ToolRuntime
from langchain_core.messages import SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from typing_extensions import TypedDict  # before Python 3.12 pydantic does not take the one of the standard library


class Todo(TypedDict):
    """One thing to do."""

    content: str
    status: Literal["pending", "in_progress", "completed"]


class TodoState(AgentState[Any]):
    """The list, and the copy of it that stands in the system part since the last compaction."""

    todos: NotRequired[list[Todo]]
    holdfast_todos: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


def write_todos(todos: list[Todo], runtime: ToolRuntime[Any, Any]) -> Command[Any]:
    """Write your list of what is to be done, whole, whenever it changes. For work of three steps or more; not for simple questions."""
    done = sum(todo["status"] == "completed" for todo in todos)
    said = ToolMessage(f"The list has {len(todos)} items, {done} of them done.", tool_call_id=runtime.tool_call_id or "")
    return Command(update={"todos": [dict(todo) for todo in todos], "messages": [said]})


class TodoMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives the agent its list."""

    state_schema = TodoState

    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [StructuredTool.from_function(write_todos)]

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Ask the model, with the open items after a compaction."""
        sending, update = _shown(request)
        response = handler(sending)
        return ExtendedModelResponse(response, Command(update=update)) if update else response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited."""
        sending, update = _shown(request)
        response = await handler(sending)
        return ExtendedModelResponse(response, Command(update=update)) if update else response


def _shown(request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any]]:
    state: Mapping[str, Any] = request.state
    epoch = int((state.get("holdfast_window") or {}).get("epoch", 0))
    known = state.get("holdfast_todos") or {"epoch": 0, "text": ""}
    update: dict[str, Any] = {}
    if known["epoch"] != epoch:
        known = {"epoch": epoch, "text": _text(state.get("todos") or ())}
        update = {"holdfast_todos": known}
    system = request.system_message
    if not known["text"] or system is None:
        return request, update
    content: Any = system.content
    joined = f"{content}\n\n{known['text']}" if isinstance(content, str) else [*content, {"type": "text", "text": known["text"]}]
    return request.override(system_message=SystemMessage(joined)), update


def _text(todos: Sequence[Mapping[str, Any]]) -> str:
    signs = {"pending": "[ ]", "in_progress": "[~]"}
    lines = [f"{signs[todo['status']]} {_one_line(todo['content'])}" for todo in todos if todo.get("status") in signs]
    return "\n".join(["<todos>", *lines, "</todos>"]) if lines else ""


def _one_line(text: object) -> str:
    """The item as one line that cannot close the block."""
    return " ".join(str(text).split()).replace("<", "&lt;")
