"""How a text reads, as learned from examples: whether it loosens a check, was pasted, or tells a secret (M10).

Word lists reach their end where people put things in words that nobody thought of. Here a text is taken apart into letters, words, what
they are about, runs of characters across words, how it begins and ends, the values in it (numbers, codes, quoted words) with the words
around them, and its form; three sums of weights say how much it is like texts of a kind. `lists/concepts.toml` names what words are about
across languages, so that what was learned in one is known in the others; `scripts/train_gate.py` learns the weights from the examples in
`benchmarks/data/gate` and writes `weights/`. A score says "more like this than not" above 0; it never proves anything, so a score makes the
gate stricter and never milder. One pass over at most `LONGEST` characters; nothing but the standard library.
"""

from __future__ import annotations

import json
import re
import tomllib
import unicodedata
from array import array
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from math import sqrt
from typing import Any, Literal, TypeVar
from zlib import crc32, decompress

from holdfast.text.language import STOP_WORDS

# The word lists of this room, kept as data in `lists/*.toml`, each read once, and the patterns that are built of them

_PARTING = re.compile(r" \| |\n")
_SLOT = re.compile(r"\{([a-z_]+)\}")


class WordLists:
    """One file of word lists. `tables` holds whatever else is in it, as it stands there.

    An entry is a text of alternatives, parted by ` | ` or a new line. `{name}` in one stands for any alternative of the entry of that name.
    """

    def __init__(self, name: str) -> None:
        self.tables: dict[str, Any] = tomllib.loads(files("holdfast.memory").joinpath("lists", f"{name}.toml").read_text("utf-8"))
        self._entries: dict[str, str] = {**self.tables.get("words", {}), **self.tables.get("forms", {})}

    def words(self, name: str) -> tuple[str, ...]:
        """The alternatives of an entry, in their order."""
        return tuple(part for part in _PARTING.split(self._entries[name]) if part)

    def pattern(self, name: str, flags: re.RegexFlag = re.NOFLAG, **slots: str) -> re.Pattern[str]:
        """The entry as a pattern. `slots` are regular expressions for names that the file does not have."""
        return self.compiled(self._entries[name], flags, **slots)

    def compiled(self, text: str, flags: re.RegexFlag = re.NOFLAG, **slots: str) -> re.Pattern[str]:
        """Any text in the form of an entry as a pattern."""
        return re.compile(self._expression(text, slots), flags)

    def _expression(self, text: str, slots: dict[str, str]) -> str:
        joined = "|".join(part for part in _PARTING.split(text) if part)
        return _SLOT.sub(lambda slot: f"(?:{slots.get(slot[1]) or self._expression(self._entries[slot[1]], slots)})", joined)


@cache
def word_lists(name: str) -> WordLists:
    """The file of this name."""
    return WordLists(name)


# How a text reads

Kind = Literal["loosening", "pasted", "secret"]

_K = TypeVar("_K")
Groups = tuple[Collection[int], ...]
BUCKETS = 1 << 21
LONGEST = 2000  # characters of a text that are weighed: its beginning and its end
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff々"
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0903\u093a-\u094f\u0962-\u0963"
"""Signs that stand on or beside a letter: without them a word of Hindi or Arabic would fall apart."""
_LETTERS = rf"(?:[^\W\d_{_CJK}][{_MARKS}]*)+"
_TOKEN = re.compile(rf"[{_CJK}]+|{_LETTERS}(?:['-]{_LETTERS})*'?|\d+(?:[ .:/,-]?\d+)*|[€$£¥?？!！…:：;\"“”«»„「」『』\n]|[^\w\s]")
_MIXED = re.compile(
    r"(?<![\w@/.])(?=[^\s,;]*[A-Za-z])(?=[^\s,;]*\d)[\w!#$%&*+.@^~-]{4,}|(?<![\w@/.])[A-Za-z]{2,}[_!#$%&*+^~-]+[\w!#$%&*+^~-]*\d"
)
_ELIDED = re.compile(r"((?:[jmtsnldc]|qu)')(.+)", re.DOTALL)
_NEAR = 8  # words between two things that are told together
_DIGIT, _NOT_DIGIT = re.compile(r"\d"), re.compile(r"\D")
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
    told = tomllib.loads(files("holdfast.memory").joinpath("lists", "concepts.toml").read_text("utf-8"))
    said: dict[str, str] = told["concepts"]
    found = _Concepts({}, {}, {}, {}, (*said, *_SHAPES), 8)
    for number, (name, entries) in enumerate(said.items()):
        entries = " ".join((entries, *(language.get(name, "") for language in told["further"].values())))
        for entry in dict.fromkeys(unicodedata.normalize("NFKC", entries).lower().replace("|", " ").split()):
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
    """A text taken apart: the buckets of its letters and words, of what they are about, of what stands together, of its runs, of its
    values, of how it begins and ends, and of its form."""

    letters: frozenset[int]
    about: frozenset[int]
    together: frozenset[int]
    runs: array[int]
    values: frozenset[int]
    edges: frozenset[int]
    form: frozenset[int]

    @property
    def groups(self) -> Groups:
        return self.letters, self.about, self.together, self.runs, self.values, self.edges, self.form


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


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", _cut(text)).replace("’", "'").strip()


