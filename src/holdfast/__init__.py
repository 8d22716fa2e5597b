"""Holdfast: a harness for LLM agents that run long.

It keeps what an agent needs inside the window, across crashes, and across conversations. What is listed in `__all__` is stable within a
major version; the rest is private. Every name is imported when it is first used, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.errors import (
    AddressRefused,
    BudgetError,
    Cancelled,
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
    OutputInvalid,
    OutsideRoot,
    RevisionConflict,
    SandboxError,
    SandboxUnavailable,
    StageFailed,
    StorageError,
    StoreUnavailable,
    SyncFailed,
    WebError,
    WorkflowChanged,
    WorkflowError,
    WriteFailed,
)
from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.agents.lead import make_lead_agent
    from holdfast.agents.middleware.memory import MemoryMiddleware
    from holdfast.agents.middleware.summarization import SummarizationMiddleware
    from holdfast.config import Config, load_config
    from holdfast.context.archive import Archive, FileArchive
    from holdfast.harness import Harness, build
    from holdfast.knowledge.opening import open_knowledge
    from holdfast.knowledge.records import Record
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.service import MemoryService
    from holdfast.memory.storage import MemoryStorage
    from holdfast.session.store import SessionStore
    from holdfast.tokens import Budget, TokenCounter, open_counter
    from holdfast.workflow.agent import StageAgent, StageRequest, StageResult
    from holdfast.workflow.launching import resume, run_workflow

__version__ = "0.1.0"

__all__ = [
    "AddressRefused",
    "Archive",
    "Budget",
    "BudgetError",
    "Cancelled",
    "Config",
    "ConfigError",
    "Damaged",
    "DiskFull",
    "FileArchive",
    "Harness",
    "HoldfastError",
    "InputError",
    "KnowledgeStore",
    "LimitExceeded",
    "Locked",
    "MemoryMiddleware",
    "MemoryService",
    "MemoryStorage",
    "MissingVariable",
    "ModelError",
    "ModelNotConfigured",
    "ModelTooWeak",
    "ModelUnavailable",
    "NotWritable",
    "OutputInvalid",
    "OutsideRoot",
    "Record",
    "RevisionConflict",
    "SandboxError",
    "SandboxUnavailable",
    "SessionStore",
    "StageAgent",
    "StageFailed",
    "StageRequest",
    "StageResult",
    "StorageError",
    "StoreUnavailable",
    "SummarizationMiddleware",
    "SyncFailed",
    "TokenCounter",
    "WebError",
    "WorkflowChanged",
    "WorkflowError",
    "WriteFailed",
    "__version__",
    "build",
    "load_config",
    "make_lead_agent",
    "open_counter",
    "open_knowledge",
    "resume",
    "run_workflow",
]

__getattr__, __dir__ = exports(
    __name__,
    {
        "agents.lead": ("make_lead_agent",),
        "agents.middleware.memory": ("MemoryMiddleware",),
        "agents.middleware.summarization": ("SummarizationMiddleware",),
        "config": ("Config", "load_config"),
        "context.archive": ("Archive", "FileArchive"),
        "harness": ("Harness", "build"),
        "knowledge.opening": ("open_knowledge",),
        "knowledge.records": ("Record",),
        "knowledge.store": ("KnowledgeStore",),
        "memory.service": ("MemoryService",),
        "memory.storage": ("MemoryStorage",),
        "session.store": ("SessionStore",),
        "tokens": ("Budget", "TokenCounter", "open_counter"),
        "workflow.agent": ("StageAgent", "StageRequest", "StageResult"),
        "workflow.launching": ("resume", "run_workflow"),
    },
)
