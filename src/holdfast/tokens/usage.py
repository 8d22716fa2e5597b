"""Token usage: what one call used, in the forms that providers report it, and what that costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from holdfast.errors import ConfigError

_MILLION = Decimal(1_000_000)
_CACHED = ("prompt_cache_hit_tokens", "cached_content_token_count", "cachedContentTokenCount")


@dataclass(frozen=True)
class Usage:
    """Tokens of one or more calls. `input_tokens` holds those read from and written to a cache, `output_tokens` those of reasoning.

    `estimated` says that at least a part is our own count, because the provider reported nothing.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.reasoning + other.reasoning,
            self.estimated or other.estimated,
        )

    @classmethod
    def read(cls, reported: object) -> Usage | None:
        """From a message with `usage_metadata`, or from a usage mapping of LangChain, OpenAI, Anthropic, Google or DeepSeek.

        None when nothing was reported: no mapping, no numbers, or zeros alone.
        """
        if isinstance(reported, Usage):
            return reported
        for mapping in _mappings(reported):
            usage = cls._from(mapping)
            if usage.total > 0:
                return usage
        return None

    @classmethod
    def _from(cls, usage: Mapping[str, Any]) -> Usage:
        ins = _inner(usage, "input_token_details", "input_tokens_details", "prompt_tokens_details")
        outs = _inner(usage, "output_token_details", "output_tokens_details", "completion_tokens_details")
        read = _number(ins, "cache_read", "cached_tokens") or _number(usage, *_CACHED)
        by_lifetime = sum(_number(ins, key) for key in ins if str(key).startswith("ephemeral_"))
        written = max(_number(ins, "cache_creation", "cache_write_tokens"), by_lifetime)
        tokens_in = _number(usage, "input_tokens", "prompt_tokens", "prompt_token_count", "promptTokenCount")
        beside_read, beside_written = _number(usage, "cache_read_input_tokens"), _number(usage, "cache_creation_input_tokens")
        if beside_read or beside_written:  # Anthropic's own form: `input_tokens` leaves them out
            tokens_in, read, written = tokens_in + beside_read + beside_written, beside_read, beside_written
        elif read + written > tokens_in:  # reported beside the input, not within it
            tokens_in += read + written
        thoughts = _number(usage, "thoughts_token_count", "thoughtsTokenCount")
        candidates = _number(usage, "candidates_token_count", "candidatesTokenCount")
        tokens_out = _number(usage, "output_tokens", "completion_tokens") or thoughts + candidates
        reasoning = _number(outs, "reasoning", "reasoning_tokens") or thoughts
        return cls(tokens_in, tokens_out, read, written, reasoning)


def _mappings(reported: object) -> Iterable[Mapping[str, Any]]:
    if isinstance(reported, Mapping):
        yield reported
        return
    metadata = getattr(reported, "response_metadata", None)
    candidates = [getattr(reported, "usage_metadata", None)]
    if isinstance(metadata, Mapping):
        candidates += [metadata.get(key) for key in ("token_usage", "usage", "usage_metadata")]
    yield from (candidate for candidate in candidates if isinstance(candidate, Mapping))


def _inner(usage: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    return next((usage[key] for key in keys if isinstance(usage.get(key), Mapping)), {})


def _number(usage: Mapping[str, Any], *keys: str) -> int:
    """The first of these that is a count; 0 when none is."""
    for key in keys:
        value = usage.get(key)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0:
            return int(value)
    return 0


@dataclass(frozen=True)
class Price:
    """What a model costs for a million tokens. None is a price that is not known, never one of nothing.

    Tokens read from a cache cost `cache_read`, or the input price where that is not given (so never too little). Tokens written to a
    cache cost `cache_write`; who charges for writing charges more than for input, so without it such a call has no known cost.
    """

    input: Decimal | None = None
    output: Decimal | None = None
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    currency: str = "USD"

    @classmethod
    def read(cls, pricing: object, *, model: str | None = None) -> Price:
        """From `pricing` in `models[]` (`input`, `output`, `cache_read`, `cache_write`, `currency`). Raises ConfigError for no price."""
        if pricing is None:
            return cls()
        if isinstance(pricing, Price):
            return pricing
        where = f"models[{model}].pricing" if model else "pricing"
        if not isinstance(pricing, Mapping):
            raise ConfigError(f"{pricing!r} is no price list.", key=where, hint="Give `input` and `output`, for a million tokens each.")
        prices = {name: amount(_first(pricing, keys), key=f"{where}.{name}") for name, keys in _PRICE_KEYS.items()}
        currency = pricing.get("currency", "USD")
        if not isinstance(currency, str) or not currency.strip():
            raise ConfigError(f"{currency!r} is no currency.", key=f"{where}.currency", hint="Give its short name, such as USD.")
        return cls(**prices, currency=currency.strip().upper())

    def cost(self, usage: Usage) -> Decimal | None:
        """The cost of this usage to the last digit, or None when a price that it needs is not known."""
        plain = max(0, usage.input_tokens - usage.cache_read - usage.cache_write)
        cached = self.input if self.cache_read is None else self.cache_read
        parts = ((plain, self.input), (usage.cache_read, cached), (usage.cache_write, self.cache_write), (usage.output_tokens, self.output))
        total = Decimal(0)
        for tokens, price in parts:
            if tokens:
                if price is None:
                    return None
                total += tokens * price
        if self.input is None and self.output is None:
            return None  # nothing was used, but nothing is known either
        return total / _MILLION


_PRICE_KEYS = {
    "input": ("input", "input_per_million", "prompt"),
    "output": ("output", "output_per_million", "completion"),
    "cache_read": ("cache_read", "cached_input", "cache_read_per_million"),
    "cache_write": ("cache_write", "cache_creation", "cache_write_per_million"),
}


def _first(mapping: Mapping[str, Any], keys: tuple[str, ...]) -> object:
    return next((mapping[key] for key in keys if mapping.get(key) is not None), None)


def amount(value: object, *, key: str) -> Decimal | None:
    """An amount of money as written, exactly; None stays None. Raises ConfigError for what is negative or no number."""
    if value is None or isinstance(value, Decimal):
        money = value
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            money = Decimal(str(value).strip())
        except InvalidOperation:
            money = Decimal("NaN")
    else:
        money = Decimal("NaN")
    if money is not None and (not money.is_finite() or money < 0):
        raise ConfigError(f"{value!r} is no amount of money.", key=key, hint="Give a number that is not negative, such as 0.15.")
    return money
