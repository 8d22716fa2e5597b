"""Words of a text with their places, and the terms under which indexing and questions meet.

`terms` is the one function that both sides use: stems of words without stop words, whole identifiers and their parts,
character pairs for scripts without spaces. Stems come from Snowball by PyStemmer: the same algorithms as the pure Python
package, more than a hundred times faster.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import Stemmer  # type: ignore[import-not-found, import-untyped, unused-ignore]  # a C extension without annotations

from holdfast.text.language import NO_SPACES, STOP_WORDS, guess_language, is_spaceless, read_words, script_of
from holdfast.text.normalise import fold

STOP_PAIRS = read_words("holdfast.text", "stop_pairs")["pairs"]
"""Character pairs that carry grammar only."""


Kind = Literal["word", "compound", "number", "version", "date", "url", "email", "path", "identifier", "acronym", "characters"]

_SNOWBALL = {
    "en": "english", "de": "german", "fr": "french", "es": "spanish", "it": "italian", "pt": "portuguese", "nl": "dutch",
    "sv": "swedish", "da": "danish", "no": "norwegian", "fi": "finnish", "ru": "russian", "el": "greek", "hu": "hungarian",
    "ro": "romanian", "tr": "turkish", "ar": "arabic", "hi": "hindi", "ta": "tamil", "hy": "armenian", "ca": "catalan",
    "id": "indonesian", "ga": "irish", "lt": "lithuanian",
}  # fmt: skip
_BY_SCRIPT = {"cyrillic": "ru", "greek": "el", "arabic": "ar", "devanagari": "hi", "tamil": "ta", "armenian": "hy"}

_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0951-\u0957"
    "\u0962\u0963\u0980-\u0dff\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u3099\u309a\u200b-\u200d\u2060\u00ad\ufeff"
)
# A chunk: word characters, and joiners that stand between two of them. What it is, is decided afterwards.
_CHUNK = re.compile(
    r"(?:(?:\.{1,2}|~)?[/\\]\.?(?=\w)|[A-Za-z]:\\(?=\w)|\.(?=NET\b))?"
    rf"\w[\w{_MARKS}]*(?:(?:[.@'’/\\:+=?&%~·・-]|(?<=\d),(?=\d)|://|/\.)(?=\w)[\w{_MARKS}]+)*"
    r"(?:/(?=[\s.,)]|$))?(?:\+\+|#(?!\w))?"
)
_SPACELESS_RUN = re.compile(f"[{NO_SPACES}]+")
_CAMEL = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_CAMEL_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_NUMBER = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:[.,]\d+)?")
_VERSION = re.compile(r"[vV]?\d+(?:\.\d+)+(?:[.+-]?(?:[a-z]{1,5}|\d)[\w.]*)?|[vV]\d+", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}(?:-\d{2})?(?:[T ].*)?|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{4}/\d{1,2}/\d{1,2}")
_ACRONYM = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]")
_SEPARATORS = re.compile(r"[./\\:=?&%~@+·・-]")
_PIECES = re.compile(r"[^\W_]+")
_ELISION = re.compile(r"(?:l|d|j|qu|n|s|c|m|t|dell|nell|all|sull|dall|un|lorsqu|jusqu|puisqu)'(?=\w)")
_HIRAGANA_PAIR = re.compile("[\u3041-\u309f]{2}")

_local = threading.local()


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802  # the library's name


@dataclass(frozen=True, slots=True)
class Word:
    """One word and its place: `text[start:end]` of the tokenised text is `text` here."""

    text: str
    start: int
    end: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class Term:
    """One term and the stretch of the text that gave it."""

    key: str
    start: int
    end: int


def tokenise(text: str) -> list[Word]:
    """The words of a text in order, never overlapping. Identifiers, versions, addresses and paths stay whole.

    >>> [word.text for word in tokenise("Ask ann@example.org about parse_url in v3.11.7, e.g. today")]
    ['Ask', 'ann@example.org', 'about', 'parse_url', 'in', 'v3.11.7', 'e.g', 'today']
    """
    spaceless = is_spaceless(text)
    words: list[Word] = []
    for match in _CHUNK.finditer(text):
        chunk = match.group()
        if chunk.isascii() and chunk.isalpha():
            words.append(Word(chunk, match.start(), match.end(), "identifier" if _CAMEL.search(chunk) else "word"))
        elif spaceless and _SPACELESS_RUN.search(chunk):
            words.extend(_split_spaceless(chunk, match.start()))
        else:
            words.extend(_classify(chunk, match.start()))
    return words


def _split_spaceless(chunk: str, start: int) -> Iterator[Word]:
    at = 0
    for run in _SPACELESS_RUN.finditer(chunk):
        yield from _rechunk(chunk[at : run.start()], start + at)
        yield Word(run.group(), start + run.start(), start + run.end(), "characters")
        at = run.end()
    yield from _rechunk(chunk[at:], start + at)


def _rechunk(piece: str, start: int) -> Iterator[Word]:
    for match in _CHUNK.finditer(piece):
        yield from _classify(match.group(), start + match.start())


def _classify(chunk: str, start: int) -> Iterator[Word]:
    kind = _kind(chunk)
    if kind is not None:
        yield Word(chunk, start, start + len(chunk), kind)
        return
    at = 0
    for match in re.finditer(r"[/\\:=?&%~@·・]+|\.(?!\d)", chunk):
        if match.start() > at:
            yield from _classify(chunk[at : match.start()], start + at)
        at = match.end()
    if at < len(chunk):
        rest = chunk[at:]
        yield from _classify(rest, start + at) if at else (Word(rest, start, start + len(rest), "identifier"),)


def _kind(chunk: str) -> Kind | None:
    """What a chunk is; None when it is several things run together."""
    if "://" in chunk or chunk.startswith("www."):
        return "url"
    if _DATE.fullmatch(chunk):
        return "date"
    if chunk[0].isdigit() and _NUMBER.fullmatch(chunk):
        return "number"
    if "@" in chunk:
        return "email" if _EMAIL.fullmatch(chunk) else None
    if _VERSION.fullmatch(chunk):
        return "version"
    if "/" in chunk or "\\" in chunk:
        return "path" if _looks_like_path(chunk) else None
    if any(c in chunk for c in ":=?&%~·・"):
        return None
    if "." in chunk:
        return "acronym" if _ACRONYM.fullmatch(chunk) else "identifier"
    if chunk[-1] in "+#" or "_" in chunk or "+" in chunk or _CAMEL.search(chunk):
        return "identifier"
    if "-" in chunk:
        return "compound"
    return "identifier" if any(c.isdigit() for c in chunk) and not chunk.isdigit() else "number" if chunk.isdigit() else "word"


def _looks_like_path(chunk: str) -> bool:
    if chunk[0] in "/\\~." or chunk[1:3] == ":\\":
        return True
    last = re.split(r"[/\\]", chunk)[-1]
    return not last or re.search(r"\w\.[A-Za-z]\w{0,4}$", last) is not None or chunk.count("/") >= 3


def _stemmer(language: str) -> _Stemmer | None:
    """Snowball's stemmer for the language; one for each thread, because the C objects hold state."""
    name = _SNOWBALL.get(language)
    if name is None:
        return None
    made: dict[str, _Stemmer] = _local.__dict__.setdefault("made", {})
    if name not in made:
        made[name] = Stemmer.Stemmer(name, 0)
    return made[name]