@lru_cache(maxsize=256)
def read(text: str) -> Reading:
    """A text taken apart. The same for all questions."""
    plain = _plain(text)
    tokens = _tokens(plain.lower())
    letters: set[int] = set()
    stream = _stream(tokens, letters)
    names = concepts().names
    stream.extend((0.0, names.index("mixed")) for _ in _MIXED.finditer(plain))
    words = [_word(token) for token in tokens if token[0].isalnum()]
    for number, word in enumerate(words):
        letters.add(bucket(f"w {word}"))
        if number:
            letters.add(bucket(f"{words[number - 1]} {word}"))
        if number > 1:
            letters.add(bucket(f"{words[number - 2]} _ {word}"))
    topics = sorted({names[concept] for _, concept in stream})
    about = frozenset(bucket(f"C{topic}") for topic in topics)
    return Reading(
        frozenset(letters), about, _pairs(stream), _runs(plain), _values(plain, tokens, topics), _edges(plain, tokens), _form(text, plain)
    )


def _stream(tokens: Sequence[str], letters: set[int] | None = None) -> list[tuple[float, int]]:
    """What the tokens are about, each with its place. The letters of words are put into `letters`."""
    stream: list[tuple[float, int]] = []
    place = 0.0
    table = concepts()
    base = len(table.names) - len(_SHAPES)
    for number, token in enumerate(tokens):
        place += 1
        stream.extend((place, base + shape) for shape in _shapes(token))
        if "\u3040" <= token[0] <= "\u9fff":
            place = _read_pieces(token, place, letters, stream, table)
        elif token[0].isalpha() and letters is not None:
            marked = f"_{token}_"
            letters.update(bucket(marked[at : at + size]) for size in (3, 4, 5) for at in range(len(marked) - size + 1))
        stream.extend((place, found) for found in table.words.get(token, ()))
        for size in range(2, min(len(token), 14) + 1):
            stream.extend((place, found) for found in table.beginnings.get(token[:size], ()))
        for size in (2, 3, 4):
            stream.extend((place, found) for found in table.phrases.get(tuple(tokens[number : number + size]), ()))
    return stream


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


def _read_pieces(run: str, place: float, letters: set[int] | None, stream: list[tuple[float, int]], table: _Concepts) -> float:
    """A run of writing without blanks: every piece of up to four letters, and what the pieces of it are about."""
    for at in range(len(run)):
        for size in range(1, min(table.longest, len(run) - at) + 1):
            piece = run[at : at + size]
            if size < 5 and letters is not None:
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


# The values in a text: what a secret is made of, and what numbers are otherwise

