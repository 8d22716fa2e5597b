"""A database that the version before wrote memory into opens with all that was in it (O7, M6)."""

from __future__ import annotations

import json
from pathlib import Path

from holdfast.durable.postgres import Postgres, scripts
from holdfast.memory.document import fact_to_json
from holdfast.memory.facts import Fact
from holdfast.memory.history import Change, Difference, Held, held_to_json, to_record
from holdfast.memory.memory_store import Edit
from holdfast.memory.storage import PostgresMemoryStorage


def test_the_tables_of_the_version_before_are_moved_with_everything_in_them(postgres: str, tmp_path: Path) -> None:
    tea, cake = Fact("f1", "Likes tea\0 “so”", confidence=0.9, created="2026"), Fact("f2", "Likes cake", created="2026")
    changes = [
        Change(
            f"change-{n}",
            f"2026-01-0{n}T00:00:00.000Z",
            n,
            "user",
            "test",
            (Difference("fact", f"f{n}", None, {"content": "x"}),),
            item=f"i{n}",
        )
        for n in (1, 2, 3)
    ]
    held = [Held(f"q{n}", "2026", Fact(f"q{n}", f"Maybe {n}"), "why") for n in (1, 2)]
    old = Postgres(postgres, base=tmp_path)
    old.migrate("memory", scripts("holdfast.memory")[:1])
    with old.transaction() as step:
        for scope, fact in (("", tea), ("coder", cake)):
            document = {"version": "1.0", "schema": 1, "revision": 3, "facts": [fact_to_json(fact)], "zebra": {"b": 1, "a": 2}}
            step.execute("INSERT INTO memory_documents (scope, revision, document) VALUES (%s, 3, %s)", [scope, json.dumps(document)])
        for change in changes:
            values = ["", change.id, change.item, change.time, json.dumps(to_record(change))]
            step.execute("INSERT INTO memory_changes (scope, id, item, time, record) VALUES (%s, %s, %s, %s, %s)", values)
        for one in held:
            step.execute("INSERT INTO memory_held (scope, id, held) VALUES ('', %s, %s)", [one.id, json.dumps(held_to_json(one))])
        step.execute("INSERT INTO memory_damaged (scope, kind, reason, content) VALUES ('coder', 'document', 'why', 'broken heron')")
    old.close()

    storage = PostgresMemoryStorage(tmp_path, postgres)
    assert storage.document().facts == (tea,)
    assert list(storage.load()["zebra"]) == ["b", "a"]
    assert storage.document("coder").facts == (cake,)
    assert storage.changes() == changes
    assert storage.damage() == []
    assert storage.has_item("i2")
    assert storage.held() == held
    assert list(storage.scopes()) == [None, "coder"]
    assert storage.remove_set_aside("coder", lambda data: b"heron" in data) == 1
    storage.change(None, lambda document: Edit(document.with_fact(cake), "user", "test"))
    assert [change.revision for change in storage.changes()] == [1, 2, 3, 4]
    storage.close()
    again = PostgresMemoryStorage(tmp_path, postgres)
    assert [fact.id for fact in again.document().facts] == ["f1", "f2"]
    query = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'memory%%' AND tablename NOT LIKE 'memory_queue%%'"
    tables = again.backend.database.rows(query)  # type: ignore[attr-defined]
    assert tables == []
    again.close()
