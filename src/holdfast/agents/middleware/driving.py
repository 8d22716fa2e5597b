"""One source for sync and async: the work is a generator that yields what it wants done, and one of two shells does it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

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


async def adrive(work: Generator[Any, Any, T], do: Callable[[Any], Awaitable[Any]]) -> T:
    """The same, awaiting what is wanted."""
    step: Callable[[Any], Any] = work.send
    value: Any = None
    while True:
        try:
            want = step(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]  # the generator's declared result
        try:
            step, value = work.send, await do(want)
        except BaseException as error:  # noqa: BLE001 - as above
            step, value = work.throw, error
