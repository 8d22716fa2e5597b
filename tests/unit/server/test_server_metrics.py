"""O2: what the server counts."""

from __future__ import annotations

from pathlib import Path

from holdfast.memory.facts import Turn
from holdfast.memory.service import MemoryService
from holdfast.server.server_metrics import ServerMetrics
from holdfast.tracing import watch_spans


def test_what_the_gate_decided_is_counted_by_its_rule(tmp_path: Path) -> None:
    """O2, M10: facts that became active and facts that wait, without their words."""
    metrics = ServerMetrics({})
    end = watch_spans(metrics.finished)
    try:
        memory = MemoryService.at(tmp_path)
        memory.enqueue("t", [Turn("m1", "user", "I live in Graz."), Turn("m2", "user", "My favourite editor is Helix.")])
        memory.flush()
        known = len(memory.document().facts)
        memory.close()
    finally:
        end()
    lines = [line for line in metrics.text().decode().splitlines() if line.startswith("holdfast_gate_decisions_total{")]
    assert sum(float(line.rpartition(" ")[2]) for line in lines if 'decision="add"' in line) == known > 0
    assert "Graz" not in "".join(lines)
