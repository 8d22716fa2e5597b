"""Which lines fit a pattern: plain text here, regular expressions in a process of their own that can be stopped.

The process gets lines and gives numbers. It opens no file, has a limit on memory, and is killed when its time is up.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from types import TracebackType
from typing import Protocol

from holdfast.errors import InputError, SandboxError

_WORKER = Path(__file__).with_name("matching_worker.py")
_MOST_ANSWERED = 8 * 1024 * 1024


class Matcher(Protocol):
    """Knows a pattern. Used in a `with`, which frees what it holds."""

    def numbers(self, lines: Sequence[str]) -> list[int]:
        """The indices of the lines that fit. InputError if the pattern is none or takes too long."""

    def __enter__(self) -> Matcher: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class PlainMatcher:
    """Looks for the text as it is."""

    def __init__(self, text: str, *, ignore_case: bool = False) -> None:
        self._text = text.casefold() if ignore_case else text
        self._ignore_case = ignore_case

    def numbers(self, lines: Sequence[str]) -> list[int]:
        if self._ignore_case:
            return [number for number, line in enumerate(lines) if self._text in line.casefold()]
        return [number for number, line in enumerate(lines) if self._text in line]

    def __enter__(self) -> PlainMatcher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return


class PatternProcess:
    """Looks for a regular expression of Python, line by line, for at most `seconds` of matching in all."""

    def __init__(self, pattern: str, *, ignore_case: bool = False, seconds: float = 10.0) -> None:
        self._left = seconds
        self._head = json.dumps({"pattern": pattern, "ignore_case": ignore_case}).encode() + b"\n"
        self._process: subprocess.Popen[bytes] | None = None

    def numbers(self, lines: Sequence[str]) -> list[int]:
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

    def __enter__(self) -> PatternProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
        [sys.executable, "-I", "-S", str(_WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}
    )
    assert process.stdin is not None  # noqa: S101
    os.set_blocking(process.stdin.fileno(), False)
    return process
