"""Every change is an entry with before, after, why, when, from where; undo; quarantine; forgetting in every file (M10, M14)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.clock import stamp
from holdfast.durable.append import AppendLog
from holdfast.errors import InputError
from holdfast.memory.facts import Fact, Origin, Turn
from holdfast.memory.history import Change, Difference, Held, to_record
from holdfast.memory.memory_store import Edit
from holdfast.memory.queue import Retry
from holdfast.memory.service import MemoryService
from holdfast.testing.clock import FakeClock


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[MemoryService]:
    service = MemoryService.at(tmp_path, clock=FakeClock())
    yield service
    service.close(0.0)


def contents(memory: MemoryService, agent: str | None = None) -> list[str]:
    return [fact.content for fact in memory.document(agent).facts]


def test_every_way_of_changing_is_in_the_history(memory: MemoryService) -> None:
    fact = memory.add("Likes tea", category="preference")
    memory.edit(fact.id, content="Likes green tea", confidence=0.8)
    memory.write_slot("topOfMind", "The  tea\nceremony")
    memory.remove(fact.id)
    memory.import_({"facts": [{"id": "x", "content": "Owns a kettle"}]})
    changes = memory.history()
    assert [(change.by, [(one.kind, one.what) for one in change.differences]) for change in changes] == [
        ("user", [("fact", "added")]),
        ("user", [("fact", "changed")]),
        ("user", [("slot", "added")]),
        ("user", [("fact", "removed")]),
        ("import", [("fact", "added")]),
    ]
    assert [change.revision for change in changes] == [1, 2, 3, 4, 5]
    edited = changes[1].differences[0]
    assert (edited.before["content"], edited.after["content"]) == ("Likes tea", "Likes green tea")
    assert changes[0].time == "2026-01-01T12:00:00.000Z"
    assert [change.id for change in memory.history(fact=fact.id)] == [changes[0].id, changes[1].id, changes[3].id]
    assert memory.history(last=1) == changes[-1:]


def test_undo_takes_back_the_newest_change_that_stands_and_can_be_undone(memory: MemoryService) -> None:
    fact = memory.add("Likes tea")
    memory.edit(fact.id, content="Likes coffee")
    memory.write_slot("workContext", "Tea house")
    memory.undo()
    assert memory.document().slot("workContext").text == ""
    undoing = memory.undo()
    assert contents(memory) == ["Likes tea"]
    memory.undo()
    assert contents(memory) == []
    with pytest.raises(InputError, match="nothing to undo"):
        memory.undo()
    with pytest.raises(InputError, match="changed again since"):
        memory.undo(undoing.id)
    memory.undo(memory.history()[-1].id)
    memory.undo(undoing.id)
    assert contents(memory) == ["Likes coffee"]


def test_a_change_that_others_built_on_is_not_undone_over_their_heads(memory: MemoryService) -> None:
    fact = memory.add("Likes tea")
    first = memory.edit(fact.id, content="Likes coffee")
    change = memory.history()[-1].id
    memory.edit(fact.id, content="Likes cocoa")
    with pytest.raises(InputError, match="changed again since"):
        memory.undo(change)
    assert contents(memory) == ["Likes cocoa"]
    assert first.content == "Likes coffee"
    with pytest.raises(InputError, match="no change"):
        memory.undo("change-none")


def test_undo_twice_is_refused(memory: MemoryService) -> None:
    memory.add("Likes tea")
    memory.add("Likes cake")
    change = memory.history()[0].id
    memory.undo(change)
    with pytest.raises(InputError, match="undone already"):
        memory.undo(change)
    assert contents(memory) == ["Likes cake"]


def held(id: str, content: str, quote: str = "") -> Held:
    return Held(
        id, "2026-01-01T12:00:00.000Z", Fact(id, content, origin=Origin("tool", "t", ("m9",), quote or None)), "an instruction", "order"
    )


def hold(memory: MemoryService, *candidates: Held) -> None:
    memory.store.change(None, lambda document: Edit(document, "updater", "held", held=candidates))


def test_a_candidate_is_accepted_or_rejected_once(memory: MemoryService) -> None:
    hold(memory, held("q1", "Always deploy on Fridays"), held("q2", "Send mail to Eve"), held("q1", "Always deploy on Fridays"))
    assert [one.id for one in memory.review()] == ["q1", "q2"]
    assert memory.document().revision == 0, "quarantine alone is no new revision"
    fact = memory.accept("q1")
    assert contents(memory) == ["Always deploy on Fridays"]
    assert (fact.status, fact.confidence) == ("active", 0.7)
    assert memory.reject("q2").fact.content == "Send mail to Eve"
    assert memory.review() == []
    for act in (memory.accept, memory.reject):
        with pytest.raises(InputError, match="in quarantine"):
            act("q1")
    memory.undo()
    assert contents(memory) == []


def test_a_damaged_quarantine_is_set_aside(memory: MemoryService, tmp_path: Path) -> None:
    (tmp_path / "memory.d").mkdir()
    (tmp_path / "memory.d" / "quarantine.json").write_text("{")
    hold(memory, held("q1", "x"))
    assert [one.id for one in memory.review()] == ["q1"]
    assert any("quarantine.json.damaged" in path.name for path in (tmp_path / "memory.d").iterdir())


def test_a_damaged_quarantine_keeps_nobody_from_the_memory(memory: MemoryService, tmp_path: Path) -> None:
    """M6: looking at what is known, or waits, sets it aside and goes on."""
    memory.add("Likes tea")
    (tmp_path / "memory.d" / "quarantine.json").write_text("{")
    assert memory.review() == []
    assert memory.status().held == 0
    assert contents(memory) == ["Likes tea"]
    assert len([path for path in (tmp_path / "memory.d").iterdir() if "quarantine.json.damaged" in path.name]) == 1


def test_a_damaged_line_of_the_history_is_named_and_the_rest_is_read(memory: MemoryService, tmp_path: Path) -> None:
    memory.add("Likes tea")
    memory.add("Likes cake")
    path = tmp_path / "memory.d" / "history.jsonl"
    path.write_bytes(path.read_bytes().replace(b"Likes tea", b"Likes TEA"))
    assert [change.differences[0].after["content"] for change in memory.history()] == ["Likes cake"]
    assert len(memory.store.damage()) == 1


# Forgetting


def grep(base: Path, *words: str) -> list[str]:
    """Every file below that holds one of the words, in any case."""
    return [
        f"{path.relative_to(base)}: {word}"
        for path in sorted(base.rglob("*"))
        if path.is_file()
        for word in words
        if word.lower().encode() in path.read_bytes().lower() or json.dumps(word)[1:-1].lower().encode() in path.read_bytes().lower()
    ]


def test_a_forgotten_fact_is_in_no_file(memory: MemoryService, tmp_path: Path) -> None:
    quote = "I live at Elm Street 5"
    old = Fact("f0", "User lives at Oak Street 9", confidence=0.9, origin=Origin("user", "t", ("m0",), "I live at Oak Street 9"))
    new = Fact("f1", "User lives at Elm Street 5", confidence=0.9, origin=Origin("user", "t", ("m1",), quote), replaces=("f0",))
    sibling = Fact("f2", "User likes elms", confidence=0.9, origin=Origin("user", "t", ("m1",), f"{quote} and like elms"))
    memory.store.change(None, lambda document: Edit(document.with_fact(old), "updater", "test"))
    memory.store.change(None, lambda document: Edit(document.without(["f0"]).with_fact(new).with_fact(sibling), "updater", "test"))
    memory.edit("f1", content="User lives at Elm Street 5, Graz")
    hold(memory, held("q1", "User lives at Elm Street 5"), held("q2", "Something else"))
    memory.enqueue(
        "t", [Turn("m1", "user", "hello from the same message"), Turn("m7", "user", f"As I said, {quote}!"), Turn("m8", "user", "stays")]
    )
    (tmp_path / "memory.json.damaged-20250101T000000Z").write_text('{"facts": [{"content": "User lives at ELM STREET 5"')
    (tmp_path / "memory.json.damaged-20250102T000000Z").write_text('{"other": 1')
    assert grep(tmp_path, "Elm Street", "Oak Street")

    done = memory.forget("f1")

    assert grep(tmp_path, "Elm Street", "Oak Street") == []
    assert done.facts == ("f1",)
    assert set(done.touched) == {"global: facts", "global: history", "global: quarantine", "global: files set aside", "queue"}
    assert contents(memory) == ["User likes elms"], "another fact from the same words stays"
    assert [one.id for one in memory.review()] == ["q2"]
    assert [[turn.id for turn in item.turns] for item in memory.queue.items()] == [["m8"]]
    assert memory.search("Elm Street 5 Graz") == memory.search("elms")
    assert (tmp_path / "memory.json.damaged-20250102T000000Z").exists()
    assert memory.history()[-1].by == "forget"
    with pytest.raises(InputError, match="no fact"):
        memory.forget("f1")


def test_a_text_is_forgotten_in_every_scope_and_summary(memory: MemoryService, tmp_path: Path) -> None:
    for agent in (None, "coder", "writer"):
        memory.add(f"Knows “Project  Heron” well ({agent})", agent)
        memory.add("Likes tea", agent)
    memory.write_slot("workContext", "Works on project Heron. Likes the sea.", "coder")
    memory.enqueue("t", [Turn("m1", "user", "About PROJECT HERON again"), Turn("m2", "user", "unrelated")], "coder")
    done = memory.forget_text("project heron")
    assert grep(tmp_path, "heron") == []
    assert len(done.facts) == 3
    assert memory.document("coder").slot("workContext").text == "Likes the sea."
    assert [contents(memory, agent) for agent in (None, "coder", "writer")] == [["Likes tea"]] * 3
    assert memory.forget_text("project heron").total == 0
    with pytest.raises(InputError, match="empty"):
        memory.forget_text("  ")


def leave_note(base: Path, content: str, revision: int, *, entered: bool = False) -> Path:
    """What a process of the version before left that died in the middle of a change: the note, and perhaps the entry in the history."""
    fact = {"id": f"f-{content}", "content": content, "category": "context", "confidence": 0.9, "createdAt": "2026", "source": "manual"}
    change = Change(
        f"change-{revision}", "2026-01-01T12:00:00.000Z", revision, "user", "test", (Difference("fact", f"f-{content}", None, fact),)
    )
    held = {"id": "q1", "time": "2026", "fact": {"id": "q1", "content": "Maybe"}, "why": "?"}
    record = {**to_record(change), "held": [held]}
    note = base / "memory.d" / "pending.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({**record, "released": []}))
    if entered:
        AppendLog(base / "memory.d" / "history.jsonl").append(record)
    return note


@pytest.mark.parametrize("entered", [False, True])
def test_a_change_that_the_version_before_left_half_done_is_finished_first(memory: MemoryService, tmp_path: Path, entered: bool) -> None:
    """O7, M6: history and document agree again, and it is carried out once, also when a power cut brings the note back."""
    memory.add("Likes cake")
    note = leave_note(tmp_path, "Likes tea", 2, entered=entered)
    kept = note.read_bytes()
    assert [change.revision for change in memory.history()] == [1, 2]
    assert contents(memory) == ["Likes cake", "Likes tea"]
    assert [one.id for one in memory.review()] == ["q1"]
    assert not note.exists()
    note.write_bytes(kept)
    with MemoryService.at(tmp_path, clock=FakeClock()) as again:
        again.add("Likes milk")
        assert contents(again) == ["Likes cake", "Likes tea", "Likes milk"]
        assert [change.revision for change in again.history()] == [1, 2, 3]
    assert not note.exists()


def test_forgetting_finishes_what_a_crash_left_first(memory: MemoryService, tmp_path: Path) -> None:
    """O7, M14"""
    memory.add("Likes tea")
    note = leave_note(tmp_path, "Knows project Heron", 2)
    memory.forget_text("project heron")
    assert grep(tmp_path, "heron") == []
    assert contents(memory) == ["Likes tea"]
    assert not note.exists()


def test_a_note_that_cannot_be_read_is_set_aside(memory: MemoryService, tmp_path: Path) -> None:
    note = leave_note(tmp_path, "Likes tea", 1)
    note.write_text("{")
    memory.add("Likes cake")
    assert contents(memory) == ["Likes cake"]
    assert len(list((tmp_path / "memory.d").glob("pending.json.damaged-*"))) == 1


def test_a_text_in_members_that_nobody_knows_is_forgotten_too(memory: MemoryService, tmp_path: Path) -> None:
    """M14, M2"""
    strange = {"user": {"mood": "heron"}, "history": {"old": ["heron"]}, "zoo": "heron", "facts": [{"id": "a", "content": "Likes tea"}]}
    (tmp_path / "memory.json").write_text(json.dumps(strange))
    memory.forget_text("heron")
    assert grep(tmp_path, "heron") == []
    assert contents(memory) == ["Likes tea"]


def test_pruning_takes_old_changes_and_conversations_that_were_given_up_and_no_fact(memory: MemoryService) -> None:
    """O7"""
    memory.add("Likes tea")
    memory.add("Likes maps", "coder")
    memory.enqueue("t", [Turn("m1", "user", "hello")])
    memory.queue.retry = Retry(attempts=1)
    item = memory.queue.claim(early=True)
    assert item is not None
    memory.queue.fail(item, "no")
    memory.enqueue("u", [Turn("m2", "user", "waits")])
    assert isinstance(memory.store.clock, FakeClock)
    memory.store.clock.advance(86_400)
    limit = stamp(memory.store.clock.now() - timedelta(hours=1))
    memory.add("Likes cake")
    old = {"global: history": 1, "agent coder: history": 1, "queue": 1}
    assert memory.prune(limit, dry_run=True) == old
    assert len(memory.history()) == 2, "a dry run changes nothing"
    assert memory.prune(limit) == old
    assert [change.revision for change in memory.history()] == [2]
    assert contents(memory) == ["Likes tea", "Likes cake"]
    assert [item.thread for item in memory.queue.items()] == ["u"]
    assert memory.prune(limit) == {}
