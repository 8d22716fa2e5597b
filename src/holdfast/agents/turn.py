"""One turn of a conversation: `TurnRunner` runs it on the agents' loop for sync and async callers, `TurnReader` makes events of its stream.

A turn holds a lock of its thread, so that a second one is refused, in this process and in others. Whoever waits for it may cancel it, and
who leaves the loop over its events cancels it too: the turn is over before they go on.

Conversations and sub-agents run on one asyncio loop in a thread of its own (`LoopThread`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from holdfast.agents.middleware.tool_calls import approval_of
from holdfast.context.view import marks_of
from holdfast.durable.disk import REAL, Disk, make_folders
from holdfast.durable.lock import Lock
from holdfast.errors import Locked, StorageError
from holdfast.models.failures import ending_of
from holdfast.talk import Approval, ApprovalNeeded, ModelReplaced, Subagent, Token, ToolCalled, ToolFinished, TurnEvent
from holdfast.tracing import bare_context

_END: Final = None
_Put = Callable[[TurnEvent | BaseException | None], None]
Work = Callable[[Callable[[TurnEvent], None]], Coroutine[Any, Any, TurnEvent]]
"""What a turn does: a coroutine function that is given where to tell its events, and returns the last of them."""


class TurnRunner:
    """Runs the turns of one thread, one at a time, on the agents' loop. Safe for many threads."""

    def __init__(self, thread: str, folder: Path, loop: LoopThread, *, disk: Disk = REAL) -> None:
        self._thread, self._folder, self._loop, self._disk = thread, folder, loop, disk
        self._lock = threading.Lock()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def watch(self, work: Work) -> Iterator[TurnEvent]:
        """Run a turn, and iterate over its events until it ends. Leaving the loop early cancels it."""
        events: queue.SimpleQueue[TurnEvent | BaseException | None] = queue.SimpleQueue()
        self._begin(work, events.put)
        ended = False
        try:
            while (event := events.get()) is not _END:
                if isinstance(event, BaseException):
                    raise event
                yield event
            ended = True
        finally:
            if not ended:  # the caller has left, or an error is on its way to them: the turn is over before they go on
                self.cancel()
                while events.get() is not _END:
                    pass

    async def awatch(self, work: Work) -> AsyncIterator[TurnEvent]:
        """As `watch`, for async callers."""
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[TurnEvent | BaseException | None] = asyncio.Queue()

        def put(event: TurnEvent | BaseException | None) -> None:
            with suppress(RuntimeError):  # the caller's loop is closed: nobody listens any more
                loop.call_soon_threadsafe(events.put_nowait, event)

        beginning = asyncio.ensure_future(asyncio.to_thread(self._begin, work, put))
        ended = False
        try:
            await asyncio.shield(beginning)
            while (event := await events.get()) is not _END:
                if isinstance(event, BaseException):
                    raise event
                yield event
            ended = True
        finally:
            if not ended:  # also for a caller who left in the moment in which it began, and who may not be able to wait here
                beginning.add_done_callback(lambda begun: self.cancel() if _came_to_run(begun) else None)
                await asyncio.wait([beginning])
                while _came_to_run(beginning) and await events.get() is not _END:
                    pass

    def cancel(self) -> None:
        """Stop the turn that is under way, at once."""
        self._stopped = True  # for a turn that was begun and is not running yet
        if (task := self._task) is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._loop.loop.call_soon_threadsafe(task.cancel)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Held inside the `with`: no turn runs meanwhile, in any process. Locked if one does."""
        lock = self._acquire()
        try:
            yield
        finally:
            self._release(lock)

    def _begin(self, work: Work, put: _Put) -> None:
        """Start the turn; `put` is called on the loop's thread with every event, an error if there is one, and None at the end.

        The last event, or the error, is told when the thread is free again: whoever hears it may begin the next turn at once.
        """

        async def run() -> None:
            self._task = asyncio.current_task()
            last: TurnEvent | BaseException
            try:
                if self._stopped and self._task is not None:
                    self._task.cancel()
                last = await work(put)
            except BaseException as error:  # noqa: BLE001 - it is raised where the events are waited for
                last = error
            self._task = None
            try:
                self._release(lock)
            finally:
                put(last)
                put(_END)

        lock = self._acquire()
        self._stopped = False
        try:
            self._loop.submit(run())
        except BaseException:
            self._release(lock)
            raise

    def _acquire(self) -> Lock:
        """The right to a turn, among the threads of this process and among processes."""
        make_folders(self._disk, str(self._folder))
        lock = Lock(self._folder / "turn.lock", timeout=0.0)
        if not self._lock.acquire(blocking=False):
            raise Locked(f"a turn of {self._thread} is under way.", path=lock.path, owner="this process", hint="Wait for it, or cancel it.")
        try:
            lock.acquire()
        except BaseException:
            self._lock.release()
            raise
        return lock

    def _release(self, lock: Lock) -> None:
        lock.release()
        self._lock.release()


def _came_to_run(beginning: asyncio.Future[None]) -> bool:
    """Whether a turn whose beginning is over runs, or was refused."""
    return not beginning.cancelled() and beginning.exception() is None


@dataclass
class TurnReader:
    """Makes the events of one turn from what LangGraph streams, in the modes `messages`, `updates` and `custom`.

    Nothing is told twice: an answer that came in tokens is not repeated whole.
    """

    said: str = ""
    """What the model has said since its last tool call."""
    partial: str = ""
    """The part of an answer that is not in the state yet."""
    ended: str | None = None
    approvals: list[Approval] = field(default_factory=list)
    artifacts: list[str] = field(default_factory=list)
    _heard: set[str] = field(default_factory=set)

    def read(self, mode: str, part: Any) -> Iterator[TurnEvent]:
        """The events in one piece of the stream."""
        if mode == "messages":
            yield from self._piece(*part)
        elif mode == "updates":
            yield from self._updates(part)
        elif isinstance(part, ModelReplaced):
            self.partial = ""
            yield part
        elif isinstance(part, Mapping) and str(part.get("type", "")).startswith("task_"):
            yield Subagent(part)

    def _piece(self, message: BaseMessage, about: Mapping[str, Any]) -> Iterator[TurnEvent]:
        if about.get("langgraph_node") != "model" or not isinstance(message, AIMessage):
            return
        whole = not isinstance(message, AIMessageChunk)
        id = str(message.id)
        if whole and id in self._heard:
            return
        self._heard.add(id)
        if text := message.text:
            self.partial += text
            yield Token(text)

    def _updates(self, part: Mapping[str, Any]) -> Iterator[TurnEvent]:
        for node, update in part.items():
            if node == "__interrupt__":
                self.approvals = [one for found in update if (one := approval_of(found.id, found.value)) is not None]
                yield ApprovalNeeded(tuple(self.approvals))
                continue
            for values in update if isinstance(update, list) else [update]:
                if not isinstance(values, Mapping):
                    continue
                self.artifacts += [path for path in values.get("artifacts") or () if path not in self.artifacts]
                messages = values.get("messages")
                for message in messages if isinstance(messages, list) else ():
                    yield from self._message(node, message)

    def _message(self, node: str, message: Any) -> Iterator[TurnEvent]:
        if node == "model" and isinstance(message, AIMessage):
            self.partial = ""
            self.said = message.text
            self.ended = marks_of(message).get("ended") or ending_of(message)
            for call in message.tool_calls:
                yield ToolCalled(str(call["id"]), call["name"], call["args"])
        elif node == "tools" and isinstance(message, ToolMessage):
            yield ToolFinished(message.tool_call_id, str(message.name or ""), message.status, message.text)


T = TypeVar("T")
_LOOP = "holdfast-agents"
_WORKERS = 64  # blocking tools and files of everything that runs on the loop


class WorkerThreads(ThreadPoolExecutor):
    """A pool whose threads keep no process from ending: a tool that never returns is left behind, whoever wrote it.

    Python waits at its end for the threads of its own pool, and `asyncio` takes no other class.
    """

    def __init__(self, most: int, name: str) -> None:
        super().__init__(most, thread_name_prefix=name)  # it starts a thread at the first `submit`, which is ours
        self._most, self._name = most, name
        self._guard = threading.Lock()
        self._waiting: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._made: list[threading.Thread] = []
        self._over = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        with self._guard:
            if self._over:
                raise RuntimeError("the pool takes nothing more")
            self._waiting.put((future, partial(fn, *args, **kwargs)))
            if not self._idle.acquire(blocking=False) and len(self._made) < self._most:
                self._made.append(threading.Thread(target=self._work, name=f"{self._name}-{len(self._made)}", daemon=True))
                self._made[-1].start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._guard:
            self._over = True
            while cancel_futures and not self._waiting.empty():
                if (task := self._waiting.get()) is not None:
                    task[0].cancel()
            for _ in self._made:
                self._waiting.put(None)
        for thread in self._made if wait else ():
            thread.join()

    def _work(self) -> None:
        while True:
            try:
                task = self._waiting.get_nowait()
            except queue.Empty:
                self._idle.release()
                task = self._waiting.get()
            if task is None:
                return
            future, work = task
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:  # noqa: BLE001 - whoever waits for it is told
                    future.set_exception(error)
            del task, future, work  # nothing is kept alive while it waits


class LoopThread:
    """A loop that is started when it is first needed. Close it when done; what still runs is cancelled then."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._closed = False

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._closed:
                raise StorageError.closed("the agent")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._pool = WorkerThreads(_WORKERS, f"{_LOOP}-worker")
                self._loop.set_default_executor(self._pool)
                self._thread = threading.Thread(target=self._loop.run_forever, name=_LOOP, daemon=True)
                self._thread.start()
            return self._loop

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run it on the loop, in a context that holds nothing but the trace. Cancelling what is returned cancels it."""
        try:
            loop = self.loop
        except StorageError:
            work.close()
            raise
        return bare_context().run(asyncio.run_coroutine_threadsafe, work, loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it on the loop and wait. Not to be called from the loop itself."""
        return self.submit(work).result()

    def close(self, timeout: float = 5.0) -> None:
        """Cancel what runs, wait for it for a moment, and stop. A blocking call that does not return is left behind."""
        with self._lock:
            self._closed = True
            loop, thread, pool = self._loop, self._thread, self._pool
            self._loop = self._thread = self._pool = None
        if loop is None or thread is None or pool is None:
            return
        ended = asyncio.run_coroutine_threadsafe(_cancel_all(), loop)
        with suppress(Exception):  # whatever the cancelled ones raise has nobody left to hear it
            ended.result(timeout)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout)
        pool.shutdown(wait=False, cancel_futures=True)
        if not thread.is_alive():
            loop.close()


async def _cancel_all() -> None:
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
