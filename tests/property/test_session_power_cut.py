"""The power goes at any moment: what a store returned is there, nothing is half there, and it can go on (W5, W6, W10)."""

from __future__ import annotations

import random
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast.errors import InputError
from holdfast.session.log import texts_of
from holdfast.session.output import StageOutput
from holdfast.session.state import Session, Status, stage_files
from holdfast.session.store import SessionStore
from holdfast.testing.disk import PowerCut, SimulatedDisk
from holdfast.workflow.run_settings import file_sessions

if TYPE_CHECKING:
    from tests.conftest import Effort

# A generator that is thrown away after the cut closes its file on a dead disk; Python reports that, and nobody could act on it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Ledger:
    """What was acknowledged before the power went."""

    def __init__(self) -> None:
        self.session: Session | None = None
        self.points: dict[str, Session] = {}
        self.raw: dict[str, bytes] = {}
        self.texts: dict[str, str] = {}


def work(disk: SimulatedDisk, choose: random.Random, ledger: Ledger) -> None:
    store = file_sessions("/base/sessions", disk=disk)
    with store.lease("run") if choose.random() < 0.6 else nullcontext() as held:
        _work(store, choose, ledger, status="running" if held else "ready")


def _work(store: SessionStore, choose: random.Random, ledger: Ledger, status: Status) -> None:
    session = store.create(Session("run", task="t" * choose.randrange(2000)))
    ledger.session = session
    given = "c" * choose.randrange(900)
    for number in range(12):
        output = StageOutput(f"s{number}", f"summary {number} " * choose.randrange(1, 80))
        point = f"q{number}" if choose.random() < 0.3 else None
        session = store.commit(
            replace(session, stage_outputs={**session.stage_outputs, output.stage_name: output}, status=status),
            expect=session.revision,
            point=point,
            files=stage_files(number, "s", context=given, output="o"),
            views_later=status == "running" and choose.random() < 0.9,
        )
        ledger.session = session
        ledger.texts[f"{number:02d}-s/context.md"] = given
        given += f"{number}" * choose.randrange(300)
        if point is not None:
            ledger.points[point] = session
        if choose.random() < 0.4:
            store.checkpoint(session, f"p{number}")
            ledger.points[f"p{number}"] = session
        if choose.random() < 0.3:
            data = f"raw {number}".encode() * choose.randrange(1, 200)
            ledger.raw[store.raw_put("run", data)] = data
        if ledger.points and choose.random() < 0.1:
            name = choose.choice(sorted(ledger.points))
            session = ledger.session = store.restore("run", name)
        if choose.random() < 0.1:
            store.prune_checkpoints("run", keep=len(store.checkpoints("run")))


@pytest.mark.prove
def test_a_cut_at_any_moment_loses_nothing_that_was_acknowledged(effort: Effort) -> None:
    for run in range(effort(80, 3000)):
        choose = random.Random(effort.seed * 1009 + run)
        disk = SimulatedDisk(seed=run, cut_at=choose.randrange(1, 700))
        ledger = Ledger()
        with suppress(PowerCut):
            work(disk, choose, ledger)
        killed = disk.kill() if choose.random() < 0.3 else None
        after = killed or disk.crash()
        store = file_sessions("/base/sessions", disk=after)
        if ledger.session is None:
            with suppress(InputError):
                assert store.load("run").revision == 1
            continue
        found = store.load("run")
        assert found.revision >= ledger.session.revision, f"run {run}: lost"
        if found.revision == ledger.session.revision:
            assert found == ledger.session, f"run {run}: not as it was acknowledged"
        for name, state in ledger.points.items():
            assert store.load_checkpoint("run", name) == state, f"run {run}: recovery point {name}"
        for name, text in ledger.texts.items():
            stored = store.backend.get(f"sessions/run/stages/{name}")
            assert stored is not None and (stored.data.decode() == text or after is not killed), f"run {run}: {name}"
            with store.current("run") as known:
                assert texts_of(known.records())[name] == text, f"run {run}: {name}"
        for ref, data in ledger.raw.items():
            assert store.raw_get("run", ref).data == data, f"run {run}: raw data"
        again = store.commit(replace(found, task="goes on"), expect=found.revision)
        store.checkpoint(again, "new")
        assert store.load_checkpoint("run", "new") == store.load("run") == again


@pytest.mark.prove
def test_a_cut_while_forgetting_leaves_a_session_that_can_be_forgotten_again(effort: Effort) -> None:
    """M14."""
    for run in range(effort(40, 1500)):
        choose = random.Random(effort.seed * 7919 + run)
        disk = SimulatedDisk(seed=run)
        store = file_sessions("/base/sessions", disk=disk)
        session = store.create(Session("run", task="Begin. The heron sings. End.", extra={"note": "the heron sings"}))
        store.checkpoint(session, "p")
        store.raw_put("run", b"page: the heron sings")
        disk.cut_at = disk.calls + choose.randrange(1, 160)
        with suppress(PowerCut):
            store.forget_text("the heron sings")
        after = file_sessions("/base/sessions", disk=disk.crash())
        assert after.load("run").task.startswith("Begin.")
        after.forget_text("the heron sings")
        assert "heron" not in repr(after.load("run"))
        assert "heron" not in repr(after.load_checkpoint("run", "p"))
        assert after.raw("run").refs() == []
        assert after.forget_text("the heron sings") == []


@pytest.mark.prove
def test_a_cut_while_many_sessions_are_removed_leaves_each_whole_or_gone(effort: Effort) -> None:
    """O7, W6: no readable file without its log, which would pass for a session of its own, and nothing of one that stays."""
    for run in range(effort(60, 2000)):
        choose = random.Random(effort.seed * 6007 + run)
        disk = SimulatedDisk(seed=run)
        store = file_sessions("/base/sessions", disk=disk)
        names = [f"run-{number}" for number in range(4)]
        for name in names:
            store.create(Session(name, task=f"Count {name}."))
            store.raw_put(name, b"a page of " + name.encode())
            store.checkpoint(store.load(name), "p")
        done = False
        disk.cut_at = disk.calls + choose.randrange(1, 160)
        with suppress(PowerCut):
            assert list(store.remove_all(names[:3])) == []
            done = True
        after = file_sessions("/base/sessions", disk=disk.kill() if choose.random() < 0.3 else disk.crash())
        there = {brief.workflow_id for brief in after.list()}
        assert names[3] in there
        assert not (done and len(there) > 1), f"run {run}: came back"
        for name in sorted(there):
            assert after.load(name).task == f"Count {name}.", f"run {run}"
            assert after.load_checkpoint(name, "p").task == f"Count {name}.", f"run {run}"
            assert len(after.raw(name).refs()) == 1, f"run {run}: {name} lost its raw data"
        for name in set(names) - there:
            assert after.create(Session(name, task="anew")).revision == 1, f"run {run}"
            assert after.raw(name).refs() == []
