"""`holdfast memory forget --text` reaches every place where a text can stand; afterwards no file of the base directory holds it (M14)."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import Harness, build
from holdfast.config.loading import config_from_values, load_config
from holdfast.context.compaction import FileOutputs
from holdfast.durable.folder import remove_tree
from holdfast.errors import InputError
from holdfast.forgetting import forget_text
from holdfast.knowledge.records import Record
from holdfast.session.document import session_json
from holdfast.testing.models import ScriptedModel

CANARY = "zanzibar-clove-market"


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


def test_folders_that_a_restore_moved_aside_are_named(tmp_path: Path) -> None:
    """M14, O7: they stand beside the base directory, as they were, and nobody forgets in them."""
    base, aside = tmp_path / "state", tmp_path / "state.before-20261116T120000"
    aside.mkdir()
    (tmp_path / "state.before-me.txt").write_text(CANARY)
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        done = forget_text(harness, CANARY)
    assert done.left == [f"{aside}: what a restore moved aside; it may still hold the text. Remove it by hand"]


def written(value: Any) -> Iterator[str]:
    """The names of all members of a JSON value, and the texts in it that are one word."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield name
            yield from written(member)
    elif isinstance(value, list):
        for member in value:
            yield from written(member)
    elif isinstance(value, str) and " " not in value:
        yield value


SAID = ("User has a dog.", "User likes plum cake.", "Tides come twice a day.", "The vault opens at seven since May.", "Hello, you.")


def test_what_our_own_files_are_made_of_is_no_text_that_can_be_forgotten(tmp_path: Path) -> None:
    """M14: neither the name of a member nor a state, a time or an id takes with it what somebody said, nor the token of the server.

    The Markdown of a stage, which is a view, and what was put before a model are texts like any other, labels included.
    """
    base, docs = tmp_path / "base", tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("The vault opens at seven since May.\n")
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        for fact in SAID[:2]:
            harness.memory.add(fact)
        harness.knowledge.add([Record(text=SAID[2])])
        stages = [{"name": "zz", "agent_type": "researcher", "sources": {"folder": str(docs)}}]
        harness.run_workflow({"id": "w", "task": "When does the vault open?", "stages": stages})
        with harness.lead_agent(model=ScriptedModel([SAID[4]])) as agent:
            agent.conversation("t1").ask(SAID[4])
        (base / "server.token").write_text("hf-0123456789abcdef")
        files = [path for path in base.rglob("*.json*") if path.suffix in (".json", ".jsonl")]
        texts = [line for path in files for line in ([path.read_text()] if path.suffix == ".json" else path.read_text().splitlines())]
        found = {word for text in texts for word in written(json.loads(text))}
        said = " ".join((*SAID, "when does the vault open a.md researcher", str(docs))).lower()
        own = sorted(word for word in found if len(word) > 3 and word.lower() not in said and not re.search("zz|/|^w-", word))
        assert {"category", "manual", "context", "stage_outputs", "completed"} <= set(own), own

        def kept() -> tuple[Any, ...]:
            session = harness.sessions.load(harness.sessions.ids()[0])
            state = {**session_json(session), "revision": 0, "updated_at": ""}
            return harness.memory.document(None).facts, state, [*harness.knowledge.records()], harness.archive.messages("t1")

        before, views = kept(), {"sessions: stage file", "sessions: checkpoint", "checkpoints: threads"}
        for word in (*own, "2026", "hf-", "cat", "tent", "0123456789abcdef"):
            done = forget_text(harness, word)
            assert not done.facts and set(done.touched) <= views, (word, done.touched)
        assert before == kept()
        assert (base / "server.token").read_text() == "hf-0123456789abcdef"
        assert len(forget_text(harness, "plum").facts) == 1
        assert [fact.content for fact in harness.memory.document(None).facts] == ["User has a dog."]


@pytest.mark.parametrize(
    "place", ["sessions/s1/files/01-find/{}.txt", "knowledge/{}.md", "threads/t1/user-data/outputs/{}.json"], ids=lambda place: place[:8]
)
def test_a_file_that_somebody_called_by_it_is_named(tmp_path: Path, place: str) -> None:
    """M14: a name stays, since others may refer to it, and is told."""
    file = tmp_path / place.format(CANARY)
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        assert [str(file) in one for one in forget_text(harness, CANARY).left] == [True]


def test_in_a_file_that_an_agent_wrote_every_word_counts(tmp_path: Path) -> None:
    """M14: what is our own in our files is somebody's in theirs."""
    file = tmp_path / "threads" / "t1" / "user-data" / "outputs" / "keys.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"id": "4711aabbccdd"}))
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        assert [str(file) in one for one in forget_text(harness, "4711aabb").left] == [True]


@pytest.mark.parametrize("text", ["e", "at", "日"])
def test_a_text_that_stands_in_everything_is_refused(tmp_path: Path, text: str) -> None:
    """M14: before anything is touched."""
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        harness.memory.add("User has a cat 日.")
        with pytest.raises(InputError, match="too short"):
            forget_text(harness, text)
        assert len(harness.memory.document(None).facts) == 1


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


def odd_files(request: Any) -> dict[str, Any]:
    """An agent that writes what storage has no key for, or takes for its own."""
    for name in ("data.jsonl", "poetry.lock", "owner.json", "lock", "a\nb.txt", "back\\slash.txt", os.fsdecode(b"x\xff.txt"), "x-wal"):
        (request.folder / name).write_text(f"First. The code is {CANARY}. Last.")
    (request.folder / "page.bin").write_bytes(b"\0\1" + CANARY.encode() + b"\xff")
    (request.folder / f"{CANARY}.txt").write_text("harmless")
    return {"summary": "Written.", "key_findings": [], "confidence": "high"}


