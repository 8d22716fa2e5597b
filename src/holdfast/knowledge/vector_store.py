"""A LangChain `VectorStore` of any class, opened by its path: it is given vectors that are made already, and gives back the nearest (K2).

    source = VectorSource("langchain_chroma:Chroma", {"persist_directory": "{base}/chroma"}, base=base)
    with closing(source.open("notes", embedder, embedder.dimension)) as vectors:
        vectors.put([Piece(key, vector, text, {})])

Arguments are those of the class. A mapping with `use` inside them is an object to be made (`client: {use: package:Client, ...}`), and
`{base}` stands for the base directory. Nothing of LangChain is imported until a store is opened. Documents of other machines and programs
that stand in a store are read as records (`records_of`).

The ledger (`PieceLedger`) says which pieces of which records are in the vector store, which are still to be put there, and which are to be
taken out. It changes in one transaction with the records in SQLite: whatever is interrupted, the next call knows what is left to do. The
small form of the vectors is kept there too, because no `VectorStore` gives vectors back.
"""

from __future__ import annotations

import inspect
import json
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from holdfast.errors import ConfigError, HoldfastError, InputError, StoreUnavailable
from holdfast.knowledge.base import texts_of
from holdfast.knowledge.records import Record, from_json, read_moment, to_json
from holdfast.knowledge.sqlite import known_record, read_row
from holdfast.redaction import redact_text
from holdfast.search.embedding import Embedder, embedded
from holdfast.validation import load_dotted

if TYPE_CHECKING:
    from holdfast.search.segments import Meaning

_USE, _ARGUMENTS = "knowledge.use", "knowledge.arguments"
_EMBEDDINGS = ("embedding", "embedding_function", "embeddings")
COLLECTIONS = ("collection_name", "index_name")
"""The arguments by which classes are told the name of a collection."""
_WRONG = (TypeError, ValueError, KeyError, AttributeError)
MARK = "holdfast_key"
"""The member of a document's metadata that says that we put it there, and under which key."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A vector to be kept, under a key that no other has, with the text and the metadata that others may read."""

    key: str
    vector: Sequence[float]
    text: str
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """A document of the store. `key` is empty where the store names none."""

    key: str
    text: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ours(self) -> bool:
        """Whether we put it there."""
        return MARK in self.metadata


