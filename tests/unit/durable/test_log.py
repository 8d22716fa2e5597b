"""W15, M6, O7: the append log: damage at every position, failing disks, many writers, schema numbers."""

from __future__ import annotations

import errno
import json
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.durable.append import AppendLog
from holdfast.durable.disk import read_whole
from holdfast.durable.log_records import Damage, Entry, line_of, parse
from holdfast.errors import Damaged, DiskFull, InputError, StorageError, SyncFailed, WriteFailed
from holdfast.testing.disk import SimulatedDisk
from holdfast.testing.failing_disk import FailingDisk, Fault, ShortWrite

RECORDS: list[dict[str, Any]] = [
    {"event": "started", "n": 1},
    {"event": "said", "text": 'quote " and \\ and {"crc":"00000000"} and é\n日'},
    {"nested": {"crc": "deadbeef", "list": [{"crc": "deadbeef"}, {"crc": "deadbeef"}]}},
    {},
    {"event": "ended", "n": 5},
]


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def filled(disk: SimulatedDisk) -> tuple[bytes, list[tuple[int, int]]]:
    """A log of RECORDS: its bytes, and where each record begins and ends."""
    log = AppendLog("/log", disk=disk)
    log.append_many(RECORDS)
    spans = [(item.position, item.end) for item in log.scan() if isinstance(item, Entry)]
    return read_whole(disk, "/log"), spans


def with_content(data: bytes) -> tuple[SimulatedDisk, AppendLog]:
    disk = SimulatedDisk()
    handle = disk.create("/log")
    disk.write(handle, data)
    disk.sync(handle)
    disk.close(handle)
    return disk, AppendLog("/log", disk=disk)


def test_a_log_is_json_lines_that_any_program_can_read(disk: SimulatedDisk) -> None:
    data, _ = filled(disk)
    lines = [json.loads(line) for line in data.decode().splitlines()]
    assert lines[0].pop("generation")
    assert [{key: value for key, value in line.items() if key != "crc"} for line in lines] == [{"holdfast": "log", "schema": 1}, *RECORDS]


def test_what_was_appended_is_read_back_by_order_and_by_position(disk: SimulatedDisk) -> None:
    log = AppendLog("/log", disk=disk)
    positions = [log.append(record) for record in RECORDS[:2]] + log.append_many(RECORDS[2:])
    assert log.read().records == tuple(RECORDS)
    assert log.read().damage == ()
    assert [log.read_at(position) for position in positions] == RECORDS
    assert [item.position for item in log.scan() if isinstance(item, Entry)] == positions


def test_no_file_is_an_empty_log_and_appending_nothing_makes_none(disk: SimulatedDisk) -> None:
    log = AppendLog("/log", disk=disk)
    assert log.read().records == ()
    assert log.append_many([]) == []
    assert disk.kind("/log") is None


def test_many_records_cost_one_sync() -> None:
    disk = FailingDisk(SimulatedDisk())
    log = AppendLog("/log", disk=disk)
    log.append({})
    disk.calls.clear()
    log.append_many([{"n": n} for n in range(100)])
    assert [call.operation for call in disk.calls if "sync" in call.operation] == ["sync"]


def test_a_flipped_bit_at_any_position_is_noticed_and_costs_at_most_its_record(disk: SimulatedDisk) -> None:
    data, spans = filled(disk)
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            _, log = with_content(bytes(damaged))
            reading = log.read()
            hit = [number for number, (begin, end) in enumerate(spans) if begin <= position < end]
            kept = [record for number, record in enumerate(RECORDS) if number not in hit]
            assert [record for record in reading.records if record in kept] == kept
            assert all(record in RECORDS for record in reading.records)
            assert len(reading.damage) == 1
            found = reading.damage[0]
            assert found.position <= position < found.position + found.length


def test_a_flipped_line_break_costs_no_record_at_all(disk: SimulatedDisk) -> None:
    data, spans = filled(disk)
    for _, end in spans:
        damaged = bytearray(data)
        damaged[end - 1] ^= 1
        assert with_content(bytes(damaged))[1].read().records == tuple(RECORDS)


def test_a_log_cut_at_any_position_keeps_every_whole_record_and_goes_on(disk: SimulatedDisk) -> None:
    data, spans = filled(disk)
    for length in range(len(data)):
        whole = [record for record, (_, end) in zip(RECORDS, spans, strict=True) if end - 1 <= length]
        cut, log = with_content(data[:length])
        before = log.read()
        assert list(before.records) == whole
        assert sum(damage.length for damage in before.damage) + sum(end - begin for begin, end in spans if end <= length) <= length
        assert all(damage.tail for damage in before.damage)
        log.append({"after": length})
        after = AppendLog("/log", disk=cut).read()
        assert list(after.records) == [*whole, {"after": length}]
        assert after.damage == ()
        aside = [name for name in cut.list("/") if ".damaged" in name]
        assert len(aside) == len(before.damage)
        for name, damage in zip(aside, before.damage, strict=True):
            assert read_whole(cut, f"/{name}") == data[damage.position : length]


