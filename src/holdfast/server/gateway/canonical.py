"""When two messages are the same message, whatever a client did to their form: by this a conversation is recognised from what it sends.

A message is a mapping in the form of OpenAI's chat API (the other wires are brought into it). What counts is who said it, its text without
the space around it, which tools were called with which arguments, and which call a result answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

ChatMessage = Mapping[str, Any]
_ROLES = {"human": "user", "ai": "assistant", "function": "tool"}


def text_of(content: Any) -> str:
    """The words of a content: a text, or the texts of its parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, Sequence) else ()
    return "".join(str(part.get("text") or "") for part in parts if isinstance(part, Mapping))


def calls_of(message: ChatMessage) -> list[tuple[str, str, str]]:
    """Id, name and arguments of each call, the arguments in one order of their names."""
    found = []
    for call in message.get("tool_calls") or ():
        function = call.get("function") or {}
        found.append((str(call.get("id") or ""), str(function.get("name") or ""), _arguments(function.get("arguments"))))
    return found


def _arguments(said: Any) -> str:
    try:
        value = json.loads(said) if isinstance(said, str) else said
    except ValueError:
        return str(said)
    return json.dumps(value or {}, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _pictures(content: Any) -> Iterator[str]:
    for part in content if isinstance(content, Sequence) and not isinstance(content, str) else ():
        if isinstance(part, Mapping) and part.get("type") not in ("text", "input_text", "output_text", None):
            yield json.dumps(part, sort_keys=True, ensure_ascii=False, default=str)


def digest_of(message: ChatMessage) -> bytes:
    """The same for two messages that are the same, and for no others."""
    role = str(message.get("role", ""))
    content = message.get("content")
    said = [
        _ROLES.get(role, role),
        text_of(content).strip(),
        *(part for call in calls_of(message) for part in call),
        str(message.get("tool_call_id") or ""),
    ]
    pictures = [blake2b(one.encode("utf-8", "replace"), digest_size=16).hexdigest() for one in _pictures(content)]
    return _hashed(json.dumps([said, pictures], ensure_ascii=False))


@lru_cache(maxsize=50_000)
def _hashed(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).digest()


def chain(digests: Sequence[bytes], start: bytes = b"") -> list[bytes]:
    """A name for each beginning of a conversation: that of the beginning before it, and the message."""
    found = []
    for digest in digests:
        start = blake2b(start + digest, digest_size=16).digest()
        found.append(start)
    return found
