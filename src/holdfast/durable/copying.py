"""Copy a folder that others are writing to, such as a crash at that moment would have left behind; and put such a copy back (O7).

Every part survives a crash by itself, so what is needed is an order. Databases are copied first, then what must be of one moment (a
document and its history, under the lock of their writers), then documents, logs, and the rest: what is copied later may be newer than
what refers to it, never older, which is what a crash leaves as well. Nobody has to stop.

No link is followed but those at the top, which stand for a folder that was moved to another disk: others are copied as links. What cannot
be read is named, and everything else is copied.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from holdfast.clock import Clock, SystemClock, stamp
from holdfast.durable.beneath import Tree
from holdfast.durable.disk import REAL, exchange, faults, make_folders, storage_error
from holdfast.durable.folder import open_outside, remove_tree
from holdfast.durable.lock import FOLDER as PRESENCE
from holdfast.durable.lock import is_sign, residents, restoring
from holdfast.durable.replace import is_temp, temp_name
from holdfast.errors import Damaged, DiskFull, InputError, Locked, NotWritable, StorageError
from holdfast.validation import some

MANIFEST = "backup.json"
OUTSIDE = ".outside"
"""The folder of a copy that holds what the configuration keeps elsewhere."""
_SQLITE = b"SQLite format 3\x00"
_BESIDE = ("-wal", "-shm", "-journal")
_DATABASES, _TOGETHER, _DOCUMENTS, _LOGS, _REST = range(5)
_DATABASE_NAMES = (".db", ".sqlite")
_READABLE = frozenset({".json", ".yaml", ".yml", ".md", ".toml"})
_GONE = "removed meanwhile"


@dataclass(frozen=True, slots=True)
class Copied:
    """One file of a copy: its place in the folder, its size and the hash of its content."""

    name: str
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Moment:
    """Files that must be of one moment: inside `hold()` nobody changes those whose names `covers` says yes to."""

    hold: Callable[[], AbstractContextManager[object]]
    covers: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Copy:
    """A finished copy: where it is, what is in it, what was left out with the reason, and where parts of it were outside the folder."""

    path: Path
    files: tuple[Copied, ...]
    left_out: tuple[tuple[str, str], ...] = ()
    outside: tuple[tuple[str, str], ...] = ()

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.files)

    @property
    def complete(self) -> bool:
        """Whether everything that was there is in it."""
        return all(why == _GONE for _, why in self.left_out)


@dataclass
class _Draft:
    """What a copy consists of so far."""

    files: list[Copied] = field(default_factory=list)
    links: list[dict[str, str]] = field(default_factory=list)
    folders: set[str] = field(default_factory=set)
    left_out: dict[str, str] = field(default_factory=dict)


def copy_live(
    source: str | PathLike[str],
    target: str | PathLike[str],
    *,
    moments: Sequence[Moment] = (),
    outside: Mapping[str, str | PathLike[str]] | None = None,
    clock: Clock | None = None,
) -> Copy:
    """Copy a folder to `target`, which must not exist; until the copy is whole and on the disk, there is nothing under that name.

    `outside` names files and folders elsewhere that belong to it: each is copied to `.outside/NAME`. `backup.json` lists every file with
    its hash. Raises InputError when there is nothing to copy or something is at `target`, and a StorageError when it cannot be written.
    """
    root, goal = Path(source).resolve(), Path(target).absolute()
    if not root.is_dir():
        raise InputError(f"{root} is not a folder, so there is nothing to copy.")
    if os.path.lexists(goal):
        raise InputError(f"{goal} exists already.", hint="Name a place where nothing is yet.")
    if goal.resolve().is_relative_to(root):
        raise InputError(f"{goal} is inside the folder that is to be copied.", hint="Name a place outside of it.")
    with _new_folder(goal) as draft:
        made = _Draft()
        with Tree(root) as old, Tree(draft) as new:
            _copy_all(old, new, made, moments)
        elsewhere = dict(outside or {})
        together = [name for name in elsewhere if any(moment.covers(f"{OUTSIDE}/{name}") for moment in moments)]
        with ExitStack() as held:
            for moment in moments if together else ():
                held.enter_context(moment.hold())
            for name in together:
                _copy_outside(Path(elsewhere[name]), draft, f"{OUTSIDE}/{name}", made)
        for name in elsewhere.keys() - set(together):
            _copy_outside(Path(elsewhere[name]), draft, f"{OUTSIDE}/{name}", made)
        listing = {
            "holdfast_backup": 2,
            "made_at": stamp((clock or SystemClock()).now()),
            "files": [{"name": one.name, "bytes": one.bytes, "sha256": one.sha256} for one in sorted(made.files, key=lambda one: one.name)],
            "links": made.links,
            "folders": sorted(made.folders),
            "left_out": made.left_out,
            "outside": {name: str(place) for name, place in elsewhere.items()},
            "outside_files": sorted(name for name, place in elsewhere.items() if Path(place).is_file()),
        }
        _write_listing(draft / MANIFEST, listing)
    files = tuple(sorted(made.files, key=lambda one: one.name))
    return Copy(goal, files, tuple(sorted(made.left_out.items())), tuple((name, str(place)) for name, place in elsewhere.items()))


def _copy_all(old: Tree, new: Tree, made: _Draft, moments: Sequence[Moment]) -> None:
    for turn in (_DATABASES, _DOCUMENTS, _LOGS, _REST):  # each looks anew: what the turn before refers to may have come meanwhile
        if turn == _DOCUMENTS:
            for moment in moments:
                with moment.hold():
                    _copy_turn(old, new, made, _TOGETHER, [moment])
        _copy_turn(old, new, made, turn, moments)


def _copy_turn(old: Tree, new: Tree, made: _Draft, turn: int, moments: Sequence[Moment]) -> None:
    have = {one.name for one in made.files}
    for entry in old.walk(made.left_out, top_links=True, skip=_is_server):
        name = entry.path
        try:
            if entry.kind == "folder":
                if turn == _REST:
                    new.folder(name, make=True)
                    made.folders.add(name)
            elif entry.kind == "link":
                if turn == _REST:
                    made.links.append({"name": name, "to": new.link(name, old.target(name))})
            elif entry.kind == "other":
                made.left_out[name] = "neither a file nor a folder nor a link"
            elif name not in have and _turn_of(old, name, moments) == turn:
                made.files.append(_copy(old, new, name, database=turn == _DATABASES, made=made))
        except FileNotFoundError:
            made.left_out[name] = _GONE
        except _Unreadable as error:
            made.left_out[name] = str(error)


def _turn_of(old: Tree, name: str, moments: Sequence[Moment]) -> int:
    """When a file is copied; -1 for what belongs to nobody once everybody has stopped. What an agent keeps is never judged by its name."""
    if "user-data" in name.split("/"):
        return _REST
    if is_temp(name.rpartition("/")[2]) or any(name.endswith(end) and old.kind(name.removesuffix(end)) == "file" for end in _BESIDE):
        return -1
    with _reading(), old.open(name) as file:
        head = file.read(len(_SQLITE))
    if name.endswith(".lock") and is_sign(head):
        return -1
    if head == _SQLITE or (head and name.endswith(_DATABASE_NAMES)):
        return _DATABASES
    if any(moment.covers(name) for moment in moments):
        return _TOGETHER
    suffix = Path(name).suffix
    return _DOCUMENTS if suffix in _READABLE else _LOGS if suffix == ".jsonl" else _REST


def _copy(old: Tree, new: Tree, name: str, *, database: bool, made: _Draft) -> Copied:
    if database:
        from holdfast.durable.database import backup, open_plain

        place = Path(new.path, name)
        new.folder(name.rpartition("/")[0] or ".", make=True)
        try:
            try:
                connection = open_plain(Path(old.path, name))
            except (NotWritable, DiskFull) as error:  # of what is copied, not of the copy
                raise _Unreadable(f"{error.message} {error.hint or ''}".strip()) from error
            with closing(connection):
                backup(connection, place)
            return Copied(name, place.stat().st_size, _hash(place))
        except Damaged:
            made.left_out[f"{name} (as a database)"] = "it is damaged, and was copied byte by byte"
    digest, size = hashlib.sha256(), 0
    with _reading():
        source = old.open(name)
    with source, new.create(name) as copy:
        while True:
            with _reading():
                piece = source.read(1 << 20)
            if not piece:
                break
            copy.write(piece)
            digest.update(piece)
            size += len(piece)
        copy.flush()
        os.fsync(copy.fileno())
        facts = os.fstat(source.fileno())
        with suppress(OSError):
            os.utime(copy.fileno(), ns=(facts.st_atime_ns, facts.st_mtime_ns))
            os.fchmod(copy.fileno(), stat.S_IMODE(facts.st_mode) & 0o700 | 0o600)
    return Copied(name, size, digest.hexdigest())


def _copy_outside(place: Path, draft: Path, name: str, made: _Draft) -> None:
    """A file with what stands beside it under the same name, or a folder, to a place below the draft."""
    if not place.exists():
        return
    inner = _Draft()
    goal = draft / name
    make_folders(REAL, str(goal), durable=False)
    if place.is_dir():
        with Tree(place) as old, Tree(goal) as new:
            _copy_all(old, new, inner, ())
    else:
        with Tree(place.parent) as old, Tree(goal) as new:
            try:
                inner.files.append(_copy(old, new, place.name, database=_turn_of(old, place.name, ()) == _DATABASES, made=inner))
            except (_Unreadable, FileNotFoundError) as error:
                inner.left_out[place.name] = str(error)
    made.files += [Copied(f"{name}/{one.name}", one.bytes, one.sha256) for one in inner.files]
    made.links += [{"name": f"{name}/{one['name']}", "to": one["to"]} for one in inner.links]
    made.folders |= {f"{name}/{one}" for one in inner.folders}
    made.left_out |= {f"{name}/{one}": why for one, why in inner.left_out.items()}


class _Unreadable(Exception):
    """A file of the folder cannot be read. The copy goes on without it."""


class _reading:  # noqa: N801 - used as a function
    """Tells an error of reading from one of writing, which ends the copy."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise _Unreadable(error.strerror or str(error)) from error


