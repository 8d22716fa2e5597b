"""One suite over every knowledge store: Markdown files, SQLite, PostgreSQL, an MCP server (K1-K5, M14, O7)."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.contract.knowledge_stores import ADAPTERS, Bench, bench_of, served

from holdfast.errors import InputError, StorageError
from holdfast.knowledge.records import Record, content_hash, reading_order
from holdfast.knowledge.store import KnowledgeStore
from holdfast.tokens.counter import open_counter

WRITER = Path(__file__).with_name("knowledge_writer.py")
MAY = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def knowledge_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    with served(tmp_path_factory.mktemp("mcp")) as server:
        yield server


@pytest.fixture(params=list(ADAPTERS))
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    yield from bench_of(request, tmp_path)


@pytest.fixture
def store(bench: Bench) -> KnowledgeStore:
    return bench.open()


def talk(session: str, lines: list[tuple[str, str]], time: datetime | None = None, **more: Any) -> list[Record]:
    return [
        Record(text, session=session, speaker=speaker, position=place, kind="turn", time=time, **more)
        for place, (speaker, text) in enumerate(lines)
    ]


NOTES = [
    Record("The staging server is called heron and stands in Frankfurt.", tags=("infra", "servers"), time=MAY),
    Record("Payments are settled every Friday by the finance team.", tags=("finance",), time=MAY + timedelta(days=10)),
    Record("The cafeteria closes at three in the afternoon.", tags=("office",), time=MAY + timedelta(days=20)),
    Record("Backups of the database are kept for ninety days.", tags=("infra",), source="handbook.md#Backups", trust="high"),
]


def found(store: KnowledgeStore, query: str, **more: Any) -> list[str]:
    return [hit.record.text for hit in store.search(query, **more)]


def test_a_record_that_was_added_is_found_and_read_back(store: KnowledgeStore) -> None:
    report = store.add(NOTES)
    assert (report.added, report.updated, report.unchanged) == (4, 0, 0)
    assert report.ids == tuple(note.id for note in NOTES)
    assert found(store, "how is the staging server called?")[0] == NOTES[0].text
    assert found(store, "when are payments settled?")[0] == NOTES[1].text
    assert store.get(NOTES[3].id) == NOTES[3]
    assert store.get("no such id") is None


def test_inflected_words_meet(store: KnowledgeStore) -> None:
    store.add(NOTES)
    assert found(store, "settling the payment")[0] == NOTES[1].text
    assert found(store, "backup database")[0] == NOTES[3].text


def test_adding_twice_adds_once(store: KnowledgeStore) -> None:
    store.add(NOTES)
    again = store.add([Record(note.text, tags=note.tags, time=note.time, source=note.source, trust=note.trust) for note in NOTES])
    assert (again.added, again.updated, again.unchanged) == (0, 0, 4)
    assert again.embedded == 0
    assert store.stats().records == 4
    twice = store.add([Record("Said twice in one go."), Record("Said twice in one go.")])
    assert (twice.added, twice.unchanged) == (1, 1)


def test_the_same_thing_with_another_tag_has_both(store: KnowledgeStore) -> None:
    store.add([Record("The lease ends in June.", tags=("office",))])
    report = store.add([Record("The lease ends in June.", tags=("contracts",))])
    assert (report.added, report.updated) == (0, 1)
    (record,) = store.records()
    assert set(record.tags) == {"office", "contracts"}
    assert found(store, "lease", tags=["office", "contracts"]) == ["The lease ends in June."]


def test_another_content_under_the_same_id_replaces_it_everywhere(store: KnowledgeStore) -> None:
    store.add([Record("The door code is walnut.", id="door"), Record("The gate is green.", id="gate")])
    report = store.add([Record("The door code is chestnut.", id="door")])
    assert (report.added, report.updated, report.unchanged) == (0, 1, 0)
    assert store.stats().records == 2
    changed = store.get("door")
    assert changed is not None
    assert changed.text == "The door code is chestnut."
    assert "The door code is walnut." not in found(store, "walnut door code")


def test_all_fields_come_back(bench: Bench) -> None:
    whole = Record(
        "First line: with a colon\n\n---\nand dashes --- and \"quotes\", 'more', # hash\r\n\ttab, trailing space \n",
        id="note/1: odd ~ id é",
        tags=("a tag, with comma", "ünï", "[x]", "true"),
        session="trip/day one",
        source="https://example.org/a?b=c#d",
        speaker='O\'Neil: "Zoë"',
        time=datetime(2024, 2, 29, 23, 59, 59, 123000, tzinfo=UTC),
        kind="turn",
        trust="low",
        position=7,
        role="person",
        extra={"nested": {"list": [1, 2.5, None, True, "ü\u2028"]}, "page": 3},
    )
    bare = Record("yes")
    store = bench.open()
    store.add([whole, bare])
    for one in (store, bench.open()):
        assert one.get(whole.id) == whole
        assert sorted(one.records(), key=reading_order) == sorted([whole, bare], key=reading_order)


def test_tags_leave_out_what_lacks_one_of_them(store: KnowledgeStore) -> None:
    store.add(NOTES)
    assert set(found(store, "the server and the database", tags=["infra"])) == {NOTES[0].text, NOTES[3].text}
    assert found(store, "the server and the database", tags=["infra", "servers"]) == [NOTES[0].text]
    assert found(store, "the server and the database", tags=["nothing"]) == []
    assert {record.text for record in store.records(tags=["infra"])} == {NOTES[0].text, NOTES[3].text}


def test_a_period_begins_with_after_and_ends_before_before(store: KnowledgeStore) -> None:
    store.add(NOTES)
    asked = "server payments cafeteria backups"
    assert set(found(store, asked, after=MAY)) == {NOTES[0].text, NOTES[1].text, NOTES[2].text}
    assert found(store, asked, before=MAY) == []
    assert found(store, asked, after=MAY, before=MAY + timedelta(days=10)) == [NOTES[0].text]
    assert set(found(store, asked, before=MAY + timedelta(days=10, milliseconds=1))) == {NOTES[0].text, NOTES[1].text}
    assert [record.text for record in store.records(after=MAY + timedelta(days=20))] == [NOTES[2].text]


def test_a_session_is_itself_and_what_is_below_it(store: KnowledgeStore) -> None:
    store.add([Record(f"The boat leaves from pier {name}.", session=name) for name in ("trip", "trip/day-1", "trip-2", "other/trip")])
    assert {hit.record.session for hit in store.search("boat pier", session="trip")} == {"trip", "trip/day-1"}
    assert {hit.record.session for hit in store.search("boat pier", session="trip/day-1")} == {"trip/day-1"}
    assert {record.session for record in store.records(session="trip-2")} == {"trip-2"}
    assert store.search("boat pier", session="tri") == []


def test_signs_in_a_session_or_tag_are_only_signs(store: KnowledgeStore) -> None:
    store.add([Record("The key is under the mat.", session="a%b_c", tags=("100%",)), Record("The key is in the pot.", session="aXbYc")])
    assert found(store, "key", session="a%b_c") == ["The key is under the mat."]
    assert found(store, "key", tags=["100%"]) == ["The key is under the mat."]
    assert found(store, "key", session="a%") == []


def test_what_no_database_holds_is_the_same_sign_in_a_record_and_in_what_is_asked_for(store: KnowledgeStore) -> None:
    """K1: NUL and half a character are replaced on both sides; neither is an error of a database."""
    store.add([Record("The key is under\0 the mat.", session="a\0", tags=("x\0y",))])
    assert found(store, "the k\0ey under the mat", session="a\0", tags=["x\0y"]) == ["The key is under\ufffd the mat."]
    assert found(store, "key", session="\ud800") == []


def test_no_more_than_asked_for_and_best_first(store: KnowledgeStore) -> None:
    store.add([Record(f"Meeting {number} was about the harvest.") for number in range(20)])
    store.add([Record("The harvest festival of apples: apples, apples and cider.")])
    hits = store.search("apples at the harvest festival", top_k=5)
    assert len(hits) == 5
    assert hits[0].record.text.startswith("The harvest festival")
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.record.id for hit in hits}) == 5


def test_what_many_sessions_found_is_one_answer(store: KnowledgeStore) -> None:
    """K2: the same words from the same source take one place of those that are asked for, and the answer says how often they were found."""
    again = [Record("The mast is 14 metres high.", kind="finding", source="survey.md", session=f"run-{n}") for n in range(9)]
    store.add([*again, Record("The mast was painted in May.", kind="finding", source="survey.md", session="run-1"), *NOTES])
    hits = store.search("How high is the mast?", top_k=2)
    assert [hit.record.text for hit in hits] == ["The mast is 14 metres high.", "The mast was painted in May."]
    assert "found 8 more times in the same words" in hits[0].why.notes
    assert found(store, "How high is the mast?", top_k=1, session="run-7") == ["The mast is 14 metres high."]


def test_a_budget_bounds_the_tokens_of_all_results(store: KnowledgeStore) -> None:
    store.add(
        [Record(f"Report {number} on the lighthouse: " + "the lamp was cleaned and the log was kept. " * number) for number in range(1, 16)]
    )
    counter = open_counter()
    hits = store.search("report on the lighthouse lamp", top_k=15, budget=300)
    assert hits
    assert sum(counter.count_text(hit.text) for hit in hits) <= 300
    assert len(hits) < len(store.search("report on the lighthouse lamp", top_k=15))
    assert store.search("report on the lighthouse lamp", budget=0) == []


def test_a_result_says_why_it_was_found(store: KnowledgeStore) -> None:
    store.add(NOTES)
    hit = store.search("staging server in Frankfurt")[0]
    line = str(hit.why)
    assert "\n" not in line
    assert re.search("frankfurt|heron|stage|server", line, re.IGNORECASE)


@pytest.mark.parametrize("query", ["", "   \n\t"])
def test_an_empty_question_is_refused(store: KnowledgeStore, query: str) -> None:
    with pytest.raises(InputError, match="empty"):
        store.search(query)


def test_what_makes_no_sense_is_refused(store: KnowledgeStore) -> None:
    with pytest.raises(InputError):
        store.search("server", top_k=0)
    with pytest.raises(InputError):
        store.search("server", budget=-1)
    for name in ("after", "before", "now"):
        wrong: Any = {name: "2026-05-04"}
        with pytest.raises(InputError, match=f"`{name}` is a datetime, and not '2026-05-04'"):
            store.search("server", **wrong)
    with pytest.raises(InputError, match="zone"):
        store.search("server", after=datetime(2026, 5, 4))  # noqa: DTZ001 - a time without a zone is what is refused
    with pytest.raises(InputError):
        store.search("server", tags="infra")
    with pytest.raises(InputError):
        store.forget_text("  ")


@pytest.mark.parametrize("query", ['"', "' OR 1=1 --", "NEAR(a b)", "a AND NOT b*", "col:val ^x", "\0\x01", "%_%", "?!…", "(((", "💥"])
def test_any_text_is_a_question(store: KnowledgeStore, query: str) -> None:
    store.add(NOTES)
    store.search(query)
    assert store.stats().records == 4


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("我们决定使用 PostgreSQL 作为主数据库。", "主数据库用什么？"),
        ("会議は金曜日の午後三時に始まります。", "会議はいつ始まりますか"),
        ("Die Häuser am Fluss wurden 1910 gebaut.", "Haus am Fluss"),
        ("Машины стоят в гараже за домом.", "где машина"),
        ("L'équipe a choisi le café près du théâtre.", "quel cafe a-t-on choisi"),
        ("The launch is on 🚀 pad 39A — naïve façade.", "naive facade launch pad"),
    ],
)
def test_other_scripts_and_accents_are_found(store: KnowledgeStore, text: str, query: str) -> None:
    store.add([*NOTES, Record(text)])
    assert found(store, query)[0] == text
    assert text in [record.text for record in store.records()]


def test_a_huge_text_is_kept_whole_and_found(store: KnowledgeStore) -> None:
    huge = "\n".join(f"Line {number} of the ledger says nothing of note." for number in range(20_000)) + "\nThe zeppelin was sold."
    record = Record(huge, id="ledger")
    store.add([record, *NOTES])
    assert store.get("ledger") == record
    assert store.search("who sold the zeppelin")[0].record.id == "ledger"


def test_neighbours_lend_their_words_but_not_across_sessions(store: KnowledgeStore) -> None:
    store.add(
        talk(
            "s1",
            [
                ("Ann", "Did the parrot get its vaccination at the clinic?"),
                ("Bob", "Yes, on Tuesday, and it was quite calm."),
                ("Ann", "Good to hear."),
                ("Bob", "Shall we talk about the roof?"),
                ("Ann", "The tiles arrive next month."),
                ("Bob", "Then we need scaffolding."),
                ("Ann", "I will order it."),
            ],
        )
        + talk("s2", [("Cid", "Yes, on Monday, and it was quite loud.")])
    )
    texts = found(store, "parrot vaccination clinic", top_k=2)
    assert texts == ["Did the parrot get its vaccination at the clinic?", "Yes, on Tuesday, and it was quite calm."]


def test_with_an_assistant_the_round_is_found_as_one(store: KnowledgeStore) -> None:
    lines = [
        ("user", "I keep bees on the roof. How do I get them through winter?"),
        ("assistant", "Feed them fondant and insulate the hive with cork."),
        ("user", "Which paint is right for a fence?"),
        ("assistant", "Use an oil stain."),
    ]
    store.add(
        [
            Record(text, session="chat", position=place, role="assistant" if who == "assistant" else "person", kind="turn")
            for place, (who, text) in enumerate(lines)
        ]
    )
    hit = store.search("what did you say about cork insulation of the hive", top_k=1)[0]
    assert [record.text for record in hit.records] == [lines[0][1], lines[1][1]]
    assert "fondant" in hit.text


def test_a_date_in_the_question_raises_what_fits_it(store: KnowledgeStore) -> None:
    store.add(
        [Record("We went swimming in the lake.", id=f"swim-{month}", time=datetime(2026, month, 14, tzinfo=UTC)) for month in (1, 3, 5, 7)]
    )
    now = datetime(2026, 8, 1, tzinfo=UTC)
    assert store.search("swimming in the lake in March 2026", now=now)[0].record.id == "swim-3"
    june = datetime(2026, 6, 10, tzinfo=UTC)
    assert store.search("swimming in the lake last month", now=june)[0].record.id == "swim-5"
    assert len(store.search("swimming in the lake last month", now=june)) == 4


def test_who_is_named_in_the_question_comes_first(store: KnowledgeStore) -> None:
    store.add(talk("s", [("Ann", "I like hiking in the hills."), ("Bob", "I like hiking in the hills.")]))
    assert store.search("where does Bob like hiking", top_k=1)[0].record.speaker == "Bob"


def test_forgetting_removes_the_record_everywhere(store: KnowledgeStore) -> None:
    store.add(NOTES)
    assert store.forget([NOTES[0].id, "no such id", NOTES[0].id]) == 1
    assert store.get(NOTES[0].id) is None
    assert NOTES[0].text not in found(store, "staging server heron")
    assert NOTES[0].text not in [record.text for record in store.records()]
    assert store.stats().records == 3
    assert store.forget([NOTES[0].id]) == 0
    assert store.add([NOTES[0]]).added == 1


def test_forgetting_by_text_finds_it_in_any_case_quotes_and_spacing(store: KnowledgeStore) -> None:
    store.add(
        [
            Record("Call me at “Elm  Street 5”, please.", id="a"),
            Record("ELM STREET 5 is where she lives.", id="b"),
            Record("Elm trees.", id="c"),
        ]
    )
    store.add([Record("A plain text.", id="d", source="letters/elm street 5.txt")])
    assert sorted(store.forget_text("elm street 5")) == ["a", "b", "d"]
    assert [record.id for record in store.records()] == ["c"]
    assert store.forget_text("elm street 5") == []


def test_nothing_of_what_was_forgotten_is_left_in_any_file(bench: Bench) -> None:
    if bench.files is None:
        pytest.skip("its files belong to a database server")
    word = "Xylograph-Quincunx"
    store = bench.open()
    store.add(NOTES)
    store.add([Record(f"The word is {word} number {number}.", tags=("word",), speaker=word) for number in range(40)])
    store.search(f"the word is {word}")
    store.close()
    assert _shows(bench.files, word), "the search below would find nothing even if nothing were forgotten"
    second = bench.open()
    assert len(second.forget_text(word)) == 40
    assert _shows(bench.files, word) == []
    second.close()
    assert _shows(bench.files, word) == []
    assert bench.open().stats().records == 4


def _shows(folder: Path, text: str) -> list[str]:
    """The files in which the text, or the terms that it is indexed under, can be read."""
    forms = {form.encode(encoding) for word in text.split("-") for form in (word, word.lower()) for encoding in ("utf-8", "utf-16-le")}
    return [
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if (path.is_file() and any(form in path.read_bytes() for form in forms)) or "quincunx" in path.name.lower()
    ]


def test_a_store_opened_again_has_everything(bench: Bench) -> None:
    first = bench.open()
    first.add(NOTES)
    first.close()
    first.close()
    second = bench.open()
    assert sorted(second.records(), key=reading_order) == sorted(NOTES, key=reading_order)
    assert found(second, "staging server")[0] == NOTES[0].text
    assert second.add(NOTES).unchanged == 4


def test_a_closed_store_says_so_and_does_not_open_again_by_itself(bench: Bench) -> None:
    store = bench.open()
    store.add(NOTES)
    store.close()
    store.close()
    uses: dict[str, Callable[[], object]] = {
        "add": lambda: store.add([Record("Something new.")]),
        "search": lambda: store.search("staging server"),
        "get": lambda: store.get(NOTES[0].id),
        "records": lambda: list(store.records()),
        "forget": lambda: store.forget([NOTES[0].id]),
        "forget_text": lambda: store.forget_text("staging"),
        "stats": store.stats,
    }
    for name, use in uses.items():
        with pytest.raises(StorageError, match=r"is closed\. Open it again"):
            pytest.fail(f"{name} gave {use()!r}")
    assert bench.open().stats().records == len(NOTES)


def test_what_one_store_adds_or_forgets_another_sees_at_once(bench: Bench) -> None:
    one, other = bench.open(), bench.open()
    assert found(other, "staging server") == []
    one.add(NOTES)
    assert found(other, "staging server")[0] == NOTES[0].text
    other.forget([NOTES[0].id])
    assert NOTES[0].text not in found(one, "staging server")
    assert one.get(NOTES[0].id) is None


def test_a_damaged_index_is_made_again(bench: Bench) -> None:
    if bench.damage is None:
        pytest.skip("it has no index apart from its records")
    store = bench.open()
    store.add(NOTES)
    store.close()
    assert bench.damage()
    again = bench.open()
    assert found(again, "staging server")[0] == NOTES[0].text
    assert again.stats().records == 4


def test_statistics_say_what_is_there(store: KnowledgeStore) -> None:
    assert store.stats().records == 0
    store.add(NOTES)
    store.add(talk("s", [("Ann", "Hello."), ("Bob", "Hi.")]))
    stats = store.stats()
    assert (stats.records, stats.sessions) == (6, 1)
    assert (stats.oldest, stats.newest) == (MAY, MAY + timedelta(days=20))
    assert stats.tags["infra"] == 2
    assert stats.kinds == {"note": 4, "turn": 2}
    assert stats.problems == ()
    assert stats.where


def test_progress_is_told_up_to_the_last_record(store: KnowledgeStore) -> None:
    told: list[tuple[int, int | None]] = []
    store.add([Record(f"Note {number}") for number in range(300)], progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (300, 300)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    unsized: list[int] = []
    store.add((Record(f"Note {number}") for number in range(3)), progress=lambda done, total: unsized.append(done))
    assert unsized[-1] == 3
    assert store.add([]).added == 0


def test_two_processes_that_add_at_once_lose_nothing(bench: Bench) -> None:
    bench.open().close()
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    writers = [subprocess.Popen([sys.executable, str(WRITER), bench.arguments, name, "12"], **pipes) for name in ("ann", "bob")]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write(b"go\n")
        writer.stdin.flush()
    for writer in writers:
        _, said = writer.communicate(timeout=240)
        assert writer.returncode == 0, said.decode()
    store = bench.open()
    expected = [f"Writer {name} wrote line {number}." for name in ("ann", "bob") for number in range(12)]
    shared = [f"Both of them wrote line {number}." for number in range(12)]
    kept = {record.text: set(record.tags) for record in store.records()}
    assert sorted(kept) == sorted([*expected, *shared])
    assert [text for text in shared if kept[text] != {"ann", "bob"}] == [], "one writer overwrote what the other had added"
    assert store.stats().problems == ()


def test_threads_share_one_store(store: KnowledgeStore) -> None:
    failures: list[BaseException] = []

    def work(name: str) -> None:
        try:
            for number in range(5):
                store.add([Record(f"Thread {name} wrote {number}.")])
                assert found(store, f"thread {name}")
        except BaseException as error:  # noqa: BLE001 - handed to the test below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob", "cid")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert store.stats().records == 15


def test_ids_are_made_from_content() -> None:
    base = Record("Yes.", session="s", position=1, speaker="Ann", time=MAY)
    assert base.id == content_hash(base) == Record("Yes.", session="s", position=1, speaker="Ann", time=MAY, tags=("x",), trust="low").id
    others = [
        Record("Yes!", session="s", position=1, speaker="Ann", time=MAY),
        Record("Yes.", session="t", position=1, speaker="Ann", time=MAY),
        Record("Yes.", session="s", position=2, speaker="Ann", time=MAY),
        Record("Yes.", session="s", position=1, speaker="Bob", time=MAY),
        Record("Yes.", session="s", position=1, speaker="Ann"),
    ]
    assert len({base.id, *(other.id for other in others)}) == 6


def test_meaning_finds_what_shares_no_word(store: KnowledgeStore) -> None:
    """K3, in every adapter that has an embedder: sentence and word vectors count, not keywords alone."""
    texts = ["My puppy was ill last week.", "The invoice is due on Friday.", "The roof leaks."]
    store.add([Record(text) for text in texts])
    (best, *_) = store.search("health of the dog")
    assert best.record.text == texts[0]
    assert (best.why.sentence or 0) > 0
    assert (best.why.token or 0) > 0


def test_whom_a_question_names_is_said_as_a_reason(store: KnowledgeStore) -> None:
    """K3: who spoke counts in every adapter; how much, the unit test of the weights says."""
    store.add([Record("I like hiking in the hills.", speaker=name, session=name, position=0) for name in ("Ann", "Bob")])
    first, second = store.search("who likes hiking in the hills, Bob?")
    assert (first.record.speaker, first.why.speaker, second.why.speaker) == ("Bob", 1.0, 0.0)
