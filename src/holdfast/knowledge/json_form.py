"""Hits, reports and statistics as JSON values: what the command line prints, and what our MCP tools send and take.

knowledge_add(records)                                                     -> a report
knowledge_search(query, top_k, tags, after, before, session, budget, now)  -> {"hits": [...]}
knowledge_get(id)                                                          -> {"record": ... or null}
knowledge_forget(ids, text)                                                -> {"ids": [...]}
knowledge_records(tags, after, before, session, start, limit)              -> {"records": [...], "next": ... or null}
knowledge_stats()                                                          -> statistics
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from holdfast.clock import stamp
from holdfast.errors import InputError
from holdfast.knowledge.records import Hit, Why, from_json, to_json
from holdfast.knowledge.store import AddReport, Stats

_WHY = {one.name for one in fields(Why)}


def hit_to_json(hit: Hit) -> dict[str, Any]:
    """A hit with its record, its score, and why it was found, in parts and as one line."""
    why = {name: value for name, value in asdict(hit.why).items() if value not in (None, ())}
    found = {"score": round(hit.score, 6), "why": str(hit.why), "reasons": why, "record": to_json(hit.record)}
    return found | ({"unit": [to_json(record) for record in hit.unit]} if hit.unit else {})


def hit_from_json(value: Any) -> Hit:
    """The hit that `hit_to_json` wrote. InputError if it is none."""
    if not isinstance(value, Mapping):
        raise InputError("a hit is a JSON object.")
    given = value.get("reasons") or {}
    reasons: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in given.items() if name in _WHY}
    unit = tuple(from_json(record) for record in value.get("unit") or ())
    score = value.get("score")
    return Hit(from_json(value.get("record")), float(score) if isinstance(score, int | float) else 0.0, Why(**reasons), unit)


def report_to_json(report: AddReport) -> dict[str, Any]:
    """A report of an `add`."""
    return {**asdict(report), "ids": list(report.ids)}


def report_from_json(value: Mapping[str, Any]) -> AddReport:
    """The report that `report_to_json` wrote."""
    counts = {name: int(value.get(name) or 0) for name in ("added", "updated", "unchanged", "embedded")}
    return AddReport(**counts, ids=tuple(str(id) for id in value.get("ids") or ()))


def stats_to_json(stats: Stats) -> dict[str, Any]:
    """The statistics of a store."""
    times = {name: stamp(time) if (time := getattr(stats, name)) else None for name in ("oldest", "newest")}
    return {**asdict(stats), **times, "tags": dict(stats.tags), "kinds": dict(stats.kinds), "problems": list(stats.problems)}


def stats_from_json(value: Mapping[str, Any], adapter: str, where: str) -> Stats:
    """The statistics that `stats_to_json` wrote, of a store that is reached through another one."""
    found: dict[str, Any] = {name: int(value.get(name) or 0) for name in ("records", "sessions", "vectors")}
    found |= {name: {str(key): int(number) for key, number in (value.get(name) or {}).items()} for name in ("tags", "kinds")}
    found |= {name: moment(value.get(name)) for name in ("oldest", "newest")}
    size = value.get("bytes")
    problems = tuple(str(problem) for problem in value.get("problems") or ())
    return Stats(adapter, where, **found, bytes=size if isinstance(size, int) else None, problems=problems)


def moment(value: Any) -> datetime | None:
    """A moment of the one written form; None for nothing."""
    return datetime.fromisoformat(value) if isinstance(value, str) and value else None
