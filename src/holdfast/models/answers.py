"""Whether an answer is whole: not cut at a limit, not filled up to the end of its room, not one sentence over and over (A15).

What is cut is no answer, however well its form fits: a grammar that closes the quotation marks at the two hundredth character makes valid
JSON out of half a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.exceptions import OutputParserException

from holdfast.text.repetition import repetition


class AnswerCut(OutputParserException):
    """An answer in a schema that ended where its room did."""


_CODE = 32
"""Texts shorter than this may well be as long as they were asked for."""
_CUT = "was cut at the limit of its tokens"


def cut_by_client(error: Exception) -> str | None:
    """The flaw of an answer that the provider's client did not even give us, because it was cut; None for every other error."""
    return _CUT if type(error).__name__ == "LengthFinishReasonError" else None  # of openai, which need not be installed


def flaw_of(message: object) -> str | None:
    """Why what a model said is no whole answer, in words that follow "the answer"; None when it is one."""
    metadata = getattr(message, "response_metadata", None)
    said = metadata if isinstance(metadata, Mapping) else {}
    if (said.get("finish_reason") or said.get("stop_reason") or said.get("done_reason")) in ("length", "max_tokens", "MAX_TOKENS"):
        return _CUT
    text = getattr(message, "text", "")
    if said.get("finish_reason") == REPEATED or repetition(str(text)) is not None:
        return "says the same over and over"
    return None


REPEATED = "repetition"
"""The reason for which an answer ended that was stopped because it repeated itself."""


def filled_text(value: Any, schema: Any, place: str = "") -> str | None:
    """The place of a text in an answer that is as long as its schema allows; None when there is none.

    Bounds of a few characters do not count: a country code fills its two.
    """
    if not isinstance(schema, Mapping):
        return None
    if isinstance(value, str):
        most = schema.get("maxLength")
        return place or "it" if isinstance(most, int) and len(value) >= max(most, _CODE) and "enum" not in schema else None
    if isinstance(value, Mapping):
        inner = schema.get("properties")
        parts = (
            [(value[name], part, f"{place}.{name}".lstrip(".")) for name, part in inner.items() if name in value]
            if isinstance(inner, Mapping)
            else []
        )
    elif isinstance(value, list):
        parts = [(one, schema.get("items"), f"{place}[{number}]") for number, one in enumerate(value)]
    else:
        return None
    return next((found for found in (filled_text(*part) for part in parts) if found is not None), None)
