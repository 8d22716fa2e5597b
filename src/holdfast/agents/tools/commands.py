"""`bash`: a command in the sandbox of the thread (A10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool

from holdfast.agents.tools.workplaces import Workplaces, tool_of


def bash(places: Workplaces, settings: Mapping[str, Any] | None = None) -> BaseTool:
    """Runs a command to its end. A cancelled turn, or a sub-agent that is stopped, stops its command with it."""

    def bash(runtime: ToolRuntime[Any, Any], command: str, timeout_seconds: float | None = None) -> str:
        """Run a bash command in /mnt/user-data/workspace. It has no network unless that is allowed, and nothing on its input."""
        with places.of(runtime) as sandbox:
            return sandbox.run(command, timeout=timeout_seconds).text

    async def bash_later(runtime: ToolRuntime[Any, Any], command: str, timeout_seconds: float | None = None) -> str:
        with places.of(runtime) as sandbox:
            return (await sandbox.arun(command, timeout=timeout_seconds)).text

    return tool_of(bash, coroutine=bash_later)
