"""The file tools: ls, read_file, write_file, str_replace, glob and grep, all beneath the folders that the thread may see (A9, A10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from holdfast.agents.tools.workplaces import Workplaces, tool_of
from holdfast.sandbox import searching

Runtime = ToolRuntime[Any, Any]
Settings = Mapping[str, Any]


def ls(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Lists a folder."""

    def ls(runtime: Runtime, path: str = "/mnt/user-data/workspace", depth: int = 1) -> str:
        """List a folder, `depth` levels deep. Folders end with a slash."""
        with places.of(runtime) as sandbox:
            return sandbox.files.ls(path, depth=depth).text or "The folder is empty."

    return tool_of(ls)


def read_file(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Reads lines of a file."""

    def read_file(runtime: Runtime, path: str, offset: int = 1, limit: int | None = None) -> str:
        """Read a text file from line `offset` on, at most `limit` lines."""
        with places.of(runtime) as sandbox:
            found = sandbox.files.read(path, offset=offset, limit=limit)
        if not found.text:
            return "The file is empty."
        if not found.more:
            return found.text
        return f"{found.text.rstrip()}\n[The file goes on: read on with offset={found.first + found.lines}.]"

    return tool_of(read_file)


def write_file(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Writes a file."""

    def write_file(runtime: Runtime, path: str, content: str, append: bool = False) -> str:
        """Write a file, or with `append` add to its end. Missing folders are made. What the user gets belongs in /mnt/user-data/outputs."""
        with places.of(runtime) as sandbox:
            seen = sandbox.files.append(path, content) if append else sandbox.files.write(path, content)
        return f"{seen.path} has {seen.size:,} bytes now."

    return tool_of(write_file)


def str_replace(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Replaces a text in a file."""

    def str_replace(runtime: Runtime, path: str, old_str: str, new_str: str, replace_all: bool = False) -> str:
        """Replace a text in a file. `old_str` must stand there exactly once, unless `replace_all` is set."""
        with places.of(runtime) as sandbox:
            count = sandbox.files.str_replace(path, old_str, new_str, every=replace_all)
        return f"Replaced {'once' if count == 1 else f'{count} times'} in {path}."

    return tool_of(str_replace)


def glob(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Finds files by their names."""

    def glob(runtime: Runtime, pattern: str, path: str = "/mnt/user-data") -> str:
        """Find files by name: `*`, `?`, and `**` for any number of folders, for example `**/*.py`."""
        with places.of(runtime) as sandbox:
            return searching.glob(sandbox.files, pattern, path=path).text or "Nothing fits."

    return tool_of(glob)


def grep(places: Workplaces, settings: Settings | None = None) -> BaseTool:
    """Finds lines by a pattern."""

    def grep(
        runtime: Runtime,
        pattern: str,
        path: str = "/mnt/user-data",
        include: str | None = None,
        literal: bool = False,
        ignore_case: bool = False,
    ) -> str:
        """Find lines that fit a regular expression, or with `literal` a plain text, in files below a folder. `include` limits names."""
        with places.of(runtime) as sandbox:
            return searching.grep(sandbox.files, pattern, path=path, include=include, literal=literal, ignore_case=ignore_case).text

    return tool_of(grep)
