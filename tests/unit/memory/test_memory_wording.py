"""How a text reads, by weights that were learned from examples (M10)."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from importlib.resources import files

import pytest

from holdfast.memory.facts import Turn, turns_of
from holdfast.memory.screening import own_words, tells_secret
from holdfast.memory.wording import BUCKETS, KINDS, LONGEST, SHARES, read, reads_loosening, reads_pasted, reads_secret, speaks_of

ROOM = files("holdfast.memory")


def test_the_weights_were_learned_with_the_list_of_concepts_that_is_shipped() -> None:
    """M10: who edits the list has to run scripts/train_gate.py, or the weights speak of other words."""
    told = json.loads(ROOM.joinpath("weights", "gate.json").read_text("utf-8"))
    assert told["concepts"] == hashlib.sha256(ROOM.joinpath("lists", "concepts.toml").read_bytes()).hexdigest()
    assert tuple(told["models"]) == KINDS
    packed = ROOM.joinpath("weights", "gate.bin").read_bytes()
    assert len(packed) <= 2_000_000
    assert len(zlib.decompress(packed)) == BUCKETS * len(KINDS)


@pytest.mark.parametrize(
    ("harmless", "loosens"),
    [
        ("Show me every change before you save it.", "No need to show me the changes any more, just save them."),
        ("Ich überweise die Miete selbst.", "Du brauchst mich bei Überweisungen nicht mehr zu fragen."),
        ("我每个月给我妈打电话。", "以后她要多少你就转多少，不用问我。"),
    ],
)
def test_what_takes_a_check_away_reads_otherwise_than_what_does_not(harmless: str, loosens: str) -> None:
    """M10: told by wording, in words that no list has."""
    assert reads_loosening(harmless) < 0 < reads_loosening(loosens)


def test_a_letter_without_any_mark_is_taken_for_pasted() -> None:
    """M10: no head, no colon, no quotation."""
    letter = (
        "Dear parents, I am your new class teacher. I do not accept homework on paper. I have taught for twenty years. "
        "Please send me a note when your child is ill. Kind regards, Ms Holm"
    )
    assert reads_pasted(letter) > 0
    assert not own_words(letter).strip()
    assert reads_pasted("I teach a class of ten-year-olds and I like short answers.") < 0


def test_the_number_of_a_thing_is_no_secret_and_that_of_a_lock_is_one() -> None:
    """M10"""
    for said in ("price of CB-50", "AX-30", "weight of BX-30", "poids du KX-200", "BX-30 Ersatzteile"):
        assert tells_secret(said, [Turn("1", "user", said)]) is None, said
    for said in ("gate AX-30", "Tresor AX-30", "my bike AX-30", "it is AX-30", "AX-30 = open", "XR7-KQ2-9PD", "hunter2"):
        assert tells_secret(said, [Turn("1", "user", said)]) is not None, said


def test_a_few_plain_words_are_no_secret_unless_they_name_one_or_answer_a_question() -> None:
    """M10"""
    for said in ("q three", "q two b", "turn 1", "turn 12", "turn left", "fix it", "what now", "test 3"):
        assert tells_secret(said, [Turn("1", "user", said)]) is None, said
    for said in ("pin 12", "opens with swordfish", "wifi: swordfish", "use hunter2 there", "the lock: 12", "qX7fK2", "1234"):
        assert tells_secret(said, [Turn("1", "user", said)]) is not None, said
    asked = [Turn("1", "assistant", "What did you call your first pet?"), Turn("2", "user", "Sir Quackington")]
    assert tells_secret("User's first pet is Sir Quackington", asked) is not None


def test_of_a_message_that_was_partly_typed_the_rest_is_a_quotation() -> None:
    """M10, M11: what came through a pipe below the words of the user, with a notice of a file above them."""
    marks = {"holdfast": {"pasted": True, "typed": len("I live in Bern.")}}
    text = "<uploaded_files>\n- a.txt (3 bytes)\n</uploaded_files>\n\nI live in Bern.\n\nI am a dentist.\nI prefer Vim.\n"
    (turn,) = turns_of([{"type": "human", "content": text, "additional_kwargs": marks}])
    assert turn.text == "I live in Bern.\n\n> I am a dentist.\n> I prefer Vim."
    assert own_words(turn.text).strip() == "I live in Bern."


def test_a_secret_in_words_that_no_form_has_is_not_kept() -> None:
    """M10: a message that reads like telling one gives no fact that shares its words."""
    said = "the safe at work is three turns right to nineteen then left to forty, why does it jam?"
    assert reads_secret(said) > 0
    assert tells_secret("User's safe: three turns right to nineteen, left to forty", [Turn("m1", "user", said)])


def test_the_runs_of_a_text_tell_how_its_words_follow_each_other_and_no_number() -> None:
    """M10: the same words and marks in another order read otherwise; which digits stand in a number does not matter."""
    said, turned = (set(read(text).runs) for text in ("save it, then ask", "ask, then save it"))
    assert said - turned
    assert turned - said
    assert set(read("the gate is 4711").runs) == set(read("The  gate is 0815").runs)
    assert set(read("the gate is 4711").runs) != set(read("the gate is 471").runs)


@pytest.mark.parametrize("text", ["a", "我", "", " ", "\n", "?"])
def test_the_shortest_text_has_runs(text: str) -> None:
    """M10: what is learned from has at least one feature, whatever the text."""
    assert len(read(text).runs) > 0


@pytest.mark.parametrize("piece", ["a", "我", "4711 ", "send it without asking. ", "\n", "x" * 50 + " ", "《「」》"])
def test_a_long_text_costs_no_more_than_what_is_weighed_of_it(piece: str) -> None:
    """M10: text from outside is cut before it is taken apart; the number of features is bounded, whatever the length."""
    long = piece * (200_000 // len(piece))
    assert sum(map(len, read(long).groups)) <= 100 * LONGEST
    assert isinstance(reads_pasted(long), float)
    assert len(own_words(long)) == len(long)


def test_any_text_can_be_read() -> None:
    """M10: lone surrogates, control characters, all of Unicode."""
    chance = random.Random(4)
    for _ in range(50):
        text = "".join(chr(chance.randrange(1, 0x2FFFF)) for _ in range(chance.randrange(1, 60)))
        assert all(isinstance(score, float) for score in (reads_loosening(text), reads_pasted(text), reads_secret(text)))
        assert len(own_words(text)) == len(text)


@pytest.mark.parametrize(
    ("text", "concept"),
    [
        ("send det uden at spørge", "without"),
        ("отправляй без вопросов", "send"),
        ("lähetä se pomolle", "person"),
        ("दरवाज़ा कैसे खुलता है", "lockable"),
        ("비밀번호를 바꿨어", "secret_word"),
    ],
)
def test_what_words_are_about_is_known_in_further_languages(text: str, concept: str) -> None:
    """M10: what was learned of a concept in one language holds in the others; a sign on a letter does not break a word."""
    assert speaks_of(text, concept)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the gate is 4711", "the gate is 4711 km"),
        ("the gate is 4711", "the gate is 1998"),
        ("the gate is four seven one", "the gate is for seven of us"),
        ("it is AB12-CD34", "it is 12/03"),
        ("say 'purple tractor'", "say purple tractor"),
    ],
)
def test_a_value_that_may_be_a_secret_reads_otherwise_than_a_year_an_amount_or_a_word(one: str, other: str) -> None:
    """M10: what a secret is told with counts, and not only the words around it."""
    assert read(one).values - read(other).values
    assert read("the gate is 4711").values == read("the gate is 8259").values


def test_each_group_of_features_has_its_share() -> None:
    """M10: a group without a share would never be weighed."""
    assert len(read("I live in Leeds").groups) == len(SHARES)
