"""`models`: which language models there are, how to reach them, what they cost and what they can do."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from holdfast.config.environment import resolve
from holdfast.config.kinds import Amount, Count, Number, Price, Seconds, Text, Texts
from holdfast.config.known import MODEL_ARGUMENTS
from holdfast.config.section import Section, Strange


class Pricing(Section):
    """What a million tokens cost."""

    spellings = MappingProxyType(
        {
            "input_per_million": "input",
            "output_per_million": "output",
            "input_cache_hit_per_million": "cache_read",
            "input_cache_write_per_million": "cache_write",
        }
    )

    input: Price = 0.0
    output: Price = 0.0
    cache_read: Price | None = None
    cache_write: Price | None = None
    currency: Text = "USD"


def _abilities(value: Any) -> Any:
    return dict.fromkeys(value, True) if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value) else value


class ModelConfig(Section):
    """One entry of `models`. Keys that are not named here go to the model class as they are (`arguments`)."""

    strange: ClassVar[Strange] = "passed on"
    tolerated = MODEL_ARGUMENTS

    name: Text
    display_name: Text | None = None
    description: Text | None = None
    use: Text | None = None
    model: Text | None = None
    path: Text | None = None
    base_url: Text | None = None
    api_key: Text | None = None
    max_tokens: Count | None = None
    temperature: Number | None = None
    timeout: Seconds | None = None
    max_retries: Amount | None = None
    max_input_tokens: Count | None = None
    context_window: Count | None = None
    pricing: Pricing | None = None
    lightweight: bool = False
    supports_thinking: bool = False
    supports_vision: bool = False
    supports_reasoning_effort: bool = False
    when_thinking_enabled: dict[str, Any] | None = None
    when_thinking_disabled: dict[str, Any] | None = None
    can: Annotated[dict[str, bool], BeforeValidator(_abilities)] | None = None
    fallbacks: Texts = ()

    @property
    def window(self) -> int | None:
        """The tokens that the configuration says the model takes, or None when it says nothing (T3)."""
        return self.max_input_tokens or self.context_window

    def arguments(self, *, thinking: bool | None = None) -> dict[str, Any]:
        """What the model class is called with: our keys that it shares and all keys that are not ours, with environment values read now.

        `thinking` adds what `when_thinking_enabled` or `when_thinking_disabled` says.
        """
        given = {name: getattr(self, name) for name in _PASSED if self.written(name) is not None}
        given |= self.extras()
        if thinking is not None:
            extra = self.when_thinking_enabled if thinking else self.when_thinking_disabled
            given = _merged(given, resolve(extra or {}))
        return {name: value for name, value in given.items() if value is not None}


_PASSED = ("model", "base_url", "api_key", "max_tokens", "temperature", "timeout", "max_retries")


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """`over` laid on `base`, mapping by mapping."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result
