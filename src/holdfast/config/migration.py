"""Older forms of the file become the current one: in memory at every load, and in the text by `holdfast config upgrade`.

A file without `holdfast_version` is in the reference's form, number 0. A step is a list of small changes, each of which can be done
to the values and to the text. In the text only the characters of a change are touched, so every comment, quote, blank line and order
stays as it is.

Also here: keys that are not ours and still no mistake, from the reference and from model classes, and class paths of the reference
(`src...`, `deerflow...`) that name something which exists here. They are only looked up in our own table; nothing is imported.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from types import MappingProxyType
from typing import Any

from holdfast.config.reading import KeyPath, Place, Reading, dotted, read_yaml, value_at
from holdfast.errors import ConfigError

CURRENT = 1

_LIFTED = (
    "debounce_seconds",
    "model_name",
    "max_facts",
    "fact_confidence_threshold",
    "max_injection_tokens",
    "storage_path",
    "storage_class",
)
CLASS_KEYS = frozenset({"use", "storage_class", "token_counter"})
"""Settings that name a class or a function."""
_CLASS_SECTIONS = frozenset({"models", "tools", "sandbox", "memory", "summarization", "knowledge"})
_COUNTERS = {"tiktoken": "exact", "char": "approximate"}


@dataclass(frozen=True)
class Copy:
    """A setting is also written where it belongs now. The old one stays in the text, without effect."""

    source: KeyPath
    target: KeyPath
    value: Any

    def __str__(self) -> str:
        return f"{dotted(self.source)} is now {dotted(self.target)}"


@dataclass(frozen=True)
class Rename:
    """A setting has a new name and value in the same place."""

    path: KeyPath
    name: str
    value: Any

    def __str__(self) -> str:
        return f"{dotted(self.path)} is now {dotted((*self.path[:-1], self.name))}"


@dataclass(frozen=True)
class Mapped:
    """A class path of the reference is written as ours. At a load that is done by whoever reads it, for any schema (C4)."""

    path: KeyPath
    old: str
    value: str

    def __str__(self) -> str:
        return f"{dotted(self.path)} is now {self.value}"


Change = Copy | Rename


def _from_reference(values: dict[str, Any]) -> Iterator[Change]:
    """0 to 1: settings that the reference keeps in other places."""
    level, logging = values.get("log_level"), values.get("logging")
    if isinstance(level, str) and (logging is None or (isinstance(logging, dict) and "level" not in logging)):
        yield Copy(("log_level",), ("logging", "level"), level)
    memory = values.get("memory")
    if not isinstance(memory, dict):
        return
    counting = memory.get("token_counting")
    if isinstance(counting, str) and counting in _COUNTERS and "token_counter" not in memory:
        yield Rename(("memory", "token_counting"), "token_counter", _COUNTERS[counting])
    backend = memory.get("backend_config")
    if not isinstance(backend, dict):
        return
    for key in _LIFTED:
        if key in backend and key not in memory and _is_liftable(key, backend[key]):
            yield Copy(("memory", "backend_config", key), ("memory", key), backend[key])
    counting = backend.get("token_counting")
    if isinstance(counting, str) and counting in _COUNTERS and not {"token_counter", "token_counting"} & memory.keys():
        yield Copy(("memory", "backend_config", "token_counting"), ("memory", "token_counter"), _COUNTERS[counting])


def _is_liftable(key: str, value: Any) -> bool:
    if key == "storage_path":  # there it is a folder unless it names a file, and an empty one means the base directory
        return isinstance(value, str) and value.endswith(".json")
    if key == "storage_class":
        return isinstance(value, str) and value not in ("", "file")
    return isinstance(value, str | int | float)


STEPS: tuple[Callable[[dict[str, Any]], Iterator[Change]], ...] = (_from_reference,)
"""Step n leads from schema n to n + 1."""


@dataclass(frozen=True)
class Migrated:
    """The values in the current form, the number they had, and what was changed."""

    reading: Reading
    version: int
    changes: tuple[Change, ...]

    @property
    def is_older(self) -> bool:
        """Whether something in the file is of an older form. A file that merely does not say its number, as people write them, is not."""
        if self.version == CURRENT:
            return False
        values = self.reading.values
        said = "config_version" in values or ("holdfast_version",) in self.reading.places
        return said or bool(self.changes) or any(is_reference_path(path) for path in _class_names(values))


def _class_names(values: Any, key: object = None) -> Iterator[str]:
    """All values of settings that name a class."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _class_names(value, name)
    elif isinstance(values, list):
        for value in values:
            yield from _class_names(value)
    elif key in CLASS_KEYS and isinstance(values, str):
        yield values


