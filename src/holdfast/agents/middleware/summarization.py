"""Working memory for any LangChain `create_agent`: compaction that loses nothing and never overflows (S1-S19).

A drop-in for LangChain's middleware of the same name: the same arguments, another import. Put it last in the list, so that it
sees what is really sent.

    agent = create_agent(model, tools, middleware=[SummarizationMiddleware(model, trigger=("fraction", 0.8))])
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired

from langchain.agents.middleware.types import (
    AgentMiddleware,
    AgentState,
    ExtendedModelResponse,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
)
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Overwrite

from holdfast.agents.forge import LangChainForge
from holdfast.agents.middleware.driving import adrive, drive
from holdfast.agents.recall import recall_tools
from holdfast.context.compaction import Outcome, Recall, Record, Settings, Store
from holdfast.context.manifest import Manifest, manifest_of
from holdfast.context.planner import Policy
from holdfast.context.records import records_of
from holdfast.context.summarizing import Ask, SummaryError
from holdfast.context.triggers import parse_keep, parse_trigger
from holdfast.context.window import Keeper, Prepared, Room
from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import IdSource, RandomIds
from holdfast.tokens import Accounts, BaseCounter, Budget, Calibration, TokenCounter, Usage, find_window, open_counter

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

    from holdfast.config import Config
    from holdfast.context.archive import Archive

__all__ = ["SummarizationMiddleware", "WindowState"]

_KEEP = ("messages", 20)


class WindowState(AgentState[Any]):
    """What the thread's checkpoint remembers of its window: how often it was compacted, and by which summary."""

    holdfast_window: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


@dataclass(frozen=True)
class _Call:
    """Ask the run model."""

    request: ModelRequest[Any]