@pytest.mark.parametrize("tail", [b"\0" * 600, b"\xff garbage", b'{"crc":"', b"not a record\nnor this\n", b'{"crc":"00000000","a":1}\n'])
def test_a_tail_that_is_no_record_is_cut_before_the_next_append_and_kept_aside(tail: bytes, disk: SimulatedDisk) -> None:
    data, _ = filled(disk)
    disk, log = with_content(data + tail)
    assert log.read().damage == (Damage(len(data), len(tail), log.read().damage[0].reason, tail=True),)
    log.append({"new": 1})
    assert log.read().records == (*RECORDS, {"new": 1})
    assert log.read().damage == ()
    assert read_whole(disk, f"/log.damaged-{len(data)}") == tail


def test_the_same_tail_is_kept_aside_once_and_another_one_beside_it(disk: SimulatedDisk) -> None:
    data, _ = filled(disk)
    for tail, names in ((b"one", 1), (b"one", 1), (b"two", 2)):
        handle = disk.open_log("/log")
        disk.truncate(handle, len(data))
        disk.write(handle, tail)
        disk.close(handle)
        AppendLog("/log", disk=disk).append({})
        assert sum("damaged" in name for name in disk.list("/")) == names


def test_damage_in_the_middle_stays_in_place_and_is_told_at_every_reading(disk: SimulatedDisk) -> None:
    data, spans = filled(disk)
    begin, end = spans[1]
    disk, log = with_content(data[:begin] + b"#" * (end - begin) + data[end:])
    log.append({"new": 1})
    reading = log.read()
    assert reading.records == (RECORDS[0], *RECORDS[2:], {"new": 1})
    assert [(damage.position, damage.length, damage.tail) for damage in reading.damage] == [(begin, end - begin, False)]
    assert "not the beginning" in reading.damage[0].reason
    with pytest.raises(Damaged):
        log.read_at(begin)
    with pytest.raises(Damaged):
        log.read_at(-1)


def test_text_inside_a_damaged_record_cannot_pass_itself_off_as_a_record(disk: SimulatedDisk) -> None:
    forged = line_of({"evil": True}).decode().rstrip("\n")
    inner = json.loads(forged)
    log = AppendLog("/log", disk=disk)
    log.append({"a": [inner, inner, {"crc": "x"}], "text": forged, forged: [inner]})
    data = bytearray(read_whole(disk, "/log"))
    data[data.index(b'"a"') + 1] ^= 1
    _, damaged = with_content(bytes(data))
    assert damaged.read().records == ()
    assert log.read().records[0]["a"][0] == inner


@given(st.dictionaries(st.text(max_size=5).filter(lambda key: key != "crc"), st.text() | st.integers() | st.lists(st.text()), max_size=4))
def test_any_record_goes_into_one_line_and_comes_back(record: dict[str, Any]) -> None:
    try:
        line = line_of(record)
    except InputError:
        assert any("\ud800" <= sign <= "\udfff" for sign in json.dumps(record, ensure_ascii=False))
        return
    assert line.count(b"\n") == 1
    assert parse(line[:-1]) == record


@pytest.mark.parametrize("record", [{"crc": 1}, {"a": float("nan")}, {"a": b""}, {1: 2}])
def test_a_record_that_cannot_be_stored_is_refused_and_nothing_is_written(record: dict[str, Any], disk: SimulatedDisk) -> None:
    with pytest.raises(InputError):
        AppendLog("/log", disk=disk).append_many([{"good": 1}, record])
    assert disk.kind("/log") is None


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    """W15"""
    inner = SimulatedDisk()
    before, _ = filled(inner)
    disk = FailingDisk(inner, [ShortWrite(1, 7), Fault("write", 2, errno.ENOSPC)])
    log = AppendLog("/log", disk=disk)
    with pytest.raises(DiskFull):
        log.append({"new": 1})
    assert read_whole(inner, "/log") == before
    log.append({"new": 2})
    assert log.read().records == (*RECORDS, {"new": 2})


