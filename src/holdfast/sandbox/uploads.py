"""Files from outside: taken into a thread's uploads, and read as text in a process of their own (A9, A10).

An upload gets a clean name, a number where the name is taken, and a bounded size. Documents become Markdown by `markitdown`, pages by our
own reader. What parses a stranger's document may be taken over or blown up by it, so that process runs in bubblewrap: besides the programs
of the machine it sees that one document, to be read only; it has no network, and its time, memory and output are bounded. What it wrote
is data like the document itself.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import sys
import sysconfig
import tempfile
import unicodedata
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Protocol

from holdfast.durable.folder import Folder, open_outside
from holdfast.durable.lock import Lock
from holdfast.errors import HoldfastError, InputError, QuotaExceeded
from holdfast.sandbox.bubblewrap import Bind, base_environment, find_bubblewrap, unavailable_because
from holdfast.sandbox.commands import CommandLimits, Finished, run_program
from holdfast.sandbox.files import ThreadFiles
from holdfast.sandbox.paths import UPLOADS
from holdfast.text.file_formats import CONVERTED, PAGES, is_title
from holdfast.text.normalise import one_line, strip_invisible
from holdfast.text.web_page import MOST_CHARS, Kind, PageText, read_page_text
from holdfast.validation import thread_folder

LIMITS = CommandLimits(seconds=60.0, memory_bytes=1024 * 1024 * 1024, processes=64)
_PAGE_PROGRAM = "import sys; sys.path.insert(0, '/mnt/python'); from holdfast.text.web_page import main; main(sys.argv[1:])"


class ConversionFailed(Exception):
    """A document was not read; says why. `ending` is how its process ended."""

    def __init__(self, why: str, ending: str) -> None:
        super().__init__(why)
        self.ending = ending


def run_apart(
    program: str,
    arguments: Sequence[str],
    document: tuple[str, bytes],
    *,
    packages: Mapping[str, str],
    limits: CommandLimits,
    bubblewrap: str | None = None,
    options: Sequence[str] = (),
) -> Finished:
    """Run a Python program over one document, which it finds at `/mnt/document/NAME`: the first of its arguments.

    `packages` are folders to import from, by where they are shown. SandboxUnavailable where there is no bubblewrap.
    """
    wrap, (name, data) = find_bubblewrap(bubblewrap), document
    with tempfile.TemporaryDirectory() as place:
        if wrap.as_superuser:  # for that user alone: what is uploaded is nobody else's business
            os.chown(place, wrap.user, wrap.user)
        with Folder(place) as folder:
            folder.write(name, data)
        binds = [Bind(path, target, read_only=True) for target, path in {"/mnt/document": place, **packages}.items()]
        home = str(Path(sys.base_prefix).resolve())
        if not Path(home).is_relative_to("/usr"):  # the Python that is running, under its own path
            binds.append(Bind(home, home, read_only=True))
        python = str(Path(sys.executable).resolve())
        command = [python, "-I", "-B", *options, "-c", program, f"/mnt/document/{name}", *arguments]
        environment = base_environment({"OMP_NUM_THREADS": "1", "ORT_DISABLE_TELEMETRY": "1"})
        return run_program(wrap.program_for(command, binds=binds, environment=environment, limits=limits, folder="/"), limits)


def read_page_apart(
    body: bytes,
    kind: Kind,
    *,
    charset: str | None = None,
    main_only: bool = True,
    limits: CommandLimits = LIMITS,
    bubblewrap: str | None = None,
) -> PageText:
    """The text of a page, read in a process of its own. ConversionFailed when that was stopped or failed.

    Where there is no bubblewrap it is read here: by the same reader, which is linear, needs no package and bounds what it makes.
    """
    if unavailable_because(bubblewrap) is not None:
        return read_page_text(body, kind, charset=charset, main_only=main_only)
    limits = replace(limits, kept_bytes=4 * MOST_CHARS + 10_000)
    own = {"/mnt/python/holdfast": str(Path(__file__).parents[1])}
    said = (kind, charset or "", "main" if main_only else "all")
    ended = run_apart(_PAGE_PROGRAM, said, ("page", body), packages=own, limits=limits, bubblewrap=bubblewrap, options=("-S",))
    if ended.ending != "exited":
        raise ConversionFailed(f"reading it was stopped: {ended.ending.replace('_', ' ')}", ended.ending)
    parts = ended.capture.text().split("\0")
    if ended.exit_code != 0 or len(parts) < 5:
        last = parts[0].strip().splitlines()[-1:] or ["no reason given"]
        raise ConversionFailed(f"it cannot be read: {last[0][:300]}", ended.ending)
    *_, title, text, cut, _ = parts
    return PageText(title[:1000] or None, text[:MOST_CHARS], bool(cut) or len(text) > MOST_CHARS)


_MOST_IN, _MOST_OUT = 50 * 1024 * 1024, 8 * 1024 * 1024
_PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
import warnings
warnings.simplefilter("ignore")
from markitdown import MarkItDown
titles = "p[style-name='Title'] => h1:fresh"  # Word's own style for the title; the converter knows the numbered headings alone
found = MarkItDown(enable_plugins=False).convert_local(sys.argv[1], style_map=titles)
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
        self._limits = replace(limits or LIMITS, kept_bytes=_MOST_OUT)
        self._bubblewrap = bubblewrap

    def markdown(self, files: ThreadFiles, path: str) -> tuple[str | None, str | None]:
        suffix = Path(path).suffix.lower()
        try:
            if suffix in PAGES:  # read by ourselves, without what a page hides
                data = files.read_bytes(path, limit=_MOST_OUT)
                text = read_page_apart(data, "html", main_only=False, limits=self._limits, bubblewrap=self._bubblewrap).text
                return (text, None) if text else (None, "no text was found in the document")
            return self.convert(files.read_bytes(path, limit=_MOST_IN), suffix)
        except (HoldfastError, OSError, ConversionFailed) as error:
            return None, str(error)

    def convert(self, data: bytes, suffix: str) -> tuple[str | None, str | None]:
        """The text of a document with this ending, or None and the reason. A title that the document states is its front matter."""
        if importlib.util.find_spec("markitdown") is None:
            return None, "markitdown is not installed (`pip install 'holdfast[web]'`)"
        if not _is_whole(data, suffix):
            return None, f"the document cannot be converted: it is no {suffix} file, or damaged"
        packages = sorted({path for path in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")) if path})
        shown = {f"/mnt/python/{number}": path for number, path in enumerate(packages)}
        document = (f"document{suffix}", data)
        ended = run_apart(_PROGRAM, [*shown], document, packages=shown, limits=self._limits, bubblewrap=self._bubblewrap)
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
        with Lock(self._lock_path, timeout=30.0):
            free = self._free(clean_name(name))
            seen = self._files.write(f"{UPLOADS}/{free}", data)
        markdown, problem = self._convert(free)
        return Upload(seen.path, free, len(data), markdown, problem)

    def take_all(self, paths: Sequence[Path]) -> tuple[Upload, ...]:
        """Keep copies of files of this machine. InputError, before anything is copied, for one that is no file or may not be read."""
        for path in paths:
            if not path.is_file():
                raise InputError(f"{path} is not a file.", hint="Give the path of a file; a folder can be mounted under `sandbox.mounts`.")
            if not os.access(path, os.R_OK):
                raise InputError(f"{path} may not be read.", hint="Change its permissions, or give a copy.")
        taken = []
        for path in paths:
            with open_outside(path) as file:
                taken.append(self.take(path.name, file))
        return tuple(taken)

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
