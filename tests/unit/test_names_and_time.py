"""M4 and the ground floor: names that may become paths, ids that sort, moments with one written form."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import RandomIds, SystemClock, stamp
from holdfast.errors import InputError
from holdfast.validation import check_name


@pytest.mark.parametrize("name", ["", "a" * 65, "a\n", "a b", "../x", "é", "a.b", "a/b", "a\x00", "ａ", "١"])
def test_a_name_that_could_lead_elsewhere_is_refused(name: str) -> None:
    """M4"""
    with pytest.raises(InputError, match="64 ASCII letters"):
        check_name(name, "agent name")


@given(st.from_regex(r"[A-Za-z0-9_-]{1,64}", fullmatch=True).filter(str.isascii))
def test_a_good_name_is_lower_case_in_paths(name: str) -> None:
    """M4"""
    assert check_name(name) == name.lower()


def test_ids_are_unique_over_threads_and_sort_in_the_order_of_making() -> None:
    source, made = RandomIds(), list[list[str]]()

    def make() -> None:
        made.append([source.new("run") for _ in range(2_000)])

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    flat = [one for part in made for one in part]
    assert len(set(flat)) == len(flat) == 8_000
    assert all(part == sorted(part) for part in made)
    assert all(re.fullmatch(r"run-[0-9a-hjkmnp-tv-z]{19}", one) for one in flat)


def test_a_moment_is_written_in_utc_with_a_z() -> None:
    moment = datetime(2026, 4, 19, 10, 15, 30, tzinfo=timezone(timedelta(hours=2)))
    assert stamp(moment) == "2026-04-19T08:15:30.000Z"
    with pytest.raises(ValueError, match="zone"):
        stamp(datetime(2026, 4, 19))  # noqa: DTZ001 - the naive moment is the point


def test_the_system_clock_knows_its_zone() -> None:
    assert SystemClock().now().tzinfo is UTC
