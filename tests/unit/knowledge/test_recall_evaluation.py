"""Measuring recall: the data is read and checked, and every figure is the one that was meant (K6)."""

from __future__ import annotations

import json
import lzma
from dataclasses import fields
from math import log2
from pathlib import Path
from random import Random
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.knowledge.evaluation import evaluate, measure_sessions, measure_turns, mistyped, read_conversations
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.search.questions import Weights

FRIENDS: dict[str, Any] = {
    "id": "friends",
    "evidence_unit": "turn",
    "sessions": [
        {
            "id": "S1",
            "date": "10:00 am on 8 May, 2023",
            "turns": [
                {"id": "1", "speaker": "Ann", "text": "My sister Clara moved to Lisbon."},
                {"id": "2", "speaker": "Bob", "text": "I adopted a greyhound called Comet."},
                {"id": "3", "speaker": "Ann", "text": "The pottery class was fun."},
            ],
        },
        {
            "id": "S2",
            "date": "9:00 am on 2 June, 2023",
            "turns": [{"id": "4", "speaker": "Bob", "text": "Comet ran away from the vacuum cleaner."}],
        },
    ],
    "questions": [
        {"id": "q1", "text": "Where did Clara move?", "date": "", "type": "single", "evidence": ["1"]},
        {"id": "q2", "text": "What do we know about Comet the greyhound?", "date": "", "type": "multi", "evidence": ["2", "4"]},
    ],
}  # fmt: skip
HELPER: dict[str, Any] = {
    "id": "helper",
    "evidence_unit": "turn",
    "sessions": [
        {
            "id": "A",
            "date": "March-15-2024",
            "turns": [
                {"id": "0", "speaker": "user", "text": "How do I prune an apple tree?"},
                {"id": "1", "speaker": "assistant", "text": "Cut in late winter with clean secateurs."},
                {"id": "2", "speaker": "user", "text": "And what about roses?"},
                {"id": "3", "speaker": "assistant", "text": "Roses like it in spring."},
            ],
        }
    ],
    "questions": [{"id": "q", "text": "What should I use to prune the apple tree?", "type": "extraction", "evidence": ["1"]}],
}
SESSIONS: dict[str, Any] = {
    "id": "haystack",
    "evidence_unit": "session",
    "sessions": [
        {"id": f"h{number}", "date": f"2023/05/{number + 1:02d} (Sat) 06:37", "turns": [{"id": "a", "speaker": "user", "text": text}]}
        for number, text in enumerate(["I bought a red kayak.", "My dentist is Dr Moss.", "The kayak leaks a little.", "It rained."])
    ],
    "questions": [
        {"id": "s1", "text": "What colour is my kayak?", "date": "2023/06/01 (Thu) 10:00", "type": "user", "evidence": ["h0", "h2"]},
        {"id": "s2", "text": "Who is my dentist?", "date": "2023/06/01 (Thu) 10:00", "type": "user", "evidence": ["h1"]},
    ],
}


def data(path: Path, *values: Any) -> Path:
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def measured(folder: Path, path: Path, **how: Any) -> dict[str, Any]:
    return evaluate(path, lambda name: MarkdownStore(folder / "stores" / name, embedder=None), **how).summary()


def test_turns_are_found_and_counted_by_type(tmp_path: Path) -> None:
    summary = measured(tmp_path, data(tmp_path / "a.jsonl", FRIENDS))
    expected = {"R@5": 100.0, "R@10": 100.0, "R@25": 100.0, "R@50": 100.0, "kept@2000": 100.0, "kept@8000": 100.0}
    assert summary["overall"] == {"questions": 2, **expected}
    assert summary["by_type"] == {"multi": {"questions": 1, **expected}, "single": {"questions": 1, **expected}}
    cost = summary["cost"]
    assert (cost["conversations"], cost["records"]) == (1, 4)
    assert cost["bytes"] > 0
    assert cost["query_ms_p95"] >= cost["query_ms_p50"] > 0
    assert cost["ingestion_seconds"] > 0


