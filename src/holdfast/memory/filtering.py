"""What of a conversation is learned from: what the user typed and the final answers, and nothing that the machinery put there (M8).

Works on messages by their shape (`id`, `type` or `role`, `content`, `tool_calls`, `additional_kwargs`), LangChain's or plain dicts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from holdfast.memory.facts import Turn

_HUMAN = frozenset({"human", "user", "HumanMessageChunk"})
_AI = frozenset({"ai", "assistant", "AIMessageChunk"})
_HIDDEN_NAMES = frozenset({"summary", "reminder", "memory", "recall"})
_HIDDEN_MARKS = frozenset({"summary", "reminder", "repaired", "recall"})
_UPLOADS = re.compile(r"<(uploaded_files|current_uploads|uploads)\b[^>]*>.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_REMINDERS = re.compile(r"<(system-reminder|memory|reminder)\b[^>]*>.*?</\1\s*>", re.DOTALL | re.IGNORECASE)
_THINKING = re.compile(r"<(think|thinking)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)


def turns_of(messages: Iterable[Any], *, time: str = "") -> list[Turn]:
    """The turns to learn from, in their order.

    Left out are tool calls and their results, system messages, hidden messages, summaries and reminders. A message that was only a
    notice of an upload is left out together with its answer: both speak of a file that the next conversation does not have.
    """
    turns: list[Turn] = []
    unasked = False
    for message in messages:
        role = str(_get(message, "type") or _get(message, "role") or "")
        if (role not in _HUMAN and role not in _AI) or _is_hidden(message):
            continue
        text = _text(_get(message, "content"))
        id = str(_get(message, "id") or "")
        if role in _HUMAN:
            said = without_uploads(text)
            unasked = not said and bool(text.strip())
            if said:
                turns.append(Turn(id, "user", said, time))
        elif not _get(message, "tool_calls") and not _get(message, "invalid_tool_calls"):
            said = _THINKING.sub("", text).strip()
            if said and not unasked:
                turns.append(Turn(id, "assistant", said, time))
    return turns


def without_uploads(text: str) -> str:
    """What the user typed, without the notices and reminders that were put into the message."""
    return _REMINDERS.sub("", _UPLOADS.sub("", text)).strip()


def _is_hidden(message: Any) -> bool:
    more = _get(message, "additional_kwargs")
    more = more if isinstance(more, Mapping) else {}
    marks = more.get("holdfast")
    if isinstance(marks, Mapping) and not _HIDDEN_MARKS.isdisjoint(marks):
        return True
    return bool(more.get("hide_from_ui") or more.get("hidden")) or _get(message, "name") in _HIDDEN_NAMES


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [block if isinstance(block, str) else _block_text(block) for block in content]
    return "\n".join(part for part in parts if part)


def _block_text(block: Any) -> str:
    text = block.get("text") if isinstance(block, Mapping) and block.get("type") in ("text", "input_text", "output_text", None) else None
    return text if isinstance(text, str) else ""


def _get(message: Any, name: str) -> Any:
    return message.get(name) if isinstance(message, Mapping) else getattr(message, name, None)
