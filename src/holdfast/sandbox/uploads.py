"""Taking a file into a thread's uploads: a clean name, a number where the name is taken, a bounded size (A9).

Documents become Markdown by `markitdown`, in the same sandbox as commands: what parses a stranger's file may be taken over by it. The
document is the only file that the process can see besides the programs; it has no network, and time, memory and output are bounded.
"""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import sysconfig
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.durable.folder import Folder
from holdfast.durable.lock import Lock
from holdfast.errors import HoldfastError, InputError, QuotaExceeded
from holdfast.ids import thread_folder
from holdfast.sandbox.bubblewrap import Bind, base_environment, find_bubblewrap
from holdfast.sandbox.commands import CommandLimits, run_program
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import UPLOADS
from holdfast.text.file_formats import CONVERTED, PAGES, is_title
from holdfast.text.html import read_html
from holdfast.text.normalise import one_line, strip_invisible

_MOST_IN, _MOST_OUT = 50 * 1024 * 1024, 8 * 1024 * 1024
_PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
import warnings
warnings.simplefilter("ignore")
from markitdown import MarkItDown
found = MarkItDown(enable_plugins=False).convert_local(sys.argv[1])
title = found.title or ""
if sys.argv[1].endswith(".pdf"):
    from pdfminer.pdfdocument import PDFDocument
    from pdfminer.pdfparser import PDFParser
    from pdfminer.pdftypes import resolve1
    from pdfminer.utils import decode_text
    with open(sys.argv[1], "rb") as file:
        for about in PDFDocument(PDFParser(file)).info:
            said = resolve1(about.get("Title"))
            title = title or (decode_text(said) if isinstance(said, bytes) else "")
for part in (title, found.text_content):
    sys.stdout.buffer.write(b"\\0" + part.replace("\\0", "").encode("utf-8", "replace"))
sys.stdout.buffer.write(b"\\0")
"""


def convertible(name: str) -> bool:
    """Whether a file of this name is a document with a text in it that can be had as Markdown. Plain texts need none."""
    return name.lower().endswith((*CONVERTED, *PAGES))


class Converter(Protocol):
    """Makes Markdown of documents."""

    def markdown(self, files: ThreadFiles, path: str) -> tuple[str | None, str | None]:
        """The text, or None and the reason. Never raises for a document, however broken or hostile it is."""


class MarkItDown:
    """Conversion by `markitdown` (the extra `web`) in bubblewrap. Without either there is none, and it says so."""

    def __init__(self, *, limits: CommandLimits | None = None, bubblewrap: str | None = None) -> None:
        usual = CommandLimits(seconds=60.0, memory_bytes=1024 * 1024 * 1024, processes=64)
        self._limits = replace(limits or usual, kept_bytes=_MOST_OUT)
        self._bubblewrap = bubblewrap

    def markdown(self, files: ThreadFiles, path: str) -> tuple[str | None, str | None]:
        suffix = Path(path).suffix.lower()
        try:
            if suffix in PAGES:  # read by ourselves, without what a page hides
                text = read_html(files.read_bytes(path, limit=_MOST_OUT), marks=True).text
                return (text, None) if text else (None, "no text was found in the document")
            return self.convert(files.read_bytes(path, limit=_MOST_IN), suffix)
        except (HoldfastError, OSError) as error:
            return None, str(error)

    def convert(self, data: bytes, suffix: str) -> tuple[str | None, str | None]:
        """The text of a document with this ending, or None and the reason. A title that the document states is its front matter."""
        if importlib.util.find_spec("markitdown") is None:
            return None, "markitdown is not installed (`pip install holdfast[web]`)"
        if not _is_whole(data, suffix):
            return None, f"the document cannot be converted: it is no {suffix} file, or damaged"
        wrap = find_bubblewrap(self._bubblewrap)
        with tempfile.TemporaryDirectory() as place:
            Path(place).chmod(0o755)
            with Folder(place) as folder:
                folder.write(f"document{suffix}", data, mode=0o644)
            binds = [Bind(place, "/mnt/document", read_only=True)]
            shown = []
            for number, path in enumerate(_libraries()):
                binds.append(Bind(path, f"/mnt/python/{number}", read_only=True))
                shown.append(f"/mnt/python/{number}")
            command = [*_interpreter(binds), "-I", "-B", "-c", _PROGRAM, f"/mnt/document/document{suffix}", *shown]
            program = wrap.program_for(
                command,
                binds=binds,
                environment=base_environment({"OMP_NUM_THREADS": "1"}),
                limits=self._limits,
                folder="/",
            )
            ended = run_program(program, self._limits)
        if ended.ending != "exited":
            return None, f"the conversion was stopped: {ended.ending.replace('_', ' ')}"
        text = ended.capture.text()
        if ended.exit_code != 0 or text.count("\0") < 3:
            return None, f"the document cannot be converted: {text.strip().splitlines()[-1][:300] if text.strip() else 'no reason given'}"
        *_, title, found, _ = text.split("\0")
        if not found.strip():
            return None, "no text was found in the document: its pages may be pictures"
        return (f"---\ntitle: {one_line(title)[:200]}\n---\n{found}" if is_title(title) else found), None


def _is_whole(data: bytes, suffix: str) -> bool:
    beginning = CONVERTED.get(suffix, b"")
    if beginning.startswith(b"PK"):
        return zipfile.is_zipfile(io.BytesIO(data))
    return beginning in data[:1024]


def _libraries() -> list[str]:
    """Where the packages of this Python are."""
    return sorted({path for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) if path})


def _interpreter(binds: list[Bind]) -> list[str]:
    """The Python that is running, as it can be started inside: a Python outside of /usr is shown under its own path."""
    program = Path(sys.executable).resolve()
    home = Path(sys.base_prefix).resolve()
    if not home.is_relative_to("/usr"):
        binds.append(Bind(str(home), str(home), read_only=True))
    return [str(program)]


_MOST_BYTES = 52_428_800
_LONGEST = 180
_FORBIDDEN = re.compile(r'[<>:"|?*\\/]')
_RESERVED = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\..*)?", re.IGNORECASE)


@dataclass(frozen=True)
class Upload:
    """A file that was taken in. `markdown` is the path of its text as Markdown, or None; then `problem` may say why."""

    path: str
    name: str
    size: int
    markdown: str | None = None
    problem: str | None = None


def clean_name(name: str) -> str:
    """A name that is a name and nothing more: no folders, no leading dot or dash, nothing invisible, and not too long.

    >>> clean_name("../../etc/passwd"), clean_name("C:\\\\docs\\\\a report.pdf"), clean_name("..")
    ('passwd', 'a report.pdf', 'upload')
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name))[-1]
    kept = strip_invisible(_FORBIDDEN.sub("", last))
    seen = "".join(sign if sign.isprintable() else " " if unicodedata.category(sign) == "Zs" else "" for sign in kept)
    plain = seen.encode("utf-8", "ignore").decode().strip(" .").lstrip("-. ")
    if not plain or _RESERVED.fullmatch(plain):
        plain = f"upload{Path(plain).suffix}" if plain else "upload"
    stem, suffix = _split(plain)
    while len((stem + suffix).encode()) > _LONGEST:
        stem, suffix = (stem[:-1], suffix) if len(stem) > 1 else (stem, suffix[:-1])
    return stem + suffix


