"""What an index keeps of records, as arrays: segments of them, and their vectors in a small form.

A segment is kept as one string of bytes and never changed. Many small ones become one larger one (`joined`); what is forgotten is left
out of a new one (`without`). Everything in it can be made again from the records.

Of a vector the leading directions are kept, one byte a number (`Compact`): what is lost is less than what another sentence of the same
meaning would change, and the store is an eighth of the size.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import StorageError
from holdfast.search.embedding import Embedder, Embedding, answer_of, embedded, label_of, not_finite, wrong_size
from holdfast.search.plain_ranking import Entry

Floats = NDArray[np.float32]
WORD_SCALE = 127 / 0.6
"""What 1 is in the bytes of a word's vector. Numbers above .6 are cut: in a vector of length 1 with a hundred numbers they are rare."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What is kept of a text's pieces.

    `vectors` is a scale for each piece, how many words each has, and then a byte for every number of their vectors; `tokens` is a byte for
    every number of the words' vectors.
    """

    vectors: bytes
    tokens: bytes


@dataclass(frozen=True, slots=True)
class Embedded:
    """What came of embedding some texts: the meanings that could be made, of how many pieces, and what was wrong with the others."""

    meanings: Mapping[bytes, Meaning] = field(default_factory=dict)
    pieces: int = 0
    fault: StorageError | None = None


_AT_A_TIME = 32  # pieces
_IN_ONE_THREAD = 200_000  # multiplications; OpenBLAS asks its threads from 262,144 on


class Compact:
    """Makes vectors small, and questions comparable with them. Directions come from the embedder, where it has some.

    Raises StorageError where the embedder cannot even say how large its vectors are.
    """

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        directions: Any = getattr(embedder, "directions", None)
        self._sentence: Floats | None
        self._token: Floats | None
        self._sentence, self._token = directions() if directions is not None else (None, None)
        self._size, name = answer_of(type(embedder).__qualname__, lambda: (embedder.dimension, embedder.name))
        self.dimension = self._size if self._sentence is None else self._sentence.shape[1]
        self.token_dimension = self._size if self._token is None else self._token.shape[1]
        self.name = f"{name}/{self.dimension}/{self.token_dimension}"
        """Changes when what is kept would not fit any more."""

    def embed(self, texts: Mapping[bytes, Sequence[str]]) -> dict[bytes, Meaning]:
        """The small form of these texts, given as their pieces, by the same keys. StorageError if it cannot be made of one of them."""
        made = self.embed_most(texts)
        if made.fault is not None:
            raise made.fault
        return dict(made.meanings)

    def embed_most(self, texts: Mapping[bytes, Sequence[str]]) -> Embedded:
        """The small form of these texts, given as their pieces, by the same keys, as far as the embedder answers.

        Some at a time, each time in the order of their length: what the model says of a piece is a hundred times its small form.
        """
        found: dict[bytes, Meaning] = {}
        fault: StorageError | None = None
        for group in _groups(texts):
            try:
                made, wrong = self._embed(group)
            except StorageError as error:  # nothing was answered that could be used: it is not asked for the others
                fault = error
                break
            found |= made
            fault = fault or wrong
        return Embedded(found, sum(len(texts[key]) for key in found), fault)

    def _embed(self, texts: Mapping[bytes, Sequence[str]]) -> tuple[dict[bytes, Meaning], StorageError | None]:
        pieces = [piece for one in texts.values() for piece in one]
        order = sorted(range(len(pieces)), key=lambda place: len(pieces[place]))
        made = dict(zip(order, embedded(self.embedder, [pieces[place] for place in order]), strict=True)) if pieces else {}
        groups: dict[bytes, list[Embedding]] = {}
        at = 0
        fault: StorageError | None = None
        for key, one in texts.items():
            own = [made[place] for place in range(at, at + len(one))]
            at += len(one)
            wrong = next((said for piece in own if (said := self.fault_in(piece)) is not None), None)
            fault = fault or wrong
            if wrong is None:
                groups[key] = own
        return dict(zip(groups, self._all_kept(list(groups.values())), strict=True)), fault

    def fault_in(self, piece: Embedding) -> StorageError | None:
        """What is wrong with a vector, which would make whatever is compared with it like nothing."""
        if np.shape(piece.vector) != (self._size,):
            return wrong_size(label_of(self.embedder), np.size(piece.vector), self._size)
        finite = np.isfinite(piece.vector).all() and (piece.tokens is None or np.isfinite(piece.tokens).all())
        return None if finite else not_finite(label_of(self.embedder))

    def question(self, text: str) -> Embedding:
        """What the embedder says of a question. StorageError when that is nothing that can be compared."""
        (found,) = embedded(self.embedder, [text], question=True)
        fault = self.fault_in(found)
        if fault is not None:
            raise fault
        return found

    def kept(self, pieces: Sequence[Embedding]) -> Meaning:
        """The small form of a text whose pieces were embedded."""
        return self._all_kept([pieces])[0]

    def _all_kept(self, texts: Sequence[Sequence[Embedding]]) -> list[Meaning]:
        """The small forms of several texts, with one product of matrices for all."""
        pieces = [piece for text in texts for piece in text]
        if not pieces:
            return [Meaning(b"", b"") for _ in texts]
        vectors = np.stack([piece.vector for piece in pieces])
        scales, numbers = _bytes(vectors if self._sentence is None else product(vectors, self._sentence))
        found, words = [], self._words_kept(pieces)
        at = 0
        for text in texts:
            rows = slice(at, at := at + len(text))
            whole = all(one is not None for one in words[rows])
            sizes = [len(one) if whole and one is not None else 0 for one in words[rows]]
            own = scales[rows].tobytes() + np.array(sizes, dtype="<u2").tobytes() + numbers[rows].tobytes()
            found.append(Meaning(own, b"".join(one.tobytes() for one in words[rows] if whole and one is not None)))
        return found

    def _words_kept(self, pieces: Sequence[Embedding]) -> list[NDArray[np.int8] | None]:
        """The bytes of each piece's words; None for a piece that came without them."""
        tokens = [piece.tokens for piece in pieces if piece.tokens is not None]
        if not tokens:
            return [None] * len(pieces)
        words = np.concatenate(tokens)
        small = _word_bytes(unit_length(words if self._token is None else product(words, self._token)))
        parts = iter(np.split(small, np.cumsum([len(one) for one in tokens])[:-1]))
        return [next(parts) if piece.tokens is not None else None for piece in pieces]

    def hash_of(self, pieces: Sequence[str]) -> bytes:
        """The name under which the meaning of a text with these pieces is kept: computed once for equal texts."""
        return blake2b("\0".join((self.name, *pieces)).encode(errors="surrogatepass"), digest_size=16).digest()

    def asked(self, question: Embedding) -> tuple[Floats, Floats | None]:
        """The vectors of a question in the same directions: its own, and those of its words, of length 1."""
        vector = question.vector if self._sentence is None else product(question.vector[None, :], self._sentence)[0]
        if question.tokens is None:
            return vector, None
        words = question.tokens if self._token is None else product(question.tokens, self._token)
        return vector, unit_length(words)


