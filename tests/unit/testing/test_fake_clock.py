"""The clock and the ids that tests turn by hand: they keep the promises of `Clock` and `IdSource` (O6)."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.testing.clock import CountingIds, FakeClock

NOON = datetime(2026, 4, 19, 12, 0, tzinfo=UTC)


def test_sleep_turns_both_hands_and_is_recorded() -> None:
    clock = FakeClock(NOON)
    clock.sleep(30)
    clock.sleep(0.5)
    assert clock.now() == NOON + timedelta(seconds=30.5)
    assert clock.monotonic() == 30.5
    assert clock.sleeps == (30, 0.5)


def test_the_clock_stands_still_on_its_own() -> None:
    clock = FakeClock(NOON)
    assert (clock.now(), clock.monotonic()) == (NOON, 0)
    assert (clock.now(), clock.monotonic()) == (NOON, 0)


def test_now_is_always_told_in_utc() -> None:
    clock = FakeClock(datetime(2026, 4, 19, 14, 0, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now() == NOON
    assert clock.now().tzinfo is UTC


def test_a_sleeper_of_a_holding_clock_waits_until_the_hands_are_turned_far_enough() -> None:
    clock = FakeClock(NOON, holds=True)
    woken: list[str] = []

    def sleeper(name: str, seconds: float) -> None:
        clock.sleep(seconds)
        woken.append(name)

    with clock.running():
        short, long = (threading.Thread(target=sleeper, args=pair, daemon=True) for pair in (("short", 10), ("long", 60)))
        short.start()
        long.start()
        assert clock.await_sleepers(2)
        clock.advance(9.999)
        assert clock.waiting == 2
        assert clock.next_deadline() == 10
        clock.advance(0.001)
        short.join(240)
        assert woken == ["short"]
        clock.advance(50)
        long.join(240)
        assert woken == ["short", "long"]
    assert sorted(clock.sleeps) == [10, 60]


def test_a_sleep_wakes_the_threads_that_wait_for_that_moment() -> None:
    clock = FakeClock(NOON)
    reached: list[bool] = []
    waiter = threading.Thread(target=lambda: reached.append(clock.wait_until(5)), daemon=True)
    waiter.start()
    assert clock.await_sleepers(1)
    clock.sleep(5)
    waiter.join(240)
    assert reached == [True]


def test_a_moment_that_never_comes_is_given_up() -> None:
    assert FakeClock(NOON).wait_until(5, patience=0.01) is False


def test_release_frees_every_sleeper() -> None:
    clock = FakeClock(NOON, holds=True)
    threads = [threading.Thread(target=clock.sleep, args=(1e9,), daemon=True) for _ in range(3)]
    with clock.running():
        for thread in threads:
            thread.start()
        assert clock.await_sleepers(3)
    for thread in threads:
        thread.join(240)
        assert not thread.is_alive()


def test_setting_the_wall_clock_back_leaves_monotonic_time_alone() -> None:
    clock = FakeClock(NOON)
    clock.advance(10)
    clock.set(NOON - timedelta(days=1))
    assert clock.now() == NOON - timedelta(days=1)
    assert clock.monotonic() == 10


@settings(deadline=None)
@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_many_small_turns_are_as_far_as_one_big_one(milliseconds: list[int]) -> None:
    clock = FakeClock(NOON)
    for step in milliseconds:
        clock.advance(step / 1000)
    assert clock.monotonic() == sum(milliseconds) / 1000
    assert clock.wait_until(sum(milliseconds) / 1000, patience=0.0)


@pytest.mark.parametrize("turn", [lambda clock: clock.advance(-1), lambda clock: clock.sleep(-1)])
def test_time_does_not_run_backwards(turn) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError):
        turn(FakeClock(NOON))


def test_a_moment_without_a_zone_is_refused() -> None:
    with pytest.raises(InputError):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001 - this is what is refused
    with pytest.raises(InputError):
        FakeClock(NOON).set(datetime(2026, 1, 1))  # noqa: DTZ001


def test_ids_count_for_each_prefix_and_sort_in_the_order_of_making() -> None:
    ids = CountingIds()
    made = [ids.new("run") for _ in range(12)]
    assert made[0] == "run-000001"
    assert made == sorted(made)
    assert ids.new("fact") == "fact-000001"


def test_no_id_is_given_twice_to_many_threads() -> None:
    ids = CountingIds()
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: ids.new("run"), range(800)))
    assert len(set(made)) == 800


def test_the_testing_room_itself_imports_no_langchain() -> None:
    code = (
        "import sys; from holdfast.testing.clock import FakeClock; from holdfast.testing.clock import CountingIds; import holdfast.testing;"
        "print(sorted(m for m in sys.modules if m.startswith(('langchain', 'langgraph'))))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
