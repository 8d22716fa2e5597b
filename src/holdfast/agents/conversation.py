"""A conversation with a model: send a message, watch the turn, stop it, go on tomorrow (A13, A14, S17). Start reading here.

    with holdfast.build() as harness:
        talk = harness.conversation("thread-1")
        for event in talk.send("What is in the report?"):
            ...

One message, in the order of things:

1. `send` hands `_turn` to the `TurnRunner` (turn.py), which takes the thread's lock and runs it on the agents' loop.
2. `_turn` notes the thread, adds what an interrupted step had left behind, and streams the agent's graph. The graph is LangChain's
   `create_agent`; what surrounds each model call and each tool call is the list of middlewares in `agent_loop.py`.
3. `TurnReader` (turn.py) makes events of the stream. They reach the caller as they come; everything up to the last finished step is on
   disk, and what was half said when the turn was cancelled is kept too.
4. After the first exchange the thread gets a title, and a better one when the light model has written it.

What is learned about the user is queued by the memory middleware and worked on by memory's own thread, which the middleware starts.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.errors import GraphRecursionError
from langgraph.types import Command, Overwrite

from holdfast.agents.middleware.base import RunContext
from holdfast.agents.middleware.tool_calls import answer_of, approval_of
from holdfast.agents.threads import branch, transcript
from holdfast.agents.turn import TurnReader, TurnRunner
from holdfast.context.view import MARK
from holdfast.errors import InputError
from holdfast.events import within
from holdfast.models.abilities import model_name_of
from holdfast.talk import Approval, Content, Decision, Ended, Reason, ThreadInfo, TurnEvent, marks_of_origin
from holdfast.tokens.windows import find_window
from holdfast.tracing import span
from holdfast.validation import check_kind, check_thread, thread_folder

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent
    from holdfast.agents.tools.toolset import ThreadSandboxes
    from holdfast.context.call_log import Manifest
    from holdfast.context.records import MessageRecord
    from holdfast.context.window import Prepared
    from holdfast.memory.service import MemoryService
    from holdfast.sandbox.uploads import Upload


MOST_CALLS = 200
"""Model calls of one turn after which it is stopped, whatever it does."""
_CARRIED = ("artifacts", "todos", "viewed_images")
_NOT_APPROVED = "Not run: the user wrote a new message instead of approving this."
_REASONS: tuple[Reason, ...] = ("clarification", "cut", "empty", "filtered", "loop", "bad_calls")
"""What the last answer of a turn may say of its end."""
_Given = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the input of a turn, once the turn may run."""


