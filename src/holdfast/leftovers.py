"""What crashes and damage leave behind beside everything that is kept: found by its name, wherever the configuration keeps something."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.durable.replace import is_temp
from holdfast.events import Bus
from holdfast.knowledge.adapters import of_vector_store, path_of
from holdfast.memory.layout import Layout

if TYPE_CHECKING:
    from holdfast.harness import Harness

_OTHERS = ("user-data", "skills", "models", "postgres")
"""Folders below the base directory in which nothing is of our naming."""
_ASIDE = re.compile(r"\.(?:damaged|edited)-")


def leftovers(harness: Harness, unread: dict[str, str]) -> Iterator[Path]:
    """What crashes and damage left behind wherever the configuration keeps something, by its name. What cannot be read goes to `unread`."""

    def note(error: OSError) -> None:
        if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
            unread[str(error.filename)] = error.strerror or str(error)

    for folder, begin, deep in _kept_places(harness):
        for here, folders, files in os.walk(folder, onerror=note):
            folders[:] = [name for name in folders if deep and name not in _OTHERS and not is_temp(name)]
            yield from (Path(here, name) for name in sorted(files) if is_temp(name) or (name.startswith(begin) and _ASIDE.search(name)))
            if deep:
                yield from (found for found in sorted(Path(here).glob(".new-*.tmp")) if found.is_dir() and is_temp(found.name))


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
