"""Tools that come with the lead agent: `ask_clarification` and `write_todos`; and no tools at all for a model that is too weak for them.

A question to the user ends the turn, and the answer goes on from there (A13). The list of todos is in the conversation where it was
written; after a compaction, which takes that away, the open items stand at the end of the system part until the next one, so that the
prefix of the request stays the same in between (S19, A10).
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from typing_extensions import TypedDict  # before Python 3.12 pydantic does not take the one of the standard library

from holdfast.agents.middleware.sync_async import AroundModelCall
from holdfast.agents.middleware.tool_calls import ended_by

ASK = "ask_clarification"
_ASKED = "The question was put to the user. The answer is the next message."


def ask_clarification(question: str, options: list[str] | None = None) -> str:
    """Ask the user when the task cannot be done well without knowing more. Ask one short question; `options` are answers to choose from.

    Ends your turn: call nothing else beside it.
    """
    return _ASKED


class ClarificationMiddleware(AroundModelCall):
    """Ends the turn when the model has asked. The question becomes the answer of the turn, whatever else was called beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [StructuredTool.from_function(ask_clarification)]

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, unless the user was asked."""
        asked = question_in(request.messages)
        return ModelResponse(result=[ended_by("clarification", asked)]) if asked is not None else (yield request)


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


class TodoMiddleware(AroundModelCall):
    """Gives the agent its list."""

    state_schema = TodoState

    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [StructuredTool.from_function(write_todos)]

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, with the open items after a compaction."""
        sending, update = _shown(request)
        response = yield sending
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


class PlainAnswersMiddleware(AroundModelCall):
    """Takes the tools out of every request: a weak model answers from its prompt, in which the memory of the user is (A15)."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, without tools."""
        return (yield request.override(tools=[]))
