"""O4: what the page of a conversation shows, and how drawings treat texts and numbers."""

from __future__ import annotations

from typing import Any

from holdfast.context.records import MessageRecord, SummaryRecord, records_of
from holdfast.context.view import PlainMessage
from holdfast.server.routes import html_pages
from holdfast.server.routes.chat_view import PAGE, Fold, chat_view, entries_of, live_entries
from holdfast.server.routes.memory_routes import compared
from holdfast.server.runs import Progress
from holdfast.talk import Subagent, Token, ToolCalled, ToolFinished


def said(*texts: str) -> list[PlainMessage]:
    return [PlainMessage("human" if at % 2 == 0 else "ai", text, f"m{at}") for at, text in enumerate(texts)]


def call(id: str, name: str = "ls", args: Any = None) -> dict[str, Any]:
    return {"id": id, "name": name, "args": args or {}, "type": "tool_call"}


def test_results_stand_within_their_calls_however_often_an_id_comes_back() -> None:
    """O4: some servers give every call the same id; order tells them apart."""
    messages = [
        PlainMessage("ai", "", "a1", tool_calls=[call("c"), call("d")]),
        PlainMessage("tool", "first", "r1", tool_call_id="c"),
        PlainMessage("tool", "other", "r2", tool_call_id="d"),
        PlainMessage("ai", "", "a2", tool_calls=[call("c"), call("lost")]),
        PlainMessage("tool", "second", "r3", tool_call_id="c"),
        PlainMessage("tool", "of nobody", "r4", tool_call_id="x"),
    ]
    entries = entries_of(records_of(messages), (), waiting={"lost"})
    assert [(entry.id, entry.number) for entry in entries] == [("a1", 1), ("a2", 4), ("r4", 6)]
    assert [[(one.text, one.status) for one in entry.calls] for entry in entries[:2]] == [
        [("first", "success"), ("other", "success")],
        [("second", "success"), ("", "waits")],
    ]


def test_a_task_is_a_card_with_how_it_ended() -> None:
    """A4, O4"""
    result = {"status": "turn_capped", "thread": "subagent-1", "turns": 3, "tokens": 40, "seconds": 1.5, "output": "half"}
    asked = PlainMessage("ai", "", "a", tool_calls=[call("c", "task", {"description": "Read", "subagent_type": "bash"})])
    answer = MessageRecord("r", "tool", "half", tool_call_id="c", extras={"artifact": result})
    card = entries_of([*records_of([asked]), answer], ())[0].calls[0].task
    assert card is not None and (card.description, card.kind, card.status, card.thread, card.turns) == (
        *("Read", "bash", "turn_capped", "subagent-1"),
        3,
    )


def test_what_left_is_folded_with_the_summary_in_its_place() -> None:
    """O4, S8: a message that stayed, those that left, the summary, and what a model still sees."""
    messages = said("goal", "b", "c", "d", "e", "f")
    window = [messages[0], messages[4], messages[5]]
    summary = SummaryRecord("s", "short", covers=("m1", "m2", "m3"))
    view = chat_view(entries_of(records_of(messages), window), [summary])
    kinds = [[entry.id for entry in block.entries] if isinstance(block, Fold) else block.id for block in view.blocks]
    assert kinds == ["m0", ["m1", "m2", "m3"], "m4", "m5"]
    assert isinstance(view.blocks[1], Fold) and view.blocks[1].summary is summary
    opened = chat_view(entries_of(records_of(messages), window), [summary], at="m2")
    assert opened.asked == "m2" and "m2" in [getattr(block, "id", "") for block in opened.blocks], "who asks for one sees it"
    assert all(entry.state == "unknown" for entry in entries_of(records_of(messages), ())), "no window, no marks"


def test_a_long_conversation_is_shown_in_parts_without_a_gap() -> None:
    """O4"""
    entries = entries_of(records_of(said(*(f"t{number}" for number in range(3 * PAGE + 7)))), ())
    seen: list[Any] = []
    before: int | None = None
    while True:
        view = chat_view(entries, [], before=before)
        seen = [*view.blocks, *seen]
        if view.earlier is None:
            break
        before = view.earlier
    assert [entry.number for entry in seen] == list(range(1, len(entries) + 1))
    assert chat_view(entries, [], at="#5").first == 1 and chat_view(entries, [], at="#5").later


def test_an_upload_is_a_name_beside_the_words() -> None:
    """A12, O4: only the notice at the beginning is one."""
    notice = "<uploaded_files>\n- /mnt/user-data/uploads/a b.txt (1,200 bytes)\n</uploaded_files>\n\nlook <uploaded_files>"
    entry = entries_of(records_of([PlainMessage("human", notice, "m")]), ())[0]
    assert (entry.files, entry.text) == (("a b.txt",), "look <uploaded_files>")


def test_a_turn_is_followed_step_by_step() -> None:
    """A6, A13: text, a call with its result, a sub-agent from its start to its end."""
    progress = Progress("hello")
    for event in (
        Token("I "),
        Token("look."),
        ToolCalled("c", "task", {"description": "Read"}),
        Subagent({"type": "task_running", "call": "c", "turn": 2, "max_turns": 9, "subagent_type": "bash", "thread": "subagent-1"}),
        Subagent({"type": "task_running", "call": "nobody"}),
        ToolFinished("c", "task", "success", "done"),
        Token("There."),
    ):
        progress.take(event)
    entries = live_entries(progress)
    assert [entry.text for entry in entries] == ["hello", "I look.", "", "There."]
    made = entries[2].calls[0]
    assert made.task is not None and (made.task.turns, made.task.max_turns, made.status) == (2, 9, "success")


def test_drawings_escape_texts_and_hold_any_numbers() -> None:
    """O4: no text becomes more than text, no width is negative, nothing divides by nothing."""
    evil = '"><script>x</script>'
    for window, cap, tokens in ((0, 0, 0), (0, 0, 5), (100, 90, 250), (8_000, 7_500, 1)):
        bar = html_pages.window_bar([html_pages.Segment(evil, tokens, evil, evil)], window=window, cap=cap, label=evil)
        chart, top = html_pages.step_chart([html_pages.Point(1, tokens, evil, evil)], current=1, cap=cap, label=evil)
        gauge = html_pages.gauge({evil: tokens}, window=window, cap=cap, label=evil)
        assert top >= max(tokens, 1)
        assert "<script" not in bar + chart + gauge and 'width="-' not in bar + chart + gauge
    assert html_pages.step_chart([], current=1, cap=10, label="")[1] >= 1
    assert (
        html_pages.marked("<b>Heron</b> & heron <i>", ["heron", "<"])
        == "&lt;b&gt;<mark>Heron</mark>&lt;/b&gt; &amp; <mark>heron</mark> &lt;i&gt;"
    )
    assert html_pages.marked("İstanbul & <i>", ["stan"]) == "İstanbul &amp; &lt;i&gt;"
    points = [html_pages.Point(number, 1, "") for number in range(1, 1_000)]
    for current in (1, 500, 999):
        assert current in [point.number for point in html_pages.near(points, current)]


def test_what_changed_is_told_word_by_word() -> None:
    """M14"""
    left, right = compared("lives in Bern, likes tea", "lives in Basel, likes tea")
    assert [text for text, changed in left if changed] == ["Bern"] and [text for text, changed in right if changed] == ["Basel"]
    assert "".join(text for text, _ in left) == "lives in Bern, likes tea"
    long = "word " * 5_000
    assert compared(long, "short") == (((long, True),), (("short", True),))
