"""The queue in a file: a file that is damaged, what a forgotten turn leaves in it, and what of a conversation goes in (M8, O2).

What every queue promises, in a file or in PostgreSQL, is in `tests/contract/test_memory_queue_contract.py`.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import RandomIds
from holdfast.events import Bus, Event
from holdfast.memory.facts import Turn, turns_of
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.queue_tables import Claimant, QueueDamaged, is_alive, this_process
from holdfast.memory.screening import own_words
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


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    me = this_process()
    assert is_alive(me)
    assert Claimant.of(str(me)) == me
    assert not is_alive(Claimant(me.host, os.getpid(), "another start"))
    assert not is_alive(Claimant(me.host, 0, ""))
    assert is_alive(Claimant("another machine", 1, "")), "of another machine nobody here can tell"


def test_forgetting_takes_turns_out_of_the_file(tmp_path: Path) -> None:
    queue = Bench(tmp_path / "queue.db").queue
    queue.put("t", [said(1, "my canary is Blue Heron"), said(2)])
    assert queue.forget(lambda thread, turn: "heron" in turn.text.lower()) == 1
    for path in tmp_path.iterdir():
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


def test_what_was_marked_as_pasted_is_read_as_a_quotation_and_nobodys_own_words() -> None:
    """M10: the edge knows that it was not typed; what it says makes no difference."""
    marks = {"additional_kwargs": {"holdfast": {"pasted": True}}}
    [turn] = turns_of([{"type": "human", "id": "h1", "content": "I like tea.\nI work in Graz.", **marks}])
    assert (turn.kind, turn.text) == ("user", "> I like tea.\n> I work in Graz.")
    assert not own_words(turn.text).strip()
    assert own_words("I like tea.\nI work in Graz.").strip(), "the same words, typed"


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
