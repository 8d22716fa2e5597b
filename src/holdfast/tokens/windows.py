"""How many tokens a model can read.

The order is: `max_input_tokens` in the configuration, `context_window` there, `max_input_tokens` of the model's profile, and 8192 with one
warning for each model. A value that cannot be a window (text, negative, not a number) is passed over, and nothing here ever raises.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.tokens.notices import Notices

DEFAULT_WINDOW = 8192


@dataclass(frozen=True, kw_only=True)
class WindowUnknown(Event):
    """Neither the configuration nor a profile says how much a model can read."""

    component: ClassVar[str] = "Models"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "The window of model {model} is not known: using {window} tokens. Set `max_input_tokens` for it in `models`."

    model: str
    window: int


@dataclass(frozen=True)
class Window:
    """A window and where it came from: `max_input_tokens`, `context_window`, `profile` or `default`."""

    tokens: int
    source: str


_notices = Notices()
_NUMBER = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([km]?)\s*", re.IGNORECASE | re.ASCII)
_LARGEST = 10**12


def window_of(config: object, profile: object = None, *, name: str | None = None, bus: Bus | None = None) -> int:
    """The window in tokens, at least 1. `config` and `profile` are mappings or objects with attributes, or None."""
    return find_window(config, profile, name=name, bus=bus).tokens


def find_window(config: object, profile: object = None, *, name: str | None = None, bus: Bus | None = None) -> Window:
    """As `window_of`, with where it came from. A profile that hangs on the config itself (`model.profile`) is looked at as well."""
    for key in ("max_input_tokens", "context_window"):
        tokens = _window(_read(config, key))
        if tokens:
            return Window(tokens, key)
    for source in (profile, _read(config, "profile"), _read(profile, "profile")):
        tokens = _window(_read(source, "max_input_tokens"))
        if tokens:
            return Window(tokens, "profile")
    model = name or _text(_read(config, "name")) or _text(_read(config, "model")) or _text(_read(config, "model_name")) or "without a name"
    if _notices.first(model):
        (bus or process_bus).emit(WindowUnknown(model=model, window=DEFAULT_WINDOW))
    return Window(DEFAULT_WINDOW, "default")


def _read(source: object, key: str) -> object:
    try:
        return source.get(key) if isinstance(source, Mapping) else getattr(source, key, None)
    except Exception:  # noqa: BLE001 - a model object's property may run any code; a window that cannot be read is a window not given
        return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _window(value: object) -> int | None:
    """A whole number of tokens, or None. `"128k"` and `"200_000"` are understood."""
    if isinstance(value, str):
        match = _NUMBER.fullmatch(value[:40])
        if match is None:
            return None
        value = float(match[1].replace("_", "").replace(",", "")) * {"": 1, "k": 1000, "m": 1_000_000}[match[2].lower()]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 1 <= value <= _LARGEST else None  # neither holds for what is not a number
