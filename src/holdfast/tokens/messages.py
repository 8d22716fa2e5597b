"""Messages by their shape, and what each of their parts costs.

LangChain's messages are counted as they are, and so is a dict with `role` and `content`; nothing is imported and nothing converted.
Overheads are those that OpenAI publishes for its chat format (three tokens a message, one for the role, one for a name). Ids of tool
calls are not counted: most chat formats do not show them to the model.

An image costs what its provider's documentation says, from the size in the first bytes of the file; a provider that publishes no formula is
counted like OpenAI. An image whose size is not known (a link, a file id, bytes that do not parse) counts as `UNKNOWN_SIZE`.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

UNKNOWN_SIZE = (1024, 1024)

_HEAD_BYTES = 4096
_JPEG_HEAD_BYTES = 256 * 1024  # a camera's preview and colour profile stand before the size


def image_tokens(width: int | None, height: int | None, *, detail: str | None = None, provider: str | None = None) -> int:
    """Tokens of one image. A size that is missing or not positive counts as `UNKNOWN_SIZE`."""
    if not width or not height or width < 0 or height < 0:
        width, height = UNKNOWN_SIZE
    if provider == "anthropic":
        return _anthropic(width, height)
    if provider == "google":
        return _google(width, height)
    return _openai(width, height, detail)


def _openai(width: int, height: int, detail: str | None) -> int:
    """85, and 170 for each 512-pixel tile after scaling into 2048 x 2048 and the shorter side to 768; `low` detail is 85."""
    if detail == "low":
        return 85
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return 85 + 170 * max(1, math.ceil(width * scale / 512)) * max(1, math.ceil(height * scale / 512))


def _anthropic(width: int, height: int) -> int:
    """A token for each 750 pixels, after scaling the longer side to 1568; about 1,600 is the most."""
    scale = min(1.0, 1568 / max(width, height))
    return max(1, min(1600, math.ceil(width * scale * height * scale / 750)))


def _google(width: int, height: int) -> int:
    """258 when both sides are at most 384, else 258 for each 768-pixel tile."""
    if width <= 384 and height <= 384:
        return 258
    return 258 * math.ceil(width / 768) * math.ceil(height / 768)


def size_of_block(block: Mapping[str, Any]) -> tuple[int | None, int | None, str | None]:
    """Width, height and detail of an image block in any of the forms of OpenAI, Anthropic, Google and LangChain."""
    holder = block.get("image_url", block.get("source", block))
    detail = block.get("detail")
    if isinstance(holder, str):
        data: object = holder
    elif isinstance(holder, Mapping):
        detail = holder.get("detail", detail)
        data = next((holder[key] for key in ("data", "base64", "url") if isinstance(holder.get(key), str | bytes)), None)
    else:
        data = None
    size = _stated_size(block) or _size_of_data(data)
    width, height = size if size else (None, None)
    return width, height, detail if isinstance(detail, str) else None


def _stated_size(block: Mapping[str, Any]) -> tuple[int, int] | None:
    width, height = block.get("width"), block.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) and width > 0 and height > 0 else None


def _size_of_data(data: object) -> tuple[int, int] | None:
    if isinstance(data, bytes):
        return image_size(data[:_JPEG_HEAD_BYTES])
    if not isinstance(data, str):
        return None
    if data.startswith("data:"):
        header, _, data = data.partition(",")
        if not header.endswith(";base64"):
            return None
    elif "://" in data[:12]:
        return None
    return image_size(_decoded(data, _HEAD_BYTES)) or image_size(_decoded(data, _JPEG_HEAD_BYTES))


def _decoded(text: str, most: int) -> bytes:
    head = text[: most // 3 * 4]
    try:
        return base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return b""


def image_size(head: bytes) -> tuple[int, int] | None:
    """Width and height from the first bytes of a PNG, JPEG, GIF or WebP file, or None when they do not say."""
    if head.startswith(b"\x89PNG\r\n\x1a\n") and head[12:16] == b"IHDR" and len(head) >= 24:
        return _positive(int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big"))
    if head[:6] in (b"GIF87a", b"GIF89a") and len(head) >= 10:
        return _positive(int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little"))
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP" and len(head) >= 30:
        return _webp(head)
    if head[:2] == b"\xff\xd8":
        return _jpeg(head)
    return None


def _positive(width: int, height: int) -> tuple[int, int] | None:
    return (width, height) if width > 0 and height > 0 else None


def _webp(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        return _positive(int.from_bytes(head[26:28], "little") & 0x3FFF, int.from_bytes(head[28:30], "little") & 0x3FFF)
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _jpeg(head: bytes) -> tuple[int, int] | None:
    position = 2
    while position + 9 <= len(head):
        if head[position] != 0xFF:
            return None
        marker = head[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):  # a frame header
            return _positive(
                int.from_bytes(head[position + 7 : position + 9], "big"), int.from_bytes(head[position + 5 : position + 7], "big")
            )
        elif marker in (0x01, *range(0xD0, 0xD9)):  # markers without a length
            position += 2
        else:
            length = int.from_bytes(head[position + 2 : position + 4], "big")
            if length < 2:
                return None
            position += 2 + length
    return None


MESSAGE_OVERHEAD = 4
"""Three tokens that frame a message, and its role."""
CALL_OVERHEAD = 6
"""What frames one tool call beside its name and arguments."""
FILE_PAGE_TOKENS = 2000
"""One page of a PDF: Anthropic's documentation says 1,500 to 3,000."""
MEDIA_TOKENS = 1000
"""Sound or video whose length is not known. A stated guess, mended by reported usage."""
HIDDEN_CHARACTERS = 5
"""Characters of encrypted reasoning for one token: base64 text of text."""


