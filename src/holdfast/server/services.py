"""What the routes work with: the harness, agents by name, running turns and sessions, streams. Opened with the server and closed in order.

On the way out: streams are told first, then turns are cancelled (what was half said is kept), then sessions stop at their next commit, then
memory is flushed, then the harness is closed.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

from fastapi import Depends, Request
from fastapi.responses import StreamingResponse

from holdfast.context.call_log import CallLog
from holdfast.context.view import marks_of
from holdfast.durable.disk import make_folders
from holdfast.durable.lock import Lock
from holdfast.errors import HoldfastError, InputError, InTheWay, NotThere, StorageError
from holdfast.events import Event, envelope_of
from holdfast.health import check_writable
from holdfast.sandbox.uploads import MarkItDown, Upload, Uploads, clean_name
from holdfast.server.model_windows import LearnedWindow, ModelWindows
from holdfast.server.runs import MEDIA_TYPE, EventStream, Run, RunningTurns, SessionRuns
from holdfast.server.server_metrics import KnownModel, ServerMetrics, Standing
from holdfast.server.wire import ThreadAddress, model_failure
from holdfast.tokens.accounts import Price
from holdfast.tracing import watch_spans
from holdfast.validation import check_name, check_thread, thread_folder
from holdfast.workers.session_queue import SessionQueue
from holdfast.workers.session_states import seen

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent
    from holdfast.agents.tools.toolset import ThreadSandboxes
    from holdfast.context.records import MessageRecord
    from holdfast.durable.lock import Presence
    from holdfast.harness import Harness
    from holdfast.server.access import Keys
    from holdfast.server.gateway.gateway_core import Gateway
    from holdfast.talk import Decision, Talk, ThreadInfo, TurnEvent
    from holdfast.tokens.messages import Message


_log = logging.getLogger("holdfast.server")
_LOOK_SECONDS = 2.0
"""Between two looks at whether the disk takes anything: anybody may ask, and each look is a write."""
DISPLACED = "The base directory of this server was replaced or removed while it ran."


def known_models(harness: Harness) -> dict[str, KnownModel]:
    """The configured models, by the names that providers have for them."""
    return {
        one.model or one.name: KnownModel(one.max_input_tokens, Price.of(one.pricing) if one.pricing else None)
        for one in harness.config.models
    }


def standing(harness: Harness, taken_over: int = 0) -> list[Standing]:
    """What is there now, for the figures. A store that cannot be read is left out: the doctor tells of it.

    `taken_over` is how many sessions this server took over; how many workers did is in the queue's tables.
    """
    found: list[Standing] = []
    with suppress(HoldfastError):
        memory = harness.memory.status()
        queue = {"waiting": float(memory.waiting), "given_up": float(memory.given_up)}
        found += [
            Standing("memory_facts", "Facts that are known.", "scope", {name: float(count) for name, count in memory.facts.items()}),
            Standing("memory_held", "Facts that wait for review.", "", {"": float(memory.held)}),
            Standing("memory_queue_items", "Conversations to learn from.", "state", queue),
        ]
    with suppress(HoldfastError):
        states = Counter(one.status or "damaged" for one in seen(harness.sessions, harness.sessions.list()))
        found.append(Standing("sessions", "Sessions.", "status", {name: float(count) for name, count in states.items()}))
    with suppress(HoldfastError):
        takeovers = {"server": float(taken_over)}
        queue_there = SessionQueue.find(harness.sessions)
        if queue_there is not None:
            jobs = queue_there.overview()
            counts = {state: float(jobs[state]) for state in ("waiting", "running")}
            found.append(Standing("jobs", "Sessions in the queue for workers.", "state", counts))
            takeovers["workers"] = float(queue_there.takeovers())
        words = "Sessions that were taken over from who had died."
        found.append(Standing("takeovers", words, "by", takeovers, only_grows=True))
    return found


class Services:
    """Everything that a request may need. One for each server."""

    def __init__(self, harness: Harness, keys: Keys, presence: Presence | None = None) -> None:
        self.harness, self.keys = harness, keys
        self._presence, self._told_displaced = presence, False
        self._looking, self._look_again = threading.Lock(), 0.0
        self._unwritable: str | None = None
        self.sessions = SessionRuns(harness)
        self.metrics = ServerMetrics(
            {
                "turns_running": lambda: len(self.turns.running),
                "sessions_running": lambda: len(self.sessions.running),
                "streams_open": lambda: self.streams,
            },
            lambda: standing(harness, self.metrics.taken_over),
            known_models(harness),
        )
        self.turns = RunningTurns(
            harness.ids, harness.clock, self.metrics.dropped, lambda error: model_failure(error, harness.config.models)
        )
        self.streams = 0
        self.stopping = False
        self._everything: EventStream | None = None
        self._leads: dict[str | None, LeadAgent] = {}
        self._gateway: Gateway | None = None
        self._places: ThreadSandboxes | None = None
        self._opening = threading.RLock()
        self._windows = ModelWindows()
        sinks = [harness.bus.subscribe(sink) for sink in (self.metrics, self._windows)]
        self._unsubscribe = [*sinks, watch_spans(self.metrics.finished)]

    def displaced(self) -> bool:
        """Whether the base directory is no longer the one that this server opened. The log has it once."""
        if self._presence is None or not self._presence.displaced():
            return False
        if not self._told_displaced:
            self._told_displaced = True
            _log.error("%s Nothing more is written. Restart the server.", DISPLACED)
        return True

    def write_problem(self) -> str | None:
        """Why nothing can be written to the base directory now, in words without paths; None where it can. Looked at every few seconds."""
        with self._looking:
            now = time.monotonic()
            if now >= self._look_again:
                self._look_again = now + _LOOK_SECONDS
                try:
                    check_writable(self.harness.base, self.harness.disk)
                    self._unwritable = None
                except StorageError as error:
                    self._unwritable = error.public
            return self._unwritable

    def learned_window(self, name: str) -> LearnedWindow | None:
        """How much of the window of a configured model is used now, where it was seen to take less than was said."""
        settings = self.harness.config.model(name)
        return self._windows.of(settings.model or settings.name)

    # streams

    def open(self) -> None:
        """The server's loop runs from here on."""
        self._everything = EventStream(asyncio.get_running_loop(), dropped=self.metrics.dropped)
        self._unsubscribe.append(self.harness.bus.subscribe(_Sink(self._everything)))

    @property
    def everything(self) -> EventStream:
        """All events of this process, for who wants to see them."""
        if self._everything is None:
            raise InputError("the server is not open yet.")
        return self._everything

    def stop_streams(self) -> None:
        """Let all streams end."""
        self.stopping = True
        end = {"v": 1, "kind": "end", "scope": {}, "data": {"reason": "server_stopping"}}
        if self._everything is not None:
            self._everything.publish("end", end, last=True)
        for run in self.turns.running:
            run.stream.publish("end", end, last=True)

    # conversations

    def talk(self, thread: str | None, agent: str | None = None, request: Mapping[str, Any] | None = None) -> Talk:
        """A conversation of an agent, new or where it was left; without a model one that answers by extraction. Close it when done.

        `request` is what its turns ask for beside what the agent has (M3).
        """
        if thread is not None:
            check_thread(thread)
        name = check_name(agent, "agent name") if agent is not None else None
        if not self.harness.talks():
            return self.harness.conversation(thread, agent=name)
        return self.lead(name).conversation(thread, request=request)

    def known_talk(self, thread: str) -> Talk:
        """The conversation of a thread that is there. NotThere for another."""
        return self.talk(thread, self.agent_of(thread))

    def info(self, thread: str) -> ThreadInfo | None:
        """What the list of conversations says of a thread; None where it is not in it."""
        return self.harness.threads.find(thread) if self.harness.has_checkpoints else None

    def agent_of(self, thread: str) -> str | None:
        """Whose conversation it is. NotThere for a thread that nobody knows."""
        check_thread(thread)
        if (info := self.info(thread)) is not None:
            return info.agent
        if not self.harness.archive.stats(thread).messages and not self._folder(thread).is_dir():
            raise NotThere(f"there is no thread {thread[:80]!r}.")
        return None

    def standing_of(self, thread: str, talk: Talk) -> tuple[str | None, bool]:
        """Who is at a turn of a thread now, in this server or in another process, and whether one was broken off: never both."""
        if any(run.thread == thread for run in self.turns.running):
            return "this server", False
        if not talk.interrupted:
            return None, False
        owner = Lock(self._folder(thread) / "turn.lock").owner()
        return owner, owner is None and self._broken_off(thread, talk)  # asked again: it may have ended since

    def _broken_off(self, thread: str, talk: Talk) -> bool:
        """Whether a turn can be gone on with: not one that waits for a decision, nor one that somebody cancelled."""
        if not talk.interrupted or talk.approvals():
            return False
        newest = next(iter(self.turns.of_thread(thread)), None)
        said = self.window(thread)[-1:]
        return not (newest is not None and newest.status == "cancelled") and not any(
            marks_of(one).get("ended") == "cancelled" for one in said
        )

    def check_agent(self, agent: str | None) -> None:
        """NotThere for an agent that nobody has made: a mistyped name would begin a memory of its own without a word."""
        if agent is None or (self.harness.base / "agents" / check_name(agent, "agent name")).is_dir():
            return
        raise NotThere(f"there is no agent {agent[:80]!r}.", hint="An agent is made by a folder `agents/NAME` in the base directory.")

    def begin_thread(self, agent: str | None, title: str | None) -> Talk:
        """A new conversation that is there from now on, with this agent."""
        self.check_agent(agent)
        talk = self.talk(None, agent)
        if self.harness.talks() or agent is not None:  # whose it is stands in the list of conversations alone
            self.harness.threads.note(talk.thread, agent=agent)
        else:
            make_folders(self.harness.disk, str(self._folder(talk.thread)))
        if title is not None:
            talk.title = title
        return talk

    def _folder(self, thread: str) -> Path:
        return self.harness.base / "threads" / thread_folder(thread)

    async def say(self, thread: str, content: str, agent: str | None = None, asked: Mapping[str, Any] | None = None) -> Run:
        """Begin a turn with this message, in a conversation that is there or that begins with it, with this agent.

        `asked` is what this turn alone asks for: `agent_name`, `model_name`, `thinking_enabled`, `subagent_enabled` (M3). NotThere for an
        agent or a model that is not.
        """
        if not content.strip():
            raise InputError("there is nothing in the message.", hint="Write at least one word.")
        with suppress(NotThere):  # its first message
            agent = await asyncio.to_thread(self.agent_of, thread)
        request = {name: value for name, value in (asked or {}).items() if value is not None}
        named = request.pop("agent_name", None)
        self.check_agent(named)
        model = request.get("model_name")
        if model is not None and model not in {one.name for one in self.harness.config.models}:
            raise NotThere(f"there is no model {model[:80]!r}.", hint="`GET /api/v1/models` lists them.")
        talk = await asyncio.to_thread(self.talk, thread, named or agent, request)
        return await self._begin(talk, lambda: talk.asend(content), content)

    async def go_on(self, thread: str) -> Run:
        """Go on with a turn that was broken off."""
        talk = await asyncio.to_thread(self.known_talk, thread)
        if await asyncio.to_thread(talk.approvals):
            raise InTheWay("a call of this thread waits for a decision.", hint="`/threads/ID/decisions` takes it; then the turn goes on.")
        running, broken = await asyncio.to_thread(self.standing_of, thread, talk)
        if running is None and not broken:
            raise InTheWay("no turn of this thread was broken off.")
        return await self._begin(talk, talk.aresume)

    async def decide(self, thread: str, decisions: Mapping[str, Decision] | Decision) -> Run:
        """Answer the calls that wait for a person; the turn goes on."""
        talk = await asyncio.to_thread(self.known_talk, thread)
        if not await asyncio.to_thread(talk.approvals):
            raise InTheWay("no call waits for a decision.")
        return await self._begin(talk, lambda: talk.adecide(decisions))

    async def _begin(self, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]], said: str = "") -> Run:
        held = await asyncio.to_thread(lambda: len(talk.history()))
        return await self.turns.begin(talk, turn, said=said, held=held)

    def lead(self, agent: str | None = None) -> LeadAgent:
        """The lead agent of this name, made once. What a client brings (its tools, its context) is put beside its own."""
        from holdfast.server.gateway.client_request import ClientRequestMiddleware  # LangChain

        with self._opening:
            if agent not in self._leads:
                self._leads[agent] = self.harness.lead_agent(agent, middleware=[ClientRequestMiddleware()])
            return self._leads[agent]

    def window(self, thread: str) -> Sequence[Message]:
        """The messages that a model would still see, as the newest checkpoint has them; none where no model was ever asked."""
        return self.harness.threads.window(thread) if self.harness.has_checkpoints else ()

    def history(self, thread: str) -> list[MessageRecord]:
        """Everything that was ever said in a thread, whoever held the conversation; no model is needed to read it."""
        if not self.harness.has_checkpoints:
            return self.harness.archive.messages(thread)
        from holdfast.agents.threads import transcript  # LangChain, for who has held conversations

        said = transcript(self.harness.archive, thread, self.harness.threads.window(thread))
        times: dict[str, str] = {}
        for call in self.calls.calls(thread):  # a message was said when a model was first sent it, or gave it
            for id in (*(part.id for part in call.parts if part.id), *([call.answer] if call.answer else ())):
                times.setdefault(id, call.at)
        return [replace(record, time=times.get(record.id, record.time)) for record in said]

    @property
    def calls(self) -> CallLog:
        """Every model call of every thread."""
        return CallLog(self.harness.base, disk=self.harness.disk)

    @property
    def places(self) -> ThreadSandboxes:
        """The files of threads."""
        from holdfast.agents.tools.toolset import open_sandboxes  # LangChain

        with self._opening:
            if self._places is None:
                self._places = open_sandboxes(self.harness.config)
            return self._places

    def take_file(self, thread: str, name: str, content: BinaryIO) -> Upload:
        """Put a file into a conversation; office formats also as Markdown."""
        most = self.harness.config.server.max_upload_bytes
        with self.places.named(thread) as sandbox:
            uploads = Uploads(thread, sandbox.files, base=self.harness.base, converter=MarkItDown(), most_bytes=most)
            return uploads.take(clean_name(name), content)

    @property
    def gateway(self) -> Gateway:
        """The part that speaks the APIs of others."""
        from holdfast.server.gateway.gateway_core import Gateway  # LangChain

        with self._opening:
            if self._gateway is None:
                self._gateway = Gateway(self.harness, self.metrics)
            return self._gateway

    # the end

    async def close(self, seconds: float) -> None:
        """Stop what runs, learn from what waits, and let go of everything."""
        self.stop_streams()
        await self.turns.stop(seconds)
        await asyncio.to_thread(self.sessions.stop, seconds)
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        await asyncio.to_thread(self._let_go)

    def _let_go(self) -> None:
        with self._opening:
            if self._gateway is not None:
                self._gateway.close()
            for lead in self._leads.values():
                lead.close()
            if self._places is not None:
                self._places.close()
        self.harness.close()

    def streamed(self, frames: AsyncIterator[Any], **headers: str) -> StreamingResponse:
        """Frames as the answer to a request, counted as an open stream."""

        async def counted() -> AsyncIterator[Any]:
            with self.counted():
                async for data in frames:
                    yield data

        return StreamingResponse(counted(), media_type=MEDIA_TYPE, headers=headers)

    @contextmanager
    def counted(self) -> Iterator[None]:
        """A stream is open inside of the `with`."""
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


