"""The two models of a window: the one that reads it, with its limits, and whoever writes its summaries (S1, S7, S13, S15, S16).

`ModelLimits` says how much of a model's window a request may take: what is known of the model, what is sent beside the messages, what
providers report. It learns from the usage that comes back (`tokens/windows.py`). `ListCounter` counts with LangChain's kind of counter, a
function over a list of messages.

`Summarizer` asks a chat model, or a function or Runnable that is given the messages, so that neither the user's stream nor the user's
callbacks see it, and a hanging one costs the time-out and not the run. Whatever goes wrong is a SummaryError: the history stays as it was.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, NoReturn

from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.base import coerce_to_runnable

from holdfast.agents.middleware.model_calls import asked, quiet
from holdfast.context.compaction import LEAD, Ask, Entry
from holdfast.context.window import WindowLimits
from holdfast.errors import BudgetError, CallFailed, InputError, SummaryError
from holdfast.events import Bus, Event
from holdfast.models.abilities import abilities_of, model_name_of
from holdfast.models.failures import is_cut
from holdfast.models.refusals import Refusal, asked_for, refusal_in
from holdfast.tokens.accounts import Usage
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import BaseCounter, TokenCounter
from holdfast.tokens.windows import DEFAULT_WINDOW, Calibration, find_window, start_of

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest, ModelResponse

    from holdfast.context.window import ContextWindow


_ENOUGH_REPORTS = 8
"""Reports of usage after which a model's factor has settled."""
_UNDER, _GUESSED = 0.95, 0.7
"""How much of what fits is sent after a refusal, and of what was refused where it does not say what fits."""
_ALIASES = {"amazon_bedrock": ("bedrock", "bedrock_converse"), "openai-mantle": ("openai",), "anthropic-mantle": ("anthropic",)}
"""Names of providers in messages, by the name in traces, where they differ."""


class ModelFacts(NamedTuple):
    """What is known about a model. `answer` is how much of the window is left for what it says; `factor` and `margin` are where our
    counts start for it (`tokens/windows.py: start_of`)."""

    model: BaseChatModel
    name: str
    window: int
    answer: int
    marks_cache: bool
    takes_tools: bool
    factor: float
    margin: float


