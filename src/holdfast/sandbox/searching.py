"""Finding files by name and text by pattern, beneath the roots of a thread (A10).

Patterns come from a model. One that is not plain text runs in a process of its own with a deadline, because Python cannot stop a regular
expression that has begun to try every way there is (`_WORKER`).
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector

from holdfast.durable.beneath import check_path
from holdfast.durable.folder import matches
from holdfast.errors import InputError, NotThere, OutsideRoot, SandboxError, StorageError
from holdfast.sandbox.files import SAMPLE, Listing, Seen, ThreadFiles, detect, listing, seen_at, to_text
from holdfast.sandbox.paths import Place, Root, SecondNames, quoted
from holdfast.validation import counted

_WORKER = """
import json, re, sys
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
except (ImportError, ValueError, OSError):
    pass
asked = json.loads(sys.stdin.readline())
try:
    pattern = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
except (re.error, RecursionError, OverflowError) as error:
    print(json.dumps({"error": str(error)}), flush=True)
    sys.exit()
for line in sys.stdin:
    found = [number for number, text in enumerate(json.loads(line)) if pattern.search(text)]
    print(json.dumps({"lines": found}), flush=True)
"""
"""The program in which regular expressions run, on a bare interpreter: the first line of its input says the pattern; every further one is a
list of lines, answered by the indices of those that fit."""
_MOST_ANSWERED = 8 * 1024 * 1024


Matcher = Callable[[Sequence[str]], list[int]]
"""Knows a pattern, and says the indices of the lines that fit. InputError if the pattern is none or takes too long."""


def _plain(text: str, *, ignore_case: bool) -> Matcher:
    """Looks for the text as it is."""
    if not ignore_case:
        return lambda lines: [number for number, line in enumerate(lines) if text in line]
    folded = text.casefold()
    return lambda lines: [number for number, line in enumerate(lines) if folded in line.casefold()]


class PatternProcess:
    """Looks for a regular expression of Python, line by line, for at most `seconds` of matching in all."""

    def __init__(self, pattern: str, *, ignore_case: bool = False, seconds: float = 10.0) -> None:
        self._left = seconds
        self._head = json.dumps({"pattern": pattern, "ignore_case": ignore_case}).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, lines: Sequence[str]) -> list[int]:
        question = json.dumps(list(lines)).encode() + b"\n"  # ASCII: half a surrogate pair travels as an escape
        if self._process is None:
            self._process = _start()
            question = self._head + question
        begun = time.monotonic()
        answer = self._ask(self._process, question, begun + self._left)
        self._left -= time.monotonic() - begun
        if "error" in answer:
            raise InputError(f"this is no regular expression: {answer['error']}.", hint="Mend it, or search for plain text.")
        return [int(number) for number in answer["lines"]]

    def _ask(self, process: subprocess.Popen[bytes], question: bytes, deadline: float) -> dict[str, list[int]]:
        """Write and read in turns, so that neither side waits for the other with a full pipe."""
        assert process.stdin is not None  # noqa: S101 - both were asked for
        assert process.stdout is not None  # noqa: S101
        rest, answer = memoryview(question), bytearray()
        with DefaultSelector() as selector:
            selector.register(process.stdin, EVENT_WRITE)
            selector.register(process.stdout, EVENT_READ)
            while not answer.endswith(b"\n"):
                ready = selector.select(max(deadline - time.monotonic(), 0))
                if not ready:
                    raise InputError("the pattern takes too long on this text.", hint="Make it simpler, or search for plain text.")
                for key, _ in ready:
                    if key.fileobj is process.stdin:
                        rest = rest[_write(process.stdin.fileno(), rest) :]
                        if not rest:
                            selector.unregister(process.stdin)
                    else:
                        part = os.read(process.stdout.fileno(), 65_536)
                        if not part or len(answer) > _MOST_ANSWERED:
                            raise InputError("the pattern needs too much memory.", hint="Make it simpler, or search for plain text.")
                        answer += part
        found: dict[str, list[int]] = json.loads(bytes(answer))
        return found

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            with suppress(OSError):  # unwritten lines for a process that is gone
                process.communicate()


def _write(handle: int, data: memoryview) -> int:
    try:
        return os.write(handle, data[:65_536])
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        raise InputError("the pattern needs too much memory.", hint="Make it simpler, or search for plain text.") from None


def _start() -> subprocess.Popen[bytes]:
    if not sys.executable:
        raise SandboxError("regular expressions need a Python program to run in.", hint="Search for plain text.")
    process = subprocess.Popen(  # noqa: S603 - our own program, and nothing from outside in its arguments
        [sys.executable, "-I", "-S", "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    )
    assert process.stdin is not None  # noqa: S101
    os.set_blocking(process.stdin.fileno(), False)
    return process


_LINE_SHOWN = 400
_LONGEST = 2000


@dataclass(frozen=True)
class SearchLimits:
    """How far one search goes: files that are looked at, the size of one, bytes in all, lines that are found, seconds, and names."""

    entries: int = 100_000
    file_bytes: int = 5 * 1024 * 1024
    bytes: int = 200 * 1024 * 1024
    lines: int = 200
    seconds: float = 10.0
    names: int | None = None


@dataclass(frozen=True)
class Line:
    """A line that fits, with its number in the file."""

    path: str
    number: int
    text: str


@dataclass(frozen=True)
class Found:
    """The lines that fit. `stopped` says why the search ended before its end, `skipped` how many files were not text or too large, `unread`
    how many folders could not be entered."""

    lines: tuple[Line, ...]
    files: int
    skipped: int = 0
    stopped: str | None = None
    unread: int = 0

    @property
    def text(self) -> str:
        """One line for each, and a last one for what was not looked at."""
        rows = [f"{quoted(line.path)}:{line.number}: {line.text}" for line in self.lines] or ["Nothing fits."]
        if self.stopped:
            rows.append(f"[The search stopped: {self.stopped}.]")
        if self.skipped:
            rows.append(f"[Left out: {counted(self.skipped, 'file')}, not text or too large.]")
        if self.unread:
            rows.append(_unread(self.unread))
        return "\n".join(rows)


def glob(files: ThreadFiles, pattern: str, *, path: str = ".", limits: SearchLimits | None = None) -> Listing:
    """The files and folders below `path` whose path relative to it fits: `*`, `?`, `[abc]`, and `**` for any number of folders.

    An absolute pattern is one whose fixed beginning is the folder. No link is followed. When the time is up, the text says so.
    """
    bounds = limits or SearchLimits()
    if isinstance(pattern, str) and len(pattern) > _LONGEST:
        raise InputError(f"a pattern has at most {_LONGEST} characters.", hint="Give a shorter one.")
    folder, parts = _pattern(pattern, path)
    found: list[Seen] = []
    unread: dict[str, str] = {}
    deadline = time.monotonic() + bounds.seconds
    for number, (_, relative, seen) in enumerate(_walk(files, folder, unread)):
        if time.monotonic() > deadline:
            note = f"[The search stopped: time is up after {bounds.seconds:g} s. Look in a folder further down.]"
            return listing(found, files.limits.list_chars, None, note)
        if number >= bounds.entries:
            return listing(found, files.limits.list_chars, None)
        if matches(parts, relative):
            if bounds.names is not None and len(found) >= bounds.names:
                note = f"[The search stopped: there are more than {bounds.names}. Give a narrower pattern.]"
                return listing(found, files.limits.list_chars, None, note)
            found.append(seen)
    return listing(found, files.limits.list_chars, note=_unread(len(unread)) if unread else None)


def _unread(count: int) -> str:
    return f"[{counted(count, 'folder')} could not be entered.]"


def _pattern(pattern: str, path: str) -> tuple[str, tuple[str, ...]]:
    """The folder to begin in and the parts of the pattern."""
    if not isinstance(pattern, str) or not pattern.startswith("/"):
        return path, check_path(pattern, existing=True)
    parts = check_path(pattern.lstrip("/") or ".", existing=True)
    fixed = next((number for number, part in enumerate(parts[:-1]) if re.search(r"[*?\[]", part)), len(parts) - 1)
    return "/" + "/".join(parts[: max(fixed, 0)]), parts[max(fixed, 0) :]


def _walk(files: ThreadFiles, path: str, unread: dict[str, str]) -> Iterator[tuple[Place, tuple[str, ...], Seen]]:
    """Everything below a folder: the place it is below, its path relative to the folder, and what it is."""
    virtual = files.paths.below(path)
    above = tuple(part for part in path.split("/") if part not in ("", "."))
    starts = [(Place(root, "."), root.parts[len(above) :]) for root in virtual] or [(files.paths.resolve(path), ())]
    for place, prefix in starts:
        skip = 0 if place.relative == "." else place.relative.count("/") + 1
        try:
            if place.folder.stat(place.relative).kind != "folder":
                raise InputError(f"{place.path} is not a folder.", hint="Give the folder it is in.")
            for entry in place.folder.walk(place.relative, unread=unread):
                yield place, (*prefix, *entry.path.split("/")[skip:]), seen_at(place, entry)
        except FileNotFoundError:
            raise NotThere(f"there is no {quoted(place.path)}.", hint="Look with ls what there is.") from None


def grep(
    files: ThreadFiles,
    pattern: str,
    *,
    path: str = ".",
    include: str | None = None,
    literal: bool = False,
    ignore_case: bool = False,
    limits: SearchLimits | None = None,
) -> Found:
    """The lines that fit the pattern, in text files below `path` (or in that one file) whose name fits `include`.

    The pattern is a regular expression, or plain text with `literal`. InputError if it is none, or if it takes too long.
    """
    bounds = limits or SearchLimits()
    if not pattern or len(pattern) > _LONGEST:
        raise InputError(f"a pattern has 1 to {_LONGEST} characters.", hint="Give what to look for.")
    if literal or re.fullmatch(r"[\w\s,:;=/<>\"'!@#%&~`-]+", pattern):
        return _Search(files, _plain(pattern, ignore_case=ignore_case), bounds).run(path, include)
    with closing(PatternProcess(pattern, ignore_case=ignore_case, seconds=bounds.seconds)) as matcher:
        return _Search(files, matcher, bounds).run(path, include)


def _candidates(files: ThreadFiles, path: str, include: str | None, unread: dict[str, str]) -> Iterator[tuple[Root, str] | None]:
    """The files to be searched; None for what is passed over, so that the time is looked at there too."""
    wanted = check_path(include, existing=True) if include else None
    if wanted is not None and len(wanted) == 1:
        wanted = ("**", *wanted)  # a bare name fits in every folder, as with other tools
    if not files.paths.below(path) and files.stat(path).kind == "file":
        place = files.paths.resolve(path)
        yield place.root, place.relative
        return
    for place, relative, seen in _walk(files, path, unread):
        fits = seen.kind == "file" and (wanted is None or matches(wanted, relative))
        yield (place.root, seen.path[len(place.root.virtual) + 1 :]) if fits else None


class _Search:
    """One search under way: what was found, and how much of the limits is used."""

    def __init__(self, files: ThreadFiles, matcher: Matcher, limits: SearchLimits) -> None:
        self._files, self._matcher, self._limits = files, matcher, limits
        self._names: dict[str, SecondNames] = {}
        self._lines: list[Line] = []
        self._read = self._seen = self._skipped = 0

    def run(self, path: str, include: str | None) -> Found:
        deadline = time.monotonic() + self._limits.seconds
        unread: dict[str, str] = {}
        stopped = None
        for candidate in _candidates(self._files, path, include, unread):
            stopped = self._stop(deadline)
            if stopped:
                break
            if candidate is not None:
                root, relative = candidate
                text = self._text(root, relative)
                if text is not None:
                    self._match(f"{root.virtual}/{relative}", text)
        if stopped is None and len(self._lines) >= self._limits.lines:
            stopped = f"there are {self._limits.lines} lines or more"
        return Found(tuple(self._lines), self._seen, self._skipped, stopped, len(unread))

    def _stop(self, deadline: float) -> str | None:
        if len(self._lines) >= self._limits.lines:
            return f"there are {self._limits.lines} lines or more"
        if self._seen >= self._limits.entries:
            return f"{self._seen} files were looked at"
        if self._read >= self._limits.bytes:
            return f"{self._read} bytes were looked at"
        return "time is up" if time.monotonic() > deadline else None

    def _text(self, root: Root, relative: str) -> str | None:
        """The content, or None for what is not text, too large, gone, or not ours."""
        self._seen += 1
        names = self._names.setdefault(root.virtual, SecondNames(root.folder))
        try:
            with root.folder.open(relative) as file:
                names.check(file, relative)
                data = file.read(self._limits.file_bytes + 1)
        except (FileNotFoundError, OutsideRoot, InputError, StorageError):  # swapped, removed or unreadable since it was listed
            self._skipped += 1
            return None
        self._read += len(data)
        form = detect(data[:SAMPLE]) if len(data) <= self._limits.file_bytes else None
        if form is None:
            self._skipped += 1
            return None
        return to_text(data, form)

    def _match(self, path: str, text: str) -> None:
        lines = text.split("\n")
        for number in self._matcher(lines):
            if len(self._lines) < self._limits.lines:
                shown = lines[number].rstrip("\r")
                self._lines.append(Line(path, number + 1, shown if len(shown) <= _LINE_SHOWN else shown[:_LINE_SHOWN] + "..."))
