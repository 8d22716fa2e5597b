"""Accounts of usage and cost, and limits that stop the work with everything kept (T5)."""

from __future__ import annotations

import json
import threading
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from holdfast.config.memory_sections import Limit
from holdfast.config.sections import Pricing
from holdfast.errors import ConfigError, Damaged, InputError, LimitExceeded
from holdfast.events import Bus, Event
from holdfast.tokens.accounts import Accounts, Limits, Price, PriceUnknown, Tally, Usage

PRICES = {
    "big": Price(Decimal(3), Decimal(15), Decimal("0.3"), Decimal("3.75")),
    "small": Price(Decimal("0.15"), Decimal("0.6")),
}


def used(tokens_in: int, tokens_out: int) -> Usage:
    return Usage(tokens_in, tokens_out)


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        ({"input_tokens": 100, "output_tokens": 20, "total_tokens": 120}, Usage(100, 20)),
        (
            {
                "input_tokens": 100,
                "output_tokens": 20,
                "total_tokens": 120,
                "input_token_details": {"cache_read": 60, "cache_creation": 10},
                "output_token_details": {"reasoning": 8},
            },
            Usage(100, 20, 60, 10, 8),
        ),
        (
            {"input_tokens": 100, "output_tokens": 20, "input_token_details": {"cache_creation": 0, "ephemeral_5m_input_tokens": 30}},
            Usage(100, 20, 0, 30),
        ),
        (
            {
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 64},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
            Usage(100, 20, 64, 0, 5),
        ),
        ({"input_tokens": 100, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 64}}, Usage(100, 20, 64)),
        (
            {"input_tokens": 30, "output_tokens": 20, "cache_read_input_tokens": 60, "cache_creation_input_tokens": 10},
            Usage(100, 20, 60, 10),
        ),
        (
            {"prompt_token_count": 100, "candidates_token_count": 20, "thoughts_token_count": 7, "cached_content_token_count": 50},
            Usage(100, 27, 50, 0, 7),
        ),
        ({"prompt_tokens": 100, "completion_tokens": 20, "prompt_cache_hit_tokens": 40}, Usage(100, 20, 40)),
        (AIMessage("x", usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}), Usage(1, 2)),
        (AIMessage("x", response_metadata={"token_usage": {"prompt_tokens": 5, "completion_tokens": 6}}), Usage(5, 6)),
        (Usage(3, 4), Usage(3, 4)),
        (None, None),
        ({}, None),
        ({"input_tokens": 0, "output_tokens": 0}, None),
        ({"input_tokens": "many", "output_tokens": None}, None),
        (AIMessage("x"), None),
        (17, None),
    ],
)
def test_usage_is_read_in_the_forms_that_providers_report_it(reported: object, usage: Usage | None) -> None:
    assert Usage.read(reported) == usage


def test_a_call_costs_what_its_parts_cost_to_the_last_digit() -> None:
    price = PRICES["big"]
    usage = Usage(1000, 200, cache_read=600, cache_write=100)
    assert price.cost(usage) == (300 * Decimal(3) + 600 * Decimal("0.3") + 100 * Decimal("3.75") + 200 * Decimal(15)) / 1_000_000
    cents = sum((Price(Decimal("0.1"), Decimal(0)).cost(Usage(1, 0)) or Decimal(0) for _ in range(10_000)), Decimal(0))
    assert cents == Decimal("0.001")


def test_a_price_that_is_not_known_stays_unknown() -> None:
    assert Price().cost(Usage(10, 10)) is None
    assert Price().cost(Usage()) is None
    assert Price(Decimal(1)).cost(Usage(10, 10)) is None
    assert Price(Decimal(1)).cost(Usage(10, 0)) == Decimal("0.00001")
    assert Price(Decimal(1), Decimal(2)).cost(Usage(10, 0, cache_write=5)) is None
    assert Price(Decimal(1), Decimal(2)).cost(Usage(10, 0, cache_read=5)) == Decimal("0.00001")
    assert Price(Decimal(0), Decimal(0)).cost(Usage(10, 10)) == 0


def test_prices_in_two_currencies_are_refused() -> None:
    with pytest.raises(ConfigError, match="EUR and USD"):
        Accounts({"a": Price(Decimal(1), currency="EUR"), "b": Price(Decimal(1))})
    assert Accounts({"a": Price(Decimal(1), currency="EUR")}).currency == "EUR"