_VALUE = re.compile(
    r"(?P<code>(?<![\w/.-])(?=[A-Za-z0-9-]{0,40}\d)[A-Za-z0-9]{2,8}(?:-[A-Za-z0-9]{2,8}){1,8}(?![\w/-]))"
    r"|(?P<mixed>(?<![\w@/])(?=[\w!#$%&*+.@^~-]{0,60}[A-Za-z])(?=[\w!#$%&*+.@^~-]{0,60}\d)[A-Za-z0-9][A-Za-z0-9!#$%&*+@^~_.-]{2,60}[A-Za-z0-9!#$%&*])"
    rf"|(?P<odd>(?<![\w@/])[A-Za-z]{{1,20}}(?:[!#$%&*+^~_=.][A-Za-z]{{1,20}}){{1,9}}[!#$]?|[^\W\d_{_CJK}]{{17,60}}|(?<!\w)[a-z]{{1,20}}[A-Z][A-Za-z]{{1,20}})"
    r"|(?P<number>\d+(?:[ .:/,#*-]{1,2}\d+)*)"
    r"|(?P<quoted>[\"“«„「『'‘](?=\S)[^\"“”«»„「」『』'’\n]{2,40}[\"”»“」』'’](?!\w))"
)
_UNIT = re.compile(
    r"\s?(?:[%€$£¥₽°]|(?:k?m|cm|mm|k?g|mg|ml|l|h|k|gb|tb|mb|kr|ft|eur|usd|st|nd|rd|th)\b|km/h|euros?\b|zł|kč|лет|years?|jahre?|ans\b|años|anni|anos|uhr|min"
    r"|hours?|stunden|heures|horas|percent|prozent|people|pages?|[元块万岁年月日号楼路个人分点時円歳個階本回명원살년시층])",
    re.IGNORECASE,
)
_TIME = re.compile(r"(?:[01]?\d|2[0-4])[:.]\d\d(?:[:.]\d\d)?")
_DATE = re.compile(r"\d{1,2}[./-]\d{1,2}[./-](?:\d\d){1,2}|\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}/\d{1,2}")
_AMOUNT = re.compile(r"\d{1,3}(?:[.,]\d{3})+|\d+[.,]\d{1,2}")
_AROUND = re.compile(rf"[{_CJK}]|[^\W\d_{_CJK}]+|[^\w\s]")
_MOST_VALUES = 12  # of a text that are looked at
_SPELLED = 3  # words for numbers in a row that are one number


def _value(match: re.Match[str]) -> tuple[str, bool]:
    """The shape of a value, and whether it may be a secret: a year, a date, a time or an amount is hardly one."""
    text, kind = match.group(), match.lastgroup or ""
    if kind != "number":
        return (f"quoted{min(3, len(text.split()))}" if kind == "quoted" else kind), True
    digits = _NOT_DIGIT.sub("", text)
    many = len(digits) if len(digits) < 9 else 9 if len(digits) < 13 else 13
    if _TIME.fullmatch(text):
        return "time", False
    if _DATE.fullmatch(text):
        return "date", False
    sign = match.string[match.start() - 1] if match.start() else ""
    if _UNIT.match(match.string, match.end()) or (sign and sign in "€$£¥#№") or _AMOUNT.fullmatch(text):
        return "amount", False
    if len(text) == 4 and text[:2] in ("19", "20"):
        return "year", False
    form = "groups" if text != digits else "zero" if digits[0] == "0" and many > 2 else "number"
    return f"{form}{many}", many > 2


def _values(plain: str, tokens: Sequence[str], topics: Iterable[str]) -> frozenset[int]:
    """What values a text has, which words stand around them, and what the text is about that has them."""
    found: set[str] = set()
    shapes: dict[bool, set[str]] = {True: set(), False: set()}
    lowered = plain.lower() if len(plain.lower()) == len(plain) else plain
    for match, _ in zip(_VALUE.finditer(plain), range(_MOST_VALUES), strict=False):
        shape, doubtful = _value(match)
        shapes[doubtful].add(shape)
        before = _AROUND.findall(lowered[max(0, match.start() - 40) : match.start()])[-3:] or ["^"]
        after = (_AROUND.findall(lowered[match.end() : match.end() + 24]) or ["$"])[0]
        found |= {shape, f"{shape}<{before[-1]}", f"{shape}>{after}", f"{shape}<{' '.join(before[-2:])}", f"{shape}<{before[-1]}>{after}"}
        found |= {f"{doubtful}<{before[-1]}", f"{doubtful}>{after}", f"{doubtful}<{' '.join(before)}"}
    if _spelled(tokens):
        shapes[True].add("spelled")
        found.add("spelled")
    has = "doubtful" if shapes[True] else "plain" if shapes[False] else "none"
    found |= {f"has {has}", f"count {min(len(shapes[True]), 3)} {min(len(shapes[False]), 3)}"}
    found |= {f"{one} {topic}" for topic in topics for one in (f"has {has}", *shapes[True])}
    return frozenset(bucket(f"V {one}") for one in found)