class Message(Protocol):
    """What a message must have to be counted. `id` names it for its whole life; who changes the content makes a new object.

    `tool_calls`, `invalid_tool_calls`, `tool_call_id`, `name` and `additional_kwargs` are looked at where they exist.
    """

    @property
    def id(self) -> str | None: ...

    @property
    def type(self) -> str: ...

    @property
    def content(self) -> Any: ...


TextCount = Callable[[str], int]
ImageCount = Callable[[int | None, int | None, str | None], int]

_NOTHING: dict[str, Any] = {}


def field(message: object, name: str) -> Any:
    """A part of a message, or None. Asking a pydantic object for an attribute that it does not have is slow, so it is not asked."""
    own = getattr(message, "__dict__", _NOTHING)
    if name in own:
        return own[name]
    declared, is_mapping = _shape_of(type(message))  # type: ignore[arg-type]  # mypy checks the hash of the class as if of an instance
    if name in declared:
        return getattr(message, name, None)
    return message.get(name) if is_mapping else None  # type: ignore[attr-defined]  # what a mapping has


_FIELDS = ("id", "type", "content", "tool_calls", "invalid_tool_calls", "tool_call_id", "name", "additional_kwargs")


@lru_cache(maxsize=256)
def _shape_of(kind: type[Any]) -> tuple[frozenset[str], bool]:
    """The parts that the class itself offers (properties, slots, defaults), and whether its objects are mappings."""
    return frozenset(name for name in _FIELDS if hasattr(kind, name)), issubclass(kind, Mapping)


def count_message(message: object, text: TextCount, image: ImageCount) -> int:
    """All of one message: overhead, name, content, and the tool calls that the content does not already hold."""
    only = plain_text(message)
    if only is not None:
        return MESSAGE_OVERHEAD + text(only)
    calls = _calls_of(message)
    total = MESSAGE_OVERHEAD + count_content(field(message, "content"), text, image, known_calls=_ids_of(calls))
    name = field(message, "name")
    if isinstance(name, str) and name:
        total += 1 + text(name)
    for call in calls:
        total += CALL_OVERHEAD + text(_call_text(call))
    reasoning = (field(message, "additional_kwargs") or _NOTHING).get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        total += text(reasoning)
    return total


def _calls_of(message: object) -> list[Mapping[str, Any]]:
    calls = [call for name in ("tool_calls", "invalid_tool_calls") for call in field(message, name) or () if isinstance(call, Mapping)]
    if not calls:
        raw = field(message, "additional_kwargs")
        if isinstance(raw, Mapping):
            calls = [call for call in raw.get("tool_calls") or () if isinstance(call, Mapping)]
            if isinstance(raw.get("function_call"), Mapping):
                calls.append(raw["function_call"])
    return calls


