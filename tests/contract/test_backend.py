"""One suite over every storage backend: files, files on a simulated disk, PostgreSQL, memory (M6, M7, W5, W6, W16, O7)."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.crash.cable import cut_at_commit

from holdfast.durable.disk import RealDisk
from holdfast.durable.postgres import Postgres
from holdfast.errors import Damaged, DiskFull, InputError, Locked, RevisionConflict, StoreUnavailable
from holdfast.events import Bus
from holdfast.storage.backend import ABSENT, Append, Backend, Delete, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.in_memory import MemoryBackend
from holdfast.storage.pending import KeptBeside
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.testing.disk import SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault

Opener = Callable[[], Backend]


@pytest.fixture(params=["memory", "files", "simulated", "postgres"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same storage anew at each call, as another process would; the one in memory is always the same."""
    opened: list[Backend] = []

    def keep(backend: Backend) -> Backend:
        opened.append(backend)
        return backend

    if request.param == "memory":
        only = MemoryBackend()
        yield lambda: only
    elif request.param == "files":
        yield lambda: keep(FileBackend(tmp_path / "base"))
    elif request.param == "simulated":
        disk = SimulatedDisk()
        yield lambda: keep(FileBackend("/base", disk=disk))
    else:
        dsn = request.getfixturevalue("postgres")
        yield lambda: keep(PostgresBackend(dsn))
    for backend in opened:
        backend.close()


@pytest.fixture
def backend(opener: Opener) -> Backend:
    return opener()


def records(backend: Backend, key: str) -> list[Any]:
    return [dict(record) for record in backend.read(key).records]


# Documents


def test_what_was_put_is_there_byte_for_byte(backend: Backend, opener: Opener) -> None:
    for data in (b"", b"{}", b"\0\xff\xfe not text", "Grüße\n".encode(), b"x" * 3_000_000):
        (mark,) = backend.write(Put("a/b.json", data))
        stored = opener().get("a/b.json")
        assert stored is not None and stored.data == data
        assert stored.mark == mark == opener().mark("a/b.json")


def test_what_was_never_put_is_none(backend: Backend) -> None:
    assert backend.get("absent") is None
    assert backend.mark("absent") is None
    assert backend.mark("absent.jsonl") is None


def test_a_mark_is_another_one_after_a_change_by_anybody(backend: Backend, opener: Opener) -> None:
    """M7: what is cached by its mark is noticed to be stale."""
    (first,) = backend.write(Put("a", b"1"))
    assert opener().mark("a") == first
    opener().write(Put("a", b"2"))
    assert backend.mark("a") not in (None, first)


def test_a_put_with_a_stale_mark_is_refused_and_changes_nothing(backend: Backend, opener: Opener) -> None:
    """M6: nothing is lost with many writers."""
    (first,) = backend.write(Put("a", b"1", expect=ABSENT))
    (second,) = opener().write(Put("a", b"2", expect=first))
    with pytest.raises(RevisionConflict) as refused:
        backend.write(Put("a", b"3", expect=first))
    assert "a" in str(refused.value.path)
    with pytest.raises(RevisionConflict):
        backend.write(Put("a", b"3", expect=ABSENT))
    with pytest.raises(RevisionConflict):
        backend.write(Put("b", b"3", expect=second))
    assert backend.get("a") is not None and backend.get("a").data == b"2"  # type: ignore[union-attr]  # asserted before
    assert backend.get("b") is None


def test_a_deleted_document_is_gone_and_may_be_made_again(backend: Backend) -> None:
    (mark,) = backend.write(Put("a", b"1"))
    with pytest.raises(RevisionConflict):
        backend.write(Delete("a", expect="another"))
    assert backend.write(Delete("a", expect=mark)) == (ABSENT,)
    assert backend.get("a") is None and backend.mark("a") is None
    assert backend.write(Delete("a")) == (ABSENT,)
    backend.write(Put("a", b"2", expect=ABSENT))


def test_a_view_is_put_like_any_other_document(backend: Backend, opener: Opener) -> None:
    backend.write(Append("s/log.jsonl", [{"n": 1}]), Put("s/deep/er/view.json", b"{}", durable=False))
    stored = opener().get("s/deep/er/view.json")
    assert stored is not None and stored.data == b"{}"
    assert records(backend, "s/log.jsonl") == [{"n": 1}]


