"""A text that is to be forgotten: where it stands, and what is left without it (M14).

    needle = Needle("Elm Street 5")
    needle.in_text("He lives at elm  street 5.")          # True: case, quotes and spacing do not matter
    needle.without("Ask Ada. He lives at Elm Street 5.")  # 'Ask Ada. [forgotten]'

The one idea of it for memory, sessions, archives and knowledge, so that none of them overlooks what another one finds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from holdfast.errors import InputError
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

FORGOTTEN = "[forgotten]"
"""What stands in place of a sentence that was forgotten."""

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_PLAIN = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LEVELS = 3  # JSON in a string of JSON in a string of JSON


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

    def in_text(self, text: str) -> bool:
        """Whether the text holds it."""
        shown = normalise(text)
        return shown in self.normal or any(one in shown for one in self._inside)

    def in_value(self, value: Any) -> bool:
        """Whether it stands anywhere in a JSON value, keys included."""
        return any(self.in_text(text) for text in strings_of(value))

    def in_bytes(self, data: bytes) -> bool:
        """Whether bytes show it: as text in UTF-8 or UTF-16, or behind the escapes of JSON, also where the JSON itself is damaged."""
        if data[:2] in (b"\xff\xfe", b"\xfe\xff") and self._shows(data.decode("utf-16", "ignore")):
            return True
        return self._shows(data.decode("utf-8", "replace"))

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

    def out_of(self, value: Any, fixed: Collection[str] = (), mark: str = FORGOTTEN) -> tuple[Any, int]:
        """A JSON value without it, and how many texts lost something. Members whose names are `fixed` stay, at every depth."""
        if isinstance(value, str):
            rest = self.without(value, mark)
            return rest, int(rest != value)
        if isinstance(value, Mapping):
            return self._members(value, fixed, mark)
        if isinstance(value, list | tuple):
            pairs = [self.out_of(one, fixed, mark) for one in value]
            return [rest for rest, _ in pairs], sum(count for _, count in pairs)
        return value, 0

    def _members(self, value: Mapping[str, Any], fixed: Collection[str], mark: str) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        total = 0
        for name, member in value.items():
            shown = self.without(name, mark)
            rest, count = (member, 0) if name in fixed else self.out_of(member, fixed, mark)
            while shown != name and (shown in members or shown in value):  # two names that both held it
                shown += "'"
            members[shown] = rest
            total += count + (shown != name)
        return members, total


def strings_of(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included; bytes as far as they are text."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "replace")
    elif isinstance(value, Mapping):
        for name, member in value.items():
            yield from strings_of(name)
            yield from strings_of(member)
    elif isinstance(value, list | tuple):
        for member in value:
            yield from strings_of(member)


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _PLAIN.get(match[2], match[2])
