"""What the routes work with: the harness, agents by name, running turns and sessions, streams. Opened with the server and closed in order.

On the way out: streams are told first, then turns are cancelled (what was half said is kept), then sessions stop at their next commit, then
memory is flushed, then the harness is closed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO

from fastapi import Request

from holdfast.context.call_log import CallLog
from holdfast.errors import HoldfastError, InputError, NotThere
from holdfast.events import Event, envelope_of
from holdfast.ids import check_name, check_thread
from holdfast.sandbox.uploads import MarkItDown, Upload, Uploads, clean_name
from holdfast.server.event_stream import EventStream
from holdfast.server.running_turns import Run, RunningTurns
from holdfast.server.server_metrics import KnownModel, ServerMetrics, Standing
from holdfast.server.session_runs import SessionRuns
from holdfast.tokens.usage import Price
from holdfast.tracing import watch_spans
from holdfast.workers.session_queue import SessionQueue

if TYPE_CHECKING:
    from holdfast.agents.lead import LeadAgent
    from holdfast.agents.tools.toolset import ThreadSandboxes
    from holdfast.context.records import MessageRecord
    from holdfast.harness import Harness
    from holdfast.server.access_token import Keys
    from holdfast.server.gateway.gateway_core import Gateway
    from holdfast.server.gateway.repeats import Repeats
    from holdfast.talk import Decision, Talk, TurnEvent
    from holdfast.tokens.messages import Message


def known_models(harness: Harness) -> dict[str, KnownModel]:
    """The configured models, by the names that providers have for them."""
    return {
        one.model or one.name: KnownModel(
            one.max_input_tokens, Price.read(one.pricing.model_dump(exclude_none=True)) if one.pricing else None
        )
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
        states = Counter(one.status or "damaged" for one in harness.sessions.list())
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

    def __init__(self, harness: Harness, keys: Keys) -> None:
        self.harness, self.keys = harness, keys
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
        self.turns = RunningTurns(harness.ids, harness.clock, self.metrics.dropped)
        self.streams = 0
        self.stopping = False
        self._everything: EventStream | None = None
        self._leads: dict[str | None, LeadAgent] = {}
        self._gateway: Gateway | None = None
        self._places: ThreadSandboxes | None = None
        self._opening = threading.RLock()
        self._unsubscribe = [harness.bus.subscribe(self.metrics), watch_spans(self.metrics.finished)]

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

    def talk(self, thread: str | None, agent: str | None = None) -> Talk:
        """A conversation of an agent, new or where it was left; without a model one that answers by extraction. Close it when done."""
        if thread is not None:
            check_thread(thread)
        name = check_name(agent, "agent name") if agent is not None else None
        if not self.harness.talks():
            return self.harness.conversation(thread, agent=name)
        return self.lead(name).conversation(thread)

    def known_talk(self, thread: str) -> Talk:
        """The conversation of a thread that is there. NotThere for another."""
        return self.talk(thread, self.agent_of(thread))

    def agent_of(self, thread: str) -> str | None:
        """Whose conversation it is. NotThere for a thread that nobody knows."""
        check_thread(thread)
        if self.harness.has_checkpoints and (info := self.harness.threads.find(thread)) is not None:
            return info.agent
        if not self.harness.archive.stats(thread).messages:
            raise NotThere(f"there is no thread {thread[:80]!r}.")
        return None

    async def say(self, thread: str, content: str, agent: str | None = None) -> Run:
        """Begin a turn with this message, in a conversation that is there or that begins with it, with this agent."""
        if not content.strip():
            raise InputError("there is nothing in the message.", hint="Write at least one word.")
        whose = await asyncio.to_thread(self._agent_or, agent, thread)
        talk = await asyncio.to_thread(self.talk, thread, whose)
        return await self._begin(talk, lambda: talk.asend(content), content)

    async def go_on(self, thread: str) -> Run:
        """Go on with a turn that was broken off."""
        talk = await asyncio.to_thread(self.known_talk, thread)
        if not await asyncio.to_thread(lambda: talk.interrupted):
            raise InputError("no turn of this thread was broken off.")
        return await self._begin(talk, talk.aresume)

    async def decide(self, thread: str, decisions: Mapping[str, Decision] | Decision) -> Run:
        """Answer the calls that wait for a person; the turn goes on."""
        talk = await asyncio.to_thread(self.known_talk, thread)
        if not await asyncio.to_thread(talk.approvals):
            raise InputError("no call waits for a decision.")
        return await self._begin(talk, lambda: talk.adecide(decisions))

    async def _begin(self, talk: Talk, turn: Callable[[], AsyncIterator[TurnEvent]], said: str = "") -> Run:
        held = await asyncio.to_thread(lambda: len(talk.history()))
        return self.turns.begin(talk, turn, said=said, held=held)

    def _agent_or(self, agent: str | None, thread: str) -> str | None:
        try:
            return self.agent_of(thread)
        except NotThere:  # its first message
            return agent

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

        return transcript(self.harness.archive, thread, self.harness.threads.window(thread))

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

    @cached_property
    def repeats(self) -> Repeats:
        """The newest answers of the gateway, for clients that ask again because they did not hear them."""
        from holdfast.server.gateway.repeats import Repeats  # LangChain

        return Repeats()

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
        if "path" in envelope["data"]:
            del envelope["data"]["path"]
        self._stream.publish(event.kind(), envelope)


def services_of(request: Request) -> Services:
    """For routes: what this server works with."""
    found: Services = request.app.state.services
    return found


def ready(services: Services) -> dict[str, Any]:
    """Whether the server can do its work: what is wrong with its stores, in words without paths."""
    problems = []
    try:
        status = services.harness.memory.status()
        if status.storage.state != "good" and status.storage.state == "fallback":
            problems.append("memory: the configured storage cannot be used, files are")
    except HoldfastError as error:
        problems.append(f"memory: {error.public}")
    try:
        next(iter(services.harness.sessions.ids()), None)
    except HoldfastError as error:
        problems.append(f"sessions: {error.public}")
    return {"ready": not problems and not services.stopping, "problems": problems, "model": services.harness.talks()}