def test_with_an_assistant_a_round_counts_for_both_of_its_turns(tmp_path: Path) -> None:
    (conversation,) = read_conversations(data(tmp_path / "a.jsonl", HELPER))
    assert [record.role for record in conversation.records] == ["person", "assistant"] * 2
    assert measured(tmp_path, tmp_path / "a.jsonl")["overall"]["R@5"] == 100.0
    (friends,) = read_conversations(data(tmp_path / "b.jsonl", FRIENDS))
    assert {record.role for record in friends.records} == {None}


def test_sessions_are_ranked_by_their_best_unit(tmp_path: Path) -> None:
    overall = measured(tmp_path, data(tmp_path / "a.jsonl", SESSIONS))["overall"]
    assert overall == {
        "questions": 2, "any@5": 1.0, "any@10": 1.0, "all@5": 1.0, "all@10": 1.0, "ndcg@10": 1.0, "kept@2000": 100.0, "kept@8000": 100.0,
    }  # fmt: skip


def test_both_units_in_one_file_each_have_their_figures(tmp_path: Path) -> None:
    overall = measured(tmp_path, data(tmp_path / "a.jsonl", FRIENDS, SESSIONS))["overall"]
    assert overall["questions"] == 4
    assert {"R@5", "any@5", "kept@2000"} <= overall.keys()


def test_the_figures_by_hand() -> None:
    ranked = [["x"], ["a", "b"], *[["y"]] * 4, ["c"]]
    assert measure_turns(ranked, frozenset("abc")) == {"R@5": 200 / 3, "R@10": 100.0, "R@25": 100.0, "R@50": 100.0}
    assert measure_turns([], frozenset("a"))["R@50"] == 0.0
    row = measure_sessions([["x"], ["x"], ["a"], ["y"], ["z"], ["v"], ["b"]], frozenset("ab"))
    assert row["any@5"] == 1.0
    assert (row["all@5"], row["all@10"]) == (0.0, 1.0)
    assert row["ndcg@10"] == pytest.approx((1 / log2(3) + 1 / log2(7)) / (1 + 1 / log2(3)))


def test_evidence_that_is_not_there_counts_as_not_found_and_is_named(tmp_path: Path) -> None:
    changed = {**FRIENDS, "questions": [{**FRIENDS["questions"][0], "evidence": ["1", "D9:9"]}]}
    summary = measured(tmp_path, data(tmp_path / "a.jsonl", changed))
    assert summary["overall"]["R@50"] == 50.0
    assert summary["problems"] == ["line 1: question q1 names evidence that is not there: D9:9"]


def test_questions_without_evidence_are_skipped_and_counted(tmp_path: Path) -> None:
    questions = [*FRIENDS["questions"], {"id": "q3", "text": "Is there life on Mars?", "evidence": []}, {"id": "q4", "text": "Hm?"}]
    summary = measured(tmp_path, data(tmp_path / "a.jsonl", {**FRIENDS, "questions": questions}))
    assert summary["skipped"] == 2
    assert summary["overall"]["questions"] == 2
    assert measured(tmp_path / "x", data(tmp_path / "b.jsonl", {**FRIENDS, "questions": []}))["overall"] == {"questions": 0}


def test_a_turn_without_words_is_passed_over_and_the_others_keep_their_names(tmp_path: Path) -> None:
    turns = [{"id": "0", "speaker": "Ann", "text": " "}, *FRIENDS["sessions"][0]["turns"]]
    changed = {**FRIENDS, "sessions": [{**FRIENDS["sessions"][0], "turns": turns}, FRIENDS["sessions"][1]]}
    (conversation,) = read_conversations(data(tmp_path / "a.jsonl", changed))
    assert list(conversation.named.values()) == ["1", "2", "3", "4"]
    assert measured(tmp_path, tmp_path / "a.jsonl")["overall"]["R@5"] == 100.0


def test_turns_that_share_an_id_are_all_kept(tmp_path: Path) -> None:
    (conversation,) = read_conversations(data(tmp_path / "a.jsonl", SESSIONS))
    assert len({record.id for record in conversation.records}) == 4


def test_packed_data_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.xz"
    path.write_bytes(lzma.compress((json.dumps(FRIENDS) + "\n\n" + json.dumps(HELPER) + "\n").encode()))
    assert [conversation.id for conversation in read_conversations(path)] == ["friends", "helper"]
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match="to its end"):
        list(read_conversations(path))


