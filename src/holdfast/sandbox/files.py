"""What the file tools do: list, read, write, replace, move and remove, always beneath the roots that the thread may see (A9, A10).

Everything goes through open folder handles, so that no name, link or race leads out. Results are values with a `text` for the model.

Bytes become text here: which encoding a file is in, whether it is text at all, and back again in the same form.
"""

from __future__ import annotations

import codecs
import io
import mimetypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO
from weakref import WeakValueDictionary

from holdfast.durable.folder import Folder, FolderEntry
from holdfast.errors import InputError, NotThere, OutsideRoot, StorageError
from holdfast.sandbox.paths import OUTPUTS, USER_DATA, DiskQuota, Place, SecondNames, VirtualPaths, quoted

SAMPLE = 65_536
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark is the beginning of this one
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CONTROL = frozenset(range(32)) - {7, 8, 9, 10, 11, 12, 13, 27}


@dataclass(frozen=True)
class TextForm:
    """How a text is written down: its encoding and the mark at its beginning."""

    encoding: str = "utf-8"
    mark: bytes = b""


def detect(sample: bytes) -> TextForm | None:
    """The form of a file that begins with `sample`; None if it is not text.

    >>> detect("naïve".encode()).encoding, detect("naïve".encode("cp1252")).encoding, detect(b"\\x7fELF\\x02\\x00\\x00")
    ('utf-8', 'cp1252', None)
    """
    for mark, encoding in _MARKS:
        if sample.startswith(mark):
            return TextForm(encoding, mark)
    if b"\0" in sample or sum(byte in _CONTROL for byte in sample[:8192]) > len(sample[:8192]) // 50:
        return None  # more control characters than any text has
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(sample)  # a letter cut off by the end of the sample is no error
            return TextForm(encoding)
    return TextForm("latin-1")


def to_text(data: bytes, form: TextForm) -> str:
    """The whole content as text. What does not decode becomes the replacement sign."""
    return data[len(form.mark) :].decode(form.encoding, "replace")


def from_text(text: str, form: TextForm) -> bytes:
    """The text in the form it was read in; in UTF-8 if it now holds what that form has no sign for."""
    try:
        return form.mark + text.encode(form.encoding)
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


_MOST_SCANNED = 256 * 1024 * 1024
_MOST_LISTED = 10_000
_BLOCK = 1 << 20


@dataclass(frozen=True)
class FileLimits:
    """How much one call may read, write and show."""

    read_chars: int = 50_000
    list_chars: int = 20_000
    edit_bytes: int = 10 * 1024 * 1024
    write_bytes: int = 64 * 1024 * 1024
    total_bytes: int | None = None
    """What all files of the thread may take on the disk together, those that commands write included; None: no limit."""


@dataclass(frozen=True)
class Seen:
    """Something at a virtual path."""

    path: str
    kind: str
    size: int
    modified: float


@dataclass(frozen=True)
class Listing:
    """What was found, in order. `left_out` says how many more there are; when it is None, more than were counted."""

    entries: tuple[Seen, ...]
    text: str
    left_out: int | None = 0


@dataclass(frozen=True)
class FileText:
    """Lines of a file. `first` is the number of the first one; `more` says that the file goes on after the last one."""

    path: str
    text: str
    first: int
    lines: int
    more: bool
    encoding: str


@dataclass(frozen=True)
class Artifact:
    """A file of the thread to be handed out. The reader closes `stream`. Serve it as an attachment: its content is not ours."""

    path: str
    name: str
    size: int
    media_type: str
    stream: BinaryIO


_locks: WeakValueDictionary[str, threading.Lock] = WeakValueDictionary()
_locks_guard = threading.Lock()


def _lock_for(folder: Folder) -> threading.Lock:
    """One lock for all who change files in the same folder, such as an agent and its sub-agents."""
    with _locks_guard:
        lock = _locks.get(folder.path)
        if lock is None:
            lock = _locks[folder.path] = threading.Lock()
        return lock