def version_of(reading: Reading) -> int:
    """Our schema number of a file; 0 when it has none. Raises ConfigError for one that is unusable or from the future."""
    values = reading.values if isinstance(reading.values, dict) else {}
    if values.get("holdfast_version") is None:
        return 0
    number = values["holdfast_version"]
    line = reading.line(("holdfast_version",))
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) < 6:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"must be a whole number from 0 to {CURRENT}.", file=reading.file, line=line, key="holdfast_version")
    if number > CURRENT:
        raise ConfigError(
            f"the file has schema {number}, and this version of Holdfast knows schemas up to {CURRENT}.",
            file=reading.file,
            line=line,
            key="holdfast_version",
            hint="Update Holdfast.",
        )
    return number


def migrate(reading: Reading) -> Migrated:
    """The reading with its values in the current form. The old values are not touched; a moved setting keeps its line."""
    version = version_of(reading)
    values = copy.deepcopy(reading.values) if isinstance(reading.values, dict) else {}
    migrated = Reading(values, reading.text, reading.file, dict(reading.keys), dict(reading.places), reading.flow)
    changes: list[Change] = []
    for step in STEPS[version:]:
        for change in list(step(values)):
            changes.append(change)
            _change_values(migrated, change)
    if values:
        values["holdfast_version"] = CURRENT
    return Migrated(migrated, version, tuple(changes))


def _change_values(reading: Reading, change: Change) -> None:
    if isinstance(change, Rename):
        *above, old = change.path
        holder = _holder(reading.values, tuple(above))
        items = [(change.name, change.value) if key == old else (key, value) for key, value in holder.items()]
        holder.clear()
        holder.update(items)
        reading.also_at(change.path, (*above, change.name))
        return
    source, target = _holder(reading.values, change.source[:-1]), _holder(reading.values, change.target[:-1])
    del source[change.source[-1]]
    target[str(change.target[-1])] = change.value
    reading.also_at(change.source, change.target)


def _holder(values: dict[str, Any], path: KeyPath) -> dict[Any, Any]:
    for key in path:
        if values.get(str(key)) is None:
            values[str(key)] = {}
        values = values[str(key)]
    return values


@dataclass(frozen=True)
class Upgrade:
    """A file's text in the current form. `changed` is false when it already was."""

    text: str
    changed: bool
    version: int
    changes: tuple[str, ...]


def upgrade_text(text: str | bytes, file: str | PathLike[str] | None = None) -> Upgrade:
    """The text in the current form, every comment kept. Doing it twice changes nothing more.

    Raises ConfigError when the file cannot be read, or is written so that a line cannot be put in safely.
    """
    reading = read_yaml(text, file)
    if reading.values is not None and not isinstance(reading.values, dict):
        raise ConfigError("the file must be a mapping of sections.", file=reading.file, line=1)
    migrated = migrate(reading)
    mapped = list(_class_paths(reading))
    is_workflow = "stages" in (reading.values or {})  # a workflow has a form of its own
    if (migrated.version == CURRENT and not mapped) or is_workflow:
        return Upgrade(reading.text, False, CURRENT, ())
    edits = [*(_edit(reading, change) for change in migrated.changes), *(_mapped_edit(reading, change) for change in mapped)]
    if migrated.version < CURRENT:
        edits.append(_number_edit(reading))
    result = reading.text
    # from the end to the beginning, so that the places of the rest stay true; the number goes in at the very top
    for start, end, replacement in sorted(edits, key=lambda edit: edit[0], reverse=True):
        result = result[:start] + replacement + result[end:]
    _verify(result, reading, migrated, mapped)
    return Upgrade(result, True, migrated.version, tuple(str(change) for change in (*migrated.changes, *mapped)))


