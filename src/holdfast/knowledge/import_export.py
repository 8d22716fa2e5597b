"""Import and export of knowledge: documents of all kinds, JSON lines of records and chat logs in (K1); JSON lines or Markdown out.

What cannot be read is reported with its file and line, and the rest is taken in; `strict` stops at the first fault instead. Reading is a
stream: a file of any length of JSON lines is never held as a whole. Documents are cut into sections that can be found one by one.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import IO, Any, cast

from holdfast.durable.folder import open_outside
from holdfast.durable.replace import replace as replace_file
from holdfast.errors import HoldfastError, InputError
from holdfast.knowledge.markdown import write_folder
from holdfast.knowledge.record_forms import is_conversation, is_message, of_messages, of_sessions, of_transcript, parse
from holdfast.knowledge.records import FILE, FILES, Record, files_of, from_json, read_moment, reading_order, to_json
from holdfast.knowledge.store import AddReport, KnowledgeStore, Progress
from holdfast.text.dates import day_of_head, day_of_name
from holdfast.text.file_formats import CONVERTED, PAGES, READ, decoded_text, read_text, saved_mail
from holdfast.text.sentences import find_blocks
from holdfast.text.transcripts import is_transcript

_MARKS = re.compile(r"^#{1,6}[ \t]+|[ \t]+#*[ \t]*$")  # around the name of a heading
_UNDERLINE = re.compile(r"[ \t]*\n {0,3}(?:=+|-{2,})[ \t]*(?=\n|$)")
MOST_BYTES = 500_000_000
"""Of a file that is read as a whole, and of a line of one that is not, unpacked: a small packed file can be as large as one likes."""
_LONG = 4000  # characters from which on a text without headings is cut at its blank lines


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with what stands under it. `path` are the headings above it and itself; `line` is where it begins, from 1."""

    path: tuple[str, ...]
    text: str
    line: int


def sections(text: str) -> list[Section]:
    """The sections of a Markdown text, in order, each without those below it. What is in front of the first heading has an empty path.

    >>> [(one.path, one.text) for one in sections("# A\\nfirst\\n## B\\nsecond")]
    [(('A',), 'first'), (('A', 'B'), 'second')]
    """
    found: list[Section] = []
    above: dict[int, str] = {}
    start, line = 0, 1
    headings = [block for block in find_blocks(text) if block.kind == "heading"]
    for heading in (*headings, None):
        end = len(text) if heading is None else heading.start
        body = text[start:end].strip()
        if body:
            found.append(Section(tuple(above[level] for level in sorted(above)), body, line))
        if heading is not None:
            name = _MARKS.sub("", text[heading.start : heading.end]).strip()
            above = {level: other for level, other in above.items() if level < heading.level} | {heading.level: name}
            under = None if text[heading.start] == "#" else _UNDERLINE.match(text, heading.end)
            start, line = under.end() if under else heading.end, text.count("\n", 0, heading.start) + 1
    return found


