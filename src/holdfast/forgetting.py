"""Taking out of everything that is kept: a text (`forget_text`), what is too old (`prune`), what crashes left behind (M14, A8, O7).

Each room forgets in its own stores and says how much; what no room knows of is cleaned in a general way, so that a new kind of data is
forgotten from its first day. What could not be reached, or is not ours to change, is told. It is asked of the stores themselves, so it is
found wherever the configuration keeps it.
"""

from __future__ import annotations

import glob
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.clock import stamp
from holdfast.durable.beneath import Tree
from holdfast.durable.database import open_plain, values_of
from holdfast.durable.disk import REAL
from holdfast.durable.folder import Folder, remove_tree
from holdfast.durable.replace import is_temp
from holdfast.errors import OutsideRoot, StorageError
from holdfast.events import Bus
from holdfast.knowledge.adapters import of_vector_store, open_section, path_of
from holdfast.memory.document_file import Layout
from holdfast.storage.scrub import Rule, scrub
from holdfast.text.needle import Needle, is_own_word
from holdfast.validation import some

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Knowledge
    from holdfast.harness import Harness

_PIECE = 1 << 20
MOVED = "user-data/outputs/moved"
"""Where texts that are too long for the window stand, below the folder of a thread."""
_TOKEN = "server.token"  # noqa: S105  # the name of the file in which it is
_OF_ROOMS = ("memory.json", "memory.d/**", "agents/**", "threads/**", "sessions/**", "skills/**", "models/**", _TOKEN)
"""Keys below the base directory that their rooms have cleaned already, files of the user's own, and what nobody said."""


