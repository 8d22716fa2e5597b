"""Copies for people of sessions that are in a database: the JSON file and the Markdown of the stages, as the file store writes them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from holdfast.durable.disk import Disk
from holdfast.durable.replace import replace
from holdfast.session.layout import Layout
from holdfast.session.side_files import remove_tree, write_stage_file


class Export:
    """Files at the paths that the template and the folder give."""

    def __init__(self, folder: str, template: str, disk: Disk) -> None:
        self.layout = Layout(folder, template, disk)
        self._disk = disk

    def write(self, workflow_id: str, data: bytes) -> None:
        """Put the session's file in place, durably. It may be older than the database, never newer."""
        replace(self.layout.file(workflow_id), data, disk=self._disk)

    def write_stages(self, workflow_id: str, texts: Mapping[str, str]) -> None:
        """Put texts in place, by their names below `stages/`: `NN-stage/context.md`."""
        for path, text in texts.items():
            folder, _, name = path.partition("/")
            number, _, stage = folder.partition("-")
            write_stage_file(self._disk, self.layout.side(workflow_id, "stages"), int(number), stage, name.removesuffix(".md"), text)

    def remove(self, workflow_id: str) -> None:
        """Remove all of it."""
        with suppress(FileNotFoundError):
            self._disk.unlink(self.layout.file(workflow_id))
        remove_tree(self._disk, self.layout.side(workflow_id))
