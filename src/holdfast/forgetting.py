"""`forget_text`: take a text out of everything that is kept, wherever the configuration keeps it (M14).

Each store forgets by itself and says how much; here they are asked one after another, and what could not be reached is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable.replace import replace
from holdfast.errors import InputError
from holdfast.knowledge.opening import of_vector_store, open_section, path_of

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Knowledge
    from holdfast.harness import Harness

_PIECE = 1 << 20


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
    forgotten yet. Files that an agent or the user put into a conversation are not changed; those that hold the text are in `left`.
    """
    if not text.strip():
        raise InputError("there is nothing to forget.", hint="Give at least one word.")
    done = Forgotten()
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
    done.note("archive: damaged pieces", gone.damaged)
    done.note("typed lines", _typed_lines(harness.base / "typed_lines", text))
    done.left.extend(f"{file}: a file of a conversation; remove it by hand" for file in _files_with(harness.base / "threads", text))
    return done


def _knowledge(harness: Harness, text: str, done: Forgotten) -> None:
    """In the configured store and in that of the session. A store that was never made is not made for this."""
    sections = [harness.config.knowledge, of_vector_store(harness.config).knowledge]
    for section in sections if sections[0] != sections[1] else sections[:1]:
        if _exists(section, harness.base):
            with open_section(section, harness.base, clock=harness.clock, bus=harness.bus) as store:
                done.note(f"knowledge ({section.adapter}): records", len(store.forget_text(text)))


def _exists(section: Knowledge, base: Path) -> bool:
    if section.adapter in ("sqlite", "markdown"):
        return path_of(section, base).exists()
    return bool(section.dsn) if section.adapter == "postgres" else section.server is not None


def _sessions(harness: Harness, text: str, done: Forgotten) -> None:
    for one in harness.sessions.forget_text(text):
        if one.done:
            done.note(f"sessions: {one.kind}", one.count)
        else:
            done.left.append(f"{one.place}: {one.why}")


def _typed_lines(file: Path, text: str) -> int:
    """What was typed into `holdfast chat` is kept for the arrow keys: lines that hold the text go."""
    try:
        lines = file.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return 0
    kept = [line for line in lines if text.casefold() not in line.decode("utf-8", "replace").casefold()]
    if len(kept) < len(lines):
        replace(file, b"".join(kept), mode=0o600)
    return len(lines) - len(kept)


def _files_with(threads: Path, text: str) -> Iterator[Path]:
    """The files of conversations that hold the text, as UTF-8."""
    needle = text.encode()
    for file in sorted(threads.glob("*/user-data/**/*")):
        if file.is_file() and not file.is_symlink() and _holds(file, needle):
            yield file


def _holds(file: Path, needle: bytes) -> bool:
    tail = b""
    with file.open("rb") as opened:
        while piece := opened.read(_PIECE):
            if needle in tail + piece:
                return True
            tail = piece[-len(needle) :]
    return False