def _groups(texts: Mapping[bytes, Sequence[str]]) -> Iterator[dict[bytes, Sequence[str]]]:
    group: dict[bytes, Sequence[str]] = {}
    for key, pieces in texts.items():
        group[key] = pieces
        if sum(map(len, group.values())) >= _AT_A_TIME:
            yield group
            group = {}
    if group:
        yield group


def read_vectors(kept: bytes, dimension: int) -> tuple[Floats, NDArray[np.uint16], NDArray[np.int8]]:
    """For each piece of a text its scale, how many words it has, and the bytes of its vector. ValueError if these are no such bytes."""
    count, rest = divmod(len(kept), dimension + 6)
    if rest:
        raise ValueError("not the vectors of this embedder")
    scales = np.frombuffer(kept, dtype="<f4", count=count)
    words = np.frombuffer(kept, dtype="<u2", count=count, offset=4 * count)
    return scales, words, np.frombuffer(kept, dtype=np.int8, offset=6 * count).reshape(count, dimension)


def _word_bytes(vectors: Floats) -> NDArray[np.int8]:
    """Vectors of length 1 on one scale for all, so that a product with them needs no division by their length."""
    return np.asarray(np.clip(np.rint(vectors * WORD_SCALE), -127, 127), dtype=np.int8)


