"""M7: what was read is kept until somebody writes, and then read anew, or on."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import Damaged
from holdfast.storage.backend import Append, Backend, Delete, Put
from holdfast.storage.cache import DocumentCache, LogCache
from holdfast.storage.files import FileBackend
from holdfast.storage.memory import MemoryBackend


@pytest.fixture(params=["memory", "files"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return MemoryBackend() if request.param == "memory" else FileBackend(tmp_path)


def test_a_document_is_parsed_once_until_somebody_writes(backend: Backend) -> None:
    parsed: list[bytes] = []

    def parse(data: bytes, key: str) -> str:
        parsed.append(data)
        return data.decode()

    cache = DocumentCache(backend, parse)
    assert cache.get("a") is None
    backend.write(Put("a", b"one"))
    for _ in range(3):
        known = cache.get("a")
        assert known is not None and known.value == "one" and known.mark == backend.mark("a")
    backend.write(Put("a", b"two"))
    assert cache.get("a").value == "two"  # type: ignore[union-attr]  # it was put
    assert parsed == [b"one", b"two"]
    (mark,) = backend.write(Put("a", b"three"))
    cache.put("a", "three", mark)
    assert cache.get("a").value == "three"  # type: ignore[union-attr]
    assert len(parsed) == 2
    backend.write(Delete("a"))
    assert cache.get("a") is None


def test_what_cannot_be_parsed_is_said_each_time(backend: Backend) -> None:
    def parse(data: bytes, key: str) -> str:
        raise Damaged(f"{key} is damaged.")

    cache = DocumentCache(backend, parse)
    backend.write(Put("a", b"torn"))
    for _ in range(2):
        with pytest.raises(Damaged):
            cache.get("a")


def test_a_log_is_read_on_from_where_it_was_left(backend: Backend) -> None:
    seen: list[int] = []

    def add(value: tuple[int, ...], record: Mapping[str, Any]) -> tuple[int, ...]:
        seen.append(record["n"])
        return (*value, record["n"])

    cache: LogCache[tuple[int, ...]] = LogCache(backend, tuple, add)
    assert cache.get("l.jsonl").value == ()
    backend.write(Append("l.jsonl", [{"n": 1}, {"n": 2}]))
    assert cache.get("l.jsonl").value == (1, 2)
    backend.write(Append("l.jsonl", [{"n": 3}]))
    assert cache.get("l.jsonl").value == (1, 2, 3)
    assert cache.get("l.jsonl").value == (1, 2, 3)
    assert seen == [1, 2, 3]
    backend.rewrite("l.jsonl", [{"n": 9}])
    assert cache.get("l.jsonl").value == (9,)
    backend.write(Delete("l.jsonl"))
    assert cache.get("l.jsonl").value == ()


def test_a_record_that_cannot_be_added_does_not_stay_half_added(backend: Backend) -> None:
    def add(value: list[int], record: Mapping[str, Any]) -> list[int]:
        value.append(record["n"])
        return value

    cache: LogCache[list[int]] = LogCache(backend, list, add)
    backend.write(Append("l.jsonl", [{"n": 1}]))
    cache.get("l.jsonl")
    backend.write(Append("l.jsonl", [{"n": 2}, {"other": 3}]))
    with pytest.raises(KeyError):
        cache.get("l.jsonl")
    backend.rewrite("l.jsonl", [{"n": 1}, {"n": 2}])
    assert cache.get("l.jsonl").value == [1, 2]
