"""One request of a client becomes one turn of a thread: found by its messages, run with our window around the model, kept word for word.

    async for piece in gateway.turn(request): ...        # Opened, then Text and CallPart as they come, then Done

1. `_place` asks the index which thread the request goes on with, and makes a branch where it must.
2. The new messages are added to the thread and the model is asked, by the same middlewares that the lead agent has: what does not fit
   leaves the window for the archive, and comes back when it is asked about.
3. What was answered is in the thread's checkpoint and in the index before the client hears that it is done.

A model of the configuration is asked once, with the client's own system prompt and tools; `holdfast/NAME` is the lead agent of that name
with its own tools beside the client's. Who leaves cancels the turn: the client asks again, and goes on in the same thread.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AIMessageChunk

from holdfast.agents.agent_loop import Blueprint, retries_of, window_of
from holdfast.agents.middleware.base import LeadState, PlainTextMiddleware, RunContext, ThreadDataMiddleware
from holdfast.agents.middleware.broken_calls import BrokenCallsMiddleware, WholeCallsMiddleware, broken_in, with_marks
from holdfast.agents.middleware.memory import MemoryMiddleware, MemoryUse, memory_use
from holdfast.agents.middleware.model_calls import AccountingMiddleware, TracingMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.agents.middleware.tool_calls import approval_of
from holdfast.agents.threads import branch
from holdfast.agents.turn import TurnRunner
from holdfast.context.call_log import CallLog
from holdfast.context.compaction import FileOutputs
from holdfast.errors import InputError, Locked, ModelNotConfigured, NotThere
from holdfast.events import within
from holdfast.models.factory import create_chat_model, settings_of
from holdfast.models.failures import ending_of, is_cut
from holdfast.server.gateway.client_request import (
    ChatMessage,
    ClientRequest,
    ClientRequestMiddleware,
    Repeats,
    Row,
    ThreadIndex,
    chain,
    current,
    digest_of,
    langchain_message,
    text_of,
)
from holdfast.server.wire import thread_address
from holdfast.talk import ModelReplaced
from holdfast.text.normalise import call_lines
from holdfast.tokens.accounts import Usage
from holdfast.tracing import span
from holdfast.validation import check_name, check_thread, thread_folder

if TYPE_CHECKING:
    from holdfast.agents.agent_loop import Parts
    from holdfast.agents.lead import LeadAgent
    from holdfast.harness import Harness
    from holdfast.server.server_metrics import ServerMetrics
    from holdfast.talk import Approval


LEAD = "holdfast"
"""The model name, and the beginning of one, that means our own agent."""
_ENOUGH_WORDS = 64
"""Characters that the end of a conversation must have before it alone may name a thread: "ok" and "Done." are in many."""
_MOST_STEPS = 201
_NO_MODEL = (
    "Add one to `models` in config.yaml: `holdfast models list` says how. "
    "Without one, the chat on the pages, the runs of threads in the server's own API and `holdfast chat` answer by looking things up."
)


@dataclass(frozen=True)
class Opened:
    """The model has begun to answer: the thread, how it was found, and what was sent."""

    thread: str
    how: str
    tokens: int
    compacted: bool


_BREAK = "\n\n"


@dataclass(frozen=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class CallPart:
    """A piece of a call of one of the client's tools. `index` counts the calls; id and name come with the first piece."""

    index: int
    id: str | None
    name: str | None
    args: str


@dataclass(frozen=True)
class Done:
    """The turn is over and on disk. `answer` is what the client was given, in the form of a chat message."""

    thread: str
    how: str
    answer: ChatMessage
    usage: Usage
    finish: str
    seq: int
    tokens: int
    compacted: bool
    waiting: int = 0
    """Calls that wait for a person's yes. `answer` says which."""

    async def told_again(self) -> AsyncIterator[Piece]:
        """The pieces of this answer, for a client that asks once more for it."""
        yield Opened(self.thread, self.how, self.tokens, self.compacted)
        if text := str(self.answer.get("content") or ""):
            yield Text(text)
        for number, call in enumerate(self.answer.get("tool_calls") or ()):
            yield CallPart(number, call["id"], call["function"]["name"], call["function"]["arguments"])
        yield self


