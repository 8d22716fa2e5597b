"""Near duplicates, contradictions and eviction (M10, M11)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.memory.facts import Candidate, Decision, Fact, Origin
from holdfast.memory.merge import apply, evict, find_related, relation, value_of

NOW = "2026-03-01T10:00:00Z"


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("User prefers the dark mode", "User prefers dark mode.", "same"),
        ("User lives in Graz, Austria", "User lives in Graz", "same"),
        ("User lives in Graz", "User lives in Linz", "contradicts"),
        ("User works for Beta", "User works at Acme", "contradicts"),
        ("User likes tea", "User doesn't like tea", "contradicts"),
        ("User dislikes tea", "User likes tea", "contradicts"),
        ("User prefers tabs over spaces", "User prefers spaces over tabs", "contradicts"),
        ("User uses PostgreSQL 17", "User uses PostgreSQL 16", "contradicts"),
        ("User no longer works at Globex", "User works at Globex", "contradicts"),
        ("User wants answers in French", "User wants answers in German", "contradicts"),
        ("User likes coffee", "User likes tea", "apart"),
        ("User speaks Czech", "User speaks Polish", "apart"),
        ("User ran a marathon in 2022", "User ran a marathon in 2019", "apart"),
        ("User's sister lives in Rome", "User lives in Rome", "apart"),
        ("User's cat is called Mo", "User's dog is called Bo", "apart"),
    ],
)
def test_two_facts_are_the_same_contradict_or_stand_apart(new: str, old: str, expected: str) -> None:
    assert relation(new, old) == expected


def test_the_same_goes_before_a_contradiction_and_the_newest_contradicted_is_named() -> None:
    facts = (
        Fact("a", "User lives in Linz", created="2025"),
        Fact("b", "User lives in Wels", created="2026"),
        Fact("c", "User lives in Graz"),
    )
    assert find_related("User lives in Graz", facts) == ("same", facts[2])
    assert find_related("User lives in Enns", facts[:2]) == ("contradicts", facts[1])


def test_what_was_replaced_carries_the_dates_between_which_it_held() -> None:
    old = Fact("a", "User lives in Linz", created="2025-01-01T00:00:00Z", valid_from="2025-02-01T00:00:00Z")
    new = Fact("b", "User lives in Graz", created=NOW, valid_from=NOW, replaces=("a",))
    merged = apply((old,), [Decision("replace", Candidate(new.content), "", new, "a")], NOW)
    assert merged.facts == (new,)
    gone = merged.superseded[0]
    assert (gone.fact, gone.by, gone.valid_from, gone.valid_to) == (old, "b", "2025-02-01T00:00:00Z", NOW)
    again = apply(merged.facts, [Decision("replace", Candidate(new.content), "", new, "a")], NOW)
    assert (again.facts, again.superseded, again.added) == (merged.facts, (), ())


def test_quarantined_and_dropped_change_nothing() -> None:
    fact = Fact("a", "User likes tea")
    decisions = [Decision("quarantine", Candidate("x"), "", Fact("b", "x")), Decision("drop", Candidate("x"), "", Fact("c", "x"))]
    assert apply((fact,), decisions, NOW).facts == (fact,)


def test_eviction_weighs_confidence_confirmation_and_age_and_keeps_corrections() -> None:
    fresh = "2026-02-20T00:00:00Z"
    old = "2024-01-01T00:00:00Z"
    facts = (
        Fact("correction", "a", "correction", 0.7, old),
        Fact("sure", "b", confidence=0.95, created=fresh),
        Fact("unsure", "c", confidence=0.7, created=fresh),
        Fact("stale", "d", confidence=0.95, created=old),
        Fact("confirmed", "e", confidence=0.95, created=old, confirmations=6, confirmed=fresh),
        Fact("weak", "f", confidence=0.6, created=fresh, status="provisional"),
    )
    kept, gone = evict(facts, 3, NOW)
    assert [fact.id for fact in gone] == ["weak", "stale", "unsure"]
    assert [fact.id for fact in kept] == ["correction", "sure", "confirmed"]
    assert [fact.id for fact in evict(facts, 1, NOW)[0]] == ["correction"]
    assert evict(facts, 6, NOW) == (facts, ())
    assert evict(facts, 0, NOW)[0] == ()


def test_what_a_fact_is_worth_by_each_of_its_terms() -> None:
    """M11: half of it confidence, a quarter confirmations (8 of them are all), a quarter freshness with a half-life of 180 days each."""
    now = "2026-06-30T00:00:00Z"
    today = Fact("a", "x", confidence=1.0, created=now)
    old = replace(today, created="2026-01-01T00:00:00Z")  # 180 days ago
    assert value_of(today, now) == pytest.approx(0.5 + 0.25 / 3 + 0.25)
    assert value_of(replace(today, confidence=0.5), now) == pytest.approx(0.25 + 0.25 / 3 + 0.25)
    assert value_of(replace(today, confirmations=3), now) == pytest.approx(0.5 + 0.25 * 2 / 3 + 0.25)
    assert value_of(replace(today, confirmations=100), now) == pytest.approx(1.0)
    assert value_of(old, now) == pytest.approx(0.5 + 0.25 / 3 + 0.125)
    assert value_of(replace(old, confirmations=3), now) == pytest.approx(0.5 + 0.25 * 2 / 3 + 0.25 * 0.5 ** (1 / 3))
    assert value_of(replace(old, confirmed=now), now) == value_of(today, now)
    assert value_of(replace(today, category="correction"), now) == pytest.approx(value_of(today, now) + 2.0)
    assert value_of(replace(today, status="provisional"), now) == pytest.approx(value_of(today, now) - 0.5)


def test_of_two_facts_that_differ_in_confirmations_alone_the_less_confirmed_goes() -> None:
    """M11"""
    once = Fact("once", "x", confidence=0.9, created=NOW, confirmed=NOW)
    often = replace(once, id="often", confirmations=4)
    assert [fact.id for fact in evict((often, once), 1, NOW)[1]] == ["once"]


def test_what_a_person_put_in_never_makes_room_and_half_of_the_limit_is_left_to_what_is_learned() -> None:
    """M11"""
    own = tuple(Fact(f"own{n}", f"o{n}", confidence=0.1, origin=Origin("import" if n % 2 else "manual")) for n in range(10))
    learned = tuple(Fact(f"learned{n}", f"l{n}", confidence=0.9, created=NOW, origin=Origin("user")) for n in range(4))
    kept, gone = evict((*own, *learned), 4, NOW)
    assert kept[:10] == own and len(gone) == 2
    assert evict((*own, *learned), 4, NOW, at_most=1)[1] == gone[:1]
    assert evict(own, 4, NOW) == (own, ())
