"""Who works on something: a process of a machine, told from another one that got the same number later."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Holder:
    """A process, and a token that tells two claims of the same process apart. Its text stands in the database."""

    host: str
    process: int
    began: str
    token: str = ""

    def __str__(self) -> str:
        return f"{self.host}|{self.process}|{self.began}|{self.token}"

    @classmethod
    def of(cls, text: str) -> Holder:
        """The holder that a text names; one that no machine has if it names none."""
        host, process, began, token = (*text.split("|", 3), "", "", "", "")[:4]
        return cls(host, int(process) if process.isdecimal() else 0, began, token)


def this_process(token: str) -> Holder:
    """This process, now."""
    return Holder(_host(), os.getpid(), _began(os.getpid()), token)


def is_alive(holder: Holder) -> bool:
    """False only if it is certain that the process is gone: of another machine nobody here can tell."""
    if holder.host != _host():
        return True
    if holder.process <= 0:
        return False
    try:
        os.kill(holder.process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return not holder.began or _began(holder.process) == holder.began


@cache
def _host() -> str:
    from socket import gethostname  # costs more to import than all the rest of this module

    return gethostname().replace("|", "-")


@cache
def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()[:8]
    return ""


def _began(process: int) -> str:
    """When a process began: since which start of the machine, and at which tick. Empty where that is not told."""
    with suppress(OSError, IndexError):
        state, *rest = Path(f"/proc/{process}/stat").read_text("ascii", "replace").rpartition(")")[2].split()
        return f"{_boot()}:{rest[18]}" if state not in "ZX" else "dead"  # a zombie has its number still, and does nothing any more
    return ""
