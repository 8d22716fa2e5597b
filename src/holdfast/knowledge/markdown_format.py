"""A record as a Markdown file: a head between two lines of dashes that is YAML, then the text. No files here, only their content.

What we write is a small part of YAML, one `name: value` a line with JSON for what is not plain, and is read back without a YAML parser.
What a person or another program wrote may be any YAML, or have no head at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from holdfast.errors import InputError
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Record, from_json, to_json

_ORDER = ("schema", "id", "kind", "tags", "session", "position", "speaker", "role", "time", "source", "trust", "extra")
_HEAD = re.compile(r"---[ \t]*\r?\n(?P<head>.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE = re.compile(r"([A-Za-z_][\w-]*):[ ]+(.+)")
_PLAIN = re.compile(r"[A-Za-z](?:[\w ./@+-]*[\w./@+-])?", re.ASCII)
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_WORDS_OF_YAML = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})
_BREAKS = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # YAML would fold or refuse these where JSON lets them stand
_TEXTS = ("id", "kind", "session", "source", "speaker", "trust", "role")


def render(record: Record) -> bytes:
    """The file of a record. `parse` gives back an equal one."""
    value = to_json(record)
    lines = [f"{name}: {_written(value[name])}" for name in _ORDER if name in value]
    return "\n".join(["---", *lines, "---", "", record.text, ""]).encode("utf-8")


def _written(value: Any) -> str:
    if isinstance(value, str) and (_STAMP.fullmatch(value) or (_PLAIN.fullmatch(value) and value.lower() not in _WORDS_OF_YAML)):
        return value
    return _BREAKS.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def parse(data: bytes, path: str) -> Record | None:
    """The record in a file at `path`, relative to its store; None for a file without any text. InputError if its head makes no sense."""
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"it is not UTF-8 text (byte {error.start}).", hint="Save it as UTF-8.") from error
    match = _HEAD.match(content)
    head = _head(match["head"]) if match else None
    if match is None or head is None:
        text = content.strip()
        return Record(text, id=path, source=path) if text.strip("\0 \t\n") else None
    body = content[match.end() :]
    if "schema" in head:
        return from_json({**_known(head), "text": body.removeprefix("\n").removesuffix("\n")})
    if not body.strip():
        return None
    given = _known(head)
    return from_json({"id": path, "source": path, **given, "text": body.strip()})


def _head(text: str) -> Mapping[str, Any] | None:
    """The members of a head. None if it is not one: two lines of dashes around a paragraph are Markdown too."""
    found: dict[str, Any] = {}
    for line in text.splitlines() if "\r" in text else text.split("\n"):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line)
        simple, value = _simple(match[2]) if match else (False, None)
        if match is None or not simple or match[1] in found:
            return _yaml(text)
        found[match[1]] = value
    return found


def _simple(written: str) -> tuple[bool, Any]:
    """Whether a value is of the part of YAML that we write, and what it is."""
    if written[0] in '"[{-0123456789':
        if _STAMP.fullmatch(written):
            return True, written
        try:
            return True, json.loads(written)
        except ValueError:
            return False, None
    plain = _PLAIN.fullmatch(written) is not None and written.lower() not in _WORDS_OF_YAML
    return plain, written


def _yaml(text: str) -> Mapping[str, Any] | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        value = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 2}: " if mark is not None else ""
        said = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise InputError(f"{where}its head is not YAML: {said}.", hint="Mend the lines between the dashes.") from error
    if value is None:
        return {}
    return value if isinstance(value, Mapping) else None


def _known(head: Mapping[str, Any]) -> dict[str, Any]:
    """What people write, in the form of `records.from_json`: numbers as names, one tag or several, dates in any form."""
    found: dict[str, Any] = {str(name): _plain(value) for name, value in head.items()}
    for name in _TEXTS:
        if found.get(name) is not None:
            found[name] = str(found[name])
    ours = "schema" in found
    tags = found.get("tags", None if ours else found.pop("tag", None))
    if isinstance(tags, str):
        tags = [tag for tag in re.split(r"[,\s]+", tags) if tag]
    found["tags"] = [str(tag) if ours else str(tag).lstrip("#") for tag in tags] if isinstance(tags, list) else tags
    for name in ("time",) if ours else ("time", "date", "created"):
        if "time" in found and name != "time":
            continue
        if name in found and found[name] is not None:
            found["time"] = _time(str(found.pop(name)), name)
    return found


def _time(written: str, name: str) -> str:
    moment = read_moment(written)
    if moment is None:
        raise InputError(f"{name}: {written!r} is not a date.", hint="Write it like 2024-05-08 or 2024-05-08T13:56:00Z.")
    return moment.isoformat()


def _plain(value: Any) -> Any:
    """A value of YAML as one of JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(member) for name, member in value.items()}
    if isinstance(value, list | tuple | set):
        return [_plain(member) for member in value]
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).isoformat()
    if isinstance(value, date):
        return value.isoformat()
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
