"""The memory document: what `memory.json` holds, as a frozen value, and the two spellings of it that are read.

`parse` reads the reference's forms (`user` with {summary, updatedAt}, or `userContext` with plain strings) and `to_json` writes one of
them, in one order. What Holdfast does not know, at any level, is kept and written again.

Facts are found by words in an index that lives in memory and is made from a document when somebody searches: there is no file to forget.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from holdfast.errors import Damaged, StorageError
from holdfast.memory.facts import SLOTS, Fact, Origin, SourceKind
from holdfast.search.fulltext import Document as Page
from holdfast.search.fulltext import FullTextIndex, Shape
from holdfast.validation import problems_of

SCHEMA = 1
_VERSION = "1.0"
_USER, _HISTORY = SLOTS[:3], SLOTS[3:]
_PARTS = {"user": "user_extra", "history": "history_extra"}
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}")


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
        """One of the six summaries, or as `user/NAME` one of another name; an empty one if nothing was ever written there."""
        part, _, other = name.partition("/")
        return self._others(part).get(other, Summary()) if other else self.slots.get(name, Summary())

    def summaries(self) -> dict[str, Summary]:
        """All summaries that say something, by the names that `slot` takes: the six, then those of other names (M2)."""
        others = {f"{part}/{name}": summary for part in _PARTS for name, summary in self._others(part).items()}
        held = {**{name: self.slots[name] for name in SLOTS if name in self.slots}, **others}
        return {name: summary for name, summary in held.items() if summary.text}

    def _others(self, part: str) -> dict[str, Summary]:
        """The members of `user` or `history` that are summaries, and none of the six: the reference has more of them in later versions."""
        members: Mapping[str, Any] = getattr(self, _PARTS[part]) if part in _PARTS else {}
        return {name: summary_from(member) for name, member in members.items() if _is_summary(name, member)}

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        return not (self.facts or self.blocks or self.summaries())

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
        """With another text in a summary, by the names that `slot` takes."""
        return self.with_summary(name, replace(self.slot(name), text=text, updated=updated))

    def with_summary(self, name: str, summary: Summary) -> Document:
        """With this summary, by the names that `slot` takes."""
        part, _, other = name.partition("/")
        if not other:
            return replace(self, slots={**self.slots, name: summary})
        members: dict[str, Any] = {_PARTS[part]: {**getattr(self, _PARTS[part]), other: summary_to_json(summary)}}
        return replace(self, **members)

    def joined(self, given: Document) -> Document:
        """With whatever of another document is not there yet: facts by their words, summaries where there is none, unknown members."""
        said = {fact.content.casefold() for fact in self.facts}
        facts = {fact.id: fact for fact in self.facts}
        for fact in given.facts:
            if fact.content.casefold() not in said:
                id = f"{fact.id}-imported" if fact.id in facts else fact.id
                facts[id] = replace(fact, id=id)
        document = replace(
            self,
            facts=tuple(facts.values()),
            slots={**given.slots, **self.slots},
            blocks={**given.blocks, **self.blocks},
            extra={**given.extra, **self.extra},
            user_extra={**given.user_extra, **self.user_extra},
            history_extra={**given.history_extra, **self.history_extra},
        )
        for name, summary in given.summaries().items():
            if not self.slot(name).text:
                document = document.with_summary(name, summary)
        return document

    def with_block(self, name: str, block: BlockText | None) -> Document:
        """With another text in a block, or (None) without it."""
        blocks = {key: value for key, value in self.blocks.items() if key != name}
        return replace(self, blocks=blocks if block is None else {**blocks, name: block})


def parse(value: Any, *, path: str | None = None) -> Document:
    """The document in a JSON value. Damaged, naming the member, if it is not one; StorageError if a newer version wrote it."""
    schema = value.get("schema", SCHEMA) if isinstance(value, dict) else SCHEMA
    if isinstance(schema, int) and schema > SCHEMA:
        raise StorageError(
            f"{path or 'the memory document'} has schema {schema}, and this version knows up to {SCHEMA}.",
            path=path,
            operation="open",
            hint="It was written by a newer version: use that one.",
        )
    try:
        form = _DocumentForm.model_validate(value)
    except ValidationError as error:
        wrong = "; ".join(str(problem) if problem.place else f"it {problem.what}" for problem in problems_of(error))
        hint = "Mend it in an editor, or set it aside and start anew."
        raise Damaged(f"{path or 'the document'} is not a memory document: {wrong}.", path=path, hint=hint) from error
    return form.document()


def to_json(document: Document) -> dict[str, Any]:
    """The document in the one form that is written: the reference's, with our revision and schema number."""
    blocks = {name: block_to_json(block) for name, block in document.blocks.items()}
    return {
        "version": document.version,
        "schema": SCHEMA,
        "revision": document.revision,
        "lastUpdated": document.updated,
        "user": {**{name: summary_to_json(document.slot(name)) for name in _USER}, **document.user_extra},
        "history": {**{name: summary_to_json(document.slot(name)) for name in _HISTORY}, **document.history_extra},
        **({"blocks": blocks} if blocks else {}),
        "facts": [fact_to_json(fact) for fact in document.facts],
        **document.extra,
    }


