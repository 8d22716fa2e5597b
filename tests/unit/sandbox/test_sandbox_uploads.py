"""A9: files that people send: clean names, no overwriting, bounded sizes, documents as Markdown."""

from __future__ import annotations

import importlib.util
import io
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InputError
from holdfast.sandbox.commands import CommandLimits
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import UPLOADS, ThreadFolders, VirtualPaths
from holdfast.sandbox.uploads import MarkItDown, Uploads, clean_name, convertible


@pytest.fixture
def files(tmp_path: Path) -> Iterator[ThreadFiles]:
    with ThreadFolders(tmp_path).open("t1") as thread:
        yield ThreadFiles(VirtualPaths(thread.roots))


@pytest.fixture
def uploads(tmp_path: Path, files: ThreadFiles) -> Uploads:
    return Uploads("t1", files, base=tmp_path, most_bytes=1_000_000)


NAMES = {
    "report.pdf": "report.pdf",
    "../../etc/passwd": "passwd",
    "C:\\Users\\me\\a b.txt": "a b.txt",
    "/abs/olute.txt": "olute.txt",
    ".bashrc": "bashrc",
    "...": "upload",
    "": "upload",
    "a\0b\n.txt": "ab.txt",
    "evil\u202etxt.exe": "eviltxt.exe",
    "con.txt": "upload.txt",
    "cafe\u0301.txt": "café.txt",
    "\ud800.txt": "txt",
    "what?*.txt": "what.txt",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_made_clean(name: str) -> None:
    assert clean_name(name) == NAMES[name]


@given(st.text(max_size=400))
def test_every_name_becomes_a_plain_one_and_stays_so(name: str) -> None:
    clean = clean_name(name)
    assert clean == clean_name(clean)
    assert clean not in ("", ".", "..")
    assert not clean.startswith(".")
    assert not set(clean) & set("/\\\0\n")
    assert len(clean.encode()) <= 180


def test_a_taken_name_gets_a_number_and_nothing_is_overwritten(uploads: Uploads, files: ThreadFiles) -> None:
    taken = [
        uploads.take(name, content)
        for name, content in (("a.txt", b"1"), ("a.txt", b"2"), ("A.TXT", b"3"), ("b.tar.gz", b"4"), ("b.tar.gz", b"5"))
    ]
    assert [upload.name for upload in taken] == ["a.txt", "a-2.txt", "A-2.TXT".replace("2", "3"), "b.tar.gz", "b-2.tar.gz"]
    assert [files.read_bytes(upload.path, limit=10) for upload in taken] == [b"1", b"2", b"3", b"4", b"5"]


def test_uploads_at_the_same_moment_all_arrive(uploads: Uploads) -> None:
    workers = [threading.Thread(target=uploads.take, args=("same.txt", str(number).encode())) for number in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(uploads.list()) == 8


def test_what_is_too_large_is_refused_and_not_kept(uploads: Uploads) -> None:
    with pytest.raises(InputError, match="larger than"):
        uploads.take("big.bin", b"x" * 1_000_001)
    with pytest.raises(InputError, match="larger than"):
        uploads.take("big.bin", io.BytesIO(b"x" * 5_000_000))
    assert uploads.list() == ()


def test_uploads_are_listed_and_removed_with_what_was_made_of_them(uploads: Uploads, files: ThreadFiles) -> None:
    uploads.take("a.html", b"<p>x</p>")
    uploads.take("b.txt", b"x")
    files.write(f"{UPLOADS}/a.html.md", "x")
    assert [(upload.name, upload.markdown) for upload in uploads.list()] == [("a.html", f"{UPLOADS}/a.html.md"), ("b.txt", None)]
    uploads.remove("a.html")
    assert [upload.name for upload in uploads.list()] == ["b.txt"]
    with pytest.raises(InputError):
        uploads.remove("../outputs/x")


def test_plain_texts_need_no_markdown() -> None:
    assert [convertible(name) for name in ("a.PDF", "a.docx", "a.html", "a.txt", "a.md", "a.csv", "pdf")] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
    ]


needs_converter = pytest.mark.skipif(importlib.util.find_spec("markitdown") is None, reason="the extra `web` is not installed")


def test_a_page_gets_its_markdown_beside_it_without_what_it_hides(tmp_path: Path, files: ThreadFiles) -> None:
    uploads = Uploads("t1", files, base=tmp_path, converter=MarkItDown(bubblewrap="/nowhere/bwrap"))
    upload = uploads.take("page.html", b"<h1>Title</h1><p>Some <b>bold</b> words</p><p hidden>obey</p>")
    assert upload.problem is None
    assert upload.markdown == f"{UPLOADS}/page.html.md"
    assert files.read(upload.markdown).text.strip() == "# Title\n\nSome **bold** words"


@needs_converter
def test_a_broken_document_costs_only_the_markdown(bwrap: str, tmp_path: Path, files: ThreadFiles) -> None:
    del bwrap
    upload = Uploads("t1", files, base=tmp_path, converter=MarkItDown()).take("broken.docx", b"PK\x03\x04 nothing")
    assert upload.markdown is None
    assert "cannot be converted" in (upload.problem or "")
    assert files.exists(upload.path)


@needs_converter
def test_a_document_that_takes_too_long_is_given_up(bwrap: str, tmp_path: Path, files: ThreadFiles) -> None:
    del bwrap
    converter = MarkItDown(limits=CommandLimits(seconds=0.001))  # over at the first look, however slow the machine
    upload = Uploads("t1", files, base=tmp_path, converter=converter).take("page.pdf", b"%PDF-1.4\n")
    assert (upload.markdown, upload.problem) == (None, "the conversion was stopped: timed out")


@needs_converter
def test_without_a_sandbox_nothing_is_converted_and_it_says_why(tmp_path: Path, files: ThreadFiles) -> None:
    upload = Uploads("t1", files, base=tmp_path, converter=MarkItDown(bubblewrap="/nowhere/bwrap")).take("page.pdf", b"%PDF-1.4\n")
    assert upload.markdown is None
    assert "commands cannot be run safely" in (upload.problem or "")
