"""What a provider says in figures when it refuses a request as too long: its window, what was sent, what the answer was to have (S10).

    >>> said = "maximum context length is 8192 tokens. However, you requested 32050 tokens (50 in the messages, 32000 in the completion)"
    >>> read_refusal(said)
    Refusal(window=8192, sent=50, asked=32000)
    >>> read_refusal("prompt is too long: 210000 tokens > 200000 maximum").is_about_the_answer
    False

Most providers count the answer that is asked for (`max_tokens`) into the window. A refusal for its sake says nothing about what was sent:
where the answer leaves room enough the request is made smaller, else whoever asked is told.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_LONGEST = 4_000
"""Characters of a refusal that are read."""
_N = r"(\d{1,3}(?:,\d{3})+|\d{1,12})"
_WINDOW = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\d \+ \d[\d,]{{0,14}} > {_N}",
        rf"maximum (?:context|prompt) length (?:is|of) {_N}",
        rf"{_N} maximum context length",
        rf"context (?:length|size|window|limit)(?: of(?: only)?| is)? \(?{_N}",
        rf"> {_N} maximum",
        rf"tokens allowed \({_N}\)",
        rf"must be <= {_N}",
        rf'"?n_ctx"?\'?: {_N}',
    )
)
_ASKED = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_N} (?:tokens )?(?:in|for) the (?:completion|output)",
        rf"max_[a-z_]{{0,20}}tokens['`\"]? is too large: {_N}",
        rf"\d \+ {_N} > \d",
        rf"{_N} `max_new_tokens`",
    )
)
_SENT = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_N} \+ \d[\d,]{{0,14}} > \d",
        rf"has {_N} input tokens",
        rf"resulted in {_N} tokens",
        rf"prompt is too long: {_N} tokens",
        rf"(?:request|input|input token count) \({_N}(?: tokens)?\)",
        rf"(?:request|prompt) contains {_N} tokens",
        rf"{_N} `inputs` tokens",
    )
)
_PART_SENT = re.compile(
    rf"{_N} (?:tokens )?(?:in|from|of) (?:the )?(?:input messages|messages|prompt|functions|text input|tool input|input)\b"
)
_NAMES = ("max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "num_predict")
"""What the limit of an answer is called."""


class Refusal(NamedTuple):
    """The figures, in the provider's tokens; None for what it does not say."""

    window: int | None = None
    sent: int | None = None
    asked: int | None = None

    @property
    def is_about_the_answer(self) -> bool:
        """Whether what was sent fits, and the answer that is asked for does not fit beside it."""
        if self.window is None or self.asked is None:
            return False
        return (self.sent or 0) <= self.window < (self.sent or 0) + self.asked

    @property
    def is_hopeless(self) -> bool:
        """Whether it is about the answer, and that takes so much that making the request smaller would not be what was wanted."""
        return self.is_about_the_answer and (self.asked or 0) > (self.window or 0) // 2


def read_refusal(text: str) -> Refusal:
    """The figures in the words of a refusal."""
    said = " ".join(text[:_LONGEST].lower().split())
    parts = [_number(found) for found in _PART_SENT.findall(said)]
    return Refusal(_first(_WINDOW, said), _first(_SENT, said) or sum(parts) or None, _first(_ASKED, said))


def refusal_in(error: BaseException) -> Refusal:
    """The figures of an error: in its words, or in the answer that it carries."""
    return read_refusal(f"{error} {getattr(error, 'body', '')}")


def asked_for(settings: Mapping[str, Any], model: object) -> int | None:
    """How long an answer a request asks for: by its own settings, else by the model's."""
    body = settings.get("extra_body")
    for place in (settings, body if isinstance(body, Mapping) else {}):
        for name in _NAMES:
            if (found := _whole(place.get(name))) is not None:
                return found
    return next((found for name in _NAMES if (found := _whole(getattr(model, name, None))) is not None), None)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    return next((_number(found[1]) for pattern in patterns if (found := pattern.search(text)) is not None), None)


def _number(text: str) -> int:
    return int(text.replace(",", ""))
