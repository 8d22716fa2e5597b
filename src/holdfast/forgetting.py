"""`forget_text`: take a text out of everything that is kept, wherever the configuration keeps it (M14).

Each room forgets in its own stores and says how much; what no room knows of is cleaned in a general way, so that a new kind of data is
forgotten from its first day. What could not be reached, or is not ours to change, is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable.disk import REAL
from holdfast.durable.folder import Folder, remove_tree
from holdfast.errors import OutsideRoot, StorageError
from holdfast.knowledge.adapters import of_vector_store, open_section, path_of
from holdfast.leftovers import is_in_use, leftovers
from holdfast.storage.scrub import Rule, scrub
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Knowledge
    from holdfast.harness import Harness

_PIECE = 1 << 20
MOVED = "user-data/outputs/moved"
"""Where texts that are too long for the window stand, below the folder of a thread."""
_OF_ROOMS = ("memory.json", "memory.d/**", "agents/**", "threads/**", "sessions/**", "skills/**", "models/**")
"""Keys below the base directory that their rooms have cleaned already, and files of the user's own."""
_OF_THE_USER = ("threads/*/user-data/**/*", "skills/**/*", "agents/*/config.yaml", "agents/*/SOUL.md")


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
    needle, done = Needle(text), Forgotten()
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
    for file in _files_with(harness.base, needle):
        done.left.append(f"{file}: a file that you or an agent wrote; change it by hand")
    return done


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
        for thread in folder.list("threads"):
            with suppress(FileNotFoundError, OutsideRoot):  # none, or a link that a command put there
                for entry in folder.list(f"{thread.path}/{MOVED}"):
                    if entry.kind == "file" and needle.in_bytes(folder.read_bytes(entry.path)):
                        folder.remove(entry.path)
                        done.note("texts that were moved to files", 1)


def _leftovers(harness: Harness, needle: Needle, done: Forgotten) -> None:
    """Copies that no room reads any more, beside everything that is kept: set aside, left by a killed writer, half a backup."""
    for path in leftovers(harness, unread := {}):
        try:
            inside = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file() and not file.is_symlink()]
            if not any(_holds(file, needle) for file in inside):
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
        return path_of(section, base).exists()
    if section.adapter == "postgres":
        return bool(section.dsn)
    return section.server is not None or section.adapter != "mcp"


def _sessions(harness: Harness, text: str, done: Forgotten) -> None:
    for one in harness.sessions.forget_text(text):
        if one.done:
            done.note(f"sessions: {one.kind}", one.count)
        else:
            done.left.append(f"{one.place}: {one.why}")


def _files_with(base: Path, needle: Needle) -> Iterator[Path]:
    """The files of the user's own that hold the text."""
    for pattern in _OF_THE_USER:
        for file in sorted(base.glob(pattern)):
            if file.is_file() and not file.is_symlink() and _holds(file, needle):
                yield file


def _holds(file: Path, needle: Needle) -> bool:
    overlap, tail = 8 * max(map(len, needle.normal)) + 64, b""
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            if needle.in_bytes(tail + piece):
                return True
            tail = piece[-overlap:]
    return False
