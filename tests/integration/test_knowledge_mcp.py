"""MCP memory servers as a store: real processes, over stdio and HTTP, ours and those of others (K2, O5)."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.conftest import until
from tests.contract.knowledge_stores import SERVER, wait_for

from holdfast.config.loading import load_config
from holdfast.config.memory_sections import KnowledgeServer
from holdfast.errors import InputError, StorageError, StoreUnavailable
from holdfast.knowledge.adapters import open_knowledge
from holdfast.knowledge.mcp import McpStore
from holdfast.knowledge.records import Record

Open = Callable[..., McpStore]
NOTES = [
    Record("The staging server is called heron.", tags=("infra",), time=datetime(2026, 5, 4, tzinfo=UTC), trust="high"),
    Record("Payments are settled every Friday.", tags=("finance",), session="s", position=1, speaker="Ann"),
]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens a store over a server process of a kind, all of them with the same file."""
    with ExitStack() as stack:

        def open_store(kind: str, **more: Any) -> McpStore:
            server = KnowledgeServer(command=sys.executable, args=(str(SERVER), kind, str(tmp_path / f"{kind}.json")), **more)
            return stack.enter_context(McpStore(server))

        yield open_store


def kept(folder: Path, kind: str) -> list[dict[str, Any]]:
    path = folder / f"{kind}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.exists() else []
    return found


def test_our_own_tools_over_stdio_are_a_whole_store(opened: Open, tmp_path: Path) -> None:
    store = opened("knowledge")
    assert store.add(NOTES).added == 2
    assert store.add(NOTES).unchanged == 2
    hit = store.search("how is the staging server called", tags=["infra"])[0]
    assert hit.record == NOTES[0]
    assert "server" in str(hit.why)
    assert sorted(record.id for record in store.records()) == sorted(note.id for note in NOTES)
    assert store.forget([NOTES[0].id]) == 1
    assert store.stats().records == 1
    assert store.stats().adapter == "mcp"


def test_the_reference_servers_graph_keeps_records_with_all_that_is_known(opened: Open, tmp_path: Path) -> None:
    store = opened("graph")
    report = store.add(NOTES)
    assert (report.added, store.add(NOTES).unchanged) == (2, 2)
    assert {entity["name"] for entity in kept(tmp_path, "graph")} == {note.id for note in NOTES}
    assert opened("graph").get(NOTES[1].id) == NOTES[1]
    (first, *_) = store.search("when do they settle the payment?", top_k=1)
    assert first.record == NOTES[1]
    assert store.search("payments staging", tags=["infra"])[0].record == NOTES[0]
    assert store.add([Record("Payments are settled every Monday.", id=NOTES[1].id)]).updated == 1
    assert store.stats().records == 2
    assert store.forget_text("staging server") == [NOTES[0].id]
    assert store.forget(["nobody"]) == 0
    assert [entity["name"] for entity in kept(tmp_path, "graph")] == [NOTES[1].id]


def test_entities_that_others_wrote_are_found_as_well(opened: Open, tmp_path: Path) -> None:
    entity = {"name": "Zoë", "entityType": "person", "observations": ["plays the oboe", "lives in Graz"]}
    (tmp_path / "graph.json").write_text(json.dumps([entity, {"name": "", "observations": []}, {"name": "x", "observations": []}]))
    (hit,) = opened("graph").search("who plays the oboe")
    assert (hit.record.id, hit.record.kind) == ("Zoë", "person")
    assert "lives in Graz" in hit.record.text


def test_a_list_of_memories_keeps_records_in_its_metadata(opened: Open, tmp_path: Path) -> None:
    store = opened("list")
    assert store.add(NOTES).added == 2
    assert store.add(NOTES).unchanged == 2
    assert [entry["memory"] for entry in kept(tmp_path, "list")] == [note.text for note in NOTES]
    (hit,) = store.search("staging", top_k=3)
    assert hit.record == NOTES[0]
    assert "found by the MCP server" in str(hit.why)
    assert store.search("payments settled staging", session="s")[0].record == NOTES[1]
    assert store.search("payments settled staging", before=datetime(2026, 5, 5, tzinfo=UTC))[0].record == NOTES[0]
    assert store.get(NOTES[1].id) == NOTES[1]
    assert store.get("nobody") is None
    assert store.stats().records == 2
    assert store.forget([NOTES[0].id, "nobody"]) == 1
    assert store.forget_text("PAYMENTS") == [NOTES[1].id]
    assert kept(tmp_path, "list") == []


