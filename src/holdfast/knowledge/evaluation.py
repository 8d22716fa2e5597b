"""How well a store finds what is known to be there: recall on a user's own data, without any model (K6).

Every conversation goes into a store of its own; every question is asked of that store as anybody would ask it, on the day on which it was
asked. For evidence in turns R@k is the share of a question's evidence among the first k units, in percent; for evidence in sessions any@k
and all@k say whether some or all of it is among the first k sessions, and ndcg@10 how high it stands, as fractions. kept@n is the
percentage of the evidence that n tokens of packed text hold. The same can be asked in harder ways: of one store that holds all
conversations, and with typing errors in every question. `without` are the figures with each ingredient of the ranking left out.
A file has one conversation a line, as it is or packed with xz or gzip:

    {"id", "evidence_unit": "turn" | "session",
     "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}],
     "questions": [{"id", "text", "date", "type", "evidence": [ids of turns or sessions]}]}
"""

from __future__ import annotations

import json
import lzma
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from math import ceil, log2
from os import PathLike
from pathlib import Path
from random import Random
from typing import Any, Literal

from holdfast.errors import InputError
from holdfast.knowledge.import_export import lines_of, opened
from holdfast.knowledge.record_forms import of_sessions
from holdfast.knowledge.records import Hit, Record, read_moment
from holdfast.knowledge.store import KnowledgeStore
from holdfast.search.questions import Weights, ranked_with
from holdfast.text.words import tokenise

EvidenceUnit = Literal["turn", "session"]


@dataclass(frozen=True, slots=True)
class Question:
    """A question, when it is asked, and the ids of what answers it. `missing` are ids of evidence that the conversation does not have."""

    id: str
    text: str
    type: str
    now: datetime | None
    evidence: frozenset[str]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TestConversation:
    """A conversation as records, with its questions. `named` says which turn or session of the data each record is."""

    __test__ = False  # not a test, though its name begins like one

    id: str
    unit: EvidenceUnit
    records: tuple[Record, ...]
    named: Mapping[str, str]
    questions: tuple[Question, ...]
    line: int


def read_conversations(path: str | PathLike[str]) -> Iterator[TestConversation]:
    """The conversations of a file, one after the other. InputError, with file and line, for one that is not of this form."""
    place = Path(path)
    found = False
    with opened(place) as file:
        lines = enumerate(lines_of(file), 1)
        while True:
            try:
                number, line = next(lines)
            except StopIteration:
                break
            except (OSError, EOFError, lzma.LZMAError) as error:
                raise InputError(f"{place} cannot be read to its end: {error}.", hint="Is it packed as its name says?") from error
            if line.strip():
                found = True
                yield _conversation(line, f"{place}:{number}", number)
    if not found:
        raise InputError(f"{place} is empty.", hint="It should have one conversation a line, as JSON.")


def _conversation(line: bytes, where: str, number: int) -> TestConversation:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: it is not JSON: {error}.", hint="Each line is one conversation.") from error
    if not isinstance(value, Mapping) or not isinstance(value.get("sessions"), list) or not isinstance(value.get("questions"), list):
        raise InputError(f"{where}: it is not an object with lists `sessions` and `questions`.")
    unit = value.get("evidence_unit", "turn")
    if unit not in ("turn", "session"):
        raise InputError(f"{where}: evidence_unit is {unit!r}.", hint="Use turn or session.")
    try:
        records = of_sessions(value, f"conversation-{number}")
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
    named = _names(value, records, unit)
    known = _all_names(value, unit)
    questions = tuple(_question(one, where, place, known) for place, one in enumerate(value["questions"], 1))
    return TestConversation(str(value.get("id") or number), unit, tuple(records), named, questions, number)


def _names(value: Mapping[str, Any], records: list[Record], unit: EvidenceUnit) -> dict[str, str]:
    """The turn or session of the data that each record is, by the id of the record: both come in the same order."""
    turns = [
        (str(session.get("id") or f"session-{number}"), str(turn["id"]) if turn.get("id") is not None else "")
        for number, session in enumerate(value["sessions"], 1)
        for turn in session["turns"]
        if turn["text"].strip()
    ]
    return {record.id: session if unit == "session" else turn for record, (session, turn) in zip(records, turns, strict=True)}


def _all_names(value: Mapping[str, Any], unit: EvidenceUnit) -> set[str]:
    sessions = value["sessions"]
    if unit == "session":
        return {str(session.get("id") or f"session-{number}") for number, session in enumerate(sessions, 1)}
    return {str(turn["id"]) for session in sessions for turn in session["turns"] if turn.get("id") is not None}