class ModelLimits:
    """The limits of requests, for every model that is asked. `window` is that of the run models, where the caller knows better."""

    def __init__(self, bus: Bus, window: int | None) -> None:
        self.calibration = Calibration(bus)
        self._bus, self._window = bus, window
        self.counts_by(o200k=True)

    def counts_by(self, *, o200k: bool) -> None:
        """Say whether messages are counted in the vocabulary `o200k`, by which the factor of a model is known."""
        self._by_o200k = o200k
        self._models: dict[tuple[object, ...], ModelFacts] = {}

    def knows(self, model: BaseChatModel) -> bool:
        """Whether the facts of a run model are worked out; else files may have to be read: a vocabulary, the weights of a local model."""
        return (id(model),) in self._models

    def facts(self, model: BaseChatModel, **given: int | None) -> ModelFacts:
        """What is known about a model, worked out once: asking a model object for what it does not have is slow."""
        key = (id(model), *given)  # a window that was given is the run model's, not the summarizer's
        facts = self._models.get(key)
        if facts is None or facts.model is not model:
            name, kind = model_name_of(model), str(getattr(model, "_llm_type", ""))
            window = given.get("window", self._window) or find_window(model, name=name, bus=self._bus).tokens
            wanted = getattr(model, "max_tokens", None)
            answer = min(wanted, window // 4) if isinstance(wanted, int) and wanted > 0 else Budget.split(window).response
            provider = kind.partition("-")[0].replace("openai", "")  # OpenAI's client is used for every model there is
            factor, margin = start_of(name, provider) if self._by_o200k else (1.0, 1.0)
            tools = abilities_of(model).tools and type(model).bind_tools is not BaseChatModel.bind_tools
            facts = self._models[key] = ModelFacts(model, name, window, answer, kind.startswith("anthropic"), tools, factor, margin)
            while len(self._models) > 64:
                self._models.pop(next(iter(self._models)))
        return facts

    def limits(self, facts: ModelFacts, fixed: int = 0) -> WindowLimits:
        """The limits of a request in which `fixed` tokens are no messages."""
        known = {"window": facts.window, "answer": facts.answer, "fixed": fixed}
        return WindowLimits.of(self.calibration, facts.name, **known, factor=facts.factor, margin=facts.margin)

    def of_request(self, request: ModelRequest[Any], facts: ModelFacts, window: ContextWindow) -> WindowLimits:
        """The limits of a request, counted with its system message, tools and answer form."""
        fixed = 3 + (window.counter.count_tools(request.tools) if request.tools else 0)
        if request.system_message is not None:
            fixed += window.counts.count(request.system_message)
        schema = getattr(request.response_format, "schema", None)
        fixed += window.counter.count_tools([schema]) if schema is not None else 0
        reported = reported_tokens(request.messages, request.model)
        return self.limits(facts, fixed)._replace(reported=reported if reported <= facts.window else 0)  # else the sum of several calls

    def of_history(self, messages: Sequence[Any], model: BaseChatModel | None) -> WindowLimits:
        """The limits of a history alone, for a model that may be none."""
        if model is None:
            return WindowLimits(self._window or DEFAULT_WINDOW, self._window or DEFAULT_WINDOW, 0)
        return self.limits(self.facts(model))._replace(reported=reported_tokens(messages, model))

    def refused(self, room: WindowLimits, counted: int, facts: ModelFacts, request: ModelRequest[Any], error: Exception) -> WindowLimits:
        """The limits with a cap below what was just refused; the refusal is remembered, if it is about the request.

        Where it is about the answer that is asked for nothing is remembered: the request leaves that much room, or whoever asks for more
        than half of the window is told (`CallFailed`).
        """
        said, tokens = refusal_in(error), room.tokens(counted)
        found = _figures(said, tokens, facts, request)
        window, sent, asked = (figure or 0 for figure in found)
        if found.is_hopeless:
            raise _answer_too_long(facts.name, found) from error
        if not found.is_about_the_answer:
            self.calibration.refused(facts.name, int(counted * facts.factor), facts.window, named=said.window, sent=said.sent)
        answer = asked if 0 < asked <= window // 2 else min(facts.answer, window // 4)
        cap = int((window - answer) * tokens / max(1, sent) * _UNDER)
        if not found.is_about_the_answer and (said.window is None or said.sent is None or cap >= tokens):
            cap = min(cap, int(tokens * _GUESSED))
        return room._replace(cap=max(1, min(room.cap, cap)))

    def nothing_fits(
        self, none: BudgetError, error: Exception, room: WindowLimits, counted: int, facts: ModelFacts, request: ModelRequest[Any]
    ) -> NoReturn:
        """A request was refused and none that is smaller can be made. Raises ours where the refusal names a window, else the refusal."""
        said = refusal_in(error)
        found = _figures(said, room.tokens(counted), facts, request)
        if found.is_about_the_answer:
            raise _answer_too_long(facts.name, found) from error
        if said.window is None:
            raise error
        raise none

    def forgets(self, facts: ModelFacts) -> bool:
        """Forget what refusals said of a model, rather than refuse a request without asking it; False where they said nothing."""
        return self.calibration.forget(facts.name)

    def learn(self, thread: str, facts: ModelFacts, response: ModelResponse[Any], count: Callable[[], int], *, always: bool) -> None:
        """Learn from reported usage: of the first calls of a model, of those near a trigger, and where reports do not grow any more."""
        for message in response.result:
            if not isinstance(message, AIMessage) or (usage := Usage.read(message)) is None:
                continue
            if usage.input_tokens <= facts.window:
                self.calibration.accepted(facts.name, usage.input_tokens)
            settled = self.calibration.reports(facts.name) >= _ENOUGH_REPORTS
            if always or not settled or self.calibration.stands_still(facts.name, thread, message):
                self.calibration.observe(facts.name, int(count() * facts.factor), message, thread=thread)


def _figures(said: Refusal, tokens: int, facts: ModelFacts, request: ModelRequest[Any]) -> Refusal:
    """A refusal with our own count, window and limit for what it does not say."""
    asked = said.asked or asked_for(request.model_settings, request.model) or 0
    return Refusal(said.window or facts.window, said.sent or tokens, asked)


def _answer_too_long(name: str, found: Refusal) -> CallFailed:
    window, sent, asked = (figure or 0 for figure in found)
    room = f"the window of {window:,} has room for {max(0, window - sent):,}"
    said = f"the answer that is asked for (`max_tokens`) has {asked:,} tokens, and {room}"
    hint = "Ask for a shorter one: lower `max_tokens` of the request, or of the model in config.yaml."
    return CallFailed(f"model {name!r}: {said} beside the request.", kind="max_tokens", model=name, hint=hint)


def reported_tokens(messages: Sequence[Any], model: BaseChatModel | None) -> int:
    """What the provider said of the newest answer, its own tokens included; 0 where it was another provider or said nothing."""
    newest = next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
    usage = Usage.read(newest) if newest is not None else None
    said = newest.response_metadata.get("model_provider") if newest is not None else None
    if usage is None or model is None or not isinstance(said, str):
        return 0
    known = str(model._get_ls_params().get("ls_provider") or "")
    return usage.total if said == known or said in _ALIASES.get(known, ()) else 0


@dataclass(frozen=True, kw_only=True)
class CounterFailed(Event):
    """A token counter that was given raised. Our own count takes its place."""

    component: ClassVar[str] = "SummarizationMiddleware"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "The token counter failed ({reason}); our own count is used"
    reason: str


class ListCounter(BaseCounter):
    """Counts with LangChain's kind of counter: a function that is given a whole history and says its tokens.

    The function is never given a part of one: what it says of a list need not be the sum over its messages, and a server that is asked
    refuses a result without its call. Single messages and texts are counted by `own`; sums over a history are brought to what the function
    says (`count_list`).
    """

    def __init__(self, count: Callable[..., int], own: TokenCounter, bus: Bus) -> None:
        super().__init__()
        self.function, self._own, self._bus, self._failed = count, own, bus, False

    def count_text(self, text: str) -> int:
        return self._own.count_text(text)

    def count_message(self, message: Any) -> int:
        return self._own.count_message(message)

    def count_list(self, messages: Sequence[Any]) -> int:
        """What the function says; our own sum where it raises, which is said once."""
        if not messages:
            return 0
        try:
            return max(0, int(self.function(list(messages))))
        except Exception as error:  # noqa: BLE001 - it is the user's code and may ask a server: no reason to end the run
            if not self._failed:
                self._bus.emit(CounterFailed(reason=f"{type(error).__name__}: {error}"))
            self._failed = True
            return sum(map(self.count_message, messages))


# Who writes summaries


_CONFIG: RunnableConfig = {**quiet("summary"), "metadata": {"lc_source": "summarization"}}


@dataclass(frozen=True)
class Summarizer:
    """Asks for summaries. Exactly one of `model` and `function` is there; `heard` gets every answer of the model, for the accounts."""

    model: BaseChatModel | None = None
    function: Runnable[Any, Any] | None = None
    timeout: float | None = 120.0
    heard: Callable[[Ask, BaseMessage], None] = lambda want, message: None

    @classmethod
    def of(cls, wanted: Any, **settings: Any) -> Summarizer | None:
        """For a chat model, the text `provider:name`, a Runnable, a function (also an async one), or nothing."""
        wanted = init_chat_model(wanted) if isinstance(wanted, str) else wanted
        if wanted is None:
            return None
        if isinstance(wanted, BaseChatModel):
            return cls(model=wanted, **settings)
        if not isinstance(wanted, Runnable) and not callable(wanted):
            raise InputError(f"{wanted!r} cannot write summaries.", hint="Give a chat model, a Runnable, or a function of messages.")
        return cls(function=coerce_to_runnable(wanted), **settings)

    @property
    def name(self) -> str:
        """Who it is, for the record."""
        return model_name_of(self.model) if self.model is not None else str(self._asked.get_name())

    def ask(self, want: Ask) -> str:
        """The summary, asked for in a thread of its own."""
        answer: Future[Any] = Future()

        def work() -> None:
            try:
                answer.set_result(self._asked.invoke(self._given(want), _CONFIG))
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised where the answer is waited for
                answer.set_exception(error)

        threading.Thread(target=work, name="holdfast-summary", daemon=True).start()
        with _failures(), self._traced(want) as heard:
            heard.append(answer.result(self.timeout))
            return self._text(want, answer.result())

    async def aask(self, want: Ask) -> str:
        """The summary, awaited."""
        with _failures():
            async with asyncio.timeout(self.timeout):
                with self._traced(want) as heard:
                    work = self._asked.ainvoke(self._given(want), _CONFIG)
                    # what a function calls would inherit the callbacks of the run from the context, so it gets an empty one
                    answer = await (work if self.function is None else asyncio.create_task(work, context=contextvars.Context()))
                    heard.append(answer)
                return self._text(want, answer)

    @property
    def _asked(self) -> Runnable[Any, Any]:
        asked = self.function if self.function is not None else self.model
        assert asked is not None  # noqa: S101 - `of` makes one with either
        return asked

    def _traced(self, want: Ask) -> AbstractContextManager[list[Any]]:
        """A span, where it is a model that is asked."""
        return asked(self.model, [HumanMessage(want.prompt)], purpose="summary") if self.model is not None else nullcontext([])

    def _given(self, want: Ask) -> list[BaseMessage]:
        if self.function is None:
            return [HumanMessage(want.prompt)]
        before = [HumanMessage(f"{LEAD}\n\n{want.notes}")] if want.notes else []
        return [*before, *map(_message, want.entries)]

    def _text(self, want: Ask, answer: Any) -> str:
        if self.function is not None:
            if not isinstance(answer, str):
                raise SummaryError(f"`summarizer` must return a str, got {type(answer).__name__}.")
            return answer
        self.heard(want, answer)
        text = str(answer.text)
        if is_cut(answer):
            raise SummaryError("The summary was cut off by the token limit of its model.", words=max(1, len(text.split())))
        return text


@contextmanager
def _failures() -> Iterator[None]:
    """A provider may raise anything; whatever it is, the history stays as it was. A cancellation is no Exception and goes through."""
    try:
        yield
    except SummaryError:
        raise
    except Exception as error:
        raise SummaryError(f"The summarizer failed: {type(error).__name__}: {error}") from error


def _message(entry: Entry) -> Any:
    """The message as it was; of one that is read in parts, the part."""
    if entry.message is not None:
        return entry.message
    kind = AIMessage if entry.head.startswith("assistant") else HumanMessage
    return kind(entry.text, id=entry.id)
