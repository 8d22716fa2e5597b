"""The memory document: what `memory.json` holds, as a frozen value, and the two spellings of it that are read.

`parse` reads the reference's forms (`user` with {summary, updatedAt}, or `userContext` with plain strings) and `to_json` writes one of
them, in one order. What Holdfast does not know, at any level, is kept and written again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, get_args

from holdfast.errors import Damaged, StorageError
from holdfast.memory.facts import SLOTS, Fact, Origin, SourceKind

SCHEMA = 1
_VERSION = "1.0"
_USER, _HISTORY = SLOTS[:3], SLOTS[3:]
_TOP = ("version", "schema", "revision", "lastUpdated", "user", "userContext", "history", "blocks", "facts")
_FACT = frozenset(
    (
        *("id", "content", "category", "confidence", "createdAt", "source", "origin", "status"),
        *("confirmationCount", "lastConfirmedAt", "validFrom", "replaces"),
    )
)
_KINDS = frozenset(get_args(SourceKind))


@dataclass(frozen=True)
class Summary:
    """One of the six summaries, with the moment it was last written."""

    text: str = ""
    updated: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BlockText:
    """The text of an editable block as the agent left it. Its limit and its description are in the configuration."""

    text: str
    updated: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Document:
    """All that is known in one scope. Equal documents hold the same; `with_...` give changed copies."""

    facts: tuple[Fact, ...] = ()
    slots: Mapping[str, Summary] = field(default_factory=dict)
    blocks: Mapping[str, BlockText] = field(default_factory=dict)
    revision: int = 0
    updated: str = ""
    version: str = _VERSION
    extra: Mapping[str, Any] = field(default_factory=dict)
    user_extra: Mapping[str, Any] = field(default_factory=dict)
    history_extra: Mapping[str, Any] = field(default_factory=dict)

    def fact(self, id: str) -> Fact | None:
        """The fact of this id."""
        return next((fact for fact in self.facts if fact.id == id), None)

    def slot(self, name: str) -> Summary:
        """One of the six summaries; an empty one if nothing was ever written there."""
        return self.slots.get(name, Summary())

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        return not (self.facts or self.blocks or any(summary.text for summary in self.slots.values()))

    def with_fact(self, fact: Fact) -> Document:
        """With this fact in place of the one of the same id, or as the last one."""
        if self.fact(fact.id) is None:
            return replace(self, facts=(*self.facts, fact))
        return replace(self, facts=tuple(fact if held.id == fact.id else held for held in self.facts))

    def without(self, ids: Iterable[str]) -> Document:
        """Without the facts of these ids."""
        gone = set(ids)
        return replace(self, facts=tuple(fact for fact in self.facts if fact.id not in gone))

    def with_slot(self, name: str, text: str, updated: str) -> Document:
        """With another text in one of the six summaries."""
        return replace(self, slots={**self.slots, name: replace(self.slot(name), text=text, updated=updated)})

    def joined(self, given: Document) -> Document:
        """With whatever of another document is not there yet: facts by their words, summaries where there is none, unknown members."""
        document, said = self, {fact.content.casefold() for fact in self.facts}
        for fact in given.facts:
            if fact.content.casefold() not in said:
                taken = document.fact(fact.id) is not None
                document = document.with_fact(replace(fact, id=f"{fact.id}-imported") if taken else fact)
        slots = {**self.slots, **{name: summary for name, summary in given.slots.items() if not self.slot(name).text}}
        return replace(document, slots=slots, blocks={**given.blocks, **self.blocks}, extra={**given.extra, **self.extra})

    def with_block(self, name: str, block: BlockText | None) -> Document:
        """With another text in a block, or (None) without it."""
        blocks = {key: value for key, value in self.blocks.items() if key != name}
        return replace(self, blocks=blocks if block is None else {**blocks, name: block})


def parse(value: Any, *, path: str | None = None) -> Document:
    """The document in a JSON value. Damaged, naming the member, if it is not one; StorageError if a newer version wrote it."""
    if not isinstance(value, dict):
        raise _damaged("the outermost value is not an object", path)
    schema = value.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise StorageError(
            f"{path or 'the memory document'} has schema {schema}, and this version knows up to {SCHEMA}.",
            path=path,
            operation="open",
            hint="It was written by a newer version: use that one.",
        )
    for name, kind in (("user", dict), ("userContext", dict), ("history", dict), ("facts", list), ("blocks", dict)):
        if name in value and value[name] is not None and not isinstance(value[name], kind):
            raise _damaged(f"`{name}` is not {'a list' if kind is list else 'an object'}", path)
    user = {**(value.get("userContext") or {}), **_spoken(value.get("user") or {})}
    for name, member in (value.get("user") or {}).items():
        user.setdefault(name, member)
    history = value.get("history") or {}
    slots = {name: _summary(part[name]) for part, names in ((user, _USER), (history, _HISTORY)) for name in names if name in part}
    revision = value.get("revision")
    strange = [entry for entry in value.get("facts") or () if not isinstance(entry, dict | str)]
    extra = {key: member for key, member in value.items() if key not in _TOP}
    return Document(
        facts=tuple(_facts(value.get("facts") or ())),
        slots=slots,
        blocks={name: _block(block) for name, block in (value.get("blocks") or {}).items()},
        revision=revision if isinstance(revision, int) and not isinstance(revision, bool) and revision > 0 else 0,
        updated=_text(value.get("lastUpdated")),
        version=_text(value.get("version")) or _VERSION,
        extra={**extra, **({"strangeFacts": [*extra.get("strangeFacts", ()), *strange]} if strange else {})},
        user_extra={key: member for key, member in user.items() if key not in _USER},
        history_extra={key: member for key, member in history.items() if key not in _HISTORY},
    )


def to_json(document: Document) -> dict[str, Any]:
    """The document in the one form that is written: the reference's, with our revision and schema number."""
    blocks = {name: {"text": block.text, "updatedAt": block.updated, **block.extra} for name, block in document.blocks.items()}
    return {
        "version": document.version,
        "schema": SCHEMA,
        "revision": document.revision,
        "lastUpdated": document.updated,
        "user": {**{name: _summary_to_json(document.slot(name)) for name in _USER}, **document.user_extra},
        "history": {**{name: _summary_to_json(document.slot(name)) for name in _HISTORY}, **document.history_extra},
        **({"blocks": blocks} if blocks else {}),
        "facts": [fact_to_json(fact) for fact in document.facts],
        **document.extra,
    }


