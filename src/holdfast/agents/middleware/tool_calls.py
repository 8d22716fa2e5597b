"""What surrounds each tool call: a person's approval, the bound on its output, the guard against loops, errors as results (A1, A10, A11);
and the two tools by which an agent talks to the user and keeps its list.

- `ApprovalMiddleware`: tools named in `sandbox.approve` wait for a person (A13). The question is a LangGraph interrupt: it is in the
  checkpoint, so the answer may come after a restart, and other calls of the same step run meanwhile.
- `ToolOutputMiddleware`: a result over a limit goes to a file and to the archive as soon as it arrives; head, tail and reference take its
  place. What never enters the window whole cannot blow it.
- `LoopGuardMiddleware`: the third equal call within a turn of the user carries a warning; after the fifth the model is not asked again.
- `ToolErrorMiddleware`: a tool that fails tells the model so. Else an exception would end the run with the call unanswered, and the next
  request of the thread would be refused by the provider.
- `ClarificationMiddleware`: `ask_clarification` ends the turn with a question, and the answer goes on from there (A13).
- `TodoMiddleware`: `write_todos` keeps the agent's own list. It is in the conversation where it was written; after a compaction, which
  takes that away, the open items stand at the end of the system part until the next one, so that the prefix of the request stays the same
  in between (S19, A10).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Generator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import AgentState, ExtendedModelResponse, ModelRequest, ModelResponse, PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, interrupt
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict

from holdfast.agents.middleware.base import AWAY, AroundModelCall, AroundToolCall, LangChainMessages, conversation_of_call, system_with
from holdfast.clock import IdSource, RandomIds
from holdfast.context.compaction import clipped
from holdfast.context.records import records_of
from holdfast.context.view import MARK, marks_of, text_of
from holdfast.redaction import replace_secrets
from holdfast.talk import Approval, Decision
from holdfast.text.normalise import inert_line
from holdfast.tokens.counter import TokenCounter, open_counter
from holdfast.validation import counted
from holdfast.workflow.control import needs_approval

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from holdfast.context.archive import Archive
    from holdfast.context.compaction import Outputs


_KIND = "approval"


def approval_of(id: str, value: object) -> Approval | None:
    """The call that waits, from an interrupt of LangGraph; None if it is another kind of one."""
    if not isinstance(value, Mapping) or value.get("kind") != _KIND:
        return None
    return Approval(id, str(value["tool"]), dict(value["args"]), str(value["call"]))


def answer_of(decision: Decision) -> dict[str, Any]:
    """A decision as it is sent to the waiting tool."""
    return {"type": decision.type, "reason": decision.reason, "args": dict(decision.args) if decision.args is not None else None}


def decision_of(value: object) -> Decision:
    """The decision from what came back. Anything that is not clearly a yes is a no."""
    if isinstance(value, Mapping) and value.get("type") in ("approve", "reject", "edit"):
        args = value.get("args")
        if value["type"] != "edit" or isinstance(args, Mapping):
            return Decision(value["type"], str(value.get("reason") or ""), args if isinstance(args, Mapping) else None)
    return Decision("reject", "The answer was not understood.")


class ApprovalMiddleware(AroundToolCall):
    """Asks a person before one of these tools runs (`github_*` is a pattern). Put it outside of what turns errors into messages.

    With `refuse` nobody is there to be asked, as in a sub-agent: the tools are not run, and the model is told why.
    """

    def __init__(self, tools: Collection[str], *, refuse: bool = False) -> None:
        super().__init__()
        self._tools_to_ask, self._refuse = frozenset(tools), refuse

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Ask, then run the tool or say that it was not run. With the result it is told what a person changed: the call stays as it was."""
        decided = self._decided(request)
        if isinstance(decided, ToolMessage):
            return decided
        result = yield decided
        changed = decided.tool_call["args"]
        if changed == request.tool_call["args"]:
            return result
        return _with_note(result, f"{_CHANGED} {json.dumps(changed, ensure_ascii=False, default=str)}]")

    def _decided(self, request: ToolCallRequest) -> ToolCallRequest | ToolMessage:
        call = request.tool_call
        if not needs_approval(call["name"], self._tools_to_ask):
            return request
        if self._refuse:
            return not_run(call, "it needs the user's approval, which cannot be had here. Leave it to the agent that gave the task.")
        asked = {"kind": _KIND, "tool": call["name"], "args": call["args"], "call": str(call["id"])}
        decision = decision_of(interrupt(asked))  # raises until there is an answer; then this runs again from the start
        if decision.type == "reject":
            reason = f" They said: {decision.reason}" if decision.reason else ""
            return not_run(call, f"the user did not approve this call.{reason}")
        if decision.type == "edit":
            return request.override(tool_call={**call, "args": dict(decision.args or {})})
        return request


