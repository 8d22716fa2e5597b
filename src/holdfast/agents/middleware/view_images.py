"""Pictures that the model asked to look at are sent along, right behind the call that asked, and never stored in the conversation (A10).

A picture in a tool result is refused by many providers, and one in the state would be written into every checkpoint. So the state holds
the path, and the picture is read from its file for each request of the turn that it was asked for in. Later requests name it only.
"""

from __future__ import annotations

import base64
from collections.abc import Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from holdfast.agents.middleware.sync_async import AroundModelCall
from holdfast.agents.middleware.thread_data import files_thread
from holdfast.agents.tools.builtin import IMAGE_BYTES, image_type
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.agents.tools.builtin import ThreadSandboxes


class ViewImagesMiddleware(AroundModelCall):
    """Sends the pictures of this turn along. Outside of whatever counts what is really sent."""

    def __init__(self, places: ThreadSandboxes) -> None:
        super().__init__()
        self._places = places

    def around_model(self, request: ModelRequest[Any]) -> Generator[Any, Any, Any]:
        """Ask the model, with the pictures where there are any."""
        return (yield self._with_pictures(request))

    def _with_pictures(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        state: Any = request.state
        viewed = state.get("viewed_images") or {}
        by_call = {str(seen.get("call")): path for path, seen in viewed.items() if isinstance(seen, Mapping)}
        asked = _asked_in_this_turn(request.messages, by_call)
        if not asked:
            return request
        thread = files_thread(request.runtime) or "default"
        messages = list(request.messages)
        for position, paths in sorted(asked.items(), reverse=True):
            messages.insert(position + 1, self._picture_message(thread, paths))
        return request.override(messages=messages)

    def _picture_message(self, thread: str, paths: Sequence[str]) -> HumanMessage:
        blocks: list[Any] = []
        for path in paths:
            blocks.append({"type": "text", "text": f"{path}:"})
            try:
                with self._places.named(thread) as sandbox:
                    data = sandbox.files.read_bytes(path, limit=IMAGE_BYTES)
            except HoldfastError as error:
                blocks.append({"type": "text", "text": f"(cannot be shown: {error.message})"})
                continue
            kind = image_type(data)
            if kind is None:
                blocks.append({"type": "text", "text": "(is no picture any more)"})
            else:
                blocks.append({"type": "image", "base64": base64.b64encode(data).decode("ascii"), "mime_type": kind})
        return HumanMessage(content_blocks=blocks, id=f"pictures-{abs(hash(tuple(paths))):x}")


def _asked_in_this_turn(messages: Sequence[AnyMessage], by_call: Mapping[str, str]) -> dict[int, list[str]]:
    """Where to put pictures: the position of the last tool result of each batch, with the paths that the batch asked for."""
    if not by_call:
        return {}
    found: dict[int, list[str]] = {}
    end, paths = None, []
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if isinstance(message, ToolMessage):
            end = position if end is None else end
            if message.tool_call_id in by_call and message.status != "error":
                paths.append(by_call[message.tool_call_id])
            continue
        if end is not None and paths:
            found[end] = list(reversed(paths))
        end, paths = None, []
        if isinstance(message, HumanMessage):
            break
    return found