@lru_cache(maxsize=1 << 16)
def stem(word: str, language: str = "en") -> str:
    """The stem of one word, folded, accents of Latin letters dropped: "Cafés" and "cafe" meet.

    A word in another script than the language's is stemmed by its own script's language.

    >>> stem("Connections"), stem("Häuser", "de"), stem("машины", "en")
    ('connect', 'haus', 'машин')
    """
    folded = fold(word)
    if folded.isascii():
        stemmer = _stemmer(language)
        return (stemmer.stemWord(folded) if stemmer else folded).replace("'", "")
    letter = next((c for c in folded if c.isalpha()), "a")
    script = script_of(letter)
    stemmer = _stemmer(_BY_SCRIPT.get(script, language))
    stemmed = stemmer.stemWord(folded) if stemmer else folded
    return _plain_letters(stemmed).replace("'", "") if script == "latin" else stemmed.replace("ё", "е")


def _plain_letters(word: str) -> str:
    plain = "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
    return plain.replace("ø", "o").replace("æ", "ae").replace("œ", "oe").replace("ł", "l")


def is_stop_word(word: str, language: str = "en") -> bool:
    """Whether a word is a function word of the language (Russian ones are known in every language)."""
    folded = fold(word)
    return folded in STOP_WORDS.get(language, frozenset()) or (not folded.isascii() and folded in STOP_WORDS["ru"])


@lru_cache(maxsize=1 << 16)
def _word_keys(text: str, language: str) -> tuple[str, ...]:
    folded = fold(text)
    if language in ("fr", "it", "ca"):
        folded = _ELISION.sub("", folded)
    if is_stop_word(folded, language) and not (len(text) > 1 and text.isupper() and text.isascii()):
        return ()
    stemmed = stem(folded, language)
    return (stemmed,) if stemmed else ()