class DeniedToolsMiddleware(AroundToolCall):
    """Runs none of these tools, whoever offers them. Those of the configuration are not offered in the first place."""

    def __init__(self, tools: Collection[str]) -> None:
        super().__init__()
        self._denied = frozenset(tools)

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool, or say that it may not be run."""
        call = request.tool_call
        return not_run(call, "the configuration forbids this tool.") if call["name"] in self._denied else (yield request)


_CHANGED = "[The user changed the arguments before this ran. It ran with these, and not with those of the call:"


def _with_note(result: Any, note: str) -> Any:
    """The result of a tool with a line before it, in whatever form it comes."""
    if isinstance(result, ToolMessage):
        content: Any = result.content
        said = f"{note}\n{content}" if isinstance(content, str) else [{"type": "text", "text": note}, *content]
        return result.model_copy(update={"content": said})
    if isinstance(result, Command) and isinstance(result.update, Mapping):
        messages = [_with_note(one, note) if isinstance(one, ToolMessage) else one for one in result.update.get("messages") or ()]
        return replace(result, update={**result.update, "messages": messages})
    return result


def not_run(call: Mapping[str, Any], why: str) -> ToolMessage:
    """What the model is told of a call that was not run."""
    return ToolMessage(f"Not run: {why}", tool_call_id=str(call["id"]), name=call["name"], status="error")


_WARNING = "[This is call {count} of {name} with the same arguments. It will not give anything new: do something else, or answer now.]"
_STOPPED = "I stopped: {name} was called {count} times with the same arguments, and nothing new came of it."


class LoopGuardMiddleware(AroundModelCall, AroundToolCall):
    """Warns at `warn` equal calls and ends the turn at `stop`. Tools named in `exempt` (polling ones) may repeat."""

    def __init__(self, *, warn: int = 3, stop: int = 5, exempt: Sequence[str] = ()) -> None:
        super().__init__()
        self._warn, self._stop, self._exempt = warn, max(stop, warn), frozenset(exempt)

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, unless it goes round in circles."""
        stopped = self._stopped(request.messages)
        return stopped if stopped is not None else (yield request)

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool; a warning is added to the result of a repeated call."""
        return self._warned(request, (yield request))

    def _counts(self, messages: Sequence[BaseMessage]) -> Counter[tuple[str, str]]:
        calls = (call for message in since_user(messages) if isinstance(message, AIMessage) for call in message.tool_calls)
        return Counter(_signature(call) for call in calls if call["name"] not in self._exempt)

    def _stopped(self, messages: Sequence[BaseMessage]) -> ModelResponse[Any] | None:
        if not messages or not isinstance(messages[-1], ToolMessage):
            return None
        for (name, _), count in self._counts(messages).most_common(1):
            if count >= self._stop:
                return ModelResponse(result=[ended_by("loop", _STOPPED.replace("{name}", name).replace("{count}", str(count)))])
        return None

    def _warned(self, request: ToolCallRequest, result: Any) -> Any:
        call = request.tool_call
        if not isinstance(result, ToolMessage) or not isinstance(result.content, str) or call["name"] in self._exempt:
            return result
        state: Any = request.state
        messages = state.get("messages", ()) if isinstance(state, Mapping) else ()
        count = self._counts(messages)[_signature(call)]
        if count < self._warn:
            return result
        warning = _WARNING.replace("{name}", call["name"]).replace("{count}", str(count))
        return result.model_copy(update={"content": f"{result.content}\n{warning}"})


def since_user(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages after the newest one that the user wrote; a summary is not the user's."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage) and "summary" not in marks_of(messages[index]):
            return messages[index + 1 :]
    return messages


def ended_by(reason: str, text: str) -> AIMessage:
    """An answer that was not written by the model, and why the turn ended with it."""
    return AIMessage(text, additional_kwargs={MARK: {"ended": reason}})


def _signature(call: Mapping[str, Any]) -> tuple[str, str]:
    return str(call["name"]), json.dumps(call.get("args"), sort_keys=True, default=str)


_LONGEST = 2_000


class ToolErrorMiddleware(AroundToolCall):
    """Turns any exception of a tool into a tool message with the status `error`. Put it inside of all that looks at results."""

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool. A cancellation goes through."""
        try:
            return _storable((yield request))
        except GraphBubbleUp:  # an interrupt is no failure
            raise
        except Exception as error:  # noqa: BLE001 - a tool may raise anything, and none of it may end the run
            return failed_result(request.tool_call, error)