class _Sink:
    """Tells the stream of everything; wants an event to be worked out only while somebody listens."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream

    def wants(self, kind: type[Event]) -> bool:
        return self._stream.listeners > 0

    def __call__(self, event: Event) -> None:
        envelope = envelope_of(event, "")
        envelope["data"].pop("path", None)
        self._stream.publish(event.kind(), envelope)


def services_of(request: Request) -> Services:
    """For routes: what this server works with."""
    found: Services = request.app.state.services
    return found


Use = Annotated[Services, Depends(services_of)]
"""What a route takes to have it."""


async def _thread_of(use: Use, id: ThreadAddress) -> str:
    """The thread that an address means. NotThere for the folder of none."""
    if not id.startswith("~"):
        return id

    def look() -> str | None:
        return next((name for name in use.harness.thread_names() if thread_folder(name) == id), None)

    found = await asyncio.to_thread(look)
    if found is None:
        raise NotThere("there is no such thread.", hint="The list of threads has the address of each.")
    return found


ThreadId = Annotated[str, Depends(_thread_of)]
"""The id of the thread that an address means."""


def ready(services: Services) -> dict[str, Any]:
    """Whether the server can do its work: what is wrong with its stores, in words without paths."""
    problems = [DISPLACED] if services.displaced() else []
    if (unwritable := services.write_problem()) is not None:
        problems.append(f"base directory: {unwritable}")
    try:
        if services.harness.memory.status().storage.state == "fallback":
            problems.append("memory: the configured storage cannot be used, files are")
    except HoldfastError as error:
        problems.append(f"memory: {error.public}")
    try:
        next(iter(services.harness.sessions.ids()), None)
    except HoldfastError as error:
        problems.append(f"sessions: {error.public}")
    return {"ready": not problems and not services.stopping, "problems": problems, "model": services.harness.talks()}