def keys(word: Word, language: str = "en") -> tuple[str, ...]:
    """The terms of one word: none for a stop word, several for a compound, an identifier or an address.

    >>> keys(Word("parse_url", 0, 9, "identifier"))
    ('parse_url', 'pars', 'url')
    """
    if word.kind == "word":
        return _word_keys(word.text, language)
    if word.kind == "characters":
        return _pairs(word.text)
    return _compound_keys(word.text, word.kind, language)


@lru_cache(maxsize=1 << 14)
def _compound_keys(text: str, kind: Kind, language: str) -> tuple[str, ...]:
    whole = fold(text)
    if kind == "number":
        return (_plain_number(whole),)
    if kind == "version":
        number = whole.removeprefix("v")
        pieces = number.split(".")
        return _unique(number, ".".join(pieces[:2]) if len(pieces) > 2 else number)
    if kind == "date":
        year = re.search(r"\d{4}", whole)
        return _unique(whole, whole[:7] if re.match(r"\d{4}-\d{2}-", whole) else whole, year.group() if year else whole)
    if kind == "acronym":
        return (whole.replace(".", ""),)
    if kind == "url":
        text = text.split("://", 1)[-1].removeprefix("www.").rstrip("/")
        whole = fold(text)
    elif whole.endswith("'s"):
        text, whole = text[:-2], whole[:-2]
    parts = [part for piece in _PIECES.findall(_SEPARATORS.sub(" ", text)) for part in _camel_parts(piece)]
    stems = [key for part in parts if len(part) > 1 or part.isdigit() or kind == "compound" for key in _word_keys(part, language)]
    if kind == "compound":
        joined = whole.replace("-", "")
        return _unique(*stems, *((joined if len(parts) > 2 else stem(joined, language),) if len(joined) <= 24 else ()))
    return _unique(whole, *stems)


def _camel_parts(piece: str) -> list[str]:
    return _CAMEL_PARTS.findall(piece) if not piece.islower() else re.findall(r"\d+|[^\W\d_]+", piece)


def _plain_number(number: str) -> str:
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number):
        return number.replace(",", "")
    return number.replace(",", ".")


def _unique(*found: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for key in found if key))


@lru_cache(maxsize=1 << 14)
def _pairs(run: str) -> tuple[str, ...]:
    folded = fold(run)
    if len(folded) == 1:
        return (folded,)
    found = (folded[i : i + 2] for i in range(len(folded) - 1))
    # Two hiragana in a row are grammar or an ending far more often than a word, but a run of nothing else is all there is.
    drop_hiragana = _HIRAGANA_PAIR.fullmatch(folded) is None and not re.fullmatch("[\u3041-\u309f]+", folded)
    return tuple(
        p for p in found if p not in STOP_PAIRS and not (drop_hiragana and p[0] in "のはがをにでともへ" and p[1] in "のはがをにでともへ")
    )


def terms_with_offsets(text: str, language: str | None = None) -> list[Term]:
    """`terms`, each with the place of the word it came from (for a pair of characters: of the pair)."""
    chosen = language or guess_language(text)
    found: list[Term] = []
    for word in tokenise(text):
        if word.kind == "characters":
            found.extend(_pairs_with_offsets(word))
        else:
            found.extend(Term(key, word.start, word.end) for key in keys(word, chosen))
    return found


def _pairs_with_offsets(word: Word) -> Iterator[Term]:
    found = _pairs(word.text)
    if len(word.text) == len(fold(word.text)):
        at = 0
        for pair in found:
            at = word.text.find(pair, at) if pair in word.text[at:] else at
            yield Term(pair, word.start + at, word.start + at + len(pair))
    else:  # half-width forms change their length: the run is as exact as it gets
        yield from (Term(pair, word.start, word.end) for pair in found)


def terms(text: str, language: str | None = None) -> list[str]:
    """The terms of a text, in order and with repeats: what an index holds and what a question asks for.

    `language` is an ISO 639-1 code; without one it is guessed, English when nothing tells.

    >>> terms("Which databases did the users' team choose for version 3.11.7?")
    ['databas', 'user', 'team', 'choos', 'version', '3.11.7', '3.11']
    """
    chosen = language or guess_language(text)
    found: list[str] = []
    for chunk in _CHUNK.findall(text):
        found.extend(_chunk_keys(chunk, chosen) if len(chunk) <= _CACHED else _uncached_keys(chunk, chosen))
    return found


def _uncached_keys(chunk: str, language: str) -> tuple[str, ...]:
    return tuple(key for word in tokenise(chunk) for key in keys(word, language))


_CACHED = 40  # longer chunks (addresses, runs without spaces) hardly ever come again
_chunk_keys = lru_cache(maxsize=1 << 16)(_uncached_keys)
