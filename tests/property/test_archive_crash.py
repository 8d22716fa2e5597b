"""The power goes at any moment: what `add` returned is there, nothing is there twice, and nothing is half forgotten (S9, M14)."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from holdfast.context.archive import FileArchive
from holdfast.context.records import SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.testing.disk import PowerCut, SimulatedDisk

if TYPE_CHECKING:
    from tests.conftest import Effort

# A generator that is thrown away after the cut closes its file on a dead disk; Python reports that, and nobody could act on it.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TALK = [PlainMessage("human" if n % 2 == 0 else "ai", f"message {n} about subject{n} " * (1 + n % 40), f"m{n}") for n in range(60)]


@pytest.mark.prove
def test_a_cut_at_any_moment_loses_nothing_that_was_acknowledged_and_doubles_nothing(effort: Effort) -> None:
    for run in range(effort(25, 2000)):
        rng = random.Random(effort.seed * 100_003 + run)
        disk = SimulatedDisk(seed=run, cut_at=rng.randrange(1, 120))
        acknowledged: list[str] = []
        start = 0
        with suppress(PowerCut):
            archive = FileArchive("/base", disk=disk)
            while start < len(TALK):
                stop = start + rng.randrange(1, 9)
                overlap = max(0, start - rng.randrange(0, 4))  # a retry hands over some that are there already
                archive.add("t", records_of(TALK[overlap:stop], history=TALK))
                acknowledged = [str(message.id) for message in TALK[:stop]]
                if rng.random() < 0.3:
                    archive.add("t", [SummaryRecord(f"s{start}", "so far", tuple(acknowledged))])
                start = stop
        after = disk.crash() if rng.random() < 0.7 else disk.kill()
        again = FileArchive("/base", disk=after)
        kept = [record.id for record in again.messages("t")]
        assert kept[: len(acknowledged)] == acknowledged, f"run {run}: lost what was acknowledged"
        again.add("t", records_of(TALK[: len(acknowledged) + 3], history=TALK))  # the compaction runs once more
        ids = [record.id for record in again.messages("t")]
        assert ids[: len(acknowledged)] == acknowledged, f"run {run}: lost or out of order"
        assert len(ids) == len(set(ids)), f"run {run}: twice"
        for record in again.messages("t"):
            assert record.text == TALK[int(record.id[1:])].content, f"run {run}: not word for word"
        if run % 10 == 0:  # making the index takes longer than all of the above
            assert again.search("t", "subject0", 1)[0].record.id == "m0"


@pytest.mark.prove
def test_a_cut_while_forgetting_leaves_all_or_nothing(effort: Effort) -> None:
    for run in range(effort(25, 2000)):
        rng = random.Random(effort.seed * 7919 + run)
        disk = SimulatedDisk(seed=run)
        archive = FileArchive("/base", disk=disk)
        archive.add("t", records_of(TALK[:20], history=TALK))
        disk.cut_at = disk.calls + rng.randrange(1, 40)
        done = False
        with suppress(PowerCut):
            archive.forget("t", ids=["m3", "m11"])
            done = True
        again = FileArchive("/base", disk=disk.crash() if rng.random() < 0.7 else disk.kill())
        ids = [record.id for record in again.messages("t")]
        whole, rest = [f"m{n}" for n in range(20)], [f"m{n}" for n in range(20) if n not in (3, 11)]
        assert ids == rest if done else ids in (whole, rest), f"run {run}"
        again.forget("t", ids=["m3", "m11"])
        assert [record.id for record in again.messages("t")] == rest
