"""A copy of a folder that others are writing to, such as a crash at that moment would have left behind, and therefore sound (O7).

Every part survives a crash by itself, so what is needed is an order. Databases are copied first, then documents, then logs, then the
rest: what is copied later may be newer than what refers to it, never older, which is what a crash leaves as well. Nobody has to stop.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.disk import REAL, faults, make_folders
from holdfast.durable.replace import is_temp, replace_json, temp_name
from holdfast.errors import InputError

MANIFEST = "backup.json"
_SQLITE = b"SQLite format 3\x00"
_BESIDE = ("-wal", "-shm", "-journal")
_TURNS = range(4)  # databases, documents, logs, the rest
_DOCUMENTS = frozenset({".json", ".yaml", ".yml", ".md", ".toml"})


@dataclass(frozen=True, slots=True)
class Copied:
    """One file of a copy: its place in the folder, its size and the hash of its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Copy:
    """A finished copy: where it is, what is in it, and what was left out with the reason."""

    path: Path
    files: tuple[Copied, ...]
    left_out: tuple[tuple[str, str], ...]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.files)


def copy_live(source: str | PathLike[str], target: str | PathLike[str], *, clock: Clock | None = None) -> Copy:
    """Copy a folder to `target`, which must not exist; until the copy is whole and on the disk, there is nothing under that name.

    `backup.json` in it lists every file with its hash. Raises InputError when there is nothing to copy or something is at `target`.
    """
    root, goal = Path(source).resolve(), Path(target).absolute()
    if not root.is_dir():
        raise InputError(f"{root} is not a folder, so there is nothing to copy.")
    if os.path.lexists(goal):
        raise InputError(f"{goal} exists already.", hint="Name a place where nothing is yet.")
    if goal.resolve().is_relative_to(root):
        raise InputError(f"{goal} is inside the folder that is to be copied.", hint="Name a place outside of it.")
    make_folders(REAL, str(goal.parent))
    draft = goal.parent / temp_name()
    try:
        with faults(str(goal), "copy to"):
            draft.mkdir(mode=0o700)
            files, left_out = _copy_all(root, draft)
        listing = {"holdfast_backup": 1, "made_at": stamp((clock or SystemClock()).now()), "files": [_listed(one) for one in files]}
        replace_json(draft / MANIFEST, listing)
        with faults(str(goal), "copy to"):
            _sync_folders(draft)
            draft.rename(goal)
        REAL.sync_folder(str(goal.parent))
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Copy(goal, tuple(files), tuple(left_out))


def _listed(one: Copied) -> dict[str, object]:
    return {"name": one.name, "bytes": one.bytes, "sha256": one.sha256}


def _copy_all(root: Path, draft: Path) -> tuple[list[Copied], list[tuple[str, str]]]:
    copied: list[Copied] = []
    left_out: dict[str, str] = {}
    for turn in _TURNS:  # each looks anew: what the turn before refers to may have come meanwhile
        for path in sorted(_walk(root)):
            name = path.relative_to(root).as_posix()
            kind = _kind(path)
            if kind is None:
                left_out[name] = "not a file"
            elif kind == turn:
                try:
                    copied.append(_copy(path, draft / name, name, database=turn == _TURNS[0]))
                except FileNotFoundError:
                    left_out[name] = "removed meanwhile"
    return sorted(copied, key=lambda one: one.name), sorted(left_out.items())


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not (name == "postgres" and (Path(folder) / name / "PG_VERSION").exists())]
        yield from (Path(folder) / name for name in names)


def _kind(path: Path) -> int | None:
    """The turn in which a file is copied; -1 for what belongs to nobody once everybody has stopped, None for what is no file."""
    name = path.name
    if name.endswith((".lock", *_BESIDE)) or is_temp(name):
        return -1
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            if file.read(len(_SQLITE)) == _SQLITE:
                return 0
    except FileNotFoundError:
        return -1
    if path.suffix in _DOCUMENTS:
        return 1
    return 2 if path.suffix == ".jsonl" else 3


def _copy(path: Path, to: Path, name: str, *, database: bool) -> Copied:
    make_folders(REAL, str(to.parent), durable=False)  # `mkdir` would give the mode to the last folder alone
    if database:
        from holdfast.durable.database import backup, open_plain

        with closing(open_plain(path)) as connection:
            backup(connection, to)
        return Copied(name, to.stat().st_size, _hash(to))
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as old, to.open("xb") as new:
        while piece := old.read(1 << 20):
            new.write(piece)
            digest.update(piece)
            size += len(piece)
        new.flush()
        os.fsync(new.fileno())
    with suppress(OSError):
        shutil.copystat(path, to)
    return Copied(name, size, digest.hexdigest())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        REAL.sync_folder(folder)
