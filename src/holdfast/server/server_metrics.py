"""Figures for Prometheus: requests, turns, streams, compactions, memory. No name of a thread, session or person is in a label."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from holdfast import __version__
from holdfast.events import Compacted, Event, FactsExtracted, SummaryMade, TaskStarted
from holdfast.workflow.events import SessionEnded, StageCompleted


class ServerMetrics:
    """The figures of one server. A sink of the bus; safe for many threads."""

    def __init__(self, gauges: Mapping[str, Callable[[], float]]) -> None:
        self._registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self._registry}
        self._requests = Counter("holdfast_http_requests", "Requests by route and status.", ["route", "status"], **own)
        self._seconds = Histogram("holdfast_http_seconds", "How long requests took.", ["route"], **own)
        self._tokens = Counter("holdfast_tokens", "Tokens that models reported to the gateway.", ["model", "kind"], **own)
        self._turns = Counter("holdfast_turns", "Turns of the gateway by how the thread was found.", ["model", "placed"], **own)
        self._events = {
            Compacted: Counter("holdfast_compactions", "Windows that were shortened.", **own),
            SummaryMade: Counter("holdfast_summaries", "Summaries that were made.", **own),
            FactsExtracted: Counter("holdfast_memory_updates", "Conversations that were learned from.", **own),
            TaskStarted: Counter("holdfast_subagents", "Sub-agents that were started.", **own),
            StageCompleted: Counter("holdfast_stages", "Stages that were completed.", **own),
            SessionEnded: Counter("holdfast_session_runs", "Runs of sessions that ended.", **own),
        }
        Gauge("holdfast_build_info", "The version that runs.", ["version"], **own).labels(__version__).set(1)
        for name, read in gauges.items():
            Gauge(f"holdfast_{name}", name.replace("_", " "), **own).set_function(read)

    def wants(self, kind: type[Event]) -> bool:
        """It counts what happens and works nothing out."""
        return kind in self._events

    def __call__(self, event: Event) -> None:
        """Count it."""
        counter = self._events.get(type(event))
        if counter is not None:
            counter.inc()

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request was answered. `route` is its pattern, never what was asked for."""
        self._requests.labels(route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def turn(self, model: str, placed: str, tokens_in: int, tokens_out: int) -> None:
        """A turn of the gateway ended."""
        self._turns.labels(model, placed).inc()
        self._tokens.labels(model, "input").inc(tokens_in)
        self._tokens.labels(model, "output").inc(tokens_out)

    def text(self) -> bytes:
        """All of them in Prometheus' form."""
        return generate_latest(self._registry)
