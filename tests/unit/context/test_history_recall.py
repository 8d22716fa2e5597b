"""Facts planted in a long conversation are found again with few shared words, and read word for word (S9).

The benchmark does the same with 2,000 messages, 200 facts and ten compactions; this is its small sister.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.context.archive import Archive, MemoryArchive
from holdfast.context.history_index import SHAPE, by_words, document_of
from holdfast.context.recall import search_history
from holdfast.context.records import records_of
from holdfast.context.view import PlainMessage
from holdfast.search.fulltext import Document, FullTextIndex
from holdfast.text.words import terms

FACTS: list[list[str]] = json.loads((Path(__file__).parents[2] / "fixtures" / "recall" / "planted.json").read_text(encoding="utf-8"))

_TOPICS = """
release report customers kitchen database survey contract garden flight test_environment budget load_balancer interview invoice team vectors
printer backup pictures hiking_trip doctor party API migration chart machines shop session currency amount morning_call second_floor desk
language data_centre boat
"""
_THINGS = [f"the {topic.replace('_', ' ')}" for topic in _TOPICS.split()]
_ASKS = [
    "Can you help me with {a}? I also have to think about {b} before the end of the week.",
    "What do we do about {a} if {b} takes longer than planned?",
    "Please write a short note on {a}, and mention that {b} comes first.",
    "How long does {a} usually take, and who has to approve it? Last time {b} was in the way.",
    "I looked at {a} again this morning. Which of the two versions is better for {b}?",
    "Why did {a} change? It worked with {b} until yesterday.",
]
_ANSWERS = [
    "Sure. For {a} I would start with a list of what is missing, then look at how {b} depends on it, and decide by Friday.",
    "It depends on how many people are involved in {a}. Usually one review is enough; {b} can wait a day.",
    "Here is a draft: {a} is on track, {b} needs another look, and the next step is to write down what was agreed.",
    "The numbers for {a} look fine. I would keep {b} as it is, and check the limit again next month.",
    "I changed {a} as you asked. The test for {b} runs for about two minutes and passes.",
]


def conversation(seed: int, facts: list[list[str]], length: int) -> Iterator[PlainMessage]:
    """User and assistant taking turns about many things, with a fact here and there inside a user's message."""
    rng = random.Random(seed)
    places = dict(zip(sorted(rng.sample(range(0, length, 2), len(facts))), facts, strict=True))
    for number in range(length):
        a, b = rng.sample(_THINGS, 2)
        text = rng.choice(_ASKS if number % 2 == 0 else _ANSWERS).format(a=a, b=b)
        if number in places:
            fact = places[number][0]
            text = rng.choice([fact, f"{fact} {text}", f"{text} {fact}"])
        yield PlainMessage("human" if number % 2 == 0 else "ai", text, f"m{number}")


@pytest.fixture(scope="module")
def archive() -> Archive:
    made = MemoryArchive()
    messages = list(conversation(7, FACTS, 400))
    for start in range(0, 400, 40):  # ten compactions
        made.add("t", records_of(messages[start : start + 40], history=messages))
    return made


def share_found(archive: Archive, questions: list[tuple[str, str]]) -> tuple[float, list[str]]:
    missed = [
        question for fact, question in questions if not any(fact in hit.record.text for hit in archive.search("t", question, top_k=5))
    ]
    return 1 - len(missed) / len(questions), missed


def test_the_planted_questions_share_at_most_two_words_with_their_fact() -> None:
    for fact, question in FACTS:
        words = {word.lower() for word in question.replace("?", "").replace(",", "").split()}
        shared = set(terms(fact)) & set(terms(question))
        assert len(shared) <= 2 or len({w for w in words if set(terms(w)) & shared}) <= 2, (question, shared)


def test_facts_are_found_with_few_shared_words(archive: Archive) -> None:
    share, missed = share_found(archive, [(fact, question) for fact, question in FACTS])
    assert share >= 0.9, missed


def test_facts_are_found_with_their_own_words(archive: Archive) -> None:
    share, missed = share_found(archive, [(fact, fact) for fact, _ in FACTS])
    assert share >= 0.99, missed