def paragraphs(text: str) -> list[Section]:
    """A plain text as one section, or, when it is long, as several of about equal length that end at blank lines, else between lines."""
    if len(text) <= _LONG:
        return [Section((), text.strip(), 1)] if text.strip() else []
    found: list[Section] = []
    held: list[str] = []
    size, start = 0, 1
    for number, line in enumerate(text.splitlines(), 1):
        if (size >= _LONG // 2 and not line.strip()) or size >= _LONG:
            found.append(Section((), "\n".join(held).strip(), start))
            held, size, start = [], 0, number + (not line.strip())
        held.append(line)
        size += len(line) + 1
    if "".join(held).strip():
        found.append(Section((), "\n".join(held).strip(), start))
    return found


_MARKDOWN = (".md", ".markdown")
_LINES = (".jsonl", ".ndjson")
_DOCUMENTS = (*PAGES, *CONVERTED, ".eml", ".csv", ".tsv")
_PACKED = (".xz", ".gz")
_SHOWN = 80
_TOP = 4  # lines of a text that may say when it was written

Convert = Callable[[bytes, str], tuple[str | None, str | None]]
"""Makes Markdown of a document with this ending, or gives None and the reason."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that could not be taken in, where it is, and why."""

    file: str
    line: int | None
    problem: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.problem}" if self.line else f"{self.file}: {self.problem}"


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did."""

    added: AddReport
    files: int
    faults: tuple[Fault, ...] = ()
    skipped: tuple[str, ...] = ()
    """Files of a kind that is not read."""
    gone: int = 0
    """Records of documents that were imported before and no longer say this: forgotten."""
    hidden: tuple[str, ...] = ()
    """Hidden files and folders that were passed over."""


def import_path(
    store: KnowledgeStore,
    path: str | os.PathLike[str],
    *more: str | os.PathLike[str],
    tags: Iterable[str] = (),
    session: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
    convert: Convert | None = None,
) -> ImportReport:
    """Add everything at a path: a file, or all files of a folder; several are one import. `tags` are given to all records, `session` is
    put above theirs.

    A document that is imported again replaces what came from it: sections that changed are changed, and those that vanished, with their
    file or out of it, are forgotten.

    PDF and Office files are read by `convert`, such as `holdfast.sandbox.uploads.MarkItDown().convert`; without it they are skipped.
    In a folder hidden files are left out, and so are links: what they lead to may belong to somebody else.
    """
    faults: list[Fault] = []
    skipped: list[str] = []
    hidden: list[str] = []
    files: set[str] = set()
    given = tuple(tags)
    taken: _Taken = {}
    paths = (path, *more)
    for place in paths:  # before anything is taken in
        if not Path(place).exists():
            raise InputError(f"there is no {place}.", hint="Give the path of a file or a folder.")

    def records() -> Iterator[Record]:
        for file, one in (found for place in paths for found in read_path(place, skipped, convert, hidden)):
            files.add(file)
            if isinstance(one, Record):
                record = _placed(one, given, session)
                if _is_section(record, file):
                    taken.setdefault((record.extra[FILE], record.session), {})[record.id] = record.source
                yield record
            elif strict:
                raise InputError(str(one), hint="Mend it, or import without --strict to take in the rest.")
            else:
                faults.append(one)

    added = store.add(records(), progress=progress)
    changed, gone = _replaced(store, taken, [Path(place).absolute() for place in paths])
    added = replace(added, added=max(added.added - changed, 0), updated=added.updated + min(changed, added.added))
    read = len(files - {one.file for one in faults if one.line is None})
    return ImportReport(added, read, tuple(faults), tuple(skipped), gone, tuple(hidden))


_Taken = dict[tuple[str, str | None], dict[str, str | None]]
"""Ids and sources of what was taken in now, by its file and session."""


def _replaced(store: KnowledgeStore, taken: _Taken, places: Iterable[Path]) -> tuple[int, int]:
    """Forget what an earlier import took from the same documents and they no longer say; how many were changed, and how many are gone.

    What another document still says stays."""
    folders = tuple(f"{place}{os.sep}" for place in places if place.is_dir())
    old: list[str] = []
    kept: list[Record] = []
    changed = gone = 0
    for record in store.records():
        files = files_of(record)
        now = {file: taken.get((file, record.session)) for file in files}
        silent = [file for file, said in now.items() if said is not None and record.id not in said]
        lost = [file for file, said in now.items() if said is None and file.startswith(folders) and not os.path.lexists(file)]
        left = [file for file in files if file not in silent and file not in lost]
        if len(left) == len(files):
            continue
        if left:
            kept.append(replace(record, extra={**record.extra, FILE: left[0], FILES: left}))
            continue
        other = any(record.source in (now[file] or {}).values() for file in silent)
        changed, gone = (changed + 1, gone) if other else (changed, gone + 1)
        old.append(record.id)
    if old:
        store.forget(old)
    if kept:
        store.add(kept)
    return changed, gone


def _placed(record: Record, tags: tuple[str, ...], session: str | None) -> Record:
    if not tags and session is None:
        return record
    below = "/".join(part for part in (session, record.session) if part) or None
    return replace(record, tags=(*record.tags, *tags), session=below)


def read_path(
    path: str | os.PathLike[str], skipped: list[str] | None = None, convert: Convert | None = None, hidden: list[str] | None = None
) -> Iterator[tuple[str, Record | Fault]]:
    """What is at a path, in order, each with its file. InputError if there is nothing that can be read.

    The names of files of another kind are put into `skipped`, those of hidden files and folders, which are passed over, into `hidden`.
    """
    place = Path(path)
    kinds = (*READ, *(CONVERTED if convert is not None else ()))
    if place.is_dir():
        refused: list[OSError] = []
        found = sorted(_files(place, refused, hidden if hidden is not None else []))
        known = [file for file in found if _ending(file.name) in kinds]
        if not known and not refused:
            raise InputError(f"{place} has no files that can be imported.", hint=f"Known are {', '.join(kinds)}.")
        if skipped is not None:
            skipped += [file.relative_to(place).as_posix() for file in found if file not in set(known)]
        for file in known:
            name = file.relative_to(place).as_posix()
            if _leads_out(file, place):
                yield name, Fault(name, None, "it is a link that leads out of the folder, and is not followed.")
            elif not file.is_symlink():  # what a link inside leads to is there itself
                yield from _of_file(file, _read(file, name, convert))
        for error in refused:
            folder = os.path.relpath(os.fsdecode(error.filename), place)
            yield folder, Fault(folder, None, f"the folder cannot be read: {error.strerror}.")
    elif place.exists():
        yield from _of_file(place, _read(place, place.name, convert))
    else:
        raise InputError(f"there is no {place}.", hint="Give the path of a file or a folder.")


def _of_file(path: Path, found: Iterable[tuple[str, Record | Fault]]) -> Iterator[tuple[str, Record | Fault]]:
    """What was read, where sections of documents know the file that they are from."""
    for name, one in found:
        if isinstance(one, Record) and _is_section(one, name):
            yield name, replace(one, extra={**one.extra, FILE: str(path.absolute())})
        else:
            yield name, one


def _is_section(record: Record, name: str) -> bool:
    """Whether a record was cut out of the document of this name; one that was only kept in such a file was not."""
    return record.kind == "document" and (record.source == name or (record.source or "").startswith(f"{name}#"))


def _files(folder: Path, refused: list[OSError], hidden: list[str]) -> Iterator[Path]:
    """All files below a folder but hidden ones, which are in `hidden` at the end. Folders that may not be looked into are in `refused`."""
    for here, folders, names in os.walk(folder, onerror=refused.append):
        below = Path(here).relative_to(folder)
        hidden += [f"{(below / name).as_posix()}/" for name in sorted(folders) if name.startswith(".")]
        hidden += [(below / name).as_posix() for name in sorted(names) if name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(here, name) for name in names if not name.startswith("."))


def _leads_out(file: Path, folder: Path) -> bool:
    return file.is_symlink() and not file.resolve().is_relative_to(folder.resolve())


def _ending(name: str) -> str:
    """What a file is by its name, whether it is packed or not."""
    path = Path(name.lower())
    return Path(path.stem).suffix if path.suffix in _PACKED else path.suffix


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """A file for reading, unpacked when its name ends with .xz or .gz. InputError if it cannot be opened."""
    with ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(open_outside(path))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
        if path.suffix == ".xz":
            file = stack.enter_context(lzma.open(file))
        elif path.suffix == ".gz":
            file = cast("IO[bytes]", stack.enter_context(gzip.open(file)))
        yield file


def lines_of(file: IO[bytes]) -> Iterator[bytes]:
    """The lines of a file, however it is packed. InputError for one that no memory has room for, which ends the reading."""
    while line := file.readline(MOST_BYTES + 1):
        if len(line) > MOST_BYTES:
            raise InputError(f"a line of it has more than {MOST_BYTES // 1_000_000} MB.", hint="Write one value a line.")
        yield line


def _read(path: Path, name: str, convert: Convert | None) -> Iterator[tuple[str, Record | Fault]]:
    try:
        if _ending(path.name) in _LINES:
            yield from ((name, one) for one in _json_lines(path, name))
        else:
            yield from ((name, one) for one in _whole(path, name, convert))
    except InputError as error:
        yield name, Fault(name, None, str(error))
    except (OSError, EOFError, lzma.LZMAError) as error:  # a packed file that is cut short, or a disk that fails
        yield name, Fault(name, None, f"it cannot be read: {error}.")


def _whole(path: Path, name: str, convert: Convert | None) -> Iterator[Record | Fault]:
    with opened(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        hint = "Split it, or write lines of JSON, which are read one by one."
        raise InputError(f"it has more than {MOST_BYTES // 1_000_000} MB.", hint=hint)
    ending = _ending(path.name)
    if ending in _DOCUMENTS:
        yield from _document(data, ending, name, convert)
        return
    text = decoded_text(data)
    try:
        if ending == ".json":
            value = json.loads(text)
            yield from _value(value, name, None) if _has_records(value) else _document(data, ending, name, convert)
        elif ending in _MARKDOWN:
            yield from _markdown(text, name)
        elif saved_mail(text) is not None:
            yield from _document(data, ending, name, convert)
        elif is_transcript(text):
            yield from of_transcript(text, session=_stem(name), source=name)
        else:
            dated = _moment(day_of_head(text.split("\n")[:_TOP]) or day_of_name(name))
            yield from (replace(_section(one, name), time=dated) for one in paragraphs(text))
    except json.JSONDecodeError as error:
        yield Fault(name, error.lineno, f"it is not JSON: {error.msg}.")
    except (InputError, RecursionError) as error:
        yield Fault(name, None, str(error))
    except ValueError as error:  # a number with more digits than Python reads
        yield Fault(name, None, f"it cannot be read: {error}.")


def _has_records(value: Any) -> bool:
    """Whether a JSON value is one of ours or a talk, and not a document that somebody has as JSON."""
    if isinstance(value, list):
        return not value or any(is_message(one) or (isinstance(one, dict) and _has_records(one)) for one in value)
    return isinstance(value, dict) and (
        is_conversation(value)
        or isinstance(value.get("text"), str)
        or any(isinstance(value.get(key), list) for key in ("messages", "records"))
    )


def _document(data: bytes, ending: str, name: str, convert: Convert | None) -> Iterator[Record]:
    """A page, a mail, a table, a PDF or Office file by its headings, with what it says about itself. InputError if it cannot be read."""
    if ending in CONVERTED:
        text, problem = convert(data, ending) if convert is not None else (None, f"files of the kind {ending} need a converter.")
        if text is None:
            raise InputError(problem or "it cannot be converted.")
        data = text.encode()
    read = read_text(data, ending)
    time, named = _moment(read.dated), _moment(day_of_name(name))
    for section in sections(read.text):
        for part in paragraphs(section.text):
            made = _section(replace(section, text=part.text, line=section.line + part.line - 1), name)
            extra = {"title": read.title, **made.extra} if read.title else made.extra
            made = replace(made, id="", time=time, speaker=read.author or None, extra=extra)
            yield made if time is not None else replace(made, time=named)


def _moment(dated: str) -> datetime | None:
    return read_moment(dated) if dated else None


def _markdown(text: str, name: str) -> Iterator[Record]:
    """A file of a Markdown store as its record; any other file by its headings, each section with what its head says.

    The day that the title or the name of the file gives is set after the id is made: it is understood, and no part of what was said.
    """
    whole = parse(text.encode(), name)
    if whole is None:
        return
    if whole.id != name:
        yield whole
        return
    if is_transcript(whole.text):
        yield from of_transcript(whole.text, session=_stem(name), source=name)
        return
    dated = _moment(day_of_head([line for line in whole.text.split("\n") if line.strip()][:_TOP]) or day_of_name(name))
    for one in sections(whole.text):
        made = _section(one, name)
        made = replace(made, id="", tags=whole.tags, time=whole.time, extra={**whole.extra, **made.extra})
        yield made if made.time is not None else replace(made, time=dated)


def _section(section: Section, name: str) -> Record:
    heading = section.path[-1] if section.path else None
    source = f"{name}#{heading}" if heading else name if section.line == 1 else f"{name}#line-{section.line}"
    extra = {"title": " > ".join(section.path)} if section.path else {}
    return Record(section.text, source=source, kind="document", extra=extra)


def _json_lines(path: Path, name: str) -> Iterator[Record | Fault]:
    """Records, conversations and messages, one a line. Messages by themselves are one conversation.

    A file that begins with an object that is none of these holds rows, as the same objects in a JSON file are: they are one document."""
    messages: list[Any] = []
    rows: list[Any] = []
    of_records = False
    with opened(path) as file:
        for number, line in enumerate(lines_of(file), 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line.decode("utf-8-sig"))
                if is_message(value):
                    messages.append(value)
                elif isinstance(value, dict) and not (of_records or messages or _has_records(value) or {"schema", "text"} & value.keys()):
                    rows.append(value)
                else:
                    of_records = not rows
                    yield from _value(value, name, number)
            except json.JSONDecodeError as error:
                yield Fault(name, number, f"it is not JSON: {error.msg} (column {error.colno}).")
            except (ValueError, RecursionError, HoldfastError) as error:  # no UTF-8, or a number with more digits than Python reads
                yield Fault(name, number, str(error))
    if messages:
        yield from of_messages(messages, session=_stem(name), source=name)
    if rows:
        yield from _document(json.dumps(rows).encode(), ".json", name, None)


def _value(value: Any, name: str, line: int | None) -> Iterator[Record | Fault]:
    """The records of one JSON value, whatever it is."""
    below = _stem(name) if line is None else f"{_stem(name)}/{line}"
    if is_conversation(value):
        yield from of_sessions({"id": below, **value}, name)
    elif isinstance(value, dict) and isinstance(value.get("messages"), list):
        yield from of_messages(value["messages"], session=str(value.get("id") or value.get("thread_id") or below), source=name)
    elif isinstance(value, dict) and isinstance(value.get("records"), list):
        yield from _several(value["records"], name, line)
    elif isinstance(value, list) and value and all(is_message(one) for one in value):
        yield from of_messages(value, session=below, source=name)
    elif isinstance(value, list):
        yield from _several(value, name, line)
    else:
        yield from_json(value)


def _several(values: list[Any], name: str, line: int | None) -> Iterator[Record | Fault]:
    for number, value in enumerate(values, 1):
        try:
            if isinstance(value, dict) and isinstance(value.get("text"), str):
                yield from_json(value)
            else:
                yield from _value(value, f"{_stem(name)}-{number}.json", None)
        except InputError as error:
            yield Fault(name, line, f"entry {number}: {error}")


def _stem(name: str) -> str:
    """A file's name without its endings, as the name of a conversation."""
    stem = name
    for _ in range(2):
        with suppress(ValueError):
            stem = str(Path(stem).with_suffix(""))
    return stem[:_SHOWN] or name


