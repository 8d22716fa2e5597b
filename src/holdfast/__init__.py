"""Holdfast: a harness for LLM agents that run long.

It keeps what an agent needs inside the window, across crashes, and across conversations. What is listed in `__all__` is stable within a
major version; the rest is private. Every name is imported when it is first used, so `import holdfast` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.errors import (
    AddressRefused,
    ApprovalWanted,
    BudgetError,
    CallFailed,
    CallUnavailable,
    Cancelled,
    ConfigError,
    ContextOverflow,
    Damaged,
    DiskFull,
    ExtractionFailed,
    ExtraMissing,
    HoldfastError,
    InputError,
    InTheWay,
    LimitExceeded,
    Locked,
    MissingVariable,
    ModelError,
    ModelNotConfigured,
    ModelTooWeak,
    ModelUnavailable,
    NotImportable,
    NotThere,
    NotTrusted,
    NotWritable,
    OutputInvalid,
    OutsideRoot,
    QuotaExceeded,
    RevisionConflict,
    SandboxError,
    SandboxUnavailable,
    StageFailed,
    StorageError,
    StoreUnavailable,
    SummaryError,
    SyncFailed,
    WebError,
    WorkflowChanged,
    WorkflowError,
    WriteFailed,
    WrongType,
    WrongValue,
)

if TYPE_CHECKING:
    from holdfast.agents.conversation import Conversation
    from holdfast.agents.lead import LeadAgent, make_lead_agent
    from holdfast.agents.middleware.memory import MemoryMiddleware
    from holdfast.agents.middleware.summarization import SummarizationMiddleware
    from holdfast.config.loading import load_config
    from holdfast.config.sections import Config
    from holdfast.context.archive import Archive, FileArchive
    from holdfast.harness import Harness, build
    from holdfast.knowledge.adapters import open_knowledge
    from holdfast.knowledge.records import Record
    from holdfast.knowledge.store import KnowledgeStore
    from holdfast.memory.service import MemoryService
    from holdfast.memory.storage import MemoryStorage
    from holdfast.session.store import SessionStore
    from holdfast.tokens.budget import Budget
    from holdfast.tokens.counter import TokenCounter, open_counter
    from holdfast.workflow.agent import StageAgent, StageRequest, StageResult
    from holdfast.workflow.control import result_of
    from holdfast.workflow.decisions import approve, fix, fork, reject
    from holdfast.workflow.launcher import resume, run_workflow

__version__ = "0.1.0"

__all__ = [
    "AddressRefused",
    "ApprovalWanted",
    "Archive",
    "Budget",
    "BudgetError",
    "CallFailed",
    "CallUnavailable",
    "Cancelled",
    "Config",
    "ConfigError",
    "ContextOverflow",
    "Conversation",
    "Damaged",
    "DiskFull",
    "ExtraMissing",
    "ExtractionFailed",
    "FileArchive",
    "Harness",
    "HoldfastError",
    "InTheWay",
    "InputError",
    "KnowledgeStore",
    "LeadAgent",
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
    "NotImportable",
    "NotThere",
    "NotTrusted",
    "NotWritable",
    "OutputInvalid",
    "OutsideRoot",
    "QuotaExceeded",
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
    "SummaryError",
    "SyncFailed",
    "TokenCounter",
    "WebError",
    "WorkflowChanged",
    "WorkflowError",
    "WriteFailed",
    "WrongType",
    "WrongValue",
    "__version__",
    "approve",
    "build",
    "fix",
    "fork",
    "load_config",
    "make_lead_agent",
    "open_counter",
    "open_knowledge",
    "reject",
    "result_of",
    "resume",
    "run_workflow",
]

_WHERE = {
    "agents.conversation": ("Conversation",),
    "agents.lead": ("LeadAgent", "make_lead_agent"),
    "agents.middleware.memory": ("MemoryMiddleware",),
    "agents.middleware.summarization": ("SummarizationMiddleware",),
    "config.loading": ("load_config",),
    "config.sections": ("Config",),
    "context.archive": ("Archive", "FileArchive"),
    "harness": ("Harness", "build"),
    "knowledge.adapters": ("open_knowledge",),
    "knowledge.records": ("Record",),
    "knowledge.store": ("KnowledgeStore",),
    "memory.service": ("MemoryService",),
    "memory.storage": ("MemoryStorage",),
    "session.store": ("SessionStore",),
    "tokens.budget": ("Budget",),
    "tokens.counter": ("TokenCounter", "open_counter"),
    "workflow.agent": ("StageAgent", "StageRequest", "StageResult"),
    "workflow.control": ("result_of",),
    "workflow.decisions": ("approve", "fix", "fork", "reject"),
    "workflow.launcher": ("resume", "run_workflow"),
}
_MODULE_OF = {name: module for module, names in _WHERE.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"holdfast.{_MODULE_OF[name]}")
    except ModuleNotFoundError as error:
        from holdfast.validation import missing_extra

        raise (missing_extra(error) or error) from error
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
