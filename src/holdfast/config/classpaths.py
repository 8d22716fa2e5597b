"""Class paths of the reference (`src...` and `deerflow...`) that name something which exists here.

What a file says is only looked up in our own table; nothing is imported, and a target is used only when our package really has it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path
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
        "community.ddg_search.tools:web_search_tool": "holdfast.agents.web:web_search",
        "community.tavily.tools:web_search_tool": "holdfast.agents.web:web_search",
        "community.tavily.tools:web_fetch_tool": "holdfast.agents.web:web_fetch",
        "community.jina_ai.tools:web_fetch_tool": "holdfast.agents.web:web_fetch",
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
    target = targets.get(f"{match[1]}:{match[2]}") if match is not None else None
    return target if target is not None and _exists(target) else None


@cache
def _exists(target: str) -> bool:
    """Whether a module of ours defines the name, found by looking at its source: nothing is imported."""
    module, _, name = target.partition(":")
    package, *parts = module.split(".")
    search: list[str] | None = [str(Path(__file__).parent.parent)]
    origin: str | None = None
    for part in parts:
        package = f"{package}.{part}"
        spec = PathFinder.find_spec(package, search)
        if spec is None:
            return False
        search, origin = list(spec.submodule_search_locations or []), spec.origin
    if origin is None or not origin.endswith(".py"):
        return False
    defined = re.compile(rf"^(?:class|def|async def)\s+{name}\b|^{name}\s*[:=]|^from .*import .*\b{name}\b", re.MULTILINE)
    return defined.search(Path(origin).read_text(encoding="utf-8")) is not None