def _class_paths(reading: Reading) -> Iterator[Mapped]:
    """The class paths of the reference that name something here, where the text has them as they are."""
    for path, place in reading.places.items():
        old = value_at(reading.values, path)
        if not path or path[-1] not in CLASS_KEYS or not isinstance(old, str) or (ours := mapped(old)) is None:
            continue
        if path[0] in _CLASS_SECTIONS and reading.text[place.start : place.end].strip("'\"") == old:
            yield Mapped(path, old, ours)


def _mapped_edit(reading: Reading, change: Mapped) -> Edit:
    place = reading.places[change.path]
    written = reading.text[place.start : place.end]
    return place.start, place.end, written.replace(change.old, change.value)


def _verify(text: str, reading: Reading, migrated: Migrated, mapped: list[Mapped]) -> None:
    """The new text must say what the old one said plus the changes; if a file is too unusual for that, nobody gets a wrong one."""
    try:
        found = read_yaml(text, reading.file).values
    except ConfigError:
        found = None
    wanted = copy.deepcopy(reading.values) or {}
    for change in migrated.changes:
        if isinstance(change, Copy):
            _holder(wanted, change.target[:-1])[str(change.target[-1])] = change.value
        else:
            _change_values(Reading(wanted), change)
    for replaced in mapped:
        above = value_at(wanted, replaced.path[:-1])
        above[replaced.path[-1]] = replaced.value
    wanted["holdfast_version"] = CURRENT
    if found != wanted:
        raise ConfigError(
            "the file is written in a way that cannot be upgraded without rewriting it.",
            file=reading.file,
            hint=f"Add the line `holdfast_version: {CURRENT}` by hand" + "".join(f"; {change}" for change in migrated.changes) + ".",
        )


Edit = tuple[int, int, str]


def _number_edit(reading: Reading) -> Edit:
    line = f"holdfast_version: {CURRENT}"
    old = reading.places.get(("holdfast_version",))
    if old is not None:
        return old.start, old.end, f" {CURRENT}" if old.start == old.end else str(CURRENT)
    if not reading.values and () not in reading.flow:
        end = len(reading.text)
        gap = "" if not reading.text or reading.text.endswith(("\n", "\r")) else _newline(reading)
        return end, end, gap + line + _newline(reading)
    version = reading.places.get(("config_version",))
    if version is not None and () not in reading.flow and not isinstance(reading.values["config_version"], dict | list):
        # on the line below, so that a comment above the first key keeps its place
        end = reading.text.find("\n", version.end)
        column = reading.keys[("config_version",)].column
        if end > 0:
            return end + 1, end + 1, " " * (column - 1) + line + _newline(reading)
    return _insertion(reading, (), line)


def _edit(reading: Reading, change: Change) -> Edit:
    if isinstance(change, Rename):
        key, value = reading.keys[change.path], reading.places[change.path]
        return key.start, value.end, change.name + reading.text[key.end : value.start] + _word(change.value)
    line = f"{change.target[-1]}: {_word(change.value)}"
    holder = change.target[:-1]
    if isinstance(value_at(reading.values, holder), dict):
        return _insertion(reading, holder, line)
    if holder in reading.places:  # `logging:` with nothing after it
        place = reading.places[holder]
        return place.start, place.end, f" {{{line}}}"
    return _insertion(reading, (), f"{holder[-1]}: {{{line}}}")


def _insertion(reading: Reading, holder: KeyPath, line: str) -> Edit:
    """Puts a line before the first key of a mapping, in the form that the mapping is written in."""
    if holder in reading.flow:
        start = reading.places[holder].start + 1
        return start, start, line + (", " if value_at(reading.values, holder) else "")
    first: Place = min((place for path, place in reading.keys.items() if path[:-1] == holder), key=lambda place: place.start)
    return first.start, first.start, line + _newline(reading) + " " * (first.column - 1)


def _newline(reading: Reading) -> str:
    return "\r\n" if "\r\n" in reading.text else "\n"


def _word(value: Any) -> str:
    """A scalar in YAML: JSON's spelling is always right, and a plain word needs no quotes."""
    if (
        isinstance(value, str)
        and value.isascii()
        and value.isidentifier()
        and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
    ):
        return value
    return json.dumps(value, ensure_ascii=False)


# Keys that are not ours and still no mistake, and class paths of the reference


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

_WEB_TOOL = re.compile(r"community\.(\w+)\.tools:web_(search|fetch)_tool", re.ASCII)


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
