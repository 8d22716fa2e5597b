"""How fast `holdfast mcp` is there, beside a server of the same SDK that does nothing: `python benchmarks/mcp_start.py [ROUNDS]`.

Both are started by the official client over stdio in turns, in one run; what counts is the ratio. The time is until the tools are listed.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

BARE = """
from mcp.server import MCPServer

server = MCPServer("bare", log_level="ERROR")

@server.tool()
def ping() -> str:
    return "pong"

server.run("stdio")
"""
SOURCE = str(Path(__file__).parents[1] / "src")


async def measure(arguments: list[str], home: str, tool: str, asked: dict[str, str]) -> tuple[float, float]:
    """Seconds until the tools are listed, and of one call after that."""
    surroundings = {"HOLDFAST_HOME": home, "PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": SOURCE}
    began = time.perf_counter()
    async with Client(stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env=surroundings, cwd=home))) as client:
        await client.list_tools()
        there = time.perf_counter()
        await client.call_tool(tool, asked)
        await client.call_tool(tool, asked)
        again = time.perf_counter()
        await client.call_tool(tool, asked)
        return there - began, time.perf_counter() - again


async def main(rounds: int) -> None:
    kinds = {
        "bare": (["-c", BARE], "ping", {}),
        "holdfast": (["-m", "holdfast.app.main", "mcp"], "memory_search", {"query": "tea"}),
    }
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as home:
        for _ in range(rounds):
            for kind, (arguments, tool, asked) in kinds.items():
                found[kind].append(await measure(arguments, home, tool, asked))
    start = {kind: statistics.median(one for one, _ in times) for kind, times in found.items()}
    call = {kind: statistics.median(one for _, one in times) for kind, times in found.items()}
    figures = {
        "rounds": rounds,
        "start_seconds": {kind: round(value, 3) for kind, value in start.items()},
        "start_ratio": round(start["holdfast"] / start["bare"], 2),
        "call_milliseconds": {kind: round(value * 1000, 2) for kind, value in call.items()},
        "call_ratio": round(call["holdfast"] / call["bare"], 2),
    }
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
