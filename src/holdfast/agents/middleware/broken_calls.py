"""Tool calls that did not arrive whole are never run (A1, A10): half of a command is another command, and half of a file overwrites it.

A model that reaches its token limit inside of a call leaves the beginning of its arguments, and LangChain, which puts the pieces of a
stream together, closes them where they end: `{"command": "rm -rf proj` becomes a call that looks well. So what came is heard before that:

- `Heard` listens while a model streams, to the text of each call as it came (`listening`).
- `WholeCallsMiddleware` looks at each answer, right after the model: a call whose text is no whole JSON object, and the last call of an
  answer that ended at its limit, are marked on the message. Calls that LangChain could not read at all are put among the others, so that
  the turn goes on. An answer that is not streamed comes read already; there the provider's package says what it could not read.
- `BrokenCallsMiddleware`, outside of approvals, answers a marked call in place of its tool: that it was not run, and to send it again.
  After the third such answer in a row the turn ends (`bad_calls`).

Both work in any `create_agent`, the second outside of the first.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.tracers.context import register_configure_hook
from langchain_core.utils.json import parse_partial_json
from pydantic import ValidationError

from holdfast.agents.middleware.base import AroundModelCall, AroundToolCall
from holdfast.agents.middleware.tool_calls import ended_by, not_run, since_user
from holdfast.clock import RandomIds
from holdfast.context.view import MARK, marks_of
from holdfast.models.failures import is_cut

if TYPE_CHECKING:
    from langchain_core.messages.tool import ToolCallChunk
    from langgraph.prebuilt.tool_node import ToolCallRequest


BROKEN = "broken"
"""The mark on an answer with such calls: by their ids why, and what came of their arguments."""
MOST_BROKEN = 3
"""Answers in a row with such a call, after which the model is not asked again."""
_EXCERPT = 200  # characters
_CUT = (
    "the answer reached its token limit in this call, so its arguments are not whole. Nothing of it was done. "
    "Send it again in smaller parts, a long text for instance in several calls."
)
_MALFORMED = "its arguments are not one whole JSON object"
_UNKNOWN = "unknown_tool"
_STOPPED = "I stopped: {count} answers in a row had a tool call that did not arrive whole. None of these calls was run."


class Heard(BaseCallbackHandler):
    """What a model streams, piece by piece, as it came. What is asked quietly beside it, such as a summary, is not heard."""

    run_inline = True  # in its order, and without a thread for every token

    def __init__(self) -> None:
        self.spoke = False
        """Whether any word of an answer was streamed."""
        self._pieces: dict[UUID, list[AIMessageChunk]] = {}

    def on_chat_model_start(self, *_: Any, **__: Any) -> None:
        """Nothing is wanted of the request; without this LangChain would write it out as text."""

    def on_llm_new_token(self, token: Any, *, chunk: Any = None, run_id: UUID, tags: Sequence[str] | None = None, **_: Any) -> None:
        """Note a piece."""
        message = getattr(chunk, "message", None)
        if not isinstance(message, AIMessageChunk) or "nostream" in (tags or ()):
            return
        self.spoke = self.spoke or bool(message.text)
        if message.tool_call_chunks:
            self._pieces.setdefault(run_id, []).append(message)

    def calls(self) -> list[list[ToolCallChunk]]:
        """The calls of each answer, with their arguments as text."""
        return [(first + rest if rest else first).tool_call_chunks for first, *rest in self._pieces.values()]


_heard: ContextVar[Heard | None] = ContextVar("holdfast_heard", default=None)
register_configure_hook(_heard, inheritable=False)


@contextmanager
def listening() -> Iterator[Heard]:
    """What is streamed inside the `with`. Inside of another one it is that one's: whoever asks again listens anew to each answer."""
    if (known := _heard.get()) is not None:
        yield known
        return
    heard = Heard()
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)


def with_marks(answer: AIMessage, heard: Heard | None = None) -> AIMessage:
    """The answer with its broken calls marked, and all of them among its `tool_calls`; the same object when there is none."""
    calls: list[dict[str, Any]] = []
    broken: dict[str, dict[str, str]] = {}
    cut = is_cut(answer)
    texts = _texts(answer, heard)
    for call, text in _in_order(answer, texts):
        why = "" if text is None or is_object(text) else "malformed"
        whole = isinstance(call.get("args"), Mapping) and not why
        call = {**call, "type": "tool_call", "id": call.get("id") or (RandomIds().new("call") if cut or not whole else call.get("id"))}
        if not whole:
            call |= {"name": call.get("name") or _UNKNOWN, "args": _closed(text) or {}}
        if why:
            broken[str(call["id"])] = {"why": why, "text": text or ""}
        calls.append(call)
    if cut:  # what comes after the last of them cannot be known; nor the order, where only some could be read
        ends = [calls[-1]] if calls else []
        if not texts and answer.tool_calls and answer.invalid_tool_calls:
            ends.append(calls[len(answer.tool_calls) - 1])
        for call in ends:
            text = broken.get(str(call["id"]), {}).get("text") or json.dumps(call["args"], ensure_ascii=False)
            broken[str(call["id"])] = {"why": "cut", "text": text}
    if not broken and not answer.invalid_tool_calls:
        return answer
    extras = {**answer.additional_kwargs, **({MARK: {**marks_of(answer), BROKEN: broken}} if broken else {})}
    extras.pop("tool_calls", None)  # the same calls once more, as some packages keep them: a provider refuses them as they came
    return answer.model_copy(update={"tool_calls": calls, "invalid_tool_calls": [], "additional_kwargs": extras})