Piece = Opened | Text | CallPart | Done


@dataclass(frozen=True)
class _Agent:
    """A graph and what belongs to it."""

    graph: Any
    parts: Parts
    summarization: SummarizationMiddleware
    name: str | None = None
    lead: LeadAgent | None = None
    """None for a model of the configuration: it has no tools of its own."""


@dataclass(frozen=True)
class _Placed:
    """Where a request goes on: after which row of which thread, with which messages, and how that was found."""

    thread: str
    how: str
    after: Row | None
    fresh: Sequence[ChatMessage]
    digests: Sequence[bytes]
    nodes: Sequence[bytes]
    ids: Sequence[str]


class Gateway:
    """Answers requests of clients that know nothing of us. Safe for many threads; one for each server."""

    def __init__(self, harness: Harness, metrics: ServerMetrics) -> None:
        self._harness, self.metrics = harness, metrics
        self.repeats = Repeats()
        self._parts = harness.agent_parts
        self.index = ThreadIndex(harness.make_base())
        self._agents: dict[tuple[str, bool, bool], _Agent] = {}
        self._leads: list[LeadAgent] = []
        self._making = threading.RLock()
        self._placing = threading.Lock()
        self._busy: set[str] = set()
        self._tips: dict[str, tuple[str, str]] = {}
        """By thread: its newest checkpoint when we left it, and the id of its last message then."""

    def close(self) -> None:
        """Let go of what was opened."""
        for lead in self._leads:
            lead.close()
        self.index.close()

    def models(self) -> list[str]:
        """The names that a client may ask for."""
        agents = self._harness.base / "agents"
        named = sorted(path.name for path in agents.iterdir() if path.is_dir()) if agents.is_dir() else []
        ours = [LEAD, *(f"{LEAD}/{name}" for name in named)] if self._harness.talks() else []
        return [*(model.name for model in self._harness.config.models), *ours]

    async def turn(self, request: ClientRequest) -> AsyncIterator[Piece]:
        """Answer a request, piece by piece. Leaving early cancels the turn."""
        agent = await asyncio.to_thread(self._agent, request)
        for _ in range(8):
            placed = await asyncio.to_thread(self._place, agent, request)
            folder = self._harness.base / "threads" / thread_folder(placed.thread)
            runner = TurnRunner(placed.thread, folder, self._parts.loop, disk=self._parts.disk)
            work = _Work(self, agent, request, placed)
            pieces: Any = runner.awatch(work.run)
            done: Done | None = None
            try:
                async for piece in pieces:
                    if isinstance(piece, Done):
                        done = piece
                    else:
                        yield piece
            except Locked:
                if work.began:
                    raise
                continue  # another process is at that thread: look again, which makes a branch
            finally:
                await pieces.aclose()
                with self._placing:
                    self._busy.discard(placed.thread)
            if done is not None:  # told when the thread is free: the client's next request may come at once
                yield done
            return
        raise Locked("the conversation is being written all the time.", hint="Try again.")

    # which agent

    def memory_use(self, request: ClientRequest) -> MemoryUse:
        """What a request may do with memory: what is not injected is not learned from either."""
        server = self._harness.config.server
        inject = server.gateway_memory if request.memory is None else request.memory
        learn = server.gateway_learn if request.learn is None else request.learn
        return MemoryUse(inject, inject and learn)

    def _agent(self, request: ClientRequest) -> _Agent:
        ours, use = request.model == LEAD or request.model.startswith(f"{LEAD}/"), self.memory_use(request)
        key = (request.model, True, True) if ours else (request.model, *use)  # our own agents look at `memory_use` in each request
        with self._making:
            if key not in self._agents:
                try:
                    self._agents[key] = self._lead(request.model) if ours else self._plain(*key)
                except ModelNotConfigured as error:
                    if self.models():
                        raise
                    raise ModelNotConfigured("no model is configured, and what is asked here is asked of one.", hint=_NO_MODEL) from error
            return self._agents[key]

    def _lead(self, model: str) -> _Agent:
        name = model.partition("/")[2] or None
        if name is not None and model not in self.models():
            named = [one for one in self.models() if one.startswith(f"{LEAD}/")]
            known = f"There are {', '.join(named)}." if named else "No agent was made yet."
            hint = f"`holdfast/NAME` is an agent with a folder `agents/NAME` here, no model. {known}"
            raise ModelNotConfigured(f"there is no agent named {name[:80]!r}.", model=model, hint=hint)
        lead = self._harness.lead_agent(check_name(name, "agent name") if name else None, middleware=[ClientRequestMiddleware()])
        self._leads.append(lead)
        return _Agent(lead.graph, lead.parts, lead.assembled.summarization, lead.name, lead)

    def _plain(self, model: str, inject: bool, learn: bool) -> _Agent:
        """A model of the configuration with our window around it, and nothing else."""
        parts, config = self._parts, self._harness.config
        name = settings_of(model, config=config).name
        if name is None:
            raise ModelNotConfigured(f"there is no model named {model!r}.", model=model)
        chat = parts.models.get(name) or create_chat_model(name, False, config=config, retries=False)
        plan = Blueprint(name="gateway", prompt="", model=chat, model_name=name)
        window = window_of(parts, plan)
        memory = (
            MemoryMiddleware(parts.memory, learn=learn, date=False, window=window, clock=parts.clock)
            if inject and config.memory.enabled
            else None
        )
        summarization = SummarizationMiddleware.from_config(
            config,
            window=window,
            archive=parts.archive,
            outputs=FileOutputs(config.base),
            accounts=parts.accounts,
            bus=parts.bus,
            ids=parts.ids,
            on_leave=[memory.leaving] if memory is not None and learn else [],
            counted=2_000,
            calls=CallLog(config.base, disk=parts.disk, clock=parts.clock),
            tools=False,
        )
        middlewares = [
            ThreadDataMiddleware(),
            ClientRequestMiddleware(),
            BrokenCallsMiddleware(),
            *([memory] if memory is not None else []),
            *retries_of(parts, plan),
            AccountingMiddleware(parts.accounts, summarization, {id(chat): name}),
            summarization,
            PlainTextMiddleware(),
            WholeCallsMiddleware(),
            TracingMiddleware(),
        ]
        graph = create_agent(chat, [], middleware=middlewares, state_schema=LeadState, checkpointer=parts.checkpoints)
        return _Agent(graph, parts, summarization)

    # which thread

    def _place(self, agent: _Agent, request: ClientRequest) -> _Placed:
        if not request.messages:
            raise InputError("there is no message.", hint="Send at least one of a user.")
        digests = [digest_of(message) for message in request.messages]
        with self._placing:
            if request.previous is not None:
                row = self.index.response(request.previous)
                if row is None:
                    raise NotThere("there is no such response.", hint="Send the whole conversation instead of `previous_response_id`.")
                placed = self._at(agent, request, [row], digests, 0)
            elif request.thread is not None:
                placed = self._in_thread(agent, request, digests)
            else:
                placed = self._found(agent, request, digests)
            self._busy.add(placed.thread)
        return placed

    def _found(self, agent: _Agent, request: ClientRequest, digests: Sequence[bytes]) -> _Placed:
        nodes = chain(digests)
        last = len(digests) - 1
        for row in self.index.with_node(nodes[last]):  # the very same request, which was broken off before it was answered
            if request.messages[last].get("role") != "assistant" and self._is_tip(agent, row):
                before = self.index.row(row.thread, row.seq - 1)
                return _Placed(row.thread, "resumes", before, request.messages[last:], digests[last:], nodes[last:], [row.message])
        answered = max((at for at in range(last) if request.messages[at].get("role") == "assistant"), default=-1)
        for at in range(last - 1, answered - 1, -1) if answered >= 0 else ():
            if rows := self.index.with_node(nodes[at]):
                return self._at(agent, request, rows, digests, at + 1)
        if answered >= 0 and _weight(request.messages[: answered + 1]) >= _ENOUGH_WORDS:
            rows = self.index.ending(digests[: answered + 1])
            if len({row.node for row in rows}) == 1:
                return self._at(agent, request, rows, digests, answered + 1)
        for at in range(answered - 1, 0, -1):
            if rows := self.index.with_node(nodes[at]):
                return self._at(agent, request, rows, digests, at + 1)
        return self._with(self._parts.ids.new("thread"), "starts", None, request, digests, 0)

    def _at(self, agent: _Agent, request: ClientRequest, rows: Sequence[Row], digests: Sequence[bytes], start: int) -> _Placed:
        """After one of these rows, which begin alike, with the messages from `start` on: at the end of its thread, else in a branch."""
        for row in rows:
            if self._is_tip(agent, row):
                return self._with(row.thread, "continues", row, request, digests, start)
        row = next((one for one in rows if one.thread not in self._busy), rows[0])
        made = branch(agent, row.thread, at=row.message)
        self.index.copy(row, made)
        return self._with(made, "branches", replace(row, thread=made), request, digests, start)

    def _with(self, thread: str, how: str, after: Row | None, request: ClientRequest, digests: Sequence[bytes], start: int) -> _Placed:
        fresh = request.messages[start:]
        nodes = chain(digests[start:], after.node if after is not None else b"")
        return _Placed(thread, how, after, fresh, digests[start:], nodes, [self._parts.ids.new("message") for _ in fresh])

    def _in_thread(self, agent: _Agent, request: ClientRequest, digests: Sequence[bytes]) -> _Placed:
        """In the thread that the client names. Of what it sends, only what follows its newest known message is new."""
        thread = check_thread(request.thread or "")
        if thread in self._busy:
            raise Locked("a turn of this thread is under way.", hint="Wait for it, or send no thread: then a branch is made.")
        tip = self.index.tip(thread)
        if tip is None:
            return self._with(thread, "starts", None, request, digests, 0)
        by_node = {row.node: row for row in self.index.all(thread)}
        for at, node in reversed(list(enumerate(chain(digests)))[:-1]):
            if node in by_node:
                return self._at(agent, request, [by_node[node]], digests, at + 1)
        answered = max((at for at, message in enumerate(request.messages) if message.get("role") == "assistant"), default=-1)
        start = min(answered + 1, len(digests) - 1)
        return self._at(agent, request, [tip], digests, start)

    def _is_tip(self, agent: _Agent, row: Row) -> bool:
        """Whether a thread ends with this message, in the index and in truth: a kill may have left the index behind."""
        if row.thread in self._busy:
            return False
        tip = self.index.tip(row.thread)
        if tip is None or tip.seq != row.seq:
            return False
        return self._last_message(agent, row.thread) == row.message or self._went_on_alone(agent, row)

    def _went_on_alone(self, agent: _Agent, row: Row) -> bool:
        """Whether all that came after this answer is our own agent's: a call of it was approved on a page, and the turn went on."""
        if agent.lead is None:
            return False
        messages = agent.graph.get_state({"configurable": {"thread_id": row.thread}}).values.get("messages") or ()
        start = next((at for at, one in enumerate(messages) if one.id == row.message and isinstance(one, AIMessage)), len(messages))
        return start < len(messages) and not any(one.type == "human" for one in messages[start:])

    def _last_message(self, agent: _Agent, thread: str) -> str | None:
        newest = self._checkpoint(thread)
        known = self._tips.get(thread)
        if known is not None and known[0] == newest:
            return known[1]
        messages = agent.graph.get_state({"configurable": {"thread_id": thread}}).values.get("messages") or ()
        return str(messages[-1].id) if messages else None

    def _checkpoint(self, thread: str) -> str:
        with self._parts.checkpoints.cursor(transaction=False) as cursor:
            found = cursor.execute(
                "SELECT checkpoint_id FROM checkpoints WHERE thread_id = ? AND checkpoint_ns = '' ORDER BY checkpoint_id DESC LIMIT 1",
                (thread,),
            ).fetchone()
        return str(found[0]) if found is not None else ""

    # what a turn keeps

    def keep(self, placed: _Placed, answers: Sequence[tuple[ChatMessage, str]] = ()) -> int:
        """The messages of a turn, and its answer once it is there, are in the index. Gives the place of the last."""
        said = [digest_of(message) for message, _ in answers]
        nodes = [*placed.nodes, *chain(said, placed.nodes[-1])]
        self.index.add(placed.thread, placed.after, [*placed.digests, *said], nodes, [*placed.ids, *(id for _, id in answers)])
        if answers:
            self._tips[placed.thread] = (self._checkpoint(placed.thread), answers[-1][1])
            if len(self._tips) > 2_000:
                self._tips.pop(next(iter(self._tips)))
        return (placed.after.seq if placed.after is not None else 0) + len(placed.digests) + len(said)

    def note_thread(self, placed: _Placed, agent: _Agent) -> None:
        """The thread is in the list of conversations, with a title."""
        self._parts.threads.note(placed.thread, agent=agent.name)
        if placed.how == "starts":
            first = next((text_of(message.get("content")) for message in placed.fresh if message.get("role") == "user"), "")
            with suppress(InputError):  # no word to make a title of
                self._parts.threads.set_title(placed.thread, first[:80], "extract")