def test_a_put_whose_mark_nobody_asks_for_is_put_all_the_same(backend: Backend) -> None:
    """A view may be written without its mark being worked out; what is kept has one as everything has (W5)."""
    marks = backend.write(Append("s/log.jsonl", [{"n": 1}]), Put("s/a/view.md", b"text", durable=False, marked=False))
    stored = backend.get("s/a/view.md")
    assert len(marks) == 2
    assert stored is not None
    assert (stored.data, stored.mark) == (b"text", backend.mark("s/a/view.md"))
    backend.write(Put("s/a/view.md", b"more", expect=stored.mark))


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/..", "a/./b", "a\\b", "a\nb", "a\0", "x" * 300, "a/" * 600 + "a"])
def test_a_key_that_is_no_plain_relative_path_is_refused(backend: Backend, key: str) -> None:
    with pytest.raises(InputError):
        backend.get(key)
    with pytest.raises(InputError):
        backend.write(Put(key, b""))
    with pytest.raises(InputError):
        backend.mark(key)


def test_logs_end_in_jsonl_and_nothing_else_does(backend: Backend) -> None:
    for refused in (Put("a.jsonl", b""), Append("a.json", [{}]), Put("a/owner.json", b""), Put("a/x.lock", b"")):
        with pytest.raises(InputError):
            backend.write(refused)
    with pytest.raises(InputError):
        backend.get("a.jsonl")
    with pytest.raises(InputError):
        backend.read("a.json")
    with pytest.raises(InputError):
        backend.write(Put("a", b"1"), Delete("a"))


# Logs


def test_a_log_gives_back_its_records_in_order(backend: Backend, opener: Opener) -> None:
    assert backend.read("l.jsonl").records == ()
    assert backend.read("l.jsonl").mark == ABSENT
    backend.write(Append("l.jsonl", [{"n": 1, "text": "Grüße"}, {"n": 2, "deep": {"a": [None, True, 1.5]}}]))
    backend.write(Append("l.jsonl", [{"n": 3}]))
    assert records(opener(), "l.jsonl") == [{"n": 1, "text": "Grüße"}, {"n": 2, "deep": {"a": [None, True, 1.5]}}, {"n": 3}]


def test_reading_goes_on_from_a_mark(backend: Backend, opener: Opener) -> None:
    (first,) = backend.write(Append("l.jsonl", [{"n": 1}]))
    reading = backend.read("l.jsonl")
    assert reading.mark == first and reading.whole
    opener().write(Append("l.jsonl", [{"n": 2}, {"n": 3}]))
    later = backend.read("l.jsonl", after=first)
    assert [dict(record) for record in later.records] == [{"n": 2}, {"n": 3}]
    assert not later.whole
    assert later.mark == backend.mark("l.jsonl") == opener().read("l.jsonl").mark
    nothing = backend.read("l.jsonl", after=later.mark)
    assert nothing.records == () and not nothing.whole and nothing.mark == later.mark


@pytest.mark.parametrize("mark", ["", "nonsense", ABSENT, "1:2:3", "99999:abc"])
def test_a_mark_that_stands_for_nothing_reads_everything(backend: Backend, mark: str) -> None:
    backend.write(Append("l.jsonl", [{"n": 1}]))
    reading = backend.read("l.jsonl", after=mark)
    assert [dict(record) for record in reading.records] == [{"n": 1}] and reading.whole


def test_a_log_is_read_in_pieces_and_a_record_by_its_place(backend: Backend, opener: Opener) -> None:
    """S9: an archive is larger than what is wanted of it."""
    backend.write(Append("a/log.jsonl", [{"n": n, "text": "é" * n} for n in range(7)]))
    mark: str | None = None
    seen: list[int] = []
    places: list[int] = []
    while (piece := opener().read("a/log.jsonl", after=mark, limit=3)).records:
        assert len(piece.records) == len(piece.places) <= 3
        seen += [record["n"] for record in piece.records]
        places += piece.places
        mark = piece.mark
    assert seen == list(range(7))
    assert [(backend.at("a/log.jsonl", place) or {})["n"] for place in places] == seen
    assert backend.at("a/log.jsonl", max(places) + 1) is None
    assert backend.at("a/other.jsonl", places[0]) is None
    assert mark == backend.mark("a/log.jsonl")


