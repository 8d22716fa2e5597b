"""Every model call of an agent is charged to its run, and none starts when the run or the session has nothing left (T5)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.messages import AIMessage

from holdfast.agents.middleware.thread_data import AroundModelCall, RunContext, thread_of
from holdfast.models.abilities import model_name_of
from holdfast.tokens.accounts import Accounts, Charge, Limits, Tally
from holdfast.tokens.usage import Usage

if TYPE_CHECKING:
    from holdfast.agents.middleware.summarization import SummarizationMiddleware
    from holdfast.config.sections import Config
    from holdfast.events import Bus

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
        prices = {model.name: model.pricing.model_dump(exclude_none=True) for model in config.models if model.pricing is not None}
        run, session = config.run_limit(), config.session_limit()
        return cls(
            prices,
            run_limits=Limits.read({"tokens": run.tokens, "cost": run.cost}),
            session_limits=Limits.read({"tokens": session.tokens, "cost": session.cost}),
            bus=bus,
        )

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
        run = self._run(request)
        self.accounts.check(session=run.session, run=run.run)
        with _charged_to(run):
            response = yield request
            self._charge(request, response)
        return response

    def _run(self, request: ModelRequest[Any]) -> RunContext:
        context = getattr(request.runtime, "context", None)
        if isinstance(context, RunContext):
            return context
        return RunContext(session=thread_of(request.runtime))

    def _charge(self, request: ModelRequest[Any], response: ModelResponse[Any]) -> None:
        for message in response.result:
            if not isinstance(message, AIMessage) or "ended" in (message.additional_kwargs.get("holdfast") or {}):
                continue  # not written by a model
            usage = Usage.read(message)
            self.accounts.charge(usage, model=self._name(request.model), estimate=None if usage else self._estimate(request, message))

    def _estimate(self, request: ModelRequest[Any], answer: AIMessage) -> Usage:
        """Our own count, where the provider reported nothing: the messages are counted by then, so this is cheap."""
        window, thread = self._summarization.context_window, thread_of(request.runtime) or ""
        sent = self._summarization.manifest(thread)
        return Usage(sent.tokens if sent is not None else window.count(thread, request.messages), window.counts.count(answer))

    def _name(self, model: Any) -> str:
        known = self._names.get(id(model))
        return known or model_name_of(model)


@contextmanager
def _charged_to(run: RunContext) -> Iterator[None]:
    token = _FOR.set(run)
    try:
        yield
    finally:
        _FOR.reset(token)