def fact_from(value: Mapping[str, Any]) -> Fact:
    """A fact in any of its spellings. What is missing gets a default; what is not known is in `extra`."""
    content = _text(value.get("content"))
    status = value.get("status")
    extra = {key: member for key, member in value.items() if key not in _FACT}
    if status not in (None, "active", "provisional"):
        extra["status"] = status
    count = value.get("confirmationCount")
    replaced = value.get("replaces")
    return Fact(
        id=_text(value.get("id")) or f"fact_{blake2b(content.encode('utf-8', 'replace'), digest_size=4).hexdigest()}",
        content=content,
        category=_text(value.get("category")) or "context",
        confidence=_share(value.get("confidence")),
        created=_text(value.get("createdAt")),
        source=_text(value.get("source")) or "unknown",
        origin=_origin(value.get("origin")),
        status="provisional" if status == "provisional" else "active",
        confirmations=count if isinstance(count, int) and count >= 1 else 1,
        confirmed=_text(value.get("lastConfirmedAt")),
        valid_from=_text(value.get("validFrom")),
        replaces=tuple(str(id) for id in replaced) if isinstance(replaced, list) else (),
        extra=extra,
    )


def fact_to_json(fact: Fact) -> dict[str, Any]:
    """A fact as it is written. What says nothing is left out, so that a fact of the reference stays what it was."""
    said: dict[str, Any] = {
        "origin": _origin_to_json(fact.origin),
        "status": fact.status if fact.status != "active" else None,
        "confirmationCount": fact.confirmations if fact.confirmations != 1 else None,
        "lastConfirmedAt": fact.confirmed,
        "validFrom": fact.valid_from,
        "replaces": list(fact.replaces),
    }
    return {
        "id": fact.id,
        "content": fact.content,
        "category": fact.category,
        "confidence": fact.confidence,
        "createdAt": fact.created,
        "source": fact.source,
        **{key: member for key, member in said.items() if member},
        **fact.extra,
    }


def _facts(entries: Iterable[Any]) -> Iterator[Fact]:
    taken: set[str] = set()
    for entry in entries:
        if not isinstance(entry, dict | str):
            continue  # kept as `strangeFacts`: it says nothing that could be shown
        fact = fact_from({"content": entry} if isinstance(entry, str) else entry)
        id, number = fact.id, 2
        while id in taken:
            id, number = f"{fact.id}-{number}", number + 1
        taken.add(id)
        yield fact if id == fact.id else replace(fact, id=id)


def _origin(value: Any) -> Origin:
    if not isinstance(value, dict):
        return Origin()
    messages = value.get("messages")
    return Origin(
        kind=value["kind"] if value.get("kind") in _KINDS else "unknown",
        thread=_text(value.get("thread")) or None,
        messages=tuple(str(id) for id in messages) if isinstance(messages, list) else (),
        quote=_text(value.get("quote")) or None,
    )


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    if origin == Origin():
        return {}
    value = {"kind": origin.kind, "thread": origin.thread, "messages": list(origin.messages), "quote": origin.quote}
    return {key: member for key, member in value.items() if member}


def _spoken(part: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say something: an empty one must not hide what the other spelling has."""
    return {name: member for name, member in part.items() if not (name in SLOTS and not _summary(member).text)}


def _summary(value: Any) -> Summary:
    if isinstance(value, dict):
        extra = {key: member for key, member in value.items() if key not in ("summary", "updatedAt")}
        return Summary(_text(value.get("summary")), _text(value.get("updatedAt")), extra)
    return Summary(_text(value))


def _summary_to_json(summary: Summary) -> dict[str, Any]:
    return {"summary": summary.text, "updatedAt": summary.updated, **summary.extra}


def _block(value: Any) -> BlockText:
    if isinstance(value, dict):
        extra = {key: member for key, member in value.items() if key not in ("text", "updatedAt")}
        return BlockText(_text(value.get("text")), _text(value.get("updatedAt")), extra)
    return BlockText(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")  # half a surrogate pair, which JSON can spell, has no form in UTF-8
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _share(value: Any) -> float:
    try:
        number = 0.5 if value is None or isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return 0.5
    return 0.5 if math.isnan(number) else min(max(number, 0.0), 1.0)


def _damaged(what: str, path: str | None) -> Damaged:
    return Damaged(
        f"{path or 'the document'} is not a memory document: {what}.",
        path=path,
        hint="Mend it in an editor, or set it aside and start anew.",
    )
