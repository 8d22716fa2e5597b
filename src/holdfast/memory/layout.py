"""Where the files of memory are: in the base directory, or where `memory.storage_path` says (M2)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.events import Bus
from holdfast.events import bus as process_bus
from holdfast.memory.events import PathBeside

if TYPE_CHECKING:
    from holdfast.config.sections import Config

FILE_NAME = "memory.json"
_ENDING = re.compile(r"[^.]\.\w+$")


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
        if config.trust.beside and not Path(written).expanduser().is_absolute() and not shared.exists() and beside.is_file():
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
    """A folder, which some installations of the reference have there, means the usual file in it; so does a name without an ending."""
    return path / FILE_NAME if path.is_dir() or not (_ENDING.search(path.name) or path.exists()) else path
