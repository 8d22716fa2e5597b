"""A knowledge store that is an MCP memory server: ours, the reference one, or any with tools to add and to search (K2, O5).

With our own tools (listed in `store.py`) everything works as with a store at hand. Other servers are spoken to in one of two dialects,
`GraphDialect` and `ListDialect`, which find out what the tools take; what a server cannot do is a StorageError that names the missing tool.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Literal, Protocol, Unpack

from holdfast.clock import stamp
from holdfast.config.memory_sections import KnowledgeServer, KnowledgeTools
from holdfast.errors import ConfigError, InputError, StorageError
from holdfast.knowledge.base import BaseStore, StoreSettings, rank_records
from holdfast.knowledge.mcp_session import HeldSession, Tool
from holdfast.knowledge.records import Hit, Record, Why, from_json, merged, to_json
from holdfast.knowledge.store import AddReport, Filter, Stats, hit_from_json, holds, report_from_json, stats_from_json, summed_up
from holdfast.text.needle import Needle

Deed = Literal["add", "search", "get", "forget", "list"]
_NAMES: Mapping[Deed, tuple[str, ...]] = {
    "add": ("add_memory", "add_memories", "memory_add", "store_memory", "memory_store", "save_memory", "create_memory", "remember", "add"),
    "search": ("search_memory", "search_memories", "memory_search", "retrieve_memory", "query_memory", "recall", "search"),
    "get": ("get_memory", "memory_get", "read_memory"),
    "forget": ("delete_memory", "memory_delete", "forget_memory", "remove_memory", "memory_remove", "forget"),
    "list": ("list_memories", "get_all_memories", "memory_list", "get_memories", "list_memory"),
}
_TEXT = ("text", "content", "memory", "data", "fact", "observation", "information", "value", "note")
_ID = ("id", "memory_id", "uuid", "key", "content_hash", "hash")
_QUERY = ("query", "q", "search", "question", "text", "search_query")
_LIMIT = ("limit", "top_k", "k", "n_results", "max_results", "n", "count", "size")
_METADATA = ("metadata", "meta", "extra")
_LISTS = ("results", "memories", "hits", "items", "matches", "records", "data", "entities")
_SCORE = ("score", "similarity", "relevance", "relevance_score", "similarity_score")
_MARK = "holdfast-record: "
_MEMBER = "holdfast"
_LISTED = 1000


@dataclass(frozen=True, slots=True)
class Item:
    """Something that a server keeps: the record, and the server's own name for it where it has one."""

    record: Record
    key: str | None = None
    score: float | None = None


class Dialect(Protocol):
    """A way to speak to a server. StorageError, naming the deed, for what the server cannot do."""

    def put(self, record: Record) -> None:
        """Keep one record that is not there yet."""

    def find(self, question: str, limit: int, now: datetime) -> list[Hit]:
        """What the server, or our own ranking of all it has, gives for a question."""

    def named(self, id: str) -> list[Item]:
        """What the server keeps under this id."""

    def like(self, record: Record) -> list[Item]:
        """What the server keeps that is the same thing as this record."""

    def all(self) -> Iterator[Item]:
        """Everything that the server keeps."""

    def drop(self, item: Item) -> None:
        """Remove one thing."""


def dialect_of(session: HeldSession, chosen: KnowledgeTools) -> Dialect:
    """The dialect that fits the server's tools. InputError, with the tools there are, if none does."""
    tools = session.tools()
    named = {name: value for name in ("add", "search", "get", "forget", "list") if (value := getattr(chosen, name))}
    missing = [value for value in named.values() if value not in tools]
    if missing:
        raise InputError(
            f"the MCP server {session.where} has no tool {missing[0]!r}.", hint=f"It has: {', '.join(sorted(tools)) or 'none at all'}."
        )
    if not named and {"create_entities", "read_graph"} <= tools.keys():
        return GraphDialect(session)
    deeds = {deed: named.get(deed) or next((name for name in names if name in tools), None) for deed, names in _NAMES.items()}
    if not deeds["add"] and not deeds["search"]:
        raise InputError(
            f"the MCP server {session.where} has no tools for memories that are known.",
            hint=f"It has: {', '.join(sorted(tools)) or 'none at all'}. Say in `knowledge.server.tools` which of them add and search.",
        )
    return ListDialect(session, {deed: name for deed, name in deeds.items() if name})


