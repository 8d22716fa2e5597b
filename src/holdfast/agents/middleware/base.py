"""What all middlewares here are made of: one body for sync and async, the state of a thread, whose run it is, new messages (A3, S16, M3).

A middleware is written once: its work is a generator that yields what it wants done (`AroundModelCall`, `AroundToolCall`), and one of two
loops does it. `LeadState` has what a thread has besides its messages, and `ThreadDataMiddleware`, the first of every agent, gives the
thread these channels. `LangChainMessages` makes the messages for `context/`, which reads them but does not import them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, NotRequired, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langchain_core.messages import AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.config import get_config
from langgraph.types import Command

from holdfast.agents.checkpoints import ThreadState, merge_messages
from holdfast.clock import RandomIds
from holdfast.context.view import MARK, marks_of, sound_call, text_of
from holdfast.errors import InputError
from holdfast.validation import check_name

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest


T = TypeVar("T")
AWAY: Final = object()
"""Yielded by a generator whose next steps read files or count long: from there on they run in a thread, so that no loop waits for them."""


class Pause(NamedTuple):
    """Yielded by a generator that wants to wait."""

    seconds: float


def drive(work: Generator[Any, Any, T], do: Callable[[Any], Any]) -> T:
    """Run the generator to its end. What `do` raises is thrown into it, so that its `except` and `finally` hold here too."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        ended, want = _next(step, value)
        if ended:
            return want  # type: ignore[no-any-return]  # the generator's declared result
        try:
            if isinstance(want, Pause):
                time.sleep(want.seconds)
            step, value = work.send, do(want) if want is not AWAY and not isinstance(want, Pause) else None
        except BaseException as error:  # noqa: BLE001 - cancellation goes through the generator as well, and comes out of it again
            step, value = work.throw, error


async def adrive(work: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]]) -> T:
    """As `drive`, awaiting what is wanted."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    away = False
    while True:
        ended, want = await asyncio.to_thread(_next, step, value) if away else _next(step, value)
        if ended:
            return want  # type: ignore[no-any-return]  # the generator's declared result
        away = away or want is AWAY
        try:
            done = None if want is AWAY else await (asyncio.sleep(want.seconds) if isinstance(want, Pause) else do(want))
            step, value = work.send, done
        except BaseException as error:  # noqa: BLE001 - as above
            step, value = work.throw, error
            away = away and isinstance(error, Exception)  # who cancels does not wait for a thread


def _next(step: Callable[[Any], Any], value: Any) -> tuple[bool, Any]:
    """Whether the generator has ended, and its result or what it wants: a StopIteration cannot leave a thread."""
    try:
        return False, step(value)
    except StopIteration as stop:
        return True, stop.value


class AroundModelCall(AgentMiddleware[Any, Any, Any]):
    """A middleware around each model call, by one generator: `response = yield request`."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Yield the request to ask the model with, once or not at all, and return the response."""
        raise NotImplementedError

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        return drive(self.around_model(request), handler)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> Any:
        return await adrive(self.around_model(request), handler)


class AroundToolCall(AgentMiddleware[Any, Any, Any]):
    """A middleware around each tool call, by one generator: `result = yield request`."""

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Yield the request to run the tool with, once or not at all, and return the result."""
        raise NotImplementedError

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        return drive(self.around_tool(request), handler)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        return await adrive(self.around_tool(request), handler)


_SNAPSHOT = 25
"""Updates between two whole copies of the messages: a thread is read from at most so many pieces, and older ones can go."""
_IMAGES = 50
_OWN_ID = 16  # characters
_REMEMBERED = 10_000  # conversations without a thread that were compacted


@dataclass(frozen=True)
class RunContext:
    """For whom a run works: the account it is charged to, and whose files its tools see."""

    session: str | None = None
    run: str | None = None
    subagent: str | None = None
    files: str | None = None
    """The thread whose folder the tools work in; a sub-agent works in its parent's."""


def thread_of(running: Any) -> str | None:
    """The id of the thread that runs: from the runtime of a tool or a hook, or from a RunnableConfig. None for a run without one."""
    config = running if isinstance(running, Mapping) else getattr(running, "config", None) or {}
    info = getattr(running, "execution_info", None)  # hooks have no config
    thread = (config.get("configurable") or {}).get("thread_id") or getattr(info, "thread_id", None)
    return str(thread) if thread else None


_begun: OrderedDict[str, str] = OrderedDict()
_at_hand: ContextVar[str | None] = ContextVar("conversation", default=None)
_guard = threading.Lock()


