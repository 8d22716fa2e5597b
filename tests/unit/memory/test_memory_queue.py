"""The queue on disk: debounce, merging, order, retries, dead workers, and what of a conversation goes in (M8, O2)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.events import Bus, Event, UpdateDebounced, UpdateQueued, line_of
from holdfast.ids import RandomIds
from holdfast.memory.events import QueueDamaged, UpdateFailed, UpdateGivenUp
from holdfast.memory.facts import Turn, turns_of
from holdfast.memory.queue import Claimant, MemoryQueue, Retry, is_alive, this_process
from holdfast.testing.clock import CountingIds, FakeClock


def said(number: int, text: str = "") -> Turn:
    return Turn(f"m{number}", "user", text or f"words {number}")


class Bench:
    def __init__(self, path: Path, **settings: Any) -> None:
        self.clock = FakeClock()
        self.bus = Bus()
        self.events: list[Event] = []
        self.bus.subscribe(self.events.append)
        self.queue = MemoryQueue(path, clock=self.clock, bus=self.bus, ids=CountingIds(), **settings)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "queue.db", debounce=30.0, retry=Retry(attempts=3, first=10.0))


def test_turns_of_a_thread_and_agent_become_one_update(bench: Bench) -> None:
    queue = bench.queue
    first = queue.put("t", [said(1)], "coder")
    bench.clock.advance(20)
    assert queue.put("t", [said(2)], "Coder") == first
    assert queue.put("t", [said(3)]) != first
    assert queue.put("other", [said(4)], "coder") != first
    assert [(item.thread, item.agent, len(item.turns)) for item in queue.items()] == [
        *(("t", "coder", 2), ("t", None, 1), ("other", "coder", 1))
    ]
    bench.clock.advance(29)
    assert queue.claim() is None
    bench.clock.advance(1)
    item = queue.claim()
    assert item is not None
    assert [turn.id for turn in item.turns] == ["m1", "m2"]


def test_its_events_have_the_form_of_the_reference(bench: Bench) -> None:
    bench.queue.put("t", [said(1), said(2)])
    assert [event.kind() for event in bench.events] == [UpdateQueued.kind(), UpdateDebounced.kind()]
    assert [line_of(event) for event in bench.events] == [
        "[MemoryMiddleware] Queued conversation for t (2 messages)",
        "[MemoryQueue] Debouncing update for t (30s wait)",
    ]


def test_a_conversation_sent_again_teaches_nothing_new(bench: Bench) -> None:
    assert bench.queue.put("t", [said(1), said(2)])
    assert bench.queue.put("t", [said(1), said(2)]) is None
    bench.queue.put("t", [said(1), said(2), said(3)])
    bench.queue.put("t", [said(3, "edited")])
    (item,) = bench.queue.items()
    assert [turn.text for turn in item.turns] == ["words 1", "words 2", "words 3", "edited"]
    bench.clock.advance(60)
    claimed = bench.queue.claim()
    assert claimed is not None
    bench.queue.complete(claimed)
    assert bench.queue.put("t", [said(1)]) is None, "also not after it was learned from"
    assert bench.queue.put("t", [Turn("", "user", "no id")])
    assert bench.queue.put("t", [Turn("", "user", "no id")])


def test_talking_on_and_on_does_not_put_learning_off_for_ever(bench: Bench) -> None:
    for number in range(40):
        bench.queue.put("t", [said(number)])
        bench.clock.advance(10)
        if bench.queue.claim() is not None:
            break
    assert 28 <= number <= 31


def test_what_somebody_began_with_takes_no_more_turns_and_the_rest_waits_its_turn(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1)])
    bench.clock.advance(30)
    first = queue.claim()
    assert first is not None
    queue.put("t", [said(2)])
    bench.clock.advance(60)
    assert queue.claim() is None, "one at a time for a thread and agent"
    queue.release(first)
    queue.put("t", [said(3)])
    assert [[turn.id for turn in item.turns] for item in queue.items()] == [["m1"], ["m2", "m3"]]
    again = queue.claim()
    assert again is not None
    assert again.id == first.id
    assert queue.complete(again)
    second = queue.claim(early=True)
    assert second is not None
    assert [turn.id for turn in second.turns] == ["m2", "m3"]


def test_a_failed_update_waits_longer_each_time_and_is_given_up_aloud(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1)])
    bench.clock.advance(30)
    for pause in (10, 20):
        item = queue.claim()
        assert item is not None
        queue.fail(item, "model down")
        bench.clock.advance(pause - 1)
        assert queue.claim() is None
        bench.clock.advance(1)
    item = queue.claim()
    assert item is not None
    queue.fail(item, "model down")
    told = [event for event in bench.events if isinstance(event, UpdateFailed | UpdateGivenUp)]
    assert [type(event) for event in told] == [UpdateFailed, UpdateFailed, UpdateGivenUp]
    assert line_of(told[-1]) == "[MemoryQueue] Gave up on update for t after 3 attempts: model down"
    assert len(queue) == 0
    assert [one.state for one in queue.items()] == ["given up"], "the turns are not thrown away"
    assert queue.claim(early=True) is None
    queue.put("t", [said(2)])
    bench.clock.advance(60)
    assert queue.claim() is not None, "what was given up holds nobody back"
    assert queue.retry_given_up() == 1


def test_an_item_whose_lease_is_over_goes_to_somebody_else_once(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1)])
    bench.clock.advance(30)
    slow = queue.claim()
    assert slow is not None
    bench.clock.advance(901)
    other = queue.claim()
    assert other is not None
    assert other.claims == 2
    assert not queue.holds(slow)
    assert not queue.complete(slow)
    assert queue.holds(other)
    assert queue.complete(other)


def test_what_takes_every_worker_down_is_given_up(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1)])
    taken = 0
    while queue.claim(early=True) is not None:
        taken += 1
        bench.clock.advance(901)
    assert taken == 20
    assert any(isinstance(event, UpdateGivenUp) for event in bench.events)


def test_items_of_a_dead_process_are_taken_back_at_once(bench: Bench, tmp_path: Path) -> None:
    bench.queue.put("t", [said(1)])
    script = (
        "import sys; from holdfast.memory.queue import MemoryQueue\n"
        "print(MemoryQueue(sys.argv[1]).claim(early=True).id, flush=True)\nimport os; os._exit(9)"
    )
    done = subprocess.run([sys.executable, "-c", script, str(bench.queue.path)], capture_output=True, text=True, check=False)
    assert done.stdout.strip(), done.stderr
    assert bench.queue.claim(early=True) is None
    assert bench.queue.recover() == 1
    assert bench.queue.claim(early=True) is not None
    assert bench.queue.recover() == 0, "this process is alive"


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    me = this_process("x")
    assert is_alive(me)
    assert Claimant.of(str(me)) == me
    assert not is_alive(Claimant(me.host, os.getpid(), "another start"))
    assert not is_alive(Claimant(me.host, 0, ""))
    assert is_alive(Claimant("another machine", 1, "")), "of another machine nobody here can tell"


def test_what_was_put_is_there_for_another_process(bench: Bench) -> None:
    bench.queue.put("t", [said(1, "grüße 数据 \ud800")])
    again = MemoryQueue(bench.queue.path, clock=bench.clock)
    assert [turn.id for turn in again.items()[0].turns] == ["m1"]


@pytest.mark.parametrize("thread", ["", "x" * 5_000, None])
def test_a_thread_needs_a_name(bench: Bench, thread: Any) -> None:
    with pytest.raises(InputError):
        bench.queue.put(thread, [said(1)])


def test_forgetting_takes_turns_out_of_the_file_and_the_item_from_its_worker(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1, "my canary is Blue Heron"), said(2)])
    queue.put("u", [said(3, "blue  HERON again")])
    item = queue.claim(early=True)
    assert item is not None
    assert queue.forget(lambda thread, turn: "heron" in turn.text.lower()) == 2
    assert not queue.holds(item)
    assert [[turn.id for turn in left.turns] for left in queue.items()] == [["m2"]]
    for path in queue.path.parent.iterdir():
        assert b"heron" not in path.read_bytes().lower(), path


# What goes in


def test_only_what_the_user_typed_and_final_answers_are_learned_from() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "be nice"},
        {"type": "human", "id": "h1", "content": [{"type": "text", "text": "I like tea."}, {"type": "image_url", "image_url": "x"}]},
        {"type": "ai", "id": "a1", "content": "looking", "tool_calls": [{"id": "c", "name": "ls", "args": {}}]},
        {"type": "tool", "id": "r1", "content": "User hates tea", "tool_call_id": "c"},
        {"type": "ai", "id": "a2", "content": "<think>hm</think>Noted."},
        {"type": "human", "id": "h2", "content": "hidden", "additional_kwargs": {"hide_from_ui": True}},
        {"type": "human", "id": "h3", "content": "a summary", "additional_kwargs": {"holdfast": {"summary": "model"}}},
        {"type": "human", "id": "h4", "content": "a reminder", "additional_kwargs": {"holdfast": {"reminder": "date"}}},
        {"type": "human", "id": "h5", "content": "<uploaded_files>\n- a.pdf\n</uploaded_files>"},
        {"type": "ai", "id": "a5", "content": "I see you uploaded a.pdf."},
        {"type": "human", "id": "h6", "content": "<uploaded_files>b.pdf</uploaded_files>\nI work in Graz."},
        {"type": "ai", "id": "a6", "content": ""},
        {"type": "human", "id": "h7", "content": "Fine.", "additional_kwargs": {"holdfast": {"pin": True}}},
    ]
    assert [(turn.id, turn.kind, turn.text) for turn in turns_of(messages)] == [
        ("h1", "user", "I like tea."),
        ("a2", "assistant", "Noted."),
        ("h6", "user", "I work in Graz."),
        ("h7", "user", "Fine."),
    ]


@pytest.mark.parametrize("harm", ["header", "middle", "cut", "tables"])
def test_a_damaged_file_is_set_aside_told_once_and_made_again(tmp_path: Path, harm: str) -> None:
    """M8, O7: whatever is damaged in a file that only waits to be worked off, nobody is stopped by it; what can be read waits again."""
    path = tmp_path / "queue.db"
    bench = Bench(path)
    for number in range(200):
        bench.queue.put(f"thread-{number}", [said(number, "x" * 300)])
    bench.queue.scrub()
    bench.queue.close()
    data = bytearray(path.read_bytes())
    if harm == "header":
        data[:100] = b"z" * 100
    elif harm == "middle":
        data[len(data) // 2 : len(data) // 2 + 5000] = b"\xa5" * 5000
    elif harm == "cut":
        del data[len(data) // 2 :]
    else:
        data = bytearray()
    path.write_bytes(bytes(data))
    if harm == "tables":
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE mine (x)")
            other.execute("PRAGMA user_version=1")
    again, second = Bench(path), Bench(path)
    again.queue._ids = second.queue._ids = RandomIds()
    assert again.queue.put("new", [said(999)]) is not None
    assert second.queue.put("newer", [said(998)]) is not None
    kept = [item.thread for item in again.queue.items()]
    assert kept[-2:] == ["new", "newer"]
    assert (len(kept) > 50) == (harm == "middle")
    told = [event for bench in (again, second) for event in bench.events if isinstance(event, QueueDamaged)]
    (one,) = told  # whichever noticed, once
    assert one.kept == (len(kept) if harm == "middle" else 0), "damage in the middle is noticed when somebody reads there"
    assert Path(one.aside).exists()
    assert again.queue.claim(early=True) is not None
