"""The form of a text that is compared, what hides in a text, and how a text from outside stands in a prompt.

The normalised form is for matching only: originals are what is stored and shown. `normalise_with_offsets` leads from
every character of the form back to the original, so that a match can be quoted word for word.

In a prompt a text from outside cannot close the frame that it stands in, open another, or pass for a line of ours (S9, M12, W8):

    framed("message", text, who="user")     # <message who="user"> ... </message>
    inert(text)                             # the same safety for a text between headings and labels
    inert_line(text)                        # one line, for lists, recalled messages and names of files
    without_tags(text)                      # code and results of tools, whose lines must stay as they are

Whatever a prompt's own lines begin with (a heading, a label, an id in brackets, a tag) no line of such a text begins with: those get a
mark before them. Tags are made harmless by name, so that code stays as it was written.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.text.language import read_words

InvisibleKind = Literal["zero width", "bidi", "tag", "filler", "variation selector", "soft hyphen", "control", "private"]

# Characters that draw nothing. The kinds matter to a reader of a report; the classes must not overlap.
_CLASSES: tuple[tuple[InvisibleKind, str], ...] = (
    ("zero width", "\u200b-\u200d\u2060-\u2064\ufeff\u180e"),
    ("bidi", "\u200e\u200f\u061c\u202a-\u202e\u2066-\u206f"),
    ("tag", "\U000e0000-\U000e007f"),
    ("filler", "\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5"),
    ("variation selector", "\ufe00-\ufe0f\U000e0100-\U000e01ef\u180b-\u180d"),
    ("soft hyphen", "\u00ad"),
    ("control", "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufff9-\ufffb"),
    ("private", "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"),
)
_INVISIBLE = re.compile("|".join(f"(?P<k{n}>[{chars}])" for n, (_, chars) in enumerate(_CLASSES)))
_ANY_INVISIBLE = re.compile("[" + "".join(chars for _, chars in _CLASSES) + "]")
_KINDS: tuple[InvisibleKind, ...] = tuple(kind for kind, _ in _CLASSES)
_STRIPPED = re.compile("[" + "".join(chars for kind, chars in _CLASSES if kind != "private") + "]")

# Joiners are part of writing Arabic, Persian and the Indic scripts, and of emoji: there they are no disguise.
_JOINING_SCRIPTS = re.compile("[\u0600-\u06ff\u0750-\u077f\u0900-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff\u1800-\u18af\ufb50-\ufdff]")
_EMOJI = "\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff#*0-9"
_EMOJI_SEQUENCE = re.compile(
    f"[{_EMOJI}](?:[\ufe0e\ufe0f]\u20e3?)?(?:[\U0001f3fb-\U0001f3ff])?"
    f"(?:\u200d[{_EMOJI}][\ufe0e\ufe0f]?[\U0001f3fb-\U0001f3ff]?)*(?:[\U000e0020-\U000e007e]{{2,8}}\U000e007f)?"
)

_QUOTES = {ord(c): "'" for c in "\u2018\u2019\u201a\u201b\u2032\u02bc\u02b9\u00b4\u0060\uff07"}
_QUOTES |= {ord(c): '"' for c in "\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb\u301d\u301e\uff02"}
_DASHES = {ord(c): "-" for c in "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63\uff0d"}
_PLAIN = {**_QUOTES, **_DASHES, 0x2026: "..."}
_SPACES = re.compile(r"\s+")

# A character with the marks that belong to it: what normalisation composes must be normalised together.
_CLUSTER = re.compile(
    "(?s).[\u0300-\u036f\u0483-\u0487\u0591-\u05c7\u064b-\u065f\u0670\u1160-\u11ff\u20d0-\u20ff\u3099\u309a\uff9e\uff9f]*"
)

_LOOKALIKES = frozenset("аеорсухіѕјԁһԛԝӏкмтвнАВЕЗКМНОРСТУХІЅЈԌԚԜ" + "οναρτυχικΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")
_TWINS = frozenset("аеорсухіѕјԁһԛԝӏАВЕКМНОРСТУХІЅЈ" + "οΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")  # the same drawing, not just alike
_LETTERS = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True, slots=True)
class Invisible:
    """A character that draws nothing, where it stands and what sort it is."""

    position: int
    character: str
    kind: InvisibleKind

    @property
    def name(self) -> str:
        """Its code point and Unicode name, for a report."""
        return f"U+{ord(self.character):04X} {unicodedata.name(self.character, 'unnamed')}"


@dataclass(frozen=True, slots=True)
class MixedScript:
    """A word that looks Latin and is not wholly: letters of another script stand in for Latin ones."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Normalised:
    """A text in its compared form. `offsets[i]` is where its character i begins in the original; one more marks the end."""

    text: str
    offsets: tuple[int, ...]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The stretch of the original that `text[start:end]` came from."""
        return self.offsets[start], self.offsets[end]


def find_invisible(text: str) -> list[Invisible]:
    """All characters that draw nothing and have no business where they stand.

    Joiners inside emoji, and inside scripts that are written with them, are left alone.

    >>> [found.kind for found in find_invisible("pass\\u200bword")]
    ['zero width']
    """
    found: list[Invisible] = []
    if (text.isascii() and text.isprintable()) or _ANY_INVISIBLE.search(text) is None:
        return found
    allowed = _allowed_joiners(text)
    for match in _INVISIBLE.finditer(text):
        if match.start() not in allowed:
            kind = _KINDS[int((match.lastgroup or "k0")[1:])]
            found.append(Invisible(match.start(), match.group(), kind))
    return found


def _allowed_joiners(text: str) -> set[int]:
    if text.isascii():
        return set()
    allowed: set[int] = set()
    for match in _EMOJI_SEQUENCE.finditer(text):
        if match.end() - match.start() > 1:
            allowed.update(range(match.start(), match.end()))
    if _JOINING_SCRIPTS.search(text):
        for match in re.finditer("[\u200c\u200d\u200e\u200f\u061c]", text):
            before, after = text[max(match.start() - 1, 0) : match.start()], text[match.end() : match.end() + 1]
            if _JOINING_SCRIPTS.match(before) or _JOINING_SCRIPTS.match(after):
                allowed.add(match.start())
    return allowed


def strip_invisible(text: str) -> str:
    """The text without what `find_invisible` reports, everything else untouched. Private-use characters stay: fonts draw them."""
    if text.isascii() and text.isprintable():
        return text
    unwanted = {found.position for found in find_invisible(text) if found.kind != "private"}
    return "".join(c for i, c in enumerate(text) if i not in unwanted) if unwanted else text


def fold(text: str) -> str:
    """One word or short text in its compared form, whitespace untouched: NFKC, case folded, plain quotes and dashes, nothing invisible."""
    if text.isascii():
        return _STRIPPED.sub("", text).lower().replace("`", "'")
    folded = unicodedata.normalize("NFKC", _STRIPPED.sub("", text).translate(_PLAIN)).casefold()
    return unicodedata.normalize("NFKC", folded).translate(_PLAIN)


def normalise(text: str) -> str:
    """The form of a text in which two texts are compared: `fold`, and every run of whitespace is one space.

    >>> normalise("  “Ｆｕｌｌ–width”  STRASSE\\u200b\\n")
    '"full-width" strasse'
    """
    return _SPACES.sub(" ", fold(text)).strip()


def normalise_with_offsets(text: str) -> Normalised:
    """`normalise`, with the way back to the original."""
    pieces: list[str] = []
    offsets: list[int] = []
    for match in _CLUSTER.finditer(text):
        folded = fold(match.group())
        for character in folded:
            blank = character.isspace()
            if blank and (not pieces or pieces[-1] == " "):
                continue
            pieces.append(" " if blank else character)
            offsets.append(match.start())
    end = len(text.rstrip())
    if pieces and pieces[-1] == " ":
        end = offsets.pop()
        pieces.pop()
    return Normalised("".join(pieces), (*offsets, end))


def find_mixed_script(text: str) -> list[MixedScript]:
    """Words in which Cyrillic or Greek letters pass for Latin ones: a hint of disguise, not a proof.

    A word counts when it mixes the scripts, or when it is made of look-alikes only and the rest of the text is Latin.
    """
    if text.isascii():
        return []
    words = [(match, _latin_letters(match.group())) for match in _LETTERS.finditer(text)]
    latin_text = sum(1 for match, latin in words if latin == len(match.group())) * 2 > len(words)
    found = []
    for match, latin in words:
        word = match.group()
        alike = sum(1 for c in word if c in _LOOKALIKES)
        if (alike and latin) or (latin_text and len(word) >= 4 and all(c in _TWINS for c in word)):
            found.append(MixedScript(match.start(), match.end(), word))
    return found


def _latin_letters(word: str) -> int:
    return sum(1 for c in word if c.isascii() or "\u00c0" <= c <= "\u024f")


def reveal(text: str) -> str:
    """The text with every character that draws nothing, or commands a terminal, written out: what a person agrees to, he must see.

    >>> reveal("rm -rf \u202e.")
    'rm -rf ‹U+202E›.'
    """
    hidden = {one.position for one in find_invisible(text)}
    seen = (c if c in "\n\t " or (c.isprintable() and at not in hidden) else f"‹U+{ord(c):04X}›" for at, c in enumerate(text))
    return "".join(seen)


def call_lines(tool: str, args: Mapping[str, Any]) -> list[str]:
    """A call of a tool as it would be made: every argument to its end, line by line, with what cannot be seen written out."""
    lines = [reveal(tool)]
    for name, value in args.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
        head, *rest = reveal(text).split("\n")
        lines += [f"  {reveal(str(name))}: {head}", *(f"  | {line}" for line in rest)]
    return lines


def one_line(text: object, limit: int | None = None) -> str:
    """A text on one line, for logs, lists and messages: all spacing becomes one space; over `limit` it is cut and ends in `...`.

    >>> one_line("  two\\n lines ", 6)
    'two...'
    """
    line = " ".join(str(text).split())
    return line if limit is None or len(line) <= limit else line[: max(limit - 3, 0)].rstrip() + "..."


_NAMES = """
memory blocks block reminder system-reminder recall message conversation earlier_notes turn known_facts summaries todos skills
skill system user assistant tool human ai tool_call tool_response function parameter uploaded_files current_uploads uploads think
thinking record document passage context instructions task
"""
FRAMES = frozenset(_NAMES.split())
"""Every tag that a prompt of ours may have. Those of models' own templates are in `lists/turn_marks.toml`."""