def json_lines(store: KnowledgeStore, *, tags: Collection[str] = (), session: str | None = None) -> Iterator[str]:
    """Every record as one line of JSON, conversations together and in their order."""
    for record in _sorted(store, tags, session):
        yield json.dumps(to_json(record), ensure_ascii=False)


def export_lines(store: KnowledgeStore, path: str | PathLike[str], *, tags: Collection[str] = (), session: str | None = None) -> int:
    """Write all records to a file of JSON lines, durably; says how many."""
    lines = list(json_lines(store, tags=tags, session=session))
    replace_file(Path(path).absolute(), "".join(f"{line}\n" for line in lines).encode("utf-8"))
    return len(lines)


def export_markdown(store: KnowledgeStore, folder: str | PathLike[str], *, tags: Collection[str] = (), session: str | None = None) -> int:
    """Write all records as Markdown files, one for each, into a folder that is new or empty; says how many."""
    place = Path(folder)
    if place.is_dir() and any(place.iterdir()):
        raise InputError(f"{place} is not empty.", hint="Give a new folder: an export never mixes with what is there.")
    return write_folder(place, _sorted(store, tags, session))


def _sorted(store: KnowledgeStore, tags: Collection[str], session: str | None) -> list[Record]:
    return sorted(store.records(tags=tags, session=session), key=reading_order)