def fact_from(value: Mapping[str, Any]) -> Fact:
    """A fact in any of its spellings. What is missing gets a default; what is not known is in `extra`."""
    return _FactForm.model_validate(value).fact()


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


def _origin_to_json(origin: Origin) -> dict[str, Any]:
    if origin == Origin():
        return {}
    value = {"kind": origin.kind, "thread": origin.thread, "messages": list(origin.messages), "quote": origin.quote}
    return {key: member for key, member in value.items() if member}


def summary_from(value: Any) -> Summary:
    """A summary as it is written, or as a plain text."""
    return _SummaryForm.model_validate(value).made()


def summary_to_json(summary: Summary) -> dict[str, Any]:
    """A summary as it is written."""
    return {"summary": summary.text, "updatedAt": summary.updated, **summary.extra}


def _is_summary(name: str, member: Any) -> bool:
    """Whether an unknown member of `user` or `history` is a summary that may be shown under its name."""
    return bool(_NAME.fullmatch(name)) and isinstance(member, Mapping) and isinstance(member.get("summary"), str)


def is_summary_name(name: Any) -> bool:
    """Whether `Document.slot` takes this name."""
    part, _, other = name.partition("/") if isinstance(name, str) else ("", "", "")
    return name in SLOTS or (part in _PARTS and _NAME.fullmatch(other) is not None)


