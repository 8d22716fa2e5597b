"""Holdfast: a harness for LLM agents that run long.

It keeps what an agent needs inside the window, across crashes, and across conversations. What is listed in `__all__` is stable within a
major version; the rest is private. Every name is imported when it is first used, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    BudgetError,
    ConfigError,
    Damaged,
    DiskFull,
    HoldfastError,
    InputError,
    LimitExceeded,
    Locked,
    MissingVariable,
    ModelError,
    ModelNotConfigured,
    ModelTooWeak,
    ModelUnavailable,
    NotWritable,
    OutsideRoot,
    RevisionConflict,
    StorageError,
    SyncFailed,
    WriteFailed,
)

if TYPE_CHECKING:
    from holdfast.agents.middleware.summarization import SummarizationMiddleware
    from holdfast.config import Config, load_config
    from holdfast.context.archive import Archive, FileArchive
    from holdfast.harness import Harness, build
    from holdfast.tokens import Budget, TokenCounter, open_counter

__version__ = "0.1.0"

__all__ = [
    "Archive",
    "Budget",
    "BudgetError",
    "Config",
    "ConfigError",
    "Damaged",
    "DiskFull",
    "FileArchive",
    "Harness",
    "HoldfastError",
    "InputError",
    "LimitExceeded",
    "Locked",
    "MissingVariable",
    "ModelError",
    "ModelNotConfigured",
    "ModelTooWeak",
    "ModelUnavailable",
    "NotWritable",
    "OutsideRoot",
    "RevisionConflict",
    "StorageError",
    "SummarizationMiddleware",
    "SyncFailed",
    "TokenCounter",
    "WriteFailed",
    "__version__",
    "build",
    "load_config",
    "open_counter",
]

_WHERE = {
    "Archive": "holdfast.context.archive",
    "Budget": "holdfast.tokens",
    "Config": "holdfast.config",
    "FileArchive": "holdfast.context.archive",
    "Harness": "holdfast.harness",
    "SummarizationMiddleware": "holdfast.agents.middleware.summarization",
    "TokenCounter": "holdfast.tokens",
    "build": "holdfast.harness",
    "load_config": "holdfast.config",
    "open_counter": "holdfast.tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
