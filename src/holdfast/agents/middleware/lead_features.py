"""What the lead agent has beside memory and window: a question to the user, a list of todos, a title; and no tools for a weak model.

- `ask_clarification` ends the turn with a question, and the answer goes on from there (A13).
- `write_todos` keeps the agent's own list. It is in the conversation where it was written; after a compaction, which takes that away, the
  open items stand at the end of the system part until the next one, so that the prefix of the request stays the same in between (S19, A10).
- A title comes after the first exchange (A13): at once from the user's own words, and a better one from a light model when that has time.
  The answer never waits for it; what the model writes later is kept by the thread's record.
- A model that is too weak to work with tools is offered none (A15).
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import AgentState, ExtendedModelResponse, ModelRequest, ModelResponse, PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypedDict  # before Python 3.12 pydantic does not take the one of the standard library

from holdfast.agents.agent_settings import filled
from holdfast.agents.middleware.thread_data import AroundModelCall, LeadState
from holdfast.agents.middleware.tool_calls import ended_by
from holdfast.agents.model_spans import asked
from holdfast.amounts import counted
from holdfast.context.view import marks_of
from holdfast.memory.facts import without_uploads
from holdfast.models.abilities import model_name_of
from holdfast.secret_forms import replace_secrets
from holdfast.text.framing import inert_line
from holdfast.text.repetition import repetition
from holdfast.tokens.usage import Usage

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.agents.threads import Threads
    from holdfast.config.sections import Config
    from holdfast.tokens.accounts import Accounts


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
    lines = [f"{signs[todo['status']]} {inert_line(todo['content'])}" for todo in todos if todo.get("status") in signs]
    return "\n".join(["<todos>", *lines, "</todos>"]) if lines else ""


class RepetitionMiddleware(AroundModelCall):
    """Cuts an answer that only repeats itself to what it said once, so that neither the user nor the next call reads it again (A15)."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, and look at what it said."""
        response = yield request
        for number, message in enumerate(response.result):
            end = repetition(str(message.text)) if isinstance(message, AIMessage) and not message.tool_calls else None
            if end is not None:
                said = f"{str(message.text)[:end]}\n\n({_REPEATED})"
                response.result[number] = message.model_copy(update={"content": said})
        return response


class PlainAnswersMiddleware(AroundModelCall):
    """Takes the tools out of every request: a weak model answers from its prompt, in which the memory of the user is (A15)."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, without tools."""
        return (yield request.override(tools=[]))


_REPEATED = "It said the same over and over from here on, and was cut."
_END = re.compile(r"(?<=[.!?。！？])\s")
_MOST = 4_000


def extracted_title(text: str, *, max_words: int = 6, max_chars: int = 60) -> str:
    """The first words of what the user said.

    >>> extracted_title("Please plan the move of the office to Mill Lane. We have until May.")
    'Please plan the move of the ...'
    """
    first = _END.split(" ".join(replace_secrets(without_uploads(text)).split()), maxsplit=1)[0]
    words = first.split(" ")
    short = " ".join(words[:max_words])
    cut = len(words) > max_words
    if len(short) > max_chars:
        short, cut = short[: max_chars - 4].rstrip(), True
    return f"{short} ..." if cut else short.rstrip(".!?:;, ")


@dataclass(frozen=True)
class Titles:
    """Makes titles. `model` is a light one that may be asked, or None: then they are taken from the user's words."""

    max_words: int = 6
    max_chars: int = 60
    model: BaseChatModel | None = None
    accounts: Accounts | None = None

    @classmethod
    def of(cls, config: Config, model: BaseChatModel | None, accounts: Accounts | None = None) -> Titles:
        """As the `title` section says."""
        return cls(config.title.max_words, config.title.max_chars, model, accounts)

    def extracted(self, question: str) -> str:
        """At once, from the user's words."""
        return extracted_title(question, max_words=self.max_words, max_chars=self.max_chars)

    async def written(self, question: str, answer: str) -> str | None:
        """By the model; None when there is none or it said nothing of use."""
        if self.model is None:
            return None
        prompt = filled("title.md", words=str(self.max_words), question=question[:_MOST], answer=answer[:_MOST])
        with asked(self.model, [HumanMessage(prompt)], purpose="title") as heard:
            said = await self.model.ainvoke([HumanMessage(prompt)], {"callbacks": [], "tags": ["nostream"], "run_name": "title"})
            heard.append(said)
        usage = Usage.read(said)
        if usage is not None and self.accounts is not None:
            self.accounts.charge(usage, model=model_name_of(self.model), purpose="title")
        text = " ".join(str(said.text).split()).strip("\"'“”*# .")
        return text[: self.max_chars].strip() if 0 < len(text) <= 4 * self.max_chars else None


class TitleMiddleware(AroundModelCall):
    """Puts the title into the state: the extracted one with the first answer, a written one when it is there."""

    state_schema = LeadState

    def __init__(self, titles: Titles, threads: Threads | None = None) -> None:
        super().__init__()
        self._titles, self._threads = titles, threads

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model; its first final answer brings the title."""
        return self._titled(request, (yield request))

    def _titled(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> Any:
        state: Any = request.state
        if state.get("title") or any(isinstance(one, AIMessage) and one.tool_calls for one in response.result):
            return response
        first = next((message for message in request.messages if _is_users(message)), None)
        title = self._titles.extracted(first.text) if first is not None else ""
        return ExtendedModelResponse(response, Command(update={"title": title})) if title else response


def _is_users(message: BaseMessage) -> bool:
    return isinstance(message, HumanMessage) and "summary" not in marks_of(message)
