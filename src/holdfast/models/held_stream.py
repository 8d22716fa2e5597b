"""Streams an answer that the model writes as JSON and the caller reads as text or as a tool call.

The text of an answer is passed on piece by piece as it is written; a tool call, and a value that must be turned back into
what was asked for, comes whole at the end, before the pieces that carry the usage.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.utils.json import parse_partial_json


class AnswerText:
    """Takes the pieces of `{"answer": "..."}` as it is written and gives the pieces of the text in it."""

    def __init__(self) -> None:
        self.written = ""
        self.given = ""

    def feed(self, piece: str) -> str:
        """The new part of the answer's text; empty while a tool is chosen or nothing is certain."""
        self.written += piece
        try:
            seen = parse_partial_json(self.written)
        except ValueError:
            return ""
        text = seen.get("answer") if isinstance(seen, dict) else None
        if not isinstance(text, str):
            return ""
        while text and "\ud800" <= text[-1] <= "\udbff":
            text = text[:-1]  # half of a character: the other half comes with the next piece
        if not text.startswith(self.given):
            return ""
        fresh, self.given = text[len(self.given) :], text
        return fresh


class HeldStream:
    """One streamed answer. `read` turns the whole of what was written into the message; `text_in_answer` lets text through."""

    def __init__(self, read: Callable[[AIMessage], AIMessage], *, text_in_answer: bool) -> None:
        self._read = read
        self._lets_through = text_in_answer
        self._answer = AnswerText()
        self._tail: list[ChatGenerationChunk] = []

    def feed(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk | None:
        """What can be passed on of this piece. Pieces without text (usage, the end) are kept for `finish`."""
        if not chunk.text:
            self._tail.append(chunk)
            return None
        fresh = self._answer.feed(chunk.text)
        return _piece(content=fresh) if fresh and self._lets_through else None

    def message(self) -> AIMessage:
        """The whole answer, read."""
        return self._read(AIMessage(self._answer.written))

    def finish(self, message: AIMessage) -> Iterator[ChatGenerationChunk]:
        """What is left: the tool call, or the text that was not passed on, then the pieces that were kept."""
        for number, made in enumerate(message.tool_calls):
            piece = tool_call_chunk(name=made["name"], args=json.dumps(made["args"]), id=made["id"], index=number)
            yield _piece(content="", tool_call_chunks=[piece])
        given = self._answer.given if self._lets_through else ""
        if len(message.text) > len(given):
            yield _piece(content=message.text[len(given) :])
        if message.usage_metadata is not None:
            yield _piece(content="", usage_metadata=message.usage_metadata)  # of a second request: usages are added up
        yield from self._tail


def _piece(**parts: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(**parts))
