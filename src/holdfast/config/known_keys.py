"""Keys that are not ours and still no mistake, from the reference and from model classes; and what counts as a near miss.

Also here: class paths of the reference (`src...`, `deerflow...`) that name something which exists here. They are only looked up in our own
table; nothing is imported. A tool is named by `holdfast.agents.tools:NAME`, and made by `agents/tools`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher
from importlib.util import find_spec
from types import MappingProxyType

NEAR = 0.8


def _keys(words: str) -> frozenset[str]:
    return frozenset(words.split())


IGNORED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "logging": _keys("enhance"),
        "summarization": _keys(
            "skill_file_read_tool_names preserve_recent_skill_count preserve_recent_skill_tokens preserve_recent_skill_tokens_per_skill"
        ),
        "memory": _keys("manager_class backend_config shutdown_flush_timeout_seconds token_counting"),
        "sandbox": _keys(
            "image port base_url auto_start replicas container_prefix idle_timeout thread_data_mounts ownership cpus cpu_cores"
            " health_check_skip_seconds provisioner_url provisioner_api_key api_key project_id workspace_id max_duration sticky"
            " home_dir template domain"
        ),
        "skills": _keys("use deferred_discovery"),
        "subagents": _keys("token_budget max_total_per_run enabled"),
        "subagents.agents": _keys("token_budget"),
        "title": _keys("prompt_template"),
    }
)
"""Keys of the reference, by section, that are accepted and have no effect here."""

IGNORED_SECTIONS = _keys(
    "log_level tool_search checkpointer database channels channel_connections guardrails authorization token_usage"
    " token_budget loop_detection circuit_breaker uploads stream_bridge run_events run_ownership acp_agents agents_api"
    " agent_storage skill_evolution skill_scan extensions scheduler mcp_tasks safety_finish_reason tool_output tool_progress"
    " read_before_write dedupe_storage max_recursion_limit dynamic_context suggestions auth"
)
"""Top-level keys of the reference that are accepted and have no effect here."""

WORKFLOW_KEYS = _keys("id task topic_tag memory_retrieval_top_k stages parameters max_added_stages max_parallel")
"""Top-level keys of a workflow file (W1), which may be given where a configuration is expected."""

MODEL_ARGUMENTS = _keys(
    "api_base api_version azure_deployment azure_endpoint base_model cache callbacks configurable_fields"
    " convert_system_message_to_human credentials default_headers default_query default_request_timeout deployment_name"
    " disable_streaming disabled_params endpoint extra_body format frequency_penalty gemini_api_key google_api_key"
    " anthropic_api_key openai_api_key anthropic_api_url openai_api_base headers http_async_client http_client include"
    " include_response_headers keep_alive location logit_bias logprobs max_completion_tokens max_concurrency"
    " max_output_tokens max_tokens_to_sample metadata min_p mirostat model_id model_kwargs model_name model_provider"
    " modalities n num_ctx num_gpu num_predict num_thread openai_proxy organization output_version parallel_tool_calls"
    " presence_penalty profile project proxy rate_limiter reasoning reasoning_effort region region_name repeat_penalty"
    " repetition_penalty request_timeout response_format safety_settings seed service_tier stop stop_sequences store"
    " stream_options stream_usage streaming strict tags tfs_z thinking thinking_budget tiktoken_model_name timeout_seconds"
    " tool_choice top_a top_k top_logprobs top_p truncation typical_p use_previous_response_id use_responses_api user"
    " verbose verbosity vertexai read_timeout connect_timeout write_timeout pool_timeout cumulative_stream_usage"
)
"""Arguments that model classes usually take; none of them is a misspelling of a key of ours."""


def _likeness(one: str, other: str) -> float:
    if _plain(one) == _plain(other):
        return 1.0
    return SequenceMatcher(None, one, other).ratio()


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "").replace(" ", "")


def near_miss(key: str, known: Iterable[str]) -> str | None:
    """The known key that this one is a misspelling of, if it is.

    >>> near_miss("debounce-seconds", ["debounce_seconds"]), near_miss("sumary_prompt", ["summary_prompt"]), near_miss("slack", ["skills"])
    ('debounce_seconds', 'summary_prompt', None)
    """
    found = nearest(key, known)
    return found if found is not None and _likeness(key, found) >= NEAR else None


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that is most like this one, or None when none is like it at all."""
    likeness, found = max(((_likeness(key[:100], name), name) for name in sorted(known)), default=(0.0, ""))
    return found if likeness > 0.4 else None


