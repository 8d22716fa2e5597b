"""Which skills are switched on: `{base}/skills.json`, written durably, and what a reference installation says about its own (A12)."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from holdfast.durable.aside import set_aside
from holdfast.durable.lock import Lock
from holdfast.durable.replace import read_json, replace_json
from holdfast.errors import Damaged, StorageError

_SCHEMA = 1
REFERENCE_FILE = "extensions_config.json"


class Switches:
    """The enabled state by name. What nobody switched is on. Safe for many threads and processes.

    `reference` is a file of the reference's form (`{"skills": {NAME: {"enabled": false}}}`), which is read and never written; our own file
    comes first.
    """

    def __init__(self, path: str | PathLike[str], *, reference: str | PathLike[str] | None = None) -> None:
        self._path = Path(path)
        self._reference = Path(reference) if reference is not None else None
        self.problems: tuple[str, ...] = ()

    def read(self) -> dict[str, bool]:
        """All names that were switched at some time. A damaged file is set aside and named in `problems`; then everything is on."""
        return {**_states(self._foreign()), **_states(self._own())}

    def set(self, name: str, *, enabled: bool) -> None:
        """Switch a skill. On return it survives a power cut. What else the file says is kept."""
        with Lock(f"{self._path}.lock", timeout=10.0):
            document = dict(self._own())
            skills = dict(document.get("skills") or {})
            skills[name] = {**(skills[name] if isinstance(skills.get(name), Mapping) else {}), "enabled": enabled}
            document |= {"schema": _SCHEMA, "skills": dict(sorted(skills.items()))}
            replace_json(self._path, document)

    def _own(self) -> Mapping[str, Any]:
        try:
            value = read_json(self._path)
        except FileNotFoundError:
            return {}
        except Damaged as error:
            aside = set_aside(self._path)
            self.problems = (*self.problems, f"{error.message} It was set aside as {aside}; all skills are on.")
            return {}
        return value if isinstance(value, Mapping) else {}

    def _foreign(self) -> Mapping[str, Any]:
        if self._reference is None:
            return {}
        try:
            value = read_json(self._reference)
        except FileNotFoundError:
            return {}
        except StorageError as error:
            self.problems = (*self.problems, f"{self._reference.name} cannot be read: {error.message}")
            return {}
        return value if isinstance(value, Mapping) else {}


def _states(document: Mapping[str, Any]) -> dict[str, bool]:
    skills = document.get("skills")
    if not isinstance(skills, Mapping):
        return {}
    return {str(name): bool(state.get("enabled", True)) for name, state in skills.items() if isinstance(state, Mapping)}
