"""What is special about knowledge in PostgreSQL: pgvector, collections, counters that stay true, embedding once (K2, K3, K5, M14)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.config.loading import config_from_values
from holdfast.durable.postgres import Postgres, scripts
from holdfast.errors import InputError, StorageError, StoreUnavailable
from holdfast.harness import build
from holdfast.health import examine
from holdfast.knowledge.postgres import PostgresStore
from holdfast.knowledge.records import Record, to_json
from holdfast.search.embedding import Embedding

NOTES = [
    Record("The staging server is called heron and stands in Frankfurt.", tags=("infra",)),
    Record("Payments are settled every Friday by the finance team."),
    Record("The cafeteria closes at three in the afternoon."),
]


class Letters:
    """An embedder that counts letters: quick, the same everywhere, and it knows what it was asked."""

    name = "letters"
    dimension = 26

    def __init__(self) -> None:
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str], *, question: bool = False) -> list[Embedding]:
        self.seen += [] if question else texts
        return [self._one(text.lower()) for text in texts]

    def _one(self, text: str) -> Embedding:
        words = tuple(word for word in text.split() if any("a" <= letter <= "z" for letter in word))
        return Embedding(_unit(text), np.stack([_unit(word) for word in words]) if words else np.zeros((0, 26), np.float32), words)


def _unit(text: str) -> Any:
    found = np.zeros(26, np.float32)
    for letter in text:
        if "a" <= letter <= "z":
            found[ord(letter) - ord("a")] += 1
    return found / max(float(np.linalg.norm(found)), 1e-6)


@pytest.fixture
def database(postgres: str) -> Iterator[Postgres]:
    with Postgres(postgres) as opened:
        yield opened


def opened(database: Postgres, collection: str = "notes", embedder: Any = None) -> PostgresStore:
    return PostgresStore(database, collection=collection, embedder=embedder)


def counters(database: Postgres) -> dict[str, Any]:
    """The counters as they are kept, and as they would be if counted now."""
    kept = {term: numbers for term, *numbers in database.rows("SELECT term, records, spoken FROM knowledge_terms")}
    true: dict[str, list[int]] = {}
    sums: Counter[str] = Counter()
    for counts, role in database.rows("SELECT counts, role FROM knowledge_records"):
        said = role != "assistant"
        sums.update({"records": 1, "spoken": int(said), "size" if said else "answer_size": sum(counts.values())})
        for term in counts:
            held = true.setdefault(term, [0, 0])
            held[0] += 1
            held[1] += said
    languages: dict[str, int] = dict(database.rows("SELECT language, records FROM knowledge_languages"))
    counted: dict[str, int] = dict(database.rows("SELECT language, count(*) FROM knowledge_records GROUP BY 1"))
    columns = ("records", "spoken", "size", "answer_size")
    (totals,) = database.rows(f"SELECT {', '.join(f'sum({name})::int' for name in columns)} FROM knowledge_collections")  # noqa: S608
    real = [sums[name] for name in columns]
    return {"terms": kept == true, "languages": languages == counted, "records": list(totals) == real}


def test_without_an_embedder_words_alone_find_and_no_pgvector_is_needed(database: Postgres) -> None:
    store = opened(database)
    store.add(NOTES)
    assert store.search("staging servers")[0].record == NOTES[0]
    assert [hit.record for hit in store.search("payment on friday")] == [NOTES[1]]
    assert database.one("SELECT 1 FROM pg_extension WHERE extname = 'vector'") is None
    assert store.stats().vectors == 0


def test_a_server_without_pgvector_is_told_what_to_do(database: Postgres) -> None:
    import psycopg

    role = f"poor_{database.address.parts['dbname']}"
    with psycopg.connect(autocommit=True, **database.address.parts) as admin:
        admin.execute(f"CREATE ROLE {role} LOGIN")
        admin.execute(f"GRANT CREATE ON DATABASE {database.address.parts['dbname']} TO {role}")
    try:
        parts = {**database.address.parts, "user": role}
        dsn = psycopg.conninfo.make_conninfo("", **{name: str(part) for name, part in parts.items()})
        with PostgresStore(f"{dsn} options='-c lock_timeout=5s'", embedder=Crippled()) as store, pytest.raises(InputError):
            store.add(NOTES)  # vectors that no index takes are refused before anything is made
        with Postgres(dsn) as poor:
            refusing = opened(poor, embedder=Letters())
            with poor.transaction() as step:
                allowed = step.one("SELECT has_database_privilege(current_database(), 'CREATE')")
            assert allowed == (True,)
            _forbid_extension(database)
            with pytest.raises(StoreUnavailable, match="CREATE EXTENSION vector"):
                refusing.search("anything")
    finally:
        with psycopg.connect(autocommit=True, **database.address.parts) as admin:
            admin.execute(f"DROP OWNED BY {role}")
            admin.execute(f"REVOKE ALL ON DATABASE {database.address.parts['dbname']} FROM {role}")
            admin.execute(f"DROP ROLE {role}")


class Crippled(Letters):
    dimension = 5000


def _forbid_extension(database: Postgres) -> None:
    """Make CREATE EXTENSION fail, as on a server where only administrators may do it."""
    with database.transaction() as step:
        step.execute(
            """
            CREATE FUNCTION public.no_extension() RETURNS event_trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'not here' USING ERRCODE = '42501'; END $$
            """
        )
        step.execute(
            "CREATE EVENT TRIGGER no_extension ON ddl_command_start WHEN TAG IN ('CREATE EXTENSION') EXECUTE FUNCTION public.no_extension()"
        )


def test_an_extension_in_another_schema_is_found(database: Postgres) -> None:
    with database.transaction() as step:
        step.execute("CREATE SCHEMA extensions")
        step.execute("CREATE EXTENSION vector SCHEMA extensions")
    store = opened(database, embedder=Letters())
    store.add(NOTES)
    assert store.search("staging server")[0].record == NOTES[0]


def test_nothing_is_embedded_twice(database: Postgres) -> None:
    embedder = Letters()
    store = opened(database, embedder=embedder)
    assert store.add(NOTES).embedded == 3
    assert store.add(NOTES).embedded == 0
    tagged = store.add([Record(NOTES[0].text, tags=("more",))])
    assert (tagged.updated, tagged.embedded) == (1, 0)
    assert opened(database, "other", embedder).add(NOTES).embedded == 0, "another collection has the vectors already"
    assert len(embedder.seen) == 3
    assert opened(database, "other", embedder).search("staging server")[0].why.sentence is not None


def test_collections_do_not_see_each_other(database: Postgres) -> None:
    one, other = opened(database, "one", Letters()), opened(database, "o'ne; %s", Letters())
    one.add(NOTES[:1])
    other.add(NOTES[1:])
    assert [hit.record for hit in one.search("the server of the finance team")] == NOTES[:1]
    assert {record.id for record in other.records()} == {note.id for note in NOTES[1:]}
    assert other.forget([NOTES[0].id]) == 0
    assert one.stats().records == 1
    for name in ("", "  ", "x\0y", "x" * 201):
        with pytest.raises(InputError):
            PostgresStore(database, collection=name)


def test_records_added_without_an_embedder_get_their_vectors_from_the_next_search_or_add(database: Postgres) -> None:
    opened(database).add(NOTES)
    embedder = Letters()
    assert opened(database, embedder=embedder).add([Record("One more.")]).embedded == 4
    opened(database, "other").add([Record("A lonely heron.")])
    assert (opened(database, "other", embedder).search("heron")[0].why.sentence or 0) > 0
    assert len(embedder.seen) == 5


def test_forgetting_reaches_every_table(database: Postgres) -> None:
    store = opened(database, embedder=Letters())
    store.add([*NOTES, Record("Xylograph quincunx.", speaker="Zebulon", tags=("zz",), time=datetime(1871, 2, 3, tzinfo=UTC))])
    assert store.forget_text("xylograph QUINCUNX")
    tables = [
        name for (name,) in database.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'holdfast' AND tablename LIKE 'knowledge%'")
    ]
    assert len(tables) == 6
    kept = " ".join(str(database.rows(f"SELECT * FROM {name}")) for name in tables).lower()  # noqa: S608 - our own names
    for trace in ("xylograph", "quincunx", "zebulon", "1871", "xylo"):
        assert trace not in kept
    assert store.stats().vectors == 3
    assert counters(database) == {"terms": True, "languages": True, "records": True}


def test_a_database_of_a_newer_version_is_refused(database: Postgres) -> None:
    opened(database).add(NOTES)
    with database.transaction() as step:
        step.execute("UPDATE schemas SET number = 99 WHERE component = 'knowledge'")
    with pytest.raises(StorageError, match="newer version"):
        opened(database, "other").search("anything")


def test_the_index_of_vectors_is_used(database: Postgres) -> None:
    store = opened(database, embedder=Letters())
    store.add([Record(f"Note {number} about {chr(97 + number % 26) * 5}") for number in range(600)])
    with database.transaction() as step:
        step.execute("SET LOCAL enable_seqscan = off")
        plan = "\n".join(
            line
            for (line,) in step.rows(
                "EXPLAIN SELECT record FROM knowledge_pieces WHERE dimension = 26 ORDER BY vector::halfvec(26) <=> %s::halfvec(26) LIMIT 5",
                ["[" + ",".join(["1"] * 26) + "]"],
            )
        )
    assert "knowledge_pieces_near_26" in plan


_TEXTS = st.sampled_from(
    ["red apple", "red pear", "Der rote Apfel ist reif und süß", "green pear 12", "apple pie recipe", "la pomme est rouge et belle"]
)
_ACTS = st.lists(st.tuples(st.sampled_from("afu"), st.integers(0, 5), _TEXTS), max_size=12)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(acts=_ACTS)
def test_the_counters_stay_true_whatever_is_added_changed_and_forgotten(database: Postgres, acts: list[tuple[str, int, str]]) -> None:
    store = opened(database)
    expected: dict[str, str] = {record.id: record.text for record in store.records()}
    for act, number, text in acts:
        if act == "f":
            assert store.forget([f"r{number}"]) == (f"r{number}" in expected)
            expected.pop(f"r{number}", None)
        else:
            store.add([Record(text, id=f"r{number}", tags=(act,), role="assistant" if number % 3 == 0 else None)])
            expected[f"r{number}"] = text
    assert {record.id: record.text for record in store.records()} == expected
    assert counters(database) == {"terms": True, "languages": True, "records": True}


def test_a_reranker_decides_the_order_and_is_named_as_the_reason(database: Postgres) -> None:
    """K3: `rerank_model` works with PostgreSQL as with every adapter."""

    class Backwards:
        def score(self, question: str, texts: Sequence[str]) -> list[float]:
            return [-float(text == NOTES[0].text) for text in texts]

    store = PostgresStore(database, collection="notes", embedder=Letters(), rerank_model=Backwards())
    store.add(NOTES)
    hits = store.search("staging server heron", top_k=3)
    assert hits[-1].record == NOTES[0]
    assert [hit.why.rerank for hit in hits] == [0.0, 0.0, -1.0]


def test_pieces_that_a_dump_left_out_are_made_again_without_embedding_anything(database: Postgres) -> None:
    """O7, K5: a dump of our schema has no extension, so a new database without it takes every table but that one."""
    with opened(database, embedder=Letters()) as store:
        store.add(NOTES)
        before = [(hit.record, hit.score) for hit in store.search("a server in Frankfurt")]
        rows = database.rows("SELECT record, place, embedder, dimension, vector::text FROM knowledge_pieces ORDER BY 1, 2")
    with database.transaction() as step:
        step.execute("DROP EXTENSION vector CASCADE; DROP TABLE knowledge_pieces")
    embedder = Letters()
    with opened(database, embedder=embedder) as store:
        assert [(hit.record, hit.score) for hit in store.search("a server in Frankfurt")] == before
        assert store.stats().vectors == len(rows)
    assert embedder.seen == []
    assert database.rows("SELECT record, place, embedder, dimension, vector::text FROM knowledge_pieces ORDER BY 1, 2") == rows


def test_doctor_names_a_missing_table_and_looks_at_the_rest(database: Postgres, postgres: str, tmp_path: Path) -> None:
    """O7, O1: a store that cannot be read is one finding among the others."""
    with opened(database, collection="knowledge") as store:
        store.add(NOTES)
    with database.transaction() as step:
        step.execute("DROP TABLE knowledge_terms")
    values = {"knowledge": {"adapter": "postgres", "dsn": postgres, "embedder": "none"}}
    with build(config_from_values(values, cwd=tmp_path)) as harness:
        found = {check.about: check for check in examine(harness)}
    assert found["knowledge"].state == "bad"
    assert '"knowledge_terms" does not exist' in found["knowledge"].text
    assert "pg_restore" in found["knowledge"].text
    assert "disk" in found


def test_a_database_of_the_version_before_is_counted_and_embedded_again(database: Postgres) -> None:
    """O7: what the first form of the tables holds is found as if it had been added today."""
    first = scripts("holdfast.knowledge", prefix="records")[:1]
    database.migrate("knowledge", first)
    with database.transaction() as step:
        step.execute("INSERT INTO knowledge_collections (name, records) VALUES ('notes', 3)")
        for note in NOTES:
            step.execute(
                """INSERT INTO knowledge_records (collection, id, record, kind, tags, language, counts, terms)
                VALUES (1, %s, %s::json, 'note', %s, 'en', '{"old": 1, "may": 0.5}', array_to_tsvector(ARRAY['old', 'may']))""",
                [note.id, json.dumps(to_json(note)), list(note.tags)],
            )
        step.execute("INSERT INTO knowledge_terms VALUES (1, 'old', 3), (1, 'may', 3)")
        step.execute("INSERT INTO knowledge_languages VALUES (1, 'en', 3)")
    store, fresh = opened(database, embedder=Letters()), opened(database, "fresh", Letters())
    fresh.add(NOTES)
    found, expected = (one.search("when are payments settled in Frankfurt?") for one in (store, fresh))
    assert [(hit.record, hit.score) for hit in found] == [(hit.record, hit.score) for hit in expected]
    totals = database.rows("SELECT records, spoken, size, answer_size FROM knowledge_collections ORDER BY number")
    assert totals[0] == totals[1]
    terms = [database.rows("SELECT term, records, spoken FROM knowledge_terms WHERE collection = %s ORDER BY 1", [one]) for one in (1, 2)]
    assert terms[0] == terms[1]
    assert len(terms[0]) > 10