def test_a_fact_that_was_found_is_read_word_for_word(archive: Archive) -> None:
    for fact, _ in FACTS:
        (hit, *_) = archive.search("t", fact, top_k=1)
        passage = archive.read("t", hit.record.id)
        assert passage is not None
        assert fact in passage.record.text


def test_the_agent_sees_the_fact_in_the_answer_of_its_tool(archive: Archive) -> None:
    shown = sum(fact in search_history(archive, "t", question) for fact, question in FACTS)
    assert shown >= 0.85 * len(FACTS)


def test_a_hit_says_how_sure_it_is_and_small_talk_is_sure_of_nothing(archive: Archive) -> None:
    """S9: between 0 and 1, whatever the archive's size; what is asked for is above the floor, what is not is below."""
    asked = [hit for _, question in FACTS for hit in archive.search("t", question, top_k=1)]
    assert all(0 <= hit.score <= 1 for hit in asked)
    assert sum(hit.score >= 0.5 for hit in asked) >= 0.8 * len(FACTS)
    for text in ("thanks a lot", "ok, go on please", "Good morning!", "What do you mean?", "Das war sehr nett von dir", "vale, sigue"):
        assert all(hit.score < 0.5 for hit in archive.search("t", text, top_k=5)), text


def test_a_message_is_found_by_its_meaning_where_the_words_are_others() -> None:
    """K3, S9: one word in common, which many messages have."""
    made = MemoryArchive()
    said = ["Our cat Biscuit died last winter.", *(f"Please feed the cat number {number} in the shelter." for number in range(30))]
    made.add("t", records_of([PlainMessage("human", text, f"m{number}") for number, text in enumerate(said)]))
    assert made.search("t", "When did we lose our pet, the cat?", top_k=1)[0].record.id == "m0"


def test_beside_a_message_that_fits_an_answer_without_its_words_takes_no_place() -> None:
    """S9: in a conversation with an assistant nobody borrows a neighbour's words, as in knowledge; what people say to each other does."""
    other = [("human", "Please sort the invoices of this week."), ("ai", "Done, they are in the folder.")]
    said = [("human", "The choir next door rehearses with the windows open."), ("ai", "Both are quick to mend."), *other * 4]
    said += [("human", "Our choir sings a requiem in the Advent concert."), ("ai", "I will note the date."), *other * 4]
    made = MemoryArchive()
    made.add("t", records_of([PlainMessage(role, text, f"m{number}") for number, (role, text) in enumerate(said)]))
    for meaning in (True, False):
        assert {hit.record.id for hit in made.search("t", "Which piece is the choir rehearsing?", 2, meaning=meaning)} == {"m0", "m10"}
    talk = ["Did you ever get to see Lisbon?", "Yes, in May with my sister!", *(text for _, text in other * 4)]
    made.add("talk", records_of([PlainMessage("human", text, f"m{number}") for number, text in enumerate(talk)]))
    assert {hit.record.id for hit in made.search("talk", "When did they visit Lisbon?", 2)} == {"m0", "m1"}


def test_who_looks_through_many_threads_is_answered_by_words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """S9: comparing by meaning takes a third of a second a thread; without it nothing is embedded."""
    made = MemoryArchive()
    made.add("t", records_of([PlainMessage("human", text, f"m{number}") for number, text in enumerate(["The heron flew.", "A cat sat."])]))
    monkeypatch.setattr("holdfast.context.history_index.vectors", lambda: pytest.fail("something would be embedded"))
    assert made.search("t", "heron", meaning=False)[0].record.id == "m0"
    with pytest.raises(pytest.fail.Exception):
        made.search("t", "heron")


def test_an_archive_of_a_backend_without_vectors_is_sure_by_words_alone() -> None:
    """S9, P2: the extra `vectors` may be missing."""
    with FullTextIndex(":memory:", SHAPE) as index:
        index.add(
            document_of(record, 0) for record in records_of([PlainMessage("human", text, f"m{n}") for n, text in enumerate(_THINGS * 3)])
        )
        index.add([Document("fact", {"text": "The heron moved to Rotterdam in April."})])
        question = "When did the heron move to Rotterdam?"
        hits = by_words(question, index.search(question, 3), index)
        assert (hits[0].id, hits[0].score > 0.5) == ("fact", True)
        assert all(hit.score < 0.5 for hit in by_words("the garden party", index.search("the garden party", 3), index))
