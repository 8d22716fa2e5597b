"""Memory servers for the tests, each a real MCP process: `python knowledge_server.py KIND PATH [PORT]`.

`knowledge` has the tools of our own server over a Markdown store; `switched` too, over the one whose folder is written in the file PATH.
`graph` keeps entities as the reference memory server does, `list` keeps memories with metadata, `bare` only adds and searches. With a port
they are served over streamable HTTP on loopback, else over stdio.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from mcp.server import MCPServer

from holdfast.knowledge.markdown import MarkdownStore
from holdfast.knowledge.records import from_json, reading_order, to_json
from holdfast.knowledge.store import hit_to_json, report_to_json, stats_to_json


def moment(written: str | None) -> datetime | None:
    return datetime.fromisoformat(written) if written else None


def switched(pointer: Path) -> Callable[[], MarkdownStore]:
    """The store in the folder that the file names now, so that one server serves many tests."""
    return lambda: _opened(pointer.read_text("utf-8"))


@cache
def _opened(folder: str) -> MarkdownStore:
    return MarkdownStore(folder)


def knowledge(server: MCPServer[Any], current: Callable[[], MarkdownStore]) -> None:

    @server.tool()
    def knowledge_add(records: list[dict[str, Any]]) -> dict[str, Any]:
        return report_to_json(current().add([from_json(record) for record in records]))

    @server.tool()
    def knowledge_search(
        query: str,
        top_k: int = 10,
        tags: list[str] | None = None,
        after: str | None = None,
        before: str | None = None,
        session: str | None = None,
        now: str | None = None,
    ) -> dict[str, Any]:
        found = current().search(
            query, top_k=top_k, tags=tags or (), after=moment(after), before=moment(before), session=session, now=moment(now)
        )
        return {"hits": [hit_to_json(hit) for hit in found]}

    @server.tool()
    def knowledge_get(id: str) -> dict[str, Any]:
        found = current().get(id)
        return {"record": to_json(found) if found else None}

    @server.tool()
    def knowledge_forget(ids: list[str] | None = None, text: str | None = None) -> dict[str, Any]:
        there = [id for id in ids or () if current().get(id) is not None]
        current().forget(there)
        return {"ids": [*there, *(current().forget_text(text) if text else ())]}

    @server.tool()
    def knowledge_records(
        tags: list[str] | None = None,
        after: str | None = None,
        before: str | None = None,
        session: str | None = None,
        start: int = 0,
        limit: int = 100,
    ) -> dict[str, Any]:
        found = sorted(current().records(tags=tags or (), after=moment(after), before=moment(before), session=session), key=reading_order)
        following = start + limit if start + limit < len(found) else None
        return {"records": [to_json(record) for record in found[start : start + limit]], "next": following}

    @server.tool()
    def knowledge_stats() -> dict[str, Any]:
        return stats_to_json(current().stats())


class Shelf:
    """A JSON file of entries, read and written at every call."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[dict[str, Any]]:
        return json.loads(self.path.read_text("utf-8")) if self.path.exists() else []

    def write(self, entries: list[dict[str, Any]]) -> None:
        self.path.write_text(json.dumps(entries, ensure_ascii=False), "utf-8")


def graph(server: MCPServer[Any], path: Path) -> None:
    shelf = Shelf(path)

    @server.tool()
    def create_entities(entities: list[dict[str, Any]]) -> list[dict[str, Any]]:
        there = shelf.read()
        new = [entity for entity in entities if entity["name"] not in {one["name"] for one in there}]
        shelf.write(there + new)
        return new

    @server.tool()
    def read_graph() -> dict[str, Any]:
        return {"entities": shelf.read(), "relations": []}

    @server.tool()
    def open_nodes(names: list[str]) -> dict[str, Any]:
        return {"entities": [one for one in shelf.read() if one["name"] in names], "relations": []}

    @server.tool()
    def search_nodes(query: str) -> dict[str, Any]:
        return {"entities": [one for one in shelf.read() if query.lower() in json.dumps(one).lower()], "relations": []}

    @server.tool()
    def delete_entities(entityNames: list[str]) -> str:  # noqa: N803 - the reference server's own spelling
        shelf.write([one for one in shelf.read() if one["name"] not in entityNames])
        return "Entities deleted successfully"


def memories(server: MCPServer[Any], path: Path, *, bare: bool) -> None:
    shelf = Shelf(path)

    def search_memory(query: str, limit: int = 10) -> str:
        if query == "die now":
            os._exit(7)
        words = set(query.lower().split())
        rated = [(len(words & set(one["memory"].lower().split())), one) for one in shelf.read()]
        rated = sorted((pair for pair in rated if pair[0]), key=lambda pair: -pair[0])
        return json.dumps({"results": [{**one, "score": float(score)} for score, one in rated[:limit]]})

    server.add_tool(search_memory)
    if bare:

        @server.tool()
        def add_memory(content: str) -> str:
            shelf.write([*shelf.read(), {"memory": content}])
            return "stored"

        return

    @server.tool()
    def store_memory(content: str, metadata: dict[str, Any] | None = None) -> dict[str, Any]:
        entries = shelf.read()
        number = max((int(one["id"].removeprefix("m")) for one in entries), default=0) + 1
        entry = {"id": f"m{number}", "memory": content, "metadata": metadata, "added": datetime.now().astimezone().isoformat()}
        shelf.write([*entries, entry])
        return {"id": entry["id"]}

    @server.tool()
    def list_memories(limit: int = 100) -> list[dict[str, Any]]:
        return shelf.read()[:limit]

    @server.tool()
    def delete_memory(memory_id: str) -> str:
        if memory_id not in [one["id"] for one in shelf.read()]:
            raise ValueError(f"unknown memory {memory_id}")
        shelf.write([one for one in shelf.read() if one["id"] != memory_id])
        return "deleted"


if __name__ == "__main__":
    kind, path = sys.argv[1], Path(sys.argv[2])
    server: MCPServer[Any] = MCPServer("memories", log_level="ERROR")
    if kind == "knowledge":
        knowledge(server, lambda: _opened(str(path)))
    elif kind == "switched":
        knowledge(server, switched(path))
    elif kind == "graph":
        graph(server, path)
    else:
        memories(server, path, bare=kind == "bare")
    if len(sys.argv) > 3:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[3]))
    else:
        server.run("stdio")
