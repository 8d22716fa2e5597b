"""Working memory for any LangChain `create_agent`: compaction that loses nothing and never overflows (S1-S19).

A drop-in for LangChain's middleware of the same name: the same arguments, another import. Put it last in the list, so that it
sees what is really sent.

    agent = create_agent(model, tools, middleware=[SummarizationMiddleware(model, trigger=("fraction", 0.8))])
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Unpack

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage
from langchain_core.runnables import Runnable
from langgraph.graph.message import REMOVE_ALL_MESSAGES, add_messages
from langgraph.types import Command, Overwrite

from holdfast.agents.checkpoints import Rewritten
from holdfast.agents.middleware.arguments import check_summarization
from holdfast.agents.middleware.base import (
    AWAY,
    LangChainMessages,
    adrive,
    at_hand,
    conversation_at_hand,
    conversation_of,
    conversation_of_call,
    drive,
    goes_on_with,
    with_reminder,
)
from holdfast.agents.middleware.window_models import ListCounter, ModelFacts, ModelLimits, Summarizer
from holdfast.agents.threads import recall_tools
from holdfast.clock import IdSource, RandomIds
from holdfast.config.loading import default_base
from holdfast.config.triggers import KEEP, Deprecated, KeepSpec, TriggerSpec, parse_keep, sizes
from holdfast.context.archive import FileArchive
from holdfast.context.call_log import Manifest, manifest_of
from holdfast.context.compaction import Ask, FileOutputs, Leave, Move, Outcome, Recall, Record, Settings, Store
from holdfast.context.planner import Policy
from holdfast.context.recall import LongTerm, LookUp, Recalled, RecallPolicy, Recollection, is_due, look_up, read_policy
from holdfast.context.records import records_of
from holdfast.context.view import marks_of, text_of
from holdfast.context.window import MADE, ContextWindow, Prepared, WindowLimits
from holdfast.errors import BudgetError, SummaryError
from holdfast.events import Bus, within
from holdfast.events import bus as process_bus
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import summary_model
from holdfast.models.failures import kind_of
from holdfast.tokens.accounts import Accounts, Usage
from holdfast.tokens.counter import MessagesCounter, TokenCounter, open_counter

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from holdfast.config.sections import Config
    from holdfast.context.archive import Archive
    from holdfast.context.call_log import CallLog
    from holdfast.context.compaction import Outputs


class WindowState(AgentState[Any]):
    """What the thread's checkpoint remembers of its window: how often it was compacted, and by which summary."""

    holdfast_window: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class SummarizationMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps a conversation inside the window.

    `model` writes the summaries (a chat model, a `provider:name` text, or None: then they are extracts), or `summarizer` does: a chat
    model, or a function or Runnable that is given the messages. `trigger` and `keep` take
    LangChain's tuples, the configuration's mappings, or policies of `holdfast.context`. Everything that leaves the window is in the
    `archive` first; without one given it is kept below the base directory (C6). `search_history` and
    `read_history` are offered once something has left, to a model that takes tools; `tools=False` leaves them out. With
    `recall={"knowledge": True}` what comes back by itself may come from `long_term` as well, see `agents/threads.py: known_in`.
    """

    state_schema = WindowState

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        *,
        trigger: TriggerSpec | None = None,
        keep: KeepSpec = KEEP,
        token_counter: str | TokenCounter | Callable[..., int] = "exact",  # noqa: S107 - a kind of counter
        summary_prompt: str | None = None,
        trim_tokens_to_summarize: int | None = 4000,
        summarizer: str | BaseChatModel | Runnable[Any, str] | Callable[..., Any] | None = None,
        enabled: bool = True,
        summary_role: Literal["human", "system"] = "human",
        window: int | None = None,
        archive: Archive | None = None,
        outputs: Outputs | None = None,
        recall: bool | RecallPolicy | Mapping[str, Any] = True,
        long_term: LongTerm | None = None,
        timeout: float | None = 120.0,
        on_leave: Sequence[Callable[[str, tuple[Any, ...]], None]] = (),
        accounts: Accounts | None = None,
        bus: Bus | None = None,
        ids: IdSource | None = None,
        tools: bool = True,
        counted: int = 10_000,
        calls: CallLog | None = None,
        **deprecated: Unpack[Deprecated],
    ) -> None:
        """All but `model` by keyword; the class says what each is for. LangChain's older names are taken as well.

        `window` is the model's own in tokens where it is not known, `trim_tokens_to_summarize` what a summary is made of at most, `timeout`
        the seconds for one, `recall` what of the archive comes back by itself, `counted` of how many messages the counts are kept.
        """
        super().__init__()
        check_summarization(
            archive=archive,
            on_leave=on_leave,
            accounts=accounts,
            recall=recall,
            window=window,
            trim_tokens_to_summarize=trim_tokens_to_summarize,
            timeout=timeout,
            summary_role=summary_role,
            counted=counted,
        )
        self.bus = bus or process_bus
        self._archive, self._long_term = archive, long_term
        self.outputs, self.accounts, self.calls = outputs, accounts, calls
        self.limits = ModelLimits(self.bus, window)
        self.calibration = self.limits.calibration
        self.recall = read_policy(recall)
        self._ids = ids or RandomIds()
        self._unnamed = self._ids.new("thread")
        self.model = init_chat_model(model) if isinstance(model, str) else model
        self._summarizer = Summarizer.of(self.model if summarizer is None else summarizer, timeout=timeout, heard=self._heard)
        self.summarizer = self._summarizer.function if self._summarizer is not None else None
        self.summary_prompt, self.trim_tokens_to_summarize = summary_prompt, trim_tokens_to_summarize
        made, kept, self.trigger, self.keep = sizes(trigger, keep, deprecated)
        settings = Settings(
            count=lambda text: self.context_window.counter.count_text(text),
            factory=LangChainMessages(),
            new_id=self._ids.new,
            enabled=enabled,
            ask=self._summarizer is not None,
            model=self._summarizer.name if self._summarizer is not None else None,
            limit=partial(self._limit, trim_tokens_to_summarize),
            prompt=summary_prompt,
            role=summary_role,
            tools=tools,
        )
        self._policy = partial(ContextWindow, Policy(trigger=made, keep=kept), settings, bus=self.bus, on_leave=on_leave, counted=counted)
        self.token_counter = token_counter
        self.before_model, self.abefore_model = self._before_model, self._abefore_model  # type: ignore[method-assign]
        self.tools: Sequence[BaseTool] = (
            recall_tools(lambda: self.archive, lambda: conversation_at_hand() or self._unnamed, self._in_view) if tools else []
        )
        self._sent: OrderedDict[str, tuple[ModelRequest[Any], Sequence[Any], WindowLimits, Outcome | None]] = OrderedDict()
        self._looked: OrderedDict[str, int] = OrderedDict()
        """How many messages of a thread were looked at for something that left; -1 when there was."""

    @classmethod
    def from_config(cls, config: Config, **parts: Any) -> SummarizationMiddleware:
        """From the `summarization` section. The summarizer is the one that S14 names; a model that is too weak for it is not asked."""
        wanted = config.summarization
        return cls(
            summary_model(config) if wanted.enabled else None,
            trigger=wanted.trigger if wanted.enabled else None,
            keep=wanted.keep,
            token_counter=wanted.token_counter,
            summary_prompt=wanted.summary_prompt,
            trim_tokens_to_summarize=wanted.trim_tokens_to_summarize,
            enabled=wanted.enabled,
            summary_role=wanted.summary_role,
            recall=RecallPolicy(wanted.recall.enabled, wanted.recall.share, wanted.recall.floor, wanted.recall.knowledge),
            **{"archive": FileArchive(config.base), "outputs": FileOutputs(config.base), **parts},
        )

    @property
    def token_counter(self) -> Callable[[Sequence[Any]], int]:
        """Says the tokens of a list of messages. It may be set to another function, the name of a counter, or a `TokenCounter`."""
        counter = self.context_window.counter
        if isinstance(counter, ListCounter):
            return counter.function
        factor = self.limits.facts(self.model).factor if self.model is not None else 1.0
        return lambda messages: math.ceil(counter.count_messages(messages) * factor)

    @token_counter.setter
    def token_counter(self, wanted: str | TokenCounter | Callable[..., int]) -> None:
        o200k = wanted in ("exact", "approximate")
        self.limits.counts_by(o200k=o200k)
        if isinstance(wanted, str | TokenCounter):
            name = None if o200k or self.model is None else model_name_of(self.model)  # else the factor is its window's
            counter = open_counter(wanted, model=name)
            wanted = counter.function if isinstance(counter, MessagesCounter) else counter
        own = wanted if isinstance(wanted, TokenCounter) else ListCounter(wanted, open_counter("exact"), self.bus)
        self.context_window: ContextWindow = self._policy(counter=own)

    @property
    def archive(self) -> Archive:
        """Where the words are kept. One that was not given is looked for when it is first used: making a middleware touches no file.

        It is below the base directory that the command line would use here.
        """
        if self._archive is None:
            self._archive = FileArchive(default_base())
        return self._archive

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Check, compact if need be, call the model, and rewrite the state in the same step."""
        thread = conversation_of_call(request)
        with within(thread=thread):
            return drive(self._call(thread, request), lambda want: handler(want) if _is_request(want) else self._do(thread, want))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """As `wrap_model_call`, awaited; files are read and written in a thread, so the loop goes on."""
        thread = conversation_of_call(request)
        with within(thread=thread):
            return await adrive(self._call(thread, request), lambda want: handler(want) if _is_request(want) else self._ado(thread, want))

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]) -> Any:
        """The tools look into the conversation that called them, also in a run without a thread."""
        with at_hand(conversation_of_call(request)):
            return handler(request)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]) -> Any:
        """As `wrap_tool_call`, awaited."""
        with at_hand(conversation_of_call(request)):
            return await handler(request)

    # LangChain's own hooks, for a graph of one's own or a subclass. In `create_agent` the work is done around the model call, so the class
    # has no `before_model`, only its instances: a node of its own would cost every call a step.

    def _before_model(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:
        """The update that compacts the state, or None."""
        thread = conversation_of(runtime, state["messages"])
        return drive(self._update(thread, state["messages"], runtime), partial(self._do, thread))

    async def _abefore_model(self, state: Mapping[str, Any], runtime: Any) -> dict[str, Any] | None:
        """As `before_model`, awaited."""
        thread = conversation_of(runtime, state["messages"])
        return await adrive(self._update(thread, state["messages"], runtime), partial(self._ado, thread))

    def _update(self, thread: str, messages: Sequence[Any], runtime: Any) -> Generator[Any, Any, dict[str, Any] | None]:
        yield AWAY
        room = self.limits.of_history(messages, self.model)
        if self.context_window.is_quiet(thread, messages, room):
            return None
        joined = self.context_window.rejoined(thread, messages)
        prepared = yield from self.context_window.prepare(thread, messages if joined is None else joined, room)
        if joined is None and not prepared.changed:
            return None
        self.context_window.stored(thread)
        goes_on_with(prepared.messages, runtime, thread)
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), *prepared.messages]}

    def _should_summarize(self, messages: Sequence[Any], total_tokens: int) -> bool:
        """Whether a trigger is met by so many tokens, or by what the provider reported."""
        room = self.limits.of_history(messages, self.model)
        return self.context_window.policy.trigger.met(room.seen(room.measure(total_tokens, len(messages)))) is not None

    def compact(
        self, messages: Sequence[BaseMessage], *, thread: str, model: BaseChatModel, force: bool = True, keep: Any = None
    ) -> Prepared:
        """Compact a history now (S17). Returns the new one; storing it is the caller's part, see `compact_thread`."""
        room = self.limits.limits(self.limits.facts(model))
        work = self.context_window.compact(thread, messages, room, force=force, keep=None if keep is None else parse_keep(keep))
        return drive(work, partial(self._do, thread))

    def compact_thread(self, agent: Any, thread: str, *, model: BaseChatModel, force: bool = True, keep: Any = None) -> Prepared:
        """Compact the thread of an agent that has a checkpointer, and store the result."""
        config = {"configurable": {"thread_id": thread}}
        state = agent.get_state(config).values
        prepared = self.compact(state.get("messages", []), thread=thread, model=model, force=force, keep=keep)
        if prepared.changed:
            agent.update_state(config, {"messages": Overwrite(list(prepared.messages)), **self._epoch(state, prepared.outcome)})
            self.context_window.stored(thread)
        return prepared

    def manifest(self, thread: str) -> Manifest | None:
        """What the last model call of a thread was sent: every part, where it came from, and its tokens (O4)."""
        if (last := self._sent.get(thread)) is None:
            return None
        request, messages, room, outcome = last
        about: dict[str, Any] = {"system": request.system_message, "tools": request.tools, "room": room, "outcome": outcome}
        return manifest_of(messages, **about, counter=self.context_window.counter, count=self.context_window.counts.count)

    def system_text(self, thread: str) -> str | None:
        """The system message of the last model call of a thread; None before the first."""
        last = self._sent.get(thread)
        return last[0].system_message.text if last is not None and last[0].system_message is not None else None

    def _in_view(self, thread: str) -> Sequence[Any] | None:
        last = self._sent.get(thread)
        return last[1] if last is not None else None

    # the work, without I/O: what is to be done is yielded, a request for the model among it

    def _call(self, thread: str, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """One model call: as it is where the window is far from every trigger, else compacted."""
        if not self.limits.knows(request.model):
            yield AWAY
        given = request.messages
        facts, whole, request, room = self._opening(thread, request)
        failed: Exception | None = None
        quiet = self._is_quiet(thread, request.messages, room)
        if not quiet and (joined := self.context_window.rejoined(thread, request.messages)) is not None:
            facts, whole, request, room = self._opening(thread, request.override(messages=list[Any](joined)))
            quiet = self._is_quiet(thread, request.messages, room)
        if quiet:
            try:
                response = yield self._sending(thread, request, request.messages, room, facts)
            except Exception as error:
                if kind_of(error) != "overflow":  # else the window is smaller than anybody said
                    raise
                room = self.limits.refused(room, self._counted(thread, request.messages, room), facts, request, error)
                failed = error
                self.context_window.rejoined(thread, given)  # as it came: that is what will be compacted
            else:
                if self.calls is not None:
                    yield AWAY
                self._learn(thread, facts, request.messages, room, response)
                return response
        yield AWAY
        return (yield from self._compacted(thread, given, whole, request, room, facts, failed))

    def _compacted(
        self,
        thread: str,
        given: Sequence[Any],
        whole: ModelRequest[Any],
        request: ModelRequest[Any],
        room: WindowLimits,
        facts: ModelFacts,
        failed: Exception | None = None,
    ) -> Generator[Any, Any, Any]:
        """The call after a compaction; `failed` is how it was just refused as it was."""
        larger = (
            self.limits.of_request(whole, facts, self.context_window) if whole is not request else room
        )  # once something leaves, its tools are sent as well
        try:
            bare = yield from self._prepared(thread, request.messages, room, larger._replace(cap=min(larger.cap, room.cap)))
        except BudgetError as none:
            counted = self._counted(thread, request.messages, room)
            if failed is not None:
                self.limits.nothing_fits(none, failed, room, counted, facts, request)
            if not self.limits.forgets(facts):
                raise
            room = self.limits.of_request(request, facts, self.context_window)
            return (yield from self._compacted(thread, given, whole, request, room, facts))
        if bare.outcome is not None:
            request, room, self._looked[thread] = whole, larger, -1
        prepared, recalled = yield from self._recalled(thread, request, bare, room)
        try:
            response = yield self._sending(thread, request, prepared.messages, room, facts, prepared.outcome)
        except Exception as error:
            if kind_of(error) != "overflow":  # else its own vocabulary makes more of it than we counted: leave more room, and once more
                raise
            recalled = None  # what was recalled goes first
            counted = self._counted(thread, prepared.messages, room)
            request, prepared, room, response = yield from self._once_more(thread, whole, request, bare, room, facts, counted, error)
        self._learn(thread, facts, prepared.messages, room, response, always=True)
        if recalled is not None:
            response = replace(response, result=[recalled, *response.result])
        if not prepared.changed:
            return response
        stored = list(_from_state(request, given, prepared.messages))
        self.context_window.stored(thread)
        goes_on_with(stored, request.runtime, thread)
        history: Any = add_messages(stored, list(response.result))  # what a middleware further in replaced is replaced here too
        response = replace(response, result=Rewritten(response.result, history))
        update = self._epoch(request.state, prepared.outcome)
        return ExtendedModelResponse(response, Command(update=update)) if update else response

    def _once_more(
        self,
        thread: str,
        whole: ModelRequest[Any],
        request: ModelRequest[Any],
        bare: Prepared,
        room: WindowLimits,
        facts: ModelFacts,
        counted: int,
        error: Exception,
    ) -> Generator[Any, Any, tuple[ModelRequest[Any], Prepared, WindowLimits, Any]]:
        """A request of so many tokens was refused for its length: with less, once. What was sent then, its limits, and the answer."""
        room = self.limits.refused(room, counted, facts, request, error)
        try:
            prepared = yield from self.context_window.prepare(thread, bare.messages, room)
        except BudgetError as none:
            self.limits.nothing_fits(none, error, room, counted, facts, request)
        if prepared.outcome is not None:
            request, self._looked[thread] = whole, -1
        try:
            response = yield self._sending(thread, request, prepared.messages, room, facts, prepared.outcome)
        except Exception as again:
            if kind_of(again) == "overflow":  # for the next call
                self.limits.refused(room, self._counted(thread, prepared.messages, room), facts, request, again)
            raise
        return request, prepared, room, response

    def _prepared(self, thread: str, messages: Sequence[Any], room: WindowLimits, then: WindowLimits) -> Generator[Any, Any, Prepared]:
        """The request, with room for what may be recalled: a window that is full to the brim would let nothing come back (S9)."""
        kept = int(self.recall.share * room.window) if self._looks_back(thread, messages) else 0
        if not kept:
            return (yield from self.context_window.prepare(thread, messages, room, then=then))
        try:
            narrow, after = (one._replace(cap=max(1, one.cap - kept)) for one in (room, then))
            return (yield from self.context_window.prepare(thread, messages, narrow, then=after))
        except BudgetError:  # what must stay needs all of it
            return (yield from self.context_window.prepare(thread, messages, room, then=then))

    def _is_quiet(self, thread: str, messages: Sequence[Any], room: WindowLimits) -> bool:
        """Whether these messages can be sent as they are, and nothing is to be added to them."""
        return self.context_window.is_quiet(thread, messages, room) and not self._looks_back(thread, messages)

    def _looks_back(self, thread: str, messages: Sequence[Any]) -> bool:
        """Whether something has left this thread's window and its newest message was not looked up yet (S9)."""
        return self.recall.enabled and is_due(messages) and self._has_left(thread, messages)

    def _recalled(
        self, thread: str, request: ModelRequest[Any], prepared: Prepared, room: WindowLimits
    ) -> Generator[Any, Any, tuple[Prepared, BaseMessage | None]]:
        """The request with what left and its newest message is about, where there is room for it; and that message for the state."""
        if not self._looks_back(thread, prepared.messages):
            return prepared, None
        newest: Any = prepared.messages[-1]
        stored = next((message for message in reversed(request.state.get("messages", ())) if message.id == newest.id), None)
        if stored is None:  # somebody further out put it into the request alone
            return prepared, None
        allowed = room.counted(min(int(self.recall.share * room.window), room.cap - prepared.tokens) - 1)
        found: Recollection | None = yield LookUp(prepared.messages, allowed)
        if found is None:
            return prepared, None
        marks = {"recalled": list(found.ids)}
        sent = with_reminder(newest, found.text, marks)
        more = self.context_window.counts.count(sent) - self.context_window.counts.count(newest)
        if more > allowed:
            return prepared, None
        self.bus.emit(Recalled(count=len(found.ids), tokens=room.tokens(more), ids=", ".join(found.ids)))
        kept = sent if marks_of(newest).get("reminded") else with_reminder(stored, found.text, marks)
        return replace(prepared, messages=[*prepared.messages[:-1], sent], tokens=prepared.tokens + room.tokens(more)), kept

    def _counted(self, thread: str, messages: Sequence[Any], room: WindowLimits) -> int:
        """Our own count of a whole request."""
        return self.context_window.count(thread, messages) + room.fixed - room.added

    def _sending(
        self, thread: str, request: ModelRequest[Any], messages: Any, room: WindowLimits, facts: ModelFacts, outcome: Outcome | None = None
    ) -> ModelRequest[Any]:
        """The request as it goes out, noted for the manifest. Anthropic caches a prefix only where it is marked (S19)."""
        self._sent[thread] = (request, messages, room, outcome)
        if len(self._sent) > 64:
            self._sent.popitem(last=False)
        if messages is not request.messages:
            request = request.override(messages=list(messages))
        if facts.marks_cache and "cache_control" not in request.model_settings:
            request = request.override(model_settings={**request.model_settings, "cache_control": {"type": "ephemeral"}})
        return request

    def _epoch(self, state: Mapping[str, Any], outcome: Outcome | None) -> dict[str, Any]:
        if outcome is None or outcome.summary is None:
            return {}
        before = state.get("holdfast_window") or {}
        return {"holdfast_window": {"epoch": int(before.get("epoch", 0)) + 1, "summary": outcome.summary.id}}

    def _opening(self, thread: str, request: ModelRequest[Any]) -> tuple[ModelFacts, ModelRequest[Any], ModelRequest[Any], WindowLimits]:
        """What is known of the model, the request with the tools of the archive and as it is sent now, and its limits.

        The tools are in it once something has left the window, for a model that takes tools (S9).
        """
        facts = self.limits.facts(request.model)
        ours = {tool.name for tool in self.tools}
        others = [tool for tool in request.tools if getattr(tool, "name", None) not in ours]
        without = request if len(others) == len(request.tools) else request.override(tools=others)
        whole = request if facts.takes_tools else without
        sent = whole if whole is without or self._has_left(thread, request.messages) else without
        return facts, whole, sent, self.limits.of_request(sent, facts, self.context_window)

    def _has_left(self, thread: str, messages: Sequence[Any]) -> bool:
        """Whether something of this conversation is in the archive alone: a summary or a reference stands for it. Looks at what is new."""
        looked = self._looked.pop(thread, 0)
        for message in messages[looked if 0 <= looked <= len(messages) else 0 :] if looked >= 0 else ():
            if not marks_of(message).keys().isdisjoint(MADE):
                looked = -1
                break
        self._looked[thread] = len(messages) if looked >= 0 else -1
        if len(self._looked) > 256:
            self._looked.popitem(last=False)
        return self._looked[thread] < 0

    def _limit(self, trim: int | None) -> int:
        """The most tokens of one summarizer call: what was configured, and never more than its window, in our own counting."""
        model = self._summarizer.model if self._summarizer is not None else None
        if model is None:
            return trim or (4000 if self._summarizer is None else 1_000_000)
        limits = self.limits.limits(self.limits.facts(model, window=None))
        return limits.counted(min(trim or limits.cap, limits.cap))

    def _learn(
        self, thread: str, facts: ModelFacts, messages: Any, room: WindowLimits, response: ModelResponse[Any], *, always: bool = False
    ) -> None:
        """Learn from what the call used, and note it for somebody who wants to see what any request held (O4)."""
        self.limits.learn(thread, facts, response, lambda: self._counted(thread, messages, room), always=always)
        if self.calls is None or (sent := self.manifest(thread)) is None:
            return
        answer = next((message for message in reversed(response.result) if isinstance(message, AIMessage)), None)
        usage, answered = (Usage.read(answer), str(answer.id) if answer.id else None) if answer is not None else (None, None)
        self.calls.note(thread, sent, model=facts.name, usage=usage, system=self.system_text(thread) or "", answer=answered)

    # what the work wants done

    def _do(self, thread: str, want: Any) -> Any:
        if isinstance(want, Store):
            tokens = {str(message.id): self.context_window.counts.count(message) for message in want.messages}
            return self.archive.add(thread, records_of(want.messages, history=want.history, tokens=tokens)) if tokens else 0
        if isinstance(want, Record):
            return self.archive.add(thread, [want.summary])
        if isinstance(want, Move):
            if self.outputs is None:
                return {}
            return {str(message.id): self.outputs.keep(thread, str(message.id), text_of(message)) for message in want.messages}
        if isinstance(want, LookUp):
            long_term = self._long_term if self.recall.knowledge else None
            return look_up(
                self.archive, thread, want, count=self.context_window.counter.count_text, policy=self.recall, long_term=long_term
            )
        if isinstance(want, Recall):
            return {id: record.text for id, record in self.archive.originals(thread, want.ids).items()}
        if isinstance(want, Leave):
            return want.tell()
        return self._asked.ask(want)

    async def _ado(self, thread: str, want: Any) -> Any:
        if isinstance(want, Ask):
            return await self._asked.aask(want)
        return await asyncio.to_thread(self._do, thread, want)

    @property
    def _asked(self) -> Summarizer:
        if self._summarizer is None:
            raise SummaryError("There is no model to ask for a summary.")
        return self._summarizer

    def _heard(self, want: Ask, message: BaseMessage) -> None:
        """Learn from what a summary took, and charge it."""
        usage, model = Usage.read(message), self._asked.model
        if usage is not None and model is not None:
            name, factor = model_name_of(model), self.limits.facts(model, window=None).factor
            self.calibration.observe(name, int(self.context_window.counter.count_text(want.prompt) * factor), usage)
            if self.accounts is not None:
                self.accounts.charge(usage, model=name, purpose="summary")


def _is_request(want: Any) -> bool:
    return isinstance(want, ModelRequest)


_RIDING = frozenset({"reminded", "recalled"})


def _from_state(request: ModelRequest[Any], given: Sequence[Any], messages: Sequence[Any]) -> Iterator[Any]:
    """What is stored for a compacted request: messages of the state as they stand there, and what this compaction or an earlier one made.

    `given` is what came in the request. A message that an outer middleware put into it alone (a picture, say) stays out of the state, one
    that was given a reminder keeps it.
    """
    known = {message.id: message for message in request.state.get("messages", ())}
    came = set(map(id, given))
    for message in messages:
        if id(message) not in came or (message.id in known and _RIDING & marks_of(message).keys()):
            yield message
        elif message.id in known:
            yield known[message.id]
