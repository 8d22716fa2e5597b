"""Files of the person's own, taken into the conversation: `holdfast chat --file`, and /upload (A9, A10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.errors import InputError
from holdfast.sandbox.conversion import MarkItDown
from holdfast.sandbox.uploads import Upload, Uploads


def take_files(talk: Any, paths: Sequence[Path]) -> list[Upload]:
    """Copy the files into the thread's uploads, office formats also as Markdown. InputError, before anything is copied, for a wrong one."""
    agent = getattr(talk, "agent", None)
    if agent is None or agent.places is None:
        raise InputError("files need a model to read them, and none is configured.", hint="`holdfast models list` says what there is.")
    for path in paths:
        if not path.is_file():
            raise InputError(f"{path} is not a file.", hint="Give the path of a file; a folder can be mounted under `sandbox.mounts`.")
    taken = []
    with agent.places.named(talk.thread) as sandbox:
        config = agent.parts.config
        uploads = Uploads(talk.thread, sandbox.files, base=config.base, converter=MarkItDown(), most_bytes=config.server.max_upload_bytes)
        for path in paths:
            with path.open("rb") as file:
                taken.append(uploads.take(path.name, file))
    return taken


def noticed(message: str, taken: Sequence[Upload]) -> str:
    """The message with a notice of what was uploaded. Memory leaves the notice out of what it learns from."""
    if not taken:
        return message
    lines = [f"- {one.path} ({one.size:,} bytes)" + (f", as Markdown: {one.markdown}" if one.markdown else "") for one in taken]
    return "\n".join(["<uploaded_files>", *lines, "</uploaded_files>", "", message])
