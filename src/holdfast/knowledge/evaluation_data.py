"""Conversations with questions whose answers are known, as a file of JSON lines (K6). Reading and checking only.

One conversation a line, the file as it is or packed with xz or gzip:

    {"id", "evidence_unit": "turn" | "session",
     "sessions": [{"id", "date", "turns": [{"id", "speaker", "text"}]}],
     "questions": [{"id", "text", "date", "type", "evidence": [ids of turns or sessions]}]}
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from holdfast.errors import InputError
from holdfast.knowledge.chatlogs import of_sessions
from holdfast.knowledge.importing import opened
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Record

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
        lines = enumerate(file, 1)
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
