"""How a text reads, as learned from examples: whether it loosens a check, was pasted, or tells a secret (M10).

Word lists reach their end where people put things in words that nobody thought of. Here a text is taken apart into letters, words, what
they are about, and runs of characters across words, and three sums of weights say how much it is like texts of a kind.
`lists/concepts.toml` names what words are about across languages, so that what was learned in one is known in the others;
`scripts/train_gate.py` learns the weights from the examples in `benchmarks/data/gate` and writes `weights/`. A score says "more like this
than not" above 0; it never proves anything, so a score makes the gate stricter and never milder. One pass over at most `LONGEST`
characters; nothing but the standard library.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from math import sqrt
from typing import Literal, TypeVar
from zlib import crc32

Kind = Literal["loosening", "pasted", "pasted_part", "secret"]

_K = TypeVar("_K")
Groups = tuple[Collection[int], ...]
BUCKETS = 1 << 18
LONGEST = 2000  # characters of a text that are weighed: its beginning and its end
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff々"
_TOKEN = re.compile(rf"[{_CJK}]+|[^\W\d_{_CJK}]+(?:['-][^\W\d_{_CJK}]+)*'?|\d+(?:[ .:/,-]?\d+)*|[€$£¥?？!！…:：;\"“”«»„「」『』\n]|[^\w\s]")
_MIXED = re.compile(
    r"(?<![\w@/.])(?=[^\s,;]*[A-Za-z])(?=[^\s,;]*\d)[\w!#$%&*+.@^~-]{4,}|(?<![\w@/.])[A-Za-z]{2,}[_!#$%&*+^~-]+[\w!#$%&*+^~-]*\d"
)
_ELIDED = re.compile(r"((?:[jmtsnldc]|qu)')(.+)", re.DOTALL)
_NEAR = 8  # words between two things that are told together
_DIGIT = re.compile(r"\d")
_SPACE = re.compile(r"[^\S\n]+")
_HAS_CJK = re.compile(f"[{_CJK}]")
_RUNS, _CJK_RUNS = range(2, 7), range(1, 5)  # characters of a run: in writing without blanks each one says more


@dataclass(frozen=True, slots=True)
class _Concepts:
    """What words are about: whole words, beginnings of words, phrases, and pieces of writing without blanks."""

    words: dict[str, tuple[int, ...]]
    beginnings: dict[str, tuple[int, ...]]
    phrases: dict[tuple[str, ...], tuple[int, ...]]
    pieces: dict[str, tuple[int, ...]]
    names: tuple[str, ...]
    longest: int


_SHAPES = ("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n9", "n13", "groups", "mixed", "glued", "capital", "shouted", "line", "quote", "ask")
"""Forms of a token that say something in any language: numbers by their length, letters with digits in them, long runs."""


@cache
def concepts() -> _Concepts:
    """The list of what words are about."""
    said: dict[str, str] = tomllib.loads(files("holdfast.memory").joinpath("lists", "concepts.toml").read_text("utf-8"))["concepts"]
    found = _Concepts({}, {}, {}, {}, (*said, *_SHAPES), 8)
    for number, entries in enumerate(said.values()):
        for entry in unicodedata.normalize("NFKC", entries).lower().replace("|", " ").split():
            if _HAS_CJK.search(entry):
                _add(found.pieces, entry, number)
            elif "_" in entry:
                _add(found.phrases, tuple(entry.split("_")), number)
            elif entry.endswith("*"):
                _add(found.beginnings, entry[:-1], number)
            else:
                _add(found.words, entry, number)
    return found


def _add(table: dict[_K, tuple[int, ...]], key: _K, number: int) -> None:
    table[key] = (*table.get(key, ()), number)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text taken apart: the buckets of its letters and words, of what they are about, of what stands together, and of its runs."""

    letters: frozenset[int]
    about: frozenset[int]
    together: frozenset[int]
    runs: array[int]

    @property
    def groups(self) -> Groups:
        return self.letters, self.about, self.together, self.runs


def bucket(feature: str) -> int:
    """The place of a feature in a table of weights."""
    return crc32(feature.encode("utf-8", "surrogatepass")) & (BUCKETS - 1)


