"""Whose memory: the global one and one for each agent, under which keys each is kept, and where their files are (M2, M3, M4)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.ids import check_name
from holdfast.memory.events import PathBeside

if TYPE_CHECKING:
    from holdfast.config.sections import Config

FILE_NAME = "memory.json"
AGENTS = "agents"


def check_agent(agent: str | None) -> str | None:
    """The agent's name as it stands in keys, None for the global memory; InputError for a name that is not allowed."""
    return None if agent is None else check_name(agent, "agent name")


def scope_name(agent: str | None) -> str:
    """How a scope is called in messages: `global`, or the agent's name."""
    return "global" if agent is None else f"agent {agent}"


@dataclass(frozen=True, slots=True)
class Keys:
    """The storage keys of one scope: its document, and beside it the log of changes and the candidates that wait for a person."""

    document: str
    history: str
    quarantine: str
    note: str
    """Where earlier versions wrote a change down before they carried it out. Only ever finished and removed."""


@lru_cache(maxsize=256)
def keys_of(agent: str | None) -> Keys:
    """The keys of a scope. InputError for a name that is not allowed."""
    name = check_agent(agent)
    below = "" if name is None else f"{AGENTS}/{name}/"
    side = f"{below}memory.d"
    return Keys(f"{below}{FILE_NAME}", f"{side}/history.jsonl", f"{side}/quarantine.json", f"{side}/pending.json")


@dataclass(frozen=True)
class Layout:
    """Where memory is kept. `shared` is the global file; the agents' are below `base`. `inherit`: an agent without its own reads it."""

    base: Path
    shared: Path
    inherit: bool = True

    @classmethod
    def below(cls, base: str | Path, storage_path: str = FILE_NAME, *, inherit: bool = True) -> Layout:
        """The usual layout in a base directory, without a configuration."""
        return cls(Path(base), _file(Path(base) / Path(storage_path).expanduser()), inherit)

    @classmethod
    def of(cls, config: Config, *, bus: Bus | None = None) -> Layout:
        """Where the configuration says. A relative path that is absent in the base directory, but exists beside the file, is used there."""
        written = config.memory.storage_path
        shared = _file(config.in_base(written))
        beside = _file(config.beside(written))
        if not Path(written).expanduser().is_absolute() and not shared.exists() and beside.is_file():
            (bus or process_bus).emit(PathBeside(path=str(beside), expected=str(shared)))
            shared = beside
        return cls(config.base, shared, config.memory.inherit)

    @property
    def places(self) -> dict[str, str]:
        """The keys whose files are not below the base under their own names."""
        if self.shared == self.base / FILE_NAME:
            return {}
        return {
            FILE_NAME: str(self.shared),
            FILE_NAME + ".damaged-{time}": str(self.shared) + ".damaged-{time}",
            "memory.d/": f"{self.shared.with_name(f'{self.shared.stem}.d')}/",
        }


def _file(path: Path) -> Path:
    """A folder, which some installations of the reference have there, means the usual file in it."""
    return path / FILE_NAME if path.is_dir() else path