def _is_server(tree: Tree, path: str) -> bool:
    """Whether a folder is the data of a PostgreSQL server of our own, which has tools of its own for this."""
    return path.rpartition("/")[2] == "postgres" and tree.kind(f"{path}/PG_VERSION") == "file"


class _new_folder:  # noqa: N801 - used as a function
    """A folder that is filled under a hidden name and put in place, whole and durable, at the end; or removed."""

    def __init__(self, goal: Path) -> None:
        self._goal = goal
        self._draft = goal.parent / temp_name()
        self._lock = -1

    def __enter__(self) -> Path:
        make_folders(REAL, str(self._goal.parent))
        with faults(str(self._goal), "copy to"):
            _remove_dead(self._goal.parent)
            while (lock := _made_and_held(self._draft)) is None:
                self._draft = self._goal.parent / temp_name()
            self._lock = lock
        return self._draft

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                with faults(str(self._goal), "copy to"):
                    with Tree(self._draft) as made:
                        made.sync_folders()
                    self._draft.rename(self._goal)
                REAL.sync_folder(str(self._goal.parent))
                return
        finally:
            os.close(self._lock)
            if self._draft.exists():
                with suppress(OSError):
                    remove_tree(self._draft)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(error, str(self._goal), "copy to") from error


def _made_and_held(draft: Path) -> int | None:
    """Make a folder and lock it for as long as this process lives, so that a dead one's draft is known. None if it was taken for dead."""
    draft.mkdir(mode=0o700)
    try:
        handle = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    fcntl.flock(handle, fcntl.LOCK_EX)
    with suppress(FileNotFoundError):
        if os.path.samestat(os.fstat(handle), os.stat(draft)):
            return handle
    os.close(handle)
    return None


