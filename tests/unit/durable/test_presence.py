"""O7: who works with a base directory is seen by whoever wants to put another in its place, and notices when that happened."""

from __future__ import annotations

import errno
import subprocess
import sys
import textwrap
from multiprocessing import get_context
from pathlib import Path

import pytest

from holdfast.durable.copying import copy_live, restore
from holdfast.durable.disk import REAL
from holdfast.durable.lock import FOLDER, Presence, residents, restoring
from holdfast.durable.replace import replace_json
from holdfast.errors import DiskFull, Locked, NotWritable, StorageError
from holdfast.health import check_writable
from holdfast.testing.failing_disk import FailingDisk, Fault

OTHER = textwrap.dedent(
    """
    import sys
    from holdfast.durable.lock import Presence
    with_it = Presence(sys.argv[1], "worker")
    print("there", flush=True)
    sys.stdin.read()
    """
)


def test_a_folder_that_somebody_works_with_is_not_replaced_and_who_it_is_is_said(tmp_path: Path) -> None:
    """O7: refused by name, with what to do, before anything is touched; once they left it is done."""
    base = tmp_path / "base"
    replace_json(base / "state.json", {"n": 1})
    copy = copy_live(base, tmp_path / "copy").path
    here = Presence(base, "serve")
    with subprocess.Popen([sys.executable, "-c", OTHER, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert len(here.others()) == 1
        assert here.others()[0].startswith(f"holdfast worker, process {other.pid} on ")
        here.close()
        with pytest.raises(Locked, match=f"holdfast worker, process {other.pid} on ") as refused:
            restore(copy, base, replace=True)
        assert "Stop it first" in str(refused.value.hint)
        assert [path.name for path in tmp_path.iterdir() if ".before-" in path.name] == []
        other.kill()
    assert restore(copy, base, replace=True).before is not None  # who was killed is not there any more


def test_who_was_killed_leaves_nothing_behind_for_long(tmp_path: Path) -> None:
    """O7: the file of a dead process goes when the next one comes, those of living ones stay."""
    with subprocess.Popen([sys.executable, "-c", OTHER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
    first = Presence(tmp_path, "serve")
    second = Presence(tmp_path, "serve")
    assert len(list((tmp_path / FOLDER).iterdir())) == 2
    assert len(residents(tmp_path)) == 2
    first.close()
    first.close()
    second.close()
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_nobody_begins_to_work_with_a_folder_that_is_just_being_replaced(tmp_path: Path) -> None:
    """O7: between the look at who is there and the exchange nobody slips in."""
    with restoring(tmp_path), pytest.raises(Locked, match="is just being restored by process"):
        Presence(tmp_path, "serve")
    Presence(tmp_path, "serve").close()


def test_who_is_there_notices_that_the_folder_is_another_one(tmp_path: Path) -> None:
    """O7: after an exchange by other means, and when it was removed."""
    base = tmp_path / "base"
    base.mkdir()
    here = Presence(base, "serve")
    assert not here.displaced()
    base.rename(tmp_path / "old")
    assert here.displaced()
    base.mkdir()
    assert here.displaced()
    base.rmdir()
    (tmp_path / "old").rename(base)
    assert not here.displaced()
    here.close()


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFull), (errno.EROFS, NotWritable)])
@pytest.mark.parametrize("verb", ["create", "write"])
def test_a_place_that_takes_nothing_says_why(tmp_path: Path, verb: str, number: int, kind: type[StorageError]) -> None:
    """O3: a full disk and one that is to be read only are what any write would meet; nothing stays behind."""
    check_writable(tmp_path)
    with pytest.raises(kind):
        check_writable(tmp_path, FailingDisk(REAL, [Fault(verb, 1, number)]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotWritable, match="unmounted or moved"):
        check_writable(tmp_path / "gone")


def _come_and_go(folder: str) -> int:
    refused = 0
    for _ in range(3000):
        try:
            Presence(folder, "chat").close()
        except Locked:
            refused += 1
    return refused


def test_processes_that_begin_at_once_do_not_refuse_each_other(tmp_path: Path) -> None:
    """O7: who tidies up after the dead may have the file of somebody who is just coming."""
    with get_context("spawn").Pool(4) as pool:
        assert pool.map(_come_and_go, [str(tmp_path)] * 4) == [0, 0, 0, 0]
