"""The archive's files: readable by a person, honest about damage, and without a trace of what was forgotten (S9, M14, O7)."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.context.archive import FileArchive
from holdfast.context.records import SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import OutsideRoot, StorageError

TALK = [PlainMessage("human", f"Message speaks of topic{n}.", f"m{n}") for n in range(20)]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[FileArchive]:
    made = FileArchive(tmp_path)
    made.add("t", records_of(TALK, history=TALK))
    yield made
    made.close()


def log_of(base: Path) -> Path:
    return base / "threads" / "t" / "archive.jsonl"


def test_the_log_is_json_lines_with_a_schema_number_that_a_person_can_read(archive: FileArchive, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in log_of(tmp_path).read_text().splitlines()]
    assert lines[0]["schema"] == 1
    assert [line["content"] for line in lines[1:]] == [message.content for message in TALK]
    assert {line["schema"] for line in lines[1:]} == {1}
    assert lines[1].keys() == {"crc", "schema", "kind", "seq", "id", "time", "role", "content", "mark"}
    assert log_of(tmp_path).stat().st_mode & 0o077 == 0


def test_a_log_of_a_newer_version_is_refused(archive: FileArchive, tmp_path: Path) -> None:
    from holdfast.durable.log_records import line_of

    rest = log_of(tmp_path).read_bytes().split(b"\n", 1)[1]
    log_of(tmp_path).write_bytes(line_of({"holdfast": "log", "schema": 99}) + rest)
    with pytest.raises(StorageError, match="newer version"):
        FileArchive(tmp_path).add("t", records_of([PlainMessage("human", "x", "x")]))


def test_damage_in_the_log_is_reported_and_the_rest_is_readable(archive: FileArchive, tmp_path: Path) -> None:
    data = bytearray(log_of(tmp_path).read_bytes())
    at = data.index(b"topic7")
    data[at : at + 6] = b"\0" * 6
    log_of(tmp_path).write_bytes(data)
    fresh = FileArchive(tmp_path)
    stats = fresh.stats("t")
    assert stats.messages == 19
    (damage,) = stats.damage
    assert "archive.jsonl" in damage
    assert fresh.read("t", "m7") is None
    assert fresh.read("t", "m8", around=1).before[0].id == "m6"  # type: ignore[union-attr]  # it is there
    assert fresh.search("t", "topic9")[0].record.id == "m9"
    assert fresh.add("t", records_of(TALK)) == 1, "what was damaged can be archived again"
    assert fresh.read("t", "m7") is not None


def test_a_torn_tail_is_no_reason_not_to_go_on(archive: FileArchive, tmp_path: Path) -> None:
    with log_of(tmp_path).open("ab") as file:
        file.write(b'{"crc":"00000000","kind":"message","id":"torn')
    fresh = FileArchive(tmp_path)
    assert len(fresh.stats("t").damage) == 1
    assert fresh.add("t", records_of([PlainMessage("human", "next", "n1")])) == 1
    assert [record.id for record in fresh.messages("t")] == [*(f"m{n}" for n in range(20)), "n1"]
    assert fresh.stats("t").damage == ()
    assert list(log_of(tmp_path).parent.glob("archive.jsonl.damaged-*")), "what was cut off is kept beside the log"


@pytest.mark.parametrize("harm", ["missing", "empty", "garbage", "torn", "foreign", "stale"])
def test_an_index_that_is_gone_or_damaged_is_made_again(archive: FileArchive, tmp_path: Path, harm: str) -> None:
    index = log_of(tmp_path).with_name("archive.sqlite")
    archive.search("t", "topic3")
    archive.close()
    if harm == "stale":
        with closing(FileArchive(tmp_path)) as later:
            later.add("t", records_of([PlainMessage("human", "a late topic99", "late")]))
    for companion in log_of(tmp_path).parent.glob("archive.sqlite-*"):
        companion.unlink()
    if harm == "missing":
        index.unlink()
    elif harm == "empty":
        index.write_bytes(b"")
    elif harm == "garbage":
        index.write_bytes(os.urandom(20_000))
    elif harm == "torn":
        index.write_bytes(index.read_bytes()[:5000])
    elif harm == "foreign":
        index.unlink()
        other = sqlite3.connect(index)
        other.execute("CREATE TABLE notes (x)")
        other.execute("PRAGMA user_version=77")
        other.commit()
        other.close()
    fresh = FileArchive(tmp_path)
    assert fresh.search("t", "topic3")[0].record.id == "m3"
    if harm == "stale":
        assert fresh.search("t", "topic99")[0].record.id == "late"
    fresh.close()


def test_an_open_index_notices_what_another_process_added_forgot_or_removed(archive: FileArchive, tmp_path: Path) -> None:
    other = FileArchive(tmp_path)
    assert other.search("t", "topic4")
    archive.add("t", records_of([PlainMessage("human", "all about zebras", "z")]))
    assert other.search("t", "zebras")[0].record.id == "z"
    archive.forget("t", text="topic4.")
    assert [hit.record.id for hit in other.search("t", "topic4") if hit.record.id == "m4"] == []
    assert other.read("t", "m4") is None
    assert other.search("t", "zebras")[0].record.id == "z"
    shutil.rmtree(tmp_path / "threads" / "t")
    assert other.search("t", "zebras") == []
    assert other.messages("t") == []
    other.close()


def test_a_log_restored_from_an_older_backup_is_indexed_anew(archive: FileArchive, tmp_path: Path) -> None:
    archive.search("t", "topic1")
    lines = log_of(tmp_path).read_bytes().splitlines(keepends=True)
    log_of(tmp_path).write_bytes(b"".join(lines[:6]))
    archive.add("t", records_of([PlainMessage("human", "x" * 3000, "long"), PlainMessage("human", "quartz", "q")]))
    assert archive.search("t", "quartz")[0].record.id == "q"
    assert "m15" not in {hit.record.id for hit in archive.search("t", "topic15", 30)}


def test_searching_works_where_the_index_cannot_be_written(archive: FileArchive, tmp_path: Path) -> None:
    index = log_of(tmp_path).with_name("archive.sqlite")
    archive.close()
    index.unlink(missing_ok=True)
    index.mkdir()
    assert FileArchive(tmp_path).search("t", "topic5")[0].record.id == "m5"


def test_forgetting_leaves_no_trace_in_any_file(archive: FileArchive, tmp_path: Path) -> None:
    archive.add("t", records_of([PlainMessage("human", 'My "Secret\tPhrase" is Xylophone-Qwertz.', "s1")]))
    archive.add("t", [SummaryRecord("sum", "They said secret phrase once.", ("s1",))])
    archive.search("t", "xylophone")
    FileArchive(tmp_path).search("t", "xylophone")
    with log_of(tmp_path).open("ab") as file:
        file.write(b'{"crc":"00000000","content":"secret phrase, torn')
    archive.add("t", records_of([PlainMessage("human", "last", "z")]))
    data = log_of(tmp_path).read_bytes().replace(b"topic3.", b"SECRET PHRASE")
    log_of(tmp_path).write_bytes(data)
    traces = [path for path in (tmp_path / "threads").rglob("*") if path.is_file() and b"xyloph" in path.read_bytes().lower()]
    assert len(traces) >= 2, "the log and the index held it"
    result = archive.forget(None, text="secret phrase")
    assert (result.messages, result.summaries, result.damaged) == (1, 1, 2)
    archive.search("t", "anything else at all")
    for path in (tmp_path / "threads").rglob("*"):
        if path.is_file():
            shown = path.read_bytes().lower()
            assert b"secret" not in shown, path
            assert b"xyloph" not in shown, path
            assert b"qwertz" not in shown, path
    assert archive.search("t", "topic12")[0].record.id == "m12"


def test_a_link_out_of_the_base_is_not_followed(archive: FileArchive, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "threads" / "linked").symlink_to(outside)
    (tmp_path / "threads" / "t2").mkdir()
    (tmp_path / "threads" / "t2" / "archive.jsonl").symlink_to(outside / "file")
    for thread in ("linked", "t2"):
        with pytest.raises(OutsideRoot):
            archive.add(thread, records_of(TALK))
    assert list(outside.iterdir()) == []


def test_the_durable_append_does_not_wait_for_the_index(archive: FileArchive, tmp_path: Path) -> None:
    assert not log_of(tmp_path).with_name("archive.sqlite").exists()
    archive.search("t", "topic1")
    held = sqlite3.connect(log_of(tmp_path).with_name("archive.sqlite"), isolation_level=None)
    held.execute("BEGIN EXCLUSIVE")
    try:
        assert archive.add("t", records_of([PlainMessage("human", "while the index is held", "w")])) == 1
    finally:
        held.execute("ROLLBACK")
        held.close()
    assert archive.search("t", "held")[0].record.id == "w"