def _question(value: Any, where: str, place: int, known: set[str]) -> Question:
    if not isinstance(value, Mapping) or not isinstance(value.get("text"), str) or not value["text"].strip():
        raise InputError(f"{where}: question {place} is not an object with a text.")
    evidence = value.get("evidence")
    if evidence is None:
        evidence = []
    if not isinstance(evidence, list):
        raise InputError(f"{where}: the evidence of question {value.get('id', place)} is not a list of ids.")
    wanted = dict.fromkeys(str(id) for id in evidence)
    return Question(
        str(value.get("id") or place),
        value["text"],
        str(value.get("type") or "all"),
        read_moment(str(value.get("date") or "")),
        frozenset(wanted),
        tuple(id for id in wanted if id not in known),
    )


_TURN_CUTS = (5, 10, 25, 50)
_SESSION_CUTS = (5, 10)
_BUDGETS = (2000, 8000)
_DEEP_TURNS, _DEEP_SESSIONS, _DEEP_PACKED = 50, 200, 200  # how many units are asked for
_PROBLEMS = 20
INGREDIENTS = tuple(one.name for one in fields(Weights))
"""What the ranking consists of, and can be left out."""

Opener = Callable[[str], AbstractContextManager[KnowledgeStore]]
"""Opens an empty store for the conversation of this name, and clears it away at the end of its `with`."""


@dataclass(slots=True)
class Evaluation:
    """What was measured: one row of figures a question, by its type, and what it cost."""

    rows: list[tuple[str, dict[str, float]]] = field(default_factory=list)
    without: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    """The same without each ingredient."""
    milliseconds: list[float] = field(default_factory=list)
    conversations: int = 0
    records: int = 0
    ingestion: float = 0.0
    bytes: int | None = 0
    skipped: int = 0
    problems: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """The one JSON object that `holdfast eval recall` prints."""
        types = dict.fromkeys(kind for kind, _ in self.rows)
        return {
            "overall": _mean(row for _, row in self.rows),
            "by_type": {kind: _mean(row for other, row in self.rows if other == kind) for kind in sorted(types)},
            "cost": {
                "query_ms_p50": round(_percentile(self.milliseconds, 0.5), 2),
                "query_ms_p95": round(_percentile(self.milliseconds, 0.95), 2),
                "ingestion_seconds": round(self.ingestion, 3),
                "bytes": self.bytes,
                "conversations": self.conversations,
                "records": self.records,
            },
            **({"without": {name: _mean(rows) for name, rows in self.without.items()}} if self.without else {}),
            "skipped": self.skipped,
            "problems": self.problems[:_PROBLEMS],
        }


def evaluate(
    path: str | PathLike[str],
    opener: Opener,
    *,
    unscoped: bool = False,
    typos: int | None = None,
    ablate: bool = False,
    progress: Callable[[int, str], None] | None = None,
) -> Evaluation:
    """Measure a store on the conversations of a file. `progress` is told how many questions are done, and of which conversation.

    `unscoped` keeps all conversations in one store, `typos` is the seed of typing errors in every question, `ablate` asks once more
    without each ingredient. An id of evidence that the conversation does not have counts as not found, and is named in `problems`;
    questions without evidence are skipped and counted.
    """
    result = Evaluation(without={name: [] for name in INGREDIENTS} if ablate else {})
    conversations = read_conversations(path)
    for together in [_all_different(path, conversations)] if unscoped else ([one] for one in conversations):
        with opener(together[0].id) as store:
            began = time.perf_counter()
            for one in together:
                store.add(one.records)
            result.ingestion += time.perf_counter() - began
            for one in together:
                result.conversations += 1
                result.records += len(one.records)
                _ask_all(store, one, result, typos, progress)
            size = store.stats().bytes
        result.bytes = None if size is None or result.bytes is None else result.bytes + size
    return result


def _all_different(path: str | PathLike[str], conversations: Iterable[TestConversation]) -> list[TestConversation]:
    """All conversations, to be kept in one store: InputError if two have one name, for their records could not be told apart."""
    found: dict[str, TestConversation] = {}
    for one in conversations:
        if one.id in found:
            raise InputError(f"{path}:{one.line}: {one.id!r} is in line {found[one.id].line} already.", hint="Give each an id of its own.")
        found[one.id] = one
    return list(found.values())