def _spelled(tokens: Sequence[str]) -> bool:
    """Whether a number is told in words, one digit after the other."""
    table = concepts()
    number, run = table.names.index("number_word"), 0
    for word in tokens:
        run = run + 1 if number in table.words.get(word, ()) else run if word in ",-、·." else 0
        if run >= _SPELLED:
            return True
    return False


def _edges(plain: str, tokens: Sequence[str]) -> frozenset[int]:
    """How a text and its sentences begin, and how it ends."""
    said = [token for token in tokens if token[0].isalnum()]
    found: set[str] = set()
    if said:
        first, last = said[0], said[-1]
        words = [one if "\u3040" <= one[0] <= "\u9fff" else _word(one) for one in (*said[:3], *said[-2:])]
        found |= {f"^{' '.join(words[:many])[:length]}" for many, length in ((1, 8), (2, 14), (3, 22))}
        found |= {f"{' '.join(words[-many:])[-length:]}$" for many, length in ((1, 8), (2, 14))}
        if "\u3040" <= last[0] <= "\u9fff":
            found |= {f"{last[-many:]}$" for many in (2, 3, 4, 5)} | {f"^{first[:many]}" for many in (1, 2, 3, 4)}
    for sentence in _sentences(plain)[:12]:
        words = _AROUND.findall(sentence.lower())[:2]
        found |= {f"s^{' '.join(words[:many])[:length]}" for many, length in ((1, 8), (2, 14))}
    return frozenset(bucket(f"A {one}") for one in found)


# The form of a message

_SENTENCE = re.compile(r"[^.!?。！？…\n]+[.!?。！？…]*")
ALONE = 0.2  # how much more a message of one sentence must read like a pasted one: "I work as a nurse and I prefer short answers"
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
    ("curly", re.compile("[’“”]")),
)
_DATED_LINE = re.compile(r"[\s\[(]*\d{1,4}[./:-]\d")
_COLON_HEAD = re.compile(r"[^\n:：]{3,60}[:：]\s*\S")
_BEGINS_AFTER = frozenset(".!?:…。！？\"“”«»„\n('—–-*•;")
_SMALL_WORDS = frozenset(word for words in STOP_WORDS.values() for word in words)


def _step(value: float) -> int:
    return sum(value >= step for step in _STEPS)


def _sentences(text: str) -> list[str]:
    return [match.group() for match in _SENTENCE.finditer(text) if any(map(str.isalnum, match.group()))]


def _form(text: str, plain: str) -> frozenset[int]:
    """The form of a message: how long, of how many lines and sentences, how it begins, ends and is spelled, and who speaks of whom."""
    squeezed = _SPACE.sub(" ", text)
    cut = _cut(text).strip()
    lines = [line for line in cut.splitlines() if line.strip()]
    said = _sentences(cut)
    weight = 2.5 if _HAS_CJK.search(cut) else 1.0
    heads = [one.strip()[:1] for one in said]
    cased = [head for head in heads if head.isupper() != head.islower()]
    asks = [one.rstrip()[-1:] in "?？" for one in (*said[:1], *said[-1:])]
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
        f"first and last ask {asks} {min(len(said), 4)}",
    }
    found |= {f"lead {name} {_step(len(pattern.findall(cut)))}" for name, pattern in _LEADS}
    found |= {f"longer {steps}" for steps in range(1, _step(len(squeezed) * weight) + 1)}
    for place, one in (("first", said[:1]), ("last", said[-1:])):
        if one and len(said) > 1:
            found |= {f"{place} {concept}" for _, concept in _stream(_tokens(one[0].lower()))}
    if cased and any(map(str.isupper, cased)) and any(map(str.islower, cased)):
        found.add("two hands")
    if len(lines) > 1:
        found.add(f"short lines {sum(len(line) < 45 for line in lines) * 4 // len(lines)}")
        found.add(f"ended lines {sum(line.rstrip()[-1] in '.!?。！？' for line in lines) * 4 // len(lines)}")
        found.add(f"dated lines {min(3, sum(_DATED_LINE.match(line) is not None for line in lines))}")
    headed = _COLON_HEAD.match(cut)
    if headed:
        found |= {"headed", *(f"headed {word}" for word in re.findall(r"\w+", headed.group().lower())[:8])}
    return frozenset(bucket(f"F {one}") for one in (*found, *_voices(plain)))