def test_files_that_an_agent_wrote_under_any_name_are_forgotten(tmp_path: Path) -> None:
    """M14: no name keeps a file of a session from being cleaned, or the rest from being forgotten and removed."""
    base = tmp_path / "base"
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(base)})
    workflow = {"id": "w", "task": "t", "stages": [{"name": "own", "agent_type": "odd"}]}
    with build(config) as harness:
        harness.run_workflow(workflow, agents={"odd": odd_files}, session_id="s1", remember=False)
        done = forget_text(harness, CANARY)
        folder = harness.sessions.folder("s1")
        assert folder is not None
        assert done.left == [f"{folder}/01-own/{CANARY}.txt: its name holds it"]
        assert (folder / "01-own" / "a\nb.txt").read_text() == "First. [forgotten] Last."
        assert not (folder / "01-own" / "page.bin").exists()
        assert holders(base) == []
        (folder / "01-own" / "pipe").symlink_to("nowhere")
        assert forget_text(harness, CANARY).touched == {}
        harness.sessions.remove("s1")
        assert not folder.exists()


def test_a_file_that_nobody_knows_is_named_wherever_it_lies(tmp_path: Path) -> None:
    """M14: what could not be reached is told, and a file in the wrong place stops nothing."""
    base = tmp_path / "base"
    strays = [base / name for name in ("sessions/notes.md", "sessions/s 1/y.md", "threads/notes.md", "threads/t1/x.txt", "agents/a/n.md")]
    for stray in strays:
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.write_text(CANARY)
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        harness.memory.add(f"User knows {CANARY}.")
        done = forget_text(harness, CANARY)
    assert len(done.facts) == 1
    assert sorted(one.partition(": ")[0] for one in done.left) == sorted(map(str, strays))


def test_a_tree_of_fifteen_hundred_folders_stops_neither_forgetting_nor_a_list(tmp_path: Path) -> None:
    """M14, A9: a command in the sandbox can make such a tree; the file at its end is named."""
    base = tmp_path / "base"
    workspace = base / "threads" / "t1" / "user-data" / "workspace"
    workspace.mkdir(parents=True)
    here = os.open(workspace, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("leaf", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    with open(os.open("leaf", os.O_WRONLY, dir_fd=here), "w") as leaf:  # noqa: PTH123 - a descriptor
        leaf.write(CANARY)
    os.close(here)
    try:
        with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
            harness.memory.add(f"User knows {CANARY}.")
            assert harness.conversations() == []
            done = forget_text(harness, CANARY)
        assert len(done.facts) == 1
        assert [one.endswith("/leaf: a file that you or an agent wrote; change it by hand") for one in done.left] == [True]
    finally:
        remove_tree(workspace)


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read everything")
def test_a_file_of_a_session_that_may_not_be_read_is_named_and_the_rest_is_forgotten(tmp_path: Path) -> None:
    """M14"""
    base = tmp_path / "base"
    kept = base / "sessions" / "s1" / "files" / "01-own" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text(CANARY)
    kept.chmod(0)
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(base)})) as harness:
        harness.memory.add(f"User knows {CANARY}.")
        done = forget_text(harness, CANARY)
    assert len(done.facts) == 1
    assert [one.startswith(f"{kept}: it could not be looked at") for one in done.left] == [True]


ODD_WORDS = ("4915112345678", "1984-03-12", "deadbeefcafe99")


@pytest.mark.parametrize("word", ODD_WORDS)
@pytest.mark.parametrize("member", ["speaker", "tags", "source", "session", "id"])
def test_what_a_person_called_things_by_is_forgotten_whatever_it_looks_like(tmp_path: Path, member: str, word: str) -> None:
    """M14, K1: who said it, a tag, a source, a session of a record are words of the one who gave them; nothing of them is left."""
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        given: Any = {member: (word,) if member == "tags" else word}
        harness.knowledge.add([Record("See you at the station.", **given), Record("Tides come twice a day.", id="r2")])
        done = forget_text(harness, word)
        assert done.touched == {"knowledge (sqlite): records": 1}
        assert done.left == []
        assert [record.id for record in harness.knowledge.records()] == ["r2"]
    assert word.encode() not in b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_what_stands_in_a_database_after_all_is_named(tmp_path: Path) -> None:
    """M14: the last look reads every text in them, also what no room knows of, so nothing is said to be gone that is there."""
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        harness.knowledge.add([Record("Tides come twice a day.")])
        harness.knowledge.close()
    with closing(sqlite3.connect(tmp_path / "knowledge.db")) as file:
        file.execute("CREATE TABLE later (words TEXT, data BLOB)")
        file.execute("INSERT INTO later VALUES (?, ?)", (f"The code is {CANARY}.", b"\0\xff" + CANARY.upper().encode() + b"\0"))
        file.commit()
    (tmp_path / "empty.db").touch()
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        assert forget_text(harness, CANARY).left == [f"{tmp_path}/knowledge.db: a database that shows it in later.words, later.data"]
        assert forget_text(harness, "position").left == []  # a name of ours


def test_on_a_full_disk_an_empty_database_is_not_opened_for_it(tmp_path: Path) -> None:
    """M14: what failed to be made is no reason that nothing can be forgotten; and nothing is made for it."""
    for name in ("knowledge.db", "checkpoints.db"):
        (tmp_path / name).touch()
    with build(config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path)})) as harness:
        harness.memory.add(f"User knows {CANARY}.")
        assert len(forget_text(harness, CANARY).facts) == 1
    assert [(tmp_path / name).stat().st_size for name in ("knowledge.db", "checkpoints.db")] == [0, 0]
