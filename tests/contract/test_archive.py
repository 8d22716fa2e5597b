"""One suite over every archive: the one on disk, the same on a simulated disk, and the one in memory (S9, M14, O7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.unit.context.plain_messages import PlainMessages

from holdfast.context.archive import Archive, FileArchive, MemoryArchive
from holdfast.context.recall import read_history, search_history
from holdfast.context.records import SummaryRecord, message_of, record_of, records_of
from holdfast.context.view import PlainMessage
from holdfast.errors import InputError
from holdfast.testing.clock import FakeClock
from holdfast.testing.disk import SimulatedDisk

Make = Callable[[], Archive]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 4, 19, 8, 0, tzinfo=UTC))


@pytest.fixture(params=["file", "simulated", "memory"])
def make(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Make]:
    """Opens the archive; opened again it is another object over the same records."""
    memory = MemoryArchive(clock=clock)
    disk = SimulatedDisk()
    opened: list[FileArchive] = []

    def open_archive() -> Archive:
        if request.param == "memory":
            return memory
        if request.param == "simulated":
            return FileArchive("/base", disk=disk, clock=clock)
        opened.append(FileArchive(tmp_path, clock=clock))
        return opened[-1]

    yield open_archive
    for archive in opened:
        archive.close()


@pytest.fixture
def archive(make: Make) -> Archive:
    return make()


def said(id: str | None, text: Any, role: str = "human", **more: Any) -> PlainMessage:
    return PlainMessage(role, text, id, **more)


TALK = [
    said("m1", "We call the staging server heron; it stands in Frankfurt."),
    said("m2", "Noted. I will look at it.", "ai", tool_calls=[{"id": "c1", "name": "bash", "args": {"command": "uptime --pretty"}}]),
    said("m3", "up 3 weeks, 2 days", "tool", tool_call_id="c1", name="bash"),
    said("m4", "It has been up for 3 weeks.", "ai"),
    said("m5", "Good. The invoice number is INV-2291."),
]


def test_what_was_added_is_read_back_word_for_word(archive: Archive) -> None:
    archive.add("t", records_of(TALK, history=TALK))
    assert [record.text for record in archive.messages("t")] == [message.content for message in TALK]
    passage = archive.read("t", "m2")
    assert passage is not None
    assert message_of(passage.record) == {
        "type": "ai",
        "content": "Noted. I will look at it.",
        "id": "m2",
        "tool_calls": TALK[1].tool_calls,
    }


@pytest.mark.parametrize(
    "content",
    [
        "",
        "line\r\nline\n\n  \ttab \x00 nul \x1b[31m",
        "half a pair \ud800 here",
        "日本語 and 🎉 and e\u0301",
        [{"type": "text", "text": "look"}, {"type": "image", "data": b"\x89PNG\x00"}],
        [{"n": float("nan")}, {"$bytes": "not ours"}, {1: 2, "1": 3}, 10**400],
        ["a", {"type": "tool_use", "input": {"deep": [[[[1]]]]}}],
    ],
)
def test_any_content_comes_back_as_it_was(archive: Archive, content: Any) -> None:
    archive.add("t", records_of([said("m1", content)]))
    passage = archive.read("t", "m1")
    assert passage is not None
    assert passage.record.exact
    assert repr(message_of(passage.record)["content"]) == repr(content)


def test_what_json_has_no_form_for_is_kept_as_its_repr_and_marked(archive: Archive) -> None:
    class Odd:
        def __repr__(self) -> str:
            return "<odd>"

    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError

    archive.add("t", records_of([said("m1", [{"type": "text", "text": "see"}, {"object": Odd(), "broken": Broken()}])]))
    passage = archive.read("t", "m1")
    assert passage is not None
    assert not passage.record.exact
    assert passage.record.content[1]["object"] == {"$repr": "<odd>"}


def test_adding_again_writes_nothing(make: Make) -> None:
    records = records_of(TALK, history=TALK)
    assert make().add("t", records) == 5
    assert make().add("t", records) == 0
    assert make().add("t", [*records[2:], *records_of([said("m6", "new")])]) == 1
    assert [record.id for record in make().messages("t")] == ["m1", "m2", "m3", "m4", "m5", "m6"]


def test_an_edited_message_is_a_second_version_and_the_newest_is_read(archive: Archive) -> None:
    archive.add("t", records_of([said("m1", "the code is 4711")]))
    archive.add("t", records_of([said("m1", "the code is 4712")]))
    passage = archive.read("t", "m1")
    assert passage is not None
    assert passage.record.text == "the code is 4712"
    assert [older.text for older in passage.older] == ["the code is 4711"]
    assert archive.read("t", f"#{passage.older[0].seq}").record.text == "the code is 4711"  # type: ignore[union-attr]  # it is there


def test_a_reference_never_takes_the_place_of_the_original(archive: Archive) -> None:
    original = said("m3", "long result " * 50, "tool", tool_call_id="c1", name="bash")
    reference = PlainMessages().with_text(original, "[cleared]", marks={"archived": "cleared"})
    assert archive.add("t", records_of([original])) == 1
    assert archive.add("t", records_of([reference])) == 0
    assert archive.originals("t", ["m3", "nothing"])["m3"].text == original.content
    assert archive.add("other", records_of([reference])) == 1, "better than nothing where the original never was"
    assert archive.has("other", ["m3"]) == set()


def test_messages_without_ids_are_all_kept_and_kept_once(archive: Archive) -> None:
    talk = [said(None, "ok"), said(None, "and now?", "ai"), said(None, "ok"), said(None, "ok"), said(None, "ok")]
    assert archive.add("t", records_of(talk)) == 5
    assert archive.add("t", records_of(talk)) == 0
    assert [record.text for record in archive.messages("t")] == ["ok", "and now?", "ok", "ok", "ok"]
    assert len({record.id for record in archive.messages("t")}) == 5


def test_a_result_archived_before_its_turn_finds_its_place(archive: Archive) -> None:
    archive.add("t", records_of([TALK[2]], history=TALK))  # cleared first, as the cheap tier does
    archive.add("t", records_of([TALK[0]], history=TALK))
    archive.add("t", records_of([TALK[1], TALK[3], TALK[4]], history=TALK))
    assert [record.id for record in archive.messages("t")] == ["m1", "m2", "m3", "m4", "m5"]
    passage = archive.read("t", "m3", around=1)
    assert passage is not None
    assert [record.id for record in passage.all] == ["m2", "m3", "m4"]


def test_reading_gives_the_neighbours_in_order_and_stops_at_the_ends(archive: Archive) -> None:
    archive.add("t", records_of(TALK, history=TALK))
    passage = archive.read("t", "m2", around=2)
    assert passage is not None
    assert [record.id for record in passage.before] == ["m1"]
    assert [record.id for record in passage.after] == ["m3", "m4"]
    assert archive.read("t", "m9") is None
    assert archive.read("nobody", "m1") is None


def test_searching_finds_the_message_with_its_sentence_and_says_why(archive: Archive) -> None:
    archive.add("t", records_of([*TALK, *[said(f"f{n}", f"Filler number {n} about the weather.") for n in range(50)]]))
    hits = archive.search("t", "in which city is heron standing?")
    assert hits[0].record.id == "m1"
    assert "Frankfurt" in hits[0].snippet
    assert "heron" in hits[0].why
    assert [hits[0].snippet[start:end] for start, end in hits[0].marks if hits[0].snippet[start:end] == "heron"]
    assert archive.search("t", "command uptime", role="ai")[0].record.id == "m2", "the arguments of tool calls are found"
    assert archive.search("t", "INV-2291")[0].record.id == "m5"


def test_searching_keeps_to_role_and_time(archive: Archive, clock: FakeClock) -> None:
    archive.add("t", records_of([said("a", "the red kite")]))
    clock.advance(86400)
    archive.add("t", records_of([said("b", "the red kite again", "ai")]))
    assert {hit.record.id for hit in archive.search("t", "kite")} == {"a", "b"}
    assert [hit.record.id for hit in archive.search("t", "kite", role="assistant")] == ["b"]
    assert [hit.record.id for hit in archive.search("t", "kite", before="2026-04-20")] == ["a"]
    assert [hit.record.id for hit in archive.search("t", "kite", after=datetime(2026, 4, 20, tzinfo=UTC))] == ["b"]
    with pytest.raises(InputError, match="not a role"):
        archive.search("t", "kite", role="pilot")
    with pytest.raises(InputError, match="not a date"):
        archive.search("t", "kite", after="yesterday")
    with pytest.raises(InputError, match="time zone"):
        archive.search("t", "kite", after=datetime(2026, 4, 20))  # noqa: DTZ001  # that is what is refused


def test_words_in_quotes_are_looked_for_as_they_stand(archive: Archive) -> None:
    archive.add(
        "t", records_of([said("a", "the kite is red, the red kite kite kite"), said("b", "a kite that is red"), said("c", "kite red")])
    )
    assert archive.search("t", '"a kite that is"')[0].record.id == "b"


@pytest.mark.parametrize(
    "query", ["", "   ", '"', "'; DROP TABLE words; --", "AND OR NOT NEAR(", "🎉", "*", "a" * 50_000, "\x00", "(((", "col:x", "-", "日本"]
)
def test_any_text_is_a_query(archive: Archive, query: str) -> None:
    archive.add("t", records_of([said("a", "party 🎉 with a * and 日本語")]))
    assert isinstance(archive.search("t", query), list)


def test_signs_without_words_are_found_as_they_are_written(archive: Archive) -> None:
    archive.add("t", records_of([said("a", "party 🎉 time"), said("b", "no party")]))
    assert [hit.record.id for hit in archive.search("t", "🎉")] == ["a"]


def test_summaries_and_echoes_of_searching_do_not_crowd_out_what_was_said(archive: Archive) -> None:
    fact = said("m1", "The vault code is 9917.")
    echoes = [
        said("s1", "The vault code is 9917.", additional_kwargs={"holdfast": {"summary": "model"}}),
        said("r1", "The vault code is 9917.", additional_kwargs={"holdfast": {"reminder": "memory"}}),
        said("x1", "", "ai", tool_calls=[{"id": "c", "name": "search_history", "args": {"query": "what is the vault code"}}]),
        said("x2", "1. [m1] The vault code is 9917.", "tool", tool_call_id="c", name="search_history"),
    ]
    archive.add("t", records_of([fact, *echoes]))
    assert archive.search("t", "what is the vault code", top_k=1)[0].record.id == "m1"
    assert "x2" not in {hit.record.id for hit in archive.search("t", "what is the vault code")}
    assert [hit.record.id for hit in archive.search("t", "vault code", role="summary")] == ["s1"]


def test_a_summary_is_a_record_of_what_it_covers(make: Make) -> None:
    summary = SummaryRecord("s1", "They set up heron.", ("m1", "m2"), 900, 40, "gpt", "extract", "s0")
    assert make().add("t", [summary]) == 1
    assert make().add("t", [summary]) == 0
    (found,) = make().summaries("t")
    assert (found.text, found.covers, found.tokens_before, found.tokens_after) == ("They set up heron.", ("m1", "m2"), 900, 40)
    assert (found.model, found.how, found.previous) == ("gpt", "extract", "s0")
    assert found.time == "2026-04-19T08:00:00.000Z"


def test_stats_and_threads_say_what_is_there(archive: Archive, clock: FakeClock) -> None:
    archive.add("b", records_of(TALK, tokens={"m1": 12, "m2": 8}))
    clock.advance(60)
    archive.add("a:1.x", [SummaryRecord("s", "text")])
    assert archive.threads() == ["a:1.x", "b"]
    stats = archive.stats("b")
    assert (stats.messages, stats.summaries, stats.tokens, stats.damage) == (5, 0, 20, ())
    assert stats.first == stats.last == "2026-04-19T08:00:00.000Z"
    assert archive.stats("nobody").messages == 0
    assert archive.has("b", ["m1", "m9"]) == {"m1"}
    assert archive.messages("nobody") == []
    assert archive.search("nobody", "anything") == []


def test_forgetting_takes_out_every_record_that_holds_the_text(archive: Archive) -> None:
    archive.add("t", records_of([*TALK, said("m6", "ok", "ai", tool_calls=[{"id": "c", "name": "send", "args": {"to": ["inv-2291"]}}])]))
    archive.add("u", [SummaryRecord("s1", "Invoice  INV-2291 was paid."), *records_of([said("n1", "nothing")])])
    archive.search("t", "invoice")
    result = archive.forget(None, text="inv-2291")
    assert (result.messages, result.summaries, result.threads) == (2, 1, ("t", "u"))
    assert [record.id for record in archive.messages("t")] == ["m1", "m2", "m3", "m4"]
    assert archive.summaries("u") == []
    assert archive.search("t", "INV-2291") == []
    assert archive.search("t", "heron")[0].record.id == "m1"
    assert archive.forget("t", text="inv-2291").messages == 0
    assert archive.add("t", records_of([said("m7", "next")])) == 1
    assert archive.messages("t")[-1].seq == 7, "numbers are not given twice"


def test_forgetting_by_id_takes_that_message_only(archive: Archive) -> None:
    archive.add("t", records_of(TALK, history=TALK))
    assert archive.forget("t", ids=["m2", "nothing"]).messages == 1
    assert [record.id for record in archive.messages("t")] == ["m1", "m3", "m4", "m5"]
    assert archive.has("t", ["m1", "m2"]) == {"m1"}
    for wrong in ({}, {"text": "a", "ids": ["b"]}, {"text": "  "}):
        with pytest.raises(InputError):
            archive.forget("t", **wrong)


def test_pruning_takes_out_what_is_older(archive: Archive, clock: FakeClock) -> None:
    archive.add("old", records_of(TALK))
    archive.add("both", records_of(TALK[:2]))
    clock.advance(86400)
    archive.add("both", records_of(TALK[2:]))
    result = archive.prune(clock.now() - timedelta(hours=1))
    assert (result.messages, result.threads) == (7, ("both", "old"))
    assert archive.threads() == ["both"]
    assert [record.id for record in archive.messages("both")] == ["m3", "m4", "m5"]
    assert archive.add("old", records_of(TALK)) == 5, "a pruned thread can be written again"


FOREIGN = ["anna@example.com", "whatsapp:+49170", "user 1", "tenant/42/7", "slack:C024|1700000.0001", "Ünal Çelik", "x" * 200, "友" * 300]
HOSTILE = [".", "..", "../x", "/etc", ".hidden", "a\\b", "a\n", ":", "~\0", "~x~y", "\ud800", "CON", "~anna-example.com~" + "0" * 32]


@pytest.mark.parametrize("thread", [*FOREIGN, *HOSTILE], ids=ascii)
def test_any_id_that_langgraph_takes_is_a_thread(archive: Archive, clock: FakeClock, thread: str) -> None:
    """S9, S16: written, read, searched, listed under its own name, forgotten and pruned; no id is another's."""
    others = [*FOREIGN, *HOSTILE, "anna-example.com", "trip-7"]
    others.remove(thread)
    archive.add(thread, records_of(TALK))
    for other in others:
        archive.add(other, records_of(TALK[:1]))
    assert archive.threads() == sorted([thread, *others])
    assert [record.id for record in archive.messages(thread)] == [message.id for message in TALK]
    assert archive.search(thread, "heron")
    assert archive.stats(thread).messages == len(TALK)
    assert archive.stats(thread).thread == thread
    assert archive.forget(thread, ids=["m2"]).threads == (thread,)
    assert archive.read(thread, "m2") is None
    clock.advance(7200)
    assert thread in archive.prune(clock.now() - timedelta(hours=1)).threads
    assert archive.threads() == []