def _bytes(vectors: Floats) -> tuple[Floats, NDArray[np.int8]]:
    largest = np.abs(vectors).max(axis=1, initial=0.0)
    scales = (np.maximum(largest, 1e-12) / 127).astype("<f4")
    return scales, np.rint(vectors / scales[:, None]).astype(np.int8)


def unit_length(vectors: Floats) -> Floats:
    """Vectors brought to length 1, one or many."""
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12), dtype=np.float32)


def product(rows: Floats, by: Floats) -> Floats:
    """`rows @ by`, in stretches so small that the linear algebra library does each in this thread.

    It would share a larger one with threads of its own, and wait for them: for milliseconds where the other cores have something to do.
    All numbers here are finite; a warning would be about what lies beside them in memory, which its kernels read and do not use.
    """
    step = max(1, _IN_ONE_THREAD // max(1, by.size))
    whole = len(rows) // step * step
    found = np.empty((len(rows), *by.shape[1:]), np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        np.matmul(rows[:whole].reshape(-1, step, rows.shape[1]), by, out=found[:whole].reshape(-1, step, *by.shape[1:]))
        np.matmul(rows[whole:], by, out=found[whole:])
    return found


NOTHING = np.iinfo(np.int64).min
"""Stands for a position or a time that is not known."""

_FORM = 1
_TOGETHER, _SHORT = 4, 64  # pieces that share a short vector, and how many numbers it has
_COLUMNS = {
    "numbers": "<i8", "session": "<i4", "position": "<i8", "role": "<i1", "moment": "<i8", "speaker": "<i4", "size": "<f4",
    "meaning": "<i8", "length": "<f4", "piece_starts": "<i8", "scales": "<f4", "words": "<u2", "vectors": "<i1", "term_starts": "<i8",
    "rows": "<i4", "counts": "<u1",
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """Columns, one row a record; postings by term; and the vectors of pieces, those of a record together."""

    columns: Mapping[str, NDArray[Any]]
    sessions: Sequence[str]
    speakers: Sequence[str]
    terms: Sequence[str]
    languages: Mapping[str, int]
    dimension: int
    _cache: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.columns["numbers"])

    def __getitem__(self, column: str) -> NDArray[Any]:
        return self.columns[column]

    @property
    def term_numbers(self) -> Mapping[str, int]:
        """Where each term stands in `terms`."""
        if "terms" not in self._cache:
            self._cache["terms"] = {term: number for number, term in enumerate(self.terms)}
        found: Mapping[str, int] = self._cache["terms"]
        return found

    @property
    def floats(self) -> NDArray[np.float32]:
        """The vectors of all pieces as numbers."""
        if "floats" not in self._cache:
            self._cache["floats"] = self["vectors"].astype(np.float32) * self["scales"][:, None]
        found: NDArray[np.float32] = self._cache["floats"]
        return found

    @property
    def coarse(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """One short vector for every few pieces of a row, of length 1 or less, and the row of each: enough to see what is worth a look."""
        if "coarse" not in self._cache:
            starts = self["piece_starts"]
            groups = -(-np.diff(starts) // _TOGETHER)
            rows = np.repeat(np.arange(len(self)), groups)
            place = np.arange(len(rows)) - np.repeat(np.cumsum(groups) - groups, groups)
            begins = starts[rows] + _TOGETHER * place
            short = self["vectors"][:, :_SHORT].astype(np.float32) * self["scales"][:, None]
            sums = np.add.reduceat(short, begins, axis=0) if len(rows) else short
            shares = np.minimum(_TOGETHER, starts[rows + 1] - begins) / (starts[rows + 1] - starts[rows])  # of the row's length, about
            self._cache["coarse"] = (sums / np.maximum(self["length"][rows] * shares, 1e-6)[:, None].astype(np.float32), rows)
        found: tuple[NDArray[np.float32], NDArray[np.int64]] = self._cache["coarse"]
        return found

    @property
    def filled(self) -> NDArray[np.int64]:
        """The rows that have pieces."""
        if "filled" not in self._cache:
            self._cache["filled"] = np.flatnonzero(np.diff(self["piece_starts"]))
        found: NDArray[np.int64] = self._cache["filled"]
        return found

    def vectors_of(self, pieces: NDArray[np.int64]) -> NDArray[np.float32]:
        """The vectors of some pieces as numbers."""
        return np.asarray(self["vectors"][pieces].astype(np.float32) * self["scales"][pieces, None], dtype=np.float32)

    def postings(self, term: str) -> tuple[NDArray[np.int32], NDArray[np.uint8]] | None:
        """The rows that hold a term, and how often."""
        number = self.term_numbers.get(term)
        if number is None:
            return None
        part = slice(self["term_starts"][number], self["term_starts"][number + 1])
        return self["rows"][part], self["counts"][part]

    def to_bytes(self) -> bytes:
        """One string that holds everything; `from_bytes` is the way back."""
        names = {"form": _FORM, "sessions": list(self.sessions), "speakers": list(self.speakers), "languages": dict(self.languages)}
        sizes = {name: len(self[name]) for name in _COLUMNS}
        head = json.dumps({**names, "sizes": sizes, "dimension": self.dimension}, ensure_ascii=False).encode()
        words = "\n".join(self.terms).encode()
        parts = [len(head).to_bytes(8, "little"), head, len(words).to_bytes(8, "little"), words]
        parts += [np.ascontiguousarray(self[name], dtype=form).tobytes() for name, form in _COLUMNS.items()]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, stored: bytes) -> Segment:
        """The segment that was written. ValueError if these bytes are none."""
        at = 8 + int.from_bytes(stored[:8], "little")
        head = json.loads(stored[8:at])
        if head["form"] != _FORM:
            raise ValueError("another form")
        size = int.from_bytes(stored[at : at + 8], "little")
        terms = stored[at + 8 : at + 8 + size].decode().split("\n") if size else []
        at += 8 + size
        columns: dict[str, NDArray[Any]] = {}
        for name, form in _COLUMNS.items():
            count = head["sizes"][name] * (head["dimension"] if name == "vectors" else 1)
            columns[name] = np.frombuffer(stored, dtype=form, count=count, offset=at)
            at += columns[name].nbytes
        columns["vectors"] = columns["vectors"].reshape(head["sizes"]["vectors"], head["dimension"])
        return cls(columns, head["sessions"], head["speakers"], terms, head["languages"], head["dimension"])

    def without(self, numbers: Iterable[int]) -> Segment:
        """The same without these records, and without the names and terms that only they had."""
        keep = ~np.isin(self["numbers"], np.fromiter(numbers, dtype=np.int64))
        return _selected(self, keep)

    def without_vectors(self, dimension: int) -> Segment:
        """The same under its words alone, to stand beside segments with vectors of this size."""
        columns: dict[str, NDArray[Any]] = {
            "piece_starts": np.zeros(len(self) + 1, np.int64),
            "scales": np.zeros(0, np.float32),
            "words": np.zeros(0, np.uint16),
            "vectors": np.zeros((0, dimension), np.int8),
            "length": np.zeros(len(self), np.float32),
            "meaning": np.zeros(len(self), np.int64),
        }
        return replace(self, columns={**self.columns, **columns}, dimension=dimension, _cache={})

    def only(self, numbers: Collection[int], terms: Collection[str], kept: Mapping[int, bytes], dimension: int) -> Segment:
        """These records alone, under these terms alone, with vectors that are kept elsewhere, in the form of `vectors.Compact`."""
        chosen = _selected(self, np.isin(self["numbers"], np.fromiter(numbers, dtype=np.int64, count=len(numbers))), terms)
        found = [kept.get(number, b"") for number in chosen["numbers"].tolist()]
        found = [one if len(one) % (dimension + 6) == 0 else b"" for one in found]  # bytes of another form count for nothing
        counts = np.array([len(one) // (dimension + 6) for one in found], np.int64)
        ends = [(one, 4 * count, 6 * count) for one, count in zip(found, counts.tolist(), strict=True)]
        scales = np.frombuffer(b"".join(one[:words] for one, words, _ in ends), dtype="<f4")
        vectors = np.frombuffer(b"".join(one[rest:] for one, _, rest in ends), dtype=np.int8).reshape(len(scales), dimension)
        starts = np.concatenate([[0], np.cumsum(counts)])
        length = np.zeros(len(found), np.float32)
        if len(scales):  # how long the sum of each record's vectors is
            sums = np.add.reduceat(vectors * scales[:, None], starts[:-1][counts > 0], axis=0)
            length[counts > 0] = np.linalg.norm(sums, axis=1)
        columns = {
            "piece_starts": starts,
            "scales": scales,
            "words": np.frombuffer(b"".join(one[words:rest] for one, words, rest in ends), dtype="<u2"),
            "vectors": vectors,
            "length": length,
        }
        return replace(chosen, columns={**chosen.columns, **columns}, dimension=dimension, _cache={})


def build(entries: Sequence[Entry], dimension: int) -> Segment:
    """The segment of these records."""
    sessions, speakers, terms = _Names(), _Names(), _Names()
    languages: dict[str, int] = {}
    rows: list[int] = []
    numbers: list[int] = []
    counts: list[int] = []
    for row, entry in enumerate(entries):
        languages[entry.language] = languages.get(entry.language, 0) + 1
        for term, times in entry.counts.items():
            numbers.append(terms.number(term))
            rows.append(row)
            counts.append(min(times, 255))
    scales = [np.zeros(0, np.float32) if entry.scales is None else entry.scales for entry in entries]
    pieces = np.array([len(one) for one in scales], dtype=np.int64)
    columns: dict[str, NDArray[Any]] = {
        "numbers": np.array([entry.number for entry in entries], np.int64),
        "session": np.array([-1 if entry.session is None else sessions.number(entry.session) for entry in entries], np.int32),
        "position": np.array([NOTHING if entry.position is None else entry.position for entry in entries], np.int64),
        "role": np.array([entry.role for entry in entries], np.int8),
        "moment": np.array([NOTHING if entry.moment is None else entry.moment for entry in entries], np.int64),
        "speaker": np.array([-1 if entry.speaker is None else speakers.number(entry.speaker) for entry in entries], np.int32),
        "size": np.array([entry.length for entry in entries], np.float32),
        "meaning": np.array([entry.meaning for entry in entries], np.int64),
        "length": np.array([_length(entry) for entry in entries], np.float32),
        "piece_starts": np.concatenate([[0], np.cumsum(pieces)]),
        "scales": np.concatenate([*scales, np.zeros(0, np.float32)]),
        "words": np.concatenate([*(entry.words for entry in entries if entry.words is not None), np.zeros(0, np.uint16)]),
        "vectors": np.concatenate([*(entry.vectors for entry in entries if entry.vectors is not None), np.zeros((0, dimension), np.int8)]),
    }
    return _with_postings(columns, (sessions.found, speakers.found), terms.found, languages, (numbers, rows, counts))


def with_vectors(entry: Entry, kept: bytes | None, dimension: int) -> Entry:
    """An entry with the vectors of its pieces, in the form of `vectors.Compact`. Bytes of another form count for nothing."""
    try:
        scales, words, vectors = read_vectors(kept or b"", dimension)
    except ValueError:
        return entry
    return replace(entry, scales=scales, words=words, vectors=vectors)


def joined(segments: Sequence[Segment]) -> Segment:
    """One segment with the records of all."""
    sessions, speakers, terms = _Names(), _Names(), _Names()
    languages: dict[str, int] = {}
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _COLUMNS}
    numbers: list[NDArray[Any]] = []
    base = pieces = 0
    for one in segments:
        for code, times in one.languages.items():
            languages[code] = languages.get(code, 0) + times
        parts["session"].append(_renamed(one["session"], [sessions.number(name) for name in one.sessions]))
        parts["speaker"].append(_renamed(one["speaker"], [speakers.number(name) for name in one.speakers]))
        renumbered = np.array([terms.number(term) for term in one.terms], np.int64)
        numbers.append(np.repeat(renumbered, np.diff(one["term_starts"])))
        parts["rows"].append(one["rows"] + base)
        parts["piece_starts"].append(one["piece_starts"][:-1] + pieces)
        for name in _COLUMNS.keys() - {"session", "speaker", "rows", "piece_starts", "term_starts"}:
            parts[name].append(one[name])
        base += len(one)
        pieces += len(one["scales"])
    parts["piece_starts"].append(np.array([pieces], np.int64))
    columns = {name: np.concatenate(found) for name, found in parts.items() if name != "term_starts"}
    postings = (np.concatenate(numbers), columns.pop("rows"), columns.pop("counts"))
    return _with_postings(columns, (sessions.found, speakers.found), terms.found, languages, postings)


class _Names:
    """Names by the order in which they came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def found(self) -> list[str]:
        return list(self._numbers)


def _with_postings(
    columns: dict[str, NDArray[Any]],
    names: tuple[list[str], list[str]],
    terms: list[str],
    languages: Mapping[str, int],
    postings: tuple[Any, Any, Any],
) -> Segment:
    """The segment with its postings in the order of its terms, and these sorted."""
    place = np.argsort(np.array(terms, dtype=object), kind="stable") if terms else np.zeros(0, np.int64)
    rank = np.empty(len(terms), np.int64)
    rank[place] = np.arange(len(terms))
    numbers = rank[np.asarray(postings[0], np.int64)] if terms else np.zeros(0, np.int64)
    order = np.argsort(numbers, kind="stable")
    columns["term_starts"] = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=len(terms)))])
    columns["rows"] = np.asarray(postings[1], np.int32)[order]
    columns["counts"] = np.asarray(postings[2], np.uint8)[order]
    return Segment(columns, *names, [terms[number] for number in place], dict(languages), columns["vectors"].shape[1])


def _selected(segment: Segment, keep: NDArray[np.bool_], wanted: Collection[str] | None = None) -> Segment:
    """The rows that are kept, and their postings: under all of their terms, or under those that are wanted."""
    sessions, speakers = _Names(), _Names()
    rows = np.flatnonzero(keep)
    pieces = np.repeat(keep, np.diff(segment["piece_starts"]))
    columns = {name: segment[name][rows] for name in ("numbers", "position", "role", "moment", "size", "meaning", "length")}
    columns["session"] = _reused(segment["session"][rows], segment.sessions, sessions)
    columns["speaker"] = _reused(segment["speaker"][rows], segment.speakers, speakers)
    columns["piece_starts"] = np.concatenate([[0], np.cumsum(np.diff(segment["piece_starts"])[rows])])
    columns |= {name: segment[name][pieces] for name in ("scales", "words", "vectors")}
    if wanted is None:
        places = np.arange(len(segment["rows"]))
    else:
        known = sorted(segment.term_numbers[term] for term in wanted if term in segment.term_numbers)
        starts = segment["term_starts"]
        places = np.concatenate([np.zeros(0, np.int64), *(np.arange(starts[number], starts[number + 1]) for number in known)])
    places = places[keep[segment["rows"][places]]]
    numbers = np.searchsorted(segment["term_starts"], places, side="right") - 1
    used = np.unique(numbers)
    moved = np.cumsum(keep) - 1
    postings = (np.searchsorted(used, numbers), moved[segment["rows"][places]], segment["counts"][places])
    terms = [segment.terms[number] for number in used.tolist()]
    return _with_postings(columns, (sessions.found, speakers.found), terms, segment.languages, postings)


def _renamed(codes: NDArray[Any], numbers: Sequence[int]) -> NDArray[np.int32]:
    return np.asarray(np.append(np.array(numbers, np.int32), np.int32(-1))[codes], dtype=np.int32)


def _reused(codes: NDArray[Any], old: Sequence[str], names: _Names) -> NDArray[np.int32]:
    return np.array([-1 if code < 0 else names.number(old[code]) for code in codes.tolist()], np.int32)


def _length(entry: Entry) -> float:
    """How long the sum of a record's vectors is: what its mean is divided by to have length 1."""
    if entry.vectors is None or entry.scales is None or not len(entry.scales):
        return 0.0
    return float(np.linalg.norm((entry.vectors * entry.scales[:, None]).sum(axis=0)))
