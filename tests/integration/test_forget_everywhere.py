"""`holdfast memory forget --text` reaches every place where a text can stand; afterwards no file of the base directory holds it (M14)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, build
from holdfast.config.loading import config_from_values, load_config
from holdfast.context.compaction import FileOutputs
from holdfast.forgetting import forget_text
from holdfast.knowledge.records import Record
from holdfast.testing.models import ScriptedModel

CANARY = "zanzibar-clove-4711"


def holders(base: Path) -> list[str]:
    """The files that hold it, in any case: a code in capitals is the same code."""
    files = [path for path in sorted(base.rglob("*")) if path.is_file()]
    return [str(path.relative_to(base)) for path in files if CANARY.encode() in path.read_bytes().lower()]


def run_session(harness: Harness, folder: Path) -> None:
    docs = folder / "docs"
    docs.mkdir()
    (docs / "a.md").write_text(f"# Codes\n\nThe code of the vault is {CANARY} since May.\n")
    stages = [{"name": "find", "agent_type": "researcher", "sources": {"folder": str(docs)}}]
    session = harness.run_workflow({"id": "w", "task": "What is the code of the vault?", "stages": stages})
    assert session.status == "completed", session.error


def forget(folder: Path, base: Path, *, code: int = 0) -> dict[str, Any]:
    file = folder / "config.yaml"
    named = {"HOLDFAST_CONFIG": str(file)} if file.exists() else {}
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.app.main", "memory", "forget", "--text", CANARY, "--yes", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "HOLDFAST_HOME": str(base), **named},
        cwd=folder,
        check=False,
    )
    assert done.returncode == code, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def test_no_file_holds_a_text_that_was_forgotten(tmp_path: Path) -> None:
    base = tmp_path / "base"
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        harness.memory.add(f"User knows {CANARY}.")
        harness.knowledge.add(
            [Record(id="r1", text=f"The code is {CANARY} in every case."), Record(id="r2", text="Tides come twice a day.")]
        )
        run_session(harness, tmp_path)
        with harness.lead_agent(model=ScriptedModel([f"Noted: {CANARY}.", "Noted."])) as agent:
            agent.conversation("t1").ask(f"Remember the code {CANARY}, please.")
            agent.conversation("t2").ask(f"The vault: {CANARY.upper()}.")
    (base / "typed_lines").write_text(f"hello\nRemember the code {CANARY}, please.\n")
    before = holders(base)
    assert {"memory.json", "knowledge.db", "checkpoints.db"} <= set(before), before

    value = forget(tmp_path, base)
    assert value["left"] == []
    kinds = {place.partition(":")[0].partition(" ")[0] for place in value["touched"]}
    assert {"knowledge", "sessions", "checkpoints"} <= kinds, value
    assert holders(base) == []
    assert (base / "typed_lines").read_text() == "hello\n[forgotten]\n"


def test_sessions_are_forgotten_wherever_the_configuration_keeps_them(tmp_path: Path) -> None:
    """M14: `session.path` is where the store looks, so it is where forgetting looks."""
    base = tmp_path / "base"
    (tmp_path / "config.yaml").write_text("session: {path: runs}\n")
    with build(load_config(tmp_path / "config.yaml", environ={"HOLDFAST_HOME": str(base)})) as harness:
        run_session(harness, tmp_path)
    assert any(name.startswith("runs/") for name in holders(base)), holders(base)

    value = forget(tmp_path, base)
    assert value["left"] == []
    assert any(place.startswith("sessions") for place in value["touched"]), value
    assert holders(base) == []


def test_a_file_of_a_conversation_is_named_and_not_changed(tmp_path: Path) -> None:
    """M14: says what it could not take the text out of, and ends with 1."""
    base = tmp_path / "base"
    notes = base / "threads" / "t1" / "user-data" / "workspace" / "notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text(f"the code is {CANARY}")

    value = forget(tmp_path, base, code=1)
    assert [str(notes) in one for one in value["left"]] == [True]
    assert notes.read_text() == f"the code is {CANARY}"


def test_a_text_that_the_window_moved_to_a_file_is_forgotten_and_no_link_is_followed(tmp_path: Path) -> None:
    """M14, S10: such files are Holdfast's own, though they stand among the agent's."""
    base = tmp_path / "base"
    place = FileOutputs(base).keep("t1", "m1", f"long text with {CANARY} in it")
    FileOutputs(base).keep("t1", "m2", "another text")
    moved = base / "threads" / "t1" / "user-data" / "outputs" / Path(place).parent.name
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "mine.txt").write_text(CANARY)
    (base / "threads" / "t2" / "user-data" / "outputs").mkdir(parents=True)
    (base / "threads" / "t2" / "user-data" / "outputs" / "moved").symlink_to(tmp_path / "host")
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        done = forget_text(harness, CANARY)
    assert done.touched == {"texts that were moved to files": 1}
    assert [path.read_text() for path in moved.iterdir()] == ["another text"]
    assert (tmp_path / "host" / "mine.txt").read_text() == CANARY


TEMPORARY = ".new-0123456789abcdef.tmp"


def plant(*places: Path) -> None:
    """What crashes and damage leave behind, of long ago."""
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"old {CANARY} here")
        os.utime(place, (1_700_000_000, 1_700_000_000))


@pytest.mark.parametrize("adapter", ["sqlite", "markdown"])
def test_no_place_of_the_configuration_and_no_leftover_holds_it(tmp_path: Path, adapter: str) -> None:
    """M14: everything is kept outside of the base directory, and beside each thing lies what was set aside or never put in place."""
    base, out = tmp_path / "base", tmp_path / "out"
    records = out / "know" / "k.db" if adapter == "sqlite" else out / "know"
    values = {
        "session": {"path": str(out / "runs")},
        "memory": {"storage_path": str(out / "mem" / "user.json"), "session_memory": {"path": str(out / "views" / "{session_id}.json")}},
        "knowledge": {"adapter": adapter, "path": str(records)},
    }
    config = config_from_values(values, environ={"HOLDFAST_HOME": str(base)})
    with build(config) as harness:
        harness.memory.add(f"User knows {CANARY}.")
        harness.memory.add(f"User knows {CANARY}.", "coder")
        harness.knowledge.add([Record(id="r1", text=f"The code is {CANARY} in every case.")])
        run_session(harness, tmp_path)
        (id,) = harness.sessions.ids()
        harness.sessions.raw_put(id, f"raw {CANARY}".encode())
        with harness.lead_agent(model=ScriptedModel([f"Noted: {CANARY}."])) as agent:
            agent.conversation("t1").ask(f"Remember the code {CANARY}, please.")
    aside = "damaged-20260101T000000Z"
    plant(
        *(
            folder / TEMPORARY
            for folder in [out / "views", *(path for path in tmp_path.rglob("*") if path.is_dir() and path.name != "docs")]
        )
    )
    plant(
        out / "views" / f"{id}.json.{aside}",
        out / "views" / f"{id}.json.edited-20260101T000000Z",
        out / "runs" / id / "log.jsonl.damaged-7",
    )
    plant(
        out / "mem" / f"user.json.{aside}",
        out / "mem" / "user.d" / "history.jsonl.damaged-5",
        out / "mem" / f"user.json.edited-{aside[8:]}",
    )
    plant(base / "memory.d" / f"queue.db.{aside}", base / f"checkpoints.db.{aside}", base / "threads" / "t1" / "archive.jsonl.damaged-9")
    plant(records.with_name(f"{records.name}.{aside}") if adapter == "sqlite" else records / f"x.md.{aside}")
    plant(out / "runs" / "gone" / "stages" / "01-x" / "output.md", base / ".new-aaaaaaaaaaaaaaaa.tmp" / "memory.json")
    (tmp_path / "docs" / "a.md").unlink()
    (out / TEMPORARY).unlink(missing_ok=True)
    (tmp_path / TEMPORARY).unlink(missing_ok=True)
    assert len(holders(tmp_path)) > 30
    with build(config) as harness:
        done = forget_text(harness, CANARY)
        assert done.left == []
        assert harness.sessions.load(id).status == "completed"
    assert holders(tmp_path) == []