def filled() -> Accounts:
    accounts = Accounts(PRICES)
    accounts.charge(used(1000, 100), model="big", session="s", run="r1", stage="plan")
    accounts.charge(used(2000, 200), model="big", session="s", run="r1", stage="write", subagent="a1")
    accounts.charge(used(500, 50), model="small", session="s", run="r1", purpose="summary")
    accounts.charge(used(300, 30), model="small", session="s", run="r2", purpose="memory")
    accounts.charge(used(9, 1), model="local", session="t", run="r1")
    return accounts


def test_usage_is_kept_apart_for_every_model_run_subagent_stage_and_purpose() -> None:
    accounts = filled()
    assert {name: tally.tokens for name, tally in accounts.by("model").items()} == {"big": 3300, "small": 880, "local": 10}
    assert {name: tally.tokens for name, tally in accounts.by("run", session="s").items()} == {"r1": 3850, "r2": 330}
    assert {name: tally.tokens for name, tally in accounts.by("subagent").items()} == {"a1": 2200, None: 1990}
    assert {name: tally.tokens for name, tally in accounts.by("stage").items()} == {"write": 2200, "plan": 1100, None: 890}
    assert {name: tally.tokens for name, tally in accounts.by("purpose").items()} == {"answer": 3310, "summary": 550, "memory": 330}
    assert accounts.total(run="r1", session="s", purpose="answer").usage == Usage(3000, 300)
    assert accounts.total().calls == 5
    assert accounts.total(run="none") == Tally()


def test_cost_is_summed_where_it_is_known_and_the_sum_says_when_it_is_not() -> None:
    accounts = filled()
    assert accounts.by("model")["big"].total_cost == Decimal("0.0135")
    assert accounts.by("model")["local"].total_cost is None
    total = accounts.total()
    assert (total.total_cost, total.unpriced_calls) == (None, 1)
    assert total.cost == accounts.total(session="s").total_cost == Decimal("0.0135") + Decimal("0.000105") + Decimal("0.000063")


def test_a_call_without_reported_usage_is_charged_by_our_count_and_marked() -> None:
    accounts = Accounts(PRICES)
    charge = accounts.charge(None, model="big", estimate=Usage(100, 10))
    assert (charge.usage, charge.cost) == (Usage(100, 10, estimated=True), Decimal("0.00045"))
    accounts.charge(used(5, 5), model="big")
    total = accounts.total()
    assert (total.calls, total.estimated_calls, total.usage.estimated, total.tokens) == (2, 1, True, 120)
    assert accounts.charge({}, model="big").usage == Usage(estimated=True)


def test_an_unknown_dimension_is_refused() -> None:
    with pytest.raises(InputError, match="'stgae'"):
        filled().total(stgae="x")
    with pytest.raises(InputError):
        filled().by("color")  # type: ignore[arg-type]  # that is the point


def test_a_token_limit_stops_the_next_call_of_the_run_and_everything_is_kept() -> None:
    accounts = Accounts(PRICES, run_limits=Limits(tokens=1000))
    accounts.check(session="s", run="r")
    accounts.charge(used(900, 99), model="big", session="s", run="r")
    accounts.check(session="s", run="r")
    accounts.charge(used(500, 1), model="big", session="s", run="r")
    with pytest.raises(LimitExceeded) as caught:
        accounts.check(session="s", run="r")
    error = caught.value
    assert (error.account, error.kind, error.used, error.allowed) == ("run", "tokens", 1500, 1000)
    assert "run r has used 1,500 of 1,000 tokens" in str(error)
    assert accounts.total(run="r").tokens == 1500
    accounts.check(session="s", run="another")
    accounts.check(session="other session", run="r")


def test_a_cost_limit_holds_over_all_runs_subagents_and_purposes_of_a_session() -> None:
    accounts = Accounts(PRICES, session_limits=Limits(cost=Decimal("0.01")))
    accounts.charge(used(1000, 100), model="big", session="s", run="r1", subagent="a")
    accounts.check(session="s", run="r2")
    accounts.charge(used(1000, 200), model="big", session="s", run="r2", purpose="summary")
    with pytest.raises(LimitExceeded) as caught:
        accounts.check(session="s", run="r3")
    assert (caught.value.account, caught.value.kind) == ("session", "cost")
    assert "0.0105 of 0.01 USD" in str(caught.value)
    accounts.check(session="t", run="r1")


