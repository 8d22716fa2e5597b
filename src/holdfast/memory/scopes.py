"""Whose memory: the global one and one for each agent, where their files are, and whose file an agent reads (M2, M3, M4)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from holdfast.errors import InputError
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.ids import check_name

if TYPE_CHECKING:
    from holdfast.config.sections import Config

FILE_NAME = "memory.json"
_AGENTS = "agents"


@dataclass(frozen=True, kw_only=True)
class PathBeside(Event):
    """The memory file is not in the base directory, but beside the configuration."""

    component: ClassVar[str] = "MemoryStorage"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "{path} is used as it is; there is none at {expected}"
    path: str
    expected: str


def check_agent(agent: str | None) -> str | None:
    """The agent's name as it stands in paths, None for the global memory; InputError for a name that is not allowed."""
    return None if agent is None else check_name(agent, "agent name")


def scope_name(agent: str | None) -> str:
    """How a scope is called in messages: `global`, or the agent's name."""
    return "global" if agent is None else f"agent {agent}"


@dataclass(frozen=True)
class Scopes:
    """Where memory is kept. `shared` is the global file; the agents' are below `base`."""

    base: Path
    shared: Path
    inherit: bool = True

    @classmethod
    def below(cls, base: str | Path, storage_path: str = FILE_NAME, *, inherit: bool = True) -> Scopes:
        """The usual layout in a base directory, without a configuration."""
        return cls(Path(base), _file(Path(base) / Path(storage_path).expanduser()), inherit)

    @classmethod
    def of(cls, config: Config, *, bus: Bus | None = None) -> Scopes:
        """Where the configuration says. A relative path that is absent in the base directory, but exists beside the file, is used there."""
        written = config.memory.storage_path
        shared = _file(config.in_base(written))
        beside = _file(config.beside(written))
        if not Path(written).expanduser().is_absolute() and not shared.exists() and beside.is_file():
            (bus or process_bus).emit(PathBeside(path=str(beside), expected=str(shared)))
            shared = beside
        return cls(config.base, shared, config.memory.inherit)

    def file(self, agent: str | None) -> Path:
        """The memory file of a scope. It need not exist."""
        name = check_agent(agent)
        return self.shared if name is None else self.base / _AGENTS / name / FILE_NAME

    def folder(self, agent: str | None) -> Path:
        """The folder beside the memory file for what belongs to it: its history, its quarantine, its lock."""
        file = self.file(agent)
        return file.with_name(f"{file.stem}.d")

    def read_by(self, agent: str | None) -> str | None:
        """The scope that an agent reads: its own when it has a file, else the global one where that is allowed."""
        name = check_agent(agent)
        return None if name is not None and self.inherit and not self.file(name).exists() else name

    def all(self) -> Iterator[str | None]:
        """The global scope, and every agent that has anything of its own."""
        yield None
        folder = self.base / _AGENTS
        for place in sorted(folder.iterdir()) if folder.is_dir() else ():
            with suppress(InputError):  # a folder that is no agent's
                if check_name(place.name) == place.name and (self.file(place.name).exists() or self.folder(place.name).exists()):
                    yield place.name


def _file(path: Path) -> Path:
    """A folder, which some installations of the reference have there, means the usual file in it."""
    return path / FILE_NAME if path.is_dir() else path