def test_the_newest_record_is_found_without_the_others(backend: Backend, opener: Opener) -> None:
    """M7: also of several that were appended as one, after a rewriting, and where there is none."""
    assert backend.last("a/log.jsonl") is None
    backend.write(Append("a/log.jsonl", [{"n": 1}, {"n": 2, "text": "x" * 300_000}]))
    other = opener()
    assert (other.last("a/log.jsonl") or {})["n"] == 2
    backend.write(Append("a/log.jsonl", [{"n": 3}]))
    assert other.last("a/log.jsonl") == {"n": 3}
    backend.rewrite("a/log.jsonl", [{"n": 9}])
    assert other.last("a/log.jsonl") == {"n": 9}
    backend.rewrite("a/log.jsonl", [])
    assert other.last("a/log.jsonl") is None


def test_what_was_just_put_does_not_come_from_before_the_start(backend: Backend) -> None:
    """M6: and what is not there does not either."""
    assert not backend.predates_start("a.json")
    backend.write(Put("a.json", b"{}", durable=False))
    assert not backend.predates_start("a.json")


@pytest.mark.parametrize("place", [-1, 10**9])
def test_a_place_without_a_record_gives_none(backend: Backend, place: int) -> None:
    backend.write(Append("a/log.jsonl", [{"n": 1}]))
    assert backend.at("a/log.jsonl", place) is None


def test_a_rewritten_log_voids_the_marks_of_the_old_one(backend: Backend, opener: Opener) -> None:
    """M14: who follows a log from which something was forgotten begins anew, even if the new one is as long as the old one."""
    (old,) = backend.write(Append("l.jsonl", [{"n": 1}, {"n": 2}]))
    mark = opener().rewrite("l.jsonl", [{"n": 7}, {"n": 2}], expect=old)
    reading = backend.read("l.jsonl", after=old)
    assert reading.whole and [dict(record) for record in reading.records] == [{"n": 7}, {"n": 2}]
    assert reading.mark == mark == backend.mark("l.jsonl") != old
    with pytest.raises(RevisionConflict):
        backend.rewrite("l.jsonl", [], expect=old)
    backend.write(Append("l.jsonl", [{"n": 3}], expect=mark))
    assert [record["n"] for record in backend.read("l.jsonl", after=mark).records] == [3]


def test_an_append_with_a_stale_mark_is_refused(backend: Backend, opener: Opener) -> None:
    """W6: two who each think that they are the last cannot both be."""
    (first,) = backend.write(Append("l.jsonl", [{"n": 1}], expect=ABSENT))
    opener().write(Append("l.jsonl", [{"n": 2}], expect=first))
    for stale in (first, ABSENT):
        with pytest.raises(RevisionConflict):
            backend.write(Append("l.jsonl", [{"n": 3}], expect=stale))
    assert records(backend, "l.jsonl") == [{"n": 1}, {"n": 2}]


def test_a_log_can_be_emptied_and_deleted(backend: Backend) -> None:
    backend.write(Append("l.jsonl", [{"n": 1}]))
    mark = backend.rewrite("l.jsonl", [])
    assert backend.read("l.jsonl").records == () and backend.mark("l.jsonl") == mark != ABSENT
    backend.write(Append("l.jsonl", [{"n": 2}], expect=mark))
    backend.write(Delete("l.jsonl"))
    assert backend.mark("l.jsonl") is None and backend.read("l.jsonl").mark == ABSENT
    backend.write(Append("l.jsonl", [{"n": 3}], expect=ABSENT))
    assert records(backend, "l.jsonl") == [{"n": 3}]


