"""Taking in documents, records and chat logs, and writing them out again (K1)."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InputError
from holdfast.knowledge.import_export import Fault, export_lines, export_markdown, import_path, paragraphs, read_path, sections
from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.records import Record, reading_order
from holdfast.offline.sources import read_folder


@pytest.fixture
def store(tmp_path: Path) -> MarkdownStore:
    return MarkdownStore(tmp_path / "store")


def read(path: Path) -> list[Record]:
    found = [one for _, one in read_path(path)]
    assert not [one for one in found if isinstance(one, Fault)], found
    return [one for one in found if isinstance(one, Record)]


def faults(path: Path) -> list[str]:
    return [str(one) for _, one in read_path(path) if isinstance(one, Fault)]


def written(path: Path, content: str | bytes | Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else (content if isinstance(content, str) else json.dumps(content)).encode()
    path.write_bytes(data)
    return path


def test_markdown_is_cut_at_its_headings(tmp_path: Path) -> None:
    head = "---\ntags: [wiki]\ndate: 2026-05-08\n---\n"
    text = head + "Before.\n\n# Ops #\n\nIntro.\n\n## Backups\nKept for ninety days.\n```\n# no heading\n```\n# Next\nMore.\n"
    written(tmp_path / "in" / "guide" / "ops.md", text)
    found = read(tmp_path / "in")
    assert [(one.source, one.text) for one in found] == [
        ("guide/ops.md", "Before."),
        ("guide/ops.md#Ops", "Intro."),
        ("guide/ops.md#Backups", "Kept for ninety days.\n```\n# no heading\n```"),
        ("guide/ops.md#Next", "More."),
    ]
    assert {(one.kind, one.tags, str(one.time)) for one in found} == {("document", ("wiki",), "2026-05-08 00:00:00+00:00")}
    assert found[2].extra["title"] == "Ops > Backups"


def test_headings_know_what_they_stand_under() -> None:
    assert [one.path for one in sections("# A\nx\n### C\nx\n## B\nx\n# D\nx")] == [("A",), ("A", "C"), ("A", "B"), ("D",)]
    assert [(one.path, one.line) for one in sections("text\n# A\n\n# B\nx")] == [((), 1), (("B",), 4)]


def test_headings_of_every_form_cut_and_code_does_not() -> None:
    """K1: the same blocks as everywhere in the house: underlined headings count, a `#` inside code does not, a rule is no underline."""
    text = "Intro\n=====\nfirst\n```\n# no heading\n```\n## Part ##\n---\nsecond\n"
    assert [(one.path, one.line) for one in sections(text)] == [(("Intro",), 1), (("Intro", "Part"), 7)]
    assert sections(text)[0].text == "first\n```\n# no heading\n```"
    assert sections(text)[1].text == "---\nsecond"


def test_a_long_text_is_cut_at_blank_lines_and_nothing_is_lost() -> None:
    text = "\n\n".join(f"Paragraph {number}: " + "word " * 60 for number in range(60))
    found = paragraphs(text)
    assert len(found) > 3
    assert " ".join(" ".join(one.text for one in found).split()) == " ".join(text.split())
    assert all(len(one.text) < 4500 for one in found)
    assert paragraphs(" \n ") == []


def test_lines_of_records_are_records(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "One.", "tags": ["x"], "colour": "red"}\n\n{"text": "Two.", "id": "2"}\n')
    assert read(path) == [Record("One.", tags=("x",), extra={"colour": "red"}), Record("Two.", id="2")]


def test_lines_of_other_objects_are_rows_as_the_same_objects_in_json_are(tmp_path: Path) -> None:
    """K1: what a workflow reads as a source can be imported too."""
    lines = ['{"device": "lamp", "code": "E-417"}', '{"device": "fan", "code": "E-12"}']
    (found,) = read(written(tmp_path / "e.jsonl", "\n".join(lines)))
    (same,) = read(written(tmp_path / "e.json", f"[{', '.join(lines)}]"))
    assert found.text == same.text == "- device: lamp; code: E-417\n- device: fan; code: E-12"
    assert (found.kind, found.source) == ("document", "e.jsonl")


@pytest.mark.parametrize("ending", [".xz", ".gz"])
def test_packed_files_are_unpacked(tmp_path: Path, ending: str) -> None:
    data = b'{"text": "One."}\n'
    path = written(tmp_path / f"a.jsonl{ending}", lzma.compress(data) if ending == ".xz" else gzip.compress(data))
    assert read(path) == [Record("One.")]
    cut = written(tmp_path / f"b.jsonl{ending}", path.read_bytes()[:-9])
    assert "cannot be read" in faults(cut)[-1]


def test_a_bad_line_is_named_and_the_rest_is_taken_in(tmp_path: Path, store: MarkdownStore) -> None:
    path = written(tmp_path / "a.jsonl", b'{"text": "One."}\n{broken\n{"no": 1}\n\xff\xfe\n"text"\n{"text": "Two."}\n')
    report = import_path(store, path)
    assert sorted(record.text for record in store.records()) == ["One.", "Two."]
    assert [fault.line for fault in report.faults] == [2, 3, 4, 5]
    assert str(report.faults[0]).startswith("a.jsonl:2: it is not JSON")
    assert (report.added.added, report.files) == (2, 1)


def test_strict_stops_at_the_first_bad_line(tmp_path: Path, store: MarkdownStore) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "One."}\n{broken\n')
    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        import_path(store, path, strict=True)


def test_a_conversation_with_sessions_keeps_places_names_and_dates(tmp_path: Path) -> None:
    value = {
        "id": "c1",
        "sessions": [
            {
                "id": "s1",
                "date": "1:56 pm on 8 May, 2023",
                "turns": [{"id": "t1", "speaker": "Ann", "text": "Hi."}, {"id": "t2", "speaker": "Bob", "text": " "}],
            },
            {"date": "", "turns": [{"speaker": "Bob", "text": "Hello."}]},
        ],
    }  # fmt: skip
    first, second = read(written(tmp_path / "talk.jsonl", value))
    assert (first.id, first.session, first.speaker, first.position, first.role) == ("c1/t1", "c1/s1", "Ann", 0, None)
    assert str(first.time) == "2023-05-08 13:56:00+00:00"
    assert (second.session, second.time, second.kind) == ("c1/session-2", None, "turn")


MESSAGES = [
    {"role": "system", "content": "You are kind."},
    {"role": "user", "content": "How old is the bridge?"},
    {"role": "assistant", "content": [{"type": "text", "text": "It is from 1910."}, {"type": "image_url", "image_url": {}}]},
    {"role": "assistant", "content": None, "tool_calls": [{}]},
    {"role": "tool", "content": "noise"},
]
LANGCHAIN = [
    {"type": "human", "data": {"content": "How old is the bridge?"}},
    {"type": "ai", "data": {"content": "It is from 1910."}},
    {"type": "tool", "data": {"content": "noise"}},
]
DUMPED = [
    {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "HumanMessage"],
        "kwargs": {"content": "How old is the bridge?"},
    },
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "AIMessage"], "kwargs": {"content": "It is from 1910."}},
    {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "SystemMessage"], "kwargs": {"content": "noise"}},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", {"messages": MESSAGES}),
        ("a.json", MESSAGES),
        ("a.jsonl", json.dumps({"messages": MESSAGES}) + "\n"),
        ("a.jsonl", "".join(json.dumps(message) + "\n" for message in MESSAGES)),
        ("a.json", [{"messages": MESSAGES}]),
        ("a.json", LANGCHAIN),
        ("a.json", DUMPED),
        ("a.json", [{"type": "human", "content": "How old is the bridge?"}, {"type": "ai", "content": "It is from 1910."}]),
    ],
)
def test_messages_become_turns_of_a_person_and_an_assistant(tmp_path: Path, name: str, content: Any) -> None:
    found = read(written(tmp_path / name, content))
    assert [(one.text, one.role, one.trust) for one in found] == [
        ("How old is the bridge?", "person", "high"),
        ("It is from 1910.", "assistant", "medium"),
    ]
    assert len({one.session for one in found}) == 1
    assert found[0].session
    assert found[0].position is not None
    assert found[1].position is not None
    assert found[0].position < found[1].position


def test_messages_as_langchain_writes_them_today(tmp_path: Path) -> None:
    messages = pytest.importorskip("langchain_core.messages")
    load = pytest.importorskip("langchain_core.load")
    talk = [messages.HumanMessage("How old is the bridge?"), messages.AIMessage("It is from 1910.")]
    for value in (messages.messages_to_dict(talk), load.dumpd(talk), [message.model_dump() for message in talk]):
        assert [one.text for one in read(written(tmp_path / "a.json", value))] == ["How old is the bridge?", "It is from 1910."]


def test_a_transcript_is_read_by_its_names_and_dates(tmp_path: Path) -> None:
    text = (
        "8 May 2023\nAnn: Did you see the heron?\nBob: Yes,\nand it was huge.\n\n=== 9 May 2023 ===\n"
        "Ann: Good.\n[2023-05-10 10:22:11] Bob: Late reply.\n11/05/2023, 21:14 - Ann: From a phone.\n"
    )
    found = read(written(tmp_path / "chat.txt", text))
    assert [(one.speaker, one.text, str(one.time)[:16], one.position) for one in found] == [
        ("Ann", "Did you see the heron?", "2023-05-08 00:00", 0),
        ("Bob", "Yes,\nand it was huge.", "2023-05-08 00:00", 1),
        ("Ann", "Good.", "2023-05-09 00:00", 2),
        ("Bob", "Late reply.", "2023-05-10 10:22", 3),
        ("Ann", "From a phone.", "2023-05-11 21:14", 4),
    ]
    assert {one.session for one in found} == {"chat"}


def test_a_transcript_with_an_assistant_has_roles(tmp_path: Path) -> None:
    found = read(written(tmp_path / "chat.txt", "User: Hello there.\nAssistant: How can I help?\nUser: Not at all.\n"))
    assert [(one.role, one.speaker) for one in found] == [("person", None), ("assistant", None), ("person", None)]


def test_plain_text_is_a_document(tmp_path: Path) -> None:
    (one,) = read(written(tmp_path / "readme.txt", "Note: this is prose.\nIt has many lines.\nAnd no talk.\n"))
    assert (one.kind, one.source, one.session) == ("document", "readme.txt", None)


def test_what_cannot_be_read_at_all_is_said(tmp_path: Path, store: MarkdownStore) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no files"):
        import_path(store, tmp_path / "empty")
    with pytest.raises(InputError, match="there is no"):
        import_path(store, tmp_path / "nothing.md")
    assert "not JSON" in faults(written(tmp_path / "x.json", '{"a":\n[}'))[0]
    assert "x.json:2" in faults(tmp_path / "x.json")[0]
    assert "UTF-8" in faults(written(tmp_path / "x.txt", b"ok\n\xff"))[0]
    assert "entry 2" in faults(written(tmp_path / "y.json", '[{"text": "a"}, {"b": 1}]'))[0]
    assert "turn 1" in faults(written(tmp_path / "z.jsonl", '{"sessions": [{"turns": [{"id": 1}]}]}'))[0]
    deep = "[" * 100_000
    assert faults(written(tmp_path / "deep.json", deep))


def test_tags_and_a_session_are_given_to_all(tmp_path: Path, store: MarkdownStore) -> None:
    import_path(store, written(tmp_path / "a.json", {"id": "t", "messages": MESSAGES}), tags=["chat"], session="team")
    assert {(record.session, record.tags) for record in store.records()} == {("team/t", ("chat",))}


def test_importing_twice_adds_once(tmp_path: Path, store: MarkdownStore) -> None:
    for name, content in (("a.json", {"messages": MESSAGES}), ("b.md", "# A\nOne.\n# B\nTwo.\n"), ("c.txt", "Ann: Hi.\nBob: Ho.\n")):
        written(tmp_path / "in" / name, content)
    assert import_path(store, tmp_path / "in").added.added == 6
    again = import_path(store, tmp_path / "in").added
    assert (again.added, again.updated, again.unchanged) == (0, 0, 6)


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_an_export_can_be_taken_in_again(tmp_path: Path, store: MarkdownStore, form: str) -> None:
    import_path(store, written(tmp_path / "in" / "a.json", {"messages": MESSAGES}))
    store.add([Record("# Not a heading\n\nnote: x", id="odd", tags=("a", "b"), extra={"n": [1]}, trust="low"), Record("Plain.")])
    if form == "jsonl":
        assert export_lines(store, tmp_path / "out.jsonl") == 4
    else:
        assert export_markdown(store, tmp_path / "out") == 4
        with pytest.raises(InputError, match="not empty"):
            export_markdown(store, tmp_path / "out")
    with MarkdownStore(tmp_path / "again") as again:
        report = import_path(again, tmp_path / ("out.jsonl" if form == "jsonl" else "out"))
        assert report.faults == ()
        assert sorted(again.records(), key=reading_order) == sorted(store.records(), key=reading_order)


def test_an_export_may_be_a_part(tmp_path: Path, store: MarkdownStore) -> None:
    store.add([Record("One.", tags=("a",)), Record("Two.", session="s"), Record("Three.", session="s/t", tags=("a",))])
    assert export_lines(store, tmp_path / "a.jsonl", tags=["a"]) == 2
    assert export_lines(store, tmp_path / "b.jsonl", session="s") == 2
    assert export_lines(store, tmp_path / "c.jsonl", session="s", tags=["a"]) == 1


def test_what_sources_reads_is_imported_too(tmp_path: Path, store: MarkdownStore) -> None:
    """K1, W18: one list of kinds; each with what it says about itself, tables with the heads of their columns."""
    folder = tmp_path / "in"
    written(folder / "prices.csv", "Model,Price\nCB-40,489\nCB-50,612\n")
    mail = "From: Ada Lund <ada@example.org>\nSubject: The heron\nDate: Tue, 10 Feb 2026 09:00:00 +0000\n\nIt nests at the weir.\n"
    written(folder / "note.eml", mail)
    written(folder / "page.html", "<title>Birds</title><meta name='date' content='2025-03-04'><h1>Herons</h1><p>They eat fish.</p>")
    written(folder / "plan.json", '{"title": "Plan", "steps": [{"name": "Dig", "days": 3}]}')
    written(folder / "scan.pdf", b"%PDF-1.4 something")
    report = import_path(store, folder, convert=lambda data, ending: (f"# Scanned\n\n{len(data)} bytes of {ending}.", None))
    assert (report.faults, report.skipped, report.files) == ((), (), 5)
    found = {record.source: record for record in store.records()}
    assert found["prices.csv"].text == "- Model: CB-40; Price: 489\n- Model: CB-50; Price: 612"
    said = found["note.eml"]
    assert (said.text, said.speaker, str(said.time)[:10], said.extra["title"]) == (
        "It nests at the weir.",
        "Ada Lund",
        "2026-02-10",
        "The heron",
    )
    assert str(found["page.html#Herons"].time)[:10] == "2025-03-04"
    assert any("Dig" in record.text for record in store.records())
    assert found["scan.pdf#Scanned"].text == "18 bytes of .pdf."
    without = import_path(store, folder)
    assert (without.skipped, without.faults, without.added.added) == (("scan.pdf",), (), 0), "no converter, and nothing twice"
    (one,) = import_path(store, folder, convert=lambda data, ending: (None, "it is damaged")).faults
    assert str(one) == "scan.pdf: it is damaged"


MAIL = "From: Ada Lund <ada@example.org>\nTo: Bo\nSubject: The heron\nDate: Tue, 10 Feb 2026 09:00:00 +0000\n\nIt nests at the weir.\n"


@pytest.mark.parametrize(
    ("mail", "day"),
    [
        (MAIL, "2026-02-10"),
        ("Von: Ada Lund\nGesendet: Dienstag, 10. Februar 2026 09:00\nAn: Bo\nBetreff: The heron\n\nIt nests at the weir.\n", "2026-02-10"),
        ("From: Ada Lund\nSubject: The heron\n\nIt nests at the weir.\n", "None"),
    ],
)
def test_a_mail_that_was_saved_as_text_is_a_mail_for_import_and_for_a_run(tmp_path: Path, mail: str, day: str) -> None:
    """K1, W18: its headers are data about it, and no text that can be found."""
    (one,) = read(written(tmp_path / "in" / "note.txt", mail))
    assert (one.text, one.speaker, str(one.time)[:10], one.extra["title"]) == ("It nests at the weir.", "Ada Lund", day, "The heron")
    (document,) = read_folder(tmp_path / "in")
    assert (document.text.strip(), document.title, document.author) == (one.text, "The heron", "Ada Lund")
    assert document.dated == (day if day != "None" else "")


@pytest.mark.parametrize("line", ["From: me <", 'From: "', "From: (" + "(" * 2000])
@pytest.mark.parametrize("name", ["note.txt", "note.eml"])
def test_a_header_that_cannot_be_read_does_not_keep_a_mail_from_being_read(tmp_path: Path, line: str, name: str) -> None:
    """K1, W18: the standard library raises IndexErrors and the like for some; neither an import nor a run ends by that."""
    (one,) = read(written(tmp_path / "in" / name, f"{line}\nSubject: The heron\n\nIt nests at the weir.\n"))
    assert (one.text, one.extra["title"]) == ("It nests at the weir.", "The heron")
    (document,) = read_folder(tmp_path / "in")
    assert (document.text.strip(), document.title) == (one.text, "The heron")


def test_text_with_lines_like_headers_is_no_mail(tmp_path: Path) -> None:
    found = read(written(tmp_path / "talk.txt", "From: the desk of Ann\nWe met at noon and\nagreed.\n"))
    assert "the desk of Ann" in found[0].text


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.json"])
def test_utf_16_is_read_as_a_run_reads_it(tmp_path: Path, name: str) -> None:
    """K1: what Windows programs call Unicode."""
    text = '{"text": "Der Kessel heißt Bruno."}' if name.endswith("json") else "Der Kessel heißt Bruno.\n"
    (one,) = read(written(tmp_path / name, text.encode("utf-16")))
    assert one.text == "Der Kessel heißt Bruno."


def test_import_and_a_run_date_a_document_alike(tmp_path: Path) -> None:
    """K1, W18: by its title, a line at its head or its name; not by what it tells. The id is that of the text all the same."""
    for name, text in (
        ("a.md", "# Minutes of 3 May 2026\n\nAll were there.\n"),
        ("2026-05-04 b.md", "# Minutes\n\nAll were there.\n"),
        ("c.txt", "Ridgeway, 5 May 2026\n\nAll of us were there.\n"),
        ("d.md", "# Pumps\n\nThe pump was bought in March 2015.\n"),
    ):
        written(tmp_path / "in" / name, text)
    dated = {str(one.source).split("#")[0]: str(one.time)[:10] for one in read(tmp_path / "in")}
    assert dated == {"a.md": "2026-05-03", "2026-05-04 b.md": "2026-05-04", "c.txt": "2026-05-05", "d.md": "None"}
    assert dated == {one.id: one.dated or "None" for one in read_folder(tmp_path / "in")}
    assert read(tmp_path / "in" / "a.md")[0].id == Record("All were there.", source="a.md#Minutes of 3 May 2026", kind="document").id


def test_several_paths_are_one_import(tmp_path: Path, store: MarkdownStore) -> None:
    first, second = written(tmp_path / "a.md", "# A\nOne.\n"), written(tmp_path / "in" / "b.md", "# B\nTwo.\n")
    report = import_path(store, first, tmp_path / "in", tags=["x"])
    assert (report.added.added, report.files) == (2, 2) and {one.tags for one in store.records()} == {("x",)}
    with pytest.raises(InputError, match=r"there is no .*nothing"):
        import_path(store, second, tmp_path / "nothing.md")


def test_a_long_table_or_text_without_blank_lines_is_cut(tmp_path: Path) -> None:
    """K1: a record that nobody can find in is none."""
    rows = "".join(f"row {number},{number}\n" for number in range(2000))
    for name in ("long.csv", "long.txt"):
        found = read(written(tmp_path / name, f"Name,Value\n{rows}"))
        assert len(found) > 5
        assert all(len(one.text) < 4500 for one in found)
        assert sum(one.text.count("row ") for one in found) == 2000
        assert len({one.source for one in found}) == len(found)
