"""One suite over every storage backend: files, files on a simulated disk, PostgreSQL, memory (M6, M7, W5, W6, W16, O7)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged, InputError, Locked, RevisionConflict
from holdfast.storage.backend import ABSENT, Append, Backend, Delete, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.memory import MemoryBackend
from holdfast.testing.disk import SimulatedDisk

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
        from holdfast.storage.postgres import PostgresBackend

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


def test_everything_below_a_prefix_is_removed(backend: Backend, opener: Opener) -> None:
    backend.put_blob("s/1/raw", b"12345")
    backend.write(Put("s/1.json", b"1"), Append("s/1/l.jsonl", [{"n": 1}]), Put("s/1/x/y", b""), Put("s/10/x", b""))
    assert backend.remove("s/1/") == 3
    assert [item.key for item in opener().list()] == ["s/1.json", "s/10/x"]
    assert backend.remove("s/1/") == 0
    with pytest.raises(InputError):
        backend.remove("s/1")
    backend.write(Append("s/1/l.jsonl", [{"n": 2}], expect=ABSENT))


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
