"""Secrets told in plain words: "my PIN is 4711", "Passwort ist Sonnenblume", twelve words of a wallet (M10).

`secret_forms` knows the keys of services by their form and takes them out of any text. Here nothing is taken out: a sentence that tells
a secret is no fact at all, in whatever language its "is" stands, and nothing of it is kept, not even for review. Some secrets are known by
their form alone (cards, bank accounts, codes in groups, runs of words without grammar), others by what is said beside them, and what
answers a question for a password is taken for one. What none of these forms has is told by how a message reads (`wording.py`).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from holdfast.memory.facts import Turn
from holdfast.memory.word_lists import word_lists
from holdfast.memory.wording import reads_secret
from holdfast.secret_forms import find_secrets
from holdfast.text.language import STOP_WORDS
from holdfast.text.sentences import split_sentences

_LISTS = word_lists("spoken_secrets")
_SAID = tuple(
    (kind, _LISTS.pattern(name, re.IGNORECASE))
    for kind, name in (
        ("password", "password_is"),
        ("password", "cjk_password_is"),
        ("code", "code_is"),
        ("password", "login_with"),
        ("password", "named_anywhere"),
        ("number of a person", "national_number"),
    )
)
_OTHER_NUMBER, _ASKED_FOR = _LISTS.pattern("other_number", re.IGNORECASE), _LISTS.pattern("asked_for_secret", re.IGNORECASE)
_CARD = re.compile(r"(?<![\d.-])(?:[2-6]\d{12,18}|[2-6]\d{3}(?:[ -]\d{4}){2}[ -]\d{1,7}|3\d{3}[ -]\d{6}[ -]\d{5})(?![\d-])")
_ACCOUNT = re.compile(r"(?<![A-Za-z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?(?![A-Za-z0-9])", re.IGNORECASE)
_CODE = re.compile(r"(?<![\w/.-])(?:[A-Z0-9]{4,6}(?:-[A-Z0-9]{4,6}){1,7}|[a-z0-9]{4,6}(?:-[a-z0-9]{4,6}){1,7})(?![\w/-])", re.ASCII)
_LONG_NUMBER = re.compile(r"(?<![\d.,/-])\d(?:[ -]?\d){8,}(?![\d/])")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_PERSON_CODE = re.compile(r"\b(?:[A-Z]{4}\d{6}[A-Z0-9]{8}|[XYZ]?\d{7,8}-?[A-Z]|\d{17}[\dXx])\b")
_BY_WORDING = "told in plain words"
_SMALL_WORDS = frozenset(word for words in STOP_WORDS.values() for word in words)
_STRAY = 2  # small words that may stand among the words of a wallet by chance ("again", "this")
_JOINING = frozenset(_LISTS.words("joining"))
_RUN = re.compile(r"(?<![^\W\d_])[^\W\d_]+(?:[ 　][^\W\d_]+){10,}")
_KANA_RUN = re.compile("(?<![\u3040-\u30ff\u4e00-\u9fff])[\u3040-\u30ff\u4e00-\u9fff]+(?:[ 　、][\u3040-\u30ff\u4e00-\u9fff]+){7,}")


@lru_cache(maxsize=2048)
def find_spoken_secret(text: str) -> str | None:
    """The kind of the secret that a text tells, or None.

    >>> find_spoken_secret("My PIN is 4711"), find_spoken_secret("My password manager is Bitwarden")
    ('code', None)
    """
    plain = unicodedata.normalize("NFKC", text).replace("’", "'")
    found = _by_form(plain)
    if found:
        return found
    for kind, pattern in _SAID:
        if pattern.search(plain):
            return kind
    return None


def tells_secret(text: str, turns: Sequence[Turn] = ()) -> str | None:
    """The kind of the secret in a proposed text: one that it tells itself, or one that a turn tells in words which the text has."""
    found = find_spoken_secret(text)
    if found:
        return found
    words = _words(text)
    for place, turn in enumerate(turns):
        if turn.kind != "user":
            continue
        before = turns[place - 1] if place else None
        if before is not None and before.kind == "assistant" and len(turn.text) < 120 and _ASKED_FOR.search(before.text):
            if _shares(words, turn.text):
                return "answer to a question for a secret"
            continue
        earlier = next((one.text for one in reversed(turns[:place]) if one.kind == "user"), "")
        for told in (turn.text, f"{earlier}\n{turn.text}" if earlier else ""):
            if told and reads_secret(told) > 0 and _shares(words, told):
                return _BY_WORDING
        said = [unit.text for unit in split_sentences(turn.text)]
        for one, following in zip(said, [*said[1:], ""], strict=False):  # "My backup codes. The first is ..." tells it in two
            kind = find_spoken_secret(one) or (find_spoken_secret(f"{one.rstrip(' .。')}, {following}") if following else None)
            if kind and _shares(words, f"{one} {following}"):
                return kind
    return None


def _shares(words: frozenset[str], sentence: str) -> bool:
    """Whether a word of the text stands in the sentence, in writing without spaces as well."""
    lowered = sentence.lower()
    return any(word in lowered for word in words if len(word) > 2)


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in re.findall(r"[\w#!.$@%&*-]{2,}", text.lower()) if word not in _SMALL_WORDS)


def _by_form(text: str) -> str | None:
    if _CARD.search(text):
        return "card"
    if any(sum(c.isdigit() for c in match.group()) > 7 for match in _ACCOUNT.finditer(text)):
        return "bank account"
    if any(_is_code(match.group()) for match in _CODE.finditer(text)):
        return "code"
    if _PERSON_CODE.search(text):
        return "number of a person"
    if any(not _DATE.search(match.group()) for match in _LONG_NUMBER.finditer(text)) and not _OTHER_NUMBER.search(text):
        return "long number"
    if any(_is_phrase(match.group()) for match in _RUN.finditer(text)) or _KANA_RUN.search(text):
        return "seed phrase"
    return "key" if find_secrets(text) else None


def _is_code(run: str) -> bool:
    groups = run.split("-")
    return (
        any(c.isdigit() for c in run) and any(c.isalpha() for c in run) and all(g.isupper() or any(c.isdigit() for c in g) for g in groups)
    )


def _is_phrase(run: str) -> bool:
    """Words without grammar: eleven in a row, none very short, and hardly one a small one. Sentences of all languages have more."""
    words = run.lower().split()
    runs = (words[at : at + 11] for at in range(len(words) - 10))
    return any(
        len(set(run)) > 8 and min(map(len, run)) > 2 and sum(word in _SMALL_WORDS for word in run) <= _STRAY and not _JOINING & set(run)
        for run in runs
    )
