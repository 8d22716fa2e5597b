"""Reading an agent's own settings out of a stage: what does not fit is a ConfigError with the line and the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config.known_keys import near_miss, nearest
from holdfast.config.problems import raise_all
from holdfast.errors import ConfigError
from holdfast.workflow.definition import Stage


def whole_number(stage: Stage, key: str, default: int, *, least: int = 1) -> int:
    """A setting that is a whole number of at least `least`."""
    value = stage.settings.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _error(stage, key, f"is {value!r}; it must be a whole number of at least {least}.")
    return value


def texts(stage: Stage, key: str, value: Any) -> list[str]:
    """A setting that is a text or a list of texts."""
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, (list, tuple)) or not all(isinstance(one, str) and one.strip() for one in listed):
        raise _error(stage, key, f"is {value!r:.60}; it must be a text or a list of texts.")
    return list(listed)


def mapping(stage: Stage, key: str, known: tuple[str, ...]) -> Mapping[str, Any] | None:
    """A setting that is a mapping with some of the known keys; None if it is not there."""
    value = stage.settings.get(key)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise _error(stage, key, f"is {value!r:.60}; it must be a mapping with {', '.join(known)}.")
    raise_all(_unknown(stage, f"{key}.{name}", known) for name in value if name not in known)
    return value


def _unknown(stage: Stage, key: str, known: tuple[str, ...]) -> ConfigError:
    near = nearest(key.rpartition(".")[2], known)
    hint = f"Did you mean `{near}`?" if near else f"There are {', '.join(known)}."
    return _error(stage, key, "is not known.", near=near, hint=hint)


def check_spelling(stage: Stage, known: tuple[str, ...]) -> None:
    """ConfigError for a setting that is nearly one of the known ones: it would be left unread."""
    raise_all(_unknown(stage, str(name), known) for name in stage.settings if name not in known and near_miss(str(name), known) is not None)


def _error(stage: Stage, key: str, message: str, *, near: str | None = None, hint: str | None = None) -> ConfigError:
    return ConfigError(message, line=stage.line_of(key), key=f"stages.{stage.name}.{key}", nearest=near, hint=hint)
