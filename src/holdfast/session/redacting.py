"""Secrets never reach a session file: settings by their names, texts by the forms that keys and passwords have (C3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.redaction import HIDDEN, is_secret_key, redact


def clean_configuration(value: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be kept: everything under the name of a secret is hidden, and every text is cleaned."""
    return {name: redact(member, name) for name, member in value.items()}


def clean_definition(value: Any, key: object = "") -> Any:
    """A workflow definition as it may be kept. Its prompts are words for a model, so texts lose only what has the form of a secret."""
    if isinstance(value, Mapping):
        return {name: clean_definition(member, name) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean_definition(member) for member in value]
    if isinstance(value, str):
        if is_secret_key(key) and not value.startswith("$"):  # `$NAME` is the name of a variable, not its value
            return HIDDEN
        from holdfast.secret_forms import replace_secrets as redact_known

        return redact_known(value)
    return value
