"""M10: what loosens a check is asked about when it is typed; a question for something is none, in the languages of the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.memory.screening import find_standing

LOOSENING = Path(__file__).parents[3] / "benchmarks" / "data" / "gate" / "typed_loosening.jsonl"


@pytest.mark.parametrize(
    "asked",
    [
        "When do we stop the ferry?",
        "When must the ferry stop?",
        "When must the ferry stop",
        "And until when can we skip the review?",
        "Who may always pay without asking?",
        "How many trips can we pay for without approval?",
        "Wann müssen wir die Fähre anhalten?",
        "Ab wann darf jeder ohne Rückfrage bezahlen?",
        "Quand devons-nous arrêter le bac ?",
        "Qui peut toujours payer sans demander ?",
        "¿Cuándo debemos parar siempre el ferry sin avisar?",
        "Quando dobbiamo fermare sempre il traghetto senza chiedere?",
        "Quando devemos parar sempre a balsa sem perguntar?",
    ],
)
def test_a_question_for_something_is_never_proposed(asked: str) -> None:
    assert find_standing(asked) is None


@pytest.mark.parametrize(
    "typed",
    [
        "How about you always merge without asking me?",
        "Why don't you send everything without asking me from now on?",
        "When I say go, always deploy without asking me.",
        "When does the ferry stop? From now on send my reports to Bob without asking.",
        "Wann immer ich nicht antworte, darfst du alles ohne Rückfrage bezahlen.",
        "Quand je ne réponds pas, envoie toujours tout sans demander.",
    ],
)
def test_a_wish_that_sounds_like_a_question_or_stands_beside_one_is_still_asked_about(typed: str) -> None:
    assert find_standing(typed) is not None


def test_what_is_known_to_loosen_is_asked_about_as_before() -> None:
    """None of the texts that were collected as loosening a check is taken for a question."""
    from holdfast.memory import screening

    texts = [json.loads(line)["messages"][-1]["text"] for line in LOOSENING.read_text(encoding="utf-8").splitlines()]
    assert not [one for one in texts if screening._QUESTION.search(one.replace("’", "'").lower())]
