"""Which file a key is, and which key a file: paths below a root, and the places to which some keys were moved.

    Places("/base", {"memory.json": "/shared/memory.json", "sessions/{session_id}.json": "runs/{session_id}.json", "raw/": "/big/"}, disk)

A place is moved as a single key, as a pattern with one slot in braces that stands for one name, or as a whole folder (both end in `/`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from holdfast.durable.disk import Disk, Named
from holdfast.durable.replace import is_blob_id
from holdfast.errors import ConfigError
from holdfast.storage.backend import Item, Kind, check_key, is_key, is_log, is_reserved

PENDING = ".pending"
"""The folder below the root that says which steps of several changes were begun."""
OF_AGENTS = "user-data"  # the files of a conversation: under any name, as deep and as closed as a command made them
_SHARD = re.compile(r"[0-9a-f]{2}")
_SLOT = re.compile(r"\{[a-z_]+\}")
_COMPANIONS = ("-wal", "-shm", "-journal")  # what SQLite keeps beside a database


@dataclass(frozen=True)
class _Pattern:
    """A key or a path with one slot."""

    before: str
    after: str

    @classmethod
    def of(cls, text: str) -> _Pattern:
        before, after = _SLOT.split(text)
        return cls(before, after)

    def name_in(self, text: str) -> str | None:
        """What stands in the slot, or None if the text does not fit."""
        name = text[len(self.before) : len(text) - len(self.after)]
        fits = text.startswith(self.before) and text.endswith(self.after) and len(text) > len(self.before) + len(self.after)
        return name if fits and "/" not in name else None

    def with_name(self, name: str) -> str:
        return f"{self.before}{name}{self.after}"


class Places:
    """From keys to paths and back."""

    def __init__(self, root: str, moved: Mapping[str, str], disk: Disk) -> None:
        self.root = disk.resolve(os.path.expanduser(root))  # noqa: PTH111 - paths of a Disk are texts
        self._disk = disk
        self._single: dict[str, str] = {}
        self._folders: dict[str, str] = {}
        self._patterns: list[tuple[_Pattern, _Pattern]] = []
        for key, place in moved.items():
            self._move(key, os.path.join(self.root, os.path.expanduser(place)))  # noqa: PTH111, PTH118

    def _move(self, key: str, path: str) -> None:
        slots = len(_SLOT.findall(key)), len(_SLOT.findall(path))
        if slots == (1, 1):
            self._patterns.append((_Pattern.of(key), _Pattern.of(path)))
        elif slots[0]:
            raise ConfigError(f"{path!r} needs {_SLOT.findall(key)[0]} in it once.", hint=f"For example {key}.")
        elif key.endswith("/"):
            self._folders[key] = path.rstrip("/") + "/"
        else:
            self._single[check_key(key)] = path

    def path(self, key: str) -> str:
        """The file of a key."""
        origin = self._origin(check_key(key))
        if origin == key:
            return self._single[key]
        if isinstance(origin, tuple):
            return origin[1].with_name(origin[0].name_in(key) or "")
        return f"{self._folders[origin] if origin else self.root + '/'}{key[len(origin) :]}"

    def folder(self, prefix: str) -> str:
        """The folder that holds the files of a prefix which ends in `/`."""
        return self.path(f"{prefix}x")[:-2]

    def items(self, prefix: str) -> list[Item]:
        """Every key that begins with `prefix` and has a file, in order."""
        found: dict[str, Item] = {}
        for origin, folder in {"": self.root, **self._folders}.items():
            if origin.startswith(prefix) or prefix.startswith(origin):
                for key, path, entry in self._walk(folder.rstrip("/"), origin, prefix, len(origin)):
                    if self._origin(key) == origin and not self._is_target(path, origin):
                        found[key] = _item(key, entry)
        for key, path in self._single.items():
            self._add(found, prefix, key, path)
        for pattern, place in self._patterns:
            for name in self._names(place):
                self._add(found, prefix, pattern.with_name(name), place.with_name(name))
        return sorted((item for item in found.values() if item.key.startswith(prefix)), key=lambda item: item.key)

    def are_moved(self, prefix: str) -> bool:
        """Whether keys below a prefix have their files elsewhere than in its folder."""
        return any(True for _ in self._moved_keys(prefix))

    def count(self, prefix: str, folder: str) -> int:
        """How many keys below a prefix there are in this folder, which was that of the prefix."""
        return sum(1 for _ in self._walk(folder, prefix, prefix, 1))

    def children(self, folder: str) -> list[str]:
        """The names directly below a folder of keys, in order: of files, and of folders that hold any."""
        prefix = f"{check_key(folder)}/"
        origin = max((moved for moved in self._folders if prefix.startswith(moved)), key=len, default="")
        place = f"{self._folders[origin] if origin else self.root + '/'}{prefix[len(origin) : -1]}"
        names = {key[len(prefix) :].partition("/")[0] for key in self._first_keys(place, prefix, origin)}
        names |= {key[len(prefix) :].partition("/")[0] for key in self._moved_keys(prefix)}
        return sorted(names)

    def recent(self, folder: str, endings: Sequence[str]) -> list[tuple[str, float]]:
        """The names below a folder whose keys with one of the endings have a file, and when the newest was written; newest first."""
        prefix, found = f"{check_key(folder)}/", dict[str, float]()
        place = self.folder(prefix)
        flat = [ending for ending in endings if "/" not in ending]
        deep = [ending for ending in endings if "/" in ending]
        for entry in self.scan(place):
            if entry.kind == "folder":
                times = [time for ending in deep if (time := self._modified(f"{place}/{entry.name}{ending}")) is not None]
                if times:
                    found[entry.name] = max(times)
            for ending in flat if entry.kind == "file" else ():
                if entry.name.endswith(ending) and not _is_hidden(entry.name):
                    name = entry.name.removesuffix(ending)
                    found[name] = max(entry.modified, found.get(name, 0.0))
        for key in self._moved_keys(prefix):
            name = next((key[len(prefix) :].removesuffix(ending) for ending in flat if key.endswith(ending)), "")
            if name and "/" not in name:
                found[name] = max(self._modified(self.path(key)) or 0.0, found.get(name, 0.0))
        return sorted(found.items(), key=lambda item: (item[1], item[0]), reverse=True)

    def _modified(self, path: str) -> float | None:
        try:
            return self._disk.modified(path)
        except FileNotFoundError:
            return None

    def _first_keys(self, place: str, prefix: str, origin: str) -> Iterator[str]:
        """A key for each name directly below a place; all of them for blobs, which are sorted into folders that are no part of the key."""
        for entry in self.scan(place):
            below = f"{prefix}{entry.name}"
            if entry.kind == "file":
                found: Iterator[tuple[str, str, Named]] = iter(() if _is_hidden(entry.name) else [(below, f"{place}/{entry.name}", entry)])
            elif entry.kind == "folder" and not entry.link:
                found = self._walk(f"{place}/{entry.name}", f"{below}/", prefix, 1)
            else:
                continue
            for key, path, _ in found:
                if self._origin(key) == origin and not self._is_target(path, origin):
                    yield key
                    if key.startswith(below):
                        break

    def _moved_keys(self, prefix: str) -> Iterator[str]:
        """The keys below a prefix that were moved elsewhere and have a file there; of moved folders the first one."""
        yield from (key for key, path in self._single.items() if key.startswith(prefix) and self._disk.kind(path) == "file")
        for pattern, place in self._patterns:
            if pattern.before.startswith(prefix):
                yield from (pattern.with_name(name) for name in self._names(place))
        for folder, path in self._folders.items():
            if folder.startswith(prefix) and folder != prefix:
                yield from (key for key, _, _ in islice(self._walk(path.rstrip("/"), folder, folder, 1), 1))

    def _origin(self, key: str) -> str | tuple[_Pattern, _Pattern]:
        """What places a key: itself, a pattern, the moved folder that it is in, or nothing (`""`)."""
        if key in self._single:
            return key
        for pattern, place in self._patterns:
            if pattern.name_in(key) is not None:
                return pattern, place
        return max((folder for folder in self._folders if key.startswith(folder)), key=len, default="")

    def _is_target(self, path: str, origin: str) -> bool:
        """Whether a file is the place of a key that was moved there, and not of the key that its path would give."""
        if path in self._single.values() or any(place.name_in(path) is not None for _, place in self._patterns):
            return True
        return any(path.startswith(folder) for key, folder in self._folders.items() if key != origin)

    def _add(self, found: dict[str, Item], prefix: str, key: str, path: str) -> None:
        if not key.startswith(prefix):
            return
        folder, _, name = path.rpartition("/")
        for entry in self.scan(folder or "/"):
            if entry.name == name and entry.kind == "file":
                found[key] = _item(key, entry)

    def _names(self, place: _Pattern) -> Iterator[str]:
        """The names that stand in the slot of a place."""
        folder, _, begin = place.before.rpartition("/")
        end, deep, _ = place.after.partition("/")
        for entry in self.scan(folder or "/"):
            name = _Pattern(begin, end).name_in(entry.name)
            if name is not None and (entry.kind == "folder" if deep else entry.kind == "file") and not _is_hidden(entry.name):
                yield name

    def _walk(self, folder: str, key: str, prefix: str, depth: int) -> Iterator[tuple[str, str, Named]]:
        """The keys of the files below a folder. What a key cannot name (too deep, odd signs) was not put there by us, and is no key's."""
        waiting = [(folder, key, depth)]
        while waiting:
            folder, key, depth = waiting.pop()
            entries = self.scan(folder)
            if any(entry.name == "PG_VERSION" for entry in entries):  # the data of a PostgreSQL server
                continue
            for entry in entries:
                below = f"{key}{entry.name}"
                if not is_key(below):
                    continue
                if entry.kind == "folder":
                    wanted = f"{below}/".startswith(prefix) or prefix.startswith(f"{below}/") or _SHARD.fullmatch(entry.name)
                    if wanted and not (entry.link and depth) and entry.name not in (PENDING, OF_AGENTS):  # links: at the top
                        waiting.append((f"{folder}/{entry.name}", f"{below}/", depth + 1))
                elif entry.kind == "file" and not _is_hidden(entry.name):
                    yield from _named(key, folder, entry)

    def scan(self, folder: str) -> list[Named]:
        """What is in a folder; nothing where there is none."""
        try:
            return list(self._disk.scan(folder))
        except FileNotFoundError:
            return []


def _named(key: str, folder: str, entry: Named) -> Iterator[tuple[str, str, Named]]:
    """The key of a file; a blob's is without the two folders that it is sorted into."""
    path = f"{folder}/{entry.name}"
    shards = f"{entry.name[7:9]}/{entry.name[9:11]}/"
    if is_blob_id(entry.name):
        if key.endswith(shards):
            yield f"{key.removesuffix(shards)}{entry.name}", path, entry
        return
    yield f"{key}{entry.name}", path, entry


def _is_hidden(name: str) -> bool:
    """Whether a file is no key's: a lock, a lease, what a killed writer left, or a companion of a database."""
    return is_reserved(name) or name.endswith(_COMPANIONS)


def _item(key: str, entry: Named) -> Item:
    kind: Kind = "blob" if is_blob_id(entry.name) else "log" if is_log(key) else "document"
    return Item(key, kind, entry.size, entry.modified)