@dataclass
class Forgotten:
    """What was forgotten: ids of facts, and counts by place. `left` says, in words, what still holds the text and why."""

    facts: list[str] = field(default_factory=list)
    touched: dict[str, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    def note(self, place: str, count: int) -> None:
        """Something was forgotten there."""
        if count:
            self.touched[place] = self.touched.get(place, 0) + count


def forget_text(harness: Harness, text: str) -> Forgotten:
    """Forget everything that holds the text: memory, archive, checkpoints, sessions with their raw data, knowledge, typed lines.

    Stores that others may keep from us (databases, servers) come first: if one cannot be reached its error is raised, and nothing was
    forgotten yet. Files that an agent or the user wrote are not changed; those that hold the text are in `left`. InputError for no text.
    """
    needle, done = Needle.asked(text), Forgotten()
    _knowledge(harness, text, done)
    _sessions(harness, text, done)
    if harness.has_checkpoints:
        done.note("checkpoints: threads", len(harness.checkpoints.forget_text(text)))
    in_memory = harness.memory.forget_text(text)
    done.facts.extend(in_memory.facts)
    for place, count in in_memory.touched.items():
        done.note(place, count)
    gone = harness.archive.forget(None, text=text)
    done.note("archive: messages", gone.messages)
    done.note("archive: summaries", gone.summaries)
    done.note("archive: titles", gone.titles)
    done.note("archive: damaged pieces", gone.damaged)
    _other_files(harness, needle, done)
    _moved_texts(harness.base, needle, done)
    _leftovers(harness, needle, done)
    done.left.extend(f"{kind} {name}: its name holds it" for kind, name in _names(harness) if needle.in_text(name))
    _still_there(harness, needle, done)
    done.left.extend(
        f"{path}: what a restore moved aside; it may still hold the text. Remove it by hand" for path in _moved_aside(harness.base)
    )
    return done


def _moved_aside(base: Path) -> list[Path]:
    """The folders beside the base directory that `restore --replace` made of what was there: nobody forgets in them."""
    base = base.resolve()
    return sorted(path for path in base.parent.glob(f"{glob.escape(base.name)}.before-*") if path.is_dir())


def _names(harness: Harness) -> Iterator[tuple[str, str]]:
    """What people called things by, and others refer to."""
    yield from (("the conversation", name) for name in harness.thread_names())
    yield from (("the session", name) for name in harness.sessions.ids())


def _other_files(harness: Harness, needle: Needle, done: Forgotten) -> None:
    """What no room keeps: the lines typed into `holdfast chat`, notes of an import, leftovers, and whatever is new."""
    if not harness.base.is_dir():
        return
    config = harness.config
    views = config.memory.session_memory.path
    folders = (config.session.path, str(Path(views).parent) if views else None, config.knowledge.path or "knowledge")
    kept = [*_OF_ROOMS, *(pattern for folder in folders for pattern in _below(harness, folder))]
    for touched in scrub(harness.storage, needle, [Rule(pattern, leave=True) for pattern in kept]):
        if touched.done:
            done.note("other files", touched.count)
        else:
            done.left.append(f"{touched.where}: {touched.why}")


def _moved_texts(base: Path, needle: Needle, done: Forgotten) -> None:
    """Files that the window moved long texts to (S10, A11): ours, although they stand among what an agent wrote."""
    if not (base / "threads").is_dir():
        return
    with Folder(base) as folder:
        for thread in (one for one in folder.list("threads") if one.kind == "folder"):
            with suppress(FileNotFoundError, OutsideRoot):  # none, or a link that a command put there
                for entry in folder.list(f"{thread.path}/{MOVED}"):
                    with suppress(StorageError):  # what cannot be read is told with all other files that stand there
                        if entry.kind == "file" and (needle.in_text(entry.path) or needle.in_bytes(folder.read_bytes(entry.path))):
                            folder.remove(entry.path)
                            done.note("texts that were moved to files", 1)


def _leftovers(harness: Harness, needle: Needle, done: Forgotten) -> None:
    """Copies that no room reads any more, beside everything that is kept: set aside, left by a killed writer, half a backup."""
    unread: dict[str, str] = {}
    for path in leftovers(harness, unread):
        try:
            if not _shows(path, needle, unread):
                continue
            if path.is_file():
                REAL.unlink(str(path))
                REAL.sync_folder(str(path.parent))
            elif is_in_use(path):
                done.left.append(f"{path}: a backup that is being made; forget again when it is done")
                continue
            else:
                remove_tree(path)
            done.note("leftovers", 1)
        except FileNotFoundError:
            continue  # its writer came to its end
        except (OSError, StorageError) as error:
            unread[str(path)] = str(error)
    done.left.extend(f"{place}: it could not be looked at ({why})" for place, why in unread.items())


def _shows(path: Path, needle: Needle, unread: dict[str, str]) -> bool:
    """Whether a file, or any file below a folder, holds the text."""
    with Tree(path.parent) as tree:
        if path.is_file():
            return _holds(tree, path.name, needle)
    with Tree(path) as tree:
        return any(_holds(tree, entry.path, needle) for entry in tree.walk(unread) if entry.kind == "file")


def _below(harness: Harness, path: str | None) -> list[str]:
    """The pattern of all keys in a folder, if it is in the base directory."""
    place = harness.base / path if path else harness.base
    return [f"{place.relative_to(harness.base)}/**"] if place != harness.base and place.is_relative_to(harness.base) else []


def _knowledge(harness: Harness, text: str, done: Forgotten) -> None:
    """In the configured store and in that of the session. A store that was never made is not made for this."""
    sections = [harness.config.knowledge, of_vector_store(harness.config).knowledge]
    for section in sections if sections[0] != sections[1] else sections[:1]:
        if _exists(section, harness.base):
            with open_section(section, harness.base, clock=harness.clock, bus=harness.bus) as store:
                done.note(f"knowledge ({section.adapter}): records", len(store.forget_text(text)))


def _exists(section: Knowledge, base: Path) -> bool:
    if section.adapter in ("sqlite", "markdown", "langchain"):
        place = path_of(section, base)
        return place.is_dir() or (place.exists() and place.stat().st_size > 0)  # where a disk was full an empty file may be left
    if section.adapter == "postgres":
        return bool(section.dsn)
    return section.server is not None or section.adapter != "mcp"


def _sessions(harness: Harness, text: str, done: Forgotten) -> None:
    for one in harness.sessions.forget_text(text):
        if one.done:
            done.note(f"sessions: {one.kind}", one.count)
        else:
            done.left.append(f"{one.place}: {one.why}")


def _still_there(harness: Harness, needle: Needle, done: Forgotten) -> None:
    """Name every file that holds the text after all, and those that are called by it, unless the name is one of ours."""
    told, unread = [one.partition(": ")[0] for one in done.left], dict[str, str]()
    of_told = tuple(f"{place.removesuffix('.json')}/" for place in told)  # a session that is being run has a folder beside its file
    for tree, folder, path in _kept_files(
        harness, unread, lambda path: path.parent == harness.base and path.name in ("models", "postgres")
    ):
        name, place = path.rpartition("/")[2], str(folder / path)
        if place in told or place.startswith(of_told) or folder / path == harness.base / _TOKEN:
            continue
        theirs = _is_of_the_user(path)
        try:
            if not theirs and name.endswith(_DATABASE):
                if shown := list(dict.fromkeys(_shown_in(folder / path, needle))):
                    done.left.append(f"{place}: a database that shows it in {some(shown, 4)}")
                continue
            called = needle.in_text(name) and (theirs or not (name.endswith((*_NO_TEXT, *_OUR_JSON)) or name in _VIEWS))
            if called or ((theirs or not name.endswith(_NO_TEXT)) and _holds(tree, path, needle, ours=not theirs)):
                done.left.append(f"{place}: a file that {'you or an agent wrote' if theirs else 'is not known here'}; change it by hand")
        except FileNotFoundError:
            continue
        except (OSError, StorageError, sqlite3.Error) as error:
            unread[place] = getattr(error, "strerror", None) or str(error)
    done.left.extend(f"{place}: it could not be looked at ({why})" for place, why in unread.items())


def _shown_in(path: Path, needle: Needle) -> Iterator[str]:
    """The columns of a database that show the text after all, but for words and ids of our own. An empty file is none yet.

    It is asked for by SQLite: closing the file by any other way would drop the locks that this process has on it.
    """
    if not path.stat().st_size:
        return
    bare = [one.encode() for one in needle.normal]
    with closing(open_plain(path)) as opened:
        for table, column, value in values_of(opened):
            if _column_shows(column, value, needle) if isinstance(value, str) else any(_blob_shows(value.lower(), one) for one in bare):
                yield f"{table}.{column}"


def _column_shows(name: str, value: str, needle: Needle) -> bool:
    if not needle.in_bytes(value.encode()):
        return False
    try:
        inner = json.loads(value) if value[:1] in ("{", "[") else value
    except (ValueError, RecursionError):
        inner = value
    return needle.in_member(name, inner)


def _blob_shows(data: bytes, text: bytes) -> bool:
    """Whether bytes hold a text outside of the words that are our own. What is short stands in any great number of bytes by chance."""
    at = data.find(text) if len(text) >= _TELLING or b"\0" not in data else -1
    while at >= 0:
        end = at + len(text)
        word = data[at - _run(data[max(0, at - _LONGEST_WORD) : at][::-1]) : end + _run(data[end : end + _LONGEST_WORD])]
        if not is_own_word(word.decode("utf-8", "replace")):
            return True
        at = data.find(text, end)
    return False


def _run(data: bytes) -> int:
    """How many bytes at the beginning are of one word."""
    found = _OF_A_WORD.match(data)
    return found.end() if found else 0


def _kept_files(harness: Harness, unread: dict[str, str], passed: Callable[[Path], bool]) -> Iterator[tuple[Tree, Path, str]]:
    """Every file wherever the configuration keeps something: the open folder, where that is, and the path in it.

    Folders that `passed` says yes to are not looked into. What cannot be read goes to `unread` with the reason.
    """
    for folder, begin, deep in _kept_places(harness):
        if not folder.is_dir():
            continue

        def skip(_: Tree, path: str, folder: Path = folder, deep: bool = deep) -> bool:
            return not deep or passed(folder / path)

        inside: dict[str, str] = {}
        with Tree(folder) as tree:
            for entry in tree.walk(inside, top_links=True, skip=skip):
                name = entry.path.rpartition("/")[2]
                if entry.kind == "file" and (name.startswith(begin) or is_temp(name)):
                    yield tree, folder, entry.path
        unread.update({str(folder / place): why for place, why in inside.items()})


def _is_of_the_user(path: str) -> bool:
    top, *inner = path.split("/")
    if top == "agents":
        return inner[1:] in (["config.yaml"], ["SOUL.md"])
    return top == "skills" or inner[1:2] == ["user-data"] or "/files/" in path


def _holds(tree: Tree, path: str, needle: Needle, *, ours: bool = False) -> bool:
    """Whether a file shows the text; JSON of `ours` only by what is said in it."""
    overlap, tail = 8 * max(map(len, needle.normal)) + 64, b""
    with tree.open(path) as opened:
        while piece := opened.read(_PIECE):
            if needle.in_bytes(tail + piece):
                if not ours or not path.endswith(_OUR_JSON):
                    return True
                opened.seek(0)
                return needle.in_file(opened.read())
            tail = piece[-overlap:]
    return False


_OTHERS = ("user-data", "skills", "models", "postgres")
"""Folders below the base directory in which nothing is of our naming."""
_OUR_JSON, _VIEWS = (".json", ".jsonl", ".ndjson"), ("context.md", "output.md", "transcript.md")
_NO_TEXT = (".db", ".sqlite", "-wal", "-shm", "-journal", ".lock")
_DATABASE = (".db", ".sqlite")
_TELLING = 6  # bytes
_LONGEST_WORD = 80
_OF_A_WORD = re.compile(rb"[\w.:-]+")
_ASIDE = re.compile(r"\.(?:damaged|edited)-")


def leftovers(harness: Harness, unread: dict[str, str]) -> Iterator[Path]:
    """What crashes and damage left behind wherever the configuration keeps something, by its name. What cannot be read goes to `unread`."""

    drafts: list[Path] = []

    def passed(path: Path) -> bool:
        if is_temp(path.name):
            drafts.append(path)
        return is_temp(path.name) or path.name in _OTHERS

    for _, folder, path in _kept_files(harness, unread, passed):
        name = path.rpartition("/")[2]
        if is_temp(name) or _ASIDE.search(name):
            yield folder / path
    yield from drafts


def _kept_places(harness: Harness) -> Iterator[tuple[Path, str, bool]]:
    """The folders in which something of ours is: with how its names begin there, and whether all below is ours too."""
    config, base = harness.config, harness.base
    yield base, "", True
    layout = Layout.of(config, bus=Bus())
    if layout.places:
        yield layout.shared.parent, layout.shared.name, False
        yield layout.shared.with_name(f"{layout.shared.stem}.d"), "", True
    views = config.memory.session_memory.path
    for folder, deep in ((config.session.path, True), (str(Path(views).parent) if views else None, False)):
        if folder and not (base / folder).is_relative_to(base):
            yield base / folder, "", deep
    for section in (config.knowledge, of_vector_store(config).knowledge):
        if section.adapter in ("sqlite", "markdown", "langchain") and not (place := path_of(section, base)).is_relative_to(base):
            yield (place, "", True) if place.is_dir() else (place.parent, place.name, False)


def is_in_use(folder: Path) -> bool:
    """Whether a process that lives holds a folder: that of a backup which is being made."""
    import fcntl  # not on every system

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


_ENDED = ("completed",)  # `resume` goes on with one that was cancelled
_LEFT_BEHIND = 3600.0  # seconds: what is written takes milliseconds, so what is older belongs to nobody


Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be: ids of sessions and of sub-agents' threads, counts of memory by place. `kept` are sessions in use."""

    sessions: tuple[str, ...] = ()
    recovery_points: int = 0
    kept: tuple[str, ...] = ()
    subagents: tuple[str, ...] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    """What killed writers and removals left behind: paths, and ids of sessions."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Places that could not be looked at, and why."""


def prune(
    harness: Harness,
    *,
    session_days: int | None = None,
    subagent_days: int | None = None,
    recovery_points: int | None = None,
    memory_days: int | None = None,
    dry_run: bool = False,
    told: Told = lambda done, of: None,
) -> Pruned:
    """Remove completed sessions and sub-agents that were last used longer ago, and give their space back. Conversations are never removed.

    The days are those of `session.retain_days` (None keeps all) and `subagents.retain_days` where they are not given. With
    `recovery_points` the newest so many of each session stay; with `memory_days` older changes of memory, which can then no longer be
    undone, and conversations that it gave up. Facts stay. A dry run changes nothing.
    `told` hears how many sessions of how many are removed.
    """
    config = harness.config
    days = session_days if session_days is not None else config.session.retain_days
    gone, removed, kept = _old_sessions(harness, days, recovery_points, told, dry_run=dry_run)
    agents = _subagents(harness, subagent_days if subagent_days is not None else config.subagents.retain_days, dry_run=dry_run)
    before = None if memory_days is None else stamp(harness.clock.now() - timedelta(days=memory_days))
    memory = {} if before is None else harness.memory.prune(before, dry_run=dry_run)
    unread: dict[str, str] = {}
    left = [*_half_removed(harness, dry_run=dry_run), *_temporary(harness, unread, dry_run=dry_run)]
    return Pruned(tuple(gone), removed, tuple(kept), tuple(agents), memory, tuple(left), unread)


def _old_sessions(harness: Harness, days: int | None, points: int | None, told: Told, *, dry_run: bool) -> tuple[list[str], int, list[str]]:
    store = harness.sessions
    limit = stamp(harness.clock.now() - timedelta(days=days)) if days is not None else ""
    gone: list[str] = []
    removed = 0
    for brief in store.list():
        if brief.problem is None and brief.status in _ENDED and brief.updated_at and brief.updated_at < limit:
            gone.append(brief.workflow_id)
        elif points is not None and brief.problem is None:
            would = max(0, len(store.checkpoints(brief.workflow_id)) - points) if dry_run else 0
            removed += would if dry_run else store.prune_checkpoints(brief.workflow_id, keep=points)
    kept = [] if dry_run else [*store.remove_all(gone, told=lambda done: told(done, len(gone)))]
    return [one for one in gone if one not in {*kept}], removed, kept


def _half_removed(harness: Harness, *, dry_run: bool) -> Iterator[str]:
    """Sessions whose removing was killed half-way: there is no session of that id, and nobody wrote to what is left for an hour.

    An id that was given out and has no session yet is none.
    """
    store, hour_ago = harness.sessions, harness.clock.now().timestamp() - _LEFT_BEHIND
    for workflow_id in store.remnants():
        if not store.exists(workflow_id):
            items = [item for place in store.backends() for item in place.list(f"{store.prefix}/{workflow_id}/")]
            if items and max(item.modified for item in items) < hour_ago and store.owner(workflow_id) is None:
                if not dry_run:
                    store.remove_rest(workflow_id)
                yield workflow_id


def _temporary(harness: Harness, unread: dict[str, str], *, dry_run: bool) -> Iterator[str]:
    """Files and folders that were never put in their place, and that nobody wrote to for an hour."""
    hour_ago = harness.clock.now().timestamp() - _LEFT_BEHIND
    for path in leftovers(harness, unread):
        try:
            if is_temp(path.name) and path.stat().st_mtime < hour_ago and not (path.is_dir() and is_in_use(path)):
                if not dry_run:
                    remove_tree(path) if path.is_dir() else path.unlink()
                yield str(path)
        except FileNotFoundError:
            continue  # its writer came to its end after all
        except OSError as error:
            unread[str(path)] = error.strerror or str(error)


def _subagents(harness: Harness, days: int, *, dry_run: bool) -> list[str]:
    if not harness.has_checkpoints:
        return []
    from holdfast.agents.threads import prune_subagents  # LangChain, for who has held conversations

    now = harness.clock.now()
    if dry_run:
        return sorted(harness.threads.older_than(stamp(now - timedelta(days=days))))
    gone = prune_subagents(harness.threads, harness.archive, retain_days=days, now=now)
    harness.checkpoints.shrink()
    return gone