def test_a_full_disk_that_cannot_even_cut_is_mended_by_the_next_append() -> None:
    inner = SimulatedDisk()
    filled(inner)
    disk = FailingDisk(inner, [ShortWrite(1, 7), Fault("write", 2, errno.ENOSPC), Fault("truncate", 1, errno.EIO)])
    log = AppendLog("/log", disk=disk)
    with pytest.raises(DiskFull):
        log.append({"new": 1})
    assert log.read().damage[0].tail
    log.append({"new": 2})
    assert log.read().records == (*RECORDS, {"new": 2})


def test_after_a_failed_sync_the_log_refuses_to_write_until_it_is_opened_anew() -> None:
    inner = SimulatedDisk()
    filled(inner)
    disk = FailingDisk(inner, [Fault("sync", 1, errno.EIO)])
    log = AppendLog("/log", disk=disk)
    with pytest.raises(SyncFailed):
        log.append({"lost": 1})
    with pytest.raises(SyncFailed, match="not written to any more"):
        log.append({"refused": 1})
    with pytest.raises(SyncFailed, match="not written to any more"):
        log.rewrite([])
    assert log.read().records == tuple(RECORDS)
    AppendLog("/log", disk=disk).append({"new": 1})
    assert disk.synced_again_after_failing() == []
    assert AppendLog("/log", disk=inner.crash()).read().records == (*RECORDS, {"new": 1})


@pytest.mark.parametrize("verb", ["open_log", "size", "read", "lock"])
def test_a_fault_before_the_write_changes_nothing(verb: str) -> None:
    inner = SimulatedDisk()
    before, _ = filled(inner)
    with pytest.raises(StorageError):
        AppendLog("/log", disk=FailingDisk(inner, [Fault(verb, 1, errno.EIO)])).append({"new": 1})
    assert read_whole(inner, "/log") == before


def test_a_log_of_a_newer_schema_is_refused_for_reading_and_writing(disk: SimulatedDisk) -> None:
    """O7"""
    AppendLog("/log", disk=disk, schema=3).append({"a": 1})
    for use in (AppendLog.read, lambda log: log.append({}), lambda log: log.rewrite([])):
        with pytest.raises(StorageError, match="schema 3"):
            use(AppendLog("/log", disk=disk, schema=2))
    assert AppendLog("/log", disk=disk, schema=4).read().records == ({"a": 1},)


def test_rewriting_takes_one_step_and_other_writers_go_on_in_the_new_file(tmp_path: Path) -> None:
    """O7"""
    log, other = AppendLog(tmp_path / "log"), AppendLog(tmp_path / "log")
    log.append_many([{"n": n} for n in range(10)])
    other.append({"n": 10})
    log.rewrite(record for record in log.read().records if record["n"] > 8)
    other.append({"n": 11})
    assert [record["n"] for record in log.read().records] == [9, 10, 11]


def test_many_threads_with_logs_of_their_own_lose_nothing(tmp_path: Path) -> None:
    shared = AppendLog(tmp_path / "log")

    def work(number: int) -> None:
        log = shared if number % 2 else AppendLog(tmp_path / "log")
        for step in range(15):
            log.append({"who": number, "step": step})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    reading = shared.read()
    assert reading.damage == ()
    for number in range(4):
        assert [record["step"] for record in reading.records if record["who"] == number] == list(range(15))


def test_read_decide_and_append_can_be_one_step(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log", timeout=0.05)
    with log.locked():
        log.append({"n": len(log.read().records)})
        with pytest.raises(StorageError):
            AppendLog(tmp_path / "log", timeout=0.05).append({})
        log.append({"n": len(log.read().records)})
    assert [record["n"] for record in log.read().records] == [0, 1]


def test_records_longer_than_any_buffer_are_read_whole(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "log")
    texts = ["a" * 3_000_000, "b", "c" * 1_048_570]
    positions = [log.append({"text": text}) for text in texts]
    fresh = AppendLog(tmp_path / "log")
    assert [record["text"] for record in fresh.read().records] == texts
    assert fresh.read_at(positions[0])["text"] == texts[0]
    fresh.append({"text": "d"})  # looks back over records that are longer than its window
    with (tmp_path / "log").open("ab") as file:
        file.write(b"x" * 200_000)
    AppendLog(tmp_path / "log").append({"text": "e"})
    assert [record["text"] for record in fresh.read().records] == [*texts, "d", "e"]


def test_a_log_whose_folder_was_removed_begins_anew(tmp_path: Path) -> None:
    log = AppendLog(tmp_path / "thread" / "log")
    log.append({"n": 1})
    shutil.rmtree(tmp_path / "thread")
    log.append({"n": 2})
    assert log.read().records == ({"n": 2},)


def test_a_log_that_may_not_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WriteFailed):
        AppendLog(tmp_path / "file" / "log").append({})