@pytest.mark.parametrize("thread", ["", 7, "x" * 5000])
def test_what_is_no_thread_is_refused_everywhere(archive: Archive, thread: Any) -> None:
    for call in (
        lambda: archive.add(thread, records_of(TALK)),
        lambda: archive.read(thread, "m1"),
        lambda: archive.search(thread, "x"),
        lambda: archive.forget(thread, text="x"),
        lambda: archive.stats(thread),
        lambda: archive.has(thread, ["m1"]),
    ):
        with pytest.raises(InputError, match="not a usable thread"):
            call()


def test_the_tools_of_the_agent_answer_in_words(archive: Archive) -> None:
    assert "in front of you" in search_history(archive, "t", "heron")
    archive.add("t", records_of([*TALK, said("m6", "word " * 20_000)], history=TALK))
    answer = search_history(archive, "t", "where does heron stand")
    assert "[m1]" in answer
    assert "2026-04-19 08:00 user:" in answer
    assert "Frankfurt" in answer
    assert "empty" in search_history(archive, "t", " ")
    assert "None of the 6 archived messages fits" in search_history(archive, "t", "zebra")
    assert "no message 'm99'" in read_history(archive, "t", "m99")
    assert "no message ''" in read_history(archive, "t", "")
    around = read_history(archive, "t", "m2", around=1)
    assert around.index("[m1]") < around.index("[m2]") < around.index("[m3]")
    assert "uptime --pretty" in around
    assert str(TALK[0].content) in read_history(archive, "t", "[m1]"), "models copy the brackets"


