"""Files as texts that sentences can be quoted from: HTML and JSON become plain Markdown, Markdown and text stay as they are.

The words are never changed, only what surrounds them: markup, scripts, navigation and JSON's punctuation go away.
"""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from holdfast.errors import InputError
from holdfast.text.normalise import strip_invisible

_SKIPPED = frozenset(
    ("script", "style", "nav", "footer", "header", "aside", "template", "svg", "noscript", "form", "button", "select", "iframe", "head")
)
_BLOCKS = frozenset(
    (
        "p",
        "div",
        "section",
        "article",
        "main",
        "ul",
        "ol",
        "table",
        "thead",
        "tbody",
        "blockquote",
        "dl",
        "dt",
        "dd",
        "figure",
        "figcaption",
        "body",
        "hr",
        "address",
    )
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_TITLES = ("title", "name", "heading", "subject", "page", "id")
_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S")
_TITLE_LINE = re.compile(r"(?!\s*[-*+#>|•=`])\s{0,3}[\w\"“(].{0,78}[^\s.!?:;,。！？]")
_PROSE = 4  # words from which on a JSON text counts as a sentence and not as a value


def readable(data: bytes | str, suffix: str) -> str:
    """The text of a file by the ending of its name. What is not UTF-8 shows as U+FFFD; a BOM and characters that draw nothing go."""
    text = data if isinstance(data, str) else data.decode("utf-8-sig", errors="replace")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
    ending = suffix.lower().lstrip(".")
    if ending in ("html", "htm", "xhtml"):
        text = _from_html(text)
    elif ending in ("txt", "text", ""):
        text = _from_text(text)
    elif ending == "json":
        text = _from_json(text)
    elif ending in ("jsonl", "ndjson"):
        text = "\n\n".join(_from_json(line) for line in text.splitlines() if line.strip())
    return strip_invisible(text)


class _Reader(HTMLParser):
    """Writes the readable parts of a page as Markdown blocks."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.blocks: list[str] = []
        self._line: list[str] = []
        self._prefix = ""
        self._skipping: list[str] = []
        self._cells: list[str] | None = None
        self._keeps_space = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SKIPPED or self._skipping:
            if tag in _SKIPPED:
                self._skipping.append(tag)
            return
        if tag in _HEADINGS:
            self._end_block("#" * _HEADINGS[tag] + " ")
        elif tag == "li":
            self._end_block("- ")
        elif tag == "pre":
            self._end_block("")
            self._keeps_space = True
        elif tag == "tr":
            self._end_block("")
            self._cells = []
        elif tag == "br":
            self._line.append("\n")
        elif tag in _BLOCKS:
            self._end_block("")

    def handle_endtag(self, tag: str) -> None:
        if self._skipping:
            if tag in self._skipping:
                while self._skipping and self._skipping.pop() != tag:
                    pass
            return
        if tag in ("td", "th") and self._cells is not None:
            self._cells.append(self._taken())
        elif tag == "tr" and self._cells is not None:
            row = f"| {' | '.join(self._cells)} |" if any(self._cells) else ""
            self._cells = None
            self._line = [row]
            self._end_block("")
        elif tag == "pre":
            code = "".join(self._line).strip("\n")
            self._line = []
            self._keeps_space = False
            if code.strip():
                self.blocks.append(f"```\n{code}\n```")
        elif tag in _HEADINGS or tag == "li" or tag in _BLOCKS:
            self._end_block("")

    def handle_data(self, data: str) -> None:
        if not self._skipping:
            self._line.append(data)

    def close(self) -> None:
        super().close()
        self._end_block("")

    def _taken(self) -> str:
        raw = "".join(self._line)
        self._line = []
        if self._keeps_space:
            return raw
        return "\n".join(line for line in (re.sub(r"[ \t\n]+", " ", piece).strip() for piece in raw.split("\n\n")) if line)

    def _end_block(self, prefix: str) -> None:
        text = self._taken()
        if text.strip():
            self.blocks.append(self._prefix + text)
        self._prefix = prefix


def _from_html(text: str) -> str:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    return _joined(reader.blocks)


def _joined(blocks: list[str]) -> str:
    """The blocks with a blank line between them, but not inside a list or a table."""
    pieces: list[str] = []
    for before, block in zip(["", *blocks], blocks, strict=False):
        together = any(before.startswith(mark) and block.startswith(mark) for mark in ("- ", "| "))
        pieces.append(("\n" if together else "\n\n" if before else "") + block)
    return "".join(pieces) + "\n"


def _from_text(text: str) -> str:
    """Plain text, with the lines that stand alone or above a list marked as the headings that they are."""
    lines = text.split("\n")
    marked: list[str] = []
    for n, line in enumerate(lines):
        after = lines[n + 1] if n + 1 < len(lines) else ""
        alone = (n == 0 or not lines[n - 1].strip()) and (not after.strip() or _ITEM.match(after) is not None)
        marked.append(f"{'#' if not any(marked) else '##'} {line.strip()}" if alone and _TITLE_LINE.fullmatch(line) else line)
    return "\n".join(marked)


def _from_json(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the JSON cannot be read: {error}.", hint="Mend the file, or leave it out with `globs`.") from error
    blocks: list[str] = []
    _write_json(value, 1, blocks)
    return _joined(blocks)


def _write_json(value: Any, level: int, blocks: list[str], name: str = "") -> None:
    """Objects become sections under their title, long texts paragraphs, short values items."""
    if level > 40:
        return
    if isinstance(value, dict):
        title = next((key for key in _TITLES if isinstance(value.get(key), str) and value[key].strip()), None)
        if title is not None:
            blocks.append(f"{'#' * min(level, 6)} {_one_line(value[title])}")
        for key, member in value.items():
            if key != title:
                _write_json(member, level + (title is not None), blocks, str(key))
    elif isinstance(value, list):
        for member in value:
            _write_json(member, level, blocks, name)
    elif isinstance(value, str) and len(value.split()) >= _PROSE:
        blocks.append(value.strip())
    elif value is not None and str(value).strip():
        blocks.append(f"- {name}: {_one_line(str(value))}" if name else f"- {_one_line(str(value))}")


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()
