"""YAML text becomes plain values, every one with the place where it stands, and `$NAME` in them becomes what the environment says.

The text is data: only the plain types of YAML 1.2 are made, never an object. Aliases are copied under a limit on what they may grow
to, in values and in characters, nesting and size are limited, and a key that appears twice is an error. Whole numbers with a leading
zero and dates stay text, because ids look like that.

`$NAME`, `${NAME}` and `${NAME:-otherwise}` stand in any text of the file, `$$` is a dollar sign. They are read when the setting is used for
the first time, not when the file is loaded, so a key that is never needed may be missing. The folder for all state is found here too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from holdfast.errors import ConfigError, MissingVariable
from holdfast.redaction import redact_text
from holdfast.validation import place_of

KeyPath = tuple[str | int, ...]

MAX_BYTES = 1_000_000
MAX_HEAD = 64_000
"""The most bytes of a head: the values between two lines of dashes above a text. The parser takes about a second for so many."""
MAX_DEPTH = 40
MAX_VALUES = 50_000

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9_]{0,39})")
_OTHER_BASE = re.compile(r"0o[0-7]{1,20}|0x[0-9a-fA-F]{1,20}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]{1,100}|[0-9]{1,100}(\.[0-9]{0,100})?)([eE][-+]?[0-9]{1,3})?")
_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE = frozenset({"true", "True", "TRUE"})
_FALSE = frozenset({"false", "False", "FALSE"})
_INFINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_NOT_YAML = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HALF = re.compile("[\ud800-\udfff]")
_CORE = "tag:yaml.org,2002:"
_QUOTED = re.compile(r"'(?!<)[^']{3,}'|\"[^\"]{3,}\"")


class Place(NamedTuple):
    """Where a key or value stands: line and column from 1, and the characters it takes in the text."""

    line: int
    column: int
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """The values of a file, and the place of each key and value by its path. `flow` has the paths written in braces or brackets."""

    values: Any
    text: str = ""
    file: str | None = None
    keys: dict[KeyPath, Place] = field(default_factory=dict)
    places: dict[KeyPath, Place] = field(default_factory=dict)
    flow: frozenset[KeyPath] = frozenset()

    def line(self, path: KeyPath, *, of_key: bool = False) -> int | None:
        """The line of the value (or key) at the path; for a path that is not in the file, that of the nearest thing around it."""
        for length in range(len(path), 0, -1):
            here = path[:length]
            place = (self.keys.get(here) if of_key or length < len(path) else None) or self.places.get(here) or self.keys.get(here)
            if place is not None:
                return place.line
        return None

    def also_at(self, old: KeyPath, new: KeyPath) -> None:
        """Let what stands at one path be found at another one as well, because the setting goes by another name there."""
        for places in (self.keys, self.places):
            for path in [path for path in places if path[: len(old)] == old]:
                places.setdefault((*new, *path[len(old) :]), places[path])


def value_at(values: Any, path: KeyPath, otherwise: Any = None) -> Any:
    """What stands at a path below these values, or `otherwise`."""
    for part in path:
        try:
            values = values[part]
        except (KeyError, IndexError, TypeError):
            return otherwise
    return values


def dotted(path: KeyPath) -> str:
    """The path as people write it, for showing.

    >>> dotted(("models", 0, "api_key"))
    'models[0].api_key'
    """
    text = place_of(path)
    if not text.isprintable():
        text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
    return redact_text(text)  # a value that lost its key may stand where a key is expected


def read_yaml(source: str | bytes, file: str | PathLike[str] | None = None, *, most: int = MAX_BYTES) -> Reading:
    """The values of a YAML text with their places. An empty text reads as None. Raises ConfigError with the line of what is wrong.

    The one reader of YAML: of files that the user wrote, and of heads that strangers did. What it takes is bounded by `most` bytes.
    """
    name = fspath(file) if file is not None else None
    text = _decoded(source, name, most)
    builder = _Builder(text, name)
    try:
        root = builder.document(YAML(typ="safe", pure=True).parse(text))
    except YAMLError as error:
        raise _syntax_error(error, name) from None
    return builder.reading(root)


def read_head(text: str) -> Any:
    """The values of a head: a small YAML text above another text, by whoever wrote it. ConfigError with the line of it that is wrong."""
    return read_yaml(text, most=MAX_HEAD).values


def _decoded(source: str | bytes, file: str | None, most: int) -> str:
    if len(source) > most:
        raise ConfigError(f"it is larger than {most:,} bytes.", file=file, hint="Settings are far smaller: is this the right file?")
    if isinstance(source, bytes):
        wide = source.startswith((b"\xff\xfe", b"\xfe\xff"))
        try:
            text = source.decode("utf-16" if wide else "utf-8")
        except UnicodeDecodeError as error:
            line = source[: error.start].count(b"\n") + 1
            raise ConfigError("the file is not UTF-8 text.", file=file, line=line, hint="Save it with the encoding UTF-8.") from None
    else:
        text = source
    text = text.removeprefix("\ufeff")
    if (bad := _NOT_YAML.search(text)) is not None:
        line = text.count("\n", 0, bad.start()) + 1
        raise ConfigError(f"the character U+{ord(bad.group()):04X} is not allowed in YAML.", file=file, line=line, hint="Remove it.")
    return text


def _syntax_error(error: YAMLError, file: str | None) -> ConfigError:
    marks = [getattr(error, "problem_mark", None), getattr(error, "context_mark", None)]
    if "end of stream" in str(getattr(error, "problem", "")):
        marks.reverse()  # something was never closed: where it begins says more than where the file ends
    mark = marks[0] or marks[1]
    parts = [part for part in (getattr(error, "context", None), getattr(error, "problem", None)) if part]
    # the parser quotes single characters, but also tags and names, which may be part of a secret that was not put in quotes
    reason = _QUOTED.sub("'...'", ": ".join(str(part) for part in parts) or "it cannot be parsed")
    hint = "Indent with spaces instead." if "'\\t'" in reason else None
    return ConfigError(f"this is not valid YAML: {reason}.", file=file, line=mark.line + 1 if mark is not None else None, hint=hint)


@dataclass
class _Node:
    """A value as it stands in the text: `value` is a scalar, a list of nodes, or a list of (key node, value node)."""

    value: Any
    kind: str
    place: Place
    flow: bool = False

    @property
    def is_unwritten(self) -> bool:
        return self.kind == "scalar" and self.place.start == self.place.end


class _Builder:
    """Puts values together from the events of the parser, without recursion until the depth is known to be small."""

    def __init__(self, text: str, file: str | None) -> None:
        self._text = text
        self._file = file
        self._anchors: dict[str, _Node] = {}
        self._keys: dict[KeyPath, Place] = {}
        self._places: dict[KeyPath, Place] = {}
        self._flow: set[KeyPath] = set()
        self._count = 0
        self._room = len(text)

    def _error(self, message: str, line: int, *, hint: str | None = None, key: str | None = None) -> ConfigError:
        return ConfigError(message, file=self._file, line=line, key=key, hint=hint)

    def document(self, events: Iterator[Event]) -> _Node | None:
        """The one document of the text, or None when there is none."""
        root: _Node | None = None
        documents = 0
        stack: list[tuple[_Node, list[_Node]]] = []
        for event in events:
            if isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent):
                continue
            if isinstance(event, DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._error(
                        "a second document begins here.", event.start_mark.line + 1, hint="Put everything before the line `---`."
                    )
                continue
            if isinstance(event, MappingEndEvent | SequenceEndEvent):
                node, children = stack.pop()
                node.value = list(zip(children[::2], children[1::2], strict=True)) if node.kind == "mapping" else children
                node.place = node.place._replace(end=event.end_mark.index)
                continue
            node = self._node(event)
            if stack and node.is_unwritten and stack[-1][0].kind == "mapping" and len(stack[-1][1]) % 2:
                node.place = self._after(stack[-1][1][-1])
            if stack:
                stack[-1][1].append(node)
            else:
                root = node
            if isinstance(event, MappingStartEvent | SequenceStartEvent):
                if len(stack) >= MAX_DEPTH:
                    raise self._error(f"this is nested deeper than {MAX_DEPTH} levels.", event.start_mark.line + 1)
                stack.append((node, []))
        return root

    def _node(self, event: Any) -> _Node:
        mark, end = event.start_mark, event.end_mark
        place = Place(mark.line + 1, mark.column + 1, mark.index, end.index)
        if isinstance(event, AliasEvent):
            node = self._anchors.get(str(event.anchor))
            if node is None:
                raise self._error(
                    "a value that begins with * is an alias, and nothing above has its name.",
                    place.line,
                    hint="Put the value in quotes if it is text.",
                )
            if node.value is None and node.kind != "scalar":
                raise self._error("this alias contains itself.", place.line)
            return node
        if isinstance(event, ScalarEvent):
            node = _Node(self._scalar(event, place.line), "scalar", place)
        else:
            kind = "mapping" if isinstance(event, MappingStartEvent) else "list"
            self._check_tag(event, kind, place.line)
            node = _Node(None, kind, place, flow=bool(event.flow_style))
        if event.anchor is not None:
            self._anchors[str(event.anchor)] = node
        return node

    def _after(self, key: _Node) -> Place:
        """The place of a value that is not written: right after the colon of its key, not at the next thing in the file."""
        colon = self._text.find(":", key.place.end)
        end = colon + 1 if colon >= 0 and not self._text[key.place.end : colon].strip() else key.place.end
        return key.place._replace(start=end, end=end)

    def _check_tag(self, event: Any, kind: str, line: int) -> None:
        tag = str(event.tag or "")
        if tag not in ("", "!", _CORE + ("map" if kind == "mapping" else "seq")):
            raise self._error("a tag (a word that begins with !) is not allowed here.", line, hint="Put the value in quotes if it is text.")

    def _scalar(self, event: Any, line: int) -> Any:
        tag = str(event.tag or "")
        text = self._whole(str(event.value), line)
        if tag == "" and event.implicit[0] and not event.style:
            return plain_value(text)
        if tag in ("", "!", _CORE + "str"):
            return text
        value = plain_value(text)
        fits: tuple[type, ...] = {"int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),)}.get(
            tag.removeprefix(_CORE), ()
        )
        if not isinstance(value, fits):
            raise self._error("a tag (a word that begins with !) does not fit its value here.", line, hint="Leave the tag out.")
        return value

    def _whole(self, text: str, line: int) -> str:
        """Characters beyond the first plane that are escaped as two halves, the way JSON does, as the one character they are."""
        if not _HALF.search(text):
            return text
        try:
            return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        except UnicodeDecodeError:
            raise self._error("an escape stands for half a character.", line, hint="Write the character itself.") from None

    def reading(self, root: _Node | None) -> Reading:
        values = self._value(root, (), 0) if root is not None else None
        return Reading(values, self._text, self._file, self._keys, self._places, frozenset(self._flow))

    def _value(self, node: _Node, path: KeyPath, depth: int) -> Any:
        self._count += 1
        if self._count > MAX_VALUES or depth > MAX_DEPTH:
            raise self._error(
                f"the file holds more than {MAX_VALUES:,} values or {MAX_DEPTH} levels once its aliases are filled in.", node.place.line
            )
        self._places[path] = node.place
        if node.flow:
            self._flow.add(path)
        if node.kind == "scalar":
            self._fill(node.value, node)
            return node.value
        if node.kind == "list":
            return [self._value(child, (*path, index), depth + 1) for index, child in enumerate(node.value)]
        return self._mapping(node, path, depth)

    def _fill(self, value: Any, node: _Node) -> None:
        """What stands in a text takes no more room than the text; only aliases do, and a long value behind many of them is a great one."""
        self._room -= len(value) if isinstance(value, str) else 0
        if self._room < -MAX_HEAD:
            raise self._error("the file grows too large once its aliases are filled in.", node.place.line, hint="Write the values out.")

    def _mapping(self, node: _Node, path: KeyPath, depth: int) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: list[_Node] = []
        for key_node, child in node.value:
            if self._text[key_node.place.start : key_node.place.end] == "<<":
                merged.extend(child.value if child.kind == "list" else [child])
                continue
            key = self._key(key_node)
            self._fill(key, key_node)
            if key in values:
                first = self._keys[(*path, key)].line
                raise self._error(f"this key appears twice; it is also on line {first}.", key_node.place.line, key=dotted((*path, key)))
            self._keys[(*path, key)] = key_node.place
            values[key] = self._value(child, (*path, key), depth + 1)
        for other in merged:
            self._merge(other, values, path, depth)
        return values

    def _merge(self, other: _Node, values: dict[str, Any], path: KeyPath, depth: int) -> None:
        """Fill in what `<<` brings: keys that are written out win over it, and an earlier one over a later one."""
        if other.kind != "mapping":
            raise self._error("`<<` takes a mapping, or a list of mappings.", other.place.line)
        for key_node, child in other.value:
            key = self._key(key_node)
            if key not in values:
                self._fill(key, key_node)
                self._keys[(*path, key)] = key_node.place
                values[key] = self._value(child, (*path, key), depth + 1)

    def _key(self, node: _Node) -> str:
        written = self._text[node.place.start : node.place.end]
        if node.kind != "scalar" or (node.value is None and written == ""):
            raise self._error("a key must be a word.", node.place.line)
        return node.value if isinstance(node.value, str) else written


def plain_value(text: str) -> Any:
    """What a word without quotes means: nothing, true or false, a number, or itself.

    >>> [plain_value(word) for word in ("8080", "0.7", "true", "null", "007", "2026-04-19")]
    [8080, 0.7, True, None, '007', '2026-04-19']
    """
    if text in _NULL:
        return None
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    if _INTEGER.fullmatch(text):
        return int(text.replace("_", ""))
    if _OTHER_BASE.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text) and not text.lstrip("+-").isdigit():
        return float(text)
    if _INFINITE.fullmatch(text):
        return float(text.replace(".", "", 1))
    return text


_DOLLAR = re.compile(
    r"\$(?:(?P<escape>\$)|(?P<bare>[A-Za-z_][A-Za-z0-9_]*)|\{(?P<braced>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<otherwise>[^}]*))?\})"
)


@dataclass(frozen=True)
class EnvironmentReference:
    """A text of the file that names variables. Knows where it stands; what it stands for is read only by `value`."""

    template: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables it names, each once, in the order of the text."""
        found = (match["bare"] or match["braced"] for match in _DOLLAR.finditer(self.template))
        return tuple(dict.fromkeys(name for name in found if name))

    def missing(self) -> tuple[str, ...]:
        """The variables that are not set now and have no `:-` value."""
        return tuple(dict.fromkeys(name for name, otherwise in self._parts() if otherwise is None and name not in self.environ))

    def value(self) -> str:
        """The text with the variables filled in. Raises MissingVariable for one that is not set."""
        missing = self.missing()
        if missing:
            raise MissingVariable(missing[0], file=self.file, line=self.line, key=self.key)
        return _DOLLAR.sub(self._filled, self.template)

    def _parts(self) -> Iterator[tuple[str, str | None]]:
        for match in _DOLLAR.finditer(self.template):
            if not match["escape"]:
                yield match["bare"] or match["braced"], match["otherwise"]

    def _filled(self, match: re.Match[str]) -> str:
        if match["escape"]:
            return "$"
        found = self.environ.get(match["bare"] or match["braced"])
        # as in a shell, `:-` also stands in for a variable that is empty
        return match["otherwise"] if match["otherwise"] is not None and not found else found or ""

    def __str__(self) -> str:
        return self.template