def unread(error: Exception) -> AIMessage:
    """An answer whose calls LangChain could not even put into a message, as arguments that are a list; any other error is raised again."""
    wrong = error.errors(include_url=False, include_context=False) if isinstance(error, ValidationError) else []
    if not wrong or any(one["loc"][:1] != ("tool_calls",) for one in wrong):
        raise error
    ids = RandomIds()
    broken = {ids.new("call"): {"why": "malformed", "text": json.dumps(one.get("input"), default=str)} for one in wrong}
    calls: Any = [{"name": _UNKNOWN, "args": {}, "id": id, "type": "tool_call"} for id in broken]
    return AIMessage("", tool_calls=calls, additional_kwargs={MARK: {BROKEN: broken}})


def broken_in(message: BaseMessage) -> Mapping[str, Mapping[str, str]]:
    """The calls of an answer that did not arrive whole: by their ids `why` (cut or malformed), and the `text` of their arguments."""
    found = marks_of(message).get(BROKEN)
    return found if isinstance(found, Mapping) else {}


def refusal_of(message: BaseMessage, call: Mapping[str, Any]) -> ToolMessage | None:
    """What the model is told in place of a result, when this call of its message did not arrive whole; None when it did."""
    broken = broken_in(message).get(str(call.get("id")))
    if broken is None or broken["why"] == "cut":
        return not_run(call, _CUT) if broken is not None else None
    text = broken["text"]
    shown = f"{text[:_EXCERPT]} ... ({len(text)} characters)" if len(text) > _EXCERPT else text
    said = "Nothing of it was done. Send the call again, whole; a long one in smaller parts"
    return not_run(call, f"{_MALFORMED}. {said}. What came: {shown}")


def is_object(text: str) -> bool:
    """Whether the text of a call's arguments is one whole JSON object. No text at all and `null` are a call without arguments."""
    if text.strip() in ("", "null"):
        return True
    try:
        return isinstance(json.loads(text, strict=False), dict)
    except ValueError:
        return False


def _texts(answer: AIMessage, heard: Heard | None) -> list[str]:
    """The arguments of all calls of an answer as they came, in their order; empty where that is not known."""
    count = len(answer.tool_calls) + len(answer.invalid_tool_calls)
    for chunks in reversed(heard.calls() if heard is not None else []):
        if len(chunks) == count and {chunk["name"] or "" for chunk in chunks} == {str(call["name"] or "") for call in _calls(answer)}:
            return [chunk["args"] or "" for chunk in chunks]
    kept = answer.additional_kwargs.get("tool_calls")
    said = [(one.get("function") or {}).get("arguments") for one in kept if isinstance(one, Mapping)] if isinstance(kept, list) else []
    return cast("list[str]", said) if len(said) == count and all(isinstance(one, str) for one in said) else []


def _calls(answer: AIMessage) -> list[Mapping[str, Any]]:
    return [*cast("list[Any]", answer.tool_calls), *cast("list[Any]", answer.invalid_tool_calls)]


def _in_order(answer: AIMessage, texts: Sequence[str]) -> Iterator[tuple[dict[str, Any], str | None]]:
    """Each call with the text of its arguments, where that is known: it says too to which of the two lists LangChain put the call."""
    good, bad = iter(answer.tool_calls), iter(answer.invalid_tool_calls)
    if texts and sum(_closed(text) is not None for text in texts) == len(answer.tool_calls):
        for text in texts:
            yield dict(next(good) if _closed(text) is not None else next(bad)), text
        return
    for call in good:
        yield dict(call), None
    for wrong in bad:
        yield dict(wrong), str(wrong.get("args") or "")


def _closed(text: str | None) -> dict[str, Any] | None:
    """The arguments as LangChain reads what came of them; None where that is no object."""
    try:
        read = parse_partial_json(text) if text else {}
    except ValueError:
        return None
    return read if isinstance(read, dict) else None


class WholeCallsMiddleware(AroundModelCall):
    """Marks the calls of each answer that did not arrive whole. Put it right before the model."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, and listen."""
        with listening() as heard:
            try:
                response = yield request
            except ValueError as error:
                return ModelResponse(result=[unread(error)])
        for number, message in enumerate(response.result):
            if isinstance(message, AIMessage):
                response.result[number] = with_marks(message, heard)
        return response


class BrokenCallsMiddleware(AroundModelCall, AroundToolCall):
    """Answers marked calls in place of their tools, and ends a turn that has nothing else. Put it outside of all that looks at calls."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, unless its calls were broken again and again."""
        count = _in_a_row(request.messages)
        if count < MOST_BROKEN:
            return (yield request)
        return ModelResponse(result=[ended_by("bad_calls", _STOPPED.replace("{count}", str(count)))])

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool, unless the call is broken."""
        state: Any = request.state
        messages = state.get("messages", ()) if isinstance(state, Mapping) else ()
        asked = next((one for one in reversed(messages) if isinstance(one, AIMessage) and one.tool_calls), None)
        refused = refusal_of(asked, request.tool_call) if asked is not None else None
        return refused if refused is not None else (yield request)


def _in_a_row(messages: Sequence[BaseMessage]) -> int:
    """How many of the newest answers had a broken call, one after the other."""
    count = 0
    for message in reversed(since_user(messages)):
        if isinstance(message, AIMessage):
            if not broken_in(message):
                break
            count += 1
    return count
