"""Files as people have them, as one plain Markdown (pages, mails, tables, JSON, plain text), and what they say about themselves.

The words are never changed, only what surrounds them goes: markup, scripts, navigation, headers. A row of a table is written with the heads
of its columns, `- Model: CB-40; Price: 489`, because a row alone says nothing. Title, date and author that stand in front matter, in
`<meta>` or in the headers of a mail are data about the document, never part of its text.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from email import message_from_bytes, policy
from email.headerregistry import HeaderRegistry
from typing import Any

from holdfast.errors import InputError
from holdfast.text.dates import day_of, day_of_head
from holdfast.text.html import decode_text, joined_blocks, read_html
from holdfast.text.language import read_lists, read_words
from holdfast.text.normalise import one_line, strip_invisible
from holdfast.text.tables import row, rows_of, table_lines, with_heads
from holdfast.text.transcripts import TURN, is_transcript


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file as Markdown, and what the file says about itself: its title, the day it was written (ISO), its author."""

    text: str
    title: str = ""
    dated: str = ""
    author: str = ""


def read_text(data: bytes | str, suffix: str) -> FileText:
    """The text of a file by the ending of its name; a BOM and characters that draw nothing go.

    Of a page what its reader does not see is not there either: that is where instructions and false figures are planted. InputError if
    the file is not what its name says, or is neither UTF-8 nor says what it is.
    """
    ending = suffix.lower().lstrip(".")
    if ending == "eml":
        found = _mail(data if isinstance(data, bytes) else data.encode())
    elif f".{ending}" in PAGES:
        found = _page(data)
    else:
        text = data if isinstance(data, str) else decoded_text(data)
        found = ({**_READERS, **_CONVERTED_READERS}).get(ending, _markdown)(_plain(text))
    return replace(found, text=strip_invisible(with_heads(found.text)), title=one_line(found.title)[:120])


def decoded_text(data: bytes) -> str:
    """Text as UTF-8, or as its mark of the byte order says. A guess at anything else could put wrong letters into a quotation."""
    wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return data.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise InputError(f"it is not UTF-8 text (line {line}); save it as UTF-8, e.g. by `iconv -f WINDOWS-1252 -t UTF-8`") from error


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")


# What a file says about itself

