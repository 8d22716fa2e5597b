"""A text that is to be forgotten: where it stands, and what is left without it (M14).

    needle = Needle("Elm Street 5")
    needle.in_text("He lives at elm  street 5.")          # True: case, quotes and spacing do not matter
    needle.without("Ask Ada. He lives at Elm Street 5.")  # 'Ask Ada. [forgotten]'

The one idea of it for memory, sessions, archives and knowledge, so that none of them overlooks what another one finds. In JSON only what
was said counts, and never what our own files are made of: names of members, states and kinds, times, ids.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from holdfast.clock import made_at
from holdfast.errors import InputError
from holdfast.text.language import read_words
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

FORGOTTEN = "[forgotten]"
"""What stands in place of a sentence that was forgotten."""

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LEVELS = 3  # JSON in a string of JSON in a string of JSON
_LONGEST_FORM = 160
_SHORTEST = 3  # characters; a text in a script that has no letters may have two
_OWN_FORM = re.compile(
    r"\d{4}-\d\d-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d))?"  # a time
    r"|(?:[a-z][a-z0-9]*[-_:]){0,3}[0-9a-f]{8,}(?:-[0-9a-f]{4}){0,3}(?:-[0-9a-f]{12})?|(?:[a-z][a-z0-9]*[-_:]){1,3}[0-9a-z]{12,32}"  # an id
    r"|[\w.-]+-\d{4}-\d\d-\d\d-\d{3,}"  # a session
    r"|(?:application|audio|image|text|video)/[\w.+-]+"
)
_MADE_HERE = re.compile(r"k-[0-9a-f]{30}|[A-Za-z][\w.-]*-\d{4}-\d\d-\d\d-\d{3,6}")  # a record without an id of its own, a session
_NUMBERED = re.compile(r"(?:fact_|(?:change|command|message|run|subagent|summary|thread|tool|update)-)[0-9a-z]{19}")
_BARE = re.compile(r"[\d.:-]+|[0-9a-f]{1,15}")  # no id of ours is as short, or has no letter in it
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)")
_YEARS = range(2020, 2100)


class Needle:
    """One or more texts to be forgotten. Immutable; safe for many threads.

    Found in any case, style of quotes, dashes and spacing, and with invisible characters in between. A text shorter than `whole_below`
    characters counts only where it is the whole of what is looked at. InputError if there is no text at all.
    """

    def __init__(self, *texts: str, whole_below: int = 0) -> None:
        self.normal = tuple(sorted({shown for text in texts if (shown := normalise(text))}))
        if not self.normal:
            raise InputError("the text to forget is empty.", hint="Give some words of it.")
        self._inside = tuple(text for text in self.normal if len(text) >= whole_below)

    @classmethod
    def asked(cls, text: str) -> Needle:
        """A text that somebody wants forgotten everywhere. InputError for one so short that it stands in everything."""
        needle = cls(text)
        if len(normalise(text)) < (_SHORTEST if text.isascii() else _SHORTEST - 1):
            raise InputError(f"{text!r} is too short: almost everything holds it.", hint="Give some words of what is to be forgotten.")
        return needle

    def in_text(self, text: str) -> bool:
        """Whether the text holds it."""
        shown = normalise(text)
        return shown in self.normal or any(one in shown for one in self._inside)

    def in_value(self, value: Any) -> bool:
        """Whether it stands anywhere in a JSON value that is not our own, names of members included."""
        return any(self.in_text(text) for text in strings_of(value))

    def in_member(self, name: str, value: Any) -> bool:
        """Whether it stands in the member of this name."""
        return any(self.in_text(text) for text in strings_of(value, name))

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes show it: as text in UTF-8 or UTF-16, or behind the escapes of JSON, also where the JSON itself is damaged."""
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") and self._shows(data.decode("utf-16", "ignore")):
            return True
        return self._shows(data.decode("utf-8", "replace"))

    def in_file(self, data: bytes) -> bool:
        """Whether a file holds it: of JSON, also of lines of JSON, what is said in it; else whatever its bytes show."""
        if not self.in_bytes(data) or (len(data) < _LONGEST_FORM and _OWN_FORM.fullmatch(data.decode("utf-8", "replace").strip())):
            return False
        try:
            return self.in_value(json.loads(data, object_pairs_hook=_each_once))
        except (ValueError, RecursionError):
            pass
        try:
            return any(self.in_value(json.loads(line, object_pairs_hook=_each_once)) for line in data.splitlines() if line.strip())
        except (ValueError, RecursionError):
            return True

    def _shows(self, text: str) -> bool:
        """Whether a text shows it, also behind the escapes of JSON."""
        for _ in range(_LEVELS + 1):
            shown = normalise(text)
            if any(one in shown for one in self.normal):
                return True
            plain = _ESCAPE.sub(_unescaped, text)
            if plain == text:
                return False
            text = plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # halves of a pair become one character
        return False

    def without(self, text: str, mark: str = FORGOTTEN) -> str:
        """The text with `mark` in place of each sentence that holds it; only the mark if it runs over the end of a sentence."""
        if not self.in_text(text):
            return text
        kept, at = [], 0
        for sentence in split_sentences(text):
            if self.in_text(sentence.text):
                kept += [text[at : sentence.start], mark]
                at = sentence.end
        rest = "".join([*kept, text[at:]])
        rest = rest if mark else " ".join(rest.split("  ")).strip()
        return mark if self.in_text(rest) else rest

    def out_of(self, value: Any, fixed: Collection[str] = (), mark: str = FORGOTTEN, *, name: str = "") -> tuple[Any, int]:
        """A JSON value, the member `name`, without it, and how many texts lost something. Members that are `fixed` stay, at every depth."""
        if isinstance(value, Mapping):
            return self._members(value, fixed, mark)
        if isinstance(value, list | tuple):
            pairs = [self.out_of(one, fixed, mark, name=name) for one in value]
            return [rest for rest, _ in pairs], sum(count for _, count in pairs)
        if _is_own(name, value):
            return value, 0
        if isinstance(value, str):
            rest: Any = self.without(value, mark)
        else:
            rest = mark if self.in_text(str(value)) else value
        return rest, int(rest is not value and rest != value)

    def _members(self, value: Mapping[str, Any], fixed: Collection[str], mark: str) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        total = 0
        for name, member in value.items():
            shown = name if name in _own("names") else self.without(name, mark)
            rest, count = (member, 0) if name in fixed else self.out_of(member, fixed, mark, name=name)
            while shown != name and (shown in members or shown in value):  # two names that both held it
                shown += "'"
            members[shown] = rest
            total += count + (shown != name)
        return members, total


