"""What a server sent, as text: HTML as Markdown, JSON with a line for each value, the rest as it is (A10).

Pure Python without any package, linear in what it is given, and bounded in what it makes of it. `main` is all that the sandboxed process
does that pages are read in (`sandbox/uploads.py`): one file in, `\\0title\\0text\\0cut\\0` out.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from holdfast.text.html import decode_text, read_html

Kind = Literal["html", "json", "text"]
MOST_CHARS = 8_000_000  # of the text of a page, whatever it is made from
_HTML = frozenset({"text/html", "application/xhtml+xml"})
_TEXT = frozenset({"application/xml", "application/javascript", "application/x-yaml", "application/yaml"})


@dataclass(frozen=True, slots=True)
class PageText:
    """The title, if there is one, the text, and whether there was more of it than is kept."""

    title: str | None
    text: str
    cut: bool = False


def kind_of(media_type: str, body: bytes) -> Kind | None:
    """How these bytes are to be read; None for what is no text."""
    if media_type in _HTML:
        return "html"
    if media_type == "application/octet-stream" and body[:4096].lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "html"
    if media_type == "application/json" or media_type.endswith("+json"):
        return "json"
    return "text" if media_type.startswith("text/") or media_type in _TEXT or media_type.endswith("+xml") else None


def read_page_text(body: bytes, kind: Kind, *, charset: str | None = None, main_only: bool = True, most: int = MOST_CHARS) -> PageText:
    """The readable text of a page. Never raises, however broken it is."""
    title, text = None, ""
    if kind == "html":
        page = read_html(body, charset=charset, marks=True, main_only=main_only)
        title, text = page.title, page.text
    else:
        text = decode_text(body, charset)
        if kind == "json":
            text = _with_lines(text, most)
    return PageText(title[:1000] if title else None, text[:most], len(text) > most)


def _with_lines(text: str, most: int) -> str:
    """JSON with a line for each value, or as it is where it is none, or where deep nesting would make it many times as large."""
    pieces: list[str] = []
    size = len(text)
    try:
        value: Any = json.loads(text)
        for piece in json.JSONEncoder(ensure_ascii=False, indent=1).iterencode(value):
            pieces.append(piece)
            if (size := size + len(piece)) > most:
                return json.dumps(value, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
    return "".join(pieces)


def main(arguments: Sequence[str]) -> None:
    """Read one file: its path, its kind, the character set that was said or nothing, `main` or `all`."""
    path, kind, charset, part = arguments
    assert kind in ("html", "json", "text")  # noqa: S101 - our own caller
    page = read_page_text(Path(path).read_bytes(), kind, charset=charset or None, main_only=part == "main")  # type: ignore[arg-type]
    for piece in (page.title or "", page.text, "cut" if page.cut else ""):
        sys.stdout.buffer.write(b"\0" + piece.replace("\0", "").encode("utf-8", "replace"))
    sys.stdout.buffer.write(b"\0")
