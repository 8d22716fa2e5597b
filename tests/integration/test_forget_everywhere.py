"""`holdfast memory forget --text` reaches every place where a text can stand; afterwards no file of the base directory holds it (M14)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from holdfast import Harness, build
from holdfast.config.loading import config_from_values
from holdfast.knowledge.records import Record
from holdfast.testing.models import ScriptedModel

CANARY = "zanzibar-clove-4711"


def holders(base: Path) -> list[str]:
    return [str(path.relative_to(base)) for path in sorted(base.rglob("*")) if path.is_file() and CANARY.encode() in path.read_bytes()]


def test_no_file_holds_a_text_that_was_forgotten(tmp_path: Path) -> None:
    base = tmp_path / "base"
    harness: Harness = build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)}))
    with harness.memory as memory:
        memory.add(f"User knows {CANARY}.")
    with harness.knowledge as knowledge:
        knowledge.add([Record(id="r1", text=f"The code is {CANARY} in every case."), Record(id="r2", text="Tides come twice a day.")])
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text(f"# Codes\n\nThe code of the vault is {CANARY} since May.\n")
    stages = [{"name": "find", "agent_type": "researcher", "sources": {"folder": str(docs)}}]
    session = harness.run_workflow({"id": "w", "task": "What is the code of the vault?", "stages": stages})
    assert session.status == "completed", session.error
    with harness.lead_agent(model=ScriptedModel([f"Noted: {CANARY}."])) as agent:
        agent.conversation("t1").ask(f"Remember the code {CANARY}, please.")
    before = holders(base)
    assert {"memory.json", "knowledge.db", "checkpoints.db"} <= set(before), before

    environment = {**os.environ, "HOLDFAST_HOME": str(base)}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "memory", "forget", "--text", CANARY, "--yes", "--json"],
        capture_output=True,
        text=True,
        env=environment,
        cwd=tmp_path,
        check=True,
    )
    value = json.loads(done.stdout)
    assert value["left"] == []
    kinds = {place.partition(":")[0].partition(" ")[0] for place in value["touched"]}
    assert {"knowledge", "sessions", "checkpoints"} <= kinds, value
    assert holders(base) == []
