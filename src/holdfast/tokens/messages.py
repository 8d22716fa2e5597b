"""Messages by their shape, and what each of their parts costs.

LangChain's messages are counted as they are, and so is a dict with `role` and `content`; nothing is imported and nothing converted.
Overheads are those that OpenAI publishes for its chat format (three tokens a message, one for the role, one for a name). Ids of tool
calls are not counted: most chat formats do not show them to the model.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from holdfast.tokens.images import size_of_block

MESSAGE_OVERHEAD = 4
"""Three tokens that frame a message, and its role."""
REPLY_OVERHEAD = 3
"""What opens the reply, once in a request."""
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