def _split(name: str) -> tuple[str, str]:
    """Name and ending; `.tar.gz` is one ending."""
    double = re.fullmatch(r"(.+?)(\.tar\.\w{1,4})", name, re.IGNORECASE)
    if double:
        return double[1], double[2]
    path = Path(name)
    return path.stem, path.suffix


class Uploads:
    """The uploads of one thread. Safe for many threads and processes."""

    def __init__(
        self,
        thread: str,
        files: ThreadFiles,
        *,
        base: str | PathLike[str],
        converter: Converter | None = None,
        most_bytes: int = _MOST_BYTES,
    ) -> None:
        self._files, self._converter, self._most = files, converter, most_bytes
        self._lock_path = Path(base) / "threads" / thread_folder(thread) / "uploads.lock"

    def take(self, name: str, content: bytes | BinaryIO) -> Upload:
        """Keep the file durably and say under which path. Where there is a converter, its text is put beside it as `NAME.md`.

        InputError if it is larger than allowed; nothing is kept then. A conversion that fails costs nothing but the Markdown.
        """
        data = content if isinstance(content, bytes) else content.read(self._most + 1)
        if len(data) > self._most:
            raise InputError(
                f"{clean_name(name)!r} is larger than {self._most} bytes.", hint="Send less, or raise `server.max_upload_bytes`."
            )
        with self._alone():
            free = self._free(clean_name(name))
            seen = self._files.write(f"{UPLOADS}/{free}", data)
        markdown, problem = self._convert(free)
        return Upload(seen.path, free, len(data), markdown, problem)

    def list(self) -> tuple[Upload, ...]:
        """The files that are there, by name. Markdown made from another one is shown with it and not by itself."""
        found = {seen.path.rsplit("/", 1)[-1]: seen for seen in self._files.ls(UPLOADS).entries if seen.kind == "file"}
        made = {f"{name}.md" for name in found if convertible(name)}
        return tuple(
            Upload(seen.path, name, seen.size, f"{seen.path}.md" if convertible(name) and f"{name}.md" in found else None)
            for name, seen in found.items()
            if name not in made
        )

    def remove(self, name: str) -> None:
        """Remove a file and the Markdown made from it."""
        if "/" in name or name in ("", ".", ".."):
            raise InputError(f"{name!r} is not the name of an upload.", hint="Give a name from the list of uploads.")
        self._files.delete(f"{UPLOADS}/{name}")
        if convertible(name) and self._files.exists(f"{UPLOADS}/{name}.md"):
            self._files.delete(f"{UPLOADS}/{name}.md")

    def _free(self, name: str) -> str:
        stem, suffix = _split(name)
        taken = {seen.path.rsplit("/", 1)[-1].casefold() for seen in self._files.ls(UPLOADS).entries}
        number, free = 1, name
        while free.casefold() in taken:
            number += 1
            free = f"{stem}-{number}{suffix}"
        return free

    def _convert(self, name: str) -> tuple[str | None, str | None]:
        if self._converter is None or not convertible(name):
            return None, None
        text, problem = self._converter.markdown(self._files, f"{UPLOADS}/{name}")
        if text is None:
            return None, problem
        try:
            return self._files.write(f"{UPLOADS}/{name}.md", text).path, None
        except QuotaExceeded as error:  # the file itself is kept
            return None, str(error)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with Lock(self._lock_path, timeout=30.0):
            yield
