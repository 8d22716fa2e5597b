"""Files of a Markdown store: a record as YAML front matter and text, how a file is named, writing and removing many of them durably.

What we write is a small part of YAML, one `name: value` a line with JSON for what is not plain, and is read back without a YAML parser.
What a person or another program wrote may be any YAML, or have no head at all. Readers take no lock: every file is put in place whole.
Writers of one folder hold the lock of its store.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, date, datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.durable.disk import REAL, make_folders, write_all
from holdfast.durable.replace import is_temp, temp_name
from holdfast.errors import InputError, StorageError
from holdfast.knowledge.periods import read_moment
from holdfast.knowledge.records import Record, from_json, to_json
from holdfast.text.normalise import fold

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
    lines = [f"{name}: {_yaml_value(value[name])}" for name in _ORDER if name in value]
    return "\n".join(["---", *lines, "---", "", record.text, ""]).encode("utf-8")


def _yaml_value(value: Any) -> str:
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


OWN_FOLDER = ".index"
_ENDINGS = (".md", ".markdown")
_RACY = 20_000_000  # nanoseconds: a file may change twice within one tick of the file system's clock


class Stamp(NamedTuple):
    """By what a change is noticed."""

    modified: int
    size: int
    inode: int


def scan(root: Path) -> dict[str, Stamp]:
    """Every Markdown file below the folder, by its path with `/`. Hidden folders and links are not looked into."""
    found: dict[str, Stamp] = {}
    pending = [""]
    while pending:
        place = pending.pop()
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(root / place) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                path = f"{place}/{entry.name}" if place else entry.name
                if entry.is_dir(follow_symlinks=False):
                    pending.append(path)
                elif entry.name.lower().endswith(_ENDINGS) and entry.is_file(follow_symlinks=False):
                    with suppress(FileNotFoundError):
                        found[path] = stamp_of(entry.stat(follow_symlinks=False))
    return found


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def settled(stamp: Stamp) -> Stamp:
    """The stamp to remember of a file that was read: one that changed just now may change again without a trace, so it is read again."""
    return stamp if time.time_ns() - stamp.modified > _RACY else stamp._replace(modified=-1)


def name_of(record: Record) -> str:
    """Where a record goes: a folder for each part of its session, and a name that a person recognises."""
    folders = [_slug(part, 60) or "session" for part in (record.session or "").split("/") if part.strip()]
    tail = blake2b(record.id.encode(), digest_size=5).hexdigest()
    parts = [
        "" if record.position is None else f"{record.position:05d}",
        "" if record.time is None or record.position is not None else record.time.strftime("%Y-%m-%d"),
        _slug(record.speaker or "", 24) if record.position is not None else "",
        _slug(record.text[:200], 48),
        tail,
    ]
    return "/".join([*folders, "-".join(part for part in parts if part) + ".md"])


def _slug(text: str, limit: int) -> str:
    """Letters and digits of the text with hyphens between, at most `limit` bytes."""
    words = "".join(character if character.isalnum() else " " for character in fold(text)).split()
    whole = "-".join(words).encode("utf-8")
    if len(whole) <= limit:
        return whole.decode("utf-8")
    cut = whole[:limit].decode("utf-8", "ignore")
    return (cut.rpartition("-")[0] or cut).strip("-")


def put_all(root: Path, contents: Mapping[str, bytes]) -> dict[str, Stamp]:
    """Put these files in place; on return all of them survive a power cut. An error leaves some old and some new, none half.

    All are written before the first is synced: one commit of the file system's journal then carries most of them.
    """
    with ExitStack() as opened:
        new = [_temp_file(opened, root / path, data) for path, data in contents.items()]
        stamps = {}
        for path, (_, handle) in zip(contents, new, strict=True):
            REAL.sync(handle)
            stamps[path] = stamp_of(os.fstat(handle))
    for path, (temp, _) in zip(contents, new, strict=True):
        REAL.rename(temp, str(root / path))
    for folder in dict.fromkeys(str((root / path).parent) for path in contents):
        REAL.sync_folder(folder)
    return stamps


def _temp_file(opened: ExitStack, target: Path, data: bytes) -> tuple[str, int]:
    """A new file beside the target with this content, not synced yet. It goes away if something fails before it is put in place."""
    make_folders(REAL, str(target.parent))
    temp = str(target.with_name(temp_name()))
    handle = REAL.create(temp)
    opened.push(partial(_finish, temp, handle))
    write_all(REAL, handle, data)
    if REAL.kind(str(target)) == "file":
        REAL.imitate(handle, str(target))
    return temp, handle


def _finish(temp: str, handle: int, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
    if error is None:
        REAL.close(handle)
        return
    with suppress(StorageError, OSError):  # the first error is the one to tell
        REAL.close(handle)
    with suppress(StorageError, OSError):
        REAL.unlink(temp)


def remove_all(root: Path, paths: Iterable[str]) -> None:
    """Remove these files, and the folders that are empty then; on return that survives a power cut."""
    folders: dict[Path, None] = {}
    for path in paths:
        with suppress(FileNotFoundError):
            REAL.unlink(str(root / path))
        folders[(root / path).parent] = None
    for folder in folders:
        _drop_empty(root, folder)


def _drop_empty(root: Path, folder: Path) -> None:
    while folder != root and root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            break
        REAL.settled.discard(str(folder))
        folder = folder.parent
    with suppress(FileNotFoundError):
        REAL.sync_folder(str(folder))


def sweep_all(root: Path) -> None:
    """Remove what writers that died left behind. Only for who holds the lock of the store."""
    for path in list(_temps(root)):
        with suppress(FileNotFoundError):
            REAL.unlink(str(path))
            REAL.sync_folder(str(path.parent))


def _temps(root: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") or name == OWN_FOLDER]
        yield from (Path(place, name) for name in names if is_temp(name))