def _cut(text: str) -> str:
    """The text without long runs of blanks, and of a long one the beginning and the end."""
    text = _SPACE.sub(" ", text)
    return text if len(text) <= LONGEST else text[: LONGEST // 2] + "\n" + text[-LONGEST // 2 :]


def _tokens(plain: str) -> list[str]:
    found: list[str] = []
    for token in _TOKEN.findall(plain):
        elided = _ELIDED.match(token)
        if elided:
            found += elided.groups()
        else:
            found.append(token)
    return found


@lru_cache(maxsize=256)
def read(text: str) -> Reading:
    """A text taken apart. The same for all questions."""
    plain = unicodedata.normalize("NFKC", _cut(text)).replace("’", "'").strip()
    tokens = _tokens(plain.lower())
    letters: set[int] = set()
    stream: list[tuple[float, int]] = []
    place = 0.0
    words: list[str] = []
    table = concepts()
    base = len(table.names) - len(_SHAPES)
    for number, token in enumerate(tokens):
        place += 1
        stream.extend((place, base + shape) for shape in _shapes(token))
        if "\u3040" <= token[0] <= "\u9fff":
            place = _read_pieces(token, place, letters, stream, table)
        elif token[0].isalpha():
            marked = f"_{token}_"
            letters.update(bucket(marked[at : at + size]) for size in (3, 4, 5) for at in range(len(marked) - size + 1))
        if token[0].isalnum():
            words.append(_word(token))
        stream.extend((place, found) for found in table.words.get(token, ()))
        for size in range(2, min(len(token), 14) + 1):
            stream.extend((place, found) for found in table.beginnings.get(token[:size], ()))
        for size in (2, 3, 4):
            stream.extend((place, found) for found in table.phrases.get(tuple(tokens[number : number + size]), ()))
    stream.extend((0.0, base + 10) for _ in _MIXED.finditer(plain))
    for number, word in enumerate(words):
        letters.add(bucket(f"w {word}"))
        if number:
            letters.add(bucket(f"{words[number - 1]} {word}"))
        if number > 1:
            letters.add(bucket(f"{words[number - 2]} _ {word}"))
    about = frozenset(bucket(f"C{table.names[concept]}") for _, concept in stream)
    return Reading(frozenset(letters), about, _pairs(stream), _runs(plain))


def _runs(plain: str) -> array[int]:
    """Every run of characters, across words and marks: how somebody goes on from word to word, which words alone do not tell."""
    whole = f" {_DIGIT.sub('0', ' '.join(plain.lower().split()))} "
    sizes = _CJK_RUNS if _HAS_CJK.search(whole) else _RUNS
    return array("I", {bucket(f"R{whole[at : at + size]}") for size in sizes for at in range(len(whole) - size + 1)})


def _word(token: str) -> str:
    """A token as it stands beside others: of a number only how long it is, and a run of writing without blanks is no word."""
    if token[0].isdigit():
        return "0" * min(len(_DIGIT.findall(token)), 9)
    return token if len(token) < 4 or not "\u3040" <= token[0] <= "\u9fff" else "漢"


def _shapes(token: str) -> tuple[int, ...]:
    """The numbers of the `_SHAPES` that a token has."""
    head = token[0]
    if head.isdigit():
        digits = len(_DIGIT.findall(token))
        return (digits - 1 if digits < 8 else 7 if digits < 13 else 8, *((9,) if len(token) > digits else ()))
    if head.isalpha():
        return (11,) if len(token) > 17 and "-" not in token and not "\u3040" <= head <= "\u9fff" else ()
    return (14,) if head == "\n" else (15,) if head in '"“”«»„「」『』' else (16,) if head in "?？" else ()


def _read_pieces(run: str, place: float, letters: set[int], stream: list[tuple[float, int]], table: _Concepts) -> float:
    """A run of writing without blanks: every piece of up to four letters, and what the pieces of it are about."""
    for at in range(len(run)):
        for size in range(1, min(table.longest, len(run) - at) + 1):
            piece = run[at : at + size]
            if size < 5:
                letters.add(bucket(piece))
            stream.extend((place, found) for found in table.pieces.get(piece, ()))
        place += 0.5
    return place


def _pairs(stream: Sequence[tuple[float, int]]) -> frozenset[int]:
    """What stands near each other, in its order."""
    pairs: set[int] = set()
    for number, (place, one) in enumerate(stream):
        for later, other in stream[number + 1 : number + 24]:
            if later - place > _NEAR:
                break
            if one != other:
                pairs.add((one * 131 + other) * 40503 & (BUCKETS - 1))
    return frozenset(pairs)


# Forms of a message, and of a part of it

_SENTENCE = re.compile(r"[^.!?。！？…\n]+[.!?。！？…]*")
_STEPS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 40, 60, 90, 130, 180, 250, 350, 500, 800, 1400)
_LEADS = (
    ("bullet", re.compile(r"^\s*(?:[-*•·・–]|\d{1,2}[.)、]|[一二三四五六七八九十]、)", re.MULTILINE)),
    ("speaker", re.compile(r"^\s*[^\s:：][^\n:：]{0,28}[:：](?!//)", re.MULTILINE)),
    ("heading", re.compile(r"^\s*(?:#|【|《|\[|==|\*\*)", re.MULTILINE)),
    ("time", re.compile(r"\b\d{1,2}[:：h]\d\d\b")),
    ("mail", re.compile(r"[\w.+-]@[\w-]{1,60}\.\w|https?://|www\.")),
    ("bar", re.compile("[|｜/／]")),
    ("dash", re.compile(r"\s[–—-]{1,2}\s|——")),
    ("dots", re.compile(r"\.{3}|…")),
    ("star", re.compile("[★☆⭐*#]|[\U0001f300-\U0001faff]")),
    ("colon_end", re.compile(r"[:：]\s*(?:\n|$)")),
    ("quoted", re.compile('["“”«»„「」『』]')),
    ("brackets", re.compile(r"[(（\[【]")),
    ("code", re.compile(r"//|[{}<>;=]|\w\(\)")),
)