@dataclass(frozen=True)
class VectorSource:
    """How a vector store is opened. `store` is one that is open already; then nothing else is needed."""

    use: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    connection: str | None = None
    base: Path | None = None
    store: Any = None

    @property
    def name(self) -> str:
        """For people."""
        return type(self.store).__name__ if self.store is not None else self.use

    @property
    def target(self) -> str:
        """Another one when the vectors would be elsewhere; a collection's name is said apart."""
        if self.store is not None:
            return type(self.store).__qualname__
        rest = {name: value for name, value in self.arguments.items() if name not in COLLECTIONS}
        said = json.dumps([self.use, rest, self.connection, str(self.base or "")], sort_keys=True, default=str)
        return blake2b(said.encode(), digest_size=8).hexdigest()

    def collection(self, wanted: str | None, embedder: str) -> str:
        """The collection's name: the one in the arguments, the wanted one, else one for this embedder alone, so that nothing is mixed."""
        said = next((self.arguments[name] for name in COLLECTIONS if self.arguments.get(name)), None)
        return str(said or wanted or f"holdfast-{blake2b(embedder.encode(), digest_size=4).hexdigest()}")

    def open(self, collection: str, embedder: Embedder, dimension: int) -> OutsideVectors:
        """The store. ConfigError when its class cannot be loaded or does not take its arguments, StoreUnavailable when it is not there."""
        if self.store is not None:
            return OutsideVectors(self.name, self.store)
        maker, arguments = self._maker()
        handed = _handed(embedder, dimension)
        taken = set(inspect.signature(maker).parameters)
        place = next((name for name in _EMBEDDINGS if name in taken), "embedding" if "kwargs" in taken else None)
        if place is None:
            raise ConfigError(f"{self.use} takes no embeddings.", key=_USE, hint=f"A class with one of {', '.join(_EMBEDDINGS)} is needed.")
        named = next((name for name in COLLECTIONS if name in taken), None)
        own: dict[str, Any] = {place: handed} | ({named: collection} if named else {})
        shared = (self.target, collection, dimension, embedder.name)
        held = _held(shared, lambda: (self._made(maker, {**arguments, **own}), handed))
        return OutsideVectors(self.name, *held, shared)

    def _maker(self) -> tuple[Callable[..., Any], dict[str, Any]]:
        path, arguments = self.use, dict(self.arguments)
        recipe = KNOWN.get(path)
        if recipe is not None:
            path = recipe[0]
            arguments = {**recipe[1](self.connection, self.base or Path.cwd()), **arguments}
        if not path:
            raise ConfigError("no vector store is named.", key=_USE, hint=f"Use {', '.join(KNOWN)}, or `package.module:Class`.")
        maker = load_dotted(path, "the vector store", key=_USE)
        _read_no_dotenv()
        if hasattr(maker, "construct_instance") and "client" not in arguments:  # it makes the collection where there is none
            maker = maker.construct_instance
        if not callable(maker):
            raise ConfigError(f"{path} is no class.", key=_USE, hint="Write `package.module:Class`.")
        return maker, {name: self._argument(value) for name, value in arguments.items()}

    def _argument(self, value: Any) -> Any:
        if isinstance(value, str):
            return value.replace("{base}", str(self.base or Path.cwd()))
        if isinstance(value, list | tuple):
            return [self._argument(item) for item in value]
        if not isinstance(value, Mapping):
            return value
        made = {name: self._argument(item) for name, item in value.items()}
        use = made.pop("use", None)
        return made if use is None else self._made(load_dotted(str(use), "an argument of the vector store", key=_ARGUMENTS), made)

    def _made(self, maker: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        try:
            return maker(**arguments)
        except HoldfastError:
            raise
        except Exception as error:  # every client raises errors of its own
            said = _said(error)
            if isinstance(error, _WRONG):
                raise ConfigError(f"the vector store {self.name} does not take its arguments: {said}.", key=_ARGUMENTS) from error
            raise StoreUnavailable(f"the vector store {self.name} cannot be opened: {said}.", path=self.name, operation="open") from error


def _read_no_dotenv() -> None:
    """Chroma takes settings, class paths too, from a `.env` of whatever folder one stands in; only what the user wrote counts (C1)."""
    settings = getattr(sys.modules.get("chromadb.config"), "Settings", None)
    if settings is not None:
        settings.model_config["env_file"] = None


def _chroma(connection: str | None, base: Path) -> dict[str, Any]:
    if connection and connection.startswith(("http://", "https://")):
        parts = urlsplit(connection)
        port = parts.port or (443 if parts.scheme == "https" else 8000)
        return {"host": parts.hostname, "port": port, "ssl": parts.scheme == "https"}
    return {"persist_directory": str(base / Path(connection or "chroma").expanduser())}


def _qdrant(connection: str | None, base: Path) -> dict[str, Any]:
    if connection and connection.startswith(("http://", "https://")):
        return {"client_options": {"url": connection}}
    return {"client_options": {"path": str(base / Path(connection or "qdrant").expanduser())}}


KNOWN: Mapping[str, tuple[str, Callable[[str | None, Path], dict[str, Any]]]] = {
    "chroma": ("langchain_chroma:Chroma", _chroma),
    "qdrant": ("langchain_qdrant:QdrantVectorStore", _qdrant),
}
"""Stores that are known by a short name: the class, and its arguments from an address or a path (else in the base directory)."""


class OutsideVectors:
    """An open vector store. Safe for many threads as far as its class is. StoreUnavailable when it does not do what is asked."""

    def __init__(self, name: str, store: Any, handed: Any = None, shared: tuple[Any, ...] | None = None) -> None:
        self._name = name
        self._store = store
        self._handed = handed
        self._shared = shared

    def put(self, pieces: Sequence[Piece]) -> None:
        """Keep these, in place of those with the same keys."""
        if not pieces:
            return
        keys = [piece.key for piece in pieces]
        metadata = [{**piece.metadata, MARK: piece.key} for piece in pieces]
        texts = [piece.text for piece in pieces]

        def add() -> None:
            with _handing(self._handed, {piece.text: piece.vector for piece in pieces}):
                self._store.add_texts(texts, metadatas=metadata, ids=keys)

        try:
            add()
        except Exception:  # noqa: BLE001 - some classes refuse a key that is there already, each with an error of its own
            self.drop(keys)
            self._asked("add", add)

    def drop(self, keys: Iterable[str]) -> None:
        """Delete what is kept under these keys; those that are not there are no fault."""
        wanted = list(keys)
        if wanted:
            self._asked("delete", lambda: self._store.delete(wanted))

    def nearest(self, vector: Sequence[float], question: str, count: int) -> list[Found]:
        """The documents whose vectors are nearest, the nearest first."""

        def near() -> Any:
            try:
                return self._store.similarity_search_by_vector(list(vector), k=count)
            except NotImplementedError:
                with _handing(self._handed, {question: vector}):
                    return self._store.similarity_search(question, k=count)

        return [_found(document) for document in self._asked("search", near)]

    def read(self, keys: Sequence[str]) -> list[Found]:
        """The documents under these keys; none where the class cannot read by key."""
        try:
            return [_found(document) for document in self._store.get_by_ids(list(keys))]
        except Exception:  # noqa: BLE001 - a key of another form is an error to some clients: then there is nothing under it
            return []

    def close(self) -> None:
        """Let go of it. One that was given stays open."""
        if self._shared is not None:
            shared, self._shared = self._shared, None
            _let_go(shared)

    def _asked(self, operation: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except HoldfastError:
            raise
        except Exception as error:  # every client raises errors of its own
            raise StoreUnavailable(
                f"the vector store {self._name} did not do what was asked ({operation}): {_said(error)}.",
                path=self._name,
                operation=operation,
            ) from error


def _found(document: Any) -> Found:
    metadata = dict(document.metadata or {})
    return Found(str(metadata.get(MARK) or getattr(document, "id", None) or metadata.get("_id") or ""), document.page_content, metadata)


def _said(error: BaseException) -> str:
    return redact_text(f"{type(error).__name__}: {' '.join(str(error).split())}")[:300].rstrip(".")


# One process opens a store once: some clients (Qdrant in local mode) allow no second one.

_open: dict[Any, list[Any]] = {}
_opening = threading.RLock()


def _held(key: Any, make: Callable[[], tuple[Any, Any]]) -> tuple[Any, Any]:
    with _opening:
        if key not in _open:
            _open[key] = [*make(), 0]
        _open[key][2] += 1
        return _open[key][0], _open[key][1]


def _let_go(key: Any) -> None:
    with _opening:
        held = _open[key]
        held[2] -= 1
        if held[2]:
            return
        del _open[key]
    for owner in (held[0], getattr(held[0], "client", None)):
        close = getattr(owner, "close", None)
        if callable(close):
            close()
            return


def _handed(embedder: Embedder, dimension: int) -> Any:
    """Embeddings in LangChain's form that give out vectors which are made already; the embedder is asked for all others."""
    form = load_dotted("langchain_core.embeddings:Embeddings", "LangChain", key=_USE, hint="Install langchain-core.")

    def hand(self: Any, vectors: Mapping[str, Sequence[float]] | None) -> None:
        self.given.vectors = vectors or {}

    def embed_documents(self: Any, texts: list[str]) -> list[list[float]]:
        given = getattr(self.given, "vectors", {})
        if len(texts) == 1 and texts[0] not in given and embedder.dimension != dimension:  # a class that asks for the size
            return [[0.0] * dimension]
        missing = [text for text in texts if text not in given]
        made = dict(zip(missing, embedded(embedder, missing), strict=True)) if missing else {}
        return [[float(number) for number in (given[text] if text in given else made[text].vector)] for text in texts]

    def embed_query(self: Any, text: str) -> list[float]:
        return embed_documents(self, [text])[0]

    members = {"hand": hand, "embed_documents": embed_documents, "embed_query": embed_query, "given": threading.local()}
    return type("HandedEmbeddings", (form,), members)()


@contextmanager
def _handing(handed: Any, vectors: Mapping[str, Sequence[float]]) -> Iterator[None]:
    """While the block runs these texts have these vectors. A store that was given embeds by itself."""
    if handed is None:
        yield
        return
    handed.hand(vectors)
    try:
        yield
    finally:
        handed.hand(None)


RECORD = "holdfast_record"
"""The member of a document's metadata that holds a record which is shared."""
_USUAL = {
    "source": ("source", "url", "file_path", "path"),
    "session": ("session", "session_id", "thread_id"),
    "speaker": ("speaker", "author"),
}


def records_of(found: Iterable[Found]) -> list[Record]:
    """The records that documents of a vector store stand for, each once. What only its owner can read is left out."""
    records: dict[str, Record] = {}
    for one in found:
        record = _shared_record(one) if one.ours else _foreign_record(one)
        if record is not None:
            records.setdefault(record.id, record)
    return list(records.values())


def _shared_record(one: Found) -> Record | None:
    try:
        return from_json(json.loads(str(one.metadata[RECORD])))
    except (KeyError, ValueError, InputError):
        return None


def _foreign_record(one: Found) -> Record | None:
    """A document of another program as a record: its text, and what its metadata says in the usual words."""
    said = {str(name).lower(): value for name, value in one.metadata.items()}
    id = one.key if 0 < len(one.key) <= 200 else blake2b(one.text.encode("utf-8", "replace"), digest_size=12).hexdigest()
    tags = said.get("tags")
    words = tags.split(",") if isinstance(tags, str) else [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []
    texts: dict[str, Any] = {name: next((str(said[key]) for key in keys if said.get(key)), None) for name, keys in _USUAL.items()}
    try:
        return Record(
            one.text,
            id=id,
            tags=tuple(word.strip() for word in words if word.strip()),
            time=_moment(said),
            kind="document",
            extra=json.loads(json.dumps(dict(one.metadata), default=str)),
            **texts,
        )
    except InputError:
        return None


def _moment(said: Mapping[str, Any]) -> datetime | None:
    for name in ("time", "date", "timestamp", "created_at", "updated_at"):
        value = said.get(name)
        try:
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e11:
                return datetime.fromtimestamp(value, UTC)
            if isinstance(value, str) and value:
                return read_moment(value)
        except (InputError, ValueError, OverflowError):
            continue
    return None


# What a vector store holds, and what is still to be done


_TABLES = """
CREATE TABLE IF NOT EXISTS pieces (
    key    TEXT PRIMARY KEY,   -- its id in the vector store
    record TEXT NOT NULL,      -- the id of its record; empty when it is to be taken out
    state  TEXT NOT NULL       -- due, there, gone
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS pieces_by_record ON pieces (record);
CREATE INDEX IF NOT EXISTS pieces_to_do ON pieces (state) WHERE state <> 'there';
CREATE TABLE IF NOT EXISTS vector_form (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
_SPACE = UUID("6d1b9a36-7a55-5f0e-9c1d-0f2f4c0e8b77")
_MANY = 500  # values in one statement


@dataclass(frozen=True)
class VectorForm:
    """Whose vectors are in the vector store, and where in it."""

    embedder: str
    dimension: int
    collection: str
    target: str


def keys_of(record: Record, *, shared: bool) -> list[str]:
    """The keys of a record's pieces: another text has other keys, and where the record is shared, another record has too."""
    also = json.dumps(to_json(record), sort_keys=True) if shared else ""
    return [str(uuid5(_SPACE, json.dumps([record.id, place, text, also]))) for place, text in enumerate(texts_of(record))]


class PieceLedger:
    """The ledger in one database. `shared` says that the vector store holds the records themselves too. Changes need a transaction."""

    def __init__(self, database: sqlite3.Connection, *, shared: bool) -> None:
        self._database = database
        self._shared = shared
        database.executescript(_TABLES)

    # Writing

    def follow(self, database: sqlite3.Connection, ids: Iterable[str]) -> None:
        """Note what has to be done after these records were changed or dropped."""
        for id in dict.fromkeys(ids):
            now = known_record(database, id)
            wanted = set(keys_of(now[1], shared=self._shared)) if now is not None else set()
            have = {key for (key,) in database.execute("SELECT key FROM pieces WHERE record = ?", (id,))}
            database.executemany("UPDATE pieces SET record = '', state = 'gone' WHERE key = ?", [(key,) for key in have - wanted])
            database.executemany("INSERT OR REPLACE INTO pieces VALUES (?, ?, 'due')", [(key, id) for key in wanted - have])

    def placed(self, database: sqlite3.Connection, record: Record, meaning: Meaning, hash: bytes) -> None:
        """A record's pieces are in the vector store now. What was changed meanwhile stays to be done."""
        keys = keys_of(record, shared=self._shared)
        database.executemany("UPDATE pieces SET state = 'there' WHERE key = ? AND record = ?", [(key, record.id) for key in keys])
        row = database.execute("SELECT number FROM meanings WHERE hash = ?", (hash,)).fetchone()
        number = row[0] if row is not None else None
        if number is None:
            values = (hash, meaning.vectors, meaning.tokens)
            number = database.execute("INSERT INTO meanings (hash, vectors, tokens) VALUES (?, ?, ?)", values).lastrowid
        now = known_record(database, record.id)
        if now is not None and texts_of(now[1]) == texts_of(record):
            database.execute("UPDATE records SET meaning = ? WHERE id = ?", (number, record.id))

    def dropped(self, database: sqlite3.Connection, keys: Iterable[str]) -> None:
        """These pieces are no longer in the vector store."""
        database.executemany("DELETE FROM pieces WHERE key = ? AND state = 'gone'", [(key,) for key in keys])

    def begin_anew(self, database: sqlite3.Connection, form: VectorForm) -> None:
        """All pieces of all records are to be put into the vector store, in this form. Nothing of another form is kept."""
        database.execute("DELETE FROM pieces")
        database.execute("UPDATE records SET meaning = NULL")
        database.execute("DELETE FROM meanings")
        self.set_form(database, form)
        self.follow(database, [id for (id,) in database.execute("SELECT id FROM records").fetchall()])

    def set_form(self, database: sqlite3.Connection, form: VectorForm) -> None:
        database.execute("INSERT OR REPLACE INTO vector_form VALUES ('form', ?)", (json.dumps(asdict(form)),))

    # Reading

    @property
    def form(self) -> VectorForm | None:
        """The form of what is in the vector store; None as long as nothing is."""
        row = self._database.execute("SELECT value FROM vector_form WHERE name = 'form'").fetchone()
        return None if row is None else VectorForm(**json.loads(row[0]))

    def count(self, state: str) -> int:
        return int(self._database.execute("SELECT count(*) FROM pieces WHERE state = ?", (state,)).fetchone()[0])

    @property
    def anything_to_do(self) -> bool:
        return self._database.execute("SELECT 1 FROM pieces WHERE state <> 'there' LIMIT 1").fetchone() is not None

    def gone(self, limit: int) -> list[str]:
        return [key for (key,) in self._database.execute("SELECT key FROM pieces WHERE state = 'gone' LIMIT ?", (limit,))]

    def there(self) -> list[str]:
        return [key for (key,) in self._database.execute("SELECT key FROM pieces WHERE state = 'there'")]

    def due(self, limit: int, after: str = "") -> list[Record]:
        """Records with pieces that are to be put into the vector store, in the order of their ids, from behind this one on."""
        query = """
            SELECT r.record FROM (SELECT DISTINCT record FROM pieces WHERE state = 'due' AND record > ? ORDER BY record LIMIT ?) p
            JOIN records r ON r.id = p.record ORDER BY p.record
        """
        return [read_row(self._database, text) for (text,) in self._database.execute(query, (after, limit))]

    def numbers(self, keys: Collection[str]) -> dict[str, int]:
        """The numbers of the records to which these pieces belong. 0 for a piece that is to be taken out."""
        query = "SELECT p.key, coalesce(r.number, 0) FROM pieces p LEFT JOIN records r ON r.id = p.record WHERE p.key IN ({})"
        return dict(self._in_parts(query, list(keys)))

    def vectors(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """The small form of the vectors of these records."""
        return self._meanings("vectors", numbers)

    def tokens(self, numbers: Sequence[int]) -> Mapping[int, bytes]:
        """The vectors of the words of these records."""
        return self._meanings("tokens", numbers)

    def _meanings(self, column: str, numbers: Sequence[int]) -> dict[int, bytes]:
        query = f"SELECT r.number, m.{column} FROM records r JOIN meanings m ON m.number = r.meaning WHERE r.number IN ({{}})"  # noqa: S608 - ours
        return dict(self._in_parts(query, numbers))

    def _in_parts(self, query: str, values: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
        for start in range(0, len(values), _MANY):
            part = values[start : start + _MANY]
            yield from self._database.execute(query.format(",".join("?" * len(part))), part)
