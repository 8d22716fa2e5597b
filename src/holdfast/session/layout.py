"""Where the files of a session lie: `{id}.json`, and a folder `{id}/` beside it for everything else.

A template such as `/var/lib/sessions/{session_id}.json` puts the JSON file elsewhere; the folder stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.durable.disk import Disk
from holdfast.errors import ConfigError, InputError
from holdfast.session.names import check_session_id

_SLOT = "{session_id}"


class Layout:
    """Paths by the id of a session. Every id is checked here, so none leads out of its folder."""

    def __init__(self, folder: str, template: str | None, disk: Disk) -> None:
        self.folder = disk.resolve(os.path.expanduser(folder))  # noqa: PTH111 - paths of a Disk are texts
        self._disk = disk
        given = os.path.expanduser(template) if template is not None else f"{_SLOT}.json"  # noqa: PTH111
        if given.count(_SLOT) != 1:
            raise ConfigError(
                f"the path of session files is {given!r}, and needs {_SLOT} in it once.",
                key="memory.session_memory.path",
                hint=f"For example sessions/{_SLOT}.json.",
            )
        self._before, self._after = os.path.join(self.folder, given).split(_SLOT)  # noqa: PTH118

    def file(self, workflow_id: str) -> str:
        """The JSON file."""
        return f"{self._before}{check_session_id(workflow_id)}{self._after}"

    def side(self, workflow_id: str, *parts: str) -> str:
        """The folder for everything else, or a path in it."""
        return "/".join((self.folder, check_session_id(workflow_id), *parts))

    def ids(self) -> Iterator[str]:
        """The ids of all sessions that have a JSON file, sorted."""
        place, begin = os.path.split(self._before)
        end = self._after.partition("/")[0]
        deep = end != self._after
        for name in self._names(place):
            if not (name.startswith(begin) and name.endswith(end) and len(name) > len(begin) + len(end)):
                continue
            workflow_id = name[len(begin) : len(name) - len(end)]
            if _usable(workflow_id) and (not deep or self._disk.kind(self.file(workflow_id)) == "file"):
                yield workflow_id

    def folders(self) -> Iterator[str]:
        """The ids that have a folder, also where the JSON file is gone."""
        for name in self._names(self.folder):
            if _usable(name) and self._disk.kind(f"{self.folder}/{name}") == "folder":
                yield name

    def _names(self, folder: str) -> list[str]:
        try:
            return self._disk.list(folder)
        except FileNotFoundError:
            return []


def _usable(name: str) -> bool:
    try:
        check_session_id(name)
    except InputError:
        return False
    return True
