"""Figures for Prometheus: requests, model calls, tokens, cost, turns, windows, stages, memory, sessions, queue.

What is done is counted from the spans of `holdfast.tracing`, so a figure and a trace never disagree; what is there is read when it is asked
for. No name of a thread, session or person is in a label.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from holdfast import __version__
from holdfast.events import Event, FactsExtracted, SummaryMade, TaskCancelled, TaskCompleted, TaskFailed, TaskStarted, TaskTimedOut
from holdfast.tokens.accounts import Price, Usage
from holdfast.tracing import Finished
from holdfast.workflow.events import SessionEnded, SessionResumed, StageCompleted

_ENDS = (TaskCompleted, TaskFailed, TaskTimedOut, TaskCancelled)
_LEFT = frozenset({"CancelledError", "GeneratorExit"})
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_SHARES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class Standing(NamedTuple):
    """What is there now: `holdfast_{name}`, with its values by the values of one label, or one value by "" where it has none."""

    name: str
    words: str
    label: str
    values: Mapping[str, float]
    only_grows: bool = False
    """A counter that others keep: `holdfast_{name}_total`."""


class KnownModel(NamedTuple):
    """What the configuration says of a model."""

    window: int | None
    price: Price | None


class _Now(Collector):
    """Reads what is there when it is asked for."""

    def __init__(self, read: Callable[[], Iterable[Standing]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Any]:
        """Nothing is read before somebody asks."""
        return ()

    def collect(self) -> Iterable[Any]:
        """All of it."""
        for one in self._read():
            form = CounterMetricFamily if one.only_grows else GaugeMetricFamily
            family = form(f"holdfast_{one.name}", one.words, labels=[one.label] if one.label else [])
            for value, amount in one.values.items():
                family.add_metric([value] if one.label else [], amount)
            yield family


class ServerMetrics:
    """The figures of one server. A sink of the bus, and `finished` is a watcher of spans; safe for many threads."""

    def __init__(
        self,
        gauges: Mapping[str, Callable[[], float]],
        standing: Callable[[], Iterable[Standing]] = tuple,
        models: Mapping[str, KnownModel] | None = None,
    ) -> None:
        self._registry = CollectorRegistry()
        self._guard = threading.Lock()
        self.taken_over = 0
        """Sessions that this process went on with after whoever ran them had died."""
        self._models = dict(models or {})
        own: dict[str, Any] = {"registry": self._registry}
        slow: dict[str, Any] = {"buckets": _SLOW, **own}
        self._requests = Counter("holdfast_http_requests", "Requests by route and status.", ["route", "status"], **own)
        self._seconds = Histogram("holdfast_http_seconds", "How long requests took.", ["route"], **own)
        self._placed = Counter("holdfast_gateway_turns", "Turns of the gateway by how the thread was found.", ["model", "placed"], **own)
        self._calls = Counter("holdfast_model_calls", "Calls of models.", ["model", "purpose", "outcome"], **own)
        self._call_seconds = Histogram("holdfast_model_call_seconds", "How long calls of models took.", ["model"], **slow)
        self._tokens = Counter("holdfast_tokens", "Tokens that models reported.", ["model", "kind", "purpose"], **own)
        self._cost = Counter("holdfast_cost_dollars", "Cost by the configured prices.", ["model"], **own)
        self._fill = Histogram("holdfast_window_fill_ratio", "How full the window of a call was.", buckets=_SHARES, **own)
        self._compactions = Counter("holdfast_compactions", "Windows that were shortened.", ["how", "reason"], **own)
        self._compaction_seconds = Histogram("holdfast_compaction_seconds", "How long it took to shorten a window.", **slow)
        self._turns = Counter("holdfast_turns", "Turns by why they ended.", ["agent", "reason"], **own)
        self._stages = Histogram("holdfast_stage_seconds", "How long tries of stages took.", ["agent_type", "outcome"], **slow)
        self._search = Histogram("holdfast_knowledge_search_seconds", "How long searches of knowledge took.", **own)
        self._gate = Counter("holdfast_gate_decisions", "What became of facts that were proposed.", ["decision", "rule"], **own)
        self.dropped = Counter("holdfast_events_dropped", "Events that a listener came too late for.", **own).inc
        self._subagents = Gauge("holdfast_subagents_running", "Sub-agents that run.", **own)
        self._events = {
            SummaryMade: Counter("holdfast_summaries", "Summaries that were made.", **own),
            FactsExtracted: Counter("holdfast_memory_updates", "Conversations that were learned from.", **own),
            TaskStarted: Counter("holdfast_subagents", "Sub-agents that were started.", **own),
            StageCompleted: Counter("holdfast_stages", "Stages that were completed.", **own),
            SessionEnded: Counter("holdfast_session_runs", "Runs of sessions that ended.", **own),
        }
        self._finished: dict[str, Callable[[Finished], None]] = {
            "chat": self._asked,
            "holdfast.compaction": self._shortened,
            "invoke_agent": self._worked,
            "retrieval": lambda done: self._search.observe(done.seconds),
            "update_memory": self._learned,
        }
        Gauge("holdfast_build_info", "The version that runs.", ["version"], **own).labels(__version__).set(1)
        for name, read in gauges.items():
            Gauge(f"holdfast_{name}", name.replace("_", " "), **own).set_function(read)
        self._registry.register(_Now(standing))

    def wants(self, kind: type[Event]) -> bool:
        """It counts what happens and works nothing out."""
        return kind in self._events or kind in _ENDS or kind is SessionResumed

    def __call__(self, event: Event) -> None:
        """Count it."""
        counter = self._events.get(type(event))
        if counter is not None:
            counter.inc()
        if isinstance(event, SessionResumed):
            with self._guard:
                self.taken_over += event.taken_over
        elif isinstance(event, TaskStarted):
            self._subagents.inc()
        elif isinstance(event, _ENDS):
            self._subagents.dec()

    def finished(self, done: Finished) -> None:
        """A span ended: count what it tells."""
        count = self._finished.get(done.operation)
        if count is not None:
            count(done)

    def _asked(self, done: Finished) -> None:
        about = done.attributes
        model, purpose = str(about.get("gen_ai.request.model")), str(about.get("holdfast.purpose"))
        self._calls.labels(model, purpose, _outcome(done)).inc()
        self._call_seconds.labels(model).observe(done.seconds)
        names = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_creation.input_tokens")
        sent, said, cached, written = (int(about.get(f"gen_ai.usage.{name}") or 0) for name in names)
        for kind, amount in (("input", sent), ("output", said), ("cached", cached)):
            self._tokens.labels(model, kind, purpose).inc(amount)
        known = self._models.get(model)
        if known is not None and known.price is not None:
            cost = known.price.cost(Usage(sent, said, cache_read=cached, cache_write=written))
            self._cost.labels(model).inc(float(cost or 0))
        if known is not None and known.window and sent:
            self._fill.observe(sent / known.window)

    def _shortened(self, done: Finished) -> None:
        how, why = (str(done.attributes.get(f"holdfast.compaction.{name}", "none")) for name in ("how", "pressure"))
        self._compactions.labels(how, why).inc()
        self._compaction_seconds.observe(done.seconds)

    def _learned(self, done: Finished) -> None:
        for judged in done.attributes.get("holdfast.gate", ()):
            self._gate.labels(*str(judged).split("/", 1)).inc()

    def _worked(self, done: Finished) -> None:
        about = done.attributes
        if about.get("holdfast.agent_type"):
            self._stages.labels(str(about["holdfast.agent_type"]), _outcome(done)).observe(done.seconds)
        elif not about.get("holdfast.subagent"):
            why = str(about.get("holdfast.reason") or ("completed" if done.error is None else _outcome(done)))
            self._turns.labels(str(about.get("gen_ai.agent.name") or "gateway"), why).inc()

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered. `route` is its pattern, never what was asked for."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def placed(self, model: str, how: str) -> None:
        """A turn of the gateway ended, of a thread that was found like this."""
        self._placed.labels(model, how).inc()

    def text(self) -> bytes:
        """All of them in Prometheus' form."""
        return generate_latest(self._registry)


def _outcome(done: Finished) -> str:
    if done.error is None:
        return "error" if done.attributes.get("error.type") else "ok"
    return "cancelled" if done.error in _LEFT else "error"