_FRONT = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_FIELD = re.compile(r"^([\w-]+):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_META = re.compile(r"<meta\b[^>]{0,600}>", re.IGNORECASE)
_ATTRIBUTE = re.compile(r"""\b(name|property|itemprop|content)\s*=\s*(?:"([^"]*)"|'([^']*)')""", re.IGNORECASE)
_DATED = (
    "date",
    "dc.date",
    "article:published_time",
    "datepublished",
    "published",
    "created",
    "updated",
    "last-modified",
    "article:modified_time",
)


_FIELDS: dict[str, list[str]] = {name: words.split() for name, words in read_lists("holdfast.text", "front_matter").items()}
"""What fields of front matter are called in other languages."""


def _about(said: dict[str, str], text: str) -> FileText:
    dated, title, author = (
        next((said[name] for name in names if said.get(name)), "")
        for names in ((*_DATED, *_FIELDS["date"]), ("title", *_FIELDS["title"]), ("author", *_FIELDS["author"]))
    )
    return FileText(text, title, day_of(dated), author)


def _markdown(text: str) -> FileText:
    front = _FRONT.match(text)
    said = {key.lower(): value.strip("\"'") for key, value in _FIELD.findall(front.group(1))} if front else {}
    return _about(said, _led(text[front.end() :] if front else text))


_LEAD = re.compile(r"^\*\*([^*\n]{2,60}?)[.:]?\*\*[.:]?[ \t]+(?=[^\W_])", re.MULTILINE)


def _led(text: str) -> str:
    """Paragraphs that begin with a few bold words have these as their heading."""
    return _LEAD.sub(lambda match: f"###### {match.group(1)}\n\n" if text[: match.start()].endswith(("\n\n", "")) else match.group(), text)


def _page(data: bytes | str) -> FileText:
    source = data if isinstance(data, str) else decode_text(data)
    page = read_html(data)
    said: dict[str, str] = {}
    for tag in _META.findall(source[:50_000]):
        found = {name.lower(): one or other for name, one, other in _ATTRIBUTE.findall(tag)}
        key = found.get("name") or found.get("property") or found.get("itemprop") or ""
        said.setdefault(key.lower(), found.get("content", ""))
    return replace(_about(said, _plain(page.text)), title=page.title or "")


_KNOWN_HEADERS = HeaderRegistry()


def _header(name: str, value: str) -> Any:
    """A header of a mail; one that cannot be read is as if it were empty. `me <` is an IndexError of the standard library."""
    try:
        return _KNOWN_HEADERS(name, value)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return _KNOWN_HEADERS(name, "")


_MAILS = policy.default.clone(header_factory=_header)


def _mail(data: bytes) -> FileText:
    message = message_from_bytes(data, policy=_MAILS)
    body = message.get_body(("plain", "html"))
    payload = body.get_payload(decode=True) if body is not None else b""
    plain = payload.decode("utf-8", errors="replace") if isinstance(payload, bytes) else ""
    text = plain  # where no character set is named, most mails are UTF-8 all the same
    if body is not None and body.get_content_charset() is not None:
        with suppress(LookupError, ValueError):  # an unknown character set, or a body that is not what it says
            text = body.get_content()
    if body is not None and body.get_content_subtype() == "html":
        text = read_html(text).text
    text = re.sub(r"^>.*\n?", "", _plain(str(text)), flags=re.MULTILINE)  # what is quoted was said in another mail
    day = getattr(message["date"], "datetime", None) if message["date"] is not None else None
    sender = re.sub(r"\s*<[^>]*>", "", str(message["from"] or "")).strip("\" '")
    dated = day.date().isoformat() if day else day_of(str(message["date"] or ""))
    return FileText(text, str(message["subject"] or ""), dated, sender)


_HEADERS = {word: name for name, words in read_words("holdfast.text", "mail_headers").items() for word in words}
_HEADER = re.compile(r"\*{0,2}([^\W\d][\w-]{1,24})\s?:\*{0,2}[ \t]+(\S.*)|[ \t]+(\S.*)")


def saved_mail(text: str) -> FileText | None:
    """The mail that was saved as plain text, with its headers above it as a mail program shows or stores them; None if it is none."""
    made: list[str] = []
    lines = text.lstrip("\n").split("\n")
    for line in lines:
        match = _HEADER.fullmatch(line.rstrip())
        if match is None or (match[1] is None and not made):
            break
        name = _HEADERS.get(match[1].lower(), match[1]) if match[1] is not None else ""
        made.append(f"{name}: {match[2]}" if name else f" {match[3]}")
    named = [line.partition(":")[0] for line in made]
    ended = len(made) == len(lines) or not lines[len(made)].strip()
    if not ended or "from" not in named or not {"subject", "date", "to"} & set(named) or len(set(named)) < 2:
        return None
    return _mail("\n".join([*made, "", *lines[len(made) :]]).encode())


# Pages that were set for paper

_STATED = re.compile(r"(?:microsoft \w+|untitled|document\d*)\b|\S*\.\w{1,5}|\w+://\S+|\W*", re.IGNORECASE)
_COUNTER = re.compile(r"(?:\w+\.?\s+)?(\d{1,4})\s*(?:/|\b\w{1,4}\b)\s*(\d{1,4})")
_PRINTED = re.compile(r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4},?\s+\d{1,2}:\d\d\b.*|.*\b\w+://\S+(?:\s+\d+\s*/\s*\d+)?\s*")
_EDGE = 3  # lines at the top and at the end of a page among which its running heads are
_TITLE_AMONG = 12


def is_title(text: str) -> bool:
    """Whether a title that a program wrote into a file is one: not the name of a program or a file, an address, or nothing.

    >>> is_title("Heat pumps in old houses"), is_title("Microsoft Word - draft3.doc"), is_title("report.pdf"), is_title(" ")
    (True, False, False, False)
    """
    return _STATED.fullmatch(text.strip()) is None and re.match(r"(?i)microsoft \w+ - ", text.strip()) is None


def _pages(text: str) -> FileText:
    """What a converter made of a PDF, without the running heads and numbers of its pages.

    The title is what the file states, else the first line like a heading that is not repeated, nor put there by whoever printed it.
    """
    read = _markdown(text)
    pages = [page.split("\n") for page in read.text.split("\f") if page.strip()]
    kept = _without_running_heads(pages)
    lines = [line.strip("# \t") for page in kept for line in page if line.strip("# \t")]
    often = Counter(map(_folded, lines))
    first = (line for line in lines[:_TITLE_AMONG] if often[_folded(line)] == 1 and not _is_printed(line) and _TITLE_LINE.fullmatch(line))
    title = read.title or next((line for line in first if sum(map(str.isalpha, line)) > 2), "")
    return replace(read, text=_under_title("\n\n".join("\n".join(page) for page in kept), title), title=title)


def _under_title(text: str, title: str) -> str:
    """A text whose title, where it stands in a line of its own at the top, is a heading and no sentence."""
    lines = text.split("\n")
    at = next((n for n, line in enumerate(lines[: 2 * _TITLE_AMONG]) if title and _folded(line.strip("# \t")) == _folded(title)), None)
    return text if at is None else "\n".join([*lines[:at], "", f"# {one_line(lines[at].strip('# '))}", "", *lines[at + 1 :]])


def _without_running_heads(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """The pages without the lines at their edges that stand at the edge of most of them, whatever their numbers are."""
    edges = [_edges(page) for page in pages]
    often = Counter(line for page, places in zip(pages, edges, strict=True) for line in {_folded(page[place]) for place in places})
    running = {line for line, count in often.items() if count >= max(2, (len(pages) + 1) // 2)}
    return [
        [line for n, line in enumerate(page) if n not in places or _folded(line) not in running]
        for page, places in zip(pages, edges, strict=True)
    ]


def _edges(page: Sequence[str]) -> set[int]:
    said = [n for n, line in enumerate(page) if line.strip()]
    return {*said[:_EDGE], *said[-_EDGE:]}


def _folded(line: str) -> str:
    return re.sub(r"\d+", "0", one_line(line)).casefold()


def _is_printed(line: str) -> bool:
    """Whether a browser or a printer put a line there: `Page 1 of 9`, `11/17/26, 9:59 AM ...`, an address with `1/9`."""
    counted = _COUNTER.fullmatch(line.strip())
    if counted is not None:
        return 0 < int(counted.group(1)) <= int(counted.group(2))
    return _PRINTED.fullmatch(line.strip()) is not None and len(line.split()) <= 16


# Plain text

_ITEM = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+\S")
_SPOKEN = re.compile(
    r"\s*(?:\[?\(?(?:\d{4}-\d\d-\d\d[ T])?\d{1,2}[:.]\d{2}(?::\d{2})?(?:\.\d+)?\)?\]?|<[\w. -]{1,30}>|\[[\w .:-]{4,30}\])[ ,:|<-]*\S"
)
_TITLE_LINE = re.compile(r"(?!\s*[-*+#>|•=`])\s{0,3}[\w\"“§(].{0,78}[^\s.!?:;,。！？]")
_WIDE_GAP = re.compile(r"[ \t]{3,}")
_SHORT = 60
_TOP = 6  # lines among which plain text says when it was written


def _text(text: str) -> FileText:
    """Plain text: lines that stand above a paragraph are headings, lines of a talk stand alone, aligned columns are a table.

    A mail that was saved as text is read as a mail.
    """
    mail = saved_mail(text)
    if mail is not None:
        return mail
    lines = table_lines(text.split("\n"))
    spoken = sum(_SPOKEN.match(line) is not None for line in lines)
    if (spoken >= 3 and spoken * 5 >= 2 * sum(bool(line.strip()) for line in lines)) or is_transcript(text):
        return FileText("\n".join(("\n" if _SPOKEN.match(line) or TURN.match(line) else "") + line for line in lines))
    marked: list[str] = []
    for n, line in enumerate(lines):
        first = n == 0 or not lines[n - 1].strip()
        if first and _TITLE_LINE.fullmatch(line) and _heads(line, lines[n + 1] if n + 1 < len(lines) else ""):
            level = "##" if any(one.strip() for one in marked) else "#"
            marked += [f"{level} {_WIDE_GAP.split(line.strip())[0]}", ""]
        else:
            marked.append(line)
    return FileText("\n".join(marked), dated=day_of_head(marked[:_TOP]))


def _heads(line: str, after: str) -> bool:
    """Whether a line stands above what follows it as its heading: alone, above a list, or short above a line of prose."""
    if not after.strip() or _ITEM.match(after):
        return True
    prose = len(after.strip()) > len(line.strip()) or after.rstrip().endswith((".", "!", "?"))
    begins = after.strip()[:1]
    return len(line.strip()) <= _SHORT and len(line.split()) <= 8 and prose and (not begins.islower() or line.strip().isupper())


def _rst(text: str) -> FileText:
    """reStructuredText: underlined titles as headings, fields as data, directives left out."""
    lines = text.split("\n")
    said = {match.group(1).lower(): match.group(2).strip() for line in lines[:30] if (match := re.match(r":([\w-]+):\s+(.*)", line))}
    levels: list[str] = []
    made: list[str] = []
    for n, line in enumerate(lines):
        after = lines[n + 1].strip() if n + 1 < len(lines) else ""
        mark = after[:1]
        if line.strip() and not line.startswith(" ") and _is_rule(after) and not _is_rule(line) and len(after) >= len(line.strip()) - 1:
            levels += [mark] if mark not in levels else []
            made += ["", f"{'#' * min(levels.index(mark) + 1, 6)} {line.strip()}", ""]
        elif not (_is_rule(line.strip()) or re.match(r"\.\. |\s+:\w[\w-]*:|:[\w-]+:\s", line)):
            made.append(line)
    return _about(said, "\n".join(table_lines(made)))


def _is_rule(line: str) -> bool:
    return len(line) >= 3 and re.fullmatch(r"([=\-~^\"'#*+.:_`])\1{2,}", line) is not None


# Tables


def _csv(text: str) -> FileText:
    head = text[:8192]
    delimiter = max(";,\t|", key=lambda mark: head.split("\n", 1)[0].count(mark))
    cells = [[one_line(cell) for cell in line] for line in csv.reader(io.StringIO(text), delimiter=delimiter) if any(map(str.strip, line))]
    return FileText("\n".join(line for line in rows_of(cells) if line) + "\n")


_EMPTY_CELL = re.compile(r"(?<=\|) (?:NaN|NaT|Unnamed: \d+)(?= \|)")


def _sheets(text: str) -> FileText:
    """What a converter made of the sheets of a workbook, without the words that it puts into empty cells."""
    return _markdown(_EMPTY_CELL.sub(" ", text))


# JSON

_TITLES = ("title", "name", "heading", "subject", "page", "id")
_LONG = 40  # words: a longer value is a text of its own
_SENTENCE = re.compile(rf"(?:\S+\s+){{{_LONG},}}.*|(?:\S+\s+){{4,}}.*[.!?。！？][\"'”»)]*")


def _json(text: str) -> FileText:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the JSON cannot be read: {error}.", hint="Mend the file, or leave it out with `globs`.") from error
    blocks: list[str] = []
    _write_json(value, 1, blocks)
    title = value.get("title") if isinstance(value, dict) else ""
    return FileText(joined_blocks(blocks), title if isinstance(title, str) else "")


def _json_lines(text: str) -> FileText:
    return FileText("\n\n".join(_json(line).text for line in text.splitlines() if line.strip()))


def _write_json(value: Any, level: int, blocks: list[str], name: str = "") -> None:
    """An object of plain values is a row with its keys, one of further objects a section under its title; long texts are paragraphs."""
    if level > 40:
        return
    if isinstance(value, dict):
        plain = {str(key): _shown(member) for key, member in value.items() if _shown(member)}
        title = next((key for key in _TITLES if key in plain and len(plain) < len(value)), None)
        if title is not None or (name and len(plain) < len(value)):
            blocks.append(f"{'#' * min(level, 6)} {plain.pop(title) if title is not None else name}")
        told = (
            [key for key, member in plain.items() if _SENTENCE.fullmatch(member)] if len(" ".join(plain.values()).split()) > _LONG else []
        )
        short = [key for key in plain if key not in told]
        if short:
            blocks.append(row(short, [plain[key] for key in short]))
        blocks += [f"{key}: {plain[key]}" for key in told]
        for key, member in value.items():
            if not _shown(member):
                _write_json(member, level + 1, blocks, str(key))
    elif isinstance(value, list):
        if name and value:
            blocks.append(f"{'#' * min(level, 6)} {name}")
        for member in value:
            _write_json(member, level + 1, blocks)
    elif _shown(value):
        blocks.append(f"- {_shown(value)}")


def _shown(value: object) -> str:
    """A value that can stand in a row: a text, a number, or a list of such; empty for what cannot, as a list of sentences."""
    if isinstance(value, list) and all(isinstance(one, str | int | float) and not _SENTENCE.fullmatch(str(one)) for one in value):
        return ", ".join(one_line(str(one)) for one in value)
    return one_line(str(value)) if isinstance(value, str | int | float) else ""


_READERS: dict[str, Callable[[str], FileText]] = {
    "txt": _text, "text": _text, "log": _text, "": _text, "rst": _rst, "csv": _csv, "tsv": _csv, "json": _json, "jsonl": _json_lines,
    "ndjson": _json_lines, "md": _markdown, "markdown": _markdown,
}  # fmt: skip
_CONVERTED_READERS: dict[str, Callable[[str], FileText]] = {"pdf": _pages, "xlsx": _sheets, "xls": _sheets}
"""For what a converter made of such a file."""
PAGES = (".html", ".htm", ".xhtml")
READ = (*(f".{ending}" for ending in _READERS if ending), *PAGES, ".eml")
"""Endings of names that are read here."""
CONVERTED = {
    ".docx": b"PK\x03\x04",
    ".pptx": b"PK\x03\x04",
    ".xlsx": b"PK\x03\x04",
    ".epub": b"PK\x03\x04",
    ".xls": b"\xd0\xcf\x11\xe0",
    ".pdf": b"%PDF",
}
"""Endings of names that a converter reads, and what is really inside: one that does not know it takes it for plain text."""