def _step(value: float) -> int:
    return sum(value >= step for step in _STEPS)


def _sentences(text: str) -> list[str]:
    return [match.group() for match in _SENTENCE.finditer(text) if any(map(str.isalnum, match.group()))]


@lru_cache(maxsize=256)
def form(text: str) -> frozenset[int]:
    """The form of a message: how long, of how many lines and sentences, how it begins, ends and is spelled."""
    squeezed = _SPACE.sub(" ", text)
    cut = _cut(text).strip()
    lines = [line for line in cut.splitlines() if line.strip()]
    said = _sentences(cut)
    weight = 2.5 if _HAS_CJK.search(cut) else 1.0
    heads = [one.strip()[:1] for one in said]
    cased = [head for head in heads if head.isupper() != head.islower()]
    found = {
        f"length {_step(len(squeezed) * weight)}",
        f"lines {_step(len(lines))}",
        f"sentences {_step(len(said))}",
        f"mean {_step(len(cut) * weight / max(1, len(said)))}",
        f"asks {_step(cut.count('?') + cut.count('？'))}",
        f"shouts {_step(cut.count('!') + cut.count('！'))}",
        f"commas {_step(sum(map(cut.count, ',，、')))}",
        f"capitals {sum(map(str.isupper, cased)) * 4 // max(1, len(cased)) if cased else 'none'}",
        f"ends {cut[-1:] if not cut[-1:].isalnum() else 'open'}",
        f"last asks {said[-1].rstrip()[-1:] in '?？' if said else None} {min(len(said), 3)}",
        f"first asks {said[0].rstrip()[-1:] in '?？' if said else None} {min(len(said), 3)}",
    }
    found |= {f"lead {name} {_step(len(pattern.findall(cut)))}" for name, pattern in _LEADS}
    for steps in range(1, _step(len(squeezed) * weight) + 1):
        found.add(f"longer {steps}")
    for place, one in (("first", said[:1]), ("last", said[-1:])):
        if one and len(said) > 1:
            found |= {f"{place} {number}" for number in read(one[0]).about}
    if cased and any(map(str.isupper, cased)) and any(map(str.islower, cased)):
        found.add("two hands")
    return frozenset(bucket(f"F {one}") for one in found)


