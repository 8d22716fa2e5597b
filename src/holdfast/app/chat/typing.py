"""What a person types: a line, several in a paste, or a block between two lines of three quotes."""

from __future__ import annotations

import atexit
import sys
from contextlib import suppress
from pathlib import Path

_QUOTES = '"""'


def remember_lines(file: Path) -> None:
    """Arrow keys bring back what was typed, also in an earlier conversation."""
    if not sys.stdin.isatty():
        return
    try:
        import readline
    except ImportError:  # not built in on every system: then there is no line editing
        return
    with suppress(OSError):
        readline.read_history_file(file)
    readline.set_history_length(1000)
    readline.parse_and_bind("set enable-bracketed-paste on")

    def save() -> None:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            readline.write_history_file(file)
            file.chmod(0o600)

    atexit.register(save)


def read_message(prompt: str) -> str | None:
    """The next message; None at the end of the input. A line that ends with a backslash goes on in the next one."""
    try:
        line = input(prompt)
    except EOFError:
        return None
    if line.strip() == _QUOTES:
        return _block()
    lines = [line]
    while lines[-1].endswith("\\"):
        lines[-1] = lines[-1][:-1]
        try:
            lines.append(input("… "))
        except EOFError:
            break
    return "\n".join(lines)


def _block() -> str:
    lines: list[str] = []
    with suppress(EOFError):
        while (line := input("… ")).strip() != _QUOTES:
            lines.append(line)
    return "\n".join(lines)