def _ids_of(calls: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(call["id"] for call in calls if isinstance(call.get("id"), str))


def _call_text(call: Mapping[str, Any]) -> str:
    inner = call.get("function", call)
    if not isinstance(inner, Mapping):
        inner = call
    arguments = next((inner[key] for key in ("args", "arguments", "input") if inner.get(key) is not None), "")
    return f"{inner.get('name') or ''} {arguments if isinstance(arguments, str) else _json(arguments)}"


def _json(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no strings, or a value that contains itself
        return str(value)


def count_content(content: object, text: TextCount, image: ImageCount, *, known_calls: frozenset[str] = frozenset()) -> int:
    """The content of a message: a text, or a list of texts and blocks. Calls whose id is in `known_calls` are counted elsewhere."""
    if isinstance(content, str):
        return text(content)
    if isinstance(content, Mapping):
        return _count_block(content, text, image, known_calls)
    if not isinstance(content, list | tuple):
        return 0 if content is None else text(str(content))
    total = 0
    for block in content:
        if isinstance(block, str):
            total += text(block)
        elif isinstance(block, Mapping):
            total += _count_block(block, text, image, known_calls)
        elif block is not None:
            total += text(str(block))
    return total


_TEXTS = frozenset({"text", "input_text", "output_text", "text-plain", "refusal"})
_IMAGES = frozenset({"image", "image_url", "input_image"})
_FILES = frozenset({"file", "document", "input_file"})
_MEDIA = frozenset({"audio", "input_audio", "video", "media"})
_CALLS = frozenset({"tool_use", "tool_call", "function_call", "invalid_tool_call", "server_tool_use", "server_tool_call"})
_RESULTS = frozenset({"tool_result", "server_tool_result", "function_call_output", "web_search_tool_result"})
_REASONING = frozenset({"reasoning", "thinking", "redacted_thinking"})


def _count_block(block: Mapping[str, Any], text: TextCount, image: ImageCount, known_calls: frozenset[str]) -> int:
    kind = block.get("type")
    if kind in _TEXTS or (kind is None and isinstance(block.get("text"), str)):
        said = block.get("text", block.get("refusal"))
        return text(said) if isinstance(said, str) else 0
    if kind in _IMAGES:
        return image(*size_of_block(block))
    if kind in _CALLS:
        known = block.get("id") in known_calls or block.get("call_id") in known_calls
        return 0 if known else CALL_OVERHEAD + text(_call_text(block))
    if kind in _RESULTS:
        return CALL_OVERHEAD + count_content(block.get("content", block.get("output")), text, image)
    if kind in _REASONING:
        return _count_reasoning(block, text)
    if kind in _FILES:
        return _count_file(block, text)
    if kind in _MEDIA:
        media = str(block.get("mime_type") or "")
        return image(*size_of_block(block)) if media.startswith("image/") else MEDIA_TOKENS
    if kind == "non_standard" and isinstance(block.get("value"), Mapping):
        return _count_block(block["value"], text, image, known_calls)
    return text(_json(block))  # a kind that is not known: as the JSON that is sent


def _count_reasoning(block: Mapping[str, Any], text: TextCount) -> int:
    said = [block[key] for key in ("thinking", "reasoning", "text") if isinstance(block.get(key), str)]
    said += [part["text"] for part in block.get("summary") or () if isinstance(part, Mapping) and isinstance(part.get("text"), str)]
    hidden = [block[key] for key in ("data", "encrypted_content") if isinstance(block.get(key), str)]
    return sum(map(text, said)) + sum(len(data) // HIDDEN_CHARACTERS for data in hidden)


_PDF_PAGE = re.compile(rb"/Type\s*/Page[^s]")


def _count_file(block: Mapping[str, Any], text: TextCount) -> int:
    """A text document by its text; a PDF by the pages that can be seen in it, at least one."""
    source = next((block[key] for key in ("source", "file") if isinstance(block.get(key), Mapping)), block)
    data = next((source[key] for key in ("text", "data", "base64", "file_data") if isinstance(source.get(key), str)), "")
    media = str(source.get("media_type") or source.get("mime_type") or block.get("mime_type") or "")
    if source.get("type") == "text" or media.startswith("text/") or isinstance(source.get("text"), str):
        return text(data)
    if data.startswith("data:"):
        data = data.partition(",")[2]
    try:
        pages = len(_PDF_PAGE.findall(base64.b64decode(data)))
    except (binascii.Error, ValueError):
        pages = 0
    return FILE_PAGE_TOKENS * max(1, pages)


def plain_text(message: object) -> str | None:
    """The text of a message that is a text and nothing else, as most are; None for any other."""
    own = getattr(message, "__dict__", _NOTHING)
    content = own.get("content")
    if (
        type(content) is not str
        or own.get("tool_calls")
        or own.get("invalid_tool_calls")
        or own.get("name")
        or own.get("additional_kwargs")
    ):
        return None
    return content


def mark_of(message: object) -> int:
    """A hash of everything about a message that is counted. Two messages with the same mark count the same."""
    text = plain_text(message)
    if text is not None:
        return hash(text)
    content = field(message, "content")
    extra = field(message, "additional_kwargs")
    return hash(
        (
            hash(content) if type(content) is str else _mark(content),
            _mark(field(message, "tool_calls")),
            _mark(field(message, "invalid_tool_calls")),
            _mark(field(message, "name")),
            _mark(extra) if extra else 0,
        )
    )


def _mark(value: object) -> int:
    if not value and value.__class__ in (list, type(None)):
        return 0
    if isinstance(value, str):
        return hash(value)
    if isinstance(value, Mapping):
        return hash(("m", *((str(key), _mark(item)) for key, item in value.items())))
    if isinstance(value, list | tuple):
        return hash(("l", *map(_mark, value)))
    return hash(repr(value))  # 1, 1.0 and True are equal, but are not written alike