def _part_form(parts: Sequence[str], number: int) -> frozenset[int]:
    """Where a part of a message stands, how it is built, and what stands beside it."""
    part, count = _cut(parts[number]).strip(), len(parts)
    place = "only" if count == 1 else "first" if number == 0 else "last" if number == count - 1 else "within"
    weight = 2.5 if _HAS_CJK.search(part) else 1.0
    found = {
        f"place {place} {min(count, 6)}",
        f"asks {place} {part[-1:] in '?？'}",
        f"open {place} {part[-1:] in ':：'}",
        f"ends {place} {part[-1:] if not part[-1:].isalnum() else 'open'}",
        f"length {place} {_step(len(part) * weight)}",
        f"case {place} {part[:1].islower()}",
    }
    found |= {f"lead {name}" for name, pattern in _LEADS if pattern.search(part)}
    found |= {f"{place} {about}" for about in read(part).about}
    for side, beside in (("before", number - 1), ("after", number + 1)):
        if 0 <= beside < count:
            found |= {f"{side} {about}" for about in read(_cut(parts[beside])).about}
    return frozenset(bucket(f"P {one}") for one in found)


# What is asked of a text

SHARES: dict[Kind, tuple[float, ...]] = {
    "loosening": (2.0, 1.0, 1.0, 3.0),
    "pasted": (1.5, 1.0, 1.0, 3.0, 1.5),
    "pasted_part": (1.0, 1.0, 0.5, 3.0, 1.5),
    "secret": (2.0, 1.0, 1.0, 3.0),
}
"""How much each group of features counts in all, whatever the length of the text: letters, about, together, runs, form."""


@dataclass(frozen=True, slots=True)
class _Model:
    weights: array[int]
    scale: float
    bias: float


@cache
def _models() -> dict[str, _Model]:
    folder = files("holdfast.memory").joinpath("weights")
    told = json.loads(folder.joinpath("gate.json").read_text("utf-8"))
    packed = array("b", folder.joinpath("gate.bin").read_bytes())
    return {
        name: _Model(packed[number * BUCKETS : (number + 1) * BUCKETS], one["scale"], one["bias"])
        for number, (name, one) in enumerate(told["models"].items())
    }


def weigh(kind: Kind, groups: Groups) -> float:
    """How much the features of a text speak for a kind; above 0 they do."""
    model = _models()[kind]
    total = 0.0
    for group, share in zip(groups, SHARES[kind], strict=True):
        if group:
            total += share / sqrt(len(group)) * sum(model.weights[feature] for feature in group)
    return total * model.scale + model.bias


def reads_loosening(text: str) -> float:
    """How much a typed text reads like one that loosens a check."""
    return weigh("loosening", read(text).groups)


def reads_secret(text: str) -> float:
    """How much a text reads like one that tells a secret."""
    return weigh("secret", read(text).groups)


def message_groups(text: str) -> Groups:
    """What is weighed of a message."""
    return (*read(text).groups, form(text))


def part_groups(parts: Sequence[str], number: int) -> Groups:
    """What is weighed of a part of a message: a line, or a sentence."""
    return (*read(parts[number]).groups, _part_form(parts, number))


def reads_pasted(text: str) -> float:
    """How much a message reads like one in which something was pasted."""
    return weigh("pasted", message_groups(text))


def pasted_parts(parts: Sequence[str]) -> tuple[int, int]:
    """Which parts of a message with something pasted are the pasted ones: from, to. At least one is."""
    scores = [weigh("pasted_part", part_groups(parts, number)) for number in range(len(parts))]
    best, start, found, at, running = float("-inf"), 0, (0, len(parts)), 0, 0.0
    for at, one in enumerate(scores):  # the run of parts with the largest sum
        if running <= 0:
            running, start = 0.0, at
        running += one
        if running > best:
            best, found = running, (start, at + 1)
    return found


def speaks_of(text: str, concept: str) -> bool:
    """Whether a text has a word of a concept."""
    return bucket(f"C{concept}") in read(text).about
