"""What a thread has besides its messages: artifacts, viewed images, a title, why it ended, what a request asks for (A3, A5, S16, M3).

The first middleware of an agent. It adds nothing to a model call; it gives the thread its channels, and the run its account.

A middleware is written once for sync and async: the work is a generator that yields what it wants done (`AroundModelCall`,
`AroundToolCall`), and one of two loops does it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypeVar

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langchain_core.messages import AnyMessage, ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.config import get_config
from langgraph.types import Command

from holdfast.agents.checkpoints import ThreadState, merge_messages
from holdfast.errors import InputError
from holdfast.ids import check_name

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest


T = TypeVar("T")


def drive(work: Generator[Any, Any, T], do: Callable[[Any], Any]) -> T:
    """Run the generator to its end. What `do` raises is thrown into it, so that its `except` and `finally` hold here too."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            want = step(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the generator's declared result
        try:
            step, value = work.send, do(want)
        except BaseException as error:  # noqa: BLE001 - cancellation goes through the generator as well, and comes out of it again
            step, value = work.throw, error


async def adrive(work: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]], *, away: bool = False) -> T:
    """As `drive`, awaiting what is wanted. `away`: the generator's own steps run in a thread, for one that reads files or counts long."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        ended, want = await asyncio.to_thread(_next, step, value) if away else _next(step, value)
        if ended:
            return want  # type: ignore[no-any-return]  # the generator's declared result
        try:
            step, value = work.send, await do(want)
        except BaseException as error:  # noqa: BLE001 - as above
            step, value = work.throw, error


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
        name, model = said["agent_name"], said["model_name"]
        if model is not None and not isinstance(model, str):
            raise InputError(f"{model!r} is not a usable model_name.", hint="Give the name of a model in `models:` of config.yaml.")
        return cls(check_name(name, "agent name") if name is not None else None, model, *(_flag(said, name) for name in _FLAGS))

    @classmethod
    def current(cls, runtime: Any = None) -> RequestSettings:
        """Of the request that is under way; empty outside of a run."""
        try:
            config: Mapping[str, Any] = get_config()
        except RuntimeError:  # nothing runs
            config = {}
        return cls.read(config, getattr(runtime, "context", None))


_FLAGS = ("thinking_enabled", "subagent_enabled")


def _flag(said: Mapping[str, Any], name: str) -> bool | None:
    value = said.get(name)
    if value is not None and not isinstance(value, bool):
        raise InputError(f"{value!r} is not a usable {name}.", hint="Give true or false.")
    return value


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
        return _noted((yield request))


def _noted(result: Any) -> Any:
    made = result.artifact.get("artifacts") if isinstance(result, ToolMessage) and isinstance(result.artifact, Mapping) else None
    if not made:
        return result
    return Command(update={"messages": [result], "artifacts": [str(path) for path in made]})
