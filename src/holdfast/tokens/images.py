"""What an image costs: its size from the first bytes of the file, and the formulas of the providers.

The formulas are those of the providers' own documentation; a provider that publishes none is counted like OpenAI. An image whose size
is not known (a link, a file id, bytes that do not parse) counts as `UNKNOWN_SIZE`, an ordinary photograph after the client's scaling.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Mapping
from typing import Any

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
