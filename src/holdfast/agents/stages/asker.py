"""Asking a chat model for a stage: for an object in a schema, or for text; within its window, and paid for as it goes."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from holdfast.agents.model_spans import asked
from holdfast.errors import Cancelled
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.models.abilities import model_name_of
from holdfast.models.answers import AnswerCut, cut_by_client, flaw_of
from holdfast.tokens.counter import open_counter
from holdfast.tokens.usage import Usage
from holdfast.tokens.windows import find_window
from holdfast.workflow.agent import StageRequest

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.tokens.counter import TokenCounter

_Message = TypeVar("_Message", bound=BaseMessage)
_ANSWER_SHARE = 4  # a quarter of the window is left to the answer
_LARGEST_ANSWER = 8192
_QUIET = {"callbacks": [], "tags": ["nostream"]}


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
        settings: Any = {**_QUIET, "run_name": title}
        try:
            structured: Any = self.model.with_structured_output(named, include_raw=True)
        except NotImplementedError:
            return self._in_words(messages, schema, settings)
        try:
            with asked(self.model, messages, purpose=title) as heard:
                found = structured.invoke(list(messages), settings)
                heard.append(found["raw"])
        except Exception as failure:
            if (cut := cut_by_client(failure)) is None:
                raise
            return Answer("", None, cut)
        usage = self._charge(found["raw"])
        parsed, error = found.get("parsed"), found.get("parsing_error")
        flaw = flaw_of(found["raw"]) or ("was cut where its room ended" if isinstance(error, AnswerCut) else None)
        if isinstance(parsed, Mapping):
            return Answer(dict(parsed), usage, flaw)
        if error is not None and not isinstance(error, OutputParserException | ValueError | TypeError):
            raise error
        return Answer(_text(found["raw"]), usage, flaw)

    def say(self, messages: Sequence[BaseMessage], *, title: str) -> Answer:
        """The answer as text."""
        settings: Any = {**_QUIET, "run_name": title}
        with asked(self.model, messages, purpose=title) as heard:
            answer = self.model.invoke(list(messages), settings)
            heard.append(answer)
        return Answer(_text(answer), self._charge(answer), flaw_of(answer))

    def _in_words(self, messages: Sequence[BaseMessage], schema: Mapping[str, Any], settings: Any) -> Answer:
        wanted = json.dumps(schema, ensure_ascii=False)
        form = HumanMessage(f"Answer with one JSON object that fits this JSON Schema, and nothing else:\n{wanted}")
        with asked(self.model, messages, purpose=str(settings["run_name"])) as heard:
            answer = self.model.invoke([*messages, form], settings)
            heard.append(answer)
        return Answer(_text(answer), self._charge(answer), flaw_of(answer))

    def charged(self, message: _Message) -> _Message:
        """The message, with what it used added to what is to be paid."""
        self._charge(message)
        return message

    def pay(self, request: StageRequest) -> None:
        """Account for what was used so far, before more is. Raises LimitExceeded when nothing is left; the last call is the result's."""
        used, self.used = self.used, None
        if used is not None and self.who is not None:
            request.charge(used, self.name, self.who)
        elif used is not None:
            request.charge(used, self.name)

    def _charge(self, message: object) -> Usage | None:
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
