"""W18, W12: a task is split into questions by its own words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.offline.desk import Desk

from holdfast.errors import ConfigError, InputError
from holdfast.offline.planner import Planner, split_task
from holdfast.text.words import terms

FRAME = frozenset(terms("What is said about together Which figures are given Under which conditions exceptions or limits are there the of"))


def texts(task: str) -> list[str]:
    return [question.text for question in split_task(task)]


def test_a_comparison_asks_for_every_aspect_of_every_thing() -> None:
    questions = split_task("Compare Ava, Bo and Cy as the pump for our school: noise, price per unit, and guarantee.")
    pairs = [(one.topic, one.item) for one in questions if one.kind == "aspect"]
    assert pairs == [(aspect, item) for aspect in ("noise", "price per unit", "guarantee") for item in ("Ava", "Bo", "Cy")]
    assert [one.text for one in questions if one.kind == "context"] == ["What is said about the pump for our school?"]


def test_an_aspect_may_have_an_of_in_it() -> None:
    topics = [
        one.topic for one in split_task("Compare Ava and Bo on the cost of a licence, (noise, at night) and size.") if one.item == "Ava"
    ]
    assert topics == ["cost of a licence", "(noise, at night)", "size"]


def test_an_aspect_list_may_stand_before_the_things() -> None:
    pairs = [(one.topic, one.item) for one in split_task("Compare the price and the noise of the Calder 9 and the Norvik H2.") if one.item]
    assert pairs == [("price", "Calder 9"), ("price", "Norvik H2"), ("noise", "Calder 9"), ("noise", "Norvik H2")]


def test_a_question_about_each_is_asked_of_each_and_what_points_back_keeps_what_it_points_to() -> None:
    questions = split_task("Compare Ava and Bo on price. Which known defects does each have, and when were they fixed?")
    later = [one for one in questions if one.topic == "known defects"]
    assert [one.text for one in later] == [
        "Which known defects does Ava have?",
        "Which known defects does Bo have?",
        "Ava, known defects: when were they fixed?",
        "Bo, known defects: when were they fixed?",
    ]
    assert later[-1].query == "known defects when were they fixed"


def test_a_question_stays_as_it_was_asked_and_it_keeps_the_name_that_it_points_to() -> None:
    assert texts("Which vector database has the lowest latency at 10 million vectors?") == [
        "Which vector database has the lowest latency at 10 million vectors?"
    ]
    assert texts("What caused incident INC-4127? When did it begin and end?")[1] == "When did it begin and end (INC-4127)?"


def test_a_choice_between_named_things_asks_about_each() -> None:
    questions = split_task("Which queue should we use for orders: Osprey, Harrow or Tarnfield?")
    assert [(one.kind, one.item) for one in questions] == [
        ("context", ""), ("choice", ""), ("aspect", "Osprey"), ("aspect", "Harrow"), ("aspect", "Tarnfield"),
    ]  # fmt: skip
    assert questions[0].text == "What is said about orders?"
    assert [one.item for one in split_task("Is Osprey or Harrow better for small machines?")] == ["", "", "Osprey", "Harrow"]


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("When was the mill built and who paid for it?", ["When was the mill built?", "Who paid for it?"]),
        (
            "What are the causes, effects and costs of the outage of 9 January?",
            [f"What are the {part} of the outage of 9 January?" for part in ("causes", "effects", "costs")],
        ),
        ("Report on the outage of 9 January 2026.", ["What is said about the outage of 9 January 2026?"]),
        (
            "Summarize how the migration went; list open risks, owners and deadlines.",
            ["How the migration went?", *(f"What is said about {part}?" for part in ("open risks", "owners", "deadlines"))],
        ),
        ("Find out when the bridge opened.", ["When the bridge opened?"]),
    ],
)
def test_clauses_lists_and_orders_become_questions(task: str, wanted: list[str]) -> None:
    assert texts(task) == wanted


def test_other_languages_are_split_by_their_marks() -> None:
    german = split_task("Vergleiche Calder 9 und Norvik H2 hinsichtlich Lärm, Preis und Wirkungsgrad.")
    assert [one.text for one in german][:3] == ["Calder 9: Lärm?", "Norvik H2: Lärm?", "Calder 9: Preis?"] and len(german) == 6
    assert texts("比较A型和B型的价格、噪音和重量。")[:2] == ["A型: 价格？", "B型: 价格？"]
    assert len(texts("Pourquoi le pont a-t-il été fermé, et quand sera-t-il rouvert ?")) == 2


@pytest.mark.parametrize(
    "task",
    [
        "Compare Osprey, Harrow and Tarnfield on throughput and cost. Which defects does each have, and when were they fixed?",
        "Which vector database has the lowest latency at 10 million vectors?",
        "List open risks, owners and deadlines of the harbour project.",
    ],
)
def test_no_content_word_comes_in_that_the_task_does_not_have(task: str) -> None:
    allowed = FRAME | set(terms(task))
    for question in split_task(task):
        assert set(terms(question.text)) <= allowed, question.text


def test_the_plan_is_the_same_each_time_numbered_and_limited(tmp_path: Path) -> None:
    task = "Compare " + ", ".join(f"Thing{n}" for n in range(9)) + " and Other on a1, b1, c1, d1 and e1."
    assert split_task(task) == split_task(task)
    assert [one.id for one in split_task(task, most=7)] == [f"q{n}" for n in range(1, 8)]
    output = Desk(tmp_path, task).run(Planner(), settings={"max_questions": 5})
    assert len(output.data["questions"]) == 5 and "nothing was generated" in output.summary


def test_a_task_without_words_and_a_wrong_setting_are_typed_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no words"):
        Desk(tmp_path / "a", "???").run(Planner())
    with pytest.raises(ConfigError, match="max_questions") as caught:
        Desk(tmp_path / "b", "Compare A and B.").run(Planner(), settings={"max_questions": "many"})
    assert caught.value.line == 7


def test_what_introduces_a_list_of_questions_is_none_and_a_bare_why_stays_with_its_question() -> None:
    """W18: a task as people write it."""
    task = "Prepare the decision on the panels.\n- What does the offer cost for each school?\n- Which school gets no grant, and why?"
    assert [one.text for one in split_task(task)] == [
        "What does the offer cost for each school?",
        "Which school gets no grant, and why?",
    ]
    assert split_task("When can the scaffolding come and what does it cost?")[1].text == "What does it cost?"


@pytest.mark.parametrize(
    ("task", "count"),
    [
        ("When was the mill built, who paid for it, how long did it take, and what did it cost?", 4),
        ("Who paid, when was it built, how long did it take, and what did it cost?", 4),
        ("Wann wurde die Mühle gebaut, wer hat sie bezahlt, wie lange dauerte es, und was hat sie gekostet?", 4),
        ("Quand le moulin a-t-il été construit, qui l'a payé, combien de temps cela a-t-il pris et combien a-t-il coûté ?", 4),
        ("¿Cuándo se construyó el molino, quién lo pagó, cuánto duró y qué costó?", 4),
        ("Which pumps, valves, and filters are sold?", 1),
        ("Welche Pumpen, Ventile und Filter werden verkauft?", 1),
        ("What is the price of apples, pears, and plums?", 1),
        ("Who built it, when, and why?", 1),
    ],
)
def test_questions_joined_by_commas_are_parted_and_lists_of_things_are_not(task: str, count: int) -> None:
    """W18"""
    assert len(split_task(task)) == count


ASKED = (
    "Wo hängt der Feuerlöscher, und welche Luftfeuchtigkeit ist erlaubt?",
    "Wer leitet die Rösterei und wann öffnet der Laden?",
    "Où est l'extincteur, et quelle est l'humidité permise ?",
    "¿Dónde está el extintor y qué humedad se permite?",
    "Quanto costa la consegna?",
    "The fire extinguisher, and which humidity is allowed?",
    "Given the rain, is the road open?",
    "The drum capacity?",
    "What does delivery cost, and why?",
    "店は何時に開きますか？",
)


@given(
    st.lists(st.sampled_from(ASKED), min_size=1, max_size=5, unique=True),
    st.sampled_from(["", "{n}. ", "{n}) ", "- "]),
    st.sampled_from([" ", "\n"]),
    st.sampled_from(["", "Please answer these: ", "The shop is new. "]),
)
def test_no_question_of_a_task_is_lost(asked: list[str], numbered: str, between: str, before: str) -> None:
    """W18: every word of every sentence that asks is in a question, in any language, in a list or not."""
    task = before + between.join(numbered.format(n=n) + one for n, one in enumerate(asked, 1))
    kept = " ".join(texts(task)).casefold()
    for one in asked:
        assert all(word in kept for word in re.findall(r"\w{4,}", one.casefold())), texts(task)
    assert len(texts(task)) >= len(asked)


def test_halves_that_cannot_stand_alone_stay_together() -> None:
    """W18"""
    assert texts("The fire extinguisher, and which humidity is allowed?") == ["The fire extinguisher, and which humidity is allowed?"]
    assert texts("1. What is the drum capacity? 2. How often is the chimney swept?") == [
        "What is the drum capacity?",
        "How often is the chimney swept?",
    ]


def test_what_else_is_asked_after_a_comparison_is_no_part_of_it() -> None:
    """W18"""
    found = texts("Compare the Vulkan and the Mistral on price, and tell me who is responsible for safety and when the meter was bought.")
    assert found[-2:] == ["Who is responsible for safety?", "When the meter was bought?"]
    assert not any("tell me" in one for one in found)
