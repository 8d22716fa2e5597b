"""A Markdown store as a person's own folder: edits, removals, files of other programs, damage, the index (K2, K5)."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.errors import StorageError
from holdfast.events import Bus, Event
from holdfast.knowledge.markdown import MarkdownStore, RecordUnreadable
from holdfast.knowledge.records import Record
from holdfast.knowledge.store import KnowledgeStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def store(root: Path) -> MarkdownStore:
    return opened(root)


def opened(root: Path) -> MarkdownStore:
    """A store that searches by words alone: what is asked here is about its files."""
    return MarkdownStore(root, embedder=None)


def only(root: Path) -> Path:
    (path,) = (path for path in root.rglob("*.md"))
    return path


def found(store: KnowledgeStore, query: str) -> list[str]:
    return [hit.record.text for hit in store.search(query)]


def test_a_record_is_a_file_that_a_person_can_read(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The staging server is called heron.", tags=("infra",), source="handbook.md", id="heron")])
    assert only(root).name.startswith("the-staging-server-is-called-heron-")
    assert only(root).read_text() == (
        "---\nschema: 1\nid: heron\nkind: note\n"
        'tags: ["infra"]\nsource: handbook.md\ntrust: medium\n---\n\nThe staging server is called heron.\n'
    )


def test_turns_lie_in_the_folder_of_their_session_in_order(store: MarkdownStore, root: Path) -> None:
    store.add([Record(text, session="Trip: Rome/Day 1", position=place, speaker="Ann B.") for place, text in enumerate(("Hello", "Bye"))])
    paths = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.md"))
    assert [path.rpartition("-")[0] for path in paths] == ["trip-rome/day-1/00000-ann-b-hello", "trip-rome/day-1/00001-ann-b-bye"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs", "..", ".hidden/x", "a\\b", "con", "x" * 400, "é/日本", "-", "a//b"])
def test_no_name_leads_out_of_the_folder_or_hides_in_it(store: MarkdownStore, root: Path, tmp_path: Path, name: str) -> None:
    record = Record("Some text.", session=name, speaker=name, id=name[:200], position=1)
    store.add([record])
    assert MarkdownStore(root).get(record.id) == record
    assert only(root).is_relative_to(root)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]


def test_an_edit_by_hand_is_noticed(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The code is walnut.", id="code")])
    path = only(root)
    path.write_text(path.read_text().replace("walnut", "hazel"))
    assert found(store, "code") == ["The code is hazel."]
    before = path.stat()
    path.write_text(path.read_text().replace("hazel", "maple"))  # the same size, within one tick of the clock
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert found(store, "code") == ["The code is maple."]
    path.write_text(path.read_text().replace("kind: note", "kind: note\ntags: [doors, keys]"))
    assert found(store, "code") == ["The code is maple."]
    changed = store.get("code")
    assert changed is not None
    assert changed.tags == ("doors", "keys")


def test_a_removal_by_hand_is_noticed(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The code is walnut.", id="code")])
    only(root).unlink()
    assert store.get("code") is None
    assert found(store, "code") == []
    assert store.stats().records == 0


def test_a_file_without_a_head_is_a_record(store: MarkdownStore, root: Path) -> None:
    (root / "deep").mkdir(parents=True)
    (root / "deep" / "Printer.md").write_text("The printer is in room 12.\n\n---\n\nIts name is Otto.\n")
    (hit,) = store.search("where is the printer")
    assert hit.record == Record("The printer is in room 12.\n\n---\n\nIts name is Otto.", id="deep/Printer.md", source="deep/Printer.md")


def test_heads_of_other_programs_are_understood(store: MarkdownStore, root: Path) -> None:
    root.mkdir()
    (root / "obsidian.md").write_text(
        "---\ntitle: Weekly review\ndate: 2026-05-08\ntags:\n  - work\n  - '#review'\naliases: [wr]\nsession: 12\n---\n"
        "We agreed on the plan.\n"
    )
    (root / "hugo.md").write_text('---\r\ntitle: "Trip"\r\ntags: one, two\r\n---\r\nWe went to Oslo.\r\n')
    (root / "empty-head.md").write_text("---\n---\nJust text.\n")
    review = store.get("obsidian.md")
    assert review is not None
    assert (review.text, review.tags, review.session) == ("We agreed on the plan.", ("work", "review"), "12")
    assert review.time is not None
    assert review.time.date().isoformat() == "2026-05-08"
    assert review.extra == {"title": "Weekly review", "aliases": ["wr"]}
    assert found(store, "weekly review")[0] == "We agreed on the plan."
    trip = store.get("hugo.md")
    assert trip is not None
    assert trip.tags == ("one", "two")
    assert store.get("empty-head.md") == Record("Just text.", id="empty-head.md", source="empty-head.md")
    assert store.stats().problems == ()


@pytest.mark.parametrize("head", ["[" * 20_000, "tags: " + "[" * 20_000, "a: " + "{" * 20_000])
def test_a_head_that_is_nested_without_end_is_a_problem_of_that_file(store: MarkdownStore, root: Path, head: str) -> None:
    """K2, P1: the other files are read all the same."""
    root.mkdir()
    (root / "deep.md").write_text(f"---\n{head}\n---\nText.\n")
    (root / "plain.md").write_text("The printer is in room 12.\n")
    assert found(store, "where is the printer") == ["The printer is in room 12."]
    assert any("deep.md" in problem for problem in store.stats().problems)


def test_two_lines_of_dashes_around_a_paragraph_are_no_head(store: MarkdownStore, root: Path) -> None:
    root.mkdir()
    (root / "a.md").write_text("---\nA quiet paragraph\n---\nand more.\n")
    (root / "b.md").write_text("---\nnever closed: yes\nand on it goes\n")
    assert sorted(record.id for record in store.records()) == ["a.md", "b.md"]
    assert store.stats().problems == ()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"---\nid: [unclosed\n---\ntext", "not valid YAML"),
        (b"---\nschema: 1\nid: x\ntrust: enormous\n---\n\ntext\n", "trust"),
        (b"---\nschema: 1\nid: x\ntime: some day\n---\n\ntext\n", "not a date"),
        (b"---\nschema: 7\nid: x\n---\n\ntext\n", "newer"),
        (b"plain \xff\xfe bytes", "UTF-8"),
        (b"---\nschema: 1\nid: x\n---\n\n", "no text"),
        (b"", "no text"),
    ],
)
def test_a_damaged_file_is_reported_and_left_as_it_is(root: Path, content: bytes, said: str) -> None:
    events: list[Event] = []
    bus = Bus()
    bus.subscribe(events.append)
    root.mkdir()
    path = root / "broken.md"
    path.write_bytes(content)
    store = MarkdownStore(root, embedder=None, bus=bus)
    store.add([Record("A sound one.")])
    assert found(store, "sound") == ["A sound one."]
    (problem,) = store.stats().problems
    assert str(path) in problem
    assert said in problem
    assert path.read_bytes() == content
    store.search("again")
    said_aloud = [event for event in events if isinstance(event, RecordUnreadable)]
    assert len(said_aloud) == (0 if content == b"" else 1)  # once, not at every look; an empty file is no alarm
    path.write_text("Mended.")
    assert found(store, "mended") == ["Mended."]
    assert store.stats().problems == ()


def test_a_damaged_file_in_the_place_of_a_record_is_not_overwritten(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The code is walnut.", id="code")])
    path = only(root)
    path.write_text("---\nid: [broken\n---\nThe code is walnut.")
    store.add([Record("The code is walnut.", id="code")])
    assert path.read_text().startswith("---\nid: [broken")
    assert len(list(root.glob("*.md"))) == 2
    assert found(store, "walnut") == ["The code is walnut."]


def test_forgetting_a_text_takes_damaged_files_and_leavings_too(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The word is quincunx.", session="a/b"), Record("Something else.")])
    (root / "broken.md").write_text("---\nid: [broken\n---\nThe word is Quincunx.")
    (root / "a" / ".new-0011223344556677.tmp").write_text("The word is quincunx.")
    assert len(store.forget_text("quincunx")) == 2
    assert [path for path in root.rglob("*") if path.is_file() and b"uincunx" in path.read_bytes()] == []
    assert not (root / "a").exists()
    assert store.stats().records == 1


def test_of_two_files_with_one_id_the_first_counts_and_the_other_is_named(store: MarkdownStore, root: Path) -> None:
    store.add([Record("The code is walnut.", id="code")])
    path = only(root)
    copy = root / "zz-copy.md"
    copy.write_text(path.read_text().replace("walnut", "hazel"))
    assert found(store, "code") == ["The code is walnut."]
    assert store.stats().records == 1
    assert "zz-copy.md" in store.stats().problems[0]
    path.unlink()
    assert found(store, "code") == ["The code is hazel."]
    path.write_text(copy.read_text())
    assert store.forget(["code"]) == 1
    assert list(root.glob("*.md")) == []


def test_links_are_not_followed(store: MarkdownStore, root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.md").write_text("An outside text.")
    root.mkdir()
    (root / "link.md").symlink_to(outside / "secret.md")
    (root / "folder").symlink_to(outside)
    assert list(store.records()) == []
    assert store.forget_text("outside text") == []
    assert (outside / "secret.md").exists()


def test_what_was_read_once_is_not_read_again_when_the_store_is_opened(root: Path) -> None:
    with opened(root) as store:
        store.add([Record(f"Note {number} about the harbour.", id=f"n{number}") for number in range(100)])
    with closing(sqlite3.connect(root / ".index" / "index.db")) as index, index:
        (name,) = index.execute("SELECT path FROM files WHERE id = 'n7'").fetchone()
        index.execute("UPDATE records SET record = replace(record, 'Note 7 about', 'Only the index says')")
    with opened(root) as store:
        assert "Only the index says the harbour." in [record.text for record in store.records()]
        os.utime(root / name)
        assert "Only the index says the harbour." not in [record.text for record in store.records()]


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff" * 5000, None])
def test_an_index_that_is_damaged_or_gone_is_made_again(root: Path, content: bytes | None) -> None:
    index = root / ".index" / "index.db"
    with opened(root) as store:
        store.add([Record(f"Note {number} about the harbour.") for number in range(100)])
        if content is None:
            shutil.rmtree(root / ".index")  # while it is open
            assert len(store.search("harbour")) == 10
    if content is not None:
        index.write_bytes(content)
    with opened(root) as again:
        assert again.stats().records == 100
        assert len(again.search("harbour")) == 10


def test_the_cache_of_an_older_version_is_removed_since_it_holds_texts(root: Path) -> None:
    """O7: a folder that the version before wrote opens, and forgetting reaches what that version kept beside the files."""
    (root / ".index").mkdir(parents=True)
    (root / ".index" / "cache.json").write_text('{"files": {"a.md": "quincunx"}}')
    (root / "a.md").write_text("The word is quincunx.")
    with opened(root) as store:
        assert store.forget_text("quincunx") == ["a.md"]
    assert [path for path in root.rglob("*") if path.is_file() and b"quincunx" in path.read_bytes()] == []


def test_an_index_does_not_bring_back_what_another_process_forgot(root: Path) -> None:
    one, other = opened(root), opened(root)
    one.add([Record(f"Note {number} about the harbour.", id=f"n{number}") for number in range(100)])
    other.forget([f"n{number}" for number in range(50)])
    assert one.get("n10") is None
    one.close()
    other.close()
    assert b"Note 10 " not in (root / ".index" / "index.db").read_bytes()
    assert opened(root).stats().records == 50


def test_a_folder_that_cannot_be_written_to_is_searched_all_the_same(root: Path) -> None:
    root.mkdir()
    (root / "a.md").write_text("The staging server is called heron.")
    (root / ".index").write_text("A file where the folder of the index would be.")
    with opened(root) as store:
        assert found(store, "staging server") == ["The staging server is called heron."]
        (root / "b.md").write_text("The ledger is kept by Ann.")
        assert found(store, "ledger") == ["The ledger is kept by Ann."]


def test_a_tag_that_is_removed_by_hand_is_gone(root: Path) -> None:
    with opened(root) as store:
        store.add([Record("The code is walnut.", id="code", tags=("infra", "old"))])
        path = only(root)
        path.write_text(path.read_text().replace('["infra", "old"]', '["infra"]'))
        assert store.get("code") == Record("The code is walnut.", id="code", tags=("infra",))
        assert store.search("walnut", tags=["old"]) == []


def test_nothing_is_made_by_looking(store: MarkdownStore, root: Path) -> None:
    assert store.search("anything") == []
    assert store.get("x") is None
    assert store.forget(["x"]) == 0
    assert store.forget_text("x") == []
    assert store.stats().records == 0
    store.close()
    assert not root.exists()


def test_a_file_in_the_place_of_the_folder_is_an_error(root: Path) -> None:
    root.write_text("I am a file.")
    with pytest.raises(StorageError, match="not a folder"):
        MarkdownStore(root)


def test_an_add_whose_index_is_full_has_kept_the_files_and_says_so(tmp_path: Path) -> None:
    """K1: what stands in the files is kept; the next call that can brings the index in line."""
    with MarkdownStore(tmp_path / "notes", embedder="none") as store:
        store.add([Record("The staging server is called heron.")])
        database = store._current().database
        (pages,) = database.execute("PRAGMA page_count").fetchone()
        database.execute(f"PRAGMA max_page_count = {pages}")
        crane = Record("The backup server is called crane. " + " ".join(f"word{number}" for number in range(5000)))
        assert store.add([crane]).added == 1
        database.execute("PRAGMA max_page_count = 1000000")
        assert store.search("backup crane")[0].record.id == crane.id
        assert store.add([crane]).unchanged == 1
