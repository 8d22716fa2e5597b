"""Real office files become Markdown beside the upload, in the sandbox; one without text says so (A9, A10)."""

from __future__ import annotations

import io
import re
import subprocess
import zipfile
from pathlib import Path

import openpyxl  # type: ignore[import-untyped]  # has no types of its own
import pptx
import pytest

from holdfast.config.loading import config_from_values
from holdfast.offline.documents import Library
from holdfast.offline.researcher import Retrieval
from holdfast.offline.sources import document_of
from holdfast.sandbox.local import open_sandbox
from holdfast.sandbox.uploads import MarkItDown, Upload, Uploads

_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Override PartName="/word/document.xml" '
    'ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_LINKS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" Target="word/document.xml"/></Relationships>'
)
_TEXT = (
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r>'
    "<w:t>High water is at six.</w:t></w:r></w:p></w:body></w:document>"
)


def docx() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as parts:
        for name, text in (("[Content_Types].xml", _TYPES), ("_rels/.rels", _LINKS), ("word/document.xml", _TEXT)):
            parts.writestr(name, f'<?xml version="1.0"?>{text}')
    return made.getvalue()


def xlsx() -> bytes:
    book, made = openpyxl.Workbook(), io.BytesIO()
    book.worksheets[0].append(["tide", "High water is at six."])
    book.save(made)
    return made.getvalue()


def slides() -> bytes:
    show, made = pptx.Presentation(), io.BytesIO()
    title = show.slides.add_slide(show.slide_layouts[0]).shapes.title
    assert title is not None
    title.text = "High water is at six."
    show.save(made)
    return made.getvalue()


def take(tmp_path: Path, name: str, data: bytes) -> tuple[Upload, str]:
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "base")})
    sandbox = open_sandbox(config, "t1")
    try:
        taken = Uploads("t1", sandbox.files, base=config.base, converter=MarkItDown()).take(name, data)
        return taken, sandbox.files.read(taken.markdown).text if taken.markdown else ""
    finally:
        sandbox.close()


@pytest.mark.parametrize(("name", "data"), [("a.docx", docx()), ("a.xlsx", xlsx()), ("a.pptx", slides())])
def test_an_office_file_becomes_markdown(name: str, data: bytes, tmp_path: Path, bwrap: str) -> None:
    taken, text = take(tmp_path, name, data)
    assert taken.problem is None
    assert "High water is at six." in text


def test_a_pdf_becomes_markdown_and_one_without_text_says_so(tmp_path: Path, bwrap: str, chromium: str) -> None:
    for name, body in (("full", "<p>High water is at six.</p>"), ("empty", "<div style='height:9px;background:red'></div>")):
        (tmp_path / f"{name}.html").write_text(f"<html><head><title>Tides of the harbour</title></head><body>{body}</body></html>")
        subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                f"--print-to-pdf={tmp_path / name}.pdf",
                "--no-pdf-header-footer",
                (tmp_path / f"{name}.html").as_uri(),
            ],
            check=True,
            capture_output=True,
            timeout=240,
        )
    assert "High water is at six." in (text := take(tmp_path, "full.pdf", (tmp_path / "full.pdf").read_bytes())[1])
    assert text.startswith("---\ntitle: Tides of the harbour\n---\n"), "what the file states about itself"
    taken, _ = take(tmp_path, "empty.pdf", (tmp_path / "empty.pdf").read_bytes())
    assert taken.markdown is None
    assert taken.problem is not None
    assert "no text" in taken.problem


_STYLES = (
    '<w:styles xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:style w:type="paragraph" w:styleId="Titel">'
    '<w:name w:val="Title"/></w:style></w:styles>'
)
_CELL = "<w:tc><w:p><w:r><w:t>{}</w:t></w:r></w:p></w:tc>"


def lease() -> bytes:
    """A Word file with a title in Word's style, under its German id, and a table that marks no head."""
    rows = (("Utility", "Paid by"), ("Water", "harbour trust"), ("Electricity", "tenant"))
    table = "".join(f"<w:tr>{''.join(_CELL.format(cell) for cell in cells)}</w:tr>" for cells in rows)
    title = '<w:p><w:pPr><w:pStyle w:val="Titel"/></w:pPr><w:r><w:t>Lease of the net loft</w:t></w:r></w:p>'
    said = f"{title}<w:p><w:r><w:t>The rent is 410 euros per month.</w:t></w:r></w:p><w:tbl>{table}</w:tbl></w:body>"
    made, kind = io.BytesIO(), "application/vnd.openxmlformats-officedocument.wordprocessingml"
    styles = f'<Override PartName="/word/styles.xml" ContentType="{kind}.styles+xml"/></Types>'
    link = _LINKS.replace("r1", "r2").replace('officeDocument"', 'styles"').replace("word/", "")
    parts = {
        "[Content_Types].xml": _TYPES.replace("</Types>", styles), "_rels/.rels": _LINKS, "word/styles.xml": _STYLES,
        "word/_rels/document.xml.rels": link.replace("document.xml", "styles.xml"),
        "word/document.xml": re.sub("<w:p>.*", lambda _: said, _TEXT) + "</w:document>",
    }  # fmt: skip
    with zipfile.ZipFile(made, "w") as packed:
        for name, text in parts.items():
            packed.writestr(name, f'<?xml version="1.0"?>{text}')
    return made.getvalue()


def test_a_word_file_answers_by_its_sentences_and_rows_and_its_title_is_no_answer(bwrap: str) -> None:
    """W18: the title is a heading, and the first row of a table has the heads."""
    document = document_of(lease(), ".docx", "lease.docx")
    assert document.title == "Lease of the net loft"
    retrieval = Retrieval(Library([document]))
    assert retrieval.answers("What is the rent of the net loft?")[0].fact == "The rent is 410 euros per month."
    assert retrieval.answers("Who pays electricity?")[0].fact == "Utility: Electricity; Paid by: tenant"
