"""Asking a chat model for a stage: for an object in a schema, for text, or to work with tools until it has said what it wants to say.

All of it is within the model's window, its limits and a number of calls, and paid for as it goes. `talk_with_tools` is small on purpose: no
state is kept between two stages, each call is paid for before the next, and a request to stop ends it between two calls.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool

from holdfast.agents.middleware.broken_calls import MOST_BROKEN, broken_in, listening, refusal_of, unread, with_marks
from holdfast.agents.middleware.model_calls import asked, quiet, tool_run
from holdfast.agents.middleware.tool_calls import failed_result
from holdfast.agents.stages.stage_sources import Desk
from holdfast.errors import Cancelled, HoldfastError, LimitExceeded
from holdfast.extract.selection import SourceText, select
from holdfast.models.abilities import abilities_of, model_name_of
from holdfast.models.failures import cut_by_client, flaw_of
from holdfast.tokens.accounts import Usage
from holdfast.tokens.counter import open_counter
from holdfast.tokens.windows import find_window
from holdfast.validation import counted
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.control import StageApprovals

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.tokens.counter import TokenCounter


_ANSWER_SHARE = 4  # a quarter of the window is left to the answer
_LARGEST_ANSWER = 8192


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answered: the object when it kept to the schema, else its text; and what that used."""

    value: object
    usage: Usage | None
    flaw: str | None = None
    """Why it is no whole answer, in words that follow "the answer"; None when it is one."""


@dataclass
class Asker:
    """A chat model, asked for objects. `room` is what a prompt may have."""

    model: BaseChatModel
    name: str
    used: Usage | None = None
    who: str | None = None
    """For whom it is asked, where several are in one stage: it is charged to them."""
    since: Usage | None = None
    """What was used since somebody last looked and set this to None, paid for or not; None where the model does not report it."""
    _counter: TokenCounter | None = field(default=None, repr=False)

    @property
    def window(self) -> int:
        return find_window(self.model, name=self.name).tokens

    @property
    def room(self) -> int:
        """The tokens that all messages of a question may take together."""
        return self.window - min(_LARGEST_ANSWER, self.window // _ANSWER_SHARE)

    @property
    def answer_room(self) -> int:
        """The tokens that an answer may have: what is left of the window, and what the model is set to."""
        profile = getattr(self.model, "profile", None)
        said = [profile.get("max_output_tokens") if isinstance(profile, Mapping) else None, getattr(self.model, "max_tokens", None)]
        return min([self.window - self.room, *(most for most in said if isinstance(most, int) and most > 0)])

    def count(self, text: str) -> int:
        """The tokens of a text, as this model counts them as far as is known."""
        if self._counter is None:
            self._counter = open_counter("exact", model=model_name_of(self.model))
        return self._counter.count_text(text)

    def estimate(self, messages: Sequence[BaseMessage], answer: str) -> int:
        """What a call took, where the model does not say."""
        return sum(self.count(str(message.text)) for message in messages) + self.count(answer)

    def ask(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], *, title: str) -> Answer:
        """The answer as an object that is meant to fit the schema. It is not validated here."""
        named = {"title": title, "description": "The answer.", **schema}
        try:
            structured: Any = self.model.with_structured_output(named, include_raw=True)
        except NotImplementedError:
            wanted = json.dumps(schema, ensure_ascii=False)
            form = HumanMessage(f"Answer with one JSON object that fits this JSON Schema, and nothing else:\n{wanted}")
            return self.say([*messages, form], title=title)
        try:
            found, usage = self._heard(structured, messages, title)
        except Exception as failure:
            if (cut := cut_by_client(failure)) is None:
                raise
            return Answer("", None, cut)
        parsed, error = found.get("parsed"), found.get("parsing_error")
        flaw = flaw_of(found["raw"]) or getattr(error, "flaw", None)
        if isinstance(parsed, Mapping):
            return Answer(dict(parsed), usage, flaw)
        if error is not None and not isinstance(error, OutputParserException | ValueError | TypeError):
            raise error
        return Answer(_text(found["raw"]), usage, flaw)

    def say(self, messages: Sequence[BaseMessage], *, title: str) -> Answer:
        """The answer as text."""
        answer, usage = self._heard(self.model, messages, title)
        return Answer(_text(answer), usage, flaw_of(answer))

    def converse(self, bound: Any, messages: Sequence[BaseMessage], *, title: str) -> AIMessage:
        """The answer of the model with tools bound to it, which may be calls of them; those that did not arrive whole are marked."""
        with listening() as heard:
            try:
                answer: AIMessage = self._heard(bound, messages, title)[0]
            except ValueError as error:
                return unread(error)
        return with_marks(answer, heard)

    def _heard(self, asks: Any, messages: Sequence[BaseMessage], title: str) -> tuple[Any, Usage | None]:
        """What came of a call, quietly and in a span, and what it used. `asks` is the model as it is, or with a schema or tools."""
        with asked(self.model, messages, purpose=title) as heard:
            found = asks.invoke(list(messages), quiet(title))
            heard.append(found["raw"] if isinstance(found, Mapping) else found)
        return found, self.charge(heard[-1])

    def pay(self, request: StageRequest) -> None:
        """Account for what was used so far, before more is. Raises LimitExceeded when nothing is left; the last call is the result's."""
        used, self.used = self.used, None
        if used is not None:
            request.charge(used, self.name, *([self.who] if self.who is not None else []))

    def charge(self, message: object) -> Usage | None:
        """What a message used, which is added to what is to be paid."""
        usage = Usage.read(message)
        if usage is not None:
            self.since = usage if self.since is None else self.since + usage
            self.used = usage if self.used is None else self.used + usage
        return usage


