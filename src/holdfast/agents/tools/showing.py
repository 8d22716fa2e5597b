"""`present_files` hands files to the user, `view_image` shows a picture to the model (A5, A10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from holdfast.agents.tools.workplaces import Workplaces, tool_of
from holdfast.errors import InputError

IMAGE_BYTES = 5_000_000
_KINDS = ((b"\x89PNG\r\n\x1a\n", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF87a", "image/gif"), (b"GIF89a", "image/gif"))


def present_files(places: Workplaces, settings: Mapping[str, Any] | None = None) -> BaseTool:
    """Marks files of the outputs as what the user gets."""

    def present_files(runtime: ToolRuntime[Any, Any], filepaths: list[str]) -> Command[Any]:
        """Show files to the user. They must be in /mnt/user-data/outputs."""
        shown = []
        with places.of(runtime) as sandbox:
            for path in filepaths:
                found = sandbox.files.artifact(path)
                found.stream.close()
                shown.append(found.path)
        if not shown:
            raise InputError("there is nothing to show.", hint="Give at least one path.")
        said = ToolMessage(f"Shown to the user: {', '.join(shown)}.", tool_call_id=str(runtime.tool_call_id), name="present_files")
        return Command(update={"artifacts": shown, "messages": [said]})

    return tool_of(present_files)


def view_image(places: Workplaces, settings: Mapping[str, Any] | None = None) -> BaseTool:
    """Puts a picture in front of the model. The picture itself stays in its file; `ViewImagesMiddleware` sends it along."""

    def view_image(runtime: ToolRuntime[Any, Any], path: str) -> Command[Any]:
        """Look at a picture file (PNG, JPEG, GIF or WebP)."""
        with places.of(runtime) as sandbox:
            seen = sandbox.files.stat(path)
            kind = image_type(sandbox.files.read_bytes(path, limit=IMAGE_BYTES))
        if kind is None:
            raise InputError(f"{seen.path} is no picture in a form that can be shown.", hint="Convert it to PNG first.")
        call = str(runtime.tool_call_id)
        said = ToolMessage(f"{seen.path} ({kind}, {seen.size:,} bytes) is shown below.", tool_call_id=call, name="view_image")
        return Command(update={"viewed_images": {seen.path: {"media_type": kind, "call": call}}, "messages": [said]})

    return tool_of(view_image)


def image_type(data: bytes) -> str | None:
    """What kind of picture the bytes are, by their beginning; None when they are none that models take.

    >>> image_type(b"GIF89a...")
    'image/gif'
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _KINDS if data.startswith(start)), None)