def mark(value: Any, path: KeyPath, reading: Reading, environ: Mapping[str, str]) -> Any:
    """The value with each text that names a variable replaced by a reference, and `$$` in the other texts by a dollar sign."""
    if isinstance(value, str) and "$" in value:
        found = [match["bare"] or match["braced"] for match in _DOLLAR.finditer(value)]
        if any(found):
            return EnvironmentReference(value, reading.file, reading.line(path), dotted(path), environ)
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: mark(item, (*path, key), reading, environ) for key, item in value.items()}
    if isinstance(value, list):
        return [mark(item, (*path, index), reading, environ) for index, item in enumerate(value)]
    return value


def references(value: Any) -> Iterator[EnvironmentReference]:
    """Every reference inside the value, in order."""
    if isinstance(value, EnvironmentReference):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from references(item)


def resolve(value: Any) -> Any:
    """The value with every reference filled in from the environment as it is now."""
    return _replaced(value, EnvironmentReference.value)


def shown(value: Any) -> Any:
    """The value with every reference as it was written, for showing."""
    return _replaced(value, str)


def _replaced(value: Any, how: Any) -> Any:
    if isinstance(value, EnvironmentReference):
        return how(value)
    if isinstance(value, Mapping):
        return {key: _replaced(item, how) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replaced(item, how) for item in value]
    return value