class ThreadFiles:
    """The files of one thread by their virtual paths.

    OutsideRoot for a path that leads out, InputError for what cannot be done with it, QuotaExceeded for what there is no room for,
    NotWritable where files can only be read, StorageError for the rest. Safe for many threads.
    """

    def __init__(self, paths: VirtualPaths, limits: FileLimits | None = None, quota: DiskQuota | None = None) -> None:
        self.paths = paths
        self.limits = limits or FileLimits()
        self.quota = quota

    # Looking

    def stat(self, path: str) -> Seen:
        """What is at this path; for a link, what it points to."""
        if self.paths.below(path):
            return Seen("/" + "/".join(part for part in path.split("/") if part not in ("", ".")), "folder", 0, 0.0)
        place = self.paths.resolve(path)
        with _absence(place):
            entry = place.folder.stat(place.relative)
        return Seen(place.path, entry.kind, entry.size, entry.modified)

    def exists(self, path: str) -> bool:
        """Whether there is something at this path."""
        try:
            self.stat(path)
        except InputError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
            return False
        return True

    def ls(self, path: str = ".", *, depth: int = 1) -> Listing:
        """What is in a folder, folders with a slash at the end, `depth` levels deep. Links are shown and not followed."""
        if not 1 <= depth <= 10:
            raise InputError(f"a depth of {depth} cannot be listed.", hint="Give 1 to 10.")
        found: list[Seen] = []
        left_out = 0
        for seen in self._listed(path, depth):
            if len(found) < _MOST_LISTED:
                found.append(seen)
            else:
                left_out += 1
        return listing(found, self.limits.list_chars, left_out)

    def _listed(self, path: str, depth: int) -> Iterator[Seen]:
        virtual = self.paths.below(path)
        if virtual:
            for root in virtual:
                yield Seen(root.virtual, "folder", 0, 0.0)
                if depth > 1:
                    yield from self._inside(Place(root, "."), depth - 1)
            return
        place = self.paths.resolve(path)
        with _absence(place):
            if place.folder.stat(place.relative).kind != "folder":
                raise InputError(f"{place.path} is not a folder.", hint="Read it with read_file.")
            yield from self._inside(place, depth)

    def _inside(self, place: Place, depth: int) -> Iterator[Seen]:
        for entry in place.folder.list(place.relative):
            yield seen_at(place, entry)
            if entry.kind == "folder" and depth > 1:
                try:
                    yield from self._inside(Place(place.root, entry.path), depth - 1)
                except (FileNotFoundError, StorageError):
                    continue  # removed, or swapped for a link, since it was listed; or not ours to enter

    # Reading

    def open(self, path: str) -> BinaryIO:
        """The file, open for reading as bytes. Refuses pipes, devices, and files with a second name outside."""
        place = self.paths.resolve(path)
        return self._open(place, SecondNames(place.folder))

    def _open(self, place: Place, names: SecondNames) -> BinaryIO:
        with _absence(place):
            if place.folder.stat(place.relative).kind == "folder":
                raise InputError(f"{place.path} is a folder.", hint="List it with ls.")
            file = place.folder.open(place.relative)
        try:
            names.check(file, place.path)
        except BaseException:
            file.close()
            raise
        return file

    def read_bytes(self, path: str, *, limit: int) -> bytes:
        """The content. InputError if it has more than `limit` bytes."""
        with self.open(path) as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InputError(f"{path} has more than {limit} bytes.", hint="Read a part of it.")
        return data

    def read(self, path: str, *, offset: int = 1, limit: int | None = None) -> FileText:
        """Lines of a text file from line `offset` on, at most `limit` of them and as many as may be shown at once.

        InputError for what is not text, and for a line beyond the end.
        """
        if offset < 1 or (limit is not None and limit < 1):
            raise InputError("lines are counted from 1.", hint="Give an offset of 1 or more, and a limit of 1 or more.")
        with self.open(path) as file:
            form = _form_of(file, path)
            file.seek(len(form.mark))
            text = io.TextIOWrapper(file, encoding=form.encoding, errors="replace", newline="")
            try:
                return self._lines(text, path, offset, limit, form)
            finally:
                text.detach()

    def _lines(self, file: io.TextIOWrapper, path: str, offset: int, limit: int | None, form: TextForm) -> FileText:
        number = _skip(file, offset - 1, path)
        room, kept, lines = self.limits.read_chars, [], 0
        while room > 0 and (limit is None or lines < limit):
            line = file.readline(room)
            if not line:
                break
            kept.append(line)
            room -= len(line)
            lines += 1
        if not kept and offset > 1:
            raise InputError(f"{path} has {number} lines.", hint=f"Ask for a line up to {max(number, 1)}.")
        more = bool(file.read(1))
        return FileText(self.paths.resolve(path).path, "".join(kept), offset, lines, more, form.encoding)

    def artifact(self, path: str, *, within: str = OUTPUTS) -> Artifact:
        """A file to hand to a person, by default only from the outputs. The caller closes the stream."""
        place = self.paths.resolve(path)
        if place.root.virtual != self.paths.resolve(within).root.virtual:
            raise OutsideRoot(f"{place.path} is not in {within}.", path=place.path, operation="open", hint=f"Copy it to {within} first.")
        file = self._open(place, SecondNames(place.folder))
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        name = place.relative.rsplit("/", 1)[-1]
        return Artifact(place.path, name, size, mimetypes.guess_type(name)[0] or "application/octet-stream", file)

    # Writing

    def write(self, path: str, content: str | bytes) -> Seen:
        """Replace the content in one step, durably; missing folders are made. A link is replaced by the file, never written through."""
        data = content.encode("utf-8", "replace") if isinstance(content, str) else content
        if len(data) > self.limits.write_bytes:
            raise InputError(f"{len(data)} bytes are too many for one file.", hint=f"Write at most {self.limits.write_bytes} bytes.")
        place = self.paths.resolve(path, writing=True)
        with _lock_for(place.folder):
            self._write(place, data)
        return self.stat(path)

    def _write(self, place: Place, data: bytes) -> None:
        if self.quota is not None and place.root.virtual.startswith(f"{USER_DATA}/"):
            self.quota.check(_on_disk(len(data)) - self._replaced(place))
        try:
            place.folder.write(place.relative, data)
        except FileNotFoundError:
            raise InputError(f"{place.path} cannot be written: a folder on the way was removed.", hint="Try again.") from None

    def _replaced(self, place: Place) -> int:
        """The room that the write gives back."""
        try:
            entry = place.folder.stat(place.relative)
        except (FileNotFoundError, StorageError):
            return 0
        return _on_disk(entry.size) if entry.kind == "file" and entry.links == 1 else 0

    def append(self, path: str, content: str | bytes) -> Seen:
        """Add to the end of a file, which is made if need be, in the encoding that the file has."""
        place = self.paths.resolve(path, writing=True)
        with _lock_for(place.folder):
            before, form = self._whole(place, missing_is_empty=True)
            data = content if isinstance(content, bytes) else from_text(content, TextForm(form.encoding))
            if len(before) + len(data) > self.limits.write_bytes:
                raise InputError(f"{place.path} would get too long.", hint=f"Files may have {self.limits.write_bytes} bytes.")
            self._write(place, before + data)
        return self.stat(path)

    def str_replace(self, path: str, old: str, new: str, *, every: bool = False) -> int:
        """Put `new` in the place of `old`, which must be there exactly once unless `every` is given. Says how often it was.

        The encoding stays, and so do the line ends: where the file has those of Windows, line breaks in `old` and `new` mean them.
        """
        if not old:
            raise InputError("there is nothing to look for.", hint="Give the text that is to be replaced.")
        place = self.paths.resolve(path, writing=True)
        with _lock_for(place.folder):
            data, form = self._whole(place)
            text = to_text(data, form)
            if "\ufffd" in text and from_text(text, form) != data:
                raise InputError(f"{place.path} is not clean {form.encoding}: replacing would damage it.", hint="Use bash.")
            if old not in text and "\r\n" in text and "\r" not in old:
                old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
            count = text.count(old)
            if count == 0:
                raise InputError(f"the text is not in {place.path}.", hint="Read the file and give the text exactly as it is there.")
            if count > 1 and not every:
                hint = "Give more of the lines around it, or ask for every one to be replaced."
                raise InputError(f"the text is in {place.path} {count} times.", hint=hint)
            self._write(place, from_text(text.replace(old, new), form))
        return count

    def _whole(self, place: Place, *, missing_is_empty: bool = False) -> tuple[bytes, TextForm]:
        try:
            with self._open(place, SecondNames(place.folder)) as file:
                data = file.read(self.limits.edit_bytes + 1)
        except InputError as error:
            if missing_is_empty and isinstance(error.__cause__, FileNotFoundError):
                return b"", TextForm()
            raise
        if len(data) > self.limits.edit_bytes:
            raise InputError(f"{place.path} has more than {self.limits.edit_bytes} bytes.", hint="Change it with bash.")
        form = detect(data[:SAMPLE])
        if form is None:
            raise InputError(f"{place.path} is not a text file.", hint="Change it with bash.")
        return data, form

    def make_folder(self, path: str) -> Seen:
        """Make a folder and the missing ones above it. Harmless if it is there."""
        place = self.paths.resolve(path, writing=True)
        place.folder.make_folder(place.relative)
        return self.stat(path)

    def delete(self, path: str, *, tree: bool = False) -> None:
        """Remove a file, a link (not what it points to) or an empty folder; with `tree` a folder with all that is in it."""
        place = self.paths.resolve(path, writing=True, existing=True)
        with _absence(place):
            place.folder.remove(place.relative, tree=tree)

    def copy(self, source: str, target: str) -> Seen:
        """Copy a file. The target is replaced."""
        self.paths.resolve(target, writing=True)
        return self.write(target, self.read_bytes(source, limit=self.limits.write_bytes))

    def move(self, source: str, target: str) -> Seen:
        """Move a file or a folder; a file of that name is replaced. Between two roots, files only."""
        here, there = self.paths.resolve(source, writing=True, existing=True), self.paths.resolve(target, writing=True)
        if here.root == there.root:
            with _absence(here):
                here.folder.rename(here.relative, there.relative)
        else:
            self.copy(source, target)
            self.delete(source)
        return self.stat(target)