def failed_result(call: Mapping[str, Any], error: BaseException) -> ToolMessage:
    """What the model is told: the kind of error and its words, without secrets and not without end."""
    said = replace_secrets(str(error)).strip()
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


class ToolOutputMiddleware(AroundToolCall):
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
    ) -> None:
        super().__init__()
        self.archive, self.outputs = archive, outputs
        self._limit, self._keep, self._exempt = limit, min(keep, limit), frozenset(exempt)
        self._counter = counter or open_counter()
        self._factory, self._ids = LangChainMessages(), ids or RandomIds()

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool and bound its result."""
        result = yield request
        if self._is_oversize(request, result):
            yield AWAY  # files are written
            result = self._bounded(request, result)
        return result

    def _is_oversize(self, request: ToolCallRequest, result: Any) -> bool:
        if not isinstance(result, ToolMessage) or request.tool_call["name"] in self._exempt or marks_of(result).get("archived"):
            return False
        return self._counter.count_until(text_of(result), self._limit) is None

    def _bounded(self, request: ToolCallRequest, result: Any) -> Any:
        whole = result if result.id else self._factory.with_id(result, self._ids.new("tool"))
        thread = conversation_of_call(request)
        self.archive.add(thread, records_of([whole]))
        id, text = str(whole.id), text_of(whole)
        place = self.outputs.keep(thread, id, text) if self.outputs is not None else None
        short = clipped(text, self._keep, id=id, count=self._counter.count_text, place=place)
        return self._factory.with_text(whole, short, marks={"archived": "clipped"})


# Tools of the agent's own


ASK = "ask_clarification"
_ASKED = "The question was put to the user. The answer is the next message."


def ask_clarification(question: str, options: list[str] | SkipJsonSchema[None] = None) -> str:
    """Ask the user one short question that the task depends on; `options` are answers to choose from. Ends your turn."""
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
    """Write your whole list of what is to be done, whenever it changes. For work of three steps or more."""
    done = sum(todo["status"] == "completed" for todo in todos)
    said = ToolMessage(f"The list has {counted(len(todos), 'item')}, {done} of them done.", tool_call_id=runtime.tool_call_id or "")
    return Command(update={"todos": [dict(todo) for todo in todos], "messages": [said]})


class TodoMiddleware(AroundModelCall):
    """Gives the agent its list."""

    state_schema = TodoState

    def __init__(self) -> None:
        super().__init__()
        self.tools: Sequence[BaseTool] = [StructuredTool.from_function(write_todos)]

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, with the open items after a compaction."""
        state: Mapping[str, Any] = request.state
        epoch = int((state.get("holdfast_window") or {}).get("epoch", 0))
        known = state.get("holdfast_todos") or {"epoch": 0, "text": ""}
        if known["epoch"] == epoch:
            return (yield _with_todos(request, known["text"]))
        known = {"epoch": epoch, "text": _todo_lines(state.get("todos") or ())}
        response = yield _with_todos(request, known["text"])
        return ExtendedModelResponse(response, Command(update={"holdfast_todos": known}))


def _with_todos(request: ModelRequest[Any], text: str) -> ModelRequest[Any]:
    if not text or request.system_message is None:
        return request
    return request.override(system_message=system_with(request.system_message, text))


def _todo_lines(todos: Sequence[Mapping[str, Any]]) -> str:
    signs = {"pending": "[ ]", "in_progress": "[~]"}
    lines = [f"{signs[todo['status']]} {inert_line(todo['content'])}" for todo in todos if todo.get("status") in signs]
    return "\n".join(["<todos>", *lines, "</todos>"]) if lines else ""
