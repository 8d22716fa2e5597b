"""What surrounds each model call: it is charged to its run, asked again or of another model when it fails, and told as a span (T5, O2).

- `AccountingMiddleware`: no call starts when the run or the session has nothing left; what it used is charged (`RunAccounts`).
- `model_middlewares`: errors in our words at the end (`TypedErrors`), the next model (`Fallbacks`), the same one again (`Retry`).
- `TracingMiddleware`: a span for each model call and each tool call; `asked` and `tool_run` make them for whoever calls by themselves.
- `PlainAnswersMiddleware`: a model that is too weak for tools is offered none; `RepetitionMiddleware` cuts what repeats itself (A15).
- `TitleMiddleware`: a title after the first exchange (A13), at once from the user's own words, and a better one from a light model when
  that has time. The answer never waits for it; what the model writes later is kept by the thread's record.
"""

from __future__ import annotations

import json
import logging
import random
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, ModelFallbackMiddleware, ModelRequest, ModelResponse
from langchain.agents.middleware.types import ExtendedModelResponse
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from holdfast.agents.agent_settings import filled
from holdfast.agents.middleware.base import AroundModelCall, AroundToolCall, LeadState, Pause, RunContext, thread_of
from holdfast.agents.middleware.broken_calls import listening
from holdfast.clock import Backoff
from holdfast.context.view import marks_of
from holdfast.errors import CallUnavailable, HoldfastError, MissingVariable, ModelError, ModelUnavailable
from holdfast.memory.facts import without_uploads
from holdfast.models.abilities import model_name_of
from holdfast.models.factory import create_chat_model, secrets_of, settings_of
from holdfast.models.failures import broken_off, cause_of, is_retryable, kind_of, retry_after, typed
from holdfast.models.providers import RETRIES
from holdfast.redaction import replace_secrets
from holdfast.talk import ModelReplaced
from holdfast.text.likeness import repetition
from holdfast.tokens.accounts import Accounts, Charge, Limits, Price, Tally, Usage
from holdfast.tracing import Traced, captures, recording, shown, span, tracing

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from holdfast.agents.middleware.summarization import SummarizationMiddleware
    from holdfast.config.sections import Config
    from holdfast.events import Bus

_LOG = logging.getLogger("holdfast.models")
_FOR: ContextVar[RunContext | None] = ContextVar("holdfast_run", default=None)