def test_a_limit_of_nothing_lets_no_call_start() -> None:
    with pytest.raises(LimitExceeded):
        Accounts(run_limits=Limits(tokens=0)).check(run="r")


def test_a_model_without_a_price_under_a_cost_limit_is_said_once() -> None:
    seen: list[Event] = []
    accounts = Accounts(run_limits=Limits(cost=Decimal(1)), bus=Bus(seen.append))
    for _ in range(3):
        accounts.charge(used(5, 5), model="local")
    assert seen == [PriceUnknown(model="local")]
    quiet = Accounts(bus=Bus(seen.append))
    quiet.charge(used(5, 5), model="local")
    assert len(seen) == 1


def test_prices_and_limits_are_those_of_the_configuration_to_the_last_digit() -> None:
    """T5"""
    pricing = Pricing(input=0.1, cache_read=0.01, currency="eur")
    assert Price.of(pricing) == Price(Decimal("0.1"), Decimal("0.0"), Decimal("0.01"), None, "EUR")
    assert Limits.of(Limit(tokens=5, cost=0.1)) == Limits(5, Decimal("0.1"))
    assert Limits.of(Limit()) == Limits()


_charges = st.lists(
    st.tuples(
        st.integers(0, 10**7),
        st.integers(0, 10**6),
        st.sampled_from(["big", "small", "local"]),
        st.sampled_from(["answer", "summary", "memory"]),
        st.sampled_from([None, "r1", "r2"]),
    ),
    max_size=20,
)


@given(_charges)
def test_a_snapshot_is_plain_json_and_brings_back_every_account_and_limit(charges: list[tuple[int, int, str, str, str | None]]) -> None:
    limits = Limits(tokens=10**7, cost=Decimal(20))
    accounts, restored = (Accounts(PRICES, run_limits=limits, bus=Bus()) for _ in range(2))
    for tokens_in, tokens_out, model, purpose, run in charges:
        accounts.charge(used(tokens_in, tokens_out), model=model, purpose=purpose, run=run, session="s")
    restored.restore(json.loads(json.dumps(accounts.snapshot())))
    assert restored.snapshot() == accounts.snapshot()
    assert restored.total() == accounts.total()
    for dimension in ("model", "purpose", "run"):
        assert restored.by(dimension) == accounts.by(dimension)
        assert sum(restored.by(dimension).values(), Tally()) == restored.total()
    for run in (None, "r1", "r2"):
        assert stopped(restored, run) == stopped(accounts, run)


def stopped(accounts: Accounts, run: str | None) -> str | None:
    try:
        accounts.check(session="s", run=run)
    except LimitExceeded as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    "change",
    [
        lambda s: None,
        lambda s: {**s, "schema": 99},
        lambda s: {**s, "entries": {}},
        lambda s: {**s, "entries": [*s["entries"], {}]},
        lambda s: {**s, "entries": [7]},
        lambda s: {**s, "entries": [{**s["entries"][0], "cost": 0.1}]},
        lambda s: {**s, "entries": [{**s["entries"][0], "cost": "NaN"}]},
        lambda s: {**s, "entries": [{**s["entries"][0], "cost": "-1"}]},
        lambda s: {**s, "entries": [{**s["entries"][0], "input_tokens": -1}]},
        lambda s: {**s, "entries": [{**s["entries"][0], "calls": "3"}]},
        lambda s: {**s, "entries": [{**s["entries"][0], "model": None}]},
        lambda s: {**s, "currency": "EUR"},
    ],
)
def test_a_damaged_snapshot_is_refused_and_changes_nothing(change: Any) -> None:
    accounts = filled()
    before = accounts.snapshot()
    with pytest.raises(Damaged):
        accounts.restore(change(before))
    assert accounts.snapshot() == before


def test_many_threads_charge_the_same_account() -> None:
    accounts = Accounts(PRICES)

    def work() -> None:
        for _ in range(500):
            accounts.charge(used(10, 1), model="big", run="r")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = accounts.total(run="r")
    assert (total.calls, total.tokens, total.total_cost) == (4000, 44_000, 4000 * Decimal("0.000045"))
