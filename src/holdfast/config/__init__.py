"""What the user wrote in `config.yaml`: reading, checking, upgrading, and saying where each setting came from.

May import `errors`, `events`, `clock` and `ids`, and nothing else of ours; it writes no files.
Start with `loading.py`; the sections are in `sections.py`, and how one behaves is in `section.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.config.agent_sections import CustomAgent, Sandbox, Skills, Subagents, SubagentSettings, Title, ToolConfig, ToolGroup
    from holdfast.config.conditions import AllOf, Condition, Trigger
    from holdfast.config.effective import Setting, Source, effective_settings
    from holdfast.config.environment import EnvironmentReference
    from holdfast.config.example import example_text
    from holdfast.config.loading import base_directory, config_from_values, find_config, load_config, read_config
    from holdfast.config.memory_sections import Knowledge, Limit, Memory, Session, Summarization, VectorStore
    from holdfast.config.migration import Upgrade, upgrade_text
    from holdfast.config.model_section import ModelConfig, Pricing
    from holdfast.config.notices import Notice, all_errors
    from holdfast.config.reading import Reading, dotted, read_yaml
    from holdfast.config.redaction import redact, redact_text
    from holdfast.config.sections import Config
    from holdfast.config.service_sections import Limits, Logging, Server

__all__ = [
    "AllOf",
    "Condition",
    "Config",
    "CustomAgent",
    "EnvironmentReference",
    "Knowledge",
    "Limit",
    "Limits",
    "Logging",
    "Memory",
    "ModelConfig",
    "Notice",
    "Pricing",
    "Reading",
    "Sandbox",
    "Server",
    "Session",
    "Setting",
    "Skills",
    "Source",
    "SubagentSettings",
    "Subagents",
    "Summarization",
    "Title",
    "ToolConfig",
    "ToolGroup",
    "Trigger",
    "Upgrade",
    "VectorStore",
    "all_errors",
    "base_directory",
    "config_from_values",
    "dotted",
    "effective_settings",
    "example_text",
    "find_config",
    "load_config",
    "read_config",
    "read_yaml",
    "redact",
    "redact_text",
    "upgrade_text",
]

_WHERE = {
    "agent_sections": ("CustomAgent", "Sandbox", "Skills", "SubagentSettings", "Subagents", "Title", "ToolConfig", "ToolGroup"),
    "conditions": ("AllOf", "Condition", "Trigger"),
    "effective": ("Setting", "Source", "effective_settings"),
    "environment": ("EnvironmentReference",),
    "example": ("example_text",),
    "loading": ("base_directory", "config_from_values", "find_config", "load_config", "read_config"),
    "memory_sections": ("Knowledge", "Limit", "Memory", "Session", "Summarization", "VectorStore"),
    "migration": ("Upgrade", "upgrade_text"),
    "model_section": ("ModelConfig", "Pricing"),
    "notices": ("Notice", "all_errors"),
    "reading": ("Reading", "dotted", "read_yaml"),
    "redaction": ("redact", "redact_text"),
    "sections": ("Config",),
    "service_sections": ("Limits", "Logging", "Server"),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
