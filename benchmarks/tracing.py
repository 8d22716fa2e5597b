"""What tracing costs (O2): a silent span in microseconds, and a turn of the lead agent with and without somebody who traces or counts.

    python benchmarks/tracing.py        # one JSON object

`off` is a span where no SDK is set up; `ratio_traced` is the CPU of a turn with the SDK recording everything into memory against one
without, alternating in the same process, and `ratio_counted` that of one whose spans a server counts for Prometheus; `off_share` is what
all silent spans of a turn cost of the turn. The model answers at once, so these are the worst shares there can be.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from holdfast.agents.lead import LeadAgent, make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.server.server_metrics import ServerMetrics
from holdfast.testing.models import ScriptedModel
from holdfast.tracing import span, watch_spans

ROUNDS = 150


def silent(count: int = 200_000) -> float:
    """Microseconds of CPU of one span that nobody records."""
    began = time.process_time()
    for _ in range(count):
        with span("execute_tool", "look", "TOOL", {"gen_ai.tool.name": "look"}) as traced:
            traced.set({"holdfast.found": 1})
    return (time.process_time() - began) / count * 1e6


def turn(agent: LeadAgent, number: int) -> float:
    """CPU seconds of one turn."""
    began = time.process_time()
    agent.conversation(f"t-{number}").ask("How are the piers?")
    return time.process_time() - began


def main() -> None:
    """Measure, and print."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    off = silent()
    took: dict[str, list[float]] = {"plain": [], "traced": [], "counted": []}
    metrics = ServerMetrics({})
    with tempfile.TemporaryDirectory() as folder:
        config = config_from_values(
            {"memory": {"enabled": False}, "title": {"enabled": False}}, environ={"HOLDFAST_HOME": folder}, cwd=Path(folder)
        )
        model = ScriptedModel(lambda request: "Fine.", profile={"max_input_tokens": 8_000})
        with make_lead_agent(config, model=model, tools=[]) as agent:
            for number in range(3 * ROUNDS + 15):
                way = ("plain", "traced", "counted")[number % 3]
                trace._TRACER_PROVIDER = provider if way == "traced" else None
                unwatch = watch_spans(metrics.finished) if way == "counted" else None
                seconds = turn(agent, number)
                if unwatch is not None:
                    unwatch()
                if number >= 15:
                    took[way].append(seconds)
    trace._TRACER_PROVIDER = None
    spans = len(exporter.get_finished_spans()) / (ROUNDS + 5)
    usual = statistics.median(took["plain"])
    print(
        json.dumps(
            {
                "benchmark": "tracing",
                "silent_span_us": round(off, 2),
                "spans_a_turn": round(spans, 1),
                "off_share": round(off * spans / 1e6 / usual, 6),
                "ratio_traced": round(statistics.median(took["traced"]) / usual, 3),
                "ratio_counted": round(statistics.median(took["counted"]) / usual, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
