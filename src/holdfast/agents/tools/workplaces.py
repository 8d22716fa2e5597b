"""Where a tool works: the sandbox of the thread it is called in, opened when it is needed and closed when many others came after it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from holdfast.agents.middleware.thread_data import files_thread
from holdfast.errors import HoldfastError, InputError
from holdfast.sandbox.commands import Sandbox

_OPEN = 32  # an idle one holds three descriptors

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass
class _Held:
    sandbox: Sandbox
    users: int = 0


class Workplaces:
    """The sandboxes of an agent's threads. Safe for many threads; one that is in use is never closed."""

    def __init__(self, open_sandbox: Callable[[str], Sandbox]) -> None:
        self._open = open_sandbox
        self._lock = threading.Lock()
        self._held: OrderedDict[str, _Held] = OrderedDict()

    @contextmanager
    def of(self, runtime: Any) -> Iterator[Sandbox]:
        """The sandbox for a call: that of its thread, or of the parent's thread in a sub-agent."""
        with self.named(files_thread(runtime) or "default") as sandbox:
            yield sandbox

    @contextmanager
    def named(self, thread: str) -> Iterator[Sandbox]:
        """The sandbox of a thread, held open while the block runs."""
        with self._lock:
            held = self._held.get(thread)
            if held is None:
                held = self._held[thread] = _Held(self._open(thread))
            self._held.move_to_end(thread)
            held.users += 1
        try:
            yield held.sandbox
        finally:
            with self._lock:
                held.users -= 1
                idle = [name for name, one in self._held.items() if one.users == 0]
                gone = [self._held.pop(name) for name in idle[: max(0, len(self._held) - _OPEN)]]
            for one in gone:
                one.sandbox.close()

    def close(self) -> None:
        """Close them all. What is running is stopped."""
        with self._lock:
            gone, self._held = list(self._held.values()), OrderedDict()
        for one in gone:
            one.sandbox.close()


def tool_of(function: Callable[..., Any], *, name: str | None = None, coroutine: Callable[..., Any] | None = None) -> BaseTool:
    """A tool from a function. An error of ours becomes a result that the model reads, also where no middleware of ours is around it."""
    return StructuredTool.from_function(
        _told(function), coroutine=_told_later(coroutine) if coroutine else None, name=name or function.__name__, handle_tool_error=True
    )


def _told(function: Callable[_P, _R]) -> Callable[_P, _R]:
    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except HoldfastError as error:
            raise ToolException(_words(error)) from error

    return call


def _told_later(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    async def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return await function(*args, **kwargs)
        except HoldfastError as error:
            raise ToolException(_words(error)) from error

    return call


def _words(error: HoldfastError) -> str:
    return f"Error: {error}" if isinstance(error, InputError) else f"Error: {type(error).__name__}: {error}"