def conversation_of(running: Any, messages: Sequence[Any]) -> str:
    """The thread that runs; for a run without one a name that no other conversation has, found again by its first message.

    So calls without a `thread_id` never share what they said. A message without an id is nobody's beginning.
    """
    named = thread_of(running)
    if named is not None:
        return named
    beginning = _beginning(messages)
    if beginning is None:
        return RandomIds().new("thread")
    with _guard:
        return _begun.get(beginning) or f"thread-{beginning}"


def conversation_of_call(request: ModelRequest[Any] | ToolCallRequest) -> str:
    """The conversation that calls a model or a tool: by what is kept of it, not by what a middleware put into the request."""
    state: Any = request.state
    messages = (
        state.get("messages", ()) if isinstance(state, Mapping) else state if isinstance(state, list) else getattr(state, "messages", ())
    )
    return conversation_of(request.runtime, messages or getattr(request, "messages", ()))


def goes_on_with(messages: Sequence[Any], running: Any, thread: str) -> None:
    """A conversation begins with other messages from now on: it was compacted. For runs without a thread."""
    beginning = _beginning(messages)
    if thread_of(running) is None and beginning is not None:
        with _guard:
            _begun[beginning] = thread
            if len(_begun) > _REMEMBERED:
                _begun.popitem(last=False)


@contextmanager
def at_hand(thread: str) -> Iterator[None]:
    """The conversation that tools are called for, inside the `with`."""
    token = _at_hand.set(thread)
    try:
        yield
    finally:
        _at_hand.reset(token)


def conversation_at_hand() -> str | None:
    """The conversation that a tool is called for; None outside of a call."""
    return _at_hand.get()


def _beginning(messages: Sequence[Any]) -> str | None:
    """What the first message is known by: an id of its own, or a short one, which others may have as well, with its words."""
    first = messages[0] if messages else None
    id = getattr(first, "id", None)
    if first is None or not id:
        return None
    known = id if len(id) >= _OWN_ID else f"{id}\0{text_of(first)}"
    return blake2b(known.encode(errors="surrogatepass"), digest_size=12).hexdigest()


@dataclass(frozen=True)
class RequestSettings:
    """What a request says about itself, in `configurable` or in LangGraph's `context`: which agent, which model, and so on.

    None means: as the agent was made.
    """

    agent_name: str | None = None
    model_name: str | None = None
    thinking_enabled: bool | None = None
    subagent_enabled: bool | None = None

    @classmethod
    def read(cls, config: Mapping[str, Any] | None, context: object = None) -> RequestSettings:
        """From a RunnableConfig and a context (a mapping or an object), which counts for more. InputError for a value that does not fit."""
        said = dict((config or {}).get("configurable") or {})
        for key in (one.name for one in fields(cls)):
            value = context.get(key) if isinstance(context, Mapping) else getattr(context, key, None)
            said[key] = said.get(key) if value is None else value
            if said[key] is not None and key.endswith("_enabled") and not isinstance(said[key], bool):
                raise InputError(f"{said[key]!r} is not a usable {key}.", hint="Give true or false.")
        name, model = said["agent_name"], said["model_name"]
        if model is not None and not isinstance(model, str):
            raise InputError(f"{model!r} is not a usable model_name.", hint="Give the name of a model in `models:` of config.yaml.")
        checked = check_name(name, "agent name") if name is not None else None
        return cls(checked, model, said["thinking_enabled"], said["subagent_enabled"])

    @classmethod
    def current(cls, runtime: Any = None) -> RequestSettings:
        """Of the request that is under way; empty outside of a run."""
        try:
            config: Mapping[str, Any] = get_config()
        except RuntimeError:  # nothing runs
            config = {}
        return cls.read(config, getattr(runtime, "context", None))


def files_thread(runtime: Any) -> str | None:
    """The thread whose files a tool works on: the parent's in a sub-agent, else the one that it runs in."""
    context = getattr(runtime, "context", None)
    if isinstance(context, RunContext) and context.files:
        return context.files
    return thread_of(runtime)


def merge_artifacts(known: Sequence[str] | None, new: Sequence[str] | None) -> list[str]:
    """All of them in the order in which they came, each once.

    >>> merge_artifacts(["a", "b"], ["b", "c", "c"])
    ['a', 'b', 'c']
    """
    return list(dict.fromkeys([*(known or ()), *(new or ())]))