def test_memories_that_others_wrote_have_the_servers_own_ids(opened: Open, tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text(json.dumps([{"id": "m1", "memory": "Likes green tea.", "metadata": {"user": "x"}}]))
    store = opened("list")
    assert [(hit.record.id, hit.record.text) for hit in store.search("green tea")] == [("m1", "Likes green tea.")]
    assert store.forget(["m1"]) == 1
    assert kept(tmp_path, "list") == []


def test_what_a_server_cannot_do_is_an_error_that_says_so(opened: Open) -> None:
    store = opened("bare")
    assert store.add([Record("Likes green tea.")]).added == 1
    assert [hit.record.text for hit in store.search("green tea")] == ["Likes green tea."]
    for deed in (lambda: store.forget(["x"]), lambda: store.forget_text("tea"), store.stats, lambda: list(store.records())):
        with pytest.raises(StorageError, match="has no tool to") as raised:
            deed()
        assert "knowledge.server.tools" in str(raised.value)


def test_tools_can_be_named_in_the_configuration(tmp_path: Path, opened: Open) -> None:
    (tmp_path / "config.yaml").write_text(
        "knowledge:\n  adapter: mcp\n  server:\n"
        f"    command: {sys.executable}\n    args: ['{SERVER}', list, '{tmp_path}/list.json']\n"
        "    tools: {add: store_memory, search: search_memory, list: list_memories, forget: delete_memory}\n"
    )
    with open_knowledge(load_config(tmp_path / "config.yaml")) as store:
        assert store.add(NOTES).added == 2
        assert store.search("staging")[0].record == NOTES[0]
    with pytest.raises(InputError, match="no tool 'put'"):
        opened("list", tools={"add": "put"}).add(NOTES)


def test_a_server_that_died_is_started_again(opened: Open) -> None:
    store = opened("list")
    store.add(NOTES)
    with pytest.raises(StoreUnavailable, match="did not answer"):
        store.search("die now")
    assert store.search("staging")[0].record == NOTES[0]
    until(lambda: len(_children()) == 1, "the server that died is gone")
    (child,) = _children()
    os.kill(child, signal.SIGKILL)
    assert store.search("staging")[0].record == NOTES[0]


def _children() -> list[int]:
    """The server processes of this test, by the system's own list."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state = path.read_text().rpartition(")")[2].split()
            if int(state[1]) == os.getpid() and "knowledge_server" in (path.parent / "cmdline").read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def test_a_session_is_held_over_many_calls(opened: Open) -> None:
    store = opened("list")
    store.add(NOTES)
    before = _children()
    for _ in range(20):
        store.search("staging")
    assert _children() == before
    store.close()
    until(lambda: not _children(), "the server is gone")
    store.close()


@pytest.mark.parametrize("command", [["/no/such/program"], [sys.executable, "-c", "raise SystemExit('token=abc: no database')"]])
def test_a_server_that_does_not_start_is_named_with_its_reason(command: list[str]) -> None:
    with McpStore(KnowledgeServer(command=command[0], args=tuple(command[1:]), timeout_seconds=20)) as store:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as raised:
            store.search("x")
        assert command[0] in str(raised.value)


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    silent = KnowledgeServer(command=sys.executable, args=("-c", "import time; time.sleep(600)"), timeout_seconds=1)
    with McpStore(silent) as store, pytest.raises(StoreUnavailable, match="took too long"):
        store.stats()


def test_a_server_without_tools_for_memories_is_named_with_what_it_has() -> None:
    script = "from mcp.server import MCPServer\ns = MCPServer('x', log_level='ERROR')\ns.add_tool(lambda: 1, name='clock')\ns.run()"
    with McpStore(KnowledgeServer(command=sys.executable, args=("-c", script))) as store, pytest.raises(InputError, match="clock"):
        store.stats()


def test_a_server_over_http_is_reached_again_after_it_was_away(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, str(SERVER), "knowledge", str(tmp_path / "notes"), str(port)])
        wait_for(port)
        return process

    server = start()
    try:
        with open_knowledge(f"http://127.0.0.1:{port}/mcp") as store:
            assert store.add(NOTES).added == 2
            server.kill()
            server.wait(240)
            with pytest.raises(StoreUnavailable):
                store.search("staging")
            server = start()
            assert store.search("staging")[0].record == NOTES[0]
    finally:
        server.kill()
        server.wait(240)


def test_a_password_in_an_address_is_never_shown() -> None:
    with open_knowledge("http://me:hunter2secret@127.0.0.1:9/mcp?key=topsecretvalue") as store:
        with pytest.raises(StoreUnavailable) as raised:
            store.search("x")
        assert "hunter2secret" not in str(raised.value)
        assert "topsecretvalue" not in str(raised.value)
        assert "127.0.0.1:9" in str(raised.value)


def test_the_token_is_sent_and_never_shown() -> None:
    asked: list[str | None] = []

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.headers.get("Authorization"))
            self.send_response(401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet: the log of the tests is not for it."""

    server = HTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        settings = KnowledgeServer(url=f"http://127.0.0.1:{server.server_port}/mcp", token="walnut-4711")  # noqa: S106 - made up here
        with McpStore(settings) as store, pytest.raises(StoreUnavailable) as raised:
            store.search("x")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked
    assert set(asked) == {"Bearer walnut-4711"}
    assert "walnut" not in str(raised.value)