class _Work:
    """A turn as the runner runs it: on the agents' loop, under the lock of its thread."""

    def __init__(self, gateway: Gateway, agent: _Agent, request: ClientRequest, placed: _Placed) -> None:
        self._gateway, self._agent, self._request, self._placed = gateway, agent, request, placed
        self.began = False
        self._text = ""
        self._whole = 0
        """How much of the text is of answers that came to their end."""
        self._heard: set[str] = set()
        self._opened = False
        self._calls: dict[Any, int] = {}
        self._answers: list[AIMessage] = []
        self._waiting: list[Approval] = []

    async def run(self, tell: Callable[[Any], None]) -> Any:
        """Ask the model, tell what comes, and keep it."""
        self.began = True
        placed, agent, gateway = self._placed, self._agent, self._gateway
        run = agent.parts.ids.new("run")
        current.set(self._request)
        memory_use.set(gateway.memory_use(self._request))
        with within(thread=placed.thread, run=run, agent=agent.name), span("invoke_agent", agent.name or "gateway", "AGENT"):
            await asyncio.to_thread(gateway.note_thread, placed, agent)
            fresh: Any = [langchain_message(one, id) for one, id in zip(placed.fresh, placed.ids, strict=True)]
            await asyncio.to_thread(gateway.keep, placed)
            given = await agent.lead.conversation(placed.thread).following(fresh) if agent.lead is not None else {"messages": fresh}
            steps = agent.graph.astream(
                given,
                {"configurable": {"thread_id": placed.thread}, "recursion_limit": _MOST_STEPS},
                context=RunContext(session=placed.thread, run=run),
                stream_mode=["messages", "updates", "custom"],
                durability="sync",
            )
            async for mode, part in steps:
                for piece in self._read(mode, part):
                    tell(piece)
            for piece in self._asked_for_a_yes():
                tell(piece)
            return await asyncio.to_thread(self._done)

    def _read(self, mode: str, part: Any) -> list[Piece]:
        if mode == "updates":
            for found in part.get("__interrupt__", ()):
                self._waiting += [one] if (one := approval_of(found.id, found.value)) is not None else []
            for node, update in part.items():
                messages = update.get("messages") if node == "model" and isinstance(update, dict) else None
                self._answers += [one for one in messages or () if isinstance(one, AIMessage)]
                self._whole = len(self._text) if messages else self._whole
            return []
        if mode == "custom":
            return self._begins_anew() if isinstance(part, ModelReplaced) else []
        message, about = part
        if about.get("langgraph_node") != "model" or not isinstance(message, AIMessage):
            return []
        whole = not isinstance(message, AIMessageChunk)
        if whole and str(message.id) in self._heard:
            return []
        self._heard.add(str(message.id))
        pieces: list[Piece] = []
        if message.text:
            self._text += message.text
            pieces.append(Text(message.text))
        pieces += self._call_parts(message, whole)
        if (pieces or not whole) and not self._opened:
            self._opened = True
            pieces.insert(0, Opened(self._placed.thread, self._placed.how, *self._sent()))
        return pieces

    def _begins_anew(self) -> list[Piece]:
        """A model broke off and another one answers: what it had said is no part of the answer, unless the client has it already."""
        if len(self._text) == self._whole:
            return []
        if not self._request.stream:
            self._text = self._text[: self._whole]
            return []
        self._text += _BREAK
        return [Text(_BREAK)]

    def _call_parts(self, message: AIMessage, whole: bool) -> list[Piece]:
        """Calls of the client's tools as they are written. Those of our own are not its business."""
        found: list[Piece] = []
        if whole:
            message = with_marks(message)
            for call in message.tool_calls:
                if call["name"] in self._request.tool_names:
                    number = len(self._calls)
                    self._calls[str(call["id"])] = number
                    found.append(CallPart(number, str(call["id"]), call["name"], _arguments(message, call)))
            return found
        for chunk in message.tool_call_chunks if isinstance(message, AIMessageChunk) else ():
            key = (str(message.id), chunk.get("index"))
            name = chunk.get("name")
            if name and name in self._request.tool_names and key not in self._calls:
                self._calls[key] = len(self._calls)
            if key in self._calls:
                found.append(CallPart(self._calls[key], chunk.get("id"), name, chunk.get("args") or ""))
        return found

    def _asked_for_a_yes(self) -> list[Piece]:
        """What the client is told of calls that wait: nobody sees them where it is. Who says yes does so on the page of the thread."""
        if not self._waiting:
            return []
        page = f"{self._request.address}/threads/{thread_address(self._placed.thread)}"
        text = "\n\n".join([waits(one, page) for one in self._waiting] + [_OR_NO])
        text = f"\n\n{text}" if self._text else text
        self._text += text
        first = [] if self._opened else [Opened(self._placed.thread, self._placed.how, *self._sent())]
        self._opened = True
        return [*first, Text(text)]

    def _sent(self) -> tuple[int, bool]:
        manifest = self._agent.summarization.manifest(self._placed.thread)
        return (manifest.tokens, bool(manifest.left or manifest.how)) if manifest is not None else (0, False)

    def _done(self) -> Done:
        last = self._answers[-1] if self._answers else AIMessage("", id=self._agent.parts.ids.new("message"))
        theirs = []
        for call in last.tool_calls:
            if call["name"] in self._request.tool_names:
                function = {"name": call["name"], "arguments": _arguments(last, call)}
                theirs.append({"id": str(call["id"]), "type": "function", "function": function})
        answer = {"role": "assistant", "content": self._text or last.text, **({"tool_calls": theirs} if theirs else {})}
        tokens, compacted = self._sent()
        usage = sum((found for one in self._answers if (found := Usage.read(one)) is not None), Usage())
        if not usage.total:
            counter = self._agent.summarization.context_window.counter
            usage = Usage(tokens, counter.count_text(str(answer["content"])), estimated=True)
        seq = self._gateway.keep(self._placed, [(answer, str(last.id))])
        self._gateway.metrics.placed(self._request.model, self._placed.how)
        finish = "tool_calls" if theirs and not is_cut(last) else _finish(last)
        return Done(self._placed.thread, self._placed.how, answer, usage, finish, seq, tokens, compacted, len(self._waiting))


