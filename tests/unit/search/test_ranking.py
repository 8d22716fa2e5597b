"""Segments, the corpus that they make, and how its units are ranked (K3)."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import date

import numpy as np
import pytest
from numpy.typing import NDArray

from holdfast.search import ranking
from holdfast.search.corpus import Corpus
from holdfast.search.minilm import MiniLM
from holdfast.search.pieces import ASKS, cut_for_meaning, ends_with_a_question
from holdfast.search.plain_ranking import Entry, PlainIndex
from holdfast.search.questions import Asked, Ranked, Weights
from holdfast.search.ranking import rank
from holdfast.search.segments import Compact, Segment, build, joined, product, read_vectors
from holdfast.text.words import terms

Line = tuple[str, str | None, str]
"""Session, speaker (`assistant` for an answer, `person` for what was asked), text."""


class Small:
    """A corpus of a few lines, with real vectors, in memory."""

    def __init__(self, lines: Sequence[Line], *, days: Sequence[int] = (), cuts: Sequence[int] = ()) -> None:
        self.model = Compact(MODEL)
        self.lines = lines
        self.blobs: dict[int, bytes] = {}
        places: Counter[str] = Counter()
        entries = []
        for number, (session, speaker, text) in enumerate(lines, 1):
            day = days[number - 1] if days else None
            entries.append(self._entry(number, session, places[session], speaker, text, day))
            places[session] += 1
        bounds = [0, *cuts, len(entries)]
        parts = [build(entries[start:stop], self.model.dimension) for start, stop in itertools.pairwise(bounds)]
        self.corpus = Corpus.of([Segment.from_bytes(part.to_bytes()) for part in parts if len(part)])

    def _entry(self, number: int, session: str, place: int, speaker: str | None, text: str, day: int | None) -> Entry:
        role = {"person": 1, "assistant": 2}.get(speaker or "", 0)
        name = speaker if role == 0 else None
        embedded = MODEL.embed([f"{name}: {piece}" if name else piece for piece in cut_for_meaning(text)]) if role != 2 else []
        kept = self.model.kept(embedded)
        self.blobs[number] = kept.tokens
        counts = Counter([*terms(f"{name or ''} {text}", "en"), *([ASKS] if ends_with_a_question(text) else [])])
        moment = None if day is None else day * 86_400_000
        vectors = read_vectors(kept.vectors, self.model.dimension)
        return Entry(number, session or None, place if session else None, role, moment, name, counts, "en", number, *vectors)

    def tokens(self, rows: NDArray[np.int64]) -> NDArray[np.int8]:
        joined_bytes = b"".join(self.blobs[number] for number in self.corpus.numbers[rows].tolist())
        return np.frombuffer(joined_bytes, np.int8).reshape(-1, self.model.token_dimension)

    def ask(self, question: str, *, meaning: bool = True, **more: object) -> list[Ranked]:
        asked = Asked(question, periods=more.pop("periods", ()))  # type: ignore[arg-type]
        if not meaning:
            return rank(asked, self.corpus, **more)  # type: ignore[arg-type]
        (one,) = MODEL.embed([question])
        vector, tokens = self.model.asked(one)
        return rank(Asked(question, vector, tokens, one.words, asked.periods), self.corpus, tokens=self.tokens, **more)  # type: ignore[arg-type]

    def texts(self, found: Sequence[Ranked]) -> list[str]:
        return [self.lines[int(self.corpus.numbers[self.corpus.order[self.corpus.unit_starts[one.unit]]]) - 1][2] for one in found]


MODEL = MiniLM()
TALK: list[Line] = [
    ("one", "Ann", "Did the parrot get its vaccination?"),
    ("one", "Bob", "Yes, on Tuesday, and it was quite calm."),
    ("one", "Ann", "Good to hear."),
    ("one", "Bob", "Shall we talk about the roof?"),
    ("one", "Ann", "The tiles arrive next month."),
    ("two", "Cid", "Yes, on Monday, and it was quite loud."),
    ("two", "Dora", "The concert hall is new."),
]


def test_a_turn_is_found_by_the_words_of_the_turn_before_it() -> None:
    small = Small(TALK)
    assert small.texts(small.ask("on which day was the parrot vaccinated", limit=2))[1] == TALK[1][2]


@pytest.mark.parametrize("mark", ["?", "."])
def test_the_answer_to_a_question_is_met_by_all_of_its_words(mark: str) -> None:
    """K2: what was said before a question borrows a part of them, as the neighbours of a statement do on both sides."""
    small = Small(
        [("one", "Ann", "All is well here."), ("one", "Bob", f"The parrot got its vaccination{mark}"), ("one", "Ann", "All is well here.")]
    )
    token = {one.unit: one.token or 0.0 for one in small.ask("was the parrot vaccinated", limit=3)}
    assert (token[2] > token[0]) == (mark == "?")


def test_neighbours_end_with_the_session() -> None:
    small = Small([TALK[0], TALK[5]])
    first, second = small.corpus.line.tolist()
    assert first != second
    assert small.ask("parrot vaccination", meaning=False) != []
    assert len(small.ask("parrot vaccination", meaning=False)) == 1


def test_what_a_person_asked_and_what_was_answered_is_one_unit() -> None:
    chat: list[Line] = [
        ("c", "assistant", "Welcome."),
        ("c", "person", "How do bees survive the winter?"),
        ("c", "assistant", "They form a cluster."),
        ("c", "assistant", "Feed them fondant."),
        ("c", "person", "And wasps?"),
        ("", None, "A note about bees."),
    ]
    corpus = Small(chat).corpus
    assert np.diff(corpus.unit_starts).tolist() == [1, 3, 1, 1]
    assert len(set(corpus.line.tolist())) == 4, "rounds and notes have no neighbours"


def test_an_answer_is_found_by_its_words() -> None:
    chat: list[Line] = [
        ("c", "person", "How do I get them through winter?"),
        ("c", "assistant", "Insulate the hive with cork."),
        ("c", "person", "Which paint?"),
        ("c", "assistant", "An oil stain."),
    ]
    small = Small(chat)
    (best, *_) = small.ask("cork insulation")
    assert small.texts([best]) == [chat[0][2]]
    assert "cork" in best.words


def test_meaning_finds_what_shares_no_word() -> None:
    small = Small([("", None, "My puppy was ill last week."), ("", None, "The invoice is due on Friday."), ("", None, "The roof leaks.")])
    assert small.texts(small.ask("health of the dog", limit=1)) == ["My puppy was ill last week."]


def test_a_rare_word_outweighs_a_common_one_and_a_longer_text_counts_for_less() -> None:
    lines: list[Line] = [("", None, f"The boat number {number} is blue.") for number in range(8)]
    small = Small([*lines, ("", None, "A walnut."), ("", None, "A walnut and " + "much else besides it " * 9)])
    assert small.texts(small.ask("walnut boat", meaning=False, limit=2)) == ["A walnut.", small.lines[-1][2]]


def test_a_word_in_what_an_assistant_answered_counts_half() -> None:
    chat: list[Line] = [
        ("a", "person", "Tell me of herons."),
        ("a", "assistant", "Gladly."),
        ("b", "person", "Tell me more."),
        ("b", "assistant", "Herons."),
    ]
    first, second = Small(chat).ask("heron", meaning=False)
    assert (first.unit, second.unit) == (0, 1)
    assert first.keyword > second.keyword


def test_many_units_are_sifted_first_and_the_best_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Small(TALK)
    exact = small.ask("was the parrot quite calm on Tuesday?", limit=3)
    monkeypatch.setattr(ranking, "_MANY", 2)
    monkeypatch.setattr(ranking, "_WORTH", 4)
    assert small.ask("was the parrot quite calm on Tuesday?", limit=3) == exact


def test_a_period_raises_what_was_said_in_it_and_hides_nothing() -> None:
    day = date(2024, 5, 8).toordinal() - date(1970, 1, 1).toordinal()
    lines: list[Line] = [("", None, "We swam in the lake.")] * 3
    small = Small(lines, days=[day - 30, day, day + 30])
    found = small.ask("when did we swim", periods=[(day, day, 3)])
    assert small.corpus.numbers[small.corpus.order[found[0].unit]] == 2
    assert len(found) == 3
    assert [one.time for one in found] == [1.0, 0.0, 0.0]


def test_a_day_written_in_the_question_is_found_in_the_date_of_a_record() -> None:
    day = date(2023, 3, 14).toordinal() - date(1970, 1, 1).toordinal()
    lines: list[Line] = [("", None, "We bought a boat."), ("", None, "We sold a boat.")]
    small = Small(lines, days=[day, day + 200])
    (best, *_) = small.ask("the boat in March 2023", meaning=False)
    assert small.texts([best]) == ["We bought a boat."]
    assert {"march", "2023"} <= set(best.words)


def test_the_speaker_who_is_named_comes_first_and_two_names_raise_nobody() -> None:
    small = Small([("s", "Ann", "I like hiking in the hills."), ("s", "Bob", "I like hiking in the hills.")])
    assert small.ask("does Bob like hiking?")[0].speaker == 1.0
    assert small.ask("do Ann and Bob like hiking?")[0].speaker is None


def test_only_allowed_units_are_found() -> None:
    small = Small(TALK)
    allowed = np.zeros(small.corpus.units, np.bool_)
    allowed[4:] = True
    assert {one.unit for one in small.ask("parrot vaccination on Tuesday", allowed=allowed)} <= {4, 5, 6}
    assert small.ask("parrot", allowed=np.zeros(small.corpus.units, np.bool_)) == []


def test_a_scope_gives_the_scores_that_a_store_of_its_own_would_give() -> None:
    """How rare a word is, is counted inside the scope: other conversations change nothing."""
    whole, alone = Small(TALK), Small(TALK[:5])
    allowed = np.arange(whole.corpus.units) < 5
    question = "was the parrot quite calm on Tuesday?"
    inside, own = whole.ask(question, allowed=allowed), alone.ask(question)
    assert [one.unit for one in inside] == [one.unit for one in own]
    assert [one.score for one in inside] == pytest.approx([one.score for one in own], abs=1e-4)


def test_looking_at_few_candidates_does_not_change_their_scores() -> None:
    small = Small(TALK)
    few = {one.unit: one.score for one in small.ask("parrot on Tuesday", limit=2)}
    many = {one.unit: one.score for one in small.ask("parrot on Tuesday", limit=50)}
    assert few.items() <= many.items()


def test_each_ingredient_counts_by_its_weight() -> None:
    small = Small(TALK)
    none = Weights(token=0, sentence=0, context=0, keyword=0, time=0, speaker=1)
    found = small.ask("what did Dora say", weights=none)
    assert [one.score for one in found][:2] == [1.0, 0.0] or len(found) == 1


def test_time_and_speaker_are_worth_what_they_are_worth() -> None:
    """K3: of two that are else alike the one of the day that is named leads by .1, the one of the speaker who is named by .04."""
    counts = {"hike": 1}
    made = [Entry(1, None, None, 0, 0, "Ann", counts, "en"), Entry(2, None, None, 0, 30 * 86_400_000, "Bob", counts, "en")]
    for found in (rank(Asked("hiking Bob"), Corpus.of([build(made, 0)])), PlainIndex(made).rank(Asked("hiking Bob"))):
        assert [one.members for one in found] == [(2,), (1,)]
        assert found[0].score - found[1].score == pytest.approx(0.04, abs=1e-4)
    asked = Asked("hiking", periods=[(0, 0, 3)])
    for found in (rank(asked, Corpus.of([build(made, 0)])), PlainIndex(made).rank(asked)):
        assert [one.members for one in found] == [(1,), (2,)]
        assert found[0].score - found[1].score == pytest.approx(0.1, abs=1e-4)


def test_rows_in_any_order_have_their_own_meaning() -> None:
    """Inside a scope, too: units stand by time and the rows of the index by when they were added."""
    small = Small([("", None, "My puppy was ill."), ("", None, "The roof leaks.")], days=[2, 1])
    free = {one.members: one.sentence for one in small.ask("roof")}
    scoped = {one.members: one.sentence for one in small.ask("roof", allowed=np.ones(2, np.bool_))}
    assert scoped == pytest.approx(free)


def test_a_question_without_any_word_finds_nothing_by_words() -> None:
    assert Small(TALK).ask("?!…", meaning=False) == []
    assert Small([]).ask("parrot") == []


def test_segments_joined_or_cut_are_as_if_built_at_once() -> None:
    small = Small(TALK)
    (one,) = small.corpus.segments
    two = Small(TALK, cuts=[3]).corpus.segments
    assert joined(two).to_bytes() == joined([one]).to_bytes()
    assert one.without([6, 7]).terms == Small(TALK[:5]).corpus.segments[0].terms
    assert "concert" not in one.without([7]).to_bytes().decode("latin-1")
    assert "Dora" not in one.without([7]).to_bytes().decode("latin-1")


def test_bytes_of_another_form_are_no_segment() -> None:
    (one,) = Small(TALK).corpus.segments
    with pytest.raises((ValueError, KeyError)):
        Segment.from_bytes(one.to_bytes()[:40])
    with pytest.raises((ValueError, KeyError)):
        Segment.from_bytes(one.to_bytes().replace(b'"form": 1', b'"form": 9'))


@pytest.mark.parametrize("rows", [0, 1, 7, 390, 391, 5000])
@pytest.mark.parametrize("shape", [(64,), (64, 1), (64, 8), (64, 4000)])
def test_a_product_in_stretches_is_the_product(rows: int, shape: tuple[int, ...]) -> None:
    chance = np.random.default_rng(7)
    many, by = (chance.standard_normal(size).astype(np.float32) for size in ((rows, 64), shape))
    np.testing.assert_allclose(product(many, by), many @ by, atol=1e-4)


_OTHERS = """
import os, time
import numpy as np
from holdfast.search.segments import product

def worked():
    tasks = [int(name) for name in os.listdir("/proc/self/task") if int(name) != os.getpid()]
    facts = [open(f"/proc/self/task/{task}/stat").read().rpartition(") ")[2].split() for task in tasks]
    return sum(int(one[11]) + int(one[12]) for one in facts)

rows, by, one = np.ones((20_000, 128), np.float32), np.ones((128, 8), np.float32), np.ones(128, np.float32)
time.sleep(0.5)  # new threads look for work for a while
before, until = worked(), time.process_time() + 1
while time.process_time() < until:
    product(rows, by), product(rows, one)
print(worked() - before)
"""


def test_a_search_waits_for_no_other_core() -> None:
    """K2, K6: no thread of the linear algebra library has anything to do, however large the product."""
    done = subprocess.run([sys.executable, "-c", _OTHERS], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 2, "hundredths of a second that other threads worked"
