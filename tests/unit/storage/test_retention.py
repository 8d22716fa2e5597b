"""A8, O7: what is too old or too much goes, what is in use or still wanted stays, and both are said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast.errors import RevisionConflict
from holdfast.storage.backend import Append, Backend, Item, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.memory import MemoryBackend
from holdfast.storage.retention import Thing, outdated, prune, prune_log, things

NOW = datetime(2026, 5, 4, tzinfo=UTC)


@pytest.fixture(params=["memory", "files"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return MemoryBackend() if request.param == "memory" else FileBackend(tmp_path)


def test_things_are_what_has_one_name() -> None:
    items = [
        Item("s/a.json", "document", 5, 10.0),
        Item("s/a/log.jsonl", "log", 7, 30.0),
        Item("s/b.c.json", "document", 1, 20.0),
        Item("s/loose", "document", 1, 5.0),
    ]
    assert things(items, "s") == [
        Thing("a", ("s/a.json", "s/a/log.jsonl"), 30.0, 12),
        Thing("b.c", ("s/b.c.json",), 20.0, 1),
        Thing("loose", ("s/loose",), 5.0, 1),
    ]


def test_what_is_older_or_beyond_the_newest_is_outdated() -> None:
    every = [Thing(name, (), (NOW - timedelta(days=days)).timestamp(), 0) for name, days in (("new", 1), ("middle", 5), ("old", 9))]
    assert [thing.name for thing in outdated(every, now=NOW, older_than=timedelta(days=5))] == ["old"]
    assert [thing.name for thing in outdated(every, now=NOW, keep=1)] == ["middle", "old"]
    assert [thing.name for thing in outdated(every, now=NOW, older_than=timedelta(days=7), keep=2)] == ["old"]
    assert outdated(every, now=NOW) == []


def test_what_goes_is_gone_and_what_is_held_or_wanted_stays(backend: Backend) -> None:
    for name in ("done", "held", "wanted"):
        backend.write(Put(f"s/{name}.json", b"1"), Append(f"s/{name}/log.jsonl", [{"n": 1}]))
    later = datetime.now(UTC) + timedelta(days=10)

    def reason(thing: Thing) -> str | None:
        return "it has not ended" if thing.name == "wanted" else None

    with backend.lease("s/held", holder="ada"):
        settings = {"now": later, "older_than": timedelta(days=5), "wanted": reason, "lease": "s/{}".format}
        assert len(list(prune(backend, "s", dry_run=True, **settings))) == 3  # type: ignore[arg-type]  # typed one by one there
        assert len(list(backend.list("s/"))) == 6
        found = {one.name: one.why_kept for one in prune(backend, "s", **settings)}  # type: ignore[arg-type]
    assert found["done"] == "" and "ada" in found["held"] and found["wanted"] == "it has not ended"
    assert [*backend.children("s")] == ["held", "held.json", "wanted", "wanted.json"]


def test_a_log_is_pruned_record_by_record(backend: Backend) -> None:
    backend.write(Append("l.jsonl", [{"n": n} for n in range(5)]))
    mark = backend.mark("l.jsonl")
    assert prune_log(backend, "l.jsonl", lambda record: True) == 0
    assert backend.mark("l.jsonl") == mark
    assert prune_log(backend, "l.jsonl", lambda record: record["n"] >= 3) == 3
    assert [record["n"] for record in backend.read("l.jsonl").records] == [3, 4]


def test_a_log_that_grows_meanwhile_is_not_cut(backend: Backend) -> None:
    backend.write(Append("l.jsonl", [{"n": 0}]))

    def keep(record: object) -> bool:
        backend.write(Append("l.jsonl", [{"n": 1}]))
        return False

    with pytest.raises(RevisionConflict):
        prune_log(backend, "l.jsonl", keep)
    assert [record["n"] for record in backend.read("l.jsonl").records] == [0, 1]
