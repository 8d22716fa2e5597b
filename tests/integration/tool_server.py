"""An MCP server for the tests, a real process: `python tool_server.py stdio|http|sse JOURNAL [PORT]`.

It has tools that add, tell who runs them, wait, write into a journal, fail and say too much.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations


def good(journal: Path) -> MCPServer[None]:
    server: MCPServer[None] = MCPServer("tools", log_level="ERROR")
    again = ToolAnnotations(read_only_hint=True)

    @server.tool(annotations=again)
    def pid() -> int:
        """Who runs this."""
        return os.getpid()

    @server.tool()
    def add(config: int, run_manager: int = 0) -> int:
        """Add two numbers, under names that some libraries keep for themselves."""
        return config + run_manager

    @server.tool()
    def note(text: str) -> str:
        """Write a line into the journal."""
        with journal.open("a") as file:
            file.write(f"{text}\n")
        return f"noted {text}"

    @server.tool()
    def wait(seconds: float) -> str:
        """Wait before answering."""
        with journal.open("a") as file:
            file.write("waiting\n")
        time.sleep(seconds)
        return "waited"

    @server.tool()
    def fail() -> str:
        """Always fails."""
        raise ToolError("the moon is in the wrong phase")

    @server.tool()
    def long() -> str:
        """Says far too much."""
        return "word " * 60_000

    @server.tool()
    def variable(name: str) -> str:
        """Reads a variable of the server's environment."""
        return os.environ.get(name, "not set")

    return server


if __name__ == "__main__":
    kind, written = sys.argv[1], Path(sys.argv[2])
    if kind == "stdio":
        good(written).run("stdio")
    elif kind == "sse":
        good(written).run("sse", host="127.0.0.1", port=int(sys.argv[3]))
    else:
        good(written).run("streamable-http", host="127.0.0.1", port=int(sys.argv[3]))
