"""Documents to Markdown by `markitdown`, in the same sandbox as commands: what parses a stranger's file may be taken over by it.

The document is the only file that the process can see besides the programs; it has no network, and time, memory and output are bounded.
HTML is read by `text.html`, here as everywhere.
"""

from __future__ import annotations

import importlib.util
import io
import sys
import sysconfig
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from holdfast.durable.folder import Folder
from holdfast.errors import HoldfastError
from holdfast.sandbox.bubblewrap import Bind, base_environment, find_bubblewrap
from holdfast.sandbox.commands import CommandLimits, run_program
from holdfast.sandbox.files import ThreadFiles
from holdfast.text.html import read_html

_BEGINNINGS = {  # what is really inside: a converter that does not know it takes it for plain text
    ".docx": b"PK\x03\x04",
    ".pptx": b"PK\x03\x04",
    ".xlsx": b"PK\x03\x04",
    ".epub": b"PK\x03\x04",
    ".xls": b"\xd0\xcf\x11\xe0",
    ".pdf": b"%PDF",
}
_HTML = (".html", ".htm")
_KINDS = (*_BEGINNINGS, *_HTML)
_MOST_IN, _MOST_OUT = 50 * 1024 * 1024, 8 * 1024 * 1024
_PROGRAM = """
import sys
sys.path[:0] = sys.argv[2:]
import warnings
warnings.simplefilter("ignore")
from markitdown import MarkItDown
text = MarkItDown(enable_plugins=False).convert_local(sys.argv[1]).text_content
sys.stdout.buffer.write(b"\\0" + text.encode("utf-8", "replace") + b"\\0")
"""


def convertible(name: str) -> bool:
    """Whether a file of this name is a document with a text in it that can be had as Markdown. Plain texts need none."""
    return name.lower().endswith(_KINDS)


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
            if suffix in _HTML:  # read by ourselves, without what a page hides
                text = read_html(files.read_bytes(path, limit=_MOST_OUT), marks=True).text
                return (text, None) if text else (None, "no text was found in the document")
            if importlib.util.find_spec("markitdown") is None:
                return None, "markitdown is not installed (`pip install holdfast[web]`)"
            return self._convert(files.read_bytes(path, limit=_MOST_IN), suffix)
        except (HoldfastError, OSError) as error:
            return None, str(error)

    def _convert(self, data: bytes, suffix: str) -> tuple[str | None, str | None]:
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
        if ended.exit_code != 0 or text.count("\0") < 2:
            return None, f"the document cannot be converted: {text.strip().splitlines()[-1][:300] if text.strip() else 'no reason given'}"
        found = text[text.index("\0") + 1 : text.rindex("\0")]
        return (found, None) if found.strip() else (None, "no text was found in the document: its pages may be pictures")


def _is_whole(data: bytes, suffix: str) -> bool:
    beginning = _BEGINNINGS.get(suffix, b"")
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
