"""Where people find a session as files: its JSON, and the Markdown of its stages. Views of the log, made again when they are missing.

With files as storage they lie beside the log, or where `memory.session_memory.path` says; with PostgreSQL they are written if it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.session.names import check_session_id
from holdfast.storage.backend import Backend, Mark, Put, Stored


@dataclass(frozen=True, slots=True)
class Views:
    """The documents `PREFIX/ID.json` and `PREFIX/ID/stages/NN-name/*.md` of a backend, which is one of files."""

    backend: Backend
    prefix: str

    def key(self, workflow_id: str) -> str:
        """The key of the JSON file."""
        return f"{self.prefix}/{check_session_id(workflow_id)}.json"

    def where(self, workflow_id: str) -> str:
        """The JSON file, for messages."""
        return self.backend.where(self.key(workflow_id))

    def get(self, workflow_id: str) -> Stored | None:
        """The JSON file."""
        return self.backend.get(self.key(workflow_id))

    def mark(self, workflow_id: str) -> Mark | None:
        """The mark of the JSON file."""
        return self.backend.mark(self.key(workflow_id))

    def markdown(self, workflow_id: str, texts: Mapping[str, str]) -> list[Put]:
        """The writing of stages' texts, by their names."""
        return [Put(f"{self._stages(workflow_id)}{name}", text.encode(), durable=False) for name, text in texts.items()]

    def missing(self, workflow_id: str, names: set[str]) -> set[str]:
        """Which of the stages' texts are not there."""
        if not names:
            return names
        start = self._stages(workflow_id)
        return names - {item.key.removeprefix(start) for item in self.backend.list(start)}

    def texts(self, workflow_id: str) -> dict[str, str]:
        """The stages' texts that are there."""
        start = self._stages(workflow_id)
        found = {item.key: self.backend.get(item.key) for item in self.backend.list(start) if item.kind == "document"}
        return {key.removeprefix(start): stored.data.decode("utf-8", "replace") for key, stored in found.items() if stored is not None}

    def _stages(self, workflow_id: str) -> str:
        return f"{self.prefix}/{check_session_id(workflow_id)}/stages/"
