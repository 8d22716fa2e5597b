"""M14: a text is taken out of every kind of thing that is kept, by the room's rules or in the general way, and what stays is said."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.storage.backend import Append, Backend, Put
from holdfast.storage.files import FileBackend
from holdfast.storage.in_memory import MemoryBackend
from holdfast.storage.scrub import Needle as NeedleLike
from holdfast.storage.scrub import Rule, scrub
from holdfast.text.needle import FORGOTTEN, Needle

NEEDLE = Needle("Elm Street 5")


@pytest.fixture(params=["memory", "files"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    return MemoryBackend() if request.param == "memory" else FileBackend(tmp_path)


def document(backend: Backend, key: str) -> bytes | None:
    stored = backend.get(key)
    return None if stored is None else stored.data


def test_documents_logs_blobs_and_texts_lose_it(backend: Backend) -> None:
    backend.write(
        Put("a.json", json.dumps({"home": "He lives at elm  street 5. He likes tea.", "n": 5}, indent=2).encode()),
        Put("notes.md", b"Ask Ada.\nHe lives at Elm Street 5.\n"),
        Append("l.jsonl", [{"said": "hello"}, {"said": "Elm Street 5!"}, {"said": "bye"}]),
        Put("a.json.damaged-20260101T000000Z", b'{"home": "Elm Street 5'),
        Put("other.json", b'{"home": "Graz"}'),
    )
    gone, kept = backend.put_blob("raw", b"page: Elm Street 5"), backend.put_blob("raw", b"page: Graz")
    touched = list(scrub(backend, NEEDLE))
    assert {one.key for one in touched} == {"a.json", "notes.md", "l.jsonl", "a.json.damaged-20260101T000000Z", f"raw/{gone}"}
    assert all(one.done for one in touched)
    assert json.loads(document(backend, "a.json") or b"") == {"home": f"{FORGOTTEN} He likes tea.", "n": 5}
    assert document(backend, "notes.md") == f"Ask Ada.\n{FORGOTTEN}\n".encode()
    assert [dict(record) for record in backend.read("l.jsonl").records] == [{"said": "hello"}, {"said": FORGOTTEN}, {"said": "bye"}]
    assert document(backend, "a.json.damaged-20260101T000000Z") is None
    assert document(backend, "other.json") == b'{"home": "Graz"}'
    assert (backend.get_blob("raw", gone), backend.get_blob("raw", kept)) == (None, b"page: Graz")
    assert list(scrub(backend, NEEDLE)) == []


def test_a_dry_run_says_it_and_changes_nothing(backend: Backend) -> None:
    backend.write(Put("a.txt", b"Elm Street 5"), Append("l.jsonl", [{"said": "Elm Street 5!"}]))
    assert {one.key for one in scrub(backend, NEEDLE, dry_run=True)} == {"a.txt", "l.jsonl"}
    assert document(backend, "a.txt") == b"Elm Street 5"
    assert len(backend.read("l.jsonl").records) == 1


def test_the_first_rule_that_fits_counts(backend: Backend) -> None:
    """A room's own way: a fact goes as a whole, a session keeps its contract."""
    backend.write(
        Put("memory.json", b'{"facts": ["Elm Street 5", "tea"]}'), Append("sessions/1/log.jsonl", [{"n": 1, "said": "Elm Street 5"}])
    )
    backend.write(Put("index.sqlite", b"Elm Street 5"))

    def facts(data: bytes, needle: NeedleLike) -> bytes:
        return json.dumps({"facts": [fact for fact in json.loads(data)["facts"] if not needle.in_text(fact)]}).encode()

    def record(record: Mapping[str, Any], needle: NeedleLike) -> None:
        return None

    rules = [Rule("memory.json", document=facts), Rule("sessions/*/log.jsonl", record=record), Rule("**", leave=True)]
    assert {one.key for one in scrub(backend, NEEDLE, rules)} == {"memory.json", "sessions/1/log.jsonl"}
    assert document(backend, "memory.json") == b'{"facts": ["tea"]}'
    assert backend.read("sessions/1/log.jsonl").records == ()
    assert document(backend, "index.sqlite") == b"Elm Street 5"


def test_a_rule_that_leaves_it_in_loses_the_whole_document(backend: Backend) -> None:
    backend.write(Put("a", b"Elm Street 5"))
    assert [one.done for one in scrub(backend, NEEDLE, [Rule("a", document=lambda data, needle: data)])] == [True]
    assert document(backend, "a") is None


def test_what_is_in_use_or_no_text_is_said_and_left(backend: Backend) -> None:
    backend.write(Put("s/1.json", b'{"said": "Elm Street 5"}'), Put("picture", b"\0\1 Elm Street 5"), Put("Elm Street 5.md", b"x"))
    with backend.lease("s/1", holder="ada"):
        found = {one.key: one for one in scrub(backend, NEEDLE, [Rule("s/*.json", lease=lambda key: key.removesuffix(".json"))])}
    assert not any(one.done for one in found.values())
    assert "ada" in found["s/1.json"].why and "not text" in found["picture"].why and "name" in found["Elm Street 5.md"].why
    assert document(backend, "s/1.json") == b'{"said": "Elm Street 5"}'


def test_what_killed_writers_left_and_damaged_stretches_go_too(tmp_path: Path) -> None:
    backend = FileBackend(tmp_path)
    backend.write(Append("a/l.jsonl", [{"n": 1}]))
    backend.write(Append("a/l.jsonl", [{"n": 2}]))
    log = tmp_path / "a/l.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(lines[0] + lines[1] + b"Elm Street 5 torn\n" + b"harmless\n" + lines[2])
    (tmp_path / "a/.new-0123456789abcdef.tmp").write_bytes(b"Elm Street 5")
    (tmp_path / "a/.new-fedcba9876543210.tmp").write_bytes(b"a live writer's")
    assert len(list(scrub(backend, NEEDLE))) == 2
    assert [record["n"] for record in backend.read("a/l.jsonl").records] == [1, 2]
    assert [path.name for path in tmp_path.rglob(".new-*")] == [".new-fedcba9876543210.tmp"]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and NEEDLE.in_bytes(path.read_bytes())]