class RunAccounts(Accounts):
    """Accounts that know, while an agent asks its model, for which run that is: a summary made on the way is charged to it as well.

    The newest runs are kept apart, with their sub-agents; older ones are added up by session, so that a process may talk for days.
    """

    def __init__(self, *args: Any, runs: int = 256, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._most = max(1, runs)
        self._runs: OrderedDict[tuple[str | None, str], int] = OrderedDict()
        self._subagents: dict[str, int] = {}

    @classmethod
    def of(cls, config: Config, *, bus: Bus | None = None) -> RunAccounts:
        """With the prices and limits of the configuration."""
        prices = {model.name: Price.of(model.pricing) for model in config.models if model.pricing is not None}
        run, session = Limits.of(config.run_limit()), Limits.of(config.session_limit())
        return cls(prices, run_limits=run, session_limits=session, bus=bus)

    def charge(self, usage: object, *, model: str, purpose: str = "answer", **where: Any) -> Charge:
        """As `Accounts.charge`; session, run and sub-agent are those of the run that is under way, where they are not given."""
        now = _FOR.get()
        if now is not None:
            where = {"session": now.session, "run": now.run, "subagent": now.subagent, **where}
        charged = super().charge(usage, model=model, purpose=purpose, **where)
        entry, tokens = charged.entry, charged.usage.total
        with self._lock:
            if entry.subagent is not None:
                self._subagents[entry.subagent] = self._subagents.get(entry.subagent, 0) + tokens
            if entry.run is not None:
                key = (entry.session, entry.run)
                self._runs[key] = self._runs.pop(key, 0) + tokens
                while len(self._runs) > self._most:
                    self._fold(*self._runs.popitem(last=False)[0])
        return charged

    def used_in(self, session: str | None, run: str) -> int:
        """The tokens of a run, its sub-agents and summaries included."""
        with self._lock:
            return self._runs.get((session, run), 0)

    def used_by(self, subagent: str) -> int:
        """The tokens that a running sub-agent has used, summaries included."""
        with self._lock:
            return self._subagents.get(subagent, 0)

    def settle(self, subagent: str) -> int:
        """The tokens that a sub-agent has used, when it has ended: the running count is dropped, the accounts stay."""
        with self._lock:
            return self._subagents.pop(subagent, 0)

    def _fold(self, session: str | None, run: str) -> None:
        """Add an old run to what its session used; nothing but the division is lost."""
        for entry in [one for one in self._entries if one.run == run and one.session == session]:
            tally = self._entries.pop(entry)
            plain = replace(entry, run=None, subagent=None)
            self._entries[plain] = self._entries.get(plain, Tally()) + tally
        self._totals.pop(("run", session, run), None)


class AccountingMiddleware(AroundModelCall):
    """Checks the limits before a call and charges it afterwards. Put it outside of the summarization and inside of the retries.

    `names` are the configured names of model objects, by their `id()`; prices are kept under those.
    """

    def __init__(self, accounts: RunAccounts, summarization: SummarizationMiddleware, names: Mapping[int, str] | None = None) -> None:
        super().__init__()
        self.accounts = accounts
        self._summarization = summarization
        self._names = dict(names or {})

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Check, ask, charge."""
        context = getattr(request.runtime, "context", None)
        run = context if isinstance(context, RunContext) else RunContext(session=thread_of(request.runtime))
        self.accounts.check(session=run.session, run=run.run)
        token = _FOR.set(run)
        try:
            response = yield request
            self._charge(request, response)
        finally:
            _FOR.reset(token)
        return response

    def _charge(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        for message in response.result:
            if not isinstance(message, AIMessage) or "ended" in (message.additional_kwargs.get("holdfast") or {}):
                continue  # not written by a model
            usage, name = Usage.read(message), self._names.get(id(request.model)) or model_name_of(request.model)
            self.accounts.charge(usage, model=name, estimate=None if usage else self._estimate(request, message))

    def _estimate(self, request: ModelRequest[Any], answer: AIMessage) -> Usage:
        """Our own count, where the provider reported nothing: the messages are counted by then, so this is cheap."""
        window, thread = self._summarization.context_window, thread_of(request.runtime) or ""
        sent = self._summarization.manifest(thread)
        return Usage(sent.tokens if sent is not None else window.count(thread, request.messages), window.counts.count(answer))


_ROLES = {"human": "user", "ai": "assistant"}


@contextmanager
def asked(model: Any, messages: Sequence[BaseMessage], system: str = "", *, purpose: str = "answer") -> Iterator[list[Any]]:
    """A span around a call of a model. What it answered is put into the list."""
    if not tracing():
        yield []
        return
    name = model_name_of(model)
    about: dict[str, Any] = {
        "gen_ai.provider.name": provider_of(model) if recording() else None,  # it asks the model's class, and no figure names it
        "gen_ai.request.model": name,
        "llm.model_name": name,
        "holdfast.purpose": purpose,
    }
    if captures():
        about["gen_ai.input.messages"] = shown(json.dumps([_plain(one) for one in messages], ensure_ascii=False))
        about["gen_ai.system_instructions"] = (
            shown(json.dumps([{"type": "text", "content": system}], ensure_ascii=False)) if system else None
        )
    with span("chat", name, "LLM", about) as traced:
        heard: list[Any] = []
        yield heard
        if heard and isinstance(heard[-1], AIMessage):
            traced.set(_answered(heard[-1]))


def quiet(purpose: str, *handlers: BaseCallbackHandler) -> RunnableConfig:
    """The settings of a call that the harness makes for itself: nobody's stream and nobody's callbacks (S15)."""
    return {"callbacks": [*handlers], "tags": ["nostream"], "run_name": purpose}


@contextmanager
def tool_run(name: str, call: str, args: Any) -> Iterator[Traced]:
    """A span around a tool."""
    about = {"gen_ai.tool.name": name, "gen_ai.tool.call.id": call, "tool.name": name}
    if tracing() and captures():
        about["gen_ai.tool.call.arguments"] = shown(json.dumps(args, ensure_ascii=False, default=str))
    with span("execute_tool", name, "TOOL", about) as traced:
        yield traced


def told_result(traced: Traced, result: ToolMessage) -> None:
    """What a tool gave: whether it failed, and with leave its words."""
    failed = result.status == "error"
    traced.set({"error.type": "tool_error" if failed else None, "gen_ai.tool.call.result": shown(result.text) if captures() else None})


def provider_of(model: Any) -> str:
    """Who runs a model, as far as its class says."""
    try:
        found = model._get_ls_params().get("ls_provider")
    except (AttributeError, TypeError, ValueError, NotImplementedError):
        found = None
    return str(found or type(model).__name__)


def _answered(answer: AIMessage) -> dict[str, Any]:
    usage, about = Usage.read(answer), answer.response_metadata
    finish = about.get("finish_reason") or about.get("stop_reason") or ("tool_calls" if answer.tool_calls else "stop")
    found: dict[str, Any] = {
        "gen_ai.response.model": about.get("model_name") or about.get("model"),
        "gen_ai.response.id": about.get("id") if isinstance(about.get("id"), str) else None,
        "gen_ai.response.finish_reasons": [str(finish)],
    }
    if usage is not None:
        found |= {
            "gen_ai.usage.input_tokens": usage.input_tokens,
            "gen_ai.usage.output_tokens": usage.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cache_read or None,
            "gen_ai.usage.cache_creation.input_tokens": usage.cache_write or None,
            "gen_ai.usage.reasoning.output_tokens": usage.reasoning or None,
            "llm.token_count.prompt": usage.input_tokens,
            "llm.token_count.completion": usage.output_tokens,
            "llm.token_count.total": usage.total,
        }
    if captures():
        found["gen_ai.output.messages"] = shown(json.dumps([{**_plain(answer), "finish_reason": str(finish)}], ensure_ascii=False))
    return found


def _plain(message: BaseMessage) -> dict[str, Any]:
    """A message in the form of the convention."""
    parts: list[dict[str, Any]] = [{"type": "text", "content": message.text}] if message.text else []
    if isinstance(message, AIMessage):
        parts += [{"type": "tool_call", "id": call["id"], "name": call["name"], "arguments": call["args"]} for call in message.tool_calls]
    if isinstance(message, ToolMessage):
        parts = [{"type": "tool_call_response", "id": message.tool_call_id, "response": message.text}]
    return {"role": _ROLES.get(message.type, message.type), "parts": parts}


class TracingMiddleware(AroundModelCall, AroundToolCall):
    """Tells what the model was asked and which tools ran. Innermost: a span is what was really sent, and each try has its own."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, in a span."""
        if not tracing():
            return (yield request)
        system = request.system_message.text if captures() and request.system_message is not None else ""
        with asked(request.model, request.messages, system) as heard:
            response = yield request
            heard.append(response.result[-1] if response.result else None)
        return response

    def around_tool(self, request: ToolCallRequest) -> Generator[Any, Any, Any]:
        """Run the tool, in a span."""
        if not tracing():
            return (yield request)
        call = request.tool_call
        with tool_run(call["name"], str(call["id"]), call["args"]) as traced:
            result = yield request
            if isinstance(result, ToolMessage):
                told_result(traced, result)
        return result


class TypedErrors(AroundModelCall):
    """Turns the errors of providers into ours, with a hint and the names of the models. What is no failure of a model passes as it is."""

    def __init__(self, models: Sequence[str] = (), secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self.models, self._secrets = tuple(models), tuple(secrets)

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, and translate what goes wrong. After fallbacks it is the last one's error, and all names are told."""
        try:
            return (yield request)
        except _Ended as ended:
            raise ended.error from None
        except Exception as error:  # looked at and raised again: nothing is swallowed
            if kind_of(error) is None:
                raise
            told = typed(error, model=", then ".join(self.models) or None, secrets=self._secrets)
            raise told from cause_of(error, self._secrets)


class Retry(AroundModelCall):
    """Asks again after a failure that may pass, with growing pauses, and no sooner than the server asked for; not after the first words of
    an answer, which somebody may have read.

    An error of ours that is not about the model (a limit, a full disk) ends the run: no other model is asked then.
    """

    def __init__(self, *, times: int = 2, first_delay: float = 1.0) -> None:
        super().__init__()
        self._times, self._growing = times, Backoff(first_delay, 30.0)

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, as often as it may help."""
        tries = 0
        while True:
            try:
                with listening() as heard:
                    return _whole((yield request), request.model)
            except Exception as error:  # looked at and raised again
                if isinstance(error, HoldfastError) and not isinstance(error, ModelError):
                    raise _Ended(error) from error
                if tries >= self._times or not is_retryable(error) or heard.spoke:
                    raise
                tries += 1
                growing = self._growing.pause(tries) * random.uniform(0.75, 1.25)  # noqa: S311 - so that many do not ask at once
                yield Pause((retry_after(error) or 0.0) + growing)


def _whole(response: Any, model: Any) -> Any:
    """The response. CallUnavailable where its answer broke off in the middle: half an answer is never kept as a whole one."""
    for one in getattr(response, "result", ()):
        if isinstance(one, AIMessage) and broken_off(one, model):
            name = model_name_of(model)
            raise CallUnavailable(f"model {name!r}: the answer broke off before its end.", kind="broken_off", model=name)
    return response


class Fallbacks(ModelFallbackMiddleware[Any, Any]):
    """LangChain's, which also tells whoever follows the turn that a model failed and which one answers in its place (`ModelReplaced`)."""

    def __init__(self, *models: BaseChatModel, names: Sequence[str] = (), secrets: Sequence[str] = ()) -> None:
        super().__init__(*models)
        self._names = {id(model): name for model, name in zip(models, names[1:], strict=False)}
        self._first, self._secrets = next(iter(names), None), tuple(secrets)

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Ask one model after the other."""
        failed: list[ModelReplaced] = []

        def ask(attempt: ModelRequest[Any]) -> Any:
            self._tell(attempt, failed)
            try:
                return handler(attempt)
            except Exception as error:
                failed.append(self._of(attempt, error))
                raise

        return super().wrap_model_call(request, ask)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]) -> Any:
        """As `wrap_model_call`, awaited."""
        failed: list[ModelReplaced] = []

        async def ask(attempt: ModelRequest[Any]) -> Any:
            self._tell(attempt, failed)
            try:
                return await handler(attempt)
            except Exception as error:
                failed.append(self._of(attempt, error))
                raise

        return await super().awrap_model_call(request, ask)

    def _name(self, model: BaseChatModel) -> str:
        return self._names.get(id(model)) or self._first or model_name_of(model)

    def _of(self, request: ModelRequest[Any], error: Exception) -> ModelReplaced:
        name = self._name(request.model)
        return ModelReplaced(name, "", typed(error, model=name, secrets=self._secrets).message)

    def _tell(self, request: ModelRequest[Any], failed: Sequence[ModelReplaced]) -> None:
        writer = getattr(request.runtime, "stream_writer", None)
        if failed and writer is not None:
            writer(replace(failed[-1], by=self._name(request.model)))


class _Ended(GraphBubbleUp):
    """Carries an error past LangChain's fallbacks, which let only its own control flow through."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(str(error))
        self.error = error


def middlewares(
    models: Sequence[str] = (),
    *,
    fallbacks: Sequence[BaseChatModel] = (),
    retries: int = RETRIES,
    first_delay: float = 1.0,
    secrets: Sequence[str] = (),
) -> list[AgentMiddleware[Any, Any, Any]]:
    """The three in their order, from the outside in; without fallbacks, two. `models` are the names to tell, the agent's own first."""
    others = [Fallbacks(*fallbacks, names=models, secrets=secrets)] if fallbacks else []
    return [TypedErrors(models, secrets), *others, Retry(times=retries, first_delay=first_delay)]


def model_middlewares(
    config: Config, name: str | None = None, *, thinking_enabled: bool = False, first_delay: float = 1.0
) -> list[AgentMiddleware[Any, Any, Any]]:
    """What makes an agent go on when its model fails: ask again, then the models under `fallbacks:`, then a typed error.

    Make the agent's own model with `create_chat_model(name, retries=False)`, so that asking again happens in one place.
    """
    settings = settings_of(name, config=config)
    others = [config.model(other) for other in dict.fromkeys(settings.fallbacks) if other != settings.name]
    models: dict[str, BaseChatModel] = {}
    for other in others:
        try:
            models[other.name] = create_chat_model(other.name, thinking_enabled and other.supports_thinking, config=config, retries=False)
        except (ModelUnavailable, MissingVariable) as error:  # the agent's own model may well work without it
            _LOG.warning("the fallback %s of model %s is left out: %s", other.name, settings.name, error)
    return middlewares(
        [settings.name, *models],
        fallbacks=list(models.values()),
        retries=RETRIES if settings.max_retries is None else settings.max_retries,
        first_delay=first_delay,
        secrets=[secret for one in (settings, *others) for secret in secrets_of(one)],
    )


# What becomes of an answer, and the title of a thread


_REPEATED = "It said the same over and over from here on, and was cut."


class RepetitionMiddleware(AroundModelCall):
    """Cuts an answer that only repeats itself to what it said once, so that neither the user nor the next call reads it again (A15)."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, and look at what it said."""
        response = yield request
        for number, message in enumerate(response.result):
            end = repetition(str(message.text)) if isinstance(message, AIMessage) and not message.tool_calls else None
            if end is not None:
                said = f"{str(message.text)[:end]}\n\n({_REPEATED})"
                response.result[number] = message.model_copy(update={"content": said})
        return response


class PlainAnswersMiddleware(AroundModelCall):
    """Takes the tools out of every request: a weak model answers from its prompt, in which the memory of the user is (A15)."""

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, without tools."""
        return (yield request.override(tools=[]))


_END = re.compile(r"(?<=[.!?。！？])\s")
_MOST = 4_000


def extracted_title(text: str, *, max_words: int = 6, max_chars: int = 60) -> str:
    """The first words of what the user said.

    >>> extracted_title("Please plan the move of the office to Mill Lane. We have until May.")
    'Please plan the move of the ...'
    """
    first = _END.split(" ".join(replace_secrets(without_uploads(text)).split()), maxsplit=1)[0]
    words = first.split(" ")
    short = " ".join(words[:max_words])
    cut = len(words) > max_words
    if len(short) > max_chars:
        short, cut = short[: max_chars - 4].rstrip(), True
    return f"{short} ..." if cut else short.rstrip(".!?:;, ")


@dataclass(frozen=True)
class Titles:
    """Makes titles. `model` is a light one that may be asked, or None: then they are taken from the user's words."""

    max_words: int = 6
    max_chars: int = 60
    model: BaseChatModel | None = None
    accounts: Accounts | None = None

    def extracted(self, question: str) -> str:
        """At once, from the user's words."""
        return extracted_title(question, max_words=self.max_words, max_chars=self.max_chars)

    async def written(self, question: str, answer: str) -> str | None:
        """By the model; None when there is none or it said nothing of use."""
        if self.model is None:
            return None
        prompt = filled("title.md", words=str(self.max_words), question=question[:_MOST], answer=answer[:_MOST])
        with asked(self.model, [HumanMessage(prompt)], purpose="title") as heard:
            said = await self.model.ainvoke([HumanMessage(prompt)], quiet("title"))
            heard.append(said)
        usage = Usage.read(said)
        if usage is not None and self.accounts is not None:
            self.accounts.charge(usage, model=model_name_of(self.model), purpose="title")
        text = " ".join(str(said.text).split()).strip("\"'“”*# .")
        return text[: self.max_chars].strip() if 0 < len(text) <= 4 * self.max_chars else None


class TitleMiddleware(AroundModelCall):
    """Puts the title into the state: the extracted one with the first answer, a written one when it is there."""

    state_schema = LeadState

    def __init__(self, titles: Titles) -> None:
        super().__init__()
        self._titles = titles

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model; its first final answer brings the title."""
        response: ModelResponse[Any] = yield request
        state: Any = request.state
        if state.get("title") or any(isinstance(one, AIMessage) and one.tool_calls for one in response.result):
            return response
        said = (one.text for one in request.messages if isinstance(one, HumanMessage) and "summary" not in marks_of(one))
        title = self._titles.extracted(next(said, ""))
        return ExtendedModelResponse(response, Command(update={"title": title})) if title else response