class Conversation:
    """One thread of an agent. One turn at a time: a second one, in this process or another, is refused with `Locked`."""

    def __init__(
        self, agent: LeadAgent, thread: str | None = None, *, owns_agent: bool = False, request: Mapping[str, Any] | None = None
    ) -> None:
        """`request` is what its turns ask for beside what the agent has: `model_name`, `thinking_enabled`, `subagent_enabled` (M3)."""
        self.agent, self._owns_agent = agent, owns_agent
        self.agent_name, self.verbatim = agent.name, False
        parts = self._parts = agent.parts
        self.thread = check_thread(thread) if thread is not None else parts.ids.new("thread")
        self._graph, self._base = agent.graph, parts.config.base
        self._turns = TurnRunner(self.thread, self._base / "threads" / thread_folder(self.thread), parts.loop, disk=parts.disk)
        self.new_run: Callable[[], str] = partial(parts.ids.new, "run")
        self._request = dict(request or {})
        self._titling: Future[None] | None = None
        self._has_title = False

    @property
    def config(self) -> dict[str, Any]:
        """LangGraph's settings for this thread."""
        return {"configurable": {**self._request, "thread_id": self.thread}, "recursion_limit": 2 * MOST_CALLS + 1}

    # talking

    def send(self, text: Content, *, pasted: bool = False, typed: int = 0) -> Iterator[TurnEvent]:
        """Say something, and iterate over what happens until the turn ends. Leaving the loop early cancels the turn."""
        return self._turns.watch(partial(self._turn, self._new_message(text, marks_of_origin(pasted, typed))))

    def asend(self, text: Content) -> AsyncIterator[TurnEvent]:
        """As `send`, for async callers."""
        return self._turns.awatch(partial(self._turn, self._new_message(text)))

    def acontinue(self, messages: Sequence[AnyMessage], *, begin: Callable[[], None] | None = None) -> AsyncIterator[TurnEvent]:
        """As `asend`, with messages in LangChain's form: results of tools that a client ran, or a history that it brings.

        `begin` is called inside of the turn, before the model is asked: context variables that it sets hold for the turn alone.
        """
        if not messages:
            raise InputError("there is no new message.", hint="Send one of the user, or the result of a tool.")

        async def given() -> dict[str, Any]:
            if begin is not None:
                begin()
            return await self._with_leftovers(messages)

        return self._turns.awatch(partial(self._turn, given))

    def ask(self, text: str) -> str:
        """Say something and wait for the answer."""
        return "".join(event.text for event in self.send(text) if isinstance(event, Ended))

    def decide(self, decisions: Mapping[str, Decision] | Decision) -> Iterator[TurnEvent]:
        """Go on after `ApprovalNeeded`: a decision for each waiting call by its id, or one for all of them."""
        return self._turns.watch(partial(self._turn, lambda: self._decided(decisions)))

    def adecide(self, decisions: Mapping[str, Decision] | Decision) -> AsyncIterator[TurnEvent]:
        """As `decide`, for async callers."""
        return self._turns.awatch(partial(self._turn, lambda: self._decided(decisions)))

    def resume(self) -> Iterator[TurnEvent]:
        """Go on with a turn that was broken off. A call that had not finished runs again."""
        return self._turns.watch(partial(self._turn, _nothing_new))

    def aresume(self) -> AsyncIterator[TurnEvent]:
        """As `resume`, for async callers."""
        return self._turns.awatch(partial(self._turn, _nothing_new))

    def cancel(self) -> None:
        """Stop the turn that is under way, at once, with its sub-agents. What was done and said stays."""
        self._turns.cancel()

    # looking

    @property
    def described(self) -> str:
        """With whom one talks, in a few words."""
        return f"{self.agent_name or 'the lead agent'} with {model_name_of(self.agent.model)}"

    @property
    def memory(self) -> MemoryService:
        """What is known about the user."""
        return self._parts.memory

    @property
    def state(self) -> dict[str, Any]:
        """What the agent knows of the thread now: `messages` (those in the window), `artifacts`, `todos`, `title`."""
        values: dict[str, Any] = self._graph.get_state(self.config).values
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
        self._parts.threads.note(self.thread, agent=self.agent_name)
        self._parts.threads.set_title(self.thread, title)

    def wait_for_title(self, timeout: float | None = None) -> str:
        """The title, after the light model has had its say. A program that ends at once would not hear it otherwise."""
        if self._titling is not None:
            with suppress(TimeoutError):
                self._titling.result(timeout)
        return self.title

    @property
    def interrupted(self) -> bool:
        """Whether a turn was broken off, or waits for an approval."""
        return bool(self._graph.get_state(self.config).next)

    def approvals(self) -> tuple[Approval, ...]:
        """The calls that wait for a person."""
        found = self._graph.get_state(self.config).interrupts
        return tuple(one for raised in found if (one := approval_of(raised.id, raised.value)) is not None)

    def sent(self) -> Manifest | None:
        """What the last request of this process held, by origin; None before the first."""
        return self.agent.assembled.summarization.manifest(self.thread)

    @property
    def window(self) -> int:
        """The model's window in tokens."""
        return find_window(self.agent.model, bus=self._parts.bus).tokens

    def threads(self) -> list[ThreadInfo]:
        """All conversations, the one that was used last first."""
        return self._parts.threads.all()

    def subagents(self) -> Mapping[str, str]:
        """The kinds of sub-agents that it can start, each with its description."""
        return {kind.name: kind.description for kind in self.agent.registry.values()}

    # changing

    def compact(self, *, force: bool = True, keep: Any = None) -> Prepared:
        """Shorten the thread now (S17). `keep` is an amount such as ("messages", 5); without `force` only if a trigger is met."""
        with self._turns.alone():
            return self.agent.assembled.summarization.compact_thread(
                self._graph, self.thread, model=self.agent.model, force=force, keep=keep
            )

    def branch(self, at: str | None = None, *, thread: str | None = None) -> Conversation:
        """A new conversation that begins as this one, up to and including a message (by its id, or `#12`); without one, as it is now."""
        return self.other(branch(self.agent, self.thread, at=at, into=thread))

    def other(self, thread: str | None = None) -> Conversation:
        """Another conversation with the same agent: a new one, or the one of this thread. It lives as long as this one's agent."""
        return Conversation(self.agent, thread)

    def upload(self, paths: Sequence[Path]) -> Sequence[Upload]:
        """Copy files into the thread's uploads, office formats also as Markdown. InputError, before anything is copied, for a wrong one."""
        from holdfast.sandbox.uploads import MarkItDown, Uploads

        with self._places().named(self.thread) as sandbox:
            most = self._parts.config.server.max_upload_bytes
            return Uploads(self.thread, sandbox.files, base=self._base, converter=MarkItDown(), most_bytes=most).take_all(paths)

    def files(self) -> str:
        """The files of the thread, as a tree for a person."""
        with self._places().named(self.thread) as sandbox:
            return sandbox.files.ls("/mnt/user-data", depth=3).text

    def _places(self) -> ThreadSandboxes:
        if self.agent.places is None:
            raise InputError("this agent has no files.")
        return self.agent.places

    def close(self) -> None:
        """Stop a turn that is under way; the agent is closed too if it was made for this conversation."""
        self.cancel()
        if self._owns_agent:
            self.agent.close()

    # how a turn runs

    async def _turn(self, given: _Given, tell: Callable[[TurnEvent], None]) -> Ended:
        run = self.new_run()
        with within(thread=self.thread, run=run, agent=self.agent_name), span("invoke_agent", self.agent_name or "lead", "AGENT") as traced:
            ended = await self._run(run, given, tell)
            traced.set({"gen_ai.agent.name": self.agent_name or "lead", "holdfast.reason": ended.reason})
        return ended

    async def _run(self, run: str, given: _Given, tell: Callable[[TurnEvent], None]) -> Ended:
        reader = TurnReader()
        reason: Reason | None = None
        try:
            await asyncio.to_thread(self._parts.threads.note, self.thread, agent=self.agent_name)  # it is in the list from now on
            steps = self._graph.astream(
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
            said: Reason = next((one for one in _REASONS if one == reader.ended), "completed")
            reason = "approval" if reader.approvals else said
        if not self._has_title:
            await asyncio.shield(asyncio.to_thread(self._give_title, reader.said))
        tokens = self._parts.accounts.used_in(self.thread, run)
        return Ended(reason, reader.partial or reader.said, tuple(reader.artifacts), tokens, run)

    def _new_message(self, text: Content, origin: Mapping[str, Any] | None = None) -> _Given:
        check_kind("text", text, (str, list, tuple), "text, or a list of blocks in LangChain's form")
        content: Any = text if isinstance(text, str) else [dict(block) for block in text]
        if not content or (isinstance(content, str) and not content.strip()):
            raise InputError("there is nothing in the message.", hint="Write at least one word.")
        marks = {MARK: dict(origin)} if origin else {}
        return lambda: self._with_leftovers([HumanMessage(content, id=self._parts.ids.new("message"), additional_kwargs=marks)])

    async def following(self, new: Sequence[AnyMessage]) -> dict[str, Any]:
        """The input for new messages, for whoever streams the graph: a call that waits for a yes is answered with a no by them."""
        return await self._with_leftovers(new)

    async def _with_leftovers(self, new: Sequence[AnyMessage]) -> dict[str, Any]:
        """The input for new messages. What an interrupted step had finished is carried over: LangGraph would drop it."""
        found = await self._parts.checkpoints.aget_tuple(self.config)  # type: ignore[arg-type]  # the usual settings
        if found is None or not found.pending_writes:
            return {"messages": list(new)}
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
        for raised in (await self._graph.aget_state(self.config)).interrupts:
            waiting = approval_of(raised.id, raised.value)
            if waiting is not None and waiting.call not in answered:
                leftovers.append(ToolMessage(_NOT_APPROVED, tool_call_id=waiting.call, name=waiting.tool, status="error"))
        messages: Any = [*leftovers, *new]
        return {**values, "messages": messages if base is None else Overwrite([*base, *messages])}

    async def _decided(self, decisions: Mapping[str, Decision] | Decision) -> Command[Any]:
        waiting = [raised.id for raised in (await self._graph.aget_state(self.config)).interrupts]
        if not waiting:
            raise InputError("no call waits for a decision.")
        chosen = dict.fromkeys(waiting, decisions) if isinstance(decisions, Decision) else dict(decisions)
        for id in chosen:
            if id not in waiting:
                raise InputError(f"no call {id!r} waits for a decision.", hint=f"These do: {', '.join(waiting)}.")
        return Command(resume={id: answer_of(decision) for id, decision in chosen.items()})

    async def _keep_partial(self, text: str) -> None:
        """What was half said when the turn was cancelled is part of the conversation."""
        if not text.strip():
            return
        said = AIMessage(text, id=self._parts.ids.new("message"), additional_kwargs={MARK: {"ended": "cancelled"}})
        await self._graph.aupdate_state(self.config, {"messages": [said]}, as_node="model")

    def _give_title(self, answer: str) -> None:
        """After the first exchange: the extracted title at once, a better one when the light model has written it."""
        known = self._parts.threads.find(self.thread)
        if known is None or known.title or not self._parts.config.title.enabled:
            self._has_title = known is not None
            return
        title = self.state.get("title")
        if not title:
            return
        self._parts.threads.set_title(self.thread, title, "extract")
        self._has_title = True
        first = next((message.text for message in self.messages if isinstance(message, HumanMessage)), "")
        if self._parts.titles.model is not None:
            self._titling = self._parts.loop.submit(self._better_title(first, answer))

    async def _better_title(self, question: str, answer: str) -> None:
        with suppress(Exception):  # a title is not worth an error: the extracted one stands
            async with asyncio.timeout(60):
                written = await self._parts.titles.written(question, answer)
            if written:
                await asyncio.to_thread(self._parts.threads.set_title, self.thread, written, "model")


async def _nothing_new() -> None:
    return None