class SummarizationMiddleware(AgentMiddleware[Any, Any, Any]):
    """Keeps a conversation inside the window.

    `model` writes the summaries (a chat model, a `provider:name` text, or None: then they are extracts). `trigger` and `keep` take
    LangChain's tuples, the configuration's mappings, or policies of `holdfast.context`. Everything that leaves the window is in the
    `archive` first; without one given it is kept below the base directory (`HOLDFAST_HOME`, else `.holdfast`).
    """

    state_schema = WindowState

    def __init__(
        self,
        model: str | BaseChatModel | None = None,
        *,
        trigger: Any = None,
        keep: Any = _KEEP,
        token_counter: str | TokenCounter | Callable[..., int] = "exact",  # noqa: S107 - a kind of counter
        summary_prompt: str | None = None,
        trim_tokens_to_summarize: int | None = 4000,
        summarizer: str | BaseChatModel | None = None,
        enabled: bool = True,
        summary_role: Literal["human", "system"] = "human",
        window: int | None = None,
        archive: Archive | None = None,
        timeout: float | None = 120.0,
        on_leave: Sequence[Callable[[str, tuple[Any, ...]], None]] = (),
        accounts: Accounts | None = None,
        bus: Bus | None = None,
        ids: IdSource | None = None,
    ) -> None:
        super().__init__()
        self.bus = bus or process_bus
        self.archive = archive or _default_archive()
        self.accounts = accounts
        self.calibration = Calibration()
        self._ids = ids or RandomIds()
        self._window, self._timeout = window, timeout
        self._unnamed = self._ids.new("thread")
        self._model = _model(summarizer if summarizer is not None else model)
        counter = _counter(token_counter, self._model)
        settings = Settings(
            count=counter.count_text,
            forge=LangChainForge(),
            new_id=lambda: self._ids.new("summary"),
            enabled=enabled,
            ask=self._model is not None,
            model=_name(self._model) if self._model is not None else None,
            limit=self._limit(trim_tokens_to_summarize),
            prompt=summary_prompt,
            role=summary_role,
        )
        policy = Policy(trigger=parse_trigger(trigger), keep=parse_keep(keep))
        self.keeper = Keeper(policy, settings, counter, self.bus, on_leave=on_leave)
        self.tools: Sequence[BaseTool] = recall_tools(self.archive, lambda: self._unnamed)
        self._sent: OrderedDict[str, tuple[ModelRequest[Any], Prepared, Room]] = OrderedDict()
        self._rooms: dict[int, tuple[BaseChatModel, int, int]] = {}

    @classmethod
    def from_config(cls, config: Config, **parts: Any) -> SummarizationMiddleware:
        """From the `summarization` section. The summarizer is the one that S14 names; a model that is too weak for it is not asked."""
        from holdfast.agents.models import summary_model

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
            **{"archive": _archive_in(config), **parts},
        )

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]) -> Any:
        """Check, compact if need be, call the model, and rewrite the state in the same step."""
        thread = self._thread(request)

        def do(want: Any) -> Any:
            if isinstance(want, _Call):
                return handler(want.request)
            return self._do(thread, want)

        return drive(self._steps(thread, request), do)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]
    ) -> Any:
        """The same, awaited; the archive is written in a thread, so the loop goes on."""
        thread = self._thread(request)

        async def do(want: Any) -> Any:
            if isinstance(want, _Call):
                return await handler(want.request)
            if isinstance(want, Ask):
                return await self._aask(want)
            return await asyncio.to_thread(self._do, thread, want)

        return await adrive(self._steps(thread, request), do)

    def compact(
        self, messages: Sequence[BaseMessage], *, thread: str, model: BaseChatModel, force: bool = True, keep: Any = None
    ) -> Prepared:
        """Compact a history now (S17). Returns the new one; storing it is the caller's part, see `compact_thread`."""
        window, cap = self._window_of(model)
        work = self.keeper.compact(thread, messages, Room(window, cap, 0), force=force, keep=None if keep is None else parse_keep(keep))
        return drive(work, lambda want: self._do(thread, want))

    def compact_thread(self, agent: Any, thread: str, *, model: BaseChatModel, force: bool = True, keep: Any = None) -> Prepared:
        """Compact the thread of an agent that has a checkpointer, and store the result."""
        config = {"configurable": {"thread_id": thread}}
        state = agent.get_state(config).values
        prepared = self.compact(state.get("messages", []), thread=thread, model=model, force=force, keep=keep)
        if prepared.changed:
            agent.update_state(config, {"messages": Overwrite(list(prepared.messages)), **self._epoch(state, prepared.outcome)})
            self.keeper.stored(thread)
        return prepared

    def manifest(self, thread: str) -> Manifest | None:
        """What the last model call of a thread was sent: every part, where it came from, and its tokens (O4)."""
        last = self._sent.get(thread)
        if last is None:
            return None
        request, prepared, room = last
        return manifest_of(
            prepared.messages,
            system=request.system_message,
            tools=request.tools,
            room=room,
            counter=self.keeper.counter,
            outcome=prepared.outcome,
        )

    # the work, without I/O

    def _steps(self, thread: str, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        messages = self._with_ids(request.messages)
        name, room = self._room(request)
        prepared = yield from self.keeper.prepare(thread, messages, room)
        self._note(thread, request, prepared, room)
        sent: Any = prepared.messages
        marked = _with_cache_mark(request)
        response = yield _Call(marked if sent is request.messages else marked.override(messages=list(sent)))
        self._learn(name, prepared.tokens, response)
        if not prepared.changed:
            return response
        known = {message.id: message for message in request.state.get("messages", ())}
        ours = {id(message) for message in request.messages}
        stored = [known.get(message.id, message) if id(message) in ours else message for message in prepared.messages]
        self.keeper.stored(thread)
        update = {"messages": Overwrite([*stored, *response.result]), **self._epoch(request.state, prepared.outcome)}
        return ExtendedModelResponse(response, Command(update=update))

    def _with_ids(self, messages: list[Any]) -> list[Any]:
        if all(message.id for message in messages):
            return messages
        forge = self.keeper.settings.forge
        return [message if message.id else forge.with_id(message, self._ids.new("message")) for message in messages]

    def _epoch(self, state: Mapping[str, Any], outcome: Outcome | None) -> dict[str, Any]:
        if outcome is None or outcome.summary is None:
            return {}
        before = state.get("holdfast_window") or {}
        return {"holdfast_window": {"epoch": int(before.get("epoch", 0)) + 1, "summary": outcome.summary.id}}

    def _room(self, request: ModelRequest[Any]) -> tuple[str, Room]:
        window, cap = self._window_of(request.model)
        counter = self.keeper.counter
        fixed = counter.count_tools(request.tools or ()) + 3
        if request.system_message is not None:
            fixed += self.keeper.counts.count(request.system_message)
        schema = getattr(request.response_format, "schema", None)
        if schema is not None:
            fixed += counter.count_tools([schema])
        name = _name(request.model)
        calibration = self.calibration
        return name, Room(calibration.room(name, window), calibration.room(name, cap), fixed)

    def _window_of(self, model: BaseChatModel) -> tuple[int, int]:
        """The window of a model and the most that may be sent: the rest is for the answer."""
        known = self._rooms.get(id(model))
        if known is None or known[0] is not model:
            window = self._window or find_window(model, name=_name(model), bus=self.bus).tokens
            wanted = getattr(model, "max_tokens", None)
            answer = min(wanted, window // 4) if isinstance(wanted, int) and wanted > 0 else Budget.split(window).response
            known = self._rooms[id(model)] = (model, window, max(1, window - answer))
            while len(self._rooms) > 64:
                self._rooms.pop(next(iter(self._rooms)))
        return known[1], known[2]

    def _limit(self, trim: int | None) -> int:
        """The most tokens of one summarizer call: what was configured, and never more than its window."""
        if self._model is None:
            return trim or 4000
        window = find_window(self._model, name=_name(self._model), bus=self.bus).tokens
        return min(trim or window, window - Budget.split(window).response)

    def _learn(self, model: str, counted: int, response: ModelResponse[Any]) -> None:
        for message in response.result:
            if isinstance(message, AIMessage) and message.usage_metadata:
                self.calibration.observe(model, counted, message.usage_metadata)

    def _note(self, thread: str, request: ModelRequest[Any], prepared: Prepared, room: Room) -> None:
        self._sent[thread] = (request, prepared, room)
        self._sent.move_to_end(thread)
        while len(self._sent) > 64:
            self._sent.popitem(last=False)

    def _thread(self, request: ModelRequest[Any]) -> str:
        info = getattr(request.runtime, "execution_info", None)
        return str(getattr(info, "thread_id", None) or self._unnamed)

    # what the work wants done

    def _do(self, thread: str, want: Any) -> Any:
        if isinstance(want, Store):
            tokens = {str(message.id): self.keeper.counts.count(message) for message in want.messages}
            return self.archive.add(thread, records_of(want.messages, history=want.history, tokens=tokens)) if tokens else 0
        if isinstance(want, Record):
            return self.archive.add(thread, [want.summary])
        if isinstance(want, Recall):
            return {id: record.text for id, record in self.archive.originals(thread, want.ids).items()}
        return self._ask(want)

    @property
    def _summarizer(self) -> BaseChatModel:
        if self._model is None:
            raise SummaryError("There is no model to ask for a summary.")
        return self._model

    def _quiet(self) -> RunnableConfig:
        """Settings under which a summary call reaches neither the user's stream nor the user's callbacks (S15)."""
        return {"callbacks": [], "tags": ["nostream"], "run_name": "summary"}

    def _ask(self, want: Ask) -> str:
        """Ask in a thread of its own, so that a summarizer that hangs costs the time-out and not the run."""
        answer: Future[BaseMessage] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._summarizer.invoke([HumanMessage(want.prompt)], self._quiet()))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
                answer.set_exception(error)

        threading.Thread(target=ask, name="holdfast-summary", daemon=True).start()
        try:
            return self._answer(answer.result(self._timeout))
        except Exception as error:  # a provider may raise anything; whatever it is, the history stays as it was
            raise SummaryError(f"The summarizer failed: {type(error).__name__}: {error}") from error

    async def _aask(self, want: Ask) -> str:
        try:
            async with asyncio.timeout(self._timeout):
                return self._answer(await self._summarizer.ainvoke([HumanMessage(want.prompt)], self._quiet()))
        except Exception as error:  # as above; a cancellation is not an Exception and goes through
            raise SummaryError(f"The summarizer failed: {type(error).__name__}: {error}") from error

    def _answer(self, message: BaseMessage) -> str:
        if self.accounts is not None and self._model is not None:
            usage = Usage.read(message)
            if usage is not None:
                self.accounts.charge(usage, model=_name(self._model), purpose="summary")
        return message.text if isinstance(message.text, str) else str(message.text)


def _with_cache_mark(request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Anthropic caches a prefix only where it is marked (S19); the others see by themselves that the prefix is the same."""
    kind = getattr(request.model, "_llm_type", "")
    if not str(kind).startswith("anthropic") or "cache_control" in request.model_settings:
        return request
    return request.override(model_settings={**request.model_settings, "cache_control": {"type": "ephemeral"}})


def _model(model: str | BaseChatModel | None) -> BaseChatModel | None:
    if not isinstance(model, str):
        return model
    from langchain.chat_models import init_chat_model

    made: BaseChatModel = init_chat_model(model)
    return made


def _name(model: object) -> str:
    for attribute in ("model_name", "model", "name"):
        name = getattr(model, attribute, None)
        if isinstance(name, str) and name:
            return name
    return type(model).__name__


class _MessagesCounter(BaseCounter):
    """LangChain's kind of counter, a function from messages to tokens, as ours."""

    def __init__(self, count: Callable[..., int]) -> None:
        super().__init__()
        self._count = count

    def count_text(self, text: str) -> int:
        return self._count([HumanMessage(text)]) if text else 0

    def count_message(self, message: Any) -> int:
        return self._count([message])


def _counter(wanted: str | TokenCounter | Callable[..., int], model: BaseChatModel | None) -> TokenCounter:
    if isinstance(wanted, str | TokenCounter):
        return open_counter(wanted, model=_name(model) if model is not None else None)
    return _MessagesCounter(wanted)


def _default_archive() -> Archive:
    """Below the base directory that the command line would use here."""
    from holdfast.config import base_directory, find_config
    from holdfast.context.archive import FileArchive

    return FileArchive(base_directory(find_config())[0])


def _archive_in(config: Config) -> Archive:
    from holdfast.context.archive import FileArchive

    return FileArchive(config.base)