@cache
def _own(which: str) -> frozenset[str]:
    return read_words("holdfast.text", "own_words")[which]


def _is_own(name: str, value: Any) -> bool:
    """Whether the value of a member of this name is nobody's text: a number of ours, a state, a time, an id; or none at all."""
    if value is None or isinstance(value, bool):
        return True
    if name not in _own("names") or name in _own("said"):
        return False
    if name in _own("given"):  # what people call things by looks like anything: a number of a telephone, a day, a word in hexadecimal
        if not isinstance(value, str):
            return name in ("sources", "threads")  # where it is how many there are
        return is_made_here(value) or (value in _own("values") and name not in _own("people"))
    if not isinstance(value, str):
        return True
    if len(value) >= _LONGEST_FORM or (name in ("id", "ids") and _BARE.fullmatch(value)):
        return False
    return value in _own("values") or _OWN_FORM.fullmatch(value) is not None


def is_made_here(value: str) -> bool:
    """Whether a text is exactly an id that was made here: with its prefix, and for a numbered one with the moment that is in it.

    >>> is_made_here("thread-1kpjcy7a85dm8wyhf3x"), is_made_here("thread-4915112345678"), is_made_here("deadbeefcafe99")
    (True, False, False)
    """
    if _NUMBERED.fullmatch(value):
        made = made_at(value.replace("_", "-"))
        return made is not None and made.year in _YEARS
    return len(value) < _LONGEST_FORM and _MADE_HERE.fullmatch(value) is not None


def is_own_word(word: str) -> bool:
    """Whether a word can be one of our own where nothing says in which member it stands: a name, a state, a moment, an id."""
    return word.lower() in _lower_words() or is_made_here(word) or _MOMENT.fullmatch(word.upper()) is not None


@cache
def _lower_words() -> frozenset[str]:
    return frozenset(word.lower() for word in _own("names") | _own("values"))


def strings_of(value: Any, name: str = "") -> Iterator[str]:
    """Every text in a JSON value, the member `name`, that is not our own; names of members included, bytes as far as they are text."""
    if isinstance(value, Mapping):
        for inner, member in value.items():
            if inner not in _own("names"):
                yield inner
            yield from strings_of(member, inner)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings_of(member, name)
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif not _is_own(name, value):
        yield str(value)


def _each_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The members of an object. ValueError for a name that stands twice: the first member would not be seen."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands twice")
    return found


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _PLAIN.get(match[2], match[2])