def _remove_dead(folder: Path) -> None:
    """Remove the drafts of copies whose processes were killed."""
    for place in folder.iterdir():
        if is_temp(place.name) and place.is_dir() and not place.is_symlink():
            handle = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(place)
            except OSError:
                continue  # somebody is at it
            finally:
                os.close(handle)


def _write_listing(path: Path, listing: Mapping[str, object]) -> None:
    """As JSON in ASCII: names that are not UTF-8 keep their bytes as lone surrogates, which have no other form."""
    with path.open("x", encoding="ascii") as file:
        json.dump(listing, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o600)


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Putting a copy back


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back: the folder, how many files, what stood there before and was moved aside, and the parts that go elsewhere."""

    path: Path
    files: int
    before: Path | None
    outside: tuple[tuple[str, str], ...]


def verify(copy: str | PathLike[str]) -> dict[str, object]:
    """The listing of a copy, every file of which has the size and hash that it says. Damaged, naming the files, if not."""
    path = Path(copy)
    try:
        with open_outside(path / MANIFEST) as opened:
            listing = json.loads(opened.read().decode("ascii"))
        files = [(str(one["name"]), str(one["sha256"])) for one in listing["files"]]
        _check_names(listing)
    except FileNotFoundError:
        raise InputError(f"{path} is no backup: it has no {MANIFEST}.", hint="Name a folder that `holdfast backup` made.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damaged(f"{path / MANIFEST} cannot be read: {error}.", path=path / MANIFEST) from error
    wrong = []
    with Tree(path) as tree:
        for name, digest in files:
            try:
                with tree.open(name) as file:
                    if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                        wrong.append(f"{name} has changed")
            except OSError as error:
                wrong.append(f"{name}: {error.strerror}")
    if wrong:
        raise Damaged(
            f"{path} is not what was written: {some(wrong, 5, '; ')}.", path=path, hint="Restore another backup; nothing was changed."
        )
    return dict(listing)


def _check_names(listing: Mapping[str, object]) -> None:
    """ValueError for a listing that would write anywhere but below the folder: the file came from outside, and may be anything."""
    folders = listing.get("folders")
    links = {str(one["name"]) for one in _listed(listing, "links")}
    names = [*(str(one["name"]) for one in _listed(listing, "files")), *links, *map(str, folders if isinstance(folders, list) else [])]
    lengths = {len(name) for name in links}
    for name in names:
        parts = name.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise ValueError(f"it names {name!r}, which is no place below a folder")
        if any(name[length : length + 1] == "/" and name[:length] in links for length in lengths):
            raise ValueError(f"it names {name!r}, which is behind a link")


def restore(
    copy: str | PathLike[str],
    target: str | PathLike[str],
    *,
    replace: bool = False,
    outside: Mapping[str, str | PathLike[str]] | None = None,
    clock: Clock | None = None,
) -> Restored:
    """Put a verified copy in the place of `target`, in one step. What stood there is moved beside it and never removed.

    Without `replace` a target that holds anything is refused, and one that somebody works with in any case (Locked, by name). Parts that
    were outside go to the place that `outside` names for each, if nothing is there; the paths in the copy are not believed.
    """
    path, goal = Path(copy).resolve(), Path(target).absolute()
    listing = verify(path)
    taken = goal.is_dir() and any(goal.iterdir())
    if taken and not replace:
        raise InputError(f"{goal} is not empty.", hint="Restore to another place, or say --replace: what is there is moved aside.")
    before = goal.with_name(f"{goal.name}.before-{(clock or SystemClock()).now():%Y%m%dT%H%M%S}") if taken else None
    with restoring(goal) if taken else nullcontext():
        if taken:
            _check_idle(goal)
        with _new_folder(before or goal) as draft, Tree(path) as old, Tree(draft) as new:
            count = _fill(old, new, listing, "")
        if before is not None:
            _change_places(before, goal)
    return Restored(goal, count, before, tuple(_restore_outside(path, listing, outside or {})))


def _change_places(new: Path, goal: Path) -> None:
    """Let two folders change their names, durably: in one step where the system can, else with the old one under a third name between."""
    with faults(str(goal), "move"):
        if not exchange(str(new), str(goal)):
            between = goal.with_name(f"{new.name}.old")
            goal.rename(between)
            new.rename(goal)
            between.rename(new)
    REAL.sync_folder(str(goal.parent))


def _fill(old: Tree, new: Tree, listing: Mapping[str, object], below: str) -> int:
    """Copy what the listing has below a folder of the copy (`""`: all but what was outside) to the top of another; how many files."""

    def placed(name: str) -> str | None:
        if not below:
            return None if name.startswith(f"{OUTSIDE}/") else name
        return name.removeprefix(f"{below}/") if name.startswith(f"{below}/") else None

    made, count = _Draft(), 0
    for one in _listed(listing, "files"):
        if (name := placed(one["name"])) is not None:
            _copy(old, new, name, database=False, made=made)
            count += 1
    folders = listing.get("folders")
    for folder in folders if isinstance(folders, list) else []:
        if (name := placed(str(folder))) is not None:
            new.folder(name, make=True)
    for link in _listed(listing, "links"):
        if (name := placed(link["name"])) is not None:
            new.link(name, link["to"])
    return count


def _listed(listing: Mapping[str, object], key: str) -> Iterator[dict[str, str]]:
    found = listing.get(key)
    return iter(found if isinstance(found, list) else [])


def _restore_outside(path: Path, listing: Mapping[str, object], places: Mapping[str, str | PathLike[str]]) -> Iterator[tuple[str, str]]:
    """Copy the parts that were elsewhere to where they are kept now, if nothing is there; yields each with what was done."""
    said = listing.get("outside")
    files = listing.get("outside_files", ["memory"])  # an older copy does not say; only memory can be one
    for name, was in (said if isinstance(said, dict) else {}).items():
        kept = path / OUTSIDE / name
        if "/" in name or name in ("", ".", "..") or not kept.is_dir():
            continue
        if name not in places:
            yield str(was), f"nothing of that kind is kept elsewhere by this configuration; the copy is in {kept}"
            continue
        goal = Path(places[name]).absolute()
        if os.path.lexists(goal):
            yield str(goal), f"something is there already; the copy is in {kept}"
            continue
        if isinstance(files, list) and name in files:
            _put_file(kept, Path(str(was)).name, goal)
        else:
            _put_folder(path, listing, f"{OUTSIDE}/{name}", goal)
        yield str(goal), "put back"


def _put_folder(path: Path, listing: Mapping[str, object], below: str, goal: Path) -> None:
    with _new_folder(goal) as draft, Tree(path / below) as old, Tree(draft) as new:
        _fill(old, new, listing, below)


def _put_file(kept: Path, name: str, goal: Path) -> None:
    holder = goal.with_name(temp_name())  # if this process is killed here, the next copy to this place removes it
    with _new_folder(holder) as draft, Tree(kept) as old, Tree(draft) as new:
        _copy(old, new, name, database=False, made=_Draft())
    with faults(str(goal), "copy to"):
        (holder / name).rename(goal)
        holder.rmdir()
    REAL.sync_folder(str(goal.parent))


def _check_idle(folder: Path) -> None:
    """Locked if a process is at work in the folder: it would go on writing to what was moved aside."""
    if at_work := residents(folder):
        told = f"{folder} is in use by {some(at_work, 5, '; ')}."
        hint = "Stop it first (Ctrl-C, `kill` with its number, or `systemctl stop`), and start it again afterwards. Nothing was changed."
        raise Locked(told, path=folder, owner=at_work[0], hint=hint)
    with Tree(folder) as tree:
        for entry in tree.walk({}):
            if entry.kind != "file" or not entry.path.endswith(".lock") or {"user-data", PRESENCE} & set(entry.path.split("/")):
                continue
            with suppress(FileNotFoundError), tree.open(entry.path) as file:
                try:
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    told = f"{folder} is in use: somebody holds {entry.path}."
                    raise Locked(told, path=folder, hint="End what is running there first.") from None