class GraphDialect:
    """Entities with observations, as the reference memory server keeps them: a record is an entity whose name is its id.

    That server looks for the question as a whole inside its texts, which finds nothing for a sentence: its graph is read and ranked here.
    """

    def __init__(self, session: HeldSession) -> None:
        self._session = session

    def put(self, record: Record) -> None:
        rest = {name: value for name, value in to_json(record).items() if name not in ("text", "id", "kind")}
        written = [record.text, _MARK + json.dumps(rest, ensure_ascii=False)]
        entity = {"name": record.id, "entityType": record.kind, "observations": written}
        self._session.call("create_entities", {"entities": [entity]}, again=True)  # an entity that is there already is left alone

    def find(self, question: str, limit: int, now: datetime) -> list[Hit]:
        note = f"kept by the MCP server {self._session.where}"
        found = rank_records([item.record for item in self.all()], question, now, limit)
        return [replace(hit, why=replace(hit.why, notes=(note,))) for hit in found]

    def named(self, id: str) -> list[Item]:
        if "open_nodes" not in self._session.tools():
            return [item for item in self.all() if item.key == id]
        found = self._session.call("open_nodes", {"names": [id]}, again=True)
        return [item for item in _entities(found) if item.key == id]

    def like(self, record: Record) -> list[Item]:
        return self.named(record.id)

    def all(self) -> Iterator[Item]:
        return iter(_entities(self._session.call("read_graph", {}, again=True)))

    def drop(self, item: Item) -> None:
        _need("delete_entities" in self._session.tools(), self._session, "forget")
        self._session.call("delete_entities", {"entityNames": [item.key]}, again=True)


def _entities(graph: Any) -> list[Item]:
    entities = graph.get("entities") if isinstance(graph, Mapping) else None
    return [item for entity in entities or () if isinstance(entity, Mapping) and (item := _entity(entity)) is not None]


def _entity(entity: Mapping[str, Any]) -> Item | None:
    name = str(entity.get("name") or "")
    said = [str(one) for one in entity.get("observations") or ()]
    kind = str(entity.get("entityType") or "note")
    ours = next((one for one in said if one.startswith(_MARK)), None)
    text = "\n".join(one for one in said if one is not ours)
    if not text.strip() or not name.strip():
        return None
    if ours is not None:
        try:
            return Item(from_json({**json.loads(ours.removeprefix(_MARK)), "text": text, "id": name, "kind": kind}), name)
        except (ValueError, InputError):
            pass  # somebody changed our note: the text is still a record
    return Item(Record(f"{name}: {text}", id=name[:200], kind=kind), name)


class ListDialect:
    """Memories that are added and searched for by text. `deeds` says which tool does what."""

    def __init__(self, session: HeldSession, deeds: Mapping[Deed, str]) -> None:
        self._session = session
        self._deeds = deeds

    def put(self, record: Record) -> None:
        name, takes = self._tool("add")
        arguments: dict[str, Any] = {}
        text = _first(takes, _TEXT)
        if text is not None:
            arguments[text] = [record.text] if takes[text].get("type") == "array" else record.text
        elif "messages" in takes:
            arguments["messages"] = [{"role": record.role if record.role == "assistant" else "user", "content": record.text}]
        else:
            raise self._odd(name, "text")
        metadata = _first(takes, _METADATA)
        if metadata is not None:
            rest = {key: value for key, value in to_json(record).items() if key != "text"}
            arguments[metadata] = {_MEMBER: rest} if takes[metadata].get("type") != "string" else json.dumps({_MEMBER: rest})
        if "tags" in takes and record.tags:
            arguments["tags"] = ",".join(record.tags) if takes["tags"].get("type") == "string" else list(record.tags)
        self._session.call(name, arguments, again=False)

    def find(self, question: str, limit: int, now: datetime) -> list[Hit]:
        items = self._asked(question, limit)
        note = f"found by the MCP server {self._session.where}"
        scores = [item.score if item.score is not None else 1.0 / place for place, item in enumerate(items, 1)]
        return [Hit(item.record, score, Why(notes=(note,))) for item, score in zip(items, scores, strict=True)]

    def _asked(self, question: str, limit: int) -> list[Item]:
        name, takes = self._tool("search")
        query = _first(takes, _QUERY)
        if query is None:
            raise self._odd(name, "query")
        arguments: dict[str, Any] = {query: question}
        if (most := _first(takes, _LIMIT)) is not None:
            arguments[most] = limit
        return _items(self._session.call(name, arguments, again=True))

    def named(self, id: str) -> list[Item]:
        if "get" in self._deeds:
            name, takes = self._tool("get")
            key = _first(takes, _ID)
            try:
                found = _items(self._session.call(name, {key: id}, again=True)) if key else []
            except StorageError as error:
                if error.operation != name:
                    raise
                found = []  # a server may answer an unknown id with an error
            if found:
                return [replace(item, key=item.key or id) for item in found[:1]]
        return [item for item in self.all() if id in (item.key, item.record.id)]

    def like(self, record: Record) -> list[Item]:
        items = self.all() if "list" in self._deeds else self._asked(record.text[:2000], 10) if "search" in self._deeds else ()
        return [item for item in items if item.record.id == record.id or item.record.text == record.text]

    def all(self) -> Iterator[Item]:
        name, takes = self._tool("list")
        arguments = {most: _LISTED} if (most := _first(takes, _LIMIT)) is not None else {}
        return iter(_items(self._session.call(name, arguments, again=True)))

    def drop(self, item: Item) -> None:
        name, takes = self._tool("forget")
        key = _first(takes, (*_ID, "ids", "memory_ids"))
        if key is None:
            raise self._odd(name, "id")
        id = item.key or item.record.id
        self._session.call(name, {key: [id] if takes[key].get("type") == "array" else id}, again=True)

    def _tool(self, deed: Deed) -> tuple[str, Tool]:
        _need(deed in self._deeds, self._session, deed)
        name = self._deeds[deed]
        return name, self._session.tools()[name]

    def _odd(self, tool: str, what: str) -> StorageError:
        return StorageError(
            f"the tool {tool!r} of the MCP server {self._session.where} takes nothing that looks like a {what}.",
            path=self._session.where,
            operation=tool,
            hint="Name another tool in `knowledge.server.tools`.",
        )


