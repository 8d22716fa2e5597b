"""Folders of the machine that the configuration shows to commands and file tools (`sandbox.mounts`), and the skills."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Protocol

from holdfast.durable.folder import Folder
from holdfast.errors import ConfigError, HoldfastError
from holdfast.sandbox.paths import USER_DATA, Root, check_virtual

_TAKEN = frozenset(
    {"bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "root", "run", "sbin", "sys", "tmp", "usr", "var"}
)


class MountSettings(Protocol):
    """One entry of `sandbox.mounts`."""

    @property
    def host_path(self) -> str: ...

    @property
    def container_path(self) -> str: ...

    @property
    def read_only(self) -> bool: ...


def open_mounts(settings: Sequence[MountSettings], *, beside: str | PathLike[str]) -> tuple[Root, ...]:
    """The roots for the mounts of a configuration; relative host paths are relative to `beside`. ConfigError for one that cannot be."""
    found: list[Root] = []
    for number, mount in enumerate(settings):
        key = f"sandbox.mounts[{number}]"
        root = open_mount(Path(beside) / Path(mount.host_path).expanduser(), mount.container_path, read_only=mount.read_only, key=key)
        if any(other.virtual == root.virtual for other in found):
            raise ConfigError(f"{root.virtual} is there twice.", key=f"{key}.container_path", hint="Give each mount a path of its own.")
        found.append(root)
    return tuple(found)


def open_mount(host: str | PathLike[str], virtual: str, *, read_only: bool, key: str = "mount") -> Root:
    """One folder under another path. ConfigError if the folder is not there, or the path belongs to the system or to the thread."""
    try:
        shown = check_virtual(virtual)
    except HoldfastError as error:
        raise ConfigError(error.message, key=f"{key}.container_path", hint=error.hint) from error
    parts = shown.split("/")[1:]
    if parts[0] in _TAKEN or shown == USER_DATA or shown.startswith(f"{USER_DATA}/") or USER_DATA.startswith(f"{shown}/"):
        raise ConfigError(f"{shown} is taken.", key=f"{key}.container_path", hint="Choose another path, for example /mnt/data.")
    if not Path(host).is_dir():
        raise ConfigError(f"{Path(host)} is not a folder.", key=f"{key}.host_path", hint="Make it, or remove the mount.")
    return Root(shown, Folder(host), read_only)
