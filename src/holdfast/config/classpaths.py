"""Class paths of the reference (`src...` and `deerflow...`) that name something which exists here.

What a file says is only looked up in our own table; nothing is imported. A tool is named by `holdfast.agents.tools:NAME`, and made by
`agents/tools`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

_PATH = re.compile(r"(?:src|deerflow)\.((?:\w+\.)*\w+)[:.](\w+)", re.ASCII)

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "agents.memory.storage:FileMemoryStorage": "holdfast.memory.storage:FileMemoryStorage",
        "agents.memory.storage:MemoryStorage": "holdfast.memory.storage:MemoryStorage",
        "agents.middlewares.memory_middleware:MemoryMiddleware": "holdfast.agents.middleware.memory:MemoryMiddleware",
        "agents.middlewares.summarization_middleware:DeerFlowSummarizationMiddleware": (
            "holdfast.agents.middleware.summarization:SummarizationMiddleware"
        ),
        "sandbox.local:LocalSandboxProvider": "holdfast.sandbox.local:LocalSandbox",
        "sandbox.local.local_sandbox_provider:LocalSandboxProvider": "holdfast.sandbox.local:LocalSandbox",
        "sandbox.tools:bash_tool": "holdfast.agents.tools:bash",
        "sandbox.tools:ls_tool": "holdfast.agents.tools:ls",
        "sandbox.tools:read_file_tool": "holdfast.agents.tools:read_file",
        "sandbox.tools:write_file_tool": "holdfast.agents.tools:write_file",
        "sandbox.tools:str_replace_tool": "holdfast.agents.tools:str_replace",
        "sandbox.tools:glob_tool": "holdfast.agents.tools:glob",
        "sandbox.tools:grep_tool": "holdfast.agents.tools:grep",
        "tools.builtins.present_file_tool:present_file_tool": "holdfast.agents.tools:present_files",
        "tools.builtins.view_image_tool:view_image_tool": "holdfast.agents.tools:view_image",
        "tools.builtins.clarification_tool:ask_clarification_tool": "holdfast.agents.tools:ask_clarification",
        "community.ddg_search.tools:web_search_tool": "holdfast.agents.tools:web_search",
        "community.tavily.tools:web_search_tool": "holdfast.agents.tools:web_search",
        "community.tavily.tools:web_fetch_tool": "holdfast.agents.tools:web_fetch",
        "community.jina_ai.tools:web_fetch_tool": "holdfast.agents.tools:web_fetch",
    }
)
"""Where each thing of the reference lives here, without its `src.` or `deerflow.`."""


def is_reference_path(text: str) -> bool:
    """Whether the text is a class path of the reference.

    >>> is_reference_path("src.sandbox.local:LocalSandboxProvider"), is_reference_path("langchain_openai:ChatOpenAI")
    (True, False)
    """
    return _PATH.fullmatch(text) is not None


def mapped(text: str, targets: Mapping[str, str] = TARGETS) -> str | None:
    """Our class path for one of the reference, or None when there is nothing of the kind here."""
    match = _PATH.fullmatch(text)
    return targets.get(f"{match[1]}:{match[2]}") if match is not None else None
