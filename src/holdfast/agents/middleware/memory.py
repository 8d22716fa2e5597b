"""Memory of the user for any LangChain `create_agent`: it is in the prompt, and what is said is learned from (M8, M12, M15, S18, S19).

The system part with `<memory>`, `<blocks>` and the date is rendered at the first call of a thread and again only after a compaction. What
was learned since, what the question is about, and a new date ride on the newest user message as a reminder and stay there. A block that
was written since rides on the newest message of either kind, the user's or a tool's, so that an agent sees its own edit from its next
step on. Only a message that no model has seen yet gets a reminder: between two compactions the prefix does not change by a byte.

`open_memory` is the service as the configuration describes it, with the model that it names behind the extraction (M9, M13, S14);
`memory_tools` are those by which an agent keeps its own memory of the user, in the mode `tool`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NotRequired

from langchain.agents.middleware.types import AgentState, ExtendedModelResponse, ModelRequest, ModelResponse, PrivateStateAttr
from langchain.tools import ToolRuntime
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import LLMResult
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command

from holdfast.agents.checkpoints import Rewritten
from holdfast.agents.middleware.base import (
    AWAY,
    AroundModelCall,
    RequestSettings,
    conversation_of_call,
    system_with,
    thread_of,
    with_reminder,
)
from holdfast.agents.middleware.model_calls import asked as traced_call
from holdfast.agents.middleware.model_calls import quiet
from holdfast.clock import Clock, SystemClock, stamp
from holdfast.config.loading import load_config
from holdfast.context.view import as_reminder, marks_of
from holdfast.errors import ModelNotConfigured
from holdfast.memory import rendering
from holdfast.memory.facts import SLOTS, SlotUpdate, turns_of
from holdfast.memory.model_extractor import ModelExtractor
from holdfast.memory.rendering import BlockView, render_blocks
from holdfast.memory.rules import RulesExtractor
from holdfast.memory.service import MemoryService
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import memory_model
from holdfast.tokens.accounts import Accounts, Usage
from holdfast.tokens.budget import Budget
from holdfast.tokens.windows import find_window
from holdfast.validation import check_kind

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from holdfast.config.sections import Config
    from holdfast.memory.document import Document
    from holdfast.memory.updater import Extractor

_REMINDER_TOKENS = 300


class MemoryUse(NamedTuple):
    """What a request may do with memory: whether it stands in its prompts, and whether it is learned from."""

    inject: bool = True
    learn: bool = True


_WRITING = {"memory_add", "memory_update", "memory_remove", "memory_write_block"}
_ALL, _READ = MemoryUse(), MemoryUse(learn=False)
memory_use: ContextVar[MemoryUse] = ContextVar("holdfast_memory_use", default=_ALL)
"""What the request that is answered says of memory. What it does not allow is not done, whatever the middleware was made for."""


class MemoryState(AgentState[Any]):
    """What the thread's checkpoint remembers of the memory that is in its prompt."""

    holdfast_memory: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]


class _Shown(NamedTuple):
    """The frozen part: the text in the system prompt, the facts and blocks that the thread has seen, and since when; whose memory it is."""

    epoch: int
    agent: str | None
    text: str
    date: str
    since: str
    facts: tuple[str, ...]
    blocks: tuple[str, ...] = ()

    @classmethod
    def read(cls, record: object) -> _Shown | None:
        if not isinstance(record, Mapping) or not isinstance(record.get("text"), str):
            return None
        facts, blocks = (tuple(map(str, record.get(name) or ())) for name in ("facts", "blocks"))
        date, since = (str(record.get(name, "")) for name in ("date", "since"))
        return cls(int(record.get("epoch", 0)), record.get("agent"), record["text"], date, since, facts, blocks)

    def written(self) -> dict[str, Any]:
        return {**self._asdict(), "facts": list(self.facts), "blocks": list(self.blocks)}