def summary_label(name: str) -> str:
    """How a summary of another name than the six is called where it is shown.

    >>> summary_label("user/cognitiveStyle"), summary_label("history/last_week")
    ('Cognitive Style', 'Last Week')
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.rpartition("/")[2]).split("_")
    return " ".join(word[:1].upper() + word[1:] for word in words if word)


def block_from(value: Any) -> BlockText:
    """A block as it is written, or as a plain text."""
    return _BlockForm.model_validate(value).made()


def block_to_json(block: BlockText) -> dict[str, Any]:
    """A block as it is written."""
    return {"text": block.text, "updatedAt": block.updated, **block.extra}


# What is read: lenient in what a member says, strict in what the document is made of


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


def _at_least(least: int) -> BeforeValidator:
    return BeforeValidator(lambda value: value if isinstance(value, int) and not isinstance(value, bool) and value > least else least)


_Text = Annotated[str, BeforeValidator(_text)]
_Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: tuple(map(str, value)) if isinstance(value, list) else ())]
_Members = Annotated[dict[str, Any], BeforeValidator(lambda value: {} if value is None else value)]


class _Form(BaseModel):
    model_config = ConfigDict(extra="allow", alias_generator=to_camel)

    @property
    def rest(self) -> dict[str, Any]:
        """The members that Holdfast does not know."""
        return dict(self.model_extra or {})


class _SummaryForm(_Form):
    summary: _Text = ""
    updated_at: _Text = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"summary": value}

    def made(self) -> Summary:
        return Summary(self.summary, self.updated_at, self.rest)


class _BlockForm(_Form):
    text: _Text = ""
    updated_at: _Text = ""

    @model_validator(mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        return value if isinstance(value, dict) else {"text": value}

    def made(self) -> BlockText:
        return BlockText(self.text, self.updated_at, self.rest)


class _OriginForm(_Form):
    kind: Annotated[SourceKind, BeforeValidator(lambda value: value if value in get_args(SourceKind) else "unknown")] = "unknown"
    thread: _Text = ""
    messages: _Texts = ()
    quote: _Text = ""


class _FactForm(_Form):
    id: _Text = ""
    content: _Text = ""
    category: _Text = ""
    confidence: Annotated[float, BeforeValidator(_share)] = 0.5
    created_at: _Text = ""
    source: Any = ""
    origin: Annotated[_OriginForm, BeforeValidator(lambda value: value if isinstance(value, dict) else {})] = _OriginForm()
    status: Any = None
    confirmation_count: Annotated[int, _at_least(1)] = 1
    last_confirmed_at: _Text = ""
    valid_from: _Text = ""
    replaces: _Texts = ()

    def fact(self) -> Fact:
        strange: dict[str, Any] = {} if self.status in (None, "active", "provisional") else {"status": self.status}
        strange |= {"source": self.source} if isinstance(self.source, dict) else {}  # written again as it was
        origin = self.origin
        return Fact(
            id=self.id or f"fact_{blake2b(self.content.encode('utf-8', 'replace'), digest_size=4).hexdigest()}",
            content=self.content,
            category=self.category or "context",
            confidence=self.confidence,
            created=self.created_at,
            source=source_of(self.source),
            origin=Origin(origin.kind, origin.thread or None, origin.messages, origin.quote or None),
            status="provisional" if self.status == "provisional" else "active",
            confirmations=self.confirmation_count,
            confirmed=self.last_confirmed_at,
            valid_from=self.valid_from,
            replaces=self.replaces,
            extra={**self.rest, **strange},
        )


class _DocumentForm(_Form):
    version: _Text = ""
    revision: Annotated[int, _at_least(0)] = 0
    last_updated: _Text = ""
    user: _Members = {}
    user_context: _Members = {}
    history: _Members = {}
    blocks: Annotated[dict[str, _BlockForm], BeforeValidator(lambda value: {} if value is None else value)] = {}
    facts: Annotated[list[Any], BeforeValidator(lambda value: [] if value is None else value)] = []

    def document(self) -> Document:
        user = {**self.user_context, **{name: member for name, member in self.user.items() if _speaks(name, member)}}
        for name, member in self.user.items():
            user.setdefault(name, member)
        rest = {name: member for name, member in self.rest.items() if name != "schema"}
        strange = [entry for entry in self.facts if not _is_fact(entry)]
        if strange:
            rest["strangeFacts"] = [*rest.get("strangeFacts", ()), *strange]
        parts = ((user, _USER), (self.history, _HISTORY))
        return Document(
            facts=tuple(_facts(self.facts)),
            slots={name: summary_from(part[name]) for part, names in parts for name in names if name in part},
            blocks={name: block.made() for name, block in self.blocks.items()},
            revision=self.revision,
            updated=self.last_updated,
            version=self.version or _VERSION,
            extra=rest,
            user_extra={key: member for key, member in user.items() if key not in _USER},
            history_extra={key: member for key, member in self.history.items() if key not in _HISTORY},
        )


def _speaks(name: str, member: Any) -> bool:
    """Whether a member says something: an empty one must not hide what the other spelling has."""
    return name not in SLOTS or _SummaryForm.model_validate(member).summary != ""


def source_of(value: Any) -> str:
    """Who said a fact, as one word: newer forms of the reference have the thread, or how it came about (`manual`: somebody typed it)."""
    if isinstance(value, dict):
        value = value.get("threadId") or value.get("type")
    return _text(value) or "unknown"


def _is_fact(entry: Any) -> bool:
    """Whether an entry of `facts` says something in words. What does not is kept beside them."""
    return isinstance(entry, str) or (isinstance(entry, dict) and not isinstance(entry.get("content"), dict | list))


def _facts(entries: Iterable[Any]) -> Iterator[Fact]:
    """The facts among the entries, each with an id of its own."""
    taken: set[str] = set()
    for entry in entries:
        if not _is_fact(entry):
            continue  # kept as `strangeFacts`: it says nothing that could be shown
        fact = fact_from({"content": entry} if isinstance(entry, str) else entry)
        id, number = fact.id, 2
        while id in taken:
            id, number = f"{fact.id}-{number}", number + 1
        taken.add(id)
        yield fact if id == fact.id else replace(fact, id=id)


_SHAPE = Shape({"content": 1.0, "category": 0.3, "quote": 0.5})


@dataclass(frozen=True)
class Match:
    """A fact that was found, how well it fits, and the words that it shares with the question."""

    fact: Fact
    score: float
    words: tuple[str, ...]


class FactIndex:
    """The facts of one document, ready to be searched. Safe for many threads."""

    def __init__(self, document: Document) -> None:
        self._facts = {fact.id: fact for fact in document.facts}
        self._index = FullTextIndex(":memory:", _SHAPE)
        self._index.add(
            Page(fact.id, {"content": fact.content, "category": fact.category, "quote": fact.origin.quote or ""}, time=fact.created)
            for fact in document.facts
        )

    def search(self, question: str, top_k: int = 10, *, besides: Collection[str] = ()) -> list[Match]:
        """The facts that fit best, best first, without those whose ids are in `besides`. Any text is a question."""
        among = self._facts.keys() - set(besides) if besides else None
        found = self._index.search(question, top_k, among=among)
        return [Match(self._facts[one.id], one.score, tuple(one.matched)) for one in found]

    def close(self) -> None:
        """Let go of the index."""
        self._index.close()