def merge_images(known: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> dict[str, Any]:
    """Images by path, the newest look at each, and of the oldest no more than fit."""
    if new is not None and not new:
        return {}  # an empty mapping means that they have been seen
    merged = {**(known or {}), **(new or {})}
    return dict(list(merged.items())[-_IMAGES:])


class LeadState(ThreadState):
    """The state of a conversation of ours."""

    messages: Annotated[list[AnyMessage], DeltaChannel(merge_messages, snapshot_frequency=_SNAPSHOT)]
    artifacts: NotRequired[Annotated[list[str], merge_artifacts]]
    viewed_images: NotRequired[Annotated[dict[str, Any], merge_images]]
    title: NotRequired[str]


class ThreadDataMiddleware(AroundToolCall):
    """Gives a thread its channels, and takes up the files that a tool made: those in `ToolMessage(..., artifact={"artifacts": [...]})`.

    The messages channel itself is set by `create_agent(state_schema=LeadState)`.
    """

    state_schema = LeadState

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool and note its files."""
        result = yield request
        made = result.artifact.get("artifacts") if isinstance(result, ToolMessage) and isinstance(result.artifact, Mapping) else None
        return Command(update={"messages": [result], "artifacts": [str(path) for path in made]}) if made else result


class LangChainMessages:
    """Makes LangChain messages. What it changes is a copy: message objects are never edited in place."""

    def summary(self, text: str, *, id: str, role: Literal["human", "system"], marks: Mapping[str, Any]) -> BaseMessage:
        kind = HumanMessage if role == "human" else SystemMessage
        return kind(content=text, id=id, additional_kwargs={MARK: dict(marks), "lc_source": "summarization"})

    def result(self, text: str, *, id: str, call: str, name: str) -> BaseMessage:
        return ToolMessage(
            content=text, id=id, tool_call_id=call, name=name or None, status="error", additional_kwargs={MARK: {"repaired": True}}
        )

    def with_text(self, message: Any, text: str, *, marks: Mapping[str, Any]) -> BaseMessage:
        extras = {**message.additional_kwargs, MARK: {**marks_of(message), **marks}}
        changed: BaseMessage = message.model_copy(update={"content": _content(message.content, text), "additional_kwargs": extras})
        return changed

    def with_id(self, message: Any, id: str) -> BaseMessage:
        copied: BaseMessage = message.model_copy(update={"id": id})
        return copied

    def with_sound_calls(self, message: Any) -> BaseMessage:
        calls = {name: [sound_call(call) for call in getattr(message, name)] for name in ("tool_calls", "invalid_tool_calls")}
        mended: BaseMessage = message.model_copy(update=calls)
        return mended


def _content(content: Any, text: str) -> Any:
    """The content with its text replaced. Reasoning and tool-call blocks of an assistant stay: a provider refuses a call without them."""
    if isinstance(content, str):
        return text
    kept = [
        block
        for block in content
        if isinstance(block, Mapping) and block.get("type") in ("thinking", "redacted_thinking", "reasoning", "tool_use")
    ]
    return [*kept, {"type": "text", "text": text}] if kept else text


def with_reminder(message: BaseMessage, reminder: str, marks: Mapping[str, Any]) -> BaseMessage:
    """A copy with a text of Holdfast's own (`as_reminder`) and these marks: before what a user says, after what a tool gave (S19)."""
    content: Any = message.content
    if isinstance(message, ToolMessage):
        content = f"{content}\n\n{reminder}" if isinstance(content, str) else [*content, {"type": "text", "text": reminder}]
    else:
        said = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [{"type": "text", "text": reminder}, *said]
    extras = {**message.additional_kwargs, MARK: {**marks_of(message), **marks}}
    return message.model_copy(update={"content": content, "additional_kwargs": extras})


class PlainTextMiddleware(AroundModelCall):
    """Sends what somebody wrote as plain text as plain text, also where a reminder rides on it. Innermost.

    In the state the two are parts of the message, so that nothing a person writes can pass for a reminder; simple servers know no parts.
    """

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask with each reminder and the words under it as one text."""
        return (yield request.override(messages=[_joined(message) for message in request.messages]))


def _joined(message: BaseMessage) -> Any:
    content: Any = message.content
    if isinstance(content, str) or marks_of(message).keys().isdisjoint(("reminded", "recalled")):
        return message
    if not all(isinstance(part, Mapping) and part.keys() == {"type", "text"} and part["type"] == "text" for part in content):
        return message  # pictures, and what else has no form as text
    return message.model_copy(update={"content": "\n\n".join(part["text"] for part in content)})


def system_with(system: SystemMessage | None, block: str) -> SystemMessage | None:
    """The system message with a block after it."""
    if not block or system is None:
        return SystemMessage(block) if block else system
    content = system.content
    joined: Any = f"{content}\n\n{block}" if isinstance(content, str) else [*content, {"type": "text", "text": block}]
    return system.model_copy(update={"content": joined})