def _voices(plain: str) -> set[str]:
    """Who speaks of whom, and capital letters within sentences: where a text begins inside another, a small word is capital."""
    table = concepts()
    counts = dict.fromkeys(("i", "my", "he", "you", "we"), 0)
    capital = small = loud = words = 0
    before = "."
    for token in _TOKEN.findall(plain):
        if token[0].isalpha():
            words += 1
            for concept in table.words.get(token.lower(), ()):
                if table.names[concept] in counts:
                    counts[table.names[concept]] += 1
            if before not in _BEGINS_AFTER and token[0].isupper() and token[1:].islower():
                capital += 1
                small += token.lower() in _SMALL_WORDS
            loud += len(token) > 2 and token.isupper()
        before = token[-1]
    mine, theirs, yours, ours = (_few(many) for many in (counts["i"] + counts["my"], counts["he"], counts["you"], counts["we"]))
    length = _step(words)
    found = {f"capital words {min(capital, 6)}", f"capital small words {min(small, 3)}", f"loud words {min(loud, 4)}"}
    found |= {
        f"mine {mine}",
        f"theirs {theirs}",
        f"yours {yours}",
        f"ours {ours}",
        f"mine {mine} theirs {theirs}",
        f"mine {mine} yours {yours}",
    }
    found |= {
        f"mine {mine} of {length}",
        f"theirs {theirs} of {length}",
        f"yours {yours} of {length}",
        f"mine {mine} ours {ours} of {length}",
    }
    return found


def _few(many: int) -> int:
    return sum(many >= step for step in (1, 2, 4))


# What is asked of a text

KINDS: tuple[Kind, ...] = ("loosening", "pasted", "secret")
SHARES = (1.0, 1.0, 1.0, 2.0, 1.5, 1.0, 1.4)
"""How much each group of features counts in all, whatever the length of the text, in the order of `Reading.groups`."""


@dataclass(frozen=True, slots=True)
class _Model:
    weights: array[int]
    scale: float
    bias: float


@cache
def _models() -> dict[str, _Model]:
    folder = files("holdfast.memory").joinpath("weights")
    told = json.loads(folder.joinpath("gate.json").read_text("utf-8"))
    packed = array("b", decompress(folder.joinpath("gate.bin").read_bytes()))
    return {
        name: _Model(packed[number * BUCKETS : (number + 1) * BUCKETS], one["scale"], one["bias"])
        for number, (name, one) in enumerate(told["models"].items())
    }


def _weigh(kind: Kind, text: str) -> float:
    """How much the features of a text speak for a kind; above 0 they do."""
    model = _models()[kind]
    total = 0.0
    for group, share in zip(read(text).groups, SHARES, strict=True):
        if group:
            total += share / sqrt(len(group)) * sum(model.weights[feature] for feature in group)
    return total * model.scale + model.bias


def reads_loosening(text: str) -> float:
    """How much a typed text reads like one that loosens a check."""
    return _weigh("loosening", text)


def reads_secret(text: str) -> float:
    """How much a text reads like one that tells a secret."""
    return _weigh("secret", text)


def reads_pasted(text: str) -> float:
    """How much a message reads like one in which something was pasted. Of one sentence alone more is wanted: most are plain statements."""
    return _weigh("pasted", text) - (ALONE if is_alone(text) else 0.0)


def is_alone(text: str) -> bool:
    """Whether a message has hardly more than one sentence."""
    return len(_sentences(_cut(text))) < 2


def speaks_of(text: str, concept: str) -> bool:
    """Whether a text has a word of a concept."""
    return bucket(f"C{concept}") in read(text).about
