"""What a long thread weighs on disk: the SQLite checkpointer plain, with LangChain's middleware, and with ours (A14)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.parts.conversation import Speech
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware as Theirs
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.sqlite import SqliteSaver

from holdfast.agents.checkpoints import ThreadState
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import repeat

__all__ = ["checkpoint_bytes"]

_WINDOW = 100_000
_WHEN: dict[str, Any] = {"trigger": ("fraction", 0.5), "keep": ("messages", 20)}
_NOTES = "Notes: we talked about many small things, decided most of them, and the rest is for next week."


def checkpoint_bytes(base: Path, *, length: int = 1000, turns: int = 12) -> dict[str, Any]:
    """Bytes of the database after the thread came in and some turns were added, every step written at once.

    `bytes` is the file once the write-ahead log is folded in, `with_log` both as they lay there before.
    """
    base.mkdir(parents=True)
    history = _history(length)
    result: dict[str, Any] = {"messages": length, "turns": turns, "text_bytes": sum(len(message.text.encode()) for message in history)}
    for name, middleware, schema in _variants(base):
        result[name] = _measured(base / f"{name}.sqlite", history, turns, middleware, schema)
    result["archive_bytes_of_ours"] = sum(path.stat().st_size for path in (base / "ours").rglob("archive.jsonl"))
    return result


def _variants(base: Path) -> list[tuple[str, list[Any], type[Any] | None]]:
    def summarizer() -> ScriptedModel:
        profile: Any = {"max_input_tokens": _WINDOW}
        return ScriptedModel([repeat(_NOTES)], profile=profile)

    def ours(name: str) -> SummarizationMiddleware:
        return SummarizationMiddleware(summarizer(), archive=FileArchive(base / name), **_WHEN)

    theirs: Any = Theirs(summarizer(), **_WHEN)
    return [
        ("plain", [], None),
        ("langchain", [theirs], None),
        ("ours", [ours("ours")], None),
        ("plain_with_delta_channel", [], ThreadState),
        ("ours_with_delta_channel", [ours("delta")], ThreadState),
    ]


def _history(length: int) -> list[AnyMessage]:
    """About 400 bytes a message."""
    speech = Speech(3)
    texts = [
        " ".join(speech.say("asks" if number % 2 == 0 else "answers", number // 2) for _ in range(4))[:420] for number in range(length)
    ]
    return [HumanMessage(text, id=f"m{n}") if n % 2 == 0 else AIMessage(text, id=f"m{n}") for n, text in enumerate(texts)]


def _measured(path: Path, history: list[AnyMessage], turns: int, middleware: list[Any], schema: type[Any] | None) -> dict[str, Any]:
    profile: Any = {"max_input_tokens": _WINDOW}
    model = ScriptedModel([repeat("That is fine, I have noted it and will come back to it.")], profile=profile)
    config: Any = {"configurable": {"thread_id": "t"}}
    with SqliteSaver.from_conn_string(str(path)) as saver:
        agent: Any = create_agent(model, [], middleware=middleware, checkpointer=saver, state_schema=schema)
        for turn in range(turns):
            new = [HumanMessage(f"Question {turn}: what is next on the list?", id=f"q{turn}")]
            agent.invoke({"messages": [*(history if turn == 0 else []), *new]}, config, durability="sync")
        with_log = _size(path)
        left = len(agent.get_state(config).values["messages"])
    size = _folded(path)
    return {"bytes": size, "megabytes": round(size / 1e6, 2), "with_log": with_log, "messages_left": left, **_shares(path)}


def _size(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(f"{path.name}*") if not part.name.endswith("-shm"))


def _folded(path: Path) -> int:
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        database.close()
    return _size(path)


def _shares(path: Path) -> dict[str, Any]:
    """What fills the file: the largest checkpoints, and what was written of the messages besides."""
    database = sqlite3.connect(path)
    try:
        rows = database.execute("SELECT length(checkpoint) FROM checkpoints ORDER BY checkpoint_id").fetchall()
        writes: Counter[str] = Counter()
        for channel, size in database.execute("SELECT channel, length(value) FROM writes"):
            writes[str(channel)] += size
    finally:
        database.close()
    sizes = [size for (size,) in rows]
    return {
        "checkpoints": len(sizes),
        "largest_checkpoints": sorted(sizes, reverse=True)[:4],
        "writes_of_messages": writes["messages"],
    }