def listing(found: list[Seen], room: int, left_out: int | None = 0, note: str | None = None) -> Listing:
    """What was found as text, one path a line, within `room` characters; the last lines say what is left out."""
    lines: list[str] = []
    for seen in found:
        line = quoted(f"{seen.path}/") if seen.kind == "folder" else quoted(seen.path) + ("@" if seen.kind == "link" else "")
        room -= len(line) + 1
        if room < 0:
            break
        lines.append(line)
    hidden = len(found) - len(lines)
    if left_out is None or left_out + hidden:
        lines.append("... and more" if left_out is None else f"... and {left_out + hidden} more")
    return Listing(tuple(found), "\n".join([*lines, *([note] if note else [])]), None if left_out is None else left_out + hidden)


def seen_at(place: Place, entry: FolderEntry) -> Seen:
    """An entry of a root by its virtual path."""
    return Seen(f"{place.root.virtual}/{entry.path}", entry.kind, entry.size, entry.modified)


@contextmanager
def _absence(place: Place) -> Iterator[None]:
    """What is not there is a mistake in the question, not a fault of the disk."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotThere(f"there is no {quoted(place.path)}.", hint="Look with ls what there is.") from error


def _on_disk(size: int) -> int:
    """The room that so many bytes take, in whole blocks."""
    return -(-size // 4096) * 4096


def _form_of(file: BinaryIO, path: str) -> TextForm:
    form = detect(file.read(SAMPLE))
    if form is None:
        size = file.seek(0, io.SEEK_END)
        raise InputError(f"{path} is not a text file ({size} bytes).", hint="Use view_image for a picture, or bash.")
    return form


def _skip(file: io.TextIOWrapper, lines: int, path: str) -> int:
    """Read over lines in blocks, however long they are, and say how many there were."""
    passed = scanned = 0
    while passed < lines:
        part = file.readline(_BLOCK)
        if not part:
            break
        scanned += len(part)
        if scanned > _MOST_SCANNED:
            raise InputError(f"line {lines + 1} of {path} is too far down.", hint="Look for it with grep or bash.")
        passed += part.endswith("\n") or len(part) < _BLOCK
    return passed
