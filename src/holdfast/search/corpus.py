"""All segments of a store seen as one: which records belong together, who stands beside whom, and how long everything is.

A unit is what is found as one thing: a turn, a note, or a round (a person's turn and what an assistant answered). Units stand in reading
order; only turns of a conversation between people have neighbours, because a round is complete by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.search.pieces import ASKS
from holdfast.search.plain_ranking import DAY, FULL, WINDOW
from holdfast.search.questions import ANSWER, average_size, bare_name, common_languages, date_part
from holdfast.search.segments import NOTHING, Segment


@dataclass(frozen=True, slots=True, eq=False)
class Corpus:
    """Rows are records in the order of the segments; units are numbered in reading order."""

    segments: Sequence[Segment]
    starts: Sequence[int]
    """The row at which each segment begins."""
    numbers: NDArray[np.int64]
    meaning: NDArray[np.int64]
    session: NDArray[np.int32]
    sessions: Sequence[str]
    speakers: Sequence[str]
    moment: NDArray[np.int64]
    weight: NDArray[np.float32]
    """What a word of each row counts: less in an assistant's answer."""
    spoken: NDArray[np.bool_]
    """The rows that are compared by meaning: all but an assistant's answers."""
    unit_of: NDArray[np.int64]
    order: NDArray[np.int64]
    """The rows in reading order; those of unit u are `order[unit_starts[u]:unit_starts[u + 1]]`."""
    unit_starts: NDArray[np.int64]
    line: NDArray[np.int64]
    """Units with the same line are neighbours when they follow each other."""
    share: NDArray[np.float32]
    """How much of its words a unit lends to its neighbours."""
    size: NDArray[np.float32]
    """How many terms each row has."""
    answer: NDArray[np.bool_]
    """The rows that an assistant said."""
    length: NDArray[np.float32]
    """How many terms a record of each unit has on average, with the neighbours that lend it words."""
    day: NDArray[np.int64]
    """The day of each unit since 1970, -1 where it is not known."""
    row_speaker: NDArray[np.int32]
    speaker: NDArray[np.int32]
    """Who said the first record of each unit, and each row above; -1 where that is not known."""
    piece_starts: NDArray[np.int64]
    words: NDArray[np.uint16]
    """How many words with a vector each piece has; the pieces of row r are `piece_starts[r]` to `piece_starts[r + 1]`."""
    _cache: dict[str | int, Any] = field(default_factory=dict)

    @property
    def units(self) -> int:
        return len(self.line)

    @classmethod
    def of(cls, segments: Sequence[Segment]) -> Corpus:
        """The corpus of these segments."""
        sessions, session = _named(segments, "session")
        speakers, speaker = _named(segments, "speaker")
        column = {name: _column(segments, name) for name in ("numbers", "position", "role", "moment", "size", "meaning")}
        placed = (session >= 0) & (column["position"] != NOTHING)
        order = np.lexsort((column["numbers"], column["moment"], column["position"], np.where(placed, session, len(sessions))))
        answered = np.bincount(session[placed & (column["role"] == 2)], minlength=len(sessions) + 1) > 0
        first, talk = _firsts(order, session, placed, answered, column["role"])
        number = np.cumsum(first) - 1
        unit_of = np.empty(len(order), np.int64)
        unit_of[order] = number
        heads = order[first]
        line = np.where(talk[first], session[heads].astype(np.int64), -1 - np.arange(len(heads)))
        answer = (column["role"] == 2) & placed & ~_is_head(heads, len(order))
        weight = np.where(answer, ANSWER, 1.0).astype(np.float32)
        size = np.bincount(unit_of, column["size"] * weight, minlength=len(heads)).astype(np.float32)
        mass = np.bincount(unit_of, weight, minlength=len(heads)).astype(np.float32)
        share = np.minimum(1.0, FULL / np.maximum(size, 1.0)).astype(np.float32)
        return cls(
            segments,
            np.concatenate([[0], np.cumsum([len(one) for one in segments])]).tolist(),
            column["numbers"],
            column["meaning"],
            session,
            sessions,
            speakers,
            column["moment"],
            weight,
            ~answer,
            unit_of,
            order,
            np.append(np.flatnonzero(first), len(order)),
            line,
            share,
            column["size"],
            column["role"] == 2,
            (size + _borrowed(size * share, line)) / (mass + _borrowed(share, line)),
            np.where(column["moment"][heads] == NOTHING, -1, column["moment"][heads] // DAY),
            speaker,
            speaker[heads],
            np.concatenate([[0], np.cumsum(np.concatenate([np.diff(one["piece_starts"]) for one in segments]))])
            if segments
            else np.zeros(1, np.int64),
            _column(segments, "words"),
        )

    @property
    def with_meaning(self) -> NDArray[np.bool_]:
        """The rows that have vectors which count."""
        if "rows" not in self._cache:
            self._cache["rows"] = self.spoken & (np.diff(self.piece_starts) > 0)
        found: NDArray[np.bool_] = self._cache["rows"]
        return found

    @property
    def meant(self) -> NDArray[np.bool_]:
        """The units of which some row has vectors which count."""
        if "units" not in self._cache:
            self._cache["units"] = np.bincount(self.unit_of[self.with_meaning], minlength=self.units) > 0
        found: NDArray[np.bool_] = self._cache["units"]
        return found

    @property
    def asking(self) -> NDArray[np.bool_]:
        """The units that end with a question."""
        if "asking" not in self._cache:
            found = np.zeros(self.units, np.bool_)
            found[self.unit_of[self.postings(ASKS)[0]]] = True
            self._cache["asking"] = found
        asking: NDArray[np.bool_] = self._cache["asking"]
        return asking

    def follows(self, distance: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each pair of units at this distance: whether they are neighbours and the later one, or the earlier, has vectors."""
        if distance not in self._cache:
            same = self.line[distance:] == self.line[:-distance]
            self._cache[distance] = (same & self.meant[distance:], same & self.meant[:-distance])
        found: tuple[NDArray[np.bool_], NDArray[np.bool_]] = self._cache[distance]
        return found

    def rows_of(self, units: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The rows of these units, and for each of them the place of its unit among those given."""
        sizes = self.unit_starts[units + 1] - self.unit_starts[units]
        places = np.repeat(np.arange(len(units)), sizes)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return self.order[self.unit_starts[units][places] + offsets], places

    def rows_with(self, numbers: Collection[int]) -> NDArray[np.bool_]:
        """Which rows have one of these numbers."""
        return np.isin(self.numbers, np.fromiter(numbers, dtype=np.int64, count=len(numbers)))

    def postings(self, term: str) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The rows that hold a term, and what it counts there."""
        rows: list[NDArray[Any]] = []
        counts: list[NDArray[Any]] = []
        for segment, start in zip(self.segments, self.starts, strict=False):
            found = segment.postings(term)
            if found is not None:
                rows.append(found[0] + start)
                counts.append(found[1] * self.weight[rows[-1]])
        if not rows:
            return np.zeros(0, np.int64), np.zeros(0, np.float32)
        return np.concatenate(rows), np.concatenate(counts)

    def pieces_of(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For these rows: to which of them each piece belongs, and how many words it has."""
        counts = self.piece_starts[rows + 1] - self.piece_starts[rows]
        places = np.repeat(np.arange(len(rows)), counts)
        offsets = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
        return places, self.words[self.piece_starts[rows][places] + offsets].astype(np.int64)

    def tokens_of(
        self, rows: NDArray[np.int64], keys: NDArray[np.int64], size: int, kept: Callable[[Sequence[int]], Mapping[int, bytes]]
    ) -> NDArray[np.int8]:
        """The vectors of the words of these rows, of `size` numbers each. `kept` reads them by the keys of the rows.

        Where they are not as long as they should be there is nothing but zeros.
        """
        places, words = self.pieces_of(rows)
        expected = (np.bincount(places, words, minlength=len(rows)) * size).astype(np.int64).tolist()
        wanted = keys[rows].tolist()
        found = kept(sorted(set(wanted)))
        parts = [found.get(key, b"") for key in wanted]
        if list(map(len, parts)) != expected:
            parts = [blob if len(blob) == length else bytes(length) for blob, length in zip(parts, expected, strict=True)]
        return np.frombuffer(b"".join(parts), dtype=np.int8).reshape(-1, size)

    def dated(self, term: str) -> NDArray[np.bool_] | None:
        """The units whose day is written with this term: the name of a month, a year, a day of the month. None if it is none."""
        part, value = date_part(term)
        if not part:
            return None
        if "year" not in self._cache:
            days = np.where(self.day < 0, 0, self.day).astype("datetime64[D]")
            months = days.astype("datetime64[M]")
            self._cache["day"] = (days - months).astype(int) + 1
            self._cache["month"] = months.astype(int) % 12 + 1
            self._cache["year"] = months.astype("datetime64[Y]").astype(int) + 1970
        found = (self._cache[part] == value) & (self.day >= 0)
        return found if found.any() else None

    def terms_beginning_with(self, head: str) -> list[str]:
        """The terms of all segments that begin so."""
        found: set[str] = set()
        for segment in self.segments:
            at = bisect_left(segment.terms, head)
            while at < len(segment.terms) and segment.terms[at].startswith(head):
                found.add(segment.terms[at])
                at += 1
        return sorted(found)

    def languages(self) -> list[str]:
        """The languages in which the records are written."""
        total: dict[str, int] = {}
        for segment in self.segments:
            for code, times in segment.languages.items():
                total[code] = total.get(code, 0) + times
        return common_languages(total)

    def speaker_codes(self) -> dict[str, list[int]]:
        """The numbers of all speakers by their bare names."""
        if "names" not in self._cache:
            found: dict[str, list[int]] = {}
            for code, name in enumerate(self.speakers):
                found.setdefault(bare_name(name), []).append(code)
            self._cache["names"] = found
        codes: dict[str, list[int]] = self._cache["names"]
        return codes


class CorpusStatistics:
    """The statistics of all records of a corpus, or of the allowed rows (`questions.Statistics`)."""

    def __init__(self, corpus: Corpus, allowed: NDArray[np.bool_] | None = None) -> None:
        self._corpus = corpus
        self._allowed = allowed
        answer = corpus.answer if allowed is None else corpus.answer[allowed]
        size = corpus.size if allowed is None else corpus.size[allowed]
        self.records = len(answer)
        self.spoken = self.records - int(answer.sum())
        sums = (float(size[~answer].sum(dtype=np.float64)), float(size[answer].sum(dtype=np.float64)))
        self.average = average_size(sums[0], self.spoken, sums[1], self.records - self.spoken)
        self.languages = corpus.languages()

    def held(self, wanted: Collection[str]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for term in wanted:
            if any(term in segment.term_numbers for segment in self._corpus.segments):
                rows, _ = self._corpus.postings(term)
                rows = rows if self._allowed is None else rows[self._allowed[rows]]
                found[term] = (len(rows), int((~self._corpus.answer[rows]).sum()))
        return found

    def beginning_with(self, head: str) -> list[str]:
        return self._corpus.terms_beginning_with(head)

    def speakers(self, names: Collection[str]) -> set[str]:
        known = self._corpus.speaker_codes()
        wanted = {name: known[name] for name in names if name in known}
        if not wanted:
            return set()
        said = ~self._corpus.answer if self._allowed is None else self._allowed & ~self._corpus.answer
        said_by = self._corpus.row_speaker[said]
        return {name for name, codes in wanted.items() if np.isin(said_by, codes).any()}


def beside(units: NDArray[np.int64], step: int, line: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The unit that stands `step` places after each of these (before, if negative), and whether it is a neighbour at all."""
    other = units + step
    inside = (other >= 0) & (other < len(line))
    other = np.where(inside, other, 0)
    return other, inside & (line[other] == line[units])


def _firsts(
    order: NDArray[np.int64], session: NDArray[np.int32], placed: NDArray[np.bool_], answered: NDArray[np.bool_], role: NDArray[np.int8]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """For the rows in reading order: whether a unit begins there, and whether it is part of a talk between people."""
    in_order = session[order]
    here = placed[order]
    begins = np.append(True, in_order[1:] != in_order[:-1])[: len(order)] | ~here
    rounds = here & answered[in_order]
    return begins | ~rounds | (role[order] != 2), here & ~rounds


def _is_head(heads: NDArray[np.int64], count: int) -> NDArray[np.bool_]:
    found = np.zeros(count, np.bool_)
    found[heads] = True
    return found


def _borrowed(lent: NDArray[np.float32], line: NDArray[np.int64]) -> NDArray[np.float32]:
    total = np.zeros_like(lent)
    for step, part in enumerate(WINDOW, 1):
        same = line[step:] == line[:-step]
        total[:-step][same] += part * lent[step:][same]
        total[step:][same] += part * lent[:-step][same]
    return total


def _column(segments: Sequence[Segment], name: str) -> NDArray[Any]:
    return np.concatenate([one[name] for one in segments]) if segments else np.zeros(0, np.int64)


def _named(segments: Iterable[Segment], name: str) -> tuple[list[str], NDArray[np.int32]]:
    """The names of all segments, each once, and the number of its name for every row."""
    numbers: dict[str, int] = {}
    codes = []
    for one in segments:
        known = one.sessions if name == "session" else one.speakers
        renumbered = np.array([*(numbers.setdefault(each, len(numbers)) for each in known), -1], np.int32)
        codes.append(renumbered[one[name]])
    return list(numbers), np.concatenate(codes) if codes else np.zeros(0, np.int32)
