"""The tools of an agent: files, commands, things to show, and the web, each made from a line of `tools` in config.yaml (A10).

May import every room but `app` and `testing`.
Start with `opening.py`, which chooses them; then `workplaces.py`, which says in whose files they work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.agents.tools.opening import BUILT_IN, open_tools
    from holdfast.agents.tools.workplaces import Workplaces

__all__ = [
    "BUILT_IN",
    "Workplaces",
    "bash",
    "glob",
    "grep",
    "ls",
    "open_tools",
    "present_files",
    "read_file",
    "str_replace",
    "view_image",
    "write_file",
]

bash: Any
glob: Any
grep: Any
ls: Any
present_files: Any
read_file: Any
str_replace: Any
view_image: Any
write_file: Any

__getattr__, __dir__ = exports(
    __name__,
    {
        "commands": ("bash",),
        "files": ("glob", "grep", "ls", "read_file", "str_replace", "write_file"),
        "opening": ("BUILT_IN", "open_tools"),
        "showing": ("present_files", "view_image"),
        "workplaces": ("Workplaces",),
    },
)