def _need(there: bool, session: HeldSession, deed: str) -> None:
    if not there:
        raise StorageError(
            f"the MCP server {session.where} has no tool to {deed} memories.",
            path=session.where,
            operation=deed,
            hint=f"If it has one under another name, say so in `knowledge.server.tools.{deed}`.",
        )


def _first(takes: Mapping[str, Any], names: Sequence[str]) -> str | None:
    return next((name for name in names if name in takes), None)


def _items(answer: Any) -> list[Item]:
    """The memories in an answer, however it is built."""
    if isinstance(answer, Mapping):
        inner = next((answer[name] for name in _LISTS if isinstance(answer.get(name), list)), None)
        answer = [answer] if inner is None else inner
    if isinstance(answer, str):
        answer = [answer] if answer.strip() else []
    if not isinstance(answer, list):
        return []
    return [item for one in answer if (item := _item(one)) is not None]


def _item(value: Any) -> Item | None:
    if isinstance(value, str):
        return Item(Record(value)) if value.strip() else None
    if not isinstance(value, Mapping):
        return None
    name = _first(value, _TEXT)
    text = value[name] if name is not None else None
    if isinstance(text, Mapping):
        return _item({**value, **text})
    if not isinstance(text, str) or not text.strip():
        return None
    key = next((str(value[name]) for name in _ID if value.get(name)), None)
    score = next((float(value[name]) for name in _SCORE if isinstance(value.get(name), int | float)), None)
    return Item(_restored(text, key, value), key, score)


def _restored(text: str, key: str | None, value: Mapping[str, Any]) -> Record:
    """The record as it was put in, where the server kept what we said about it; else what can be told from the answer."""
    metadata = next((value[name] for name in _METADATA if value.get(name)), None)
    if isinstance(metadata, str):
        try:
            metadata = json.loads(metadata)
        except ValueError:
            metadata = None
    if isinstance(metadata, Mapping) and isinstance(metadata.get(_MEMBER), Mapping):
        try:
            return from_json({**metadata[_MEMBER], "text": text})
        except InputError:
            pass  # somebody changed it: the text is still a record
    tags = value.get("tags")
    return Record(text, id=(key or "")[:200], tags=tuple(str(tag) for tag in tags) if isinstance(tags, list) else ())


_OURS = frozenset({"knowledge_add", "knowledge_search", "knowledge_get", "knowledge_forget", "knowledge_records", "knowledge_stats"})
_BATCH_BYTES = 500_000  # servers bound the size of a request; 4 MB is usual
_PAGE = 200
_WIDER = 5  # how many times more is asked for when what does not fit must be left out here