_OR_NO = "Say yes there and the work goes on; the next message here goes on after it. Before a decision, a message here counts as a no."
_SHOWN = 2_000
"""Characters of a call that are shown; the page has all of it."""


def waits(call: Approval, page: str) -> str:
    """What to say of a call that waits for a person: its name, where the yes is given, and its arguments."""
    lines = "\n".join(call_lines(call.tool, call.args))
    shown = lines if len(lines) <= _SHOWN else f"{lines[:_SHOWN]}\n... the page has the rest, {len(lines) - _SHOWN:,} characters"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    return f"`{call.tool}` waits for your yes: {page}\n\n{fence}\n{shown}\n{fence}"


def _arguments(message: AIMessage, call: Mapping[str, Any]) -> str:
    """The arguments of a call as text. One that did not arrive whole is handed on as it came: who runs it sees that, and how it ended."""
    broken = broken_in(message).get(str(call["id"]))
    return broken["text"] if broken is not None else json.dumps(call["args"], ensure_ascii=False)


def _finish(message: AIMessage) -> str:
    if is_cut(message):
        return "length"
    return "content_filter" if ending_of(message) == "filtered" else "stop"


def _weight(messages: Sequence[ChatMessage]) -> int:
    """How much there is to know a conversation by. The id of a call is unlike any other."""
    calls = any(message.get("tool_calls") or message.get("tool_call_id") for message in messages)
    return sum(len(text_of(message.get("content")).strip()) for message in messages) + (_ENOUGH_WORDS if calls else 0)