@pytest.mark.parametrize("bad", [{"a": float("nan")}, {"a": {1: 2}}, {"a": object()}])
def test_a_record_without_a_form_in_json_is_refused_before_anything_is_written(backend: Backend, bad: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        backend.write(Append("l.jsonl", [{"n": 1}, bad]))
    with pytest.raises(InputError):
        backend.write(Put("a", b"1"), Append("l.jsonl", [bad]))
    assert backend.mark("l.jsonl") is None and backend.get("a") is None


# Several changes


def test_several_changes_are_made_together(backend: Backend, opener: Opener) -> None:
    (old,) = backend.write(Put("old", b"x"))
    marks = backend.write(
        Put("m.json", b"1"), Append("m.d/h.jsonl", [{"n": 1}]), Put("m.d/q.json", b"2", expect=ABSENT), Delete("old", expect=old)
    )
    other = opener()
    assert marks == (other.mark("m.json"), other.mark("m.d/h.jsonl"), other.mark("m.d/q.json"), ABSENT)
    assert other.get("old") is None and records(other, "m.d/h.jsonl") == [{"n": 1}]


def test_one_stale_mark_refuses_all_changes(backend: Backend) -> None:
    (first,) = backend.write(Put("a", b"1"))
    backend.write(Put("a", b"2"))
    with pytest.raises(RevisionConflict):
        backend.write(Append("h.jsonl", [{"n": 1}]), Put("b", b"3"), Put("a", b"3", expect=first))
    assert backend.mark("h.jsonl") is None and backend.get("b") is None
    assert backend.get("a").data == b"2"  # type: ignore[union-attr]  # it is there, or the test fails


def test_many_writers_lose_nothing(opener: Opener) -> None:
    """M6: each of many threads with a backend of its own adds to a document by compare and swap, and to a log."""
    opener().write(Put("n", b"0"))

    def work() -> None:
        mine = opener()
        for _ in range(10):
            while True:
                stored = mine.get("n")
                assert stored is not None
                try:
                    mine.write(Put("n", b"%d" % (int(stored.data) + 1), expect=stored.mark), Append("n.jsonl", [{"n": int(stored.data)}]))
                    break
                except RevisionConflict:
                    continue

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert opener().get("n").data == b"40"  # type: ignore[union-attr]  # put above
    assert [record["n"] for record in opener().read("n.jsonl").records] == list(range(40))


# Blobs


def test_blobs_are_kept_once_and_named_by_their_hash(backend: Backend, opener: Opener) -> None:
    """W10"""
    name = backend.put_blob("s/raw", b"some bytes")
    assert name == "sha256-0d22cdcc10e6d049dbe1af5123d50873fdfc1a4f58306e58cb6241be9472014d"
    assert opener().put_blob("s/raw", b"some bytes") == name
    assert opener().get_blob("s/raw", name) == b"some bytes"
    assert backend.get_blob("other/raw", name) is None
    assert [item.key for item in backend.list("s/")] == [f"s/raw/{name}"]
    backend.delete_blob("s/raw", name)
    backend.delete_blob("s/raw", name)
    assert opener().get_blob("s/raw", name) is None
    with pytest.raises(InputError):
        backend.get_blob("s/raw", "../../etc/passwd")


# Lists, removing


def test_every_key_is_listed_in_order_with_kind_and_size(backend: Backend, opener: Opener) -> None:
    blob = backend.put_blob("s/1/raw", b"12345")
    backend.write(Put("s/1.json", b"123"), Append("s/1/l.jsonl", [{"n": 1}]), Put("a", b""))
    with backend.lease("s/1"), backend.locked("a"):
        items = [*opener().list()]
        assert [(item.key, item.kind) for item in items] == [
            ("a", "document"),
            ("s/1.json", "document"),
            ("s/1/l.jsonl", "log"),
            (f"s/1/raw/{blob}", "blob"),
        ]
    assert [item.size for item in items][:2] == [0, 3] and items[3].size == 5 and items[2].size > 5
    assert [item.key for item in backend.list("s/1.")] == ["s/1.json"]
    assert [item.key for item in backend.list("s/1/r")] == [f"s/1/raw/{blob}"]
    assert [*backend.list("t")] == []


def test_the_names_directly_below_a_folder_are_those_of_keys(backend: Backend, opener: Opener) -> None:
    blob = backend.put_blob("s/1/raw", b"12345")
    backend.write(Put("s/1.json", b"1"), Append("s/1/l.jsonl", [{"n": 1}]), Put("s/2/x/y", b""), Put("t", b""))
    with backend.lease("s/3"):
        assert [*opener().children("s")] == ["1", "1.json", "2"]
    assert [*backend.children("s/1")] == ["l.jsonl", "raw"]
    assert [*backend.children("s/1/raw")] == [blob]
    assert [*backend.children("absent")] == []


def test_the_names_that_were_written_last_come_first(backend: Backend, opener: Opener) -> None:
    """O1: by any of the endings, each once, and without what is deeper or has another ending."""
    assert list(backend.recent("s", "/log.jsonl", ".json")) == []
    for name in ("a", "b", "c"):
        backend.write(Put(f"s/{name}.json", b"{}"), Append(f"s/{name}/log.jsonl", [{"n": 1}]))
        time.sleep(0.02)
    backend.write(Put("s/old.json", b"{}"))
    backend.write(Append("s/only/log.jsonl", [{"n": 1}]), Put("s/b/other.txt", b"x"), Put("s/deep/er/x.json", b"{}"), Put("s/d.txt", b"x"))
    time.sleep(0.02)
    backend.write(Append("s/a/log.jsonl", [{"n": 2}]))
    found = opener().recent("s", "/log.jsonl", ".json")
    assert sorted(name for name, _ in found) == ["a", "b", "c", "old", "only"]
    assert [name for name, _ in found if name in "abc"] == ["a", "c", "b"]
    assert [time for _, time in found] == sorted((time for _, time in found), reverse=True)


def test_everything_below_a_prefix_is_removed(backend: Backend, opener: Opener) -> None:
    backend.put_blob("s/1/raw", b"12345")
    backend.write(Put("s/1.json", b"1"), Append("s/1/l.jsonl", [{"n": 1}]), Put("s/1/x/y", b""), Put("s/10/x", b""))
    assert backend.remove("s/1/") == 3
    assert [item.key for item in opener().list()] == ["s/1.json", "s/10/x"]
    assert backend.remove("s/1/") == 0
    with pytest.raises(InputError):
        backend.remove("s/1")
    backend.write(Append("s/1/l.jsonl", [{"n": 2}], expect=ABSENT))


def test_many_prefixes_and_documents_are_removed_together(backend: Backend, opener: Opener) -> None:
    """O7: and what is made under the same names afterwards is new."""
    for name in "abc":
        backend.put_blob(f"s/{name}/raw", name.encode())
        backend.write(Put(f"s/{name}.json", b"1"), Append(f"s/{name}/l.jsonl", [{"n": 1}]), Put(f"s/{name}/x/y", b""))
    assert backend.remove("s/a/", "s/b/", "s/never/", documents=["s/a.json", "s/b.json", "s/never.json"]) == 8
    assert {item.key.partition(".")[0].split("/")[1] for item in opener().list()} == {"c"}
    backend.write(Append("s/a/l.jsonl", [{"n": 2}], expect=ABSENT), Put("s/a.json", b"2", expect=ABSENT))
    assert opener().read("s/a/l.jsonl").records == ({"n": 2},)
    assert backend.remove() == 0
    for wrong in ({"documents": ["s/c/"]}, {"documents": ["s/c/l.jsonl"]}):
        with pytest.raises(InputError):
            backend.remove("s/c/", **wrong)
    assert opener().get("s/c.json") is not None


def test_what_is_damaged_is_set_aside_under_another_name(backend: Backend, opener: Opener) -> None:
    """M6: never overwritten, never lost."""
    backend.write(Put("m.json", b"{torn"), Append("l.jsonl", [{"n": 1}]))
    name = backend.set_aside("m.json")
    assert name.startswith("m.json.damaged-")
    assert opener().get(name).data == b"{torn"  # type: ignore[union-attr]  # set aside above
    assert backend.get("m.json") is None
    backend.write(Put("m.json", b"{}", expect=ABSENT))
    log = backend.set_aside("l.jsonl")
    assert b'"n":1' in backend.get(log).data.replace(b" ", b"")  # type: ignore[union-attr]
    assert backend.mark("l.jsonl") is None
    assert {item.kind for item in backend.list() if "damaged" in item.key} == {"document"}
    with pytest.raises(InputError):
        backend.set_aside("absent")


def test_a_second_thing_set_aside_keeps_the_first(backend: Backend) -> None:
    names = set()
    for data in (b"1", b"2", b"3"):
        backend.write(Put("m", data))
        names.add(backend.set_aside("m"))
    assert {backend.get(name).data for name in names} == {b"1", b"2", b"3"}  # type: ignore[union-attr]


# Locks and leases


def test_one_at_a_time_is_inside_a_lock(backend: Backend, opener: Opener) -> None:
    with backend.locked("a/b"):
        with pytest.raises(Locked), opener().locked("a/b", 0.05):
            pass
        with opener().locked("a/c", 0.05):
            pass
        backend.write(Put("a/b", b"1"))  # who holds it may write
        opener().write(Put("a/b", b"2"))  # and so may others: `expect` keeps them apart
    with opener().locked("a/b", 0.05):
        pass


def test_a_lease_has_one_holder_and_says_who(backend: Backend, opener: Opener) -> None:
    """W6: two processes cannot run one session at once."""
    other = opener()
    assert other.holder("s/1") is None
    with backend.lease("s/1", holder="ada") as lease:
        assert (lease.key, lease.holder.name, lease.taken_over) == ("s/1", "ada", None)
        lease.check()
        with pytest.raises(Locked) as refused, other.lease("s/1"):
            pass
        assert "ada" in str(refused.value.owner)
        seen = other.holder("s/1")
        assert seen is not None and (seen.name, seen.pid) == ("ada", lease.holder.pid)
        with other.lease("s/2"):
            pass
    assert other.holder("s/1") is None
    with other.lease("s/1") as again:
        assert again.taken_over is None


def test_the_idle_ones_of_many_keys_cannot_be_taken_for_a_moment(backend: Backend, opener: Opener) -> None:
    """W6, O7"""
    other = opener()
    with other.lease("s/2", holder="ada"), backend.idle(["s/1", "s/2", "s/3"]) as free:
        assert list(free) == ["s/1", "s/3"]
        for key in ("s/1", "s/2"):
            with pytest.raises(Locked), other.lease(key):
                raise AssertionError("two have it")
    with other.lease("s/1") as lease:
        assert lease.taken_over is None


def test_a_backend_says_where_something_is(backend: Backend) -> None:
    assert "a/b.json" in backend.where("a/b.json")


def test_nothing_is_left_behind_by_writers_that_live(backend: Backend) -> None:
    backend.write(Put("a/b", b"1"), Put("c", b"2"))
    assert list(backend.sweep(holding=lambda data: True)) == []


def test_damaged_blobs_are_not_given_out(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    name = backend.put_blob("raw", b"right")
    next(tmp_path.rglob(name)).write_bytes(b"wrong")
    with pytest.raises(Damaged):
        backend.get_blob("raw", name)


# A person with an editor, or with SQL


@pytest.mark.parametrize("pause", [0.0, 0.05])
def test_an_edit_by_hand_changes_the_mark_and_is_never_overwritten(tmp_path: Path, pause: float) -> None:
    """W2, M6, M7: also one of the same length, in place, within the same tick of the file system's clock, with the old time put back."""
    backend = FileBackend(tmp_path)
    path = tmp_path / "a.json"
    for old, new in ((b"111", b"222"), (b"222", b"3333"), (b"3333", b"4444")):
        (mark,) = backend.write(Put("a.json", old))
        assert backend.mark("a.json") == mark
        time.sleep(pause)
        assert backend.mark("a.json") == mark
        times = path.stat()
        path.write_bytes(new)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert backend.mark("a.json") != mark
        with pytest.raises(RevisionConflict):
            backend.write(Put("a.json", b"mine", expect=mark))
        stored = backend.get("a.json")
        assert stored is not None and stored.data == new
        backend.write(Put("a.json", old, expect=stored.mark))


def test_an_edit_that_changes_nothing_is_no_change(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    (mark,) = backend.write(Put("a.json", b"{}"))
    (tmp_path / "a.json").write_bytes(b"{}")
    assert backend.mark("a.json") == mark
    backend.write(Put("a.json", b"2", expect=mark))


def test_a_log_edited_by_hand_says_what_cannot_be_read(tmp_path: Path) -> None:
    """M6: the rest is given all the same, and what is unreadable is kept when the log goes on."""
    backend = FileBackend(tmp_path)
    for number in range(3):
        backend.write(Append("l.jsonl", [{"n": number, "word": "tea"}]))
    path = tmp_path / "l.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"n":1,"word":"tea"', b'"n":1,"word":"tee"'))
    reading = FileBackend(tmp_path).read("l.jsonl")
    assert [record["n"] for record in reading.records] == [0, 2]
    assert len(reading.damage) == len(reading.torn) == 1 and b"tee" in reading.torn[0] and "l.jsonl" in reading.damage[0]
    backend.write(Append("l.jsonl", [{"n": 3}]))
    assert [record["n"] for record in backend.read("l.jsonl").records] == [0, 2, 3]


def test_an_append_that_is_cut_short_is_not_there_and_is_kept_aside(tmp_path: Path) -> None:
    """W5, M6: of records that were given as one, all are there or none."""
    backend = FileBackend(tmp_path)
    (first,) = backend.write(Append("l.jsonl", [{"n": 0}]))
    backend.write(Append("l.jsonl", [{"n": 1}, {"n": 2}, {"n": 3}]))
    path = tmp_path / "l.jsonl"
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for torn in (b"".join(lines[:4]), b"".join(lines[:3]), whole[:-3], b"".join((*lines[:2], b"\0" * len(lines[2]), *lines[3:]))):
        path.write_bytes(torn)
        fresh = FileBackend(tmp_path)
        assert [record["n"] for record in fresh.read("l.jsonl").records] == [0]
        assert fresh.read("l.jsonl").damage
        assert fresh.mark("l.jsonl") == fresh.read("l.jsonl").mark == first
        fresh.write(Append("l.jsonl", [{"n": 9}], expect=first))
        assert [record["n"] for record in backend.read("l.jsonl").records] == [0, 9]
        assert fresh.read("l.jsonl").damage == ()
    assert len([*tmp_path.glob("l.jsonl.damaged-*")]) == 4


def test_what_a_person_wrote_before_a_step_was_finished_is_kept_beside(tmp_path: Path) -> None:
    """M6: after a crash in the middle of a step, an edit by hand is neither overwritten nor does it tear the step apart."""
    backend = FileBackend(tmp_path, bus=(bus := Bus()))
    backend.write(Put("a", b"old"), Append("l.jsonl", [{"n": 1}]))

    class Crash(BaseException):
        pass

    def crash(*_: object) -> None:
        raise Crash

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("holdfast.storage.pending.PendingSteps._put_in_place", crash)
        with pytest.raises(Crash):
            backend.write(Put("a", b"new"), Append("l.jsonl", [{"n": 2}]))
    (tmp_path / "a").write_bytes(b"by hand")
    with bus.collect() as events:
        assert backend.get("a").data == b"new"  # type: ignore[union-attr]  # finished
    assert [type(event) for event in events] == [KeptBeside]
    assert [record["n"] for record in backend.read("l.jsonl").records] == [1, 2]
    (kept,) = [item.key for item in backend.list() if ".edited-" in item.key]
    assert backend.get(kept).data == b"by hand"  # type: ignore[union-attr]  # listed


def test_a_change_with_sql_is_noticed(postgres: str) -> None:
    """W2, M7: who edits a row changes its mark; who edits or removes a record of a log makes everybody read it anew."""
    backend = PostgresBackend(postgres)
    (document, log) = backend.write(Put("a.json", b'{"n": 1}'), Append("l.jsonl", [{"n": 1}, {"n": 2}]))
    with psycopg.connect(postgres, autocommit=True) as person:
        person.execute("UPDATE holdfast.storage_documents SET text = replace(text, '1', '5') WHERE key = 'a.json'")
        assert backend.mark("a.json") != document
        with pytest.raises(RevisionConflict):
            backend.write(Put("a.json", b"2", expect=document))
        assert backend.get("a.json").data == b'{"n": 5}'  # type: ignore[union-attr]  # put above
        person.execute("UPDATE holdfast.storage_records SET record = '{torn' WHERE key = 'l.jsonl' AND number = 1")
        reading = backend.read("l.jsonl", after=log)
        assert reading.whole and [dict(record) for record in reading.records] == [{"n": 2}]
        assert reading.torn == (b"{torn",)
        person.execute("DELETE FROM holdfast.storage_records WHERE key = 'l.jsonl' AND number = 2")
        assert backend.read("l.jsonl", after=reading.mark).whole
        person.execute("INSERT INTO holdfast.storage_documents (key, text) VALUES ('b', 'x')")
        with pytest.raises(RevisionConflict):
            backend.write(Put("b", b"y", expect=ABSENT))
    backend.close()


def test_files_and_folders_are_for_their_owner_alone_and_keep_the_mode_that_he_gave_them(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path / "base")
    backend.write(Put("a/b.json", b"1"), Append("a/l.jsonl", [{}]))
    backend.put_blob("raw", b"x")
    modes = {path: path.stat().st_mode & 0o777 for path in (tmp_path / "base").rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}
    (tmp_path / "base/a/b.json").chmod(0o640)
    backend.write(Put("a/b.json", b"2"))
    assert (tmp_path / "base/a/b.json").stat().st_mode & 0o777 == 0o640


def test_one_append_is_one_sync_and_one_put_two(tmp_path: Path) -> None:
    """W5: what a commit costs, whatever the size of the log; with a view beside it no more."""
    disk = FailingDisk(RealDisk())
    backend = FileBackend(tmp_path, disk=disk)
    backend.write(Append("s/l.jsonl", [{"n": 0}]), Put("s.json", b"0", durable=False))
    reads = []
    for number in range(1, 60):
        disk.calls.clear()
        backend.write(Append("s/l.jsonl", [{"n": number, "text": "x" * 2000}]), Put("s.json", b"%d" % number, durable=False))
        assert [call.operation for call in disk.calls if call.operation.startswith("sync")] == ["sync"]
        reads.append(len(disk.calls))
    assert len(set(reads)) == 1
    disk.calls.clear()
    backend.write(Put("s.json", b"x"))
    assert [call.operation for call in disk.calls if call.operation.startswith("sync")] == ["sync", "sync_folder"]


@pytest.mark.parametrize("verb", ["write", "rename"])
def test_where_only_a_view_fails_nobody_is_told_that_the_old_state_stands(tmp_path: Path, verb: str) -> None:
    """W15: the log has the change by then; `session restore` on a disk with a few kilobytes left was told as not done, and was done."""
    disk = FailingDisk(RealDisk())
    backend = FileBackend(tmp_path, disk=disk)
    backend.write(Append("s/l.jsonl", [{"n": 0}]), Put("s.json", b"0", durable=False))
    disk.calls.clear()
    backend.write(Append("s/l.jsonl", [{"n": 1}]), Put("s.json", b"1", durable=False))
    at = sum(call.operation == verb for call in disk.calls)
    failing = FileBackend(tmp_path, disk=FailingDisk(RealDisk(), [Fault(verb, at, errno.ENOSPC)]))
    with pytest.raises(DiskFull, match="What was changed is kept"):
        failing.write(Append("s/l.jsonl", [{"n": 2}]), Put("s.json", b"2", durable=False))
    assert [record["n"] for record in backend.read("s/l.jsonl").records] == [0, 1, 2]
    assert (tmp_path / "s.json").read_bytes() == b"1"


@pytest.mark.parametrize("answered", [True, False])
def test_a_write_whose_answer_is_lost_is_looked_up(postgres: str, answered: bool) -> None:
    """W16: the connection breaks at the commit itself, before the server hears it or after it has answered."""
    direct = PostgresBackend(postgres)
    direct.write(Put("a", b"0"))
    with cut_at_commit(postgres, answered=answered) as cable:
        backend = PostgresBackend(Postgres(cable.dsn))
        cable.cuts = 1  # not while the tables are looked at
        backend.mark("a")
        cable.cuts = 0
        if answered:
            backend.write(Put("a", b"1"), Append("l.jsonl", [{"n": 1}]))
        else:
            with pytest.raises(StoreUnavailable):
                backend.write(Put("a", b"1"), Append("l.jsonl", [{"n": 1}]))
        assert cable.cuts == 1
        backend.database.close()
    stored = direct.get("a")
    assert stored is not None and stored.data == (b"1" if answered else b"0")
    assert len(direct.read("l.jsonl").records) == int(answered)
    direct.close()