def test_unscoped_one_store_holds_all_conversations_and_what_others_said_is_no_evidence(tmp_path: Path) -> None:
    """K6: another conversation with the same names of turns takes places in the list, and none of its turns counts."""
    sessions = [
        {**session, "turns": [{**turn, "text": "Clara, Clara, Clara! Move, move!"} for turn in session["turns"]]}
        for session in FRIENDS["sessions"]
    ]
    others = [{**FRIENDS, "id": f"other-{number}", "sessions": sessions, "questions": []} for number in range(3)]
    path = data(tmp_path / "a.jsonl", {**FRIENDS, "questions": FRIENDS["questions"][:1]}, *others)
    assert measured(tmp_path / "each", path)["overall"]["R@5"] == 100.0
    summary = measured(tmp_path / "one", path, unscoped=True)
    assert summary["overall"]["R@5"] == 0.0
    assert summary["overall"]["R@25"] == 100.0
    assert (summary["cost"]["conversations"], summary["cost"]["records"]) == (4, 16)
    assert len(list((tmp_path / "one" / "stores").iterdir())) == 1


def test_unscoped_two_conversations_of_one_name_are_refused(tmp_path: Path) -> None:
    """K6: their records could not be told apart."""
    with pytest.raises(InputError, match=r"a\.jsonl:2: 'friends' is in line 1 already"):
        measured(tmp_path, data(tmp_path / "a.jsonl", FRIENDS, FRIENDS), unscoped=True)


def test_typing_errors_are_the_same_for_the_same_seed_and_in_one_word_of_three(tmp_path: Path) -> None:
    """K6: questions as they are typed in a hurry."""
    text = "Where did Clara's older sister move after the pottery class ended?"
    assert mistyped(text, Random("1")) == mistyped(text, Random("1")) != mistyped(text, Random("2"))
    for seed in range(50):
        one, two = text.split(), mistyped(text, Random(seed)).split()
        assert len(one) == len(two)
        changed = [(a, b) for a, b in zip(one, two, strict=True) if a != b]
        assert 1 <= len(changed) <= 3
        assert all(a[0] == b[0] and abs(len(a) - len(b)) <= 1 for a, b in changed)
    assert mistyped("Is it so?", Random(1)) == "Is it so?"
    path = data(tmp_path / "a.jsonl", FRIENDS)
    asked = [measured(tmp_path / name, path, typos=3)["overall"] for name in ("first", "again")]
    assert asked[0] == asked[1]
    assert asked[0]["questions"] == 2


def test_each_ingredient_is_left_out_once(tmp_path: Path) -> None:
    """K6: without words a store that has nothing else finds nothing, and without time or speaker what it found before."""
    summary = measured(tmp_path, data(tmp_path / "a.jsonl", HELPER), ablate=True)
    assert set(summary["without"]) == {one.name for one in fields(Weights)}
    assert summary["without"]["keyword"] == {"questions": 1, "R@5": 0.0, "R@10": 0.0, "R@25": 0.0, "R@50": 0.0}
    assert summary["without"]["time"]["R@5"] == summary["overall"]["R@5"] == 100.0
    assert "without" not in measured(tmp_path / "x", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{broken", "not JSON"),
        ("[]", "lists `sessions` and `questions`"),
        ('{"sessions": []}', "lists `sessions` and `questions`"),
        ('{"sessions": [], "questions": [], "evidence_unit": "page"}', "evidence_unit"),
        ('{"sessions": [{"id": "s"}], "questions": []}', "turns"),
        ('{"sessions": [{"turns": [{"id": 1}]}], "questions": []}', "turn 1"),
        ('{"sessions": [], "questions": [{"id": "q"}]}', "question 1"),
        ('{"sessions": [], "questions": [{"text": "q", "evidence": "1"}]}', "not a list"),
    ],
)
def test_a_broken_line_is_named_with_its_number(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(FRIENDS) + "\n" + line + "\n")
    with pytest.raises(InputError, match=said) as raised:
        list(read_conversations(path))
    assert f"{path}:2:" in str(raised.value)


def test_an_empty_or_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="empty"):
        list(read_conversations(data(tmp_path / "a.jsonl")))
    with pytest.raises(InputError, match="cannot be read"):
        list(read_conversations(tmp_path / "none.jsonl"))
