"""How much a process and all its descendants use, and whether it is still there. Reads `/proc`; elsewhere nothing is known."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_HELD = re.compile(rb"^(?:RssAnon|RssShmem):\s*(\d+) kB", re.MULTILINE)
_MOST = 20_000


@dataclass(frozen=True)
class Usage:
    """Processes, and the memory that they hold of their own or share among themselves."""

    processes: int
    bytes: int


def usage(top: int) -> Usage:
    """Of the process `top` and everything below it. In a process namespace orphans go to the topmost process, so that none is missed."""
    pending, seen, held = [top], 0, 0
    while pending and seen < _MOST:
        process = pending.pop()
        folder = _PROC / str(process)
        with suppress(OSError):  # ended meanwhile
            held += sum(int(size) for size in _HELD.findall((folder / "status").read_bytes())) * 1024
            seen += 1
            for task in (folder / "task").iterdir():
                with suppress(OSError):
                    pending.extend(int(child) for child in (task / "children").read_bytes().split())
    return Usage(seen, held)


def gone(process: int, *, within: float = 2.0) -> bool:
    """Wait until a process is over. The topmost process of a namespace is over only when all others in it are."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        try:
            state = (_PROC / str(process) / "stat").read_bytes().rpartition(b")")[2].split()[0]
        except (OSError, IndexError):
            return True
        if state in (b"Z", b"X"):
            return True
        time.sleep(0.002)
    return False


def marked(name: str, value: str) -> list[int]:
    """The processes whose environment has this entry, however they have detached themselves."""
    wanted = f"{name}={value}".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile, or not ours
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found