def _text(message: object) -> str:
    if not isinstance(message, AIMessage):
        return str(getattr(message, "content", message))
    for call in message.tool_calls:  # the schema as a tool: what did not parse is in the call
        return json.dumps(call["args"], ensure_ascii=False)
    return str(message.text)


def stop_if_cancelled(request: StageRequest) -> None:
    """Raise Cancelled when the run is to stop."""
    if request.cancelled():
        raise Cancelled(f"the stage {request.stage.name} was told to stop.", session=request.session_id, stage=request.stage.name)


def fitted(prompt: str, room: int, question: str, count: Callable[[str], int]) -> str:
    """The prompt, or where it is longer than `room` its beginning and the passages of the rest that matter for the question."""
    if count(prompt) <= room:
        return prompt
    note = "\n\n(Shortened to what matters most for the task.)\n\n"
    head, _, rest = prompt.partition("\n\n")
    if count(head) > room // 2:
        head, rest = "", prompt
    budget = room - count(head) - count(note)
    if budget <= 0:
        return head
    chosen = select([SourceText("given", rest)], budget=budget, question=question, count=count).text
    return f"{head}{note}{chosen}".strip()


_LEFT_OUT = "(Left out, because there is no room for it any more. It is among the passages; call the tool again to see it here.)"
_LONGEST = 12_000


def talk_with_tools(
    request: StageRequest,
    asker: Asker,
    messages: Sequence[BaseMessage],
    tools: Sequence[BaseTool],
    *,
    calls: int,
    title: str,
    desk: Desk,
    outside: Sequence[BaseTool] = (),
    approve: Collection[str] = (),
) -> str | None:
    """The model's last words, after at most `calls` rounds of tool calls; None where it cannot take tools, or did not come to an end.

    What tools from outside answer is laid on the desk, so that it can be cited. Tools named in `approve` wait for a person: ApprovalWanted
    ends the attempt, and in the next one the very call that was answered comes first. Raises LimitExceeded and what a model raises.
    """
    known = {tool.name: tool for tool in (*tools, *outside)}
    if not known or not abilities_of(asker.model).tools:
        return None
    try:
        bound: Any = asker.model.bind_tools(list(known.values()))
    except NotImplementedError:
        return None
    foreign = frozenset(tool.name for tool in outside)
    approvals = StageApprovals(request, approve)
    talk = list(messages)
    for answer in approvals.answered():
        if answer.call.tool in known:
            call = {"name": answer.call.tool, "args": dict(answer.call.args), "id": f"call_{answer.call.id}"}
            talk.append(AIMessage("", tool_calls=[call]))
            talk.append(_result(call, known, desk, foreign, approvals))
    broken = 0  # answers in a row
    for _ in range(calls + 1):
        stop_if_cancelled(request)
        asker.pay(request)
        if not _fit(talk, asker):
            break
        said = asker.converse(bound, talk, title=title)
        if not said.tool_calls:
            return str(said.text).strip()
        talk.append(said)
        for wanted in said.tool_calls:
            stop_if_cancelled(request)
            talk.append(refusal_of(said, wanted) or _result(wanted, known, desk, foreign, approvals))
        broken = broken + 1 if broken_in(said) else 0
        if broken == MOST_BROKEN:
            request.emit(f"stopped after {counted(broken, 'answer')} in a row whose tool calls did not arrive whole")
            return None
    request.emit(f"stopped after {counted(calls, 'round')} of tool calls")
    return None


def _result(call: Any, known: dict[str, BaseTool], desk: Desk, foreign: frozenset[str], approvals: StageApprovals) -> ToolMessage:
    tool = known.get(call["name"])
    id = str(call.get("id") or "")
    if tool is None:
        return ToolMessage(f"There is no tool {call['name']!r}. There are: {', '.join(known)}.", tool_call_id=id, status="error")
    answer = approvals.ask(tool.name, call["args"])
    if not answer.approved:
        return ToolMessage(answer.said, tool_call_id=id, name=tool.name, status="error")
    try:
        with tool_run(tool.name, id, call["args"]):
            said = tool.invoke({**call, "id": id, "type": "tool_call"})
    except LimitExceeded:
        raise
    except HoldfastError as error:
        return ToolMessage(f"Error: {error}", tool_call_id=id, name=tool.name, status="error")
    except Exception as error:  # noqa: BLE001 - a tool may raise anything, and none of it may end the stage
        return failed_result(call, error)
    text = str(said.text) if isinstance(said, ToolMessage) else str(said)
    if tool.name in foreign:
        name = f"{tool.name} {1 + sum(source.startswith(f'{tool.name} ') for source in desk.passages)}"
        desk.lay(name, text, trust="low")
        text = f"[{name}]\n{text}"
    short = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}\n(cut; {len(text)} characters in all)"
    return ToolMessage(short, tool_call_id=id, name=tool.name)


def _fit(talk: list[BaseMessage], asker: Asker) -> bool:
    """Take the oldest results out of a talk that has become too long for the model. False where even that is not enough."""
    total = sum(asker.count(_said(message)) for message in talk)
    for number, message in enumerate(talk[:-1]):
        if total <= asker.room:
            break
        if isinstance(message, ToolMessage) and message.content != _LEFT_OUT:
            total -= asker.count(_said(message)) - asker.count(_LEFT_OUT)
            talk[number] = message.model_copy(update={"content": _LEFT_OUT})
    return total <= asker.room


def _said(message: BaseMessage) -> str:
    calls = str(message.tool_calls) if isinstance(message, AIMessage) and message.tool_calls else ""
    return f"{message.text}{calls}"