def test_a_message_too_long_for_one_answer_says_how_to_read_on(archive: Archive) -> None:
    text = "".join(f"line {n}\n" for n in range(10_000))
    archive.add("t", records_of([said("m1", text)]))
    whole, start = "", 0
    while True:
        answer = read_history(archive, "t", "m1", start=start)
        body = answer.split("\n", 2 if start else 1)[-1]
        part, _, more = body.partition("\n[")
        whole += part
        if "Read on" not in more:
            break
        start = int(more.split("start=")[1].split(")")[0])
        assert len(answer) < 30_000
    assert whole.rstrip("\n") == text.rstrip("\n")


def test_langchain_messages_are_archived_as_they_are(archive: Archive) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    talk = [
        messages.HumanMessage("Hi", id="h1", additional_kwargs={"holdfast": {"pin": True}}),
        messages.AIMessage(
            [{"type": "text", "text": "Let me look."}],
            id="a1",
            tool_calls=[{"id": "c1", "name": "ls", "args": {"path": "/x"}}],
            response_metadata={"model_name": "m"},
        ),
        messages.ToolMessage("a.txt", id="t1", tool_call_id="c1", name="ls", status="error", artifact={"files": ("a.txt",)}),
    ]
    archive.add("t", records_of(talk, history=talk))
    human, ai, tool = archive.messages("t")
    assert (human.role, ai.role, tool.role) == ("human", "ai", "tool")
    assert human.marks == {"pin": True}
    assert ai.text == "Let me look."
    assert ai.calls == (("ls", {"path": "/x"}),)
    assert (tool.tool_call_id, tool.name, tool.extras["status"], tool.extras["artifact"]) == ("c1", "ls", "error", {"files": ["a.txt"]})
    rebuilt = messages.convert_to_messages([{**message_of(ai), "type": "ai"}])
    assert rebuilt[0].tool_calls == talk[1].tool_calls


def test_openai_dicts_are_archived_as_they_are(archive: Archive) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "/vault"}'}}
    archive.add("t", [record_of({"role": "assistant", "content": None, "tool_calls": [call], "id": "a1"})])
    (record,) = archive.messages("t")
    assert record.calls == (("ls", '{"path": "/vault"}'),)
    assert record.text == ""
    assert archive.search("t", "vault")[0].record.id == "a1"
    with pytest.raises(InputError, match="not a message"):
        record_of("just text")
