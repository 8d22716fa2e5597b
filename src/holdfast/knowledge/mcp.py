"""A knowledge store that is an MCP memory server: ours, the reference one, or any with tools to add and to search (K2, O5).

With our own tools (`wire.py`) everything works as with a store at hand. Of another server's tools as much as they can do: what one of them
cannot is a StorageError that names the missing tool.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any

from holdfast.clock import Clock, stamp
from holdfast.config.memory_sections import KnowledgeServer
from holdfast.errors import ConfigError, StorageError
from holdfast.events import Bus
from holdfast.knowledge.base import BaseStore
from holdfast.knowledge.json_form import hit_from_json, report_from_json, stats_from_json
from holdfast.knowledge.mcp_session import HeldSession
from holdfast.knowledge.mcp_tools import Dialect, dialect_of
from holdfast.knowledge.records import Hit, Record, from_json, merged, to_json
from holdfast.knowledge.store import AddReport, Filter, Stats, holds, summed_up
from holdfast.search.reranking import Reranker
from holdfast.text.needle import Needle
from holdfast.tokens.counter import TokenCounter

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

    def __init__(
        self,
        server: KnowledgeServer,
        *,
        rerank: bool = False,
        rerank_model: str | Reranker | None = None,
        clock: Clock | None = None,
        bus: Bus | None = None,
        counter: TokenCounter | None = None,
    ) -> None:
        super().__init__(rerank=rerank, rerank_model=rerank_model, clock=clock, bus=bus, counter=counter)
        if importlib.util.find_spec("mcp") is None:
            raise ConfigError(
                "the package `mcp` is not installed.", key="knowledge.adapter", hint="Install it with `pip install holdfast[mcp]`."
            )
        self._session = HeldSession(server)
        self._chosen = server.tools

    @cached_property
    def _foreign(self) -> Dialect | None:
        """How to speak to a server that does not have our tools; None for one that has."""
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