def _ask_all(
    store: KnowledgeStore,
    conversation: TestConversation,
    result: Evaluation,
    typos: int | None,
    progress: Callable[[int, str], None] | None,
) -> None:
    newest = max((record.time for record in conversation.records if record.time is not None), default=None)
    for question in conversation.questions:
        if question.missing:
            ids = ", ".join(question.missing)
            result.problems.append(f"line {conversation.line}: question {question.id} names evidence that is not there: {ids}")
        if not question.evidence:
            result.skipped += 1
            continue
        text = question.text if typos is None else mistyped(question.text, Random(f"{typos}/{conversation.id}/{question.id}"))  # noqa: S311 - no secret
        asked = replace(question, text=text, now=question.now or newest)
        began = time.perf_counter()
        row = _ask(store, conversation, asked)
        result.milliseconds.append((time.perf_counter() - began) * 1000)
        row |= {f"kept@{budget}": _kept(store, conversation, asked, budget) for budget in _BUDGETS}
        result.rows.append((question.type, row))
        for name, rows in result.without.items():
            with ranked_with(replace(Weights(), **{name: 0.0})):
                rows.append(_ask(store, conversation, asked))
        if progress is not None:
            progress(len(result.rows), conversation.id)


def _ask(store: KnowledgeStore, conversation: TestConversation, question: Question) -> dict[str, float]:
    by_turn = conversation.unit == "turn"
    hits = store.search(question.text, top_k=_DEEP_TURNS if by_turn else _DEEP_SESSIONS, now=question.now)
    return (measure_turns if by_turn else measure_sessions)(_named(hits, conversation), question.evidence)


def _kept(store: KnowledgeStore, conversation: TestConversation, question: Question, budget: int) -> float:
    hits = store.search(question.text, top_k=_DEEP_PACKED, budget=budget, now=question.now)
    held = {id for unit in _named(hits, conversation) for id in unit}
    return 100 * len(question.evidence & held) / len(question.evidence)


def mistyped(text: str, random: Random) -> str:
    """The text as somebody in a hurry types it: one word in three, and at least one, has an error in it.

    Two letters changed places, one is missing, one is there twice, or one is another. Words of less than four letters are left as they
    are, and so is the first letter of each.
    """
    words = [word for word in tokenise(text) if word.end - word.start > 3 and text[word.start : word.end].isalpha()]
    for word in sorted(random.sample(words, -(-len(words) // 3)), key=lambda word: -word.start):
        at = random.randrange(word.start + 1, word.end - 1)
        one, two = text[at], text[at + 1]
        wrong = random.choice([two + one, two, one + one + two, random.choice("aeinorst") + two])
        text = text[:at] + wrong + text[at + 2 :]
    return text


def _named(hits: Sequence[Hit], conversation: TestConversation) -> list[list[str]]:
    """The turns or sessions of the data that each hit holds; what is of another conversation has the name of nothing in this one."""
    return [[conversation.named.get(record.id, f"\0{record.session}") for record in hit.records] for hit in hits]


def measure_turns(ranked: Sequence[Sequence[str]], evidence: frozenset[str]) -> dict[str, float]:
    """R@k in percent: the share of the evidence among the first k units.

    >>> measure_turns([["a", "b"], ["c"]], frozenset({"b", "x"}))["R@5"]
    50.0
    """
    return {f"R@{cut}": 100 * len(evidence & {id for unit in ranked[:cut] for id in unit}) / len(evidence) for cut in _TURN_CUTS}


def measure_sessions(ranked: Sequence[Sequence[str]], evidence: frozenset[str]) -> dict[str, float]:
    """any@k, all@k and ndcg@10 over sessions, each standing where its best unit stands.

    >>> measure_sessions([["b"], ["b"], ["a"]], frozenset({"a"}))["ndcg@10"] == 1 / log2(3)
    True
    """
    order = list(dict.fromkeys(id for unit in ranked for id in unit))
    row: dict[str, float] = {}
    for cut in _SESSION_CUTS:
        row[f"any@{cut}"] = float(not evidence.isdisjoint(order[:cut]))
    for cut in _SESSION_CUTS:
        row[f"all@{cut}"] = float(evidence <= set(order[:cut]))
    gained = sum(1 / log2(place + 1) for place, id in enumerate(order[:10], 1) if id in evidence)
    ideal = sum(1 / log2(place + 1) for place in range(1, min(len(evidence), 10) + 1))
    row["ndcg@10"] = gained / ideal
    return row


def _mean(rows: Iterable[Mapping[str, float]]) -> dict[str, Any]:
    """The averages of all figures, each over the questions that have it, and how many questions there are."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    number = 0
    for row in rows:
        number += 1
        for name, value in row.items():
            values[name].append(value)
    averages = {name: sum(found) / len(found) for name, found in values.items()}
    ordered = sorted(averages, key=lambda name: name.startswith("kept"))
    return {"questions": number, **{name: round(averages[name], 2 if name[0] in "Rk" else 4) for name in ordered}}


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[max(ceil(share * len(ordered)) - 1, 0)] if ordered else 0.0