class McpStore(BaseStore):
    """The records that an MCP server keeps. Meets `KnowledgeStore` as far as the server's tools reach.

    Our own server has ranked what it gives. What another one finds by itself is in its own order; where it can only list what it keeps,
    that is ranked here.
    """

    batch = 100

    def __init__(self, server: KnowledgeServer, **settings: Unpack[StoreSettings]) -> None:
        super().__init__(**settings)
        if importlib.util.find_spec("mcp") is None:
            raise ConfigError(
                "the package `mcp` is not installed.", key="knowledge.adapter", hint="Install it with `pip install holdfast[mcp]`."
            )
        self._session = HeldSession(server)
        self._chosen = server.tools

    @property
    def _foreign(self) -> Dialect | None:
        """How to speak to a server that does not have our tools; None for one that has. StorageError if the store was closed."""
        self._check_open(self._session.where)
        return self._dialect

    @cached_property
    def _dialect(self) -> Dialect | None:
        tools = self._session.tools().keys()
        return None if tools >= _OURS else dialect_of(self._session, self._chosen)

    # Writing

    def _batches(self, records: Iterable[Record]) -> Iterator[list[Record]]:
        """Records in parts that a server takes in one request."""
        for some in super()._batches(records):
            batch: list[Record] = []
            size = 0
            for record in some:
                if batch and size + len(record.text) > _BATCH_BYTES:
                    yield batch
                    batch, size = [], 0
                batch.append(record)
                size += len(record.text)
            yield batch

    def _add(self, batch: list[Record]) -> AddReport:
        foreign = self._foreign
        if foreign is None:
            return report_from_json(self._call("knowledge_add", records=[to_json(record) for record in batch]))
        added = updated = 0
        for record in batch:
            there = foreign.like(record)
            if any(item.record == (merged(item.record, record)) for item in there) or any(
                item.record.text == record.text for item in there
            ):
                continue
            for item in there:
                foreign.drop(item)
            foreign.put(record)
            updated += bool(there)
            added += not there
        return AddReport(added, updated, len(batch) - added - updated, ids=tuple(record.id for record in batch))

    def forget(self, ids: Iterable[str]) -> int:
        wanted = list(dict.fromkeys(ids))
        foreign = self._foreign
        if foreign is None:
            return len(self._call("knowledge_forget", ids=wanted)["ids"])
        gone = 0
        for id in wanted:
            found = foreign.named(id)
            for item in found:
                foreign.drop(item)
            gone += bool(found)
        return gone

    def forget_text(self, text: str) -> list[str]:
        needle = Needle(text)
        foreign = self._foreign
        if foreign is None:
            return [str(id) for id in self._call("knowledge_forget", text=text)["ids"]]
        found = [item for item in foreign.all() if holds(needle, item.record)]
        for item in found:
            foreign.drop(item)
        return [item.record.id for item in found]

    # Reading

    def _find(self, question: str, chosen: Filter, now: datetime, limit: int) -> list[Hit]:
        foreign = self._foreign
        if foreign is None:
            asked = {"query": question, "top_k": limit, **_filter(chosen), "now": stamp(now)}
            return [hit_from_json(hit) for hit in self._call("knowledge_search", **asked)["hits"]]
        found = foreign.find(question, limit if chosen.empty else limit * _WIDER, now)
        return [hit for hit in found if any(map(chosen.admits, hit.records))][:limit]

    def get(self, id: str) -> Record | None:
        foreign = self._foreign
        if foreign is None:
            value = self._call("knowledge_get", id=id)["record"]
            return None if value is None else from_json(value)
        return next((item.record for item in foreign.named(id)), None)

    def _listed(self, chosen: Filter) -> Iterator[Record]:
        foreign = self._foreign
        if foreign is not None:
            return (item.record for item in foreign.all() if chosen.admits(item.record))
        return self._pages(chosen)

    def _pages(self, chosen: Filter) -> Iterator[Record]:
        start: int | None = 0
        while start is not None:
            page = self._call("knowledge_records", **_filter(chosen), start=start, limit=_PAGE)
            yield from (from_json(value) for value in page["records"])
            start = page["next"]

    def stats(self) -> Stats:
        foreign = self._foreign
        if foreign is None:
            found = stats_from_json(self._call("knowledge_stats"), "mcp", self._session.where)
            return replace(found, problems=(*found.problems, *self._reranker_problems))
        return summed_up((item.record for item in foreign.all()), "mcp", self._session.where, None, self._reranker_problems)

    def close(self) -> None:
        self._closed = True
        self._session.close()

    def _call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """One of our own tools: all of them may be called twice without harm, since ids are made from content."""
        given = {name: value for name, value in arguments.items() if value is not None}
        answer = self._session.call(tool, given, again=True)
        if not isinstance(answer, dict):
            raise StorageError(
                f"the MCP server {self._session.where} answered {tool} with something else.", path=self._session.where, operation=tool
            )
        return answer


def _filter(chosen: Filter) -> dict[str, Any]:
    return {
        "tags": sorted(chosen.tags) or None,
        "after": stamp(chosen.after) if chosen.after else None,
        "before": stamp(chosen.before) if chosen.before else None,
        "session": chosen.session,
    }
