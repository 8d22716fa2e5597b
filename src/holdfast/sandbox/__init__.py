"""Thread folders, virtual paths and commands that cannot hurt the machine.

May import what is below `workflow`; never `workflow`, `skills` or `agents`.
Start with `commands.py`, the seam; then `paths.py` and `files.py` for files, `bubblewrap.py` and `running.py` for commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.sandbox.commands import Cancel, CommandLimits, CommandResult, Sandbox
    from holdfast.sandbox.files import ThreadFiles
    from holdfast.sandbox.local import LocalSandbox
    from holdfast.sandbox.opening import commands_available, open_sandbox
    from holdfast.sandbox.searching import glob, grep
    from holdfast.sandbox.threads import ThreadFolders
    from holdfast.sandbox.uploads import Uploads

__all__ = [
    "Cancel",
    "CommandLimits",
    "CommandResult",
    "LocalSandbox",
    "Sandbox",
    "ThreadFiles",
    "ThreadFolders",
    "Uploads",
    "commands_available",
    "glob",
    "grep",
    "open_sandbox",
]

_WHERE = {
    "commands": ("Cancel", "CommandLimits", "CommandResult", "Sandbox"),
    "files": ("ThreadFiles",),
    "local": ("LocalSandbox",),
    "opening": ("commands_available", "open_sandbox"),
    "searching": ("glob", "grep"),
    "threads": ("ThreadFolders",),
    "uploads": ("Uploads",),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