_PATH = re.compile(r"(?:src|deerflow)\.((?:\w+\.)*\w+)[:.](\w+)", re.ASCII)

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "agents.memory.storage:FileMemoryStorage": "holdfast.memory.storage:FileMemoryStorage",
        "agents.memory.storage:MemoryStorage": "holdfast.memory.storage:MemoryStorage",
        "agents.middlewares.memory_middleware:MemoryMiddleware": "holdfast.agents.middleware.memory:MemoryMiddleware",
        "agents.middlewares.summarization_middleware:DeerFlowSummarizationMiddleware": (
            "holdfast.agents.middleware.summarization:SummarizationMiddleware"
        ),
        "models.patched_deepseek:PatchedChatDeepSeek": "holdfast.models.compatible:DeepSeekChat",
        "models.patched_openai:PatchedChatOpenAI": "holdfast.models.compatible:CompatibleChat",
        "models.patched_minimax:PatchedChatMiniMax": "holdfast.models.compatible:MiniMaxChat",
        "models.patched_mimo:PatchedChatMiMo": "holdfast.models.compatible:MiMoChat",
        "models.patched_stepfun:PatchedChatStepFun": "holdfast.models.compatible:StepFunChat",
        "models.vllm_provider:VllmChatModel": "holdfast.models.compatible:VllmChat",
        "models.mindie_provider:MindIEChatModel": "holdfast.models.compatible:MindIEChat",
        "models.claude_provider:ClaudeChatModel": "langchain_anthropic:ChatAnthropic",
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
    }
)
"""Where each thing of the reference lives here, without its `src.` or `deerflow.`."""

SEARCH_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tavily": ("TAVILY_API_KEY",),
        "brave": ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"),
        "serper": ("SERPER_API_KEY",),
        "searxng": ("SEARXNG_URL",),
        "duckduckgo": (),
    }
)
"""The search engines that are known, each with the variables that may hold its key (SearXNG: its address)."""

_WEB_TOOL = re.compile(r"community\.(\w+)\.tools:web_(search|fetch)_tool", re.ASCII)
_ENGINE = re.compile(r"holdfast\.agents\.tools[:.](\w+)_web_search", re.ASCII)


def search_engine(use: object) -> str | None:
    """The engine that a tool's path names, as `holdfast.agents.tools:tavily_web_search`; None where it names none, or is not yet known."""
    match = _ENGINE.fullmatch(use) if isinstance(use, str) else None
    return match[1] if match else None


def search_needs(engine: str | None, settings: Mapping[str, object], environ: Mapping[str, str]) -> tuple[str, str] | None:
    """What a web search cannot do without, and how to give it; None when nothing is missing. `engine` None is whichever has a key."""
    if engine is None:
        keys = [name for names in SEARCH_KEYS.values() for name in names]
        if settings.get("api_key") or settings.get("base_url") or any(environ.get(name) for name in keys):
            return None
        return "no search engine is set up", f"Set one of {', '.join(keys)}, or `provider: duckduckgo` with the package ddgs."
    if engine not in SEARCH_KEYS:
        return f"the search engine {engine} is not known here", f"Set `use: web_search` and `provider` to one of {', '.join(SEARCH_KEYS)}."
    if engine == "duckduckgo":
        return None if find_spec("ddgs") else ("the provider duckduckgo needs the package ddgs", "Install it: pip install ddgs.")
    if any(environ.get(name) for name in SEARCH_KEYS[engine]):
        return None
    if engine == "searxng":
        return None if settings.get("base_url") else ("the provider searxng needs its address", "Set `base_url`.")
    return None if settings.get("api_key") else (f"the provider {engine} needs a key", f"Set {SEARCH_KEYS[engine][0]}, or `api_key`.")


def is_reference_path(text: str) -> bool:
    """Whether the text is a class path of the reference.

    >>> is_reference_path("src.sandbox.local:LocalSandboxProvider"), is_reference_path("langchain_openai:ChatOpenAI")
    (True, False)
    """
    return _PATH.fullmatch(text) is not None


def mapped(text: str, targets: Mapping[str, str] = TARGETS) -> str | None:
    """Our class path for one of the reference, or None when there is nothing of the kind here."""
    match = _PATH.fullmatch(text)
    if match is None:
        return None
    path = f"{match[1]}:{match[2]}"
    if web := _WEB_TOOL.fullmatch(path):  # whoever fetched a page there, here it is fetched by us; an engine is named, known or not
        engine = {"ddg_search": "duckduckgo"}.get(web[1], web[1])
        return f"holdfast.agents.tools:{f'{engine}_web_search' if web[2] == 'search' else 'web_fetch'}"
    return targets.get(path)
