"""Passages are selected word for word, within the budget, the telling ones first (S10, W18)."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from holdfast.errors import InputError
from holdfast.extract.selection import SourceText, centrality, cut, positions, select, unit_terms
from holdfast.extract.sentence_index import FLOOR, IndexedSentence, SentenceIndex, offers, wanted_of

ROOT = Path(__file__).parents[3]
NOTES = SourceText(
    "notes",
    """# The move

We talked about the new office for an hour. Anna likes the view, and Ben likes the kitchen.
The rent is 4,200 euros a month, heating included. The old office costs less but has no lift.

## Decisions

- We decided to sign the lease on 3 May 2024.
- Ben will order twelve desks.

| item | price |
|------|-------|
| desk | 310 euros |

```sh
make move. Now
```

We must tell the landlord by Friday, because he has another offer.
""",
)


def words(text: str) -> int:
    return len(text.split())


def _benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("extract_benchmark", ROOT / "benchmarks" / "extract.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["extract_benchmark"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How much is the rent?", "The rent is 4,200 euros a month, heating included."),
        ("When do we sign the lease?", "- We decided to sign the lease on 3 May 2024."),
        ("How many desks will be ordered?", "- Ben will order twelve desks."),
        ("Why must we tell the landlord soon?", "We must tell the landlord by Friday, because he has another offer."),
        ("What is the price of a desk?", "| desk | 310 euros |"),
    ],
)
def test_the_sentence_that_answers_is_chosen_first(question: str, answer: str) -> None:
    extract = select([NOTES], question=question, budget=14, count=words)
    assert answer in [passage.text for passage in extract.passages]


def test_passages_are_word_for_word_and_in_the_order_of_the_source() -> None:
    extract = select([NOTES], budget=40, count=words)
    assert extract.passages
    assert all(NOTES.text[passage.start : passage.end] == passage.text for passage in extract.passages)
    assert [passage.start for passage in extract.passages] == sorted(passage.start for passage in extract.passages)


def test_the_extract_says_what_was_left_out() -> None:
    extract = select([NOTES, SourceText("empty", "")], budget=30, count=words)
    (left,) = extract.left_out
    assert left.source == "notes"
    assert left.units + len(extract.passages) == len(cut([NOTES]))
    assert left.tokens + sum(words(passage.text) for passage in extract.passages) == sum(words(unit.passage.text) for unit in cut([NOTES]))
    assert extract.tokens == words(extract.text) <= 30


def test_nothing_fits_into_no_budget_and_all_into_a_large_one() -> None:
    assert select([NOTES], budget=0, count=words).passages == ()
    everything = select([NOTES], budget=10_000, count=words)
    assert everything.left_out == ()
    with pytest.raises(InputError, match="budget"):
        select([NOTES], budget=-1)


def test_a_passage_too_long_for_the_budget_makes_room_for_shorter_ones() -> None:
    text = "The rent of the flat, which is paid each month for the flat, is the rent that the flat costs. The rent rose. It rained."
    extract = select([SourceText("a", text)], question="What about the rent of the flat?", budget=5, count=words)
    assert [passage.text for passage in extract.passages] == ["The rent rose."]


def test_the_budget_holds_for_the_joined_text_even_if_joining_costs_much() -> None:
    def dear(text: str) -> int:
        return words(text) + 7 * text.count("\n")

    for budget in range(0, 80, 5):
        extract = select([NOTES], question="What about the rent and the lease?", budget=budget, count=dear)
        assert extract.tokens == dear(extract.text) <= budget


def test_code_is_taken_whole_or_not_at_all() -> None:
    text = "Run it so:\n\n```sh\nmake one. Two.\nmake three\n```\n\nThen make it run again."
    for budget in range(25):
        chosen = [passage.text for passage in select([SourceText("a", text)], question="make three", budget=budget, count=words).passages]
        assert all("```" not in piece or piece == "```sh\nmake one. Two.\nmake three\n```" for piece in chosen)


def test_a_sentence_said_twice_is_chosen_once() -> None:
    first = SourceText("a", "The bridge was closed for nineteen weeks. Goats like grass.")
    second = SourceText("b", "The bridge was closed for nineteen weeks! Sheep like hay.")
    extract = select([first, second], question="How long was the bridge closed?", budget=100, count=words)
    assert len([p.source for p in extract.passages if "nineteen" in p.text]) == 1


def test_a_heading_is_no_part_of_what_answers_a_question() -> None:
    """W18: headings filled what was left of a budget."""
    text = "# Why the old bridge was closed\n\nThe bridge was closed for nineteen weeks.\n\n# Goats\n\nGoats like grass."
    chosen = select([SourceText("a", text)], question="How long was the bridge closed?", budget=100, count=words).passages
    assert [one.text for one in chosen] == ["The bridge was closed for nineteen weeks.", "Goats like grass."]


def test_sentences_that_disagree_are_both_kept() -> None:
    first = SourceText("a", "The bridge was closed for nineteen weeks. Goats like grass.")
    second = SourceText("b", "The bridge was closed for twelve weeks. Sheep like hay.")
    extract = select([first, second], question="How long was the bridge closed?", budget=16, count=words)
    assert {passage.source for passage in extract.passages if "closed" in passage.text} == {"a", "b"}


def test_the_named_source_is_preferred_among_several() -> None:
    sources = [
        SourceText("dover", "The Dover ferry is old. It costs six euros. It leaves at noon."),
        SourceText("calais", "The Calais ferry is new. It costs nine euros. It leaves at dawn."),
    ]
    extract = select(sources, question="What does the Calais ferry cost?", budget=5, count=words)
    assert "It costs nine euros." in [passage.text for passage in extract.passages]
    assert "It costs six euros." not in [passage.text for passage in extract.passages]


def test_without_a_question_what_carries_the_text_is_chosen() -> None:
    text = (
        "The reactor was shut down after the coolant pump failed. Lunch was soup. The coolant pump had failed twice before the reactor "
        "was inspected. A bird sat on the fence. The inspection found that the coolant pump lacked a filter. Somebody whistled."
    )
    chosen = [passage.text for passage in select([SourceText("a", text)], budget=33, count=words).passages]
    assert len(chosen) == 3
    assert all("coolant pump" in sentence for sentence in chosen)


def test_chinese_and_japanese_questions_find_their_sentence() -> None:
    text = "茶馆在河边。茶馆每天早上六点开门。一碗茶卖两块钱。老板姓许。他喜欢下棋。"
    extract = select([SourceText("a", text)], question="一碗茶多少钱？", budget=10, count=len)
    assert [passage.text for passage in extract.passages] == ["一碗茶卖两块钱。"]
    text = "橋は村にある。橋の長さは百メートルだ。橋は赤い。村には寺もある。"
    extract = select([SourceText("a", text)], question="橋の長さは何メートルですか？", budget=14, count=len)
    assert [passage.text for passage in extract.passages] == ["橋の長さは百メートルだ。"]


def test_two_sources_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="'a'"):
        select([SourceText("a", "One."), SourceText("a", "Two.")], budget=10)


def test_a_default_count_is_there() -> None:
    extract = select([NOTES], question="How much is the rent?", budget=30)
    assert 0 < extract.tokens <= 30


def test_the_result_does_not_depend_on_the_order_of_hashes() -> None:
    code = (
        "from holdfast.extract.selection import select; from holdfast.extract.selection import SourceText;"
        "from pathlib import Path; import sys;"
        "s = [SourceText(p.stem, p.read_text(encoding='utf-8')) for p in sorted(Path(sys.argv[1]).glob('*.md'))[:8]];"
        "print(select(s, budget=300), select(s, question='Who paid for the new room?', budget=300))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code, str(ROOT / "benchmarks" / "data" / "extract")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
    assert "passages=" in seen.pop()


def test_planted_answers_are_found_more_often_than_by_the_baselines() -> None:
    """The figure that the benchmark prints: at least 90 % within a fifth of the tokens."""
    benchmark = _benchmark()
    texts = benchmark.load()
    shares = benchmark.shares(texts)
    assert len(texts) == 50
    assert shares["ours"] >= 0.9
    assert shares["ours"] > shares["plain_bm25"] + 0.2
    assert shares["plain_bm25"] > shares["lead"]


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("When was it built?", {"date"}),
        ("In which year did it start?", {"date"}),
        ("How many people came?", {"number"}),
        ("How long did it take?", {"duration"}),
        ("How much did it cost?", {"money"}),
        ("How tall is the tower?", {"measure"}),
        ("What percentage agreed?", {"share"}),
        ("Who wrote it?", {"person"}),
        ("Where is the key?", {"place"}),
        ("Why did it fail?", {"reason"}),
        ("What colour is it?", set()),
        ("Tell me about the day when the man who sang came", set()),
        ("什么时候开门？", {"date"}),
        ("多少钱？", {"money"}),
        ("なぜ閉めたのですか？", {"reason"}),
        ("Wann kam er?", {"date"}),
    ],
)
def test_a_question_is_understood(question: str, wanted: set[str]) -> None:
    assert wanted_of(question) == wanted


def test_offers_are_recognised() -> None:
    assert offers("It opened in May 1999.", "date")
    assert offers("She paid 40 dollars.", "money")
    assert offers("It lasted nineteen weeks.", "duration")
    assert offers("It was built by Ann Lee.", "person")
    assert not offers("It was built well.", "person")
    assert not offers("It was long.", "duration")


def test_headings_give_context_to_what_stands_under_them() -> None:
    body = "Logs are kept. Nobody minds. Birds sing. The service uses port {}.\n\n"
    text = f"# Guide\n\n## Production\n\n{body.format(80)}## Staging\n\n{body.format(81)}"
    units = cut([SourceText("a", text)])
    assert units[5].heading == ("Guide", "Production")
    assert units[10].heading == ("Guide", "Staging")
    index = SentenceIndex([IndexedSentence("a", unit.passage.text, unit.heading) for unit in units if unit.kind != "heading"])
    assert index.rank("Which port does staging use?")[0].place == 7


def test_scores_stay_between_nought_and_one() -> None:
    units = cut([NOTES])
    found = unit_terms(units)
    for scores in (centrality(found), positions(units)):
        assert len(scores) == len(units)
        assert all(0 <= score <= 1 for score in scores)
    assert centrality([]) == []


TALK = [
    IndexedSentence("boxes.md", "The Frostvik switches itself off when the battery falls under 11.1 V.", ("Cool boxes", "Power")),
    IndexedSentence("boxes.md", "36 dB(A) at the window.", ("Cool boxes", "Noise of the Norvik")),
    IndexedSentence("boxes.md", "Two drivers complained about the lid.", ("Cool boxes", "Drivers")),
    IndexedSentence("films.md", "The film was directed by Ed Wood.", ("Plan Nine",)),
    IndexedSentence("wood.md", "He was born in Poughkeepsie.", ("Ed Wood",)),
    IndexedSentence("rhys.md", "He was born in Cardiff.", ("Rhys Ifans",)),
]


def test_sentences_are_found_by_meaning_heading_and_the_names_that_the_first_ones_mention() -> None:
    """W18, K3: one ranking; names match in any case; a second step follows the name of a document."""
    index = SentenceIndex(TALK)
    assert index.rank("At what voltage does the FROSTVIK turn itself off?")[0].place == 0
    assert index.rank("How loud is the Norvik?")[0].place == 1
    chain = [match.place for match in index.rank("Where was the director of Plan Nine born?")]
    assert chain.index(4) < chain.index(5)


def test_what_has_nothing_to_do_with_the_sentences_stays_below_the_floor() -> None:
    """W18: below the floor the answer is "not found"."""
    index = SentenceIndex(TALK)
    assert all(match.score < FLOOR for question in ("zzzz qqqq", "Tell me a joke") for match in index.rank(question))
    assert index.rank("Who complained about the lid?")[0].score > 2 * FLOOR
    assert index.rank("") == [] and SentenceIndex([]).rank("anything") == []


def test_a_month_is_found_in_a_date_that_is_written_in_figures() -> None:
    """W18: rows of tables have their days in figures; a question names the month, in any of the languages."""
    rows = [IndexedSentence("a.csv", f"customer: C{n:02d}; renewal: 2027-{n:02d}-14") for n in range(1, 13)]
    index = SentenceIndex(rows)
    assert index.rank("Which customers renew in March?")[0].place == 2
    assert index.rank("Welche customer haben ein renewal im Oktober?")[0].place == 9


def test_of_many_sentences_those_that_share_words_are_compared_by_meaning() -> None:
    few, many = SentenceIndex(TALK), SentenceIndex(TALK, most_embedded=2)
    question = "At what voltage does the Frostvik turn itself off?"
    assert many.rank(question)[0].place == few.rank(question)[0].place == 0


def test_a_name_in_the_best_sentence_is_followed_to_other_documents() -> None:
    """W18: the second step of a chain, where the question does not name what it asks about."""
    rows = [IndexedSentence("machines.csv", f"serial: HN-44{n}; stand: {n}") for n in range(10, 20)]
    index = SentenceIndex([IndexedSentence("notes.log", "Machine HN-4417 leaked in March, nobody was hurt."), *rows])
    question = "At which stand was the machine that leaked in March?"
    found = [index.sentences[match.place].text for match in index.rank(question, names=True)]
    assert found[:2] == ["Machine HN-4417 leaked in March, nobody was hurt.", "serial: HN-4417; stand: 17"]
    assert "HN-4417" not in index.sentences[index.rank(question)[1].place].text
