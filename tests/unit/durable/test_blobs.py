"""W10, M6: blobs by content hash: stored once, checked when read, durable."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durable.replace import Blobs, blob_id
from holdfast.errors import Damaged, DiskFull, InputError, SyncFailed
from holdfast.testing.disk import SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault


def test_a_blob_lies_under_its_hash_in_two_levels_of_folders(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    key = blobs.put(b"abc")
    assert key == "sha256-ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (tmp_path / "ba" / "78" / key).read_bytes() == b"abc"


@given(st.sets(st.binary(max_size=300), max_size=8))
def test_what_was_put_is_got_and_listed(contents: set[bytes]) -> None:
    blobs = Blobs("/raw", disk=SimulatedDisk())
    keys = [blobs.put(data) for data in contents for _ in range(2)]
    assert [blobs.get(key) for key in keys] == [data for data in contents for _ in range(2)]
    assert list(blobs.list()) == sorted(set(keys))


def test_every_flipped_bit_is_noticed() -> None:
    disk = SimulatedDisk()
    blobs = Blobs("/raw", disk=disk)
    key = blobs.put(b"some content")
    for position in range(12):
        damaged = bytearray(b"some content")
        damaged[position] ^= 4
        handle = disk.open_log(blobs.path(key))
        disk.truncate(handle, 0)
        disk.write(handle, bytes(damaged))
        disk.close(handle)
        with pytest.raises(Damaged):
            blobs.get(key)
    assert blobs.put(b"some content") == key
    assert blobs.get(key) == b"some content"


def test_what_is_not_there_is_said_not_to_be_there() -> None:
    blobs = Blobs("/raw", disk=SimulatedDisk())
    absent = blob_id(b"absent")
    assert list(blobs.list()) == []
    assert not blobs.has(absent)
    assert not blobs.remove(absent)
    with pytest.raises(FileNotFoundError):
        blobs.get(absent)


def test_what_is_removed_stays_removed() -> None:
    disk = SimulatedDisk(3)
    blobs = Blobs("/raw", disk=disk)
    key = blobs.put(b"secret")
    assert blobs.has(key)
    assert blobs.remove(key)
    assert not Blobs("/raw", disk=disk.crash()).has(key)


@pytest.mark.parametrize("key", ["", "sha256-", "../../etc/passwd", blob_id(b"") + "\n", blob_id(b"").upper(), "md5-" + "0" * 64, None])
def test_what_is_no_id_is_refused(key: str) -> None:
    blobs = Blobs("/raw", disk=SimulatedDisk())
    for use in (blobs.get, blobs.has, blobs.remove):
        with pytest.raises(InputError):
            use(key)


@pytest.mark.parametrize("seed", range(20))
def test_faults_are_typed_and_a_second_put_makes_it_good(seed: int) -> None:
    """W15: also where the first put got as far as the name, which only the folder's sync would have made sure."""
    inner = SimulatedDisk(seed)
    blobs = Blobs("/raw", disk=FailingDisk(inner, [Fault("write", 1, errno.ENOSPC), Fault("sync_folder", 4, errno.EIO)]))
    with pytest.raises(DiskFull):
        blobs.put(b"data")
    with pytest.raises(SyncFailed):
        blobs.put(b"data")
    key = blobs.put(b"data")
    assert Blobs("/raw", disk=inner.crash()).get(key) == b"data"


def test_strange_files_between_the_blobs_are_not_listed(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    key = blobs.put(b"x")
    (tmp_path / "README").write_text("hello")
    (Path(blobs.path(key)).parent / ".new-1.tmp").write_text("")
    assert list(blobs.list()) == [key]