# A log that is growing


def test_a_growing_log_keeps_its_size_and_reads_as_any_other(disk: SimulatedDisk) -> None:
    """W5: what is appended inside a file's size needs no other sync than that of the content; no reader sees the room behind it."""
    log = AppendLog("/log", disk=disk)
    sizes = set()
    for number in range(5):
        log.append_many([{"n": number}], growing=True)
        sizes.add(len(read_whole(disk, "/log")))
        for reader in (log, AppendLog("/log", disk=disk)):
            found = reader.read()
            assert ([record["n"] for record in found.records], found.damage) == ([*range(number + 1)], ())
            assert found.mark == reader.mark() == log.last_mark
            assert reader.read(found.mark).records == ()
    assert len(sizes) == 1
    log.append({"n": 5})
    assert read_whole(disk, "/log").endswith(b'"n":5}\n'), "the last one gives the room back"
    assert [record["n"] for record in AppendLog("/log", disk=disk.crash()).read().records] == [*range(6)]


def test_writers_of_a_growing_log_never_write_over_each_other(tmp_path: Path) -> None:
    """M6: also within one tick of the file system's clock, in which the file looks the same before and after."""
    logs = [AppendLog(tmp_path / "log") for _ in range(3)]
    for number in range(90):
        logs[number * 7 % 3].append_many([{"n": number}], growing=number % 5 != 0)
    assert [record["n"] for record in logs[0].read().records] == [*range(90)]
    assert logs[1].read().damage == ()


def test_the_room_that_a_crash_leaves_is_used_by_the_next_writer(disk: SimulatedDisk) -> None:
    """W6"""
    AppendLog("/log", disk=disk).append_many([{"n": 1}], growing=True)
    after = disk.crash()
    size = len(read_whole(after, "/log"))
    AppendLog("/log", disk=after).append_many([{"n": 2}], growing=True)
    assert len(read_whole(after, "/log")) == size
    assert AppendLog("/log", disk=after).read().records == ({"n": 1}, {"n": 2})
    assert after.list("/") == ["log"], "nothing was set aside"


def test_what_an_older_version_wrote_behind_the_room_is_read(disk: SimulatedDisk) -> None:
    """O7: it appends at the end of the file."""
    AppendLog("/log", disk=disk).append_many([{"n": 1}], growing=True)
    handle = disk.open_log("/log")
    disk.write(handle, line_of({"n": 2}))
    log = AppendLog("/log", disk=disk)
    assert log.read().records == ({"n": 1}, {"n": 2})
    assert log.read().damage == ()
    log.append_many([{"n": 3}], growing=True)
    assert log.read().records == ({"n": 1}, {"n": 2}, {"n": 3})


def test_a_torn_append_in_the_room_is_set_aside_and_the_next_one_follows_the_last_whole_record(disk: SimulatedDisk) -> None:
    """W6: sectors reach the disk in any order, so the end of a record may be there without its beginning."""
    log = AppendLog("/log", disk=disk)
    log.append_many([{"n": 1}], growing=True)
    end = log.read().mark
    handle = disk.open_log("/log")
    at = int(str(end).partition(":")[0])
    disk.write(handle, b'he end of a record"}\n', at=at + 512)
    fresh = AppendLog("/log", disk=disk)
    assert fresh.read().records == ({"n": 1},)
    assert [one.tail for one in fresh.read().damage] == [True]
    fresh.append_many([{"n": 2}], growing=True)
    assert fresh.read().records == ({"n": 1}, {"n": 2})
    assert fresh.read().damage == ()
    assert any("damaged" in name for name in disk.list("/"))


def test_a_disk_that_has_no_space_for_the_room_takes_the_record(disk: SimulatedDisk) -> None:
    """W15"""
    full = FailingDisk(disk, [Fault("write", 1, errno.ENOSPC)])
    log = AppendLog("/log", disk=full)
    log.append_many([{"n": 1}], growing=True)
    log.append_many([{"n": 2}], growing=True)
    assert AppendLog("/log", disk=disk.crash()).read().records == ({"n": 1}, {"n": 2})


def test_a_growing_log_is_closed_when_nobody_has_it_any_more(disk: SimulatedDisk) -> None:
    around = FailingDisk(disk)
    log = AppendLog("/log", disk=around)
    log.append_many([{"n": 1}], growing=True)
    assert around.open_handles == 1
    log.close()
    assert around.open_handles == 0
    log.append_many([{"n": 2}], growing=True)
    del log
    assert around.open_handles == 0
    assert AppendLog("/log", disk=disk).read().records == ({"n": 1}, {"n": 2})
