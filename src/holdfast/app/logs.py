"""Where the program's log goes: standard error, as lines for people or as JSON for programs, as `logging:` in config.yaml says (O2)."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.config.loading import load_config
from holdfast.events import JsonLines

if TYPE_CHECKING:
    from holdfast.config.sections import Config, Logging


def open_config(path: Path | None) -> Config:
    """Load the configuration and let the log follow it."""
    config = load_config(path)
    set_up(config.logging, said="logging" in config.raw)
    return config


def set_up(settings: Logging, *, said: bool = True) -> None:
    """Send the log of this process to standard error. Where the file does not say a level, a command is quiet up to warnings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else logging.Formatter("%(message)s"))
    ours = logging.getLogger("holdfast")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(settings.level.upper() if said else logging.WARNING)