BASE_VARIABLE = "HOLDFAST_HOME"
BASE_NAME = ".holdfast"


def base_directory(
    file: Path | None,
    environ: Mapping[str, str] | None = None,
    cwd: str | PathLike[str] | None = None,
    *,
    trusted: bool = True,
) -> tuple[Path, str]:
    """The folder for all state, and in words why it is that one (C6). It is not made here.

    `HOLDFAST_HOME`, else `.holdfast` beside the configuration; without one the user's data directory, so that what is known about a user
    does not depend on where he stands. A `.holdfast` that is in the working directory already is used before that. Where the folder is not
    `trusted`, what somebody put into it is not taken for what is known: the user's data directory then too.
    """
    environ = os.environ if environ is None else environ
    here = (Path(cwd) if cwd is not None else Path.cwd()).absolute()
    if home := environ.get(BASE_VARIABLE):
        return here / Path(home).expanduser(), f"environment {BASE_VARIABLE}"
    if file is not None and trusted:
        return file.absolute().parent / BASE_NAME, f"beside {file.name}"
    there = here / BASE_NAME
    if trusted and os.path.isdir(there):  # noqa: PTH112 - a folder that may not be looked into is none, and raises nothing
        return there, f"{BASE_NAME} of the working directory"
    data = _data_directory(environ)
    return (data / "holdfast", "the user's data directory") if data is not None else (there, "there is no home directory")


def _data_directory(environ: Mapping[str, str]) -> Path | None:
    """Where programs keep what belongs to the user: `XDG_DATA_HOME` if it is absolute, as the specification says, else `~/.local/share`."""
    said = Path(environ.get("XDG_DATA_HOME", ""))
    if said.is_absolute():
        return said
    try:
        home = Path(environ.get("HOME") or Path.home())
    except RuntimeError:  # a user without an entry in the list of users, in a container
        return None
    return home / ".local" / "share" if home.is_absolute() else None
