"""A conversation: send a message, watch the turn, stop it, go on tomorrow (A13, A14, S17).

    talk = agent.conversation("thread-1")
    for event in talk.send("What is in the report?"):
        ...

Sync and async callers get the same events. A turn runs on the agents' own loop, so that `cancel` stops it at once whoever waits for it;
everything up to the last finished step is on disk, and so is what was half said.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, Overwrite

from holdfast.agents.branching import branch, transcript
from holdfast.agents.middleware.approval import Approval, Decision
from holdfast.agents.middleware.thread_data import RunContext
from holdfast.agents.turn_events import Ended, Reason, TurnEvent
from holdfast.agents.turn_reader import TurnReader
from holdfast.context.archive import check_thread
from holdfast.context.view import MARK
from holdfast.durable.disk import REAL, make_folders
from holdfast.durable.lock import Lock
from holdfast.errors import InputError, Locked

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent
    from holdfast.context.records import MessageRecord
    from holdfast.context.window import Prepared

MOST_CALLS = 200
"""Model calls of one turn after which it is stopped, whatever it does."""
_END: Final = None
_CARRIED = ("artifacts", "todos", "viewed_images")
_NOT_APPROVED = "Not run: the user wrote a new message instead of approving this."
_REASONS: dict[str | None, Reason] = {"clarification": "clarification", "loop": "loop"}


class Conversation:
    """One thread of an agent. One turn at a time: a second one, in this process or another, is refused with `Locked`."""

    def __init__(self, agent: LeadAgent, thread: str | None = None, *, owns_agent: bool = False) -> None:
        self.agent, self._owns_agent = agent, owns_agent
        self.thread = check_thread(thread) if thread is not None else agent.parts.ids.new("thread")
        self._parts = agent.parts
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._titling: Future[None] | None = None
        self._turn_lock = threading.Lock()

    @property
    def config(self) -> dict[str, Any]:
        """LangGraph's settings for this thread."""
        return {"configurable": {"thread_id": self.thread}, "recursion_limit": 2 * MOST_CALLS + 1}

    # talking

    def send(self, text: str | Sequence[Mapping[str, Any]]) -> Iterator[TurnEvent]:
        """Say something, and iterate over what happens until the turn ends. Leaving the loop early cancels the turn."""
        return self._watched(self._new_message(text))

    def asend(self, text: str | Sequence[Mapping[str, Any]]) -> AsyncIterator[TurnEvent]:
        """The same for async callers."""
        return self._awatched(self._new_message(text))

    def ask(self, text: str) -> str:
        """Say something and wait for the answer."""
        return self._last(self.send(text))

    def decide(self, decisions: Mapping[str, Decision] | Decision) -> Iterator[TurnEvent]:
        """Go on after `ApprovalNeeded`: a decision for each waiting call by its id, or one for all of them."""
        return self._watched(lambda: self._decided(decisions))

    def adecide(self, decisions: Mapping[str, Decision] | Decision) -> AsyncIterator[TurnEvent]:
        """The same for async callers."""
        return self._awatched(lambda: self._decided(decisions))

    def resume(self) -> Iterator[TurnEvent]:
        """Go on with a turn that was broken off. A call that had not finished runs again."""
        return self._watched(self._nothing_new)

    def aresume(self) -> AsyncIterator[TurnEvent]:
        """The same for async callers."""
        return self._awatched(self._nothing_new)

    def cancel(self) -> None:
        """Stop the turn that is under way, at once, with its sub-agents. What was done and said stays."""
        self._stopped = True  # for a turn that was begun and is not running yet
        if (task := self._task) is not None:
            with suppress(RuntimeError):  # the loop is closed: nothing runs any more
                self._parts.loop.loop.call_soon_threadsafe(task.cancel)

    # looking

    @property
    def state(self) -> dict[str, Any]:
        """What the agent knows of the thread now: `messages` (those in the window), `artifacts`, `todos`, `title`."""
        values: dict[str, Any] = self.agent.graph.get_state(self.config).values
        return values

    @property
    def messages(self) -> list[AnyMessage]:
        """The messages in the window."""
        return list(self.state.get("messages", ()))

    def history(self) -> list[MessageRecord]:
        """Everything that was ever said, in its order: the archive and what is still in the window."""
        return transcript(self._parts.archive, self.thread, self.messages)

    @property
    def title(self) -> str:
        """The title; empty before the first exchange."""
        known = self._parts.threads.find(self.thread)
        return known.title if known is not None else ""

    @title.setter
    def title(self, title: str) -> None:
        self._parts.threads.note(self.thread, agent=self.agent.name)
        self._parts.threads.entitle(self.thread, title)

    @property
    def interrupted(self) -> bool:
        """Whether a turn was broken off, or waits for an approval."""
        return bool(self.agent.graph.get_state(self.config).next)

    def approvals(self) -> tuple[Approval, ...]:
        """The calls that wait for a person."""
        found = self.agent.graph.get_state(self.config).interrupts
        return tuple(one for raised in found if (one := Approval.read(raised.id, raised.value)) is not None)

    # changing

    def compact(self, *, force: bool = True, keep: Any = None) -> Prepared:
        """Shorten the thread now (S17). `keep` is an amount such as ("messages", 5); without `force` only if a trigger is met."""
        with self._alone():
            return self.agent.assembled.summarization.compact_thread(
                self.agent.graph, self.thread, model=self.agent.model, force=force, keep=keep
            )

    def branch(self, at: str | None = None, *, thread: str | None = None) -> Conversation:
        """A new conversation that begins as this one, up to and including a message (by its id, or `#12`); without one, as it is now."""
        new = branch(self.agent, self.thread, at=at, into=thread)
        return Conversation(self.agent, new)

    def wait_for_title(self, timeout: float | None = None) -> str:
        """The title, after the light model has had its say. A program that ends at once would not hear it otherwise."""
        if self._titling is not None:
            with suppress(TimeoutError):
                self._titling.result(timeout)
        return self.title

    def close(self) -> None:
        """Stop a turn that is under way; the agent is closed too if it was made for this conversation."""
        self.cancel()
        if self._owns_agent:
            self.agent.close()

    # how a turn runs

    def _new_message(self, text: str | Sequence[Mapping[str, Any]]) -> Callable[[], Any]:
        content: Any = text if isinstance(text, str) else [dict(block) for block in text]
        if not content or (isinstance(content, str) and not content.strip()):
            raise InputError("there is nothing in the message.", hint="Write at least one word.")

        async def given() -> dict[str, Any]:
            message = HumanMessage(content, id=self._parts.ids.new("message"))
            return await self._with_leftovers(message)

        return given

    async def _with_leftovers(self, message: HumanMessage) -> dict[str, Any]:
        """The input for a new message. What an interrupted step had finished is carried over: LangGraph would drop it."""
        graph, config = self.agent.graph, self.config
        found = await self._parts.checkpoints.aget_tuple(config)  # type: ignore[arg-type]  # the usual settings
        if found is None or not found.pending_writes:
            return {"messages": [message]}
        leftovers: list[Any] = []
        values: dict[str, Any] = {}
        base: list[Any] | None = None
        for _, channel, value in found.pending_writes:
            if channel == "messages" and isinstance(value, Overwrite):
                base, leftovers = list(value.value), []
            elif channel == "messages":
                leftovers += value if isinstance(value, list) else [value]
            elif channel in _CARRIED:
                values[channel] = value
        answered = {one.tool_call_id for one in leftovers if isinstance(one, ToolMessage)}
        for raised in (await graph.aget_state(config)).interrupts:
            waiting = Approval.read(raised.id, raised.value)
            if waiting is not None and waiting.call not in answered:
                leftovers.append(ToolMessage(_NOT_APPROVED, tool_call_id=waiting.call, name=waiting.tool, status="error"))
        messages: Any = [*leftovers, message]
        return {**values, "messages": messages if base is None else Overwrite([*base, *messages])}

    async def _decided(self, decisions: Mapping[str, Decision] | Decision) -> Command[Any]:
        waiting = [raised.id for raised in (await self.agent.graph.aget_state(self.config)).interrupts]
        if not waiting:
            raise InputError("no call waits for a decision.")
        chosen = dict.fromkeys(waiting, decisions) if isinstance(decisions, Decision) else dict(decisions)
        for id in chosen:
            if id not in waiting:
                raise InputError(f"no call {id!r} waits for a decision.", hint=f"These do: {', '.join(waiting)}.")
        return Command(resume={id: decision.written() for id, decision in chosen.items()})

    async def _nothing_new(self) -> None:
        return None

    async def _turn(self, given: Callable[[], Any], tell: Callable[[TurnEvent], None]) -> None:
        reader, run = TurnReader(), self._parts.ids.new("run")
        reason: Reason | None = None
        try:
            await asyncio.to_thread(self._prepare)
            steps = self.agent.graph.astream(
                await given(),
                self.config,
                context=RunContext(session=self.thread, run=run),
                stream_mode=["messages", "updates", "custom"],
                durability="sync",
            )
            async for mode, part in steps:
                for event in reader.read(mode, part):
                    tell(event)
        except GraphRecursionError:
            reason = "turn_capped"
        except asyncio.CancelledError:
            reason = "cancelled"
            await asyncio.shield(self._keep_partial(reader.partial))
        if reason is None:
            reason = "approval" if reader.approvals else _REASONS.get(reader.ended, "completed")
        await asyncio.shield(asyncio.to_thread(self._entitle, reader.said))
        tokens = self._parts.accounts.used_in(self.thread, run)
        tell(Ended(reason, reader.partial or reader.said, tuple(reader.artifacts), tokens, run))

    def _prepare(self) -> None:
        """The thread is in the list from now on, and what is queued for memory is learned from while the process lives (M8)."""
        self._parts.threads.note(self.thread, agent=self.agent.name)
        self._parts.memory.start(signals=False)

    async def _keep_partial(self, text: str) -> None:
        """What was half said when the turn was cancelled is part of the conversation."""
        if not text.strip():
            return
        said = AIMessage(text, id=self._parts.ids.new("message"), additional_kwargs={MARK: {"ended": "cancelled"}})
        await self.agent.graph.aupdate_state(self.config, {"messages": [said]}, as_node="model")

    def _entitle(self, answer: str) -> None:
        """After the first exchange: the extracted title at once, a better one when the light model has written it."""
        known = self._parts.threads.find(self.thread)
        if known is None or known.title or not self._parts.config.title.enabled:
            return
        title = self.state.get("title")
        if not title:
            return
        self._parts.threads.entitle(self.thread, title, "extract")
        first = next((message.text for message in self.messages if isinstance(message, HumanMessage)), "")
        if self._parts.titles.model is not None:
            self._titling = self._parts.loop.submit(self._better_title(first, answer))

    async def _better_title(self, question: str, answer: str) -> None:
        with suppress(Exception):  # a title is not worth an error: the extracted one stands
            async with asyncio.timeout(60):
                written = await self._parts.titles.written(question, answer)
            if written:
                await asyncio.to_thread(self._parts.threads.entitle, self.thread, written, "model")

    # for callers of both kinds

    def _begin(self, given: Callable[[], Any], put: Callable[[TurnEvent | BaseException | None], None]) -> Future[None]:
        """Start the turn; `put` is called on the loop's thread with every event, an error if there is one, and None at the end."""

        async def work() -> None:
            self._task = asyncio.current_task()
            try:
                if self._stopped and self._task is not None:
                    self._task.cancel()
                await self._turn(given, put)
            except BaseException as error:  # noqa: BLE001 - it is raised where the events are waited for
                put(error)
            finally:
                self._task = None
                lock.release()
                self._turn_lock.release()
                put(_END)

        lock = self._taken()
        self._stopped = False
        try:
            return self._parts.loop.submit(work())
        except BaseException:
            lock.release()
            self._turn_lock.release()
            raise

    def _watched(self, given: Callable[[], Any]) -> Iterator[TurnEvent]:
        events: queue.SimpleQueue[TurnEvent | BaseException | None] = queue.SimpleQueue()
        self._begin(given, events.put)
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

    async def _awatched(self, given: Callable[[], Any]) -> AsyncIterator[TurnEvent]:
        loop = asyncio.get_running_loop()
        events: asyncio.Queue[TurnEvent | BaseException | None] = asyncio.Queue()

        def put(event: TurnEvent | BaseException | None) -> None:
            with suppress(RuntimeError):  # the caller's loop is closed: nobody listens any more
                loop.call_soon_threadsafe(events.put_nowait, event)

        await asyncio.to_thread(self._begin, given, put)
        ended = False
        try:
            while (event := await events.get()) is not _END:
                if isinstance(event, BaseException):
                    raise event
                yield event
            ended = True
        finally:
            if not ended:
                self.cancel()
                while await events.get() is not _END:
                    pass

    def _taken(self) -> Lock:
        """The right to a turn, among the threads of this process and among processes."""
        folder = self._parts.base / "threads" / self.thread
        make_folders(REAL, str(folder))
        lock = Lock(folder / "turn.lock", timeout=0.0)
        if not self._turn_lock.acquire(blocking=False):
            raise Locked(f"a turn of {self.thread} is under way.", path=lock.path, owner="this process", hint="Wait for it, or cancel it.")
        try:
            lock.acquire()
        except BaseException:
            self._turn_lock.release()
            raise
        return lock

    def _alone(self) -> _Alone:
        return _Alone(self)

    @staticmethod
    def _last(events: Iterator[TurnEvent]) -> str:
        text = ""
        for event in events:
            if isinstance(event, Ended):
                text = event.text
        return text


class _Alone:
    """Holds the right to a turn while a block runs."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk

    def __enter__(self) -> None:
        self._lock = self._talk._taken()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        self._talk._turn_lock.release()