class MemoryMiddleware(AroundModelCall):
    """Puts what is known about the user into the prompt, and queues what is said to be learned from.

    Put it before `SummarizationMiddleware` in the list. Without a service, memory is kept below the base directory that the command line
    would use here. `learn=False` only injects (for sub-agents). In the mode `tool` the agent has memory tools and nothing is queued.
    `window` is that of the model, where its profile does not say it: memory, and blocks likewise, take no more than their share of it (T4).

    The memory is that of `agent`, or of the agent that a request names: `invoke(..., {"configurable": {"agent_name": "coder"}})` (M3).
    """

    state_schema = MemoryState

    def __init__(
        self,
        service: MemoryService | None = None,
        *,
        agent: str | None = None,
        learn: bool = True,
        date: bool = True,
        window: int | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        hint = "`holdfast.build(config).memory` is one; without it memory is below the base directory."
        check_kind("service", service, (MemoryService, type(None)), "a MemoryService", hint=hint)
        self._given, self._learns = service, learn
        self._shared: MemoryService | None = None
        self.agent, self._date = agent, date
        self._clock = clock or SystemClock()
        self._window = window
        self.tools: Sequence[BaseTool] = []
        if service is None:  # whether they are offered is known when the configuration is read
            self.tools = memory_tools(lambda: self.service, agent, write=learn, blocks=True)
        elif self._tool_mode:
            self.tools = memory_tools(lambda: service, agent, write=learn, blocks=bool(service.settings.blocks))

    @property
    def service(self) -> MemoryService:
        """The memory. One that was not given is opened when it is used, also anew: making a middleware touches no file."""
        if self._given is not None:
            return self._given
        if self._shared is None or self._shared.closed:
            self._shared = process_memory()
        return self._shared

    @property
    def _tool_mode(self) -> bool:
        return self.service.settings.enabled and self.service.settings.mode == "tool"

    @property
    def _learn(self) -> bool:
        return self._learns and memory_use.get().learn and self.service.settings.enabled and self.service.settings.mode != "tool"

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Inject, call the model, and after the final answer queue the turn."""
        yield AWAY  # files are read and written
        sending, update = self._injected(request)
        response = yield sending
        self._queue(request, response)
        return _with(response, update)

    def leaving(self, thread: str, messages: Sequence[Any]) -> None:
        """A hook for `SummarizationMiddleware(on_leave=[memory.leaving])`: what leaves the window is queued before it goes (S18)."""
        self._enqueue(thread, messages, self._agent())

    # what goes into the prompt

    def _injected(self, request: ModelRequest[Any]) -> tuple[ModelRequest[Any], dict[str, Any]]:
        request = self._with_tools(request)
        if self._learn:
            self.service.start(signals=False)  # from the first call on, what waits is learned from: also what an earlier process left
        if not memory_use.get().inject:  # the date alone
            today = self._today()
            text = f"Today is {today}." if today else ""
            return (request.override(system_message=system_with(request.system_message, text)) if text else request), {}
        state: Mapping[str, Any] = request.state  # with the keys of the other middlewares
        epoch, agent = int((state.get("holdfast_window") or {}).get("epoch", 0)), self._agent(request.runtime)
        known = _Shown.read(state.get("holdfast_memory"))
        shown = known if known is not None and (known.epoch, known.agent) == (epoch, agent) else self._rendered(epoch, agent, request.model)
        update: dict[str, Any] = {}
        messages: list[Any] = request.messages
        reminded, shown_now = self._reminded(messages, shown, request.model)
        if reminded is not None:
            messages = [*messages[:-1], reminded]
            update["messages"] = [reminded]
        if shown_now != known:
            update["holdfast_memory"] = shown_now.written()
        return request.override(system_message=system_with(request.system_message, shown.text), messages=messages), update

    def _with_tools(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Without those tools of memory that the settings do not have."""
        blocks = {"memory_read_block", "memory_write_block"} if not self.service.settings.blocks else set()
        use = memory_use.get()
        out = blocks if self._tool_mode and use.inject else {tool.name for tool in self.tools}
        out = out if use.learn else out | _WRITING
        kept = [tool for tool in request.tools if getattr(tool, "name", None) not in out] if self.tools else request.tools
        return request if len(kept) == len(request.tools) else request.override(tools=kept)

    def _agent(self, runtime: Any = None) -> str | None:
        """Whose memory it is: the request says so, or it is the one of this middleware."""
        return RequestSettings.current(runtime).agent_name or self.agent

    def _rendered(self, epoch: int, agent: str | None, model: Any) -> _Shown:
        rendering, views, today = self.service.rendering_for(agent, self._share(model)), self._views(agent), self._today()
        parts = [rendering.text, self._blocks(views, model), f"Today is {today}." if today else ""]
        text = "\n\n".join(part for part in parts if part)
        return _Shown(epoch, agent, text, today, stamp(self._clock.now()), rendering.facts, tuple(map(_digest, views)))

    def _share(self, model: Any) -> int:
        """The tokens that memory may take in the window of a model."""
        window = self._window or find_window(model, name=model_name_of(model), bus=self.service.store.bus).tokens
        return Budget.split(window, self.service.settings.max_injection_tokens).memory

    def _views(self, agent: str | None) -> list[BlockView]:
        """The blocks, read-only for an agent that has no tool to write them."""
        views = self.service.shown_blocks(agent)
        return views if self._learns and self._tool_mode else [replace(view, read_only=True) for view in views]

    def _blocks(self, views: Sequence[BlockView], model: Any) -> str:
        if not views:
            return ""
        hint = "(shortened: memory_read_block reads all of it)" if self._tool_mode else ""
        return render_blocks(views, self.service.counter.count_text, self._share(model), hint=hint)

    def _today(self) -> str:
        return self._clock.now().strftime("%A, %Y-%m-%d") if self._date else ""

    def _reminded(self, messages: Sequence[BaseMessage], shown: _Shown, model: Any) -> tuple[BaseMessage | None, _Shown]:
        """The newest message with a reminder, if it is one that may have one and there is something to say; and what is shown by then."""
        newest = messages[-1] if messages else None
        if newest is None or not newest.id or not isinstance(newest, HumanMessage | ToolMessage):
            return None, shown
        marks = marks_of(newest)
        if "reminded" in marks or (marks and isinstance(newest, HumanMessage)):
            return None, shown
        views = self._views(shown.agent)
        said, now = self._news(newest.text, shown) if isinstance(newest, HumanMessage) else ([], shown)
        said.append(self._blocks([view for view in views if _digest(view) not in shown.blocks], model))
        text = "\n".join(part for part in said if part)
        if not text:
            return None, shown
        reminded = with_reminder(newest, as_reminder(text), {"reminded": True})
        return reminded, now._replace(blocks=tuple(map(_digest, views)))

    def _news(self, question: str, shown: _Shown) -> tuple[list[str], _Shown]:
        """What a user's message is told: a new date, facts learned since, facts that it asks about."""
        new = self.service.learned_since(shown.since, shown.agent, shown=shown.facts, budget=_REMINDER_TOKENS)
        fitting = self.service.reminder_for(shown.agent, question, shown=(*shown.facts, *new.facts), budget=_REMINDER_TOKENS)
        today = self._today()
        said = [f"Today is {today}." if today != shown.date else "", new.text.strip(), fitting.text.strip()]
        if not any(said):
            return [], shown
        return said, shown._replace(date=today, since=stamp(self._clock.now()), facts=(*shown.facts, *new.facts, *fitting.facts))

    # what is learned from

    def _queue(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        final = next((message for message in response.result if isinstance(message, AIMessage)), None)
        if final is None or final.tool_calls or final.invalid_tool_calls:
            return
        start = 0
        for index, message in enumerate(request.messages):
            if isinstance(message, AIMessage) and not message.tool_calls:
                start = index + 1
        self._enqueue(conversation_of_call(request), [*request.messages[start:], final], self._agent(request.runtime))

    def _enqueue(self, thread: str, messages: Sequence[Any], agent: str | None) -> None:
        if not self._learn:
            return
        turns = turns_of(messages, time=stamp(self._clock.now()), foreign=True)
        if any(turn.kind == "user" for turn in turns):
            self.service.enqueue(thread, turns, agent)


def _digest(view: BlockView) -> str:
    """Tells one text of a block from another, in few characters: it is in every checkpoint."""
    return f"{view.name}:{blake2b(view.text.encode('utf-8', 'replace'), digest_size=8).hexdigest()}"


def _with(response: ModelResponse[Any], update: dict[str, Any]) -> Any:
    """The response, with a state update if there is one.

    A message with its reminder goes before the answer in the same write: two writes would change the shape of streamed updates. A history
    that was rewritten in this step has it already.
    """
    reminded = update.pop("messages", [])
    result: Any = response.result  # LangChain's type says a list
    if reminded and not isinstance(result, Rewritten):
        response = replace(response, result=[*reminded, *result])
    return ExtendedModelResponse(response, Command(update=update)) if update else response


def open_memory(config: Config, *, model: BaseChatModel | None = None, accounts: Accounts | None = None, **parts: Any) -> MemoryService:
    """The service with its extractor: the rules when `extractor: rules` says so, or when no model is there that is good enough.

    `model` may be given; otherwise it is the one that `memory.model_name` names, else the lightweight one. It is made when something is
    first learned, so that memory can be read without it. Raises ModelNotConfigured when `extractor: model` is set and there is none.
    """

    @cache
    def chosen() -> Callable[[Document], Extractor] | None:
        return model_extractor(config, model=model, accounts=accounts)

    def extractor(document: Document) -> Extractor:
        make = chosen()
        return make(document) if make is not None else RulesExtractor()

    if config.memory.extractor == "model":
        chosen()
    return MemoryService.open(config, extractor=extractor, **parts)


_opened: dict[Path, tuple[Config, MemoryService]] = {}


def process_memory() -> MemoryService:
    """The memory below the base directory that the command line would use here: one for all of this process who give none."""
    config = load_config()
    held = _opened.get(config.base)
    if held is None or held[0] != config or held[1].closed:
        held = _opened[config.base] = (config, open_memory(config))
    return held[1]


def model_extractor(
    config: Config, *, model: BaseChatModel | None = None, accounts: Accounts | None = None
) -> Callable[[Document], ModelExtractor] | None:
    """Makes the extractor that asks a model, for the document as it is then; None where the rules are used. Raises as `open_memory`."""
    wanted = config.memory.extractor
    if wanted == "rules":
        return None
    chosen = model if model is not None else memory_model(config)
    if chosen is None and wanted == "model":
        raise ModelNotConfigured(
            "`memory.extractor: model` is set, and there is no model that can extract facts.",
            hint="Configure one, or set `extractor: auto`: the rules are used then.",
        )
    return _extractors(chosen, accounts) if chosen is not None else None


def _extractors(model: BaseChatModel, accounts: Accounts | None) -> Callable[[Document], ModelExtractor]:
    window = find_window(model).tokens
    name = model_name_of(model)

    def ask(prompt: str, schema: dict[str, Any]) -> dict[str, Any] | str:
        """Ask in the schema where the model can, and quietly: nobody's stream and nobody's callbacks (S15)."""
        heard = _Heard()
        try:
            named = {"title": "memory_update", "description": "What is worth remembering about the user.", **schema}
            asked: Any = model.with_structured_output(named)
        except NotImplementedError:
            asked = model
        try:
            with traced_call(model, [HumanMessage(prompt)], purpose="memory") as told:
                parsed = asked.invoke([HumanMessage(prompt)], quiet("memory", heard))
                told.append(heard.answer)
        except Exception:  # of the parser, if there is an answer: any class may stand there, and the answer is read as text then
            if heard.answer is None:
                raise
            parsed = None
        if accounts is not None and (usage := Usage.read(heard.answer)) is not None:
            accounts.charge(usage, model=name, purpose="memory")
        return parsed if isinstance(parsed, dict) else heard.answer.text if heard.answer is not None else ""

    def slots(document: Document) -> list[SlotUpdate]:
        """The summaries as they are now, for the model to rewrite."""
        return [SlotUpdate(name, text) for name in SLOTS if (text := document.slot(name).text)]

    return lambda document: ModelExtractor(ask, limit=max(1000, min(6000, window // 2)), slots=lambda: slots(document))


class _Heard(BaseCallbackHandler):
    """Hears the model's answer as it was given, with its usage.

    LangChain's own way to both (`include_raw`) runs the call in a pool of threads. At the end of a process there are none any more, and
    a call in one that hangs would keep the process from ending.
    """

    def __init__(self) -> None:
        self.answer: BaseMessage | None = None

    def on_llm_end(self, response: LLMResult, **_: Any) -> None:
        found = response.generations[-1][-1] if response.generations and response.generations[-1] else None
        self.answer = getattr(found, "message", None)


def _check_use(wanted: MemoryUse) -> None:
    """ToolException where the request does not allow this: a model may call a tool that it was not offered."""
    allowed = memory_use.get()
    if not allowed.inject or (wanted.learn and not allowed.learn):
        raise ToolException("This request leaves memory out." if not allowed.inject else "Nothing is learned from this request.")


def memory_tools(
    service: Callable[[], MemoryService], agent: str | None = None, *, write: bool = True, blocks: bool = False
) -> list[BaseTool]:
    """Search, add, update and remove, and reading and writing of blocks where there are any; without `write` what only reads.

    `service` says the memory when a tool is called; one that is not in the mode `tool` answers just that. What the user typed in the thread
    is the source. Whose memory it is, the request says, or it is `agent` (M3).
    """

    def memory(wanted: MemoryUse = _READ) -> MemoryService:
        _check_use(wanted)
        found = service()
        if not found.settings.enabled or found.settings.mode != "tool":
            raise ToolException("Memory has no tools here: it is learned from the conversation.")
        return found

    def whose(runtime: ToolRuntime[Any, Any]) -> str | None:
        return RequestSettings.read(runtime.config, runtime.context).agent_name or agent

    def said(runtime: ToolRuntime[Any, Any]) -> dict[str, Any]:
        return {"turns": turns_of(runtime.state.get("messages", ()), foreign=True), "thread": thread_of(runtime), "agent": whose(runtime)}

    def memory_search(query: str, runtime: ToolRuntime[Any, Any], top_k: int = 8) -> str:
        """Search what is known about the user."""
        return rendering.memory_search(memory(), query, agent=whose(runtime), top_k=top_k)

    def memory_add(content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remember a fact about the user that the user stated. Write it as a description, for example: User prefers short answers."""
        return rendering.memory_add(memory(_ALL), content, **said(runtime))

    def memory_update(id: str, content: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Put a corrected fact in place of the one with this id."""
        return rendering.memory_update(memory(_ALL), id, content, **said(runtime))

    def memory_remove(id: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Remove a fact that is no longer true, by its id."""
        return rendering.memory_remove(memory(_ALL), id, **said(runtime))

    def memory_read_block(name: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Read one of your memory blocks as it is now, in full."""
        return rendering.memory_read_block(memory(), name, agent=whose(runtime))

    def memory_write_block(name: str, text: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Replace the text of one of your memory blocks."""
        return rendering.memory_write_block(memory(_ALL), name, text, **said(runtime))

    functions: list[Any] = [memory_search, *([memory_read_block] if blocks else [])]
    if write:
        functions += [memory_add, memory_update, memory_remove, *([memory_write_block] if blocks else [])]
    return [StructuredTool.from_function(function, handle_tool_error=True) for function in functions]
