"""What the memory queue promises, in a file of one machine and in PostgreSQL for all of them alike (M8, W17, O2)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import RandomIds
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.errors import InputError
from holdfast.events import Bus, Event, UpdateDebounced, UpdateQueued, line_of
from holdfast.memory.facts import Turn
from holdfast.memory.queue import MemoryQueue, Retry, UpdateFailed, UpdateGivenUp
from holdfast.memory.queue_tables import PostgresTables, ServerClock
from holdfast.memory.service import MemoryService
from holdfast.memory.storage import PostgresMemoryStorage
from holdfast.storage.postgres_backend import PostgresBackend
from holdfast.testing.clock import CountingIds, FakeClock

OPEN = """
import sys
from holdfast.clock import SystemClock
from holdfast.memory.queue import MemoryQueue
from holdfast.memory.queue_tables import PostgresTables
from holdfast.memory.storage import PostgresMemoryStorage
base, dsn = sys.argv[1:3]
place = PostgresTables(PostgresMemoryStorage(base, dsn).backend) if dsn else base + "/queue.db"
queue = MemoryQueue(place)
"""
"""The queue of a bench, as another process opens it."""


def said(number: int, text: str = "") -> Turn:
    return Turn(f"m{number}", "user", text or f"words {number}")


@dataclass
class Bench:
    """A queue with a clock that the test turns, and what it said; `open` gives another one over the same rows, as another process has."""

    open: Callable[..., MemoryQueue]
    argv: list[str]
    clock: FakeClock
    bus: Bus
    events: list[Event]
    queue: MemoryQueue

    def elsewhere(self, script: str) -> str:
        """What a process of its own prints that runs `script` with the queue."""
        done = subprocess.run([sys.executable, "-c", OPEN + script, *self.argv], capture_output=True, text=True, check=False)
        assert done.stdout.strip(), done.stderr
        return done.stdout.strip()


@pytest.fixture
def backends(tmp_path: Path) -> Iterator[Callable[[str], PostgresBackend]]:
    """Memory at an address of PostgreSQL, opened anew each time as another process would, and closed in the end."""
    made: list[PostgresBackend] = []

    def opened(dsn: str) -> PostgresBackend:
        backend = PostgresMemoryStorage(tmp_path, dsn).backend
        assert isinstance(backend, PostgresBackend)
        made.append(backend)
        return backend

    yield opened
    for backend in made:
        backend.close()


@pytest.fixture(params=["file", "postgres"])
def bench(request: pytest.FixtureRequest, tmp_path: Path, backends: Callable[[str], PostgresBackend]) -> Iterator[Bench]:
    clock, bus, events, made = FakeClock(), Bus(), list[Event](), list[MemoryQueue]()
    bus.subscribe(events.append)
    dsn = request.getfixturevalue("postgres") if request.param == "postgres" else ""

    def opened(**settings: Any) -> MemoryQueue:
        parts: dict[str, Any] = {"clock": clock, "bus": bus, "ids": CountingIds(), "debounce": 30.0, "retry": Retry(attempts=3, first=10.0)}
        place = PostgresTables(backends(dsn), clock=clock) if dsn else tmp_path / "queue.db"
        made.append(MemoryQueue(place, **(parts | settings)))
        return made[-1]

    yield Bench(opened, [str(tmp_path), dsn], clock, bus, events, opened())
    for queue in made:
        queue.close()


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


def test_a_clock_that_is_a_little_behind_does_not_cut_the_wait_short(bench: Bench) -> None:
    """M8: clocks of machines differ, and a claim may have looked at its own before it had its turn. One that went back is different."""
    queue, queued = bench.queue, bench.clock.now()
    queue.put("t", [said(1)])
    bench.clock.set(queued - timedelta(seconds=2))
    assert queue.claim() is None
    bench.clock.set(queued - timedelta(days=400))
    assert queue.claim() is not None, "or nothing would be learned for as long"


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


def test_items_of_a_dead_process_are_taken_back_at_once(bench: Bench) -> None:
    bench.queue.put("t", [said(1)])
    bench.elsewhere("print(queue.claim(early=True).id, flush=True)\nimport os; os._exit(9)")
    assert bench.queue.claim(early=True) is None
    end, taken = time.monotonic() + 60, 0
    while not taken and time.monotonic() < end:  # a server needs a moment to notice that a connection is gone
        taken = bench.queue.recover()
    assert taken == 1
    assert bench.queue.claim(early=True) is not None
    assert bench.queue.recover() == 0, "this process is alive"


def test_what_was_put_is_there_for_another_process(bench: Bench) -> None:
    bench.queue.put("t", [said(1, "grüße 数据 \ud800")])
    assert [turn.id for turn in bench.open().items()[0].turns] == ["m1"]
    assert bench.elsewhere("print(len(queue), queue.items()[0].thread)") == "1 t"


@pytest.mark.parametrize("thread", ["", "x" * 5_000, None])
def test_a_thread_needs_a_name(bench: Bench, thread: Any) -> None:
    with pytest.raises(InputError):
        bench.queue.put(thread, [said(1)])


def test_forgetting_takes_turns_out_and_the_item_from_its_worker(bench: Bench) -> None:
    queue = bench.queue
    queue.put("t", [said(1, "my canary is Blue Heron"), said(2)])
    queue.put("u", [said(3, "blue  HERON again")])
    item = queue.claim(early=True)
    assert item is not None
    assert queue.forget(lambda thread, turn: "heron" in turn.text.lower()) == 2
    assert not queue.holds(item)
    assert [[turn.id for turn in left.turns] for left in queue.items()] == [["m2"]]


def test_each_item_goes_to_exactly_one_of_many(bench: Bench) -> None:
    """W17: whoever asks at the same moment, each item is given out once, and none is left."""
    for number in range(40):
        bench.queue.put(f"thread-{number}", [said(number)])
    taken: list[str] = []

    def work(queue: MemoryQueue) -> None:
        while (item := queue.claim(early=True)) is not None:
            taken.append(item.id)
            assert queue.complete(item)

    threads = [threading.Thread(target=work, args=[bench.open(ids=RandomIds())]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == len(set(taken)) == 40
    assert len(bench.queue) == 0


def test_only_what_is_asked_for_is_given_out(bench: Bench) -> None:
    first, second = bench.queue.put("t", [said(1)]), bench.queue.put("u", [said(2)])
    assert bench.queue.own == (first, second)
    assert bench.open().own == ()
    assert bench.queue.claim(early=True, only=[]) is None
    item = bench.queue.claim(early=True, only=[str(first), str(second)], besides=[str(first)])
    assert item is not None
    assert item.id == second


def test_a_strange_name_or_reason_stands_in_nobodys_way(bench: Bench) -> None:
    assert bench.queue.put("thread \0 \ud800", [said(1, "nul \0")])
    item = bench.queue.claim(early=True)
    assert item is not None
    assert item.turns[0].text == "nul \0"
    bench.queue.fail(item, "broken \ud800 \0")
    assert [one.state for one in bench.queue.items()] == ["failed"]
    assert bench.queue.next_due() == 10.0


def test_what_was_given_up_long_ago_is_pruned_and_what_waits_is_not(bench: Bench) -> None:
    queue = bench.open(retry=Retry(attempts=1))
    queue.put("old", [said(1)])
    item = queue.claim(early=True)
    assert item is not None
    queue.fail(item, "no")
    queue.put("new", [said(2)])
    bench.clock.advance(86400)
    moment = bench.clock.now().isoformat()
    assert queue.prune(moment, dry_run=True) == 1
    assert queue.prune(moment) == 1
    assert [one.thread for one in queue.items()] == ["new"]


def test_what_waited_in_an_earlier_queue_moves_into_this_one(bench: Bench, tmp_path: Path) -> None:
    """M8, O7: whatever waits, was given up or was seen before goes along; what somebody works on stays theirs, and follows if they die."""
    earlier = MemoryQueue(tmp_path / "earlier.db", clock=bench.clock, bus=Bus(), retry=Retry(attempts=1))
    for thread in ("held", "lost", "waits"):
        earlier.put(thread, [said(1, f"the heron of {thread}")], "coder")
        if thread != "waits":
            held = earlier.claim(early=True)
            assert held is not None
            if thread == "lost":
                earlier.fail(held, "no")
    queue = bench.open(earlier=earlier)
    assert [(item.thread, item.agent, item.state) for item in queue.items()] == [
        ("waits", "coder", "waiting"),
        ("lost", "coder", "given up"),
    ]
    assert queue.put("waits", [said(1, "the heron of waits")], "coder") is None, "it was queued once"
    assert [item.thread for item in earlier.items()] == ["held"], "somebody is at it"
    queue.put("waits", [said(2)], "coder")
    assert len(queue.items()) == 3, "an item that may have been learned from already takes no more turns"
    assert queue.forget(lambda thread, turn: "heron" in turn.text) == 3, "also what could not be moved"
    assert not any(b"heron" in path.read_bytes() for path in tmp_path.glob("earlier.db*"))
    assert [item.thread for item in queue.items()] == ["waits"]


def test_a_move_that_was_broken_off_is_made_up_for_and_doubles_nothing(bench: Bench, tmp_path: Path) -> None:
    earlier = MemoryQueue(tmp_path / "earlier.db", clock=bench.clock, bus=Bus())
    for number in range(3):
        earlier.put(f"t{number}", [said(number)])
    queue = bench.open(earlier=earlier)
    complete, calls = earlier.complete, list[str]()

    def dies(item: Any) -> bool:
        calls.append(item.id)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return complete(item)

    earlier.complete = dies  # type: ignore[method-assign]  # the process dies after an item is here and before it is gone there
    with pytest.raises(KeyboardInterrupt):
        queue.items()
    earlier.complete = complete  # type: ignore[method-assign]
    bench.clock.advance(901)  # whoever died had it until then
    again = bench.open(earlier=earlier)
    assert [item.thread for item in again.items()] == ["t0", "t1", "t2"]
    assert earlier.items() == []


# PostgreSQL alone: what several machines share


def _config(dsn: str, base: Path) -> Config:
    return config_from_values({"memory": {"dsn": dsn}}, environ={"HOLDFAST_HOME": str(base)})


def test_memory_in_postgres_has_its_queue_there_and_takes_the_files_along(postgres: str, tmp_path: Path) -> None:
    """W17, M8: two machines, one queue. What one heard before the move, and what it hears after it, the other learns."""
    files = MemoryService.at(tmp_path / "one", settings=None)
    files.queue.put("t1", [Turn("m1", "user", "My name is Ada.")])
    files.let_go()
    (one, two) = (MemoryService.open(_config(postgres, tmp_path / name)) for name in ("one", "two"))
    with one, two:
        assert two.status().waiting == 0, "nobody on that machine has looked yet"
        one.queue.put("t2", [Turn("m2", "user", "I live in Rostock.")])
        assert one.status().waiting == two.status().waiting == 2
        done = two.flush()
        assert (done.done, done.left) == (2, 0)
        learned = json.dumps(one.export(), ensure_ascii=False)
        assert "Ada" in learned
        assert "Rostock" in learned
    assert not (tmp_path / "two" / "memory.d").exists(), "where nothing waited, no file is made"


def test_who_leaves_learns_from_what_he_heard_and_leaves_the_rest_to_others(postgres: str, tmp_path: Path) -> None:
    """W17: the end of a chat does not wait for the conversations of other machines."""
    (one, two) = (MemoryService.open(_config(postgres, tmp_path / name)) for name in ("one", "two"))
    with one:
        one.enqueue("t1", [Turn("m1", "user", "My name is Ada.")])
        two.enqueue("t2", [Turn("m2", "user", "I live in Rostock.")])
        done = two.close()
        assert (done.done, done.left) == (1, 1)
        assert [item.thread for item in one.queue.items()] == ["t1"]


def test_a_worker_of_another_machine_is_known_to_live_by_its_connection(postgres: str, backends: Callable[[str], PostgresBackend]) -> None:
    """W17: as long as the connection of a worker stands nobody takes its item; when it is gone, others have it at once."""
    tables = PostgresTables(backends(postgres))
    queue = MemoryQueue(tables, bus=Bus())
    queue.put("t", [said(1)])
    claimant = "another-machine|7|boot:1"
    tables.change(lambda run: run("claim", f"{claimant}|token", 9e9, 9e9, True, 9e9, 9e9, "[]", True, "[]"))
    with backends(postgres).database.connect() as connection:
        connection.execute("SELECT pg_advisory_lock_shared(%s)", [tables._number(claimant)])
        assert queue.recover() == 0
        assert queue.claim(early=True) is None
    end, taken = time.monotonic() + 60, 0
    while not taken and time.monotonic() < end:  # the server needs a moment to notice that a connection is gone
        taken = queue.recover()
    assert taken == 1
    assert queue.claim(early=True) is not None
    queue.close()


def test_moments_are_those_of_the_server(postgres: str, backends: Callable[[str], PostgresBackend]) -> None:
    """W17: machines whose clocks differ agree on what is due."""

    class Late(ServerClock):
        def monotonic(self) -> float:
            return 1e9 + super().monotonic()

    clock = Late(backends(postgres))
    row = backends(postgres).database.one("SELECT clock_timestamp()")
    assert row is not None
    assert abs((clock.now() - row[0]).total_seconds()) < 60, "whatever this machine's own says"
    first = clock.now()
    assert clock.now() >= first