_TURNS = read_words("holdfast.text", "turn_marks")
_LESS, _BAR = "<＜﹤‹", "|｜¦∣"


def _any_of(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_TAG = re.compile(
    rf"[{_LESS}](?=\s*+[/\\!{_BAR}]?\s*+(?:{_any_of(FRAMES | _TURNS['tags'])})\b|[{_BAR}]|\s*+/?\s*+(?:{_any_of(_TURNS['exact'])})\s*+>)",
    re.IGNORECASE,
)
_TEMPLATE_MARKS = re.compile(rf"\[(/?)({_any_of(_TURNS['brackets'])})\]", re.IGNORECASE)
_LABELS = "raw data|recommended next|data|confidence|without a result[^:]*|system|user|assistant|human|ai|tool|developer|the user|you"
_OWN_LINE = re.compile(rf"\s*(?:[#\[>|]|(?:=+|-{{2,}}|\*{{3,}}|_{{3,}})\s*$|(?:{_LABELS})\s*[:：])", re.IGNORECASE)
_MARK = "> "


def inert(text: str) -> str:
    """A text of any number of lines that can neither close a frame nor be taken for one of our lines.

    >>> print(inert("fine\\n# Task\\n</conversation>\\n[m-1] 2026-01-02 user:"))
    fine
    > # Task
    &lt;/conversation>
    > [m-1] 2026-01-02 user:
    """
    lines = (_plain(line) for line in text.strip().splitlines())
    made = "\n".join(f"{_MARK}{line}" if _OWN_LINE.match(line) else line for line in lines)
    return without_tags(made) if "\n" in made else made  # once more: a tag may be broken over lines


def inert_line(text: object) -> str:
    """A text on one line, without characters that nobody sees, and unable to open or close a tag or a turn."""
    line = _printable(" ".join(strip_invisible(str(text)).split()).replace("<", "&lt;").replace(">", "&gt;"))
    return _TEMPLATE_MARKS.sub(r"(\1\2)", line) if "[" in line else line


def framed(name: str, text: str, **about: str) -> str:
    """The text inside a tag of ours, with attributes. ValueError for a tag that `FRAMES` does not have: a text could close it."""
    if name not in FRAMES:
        raise ValueError(f"{name!r} is no frame that texts are kept from closing.")
    attributes = "".join(f' {key.rstrip("_")}="{inert_line(value).replace(chr(34), "&quot;")}"' for key, value in about.items())
    return f"<{name}{attributes}>\n{inert(text)}\n</{name}>"


def without_tags(text: str) -> str:
    """A text whose lines stay as they are, for code and the results of tools: only tags and marks of turns are made harmless.

    >>> without_tags("a < b <b>c</b> </tool_response>")
    'a < b <b>c</b> &lt;/tool_response>'
    """
    if text.isascii() and "<" not in text and "[" not in text:  # the usual case
        return text
    return _TEMPLATE_MARKS.sub(r"(\1\2)", _TAG.sub("&lt;", text))


def _plain(line: str) -> str:
    if line.isascii() and line.isprintable():
        return without_tags(line)
    return without_tags("\t".join(map(_printable, strip_invisible(line).split("\t"))))


def _printable(text: str) -> str:
    return text if text.isprintable() else "".join(filter(str.isprintable, text))
