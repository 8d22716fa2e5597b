"""Which settings are plain: they count in a file that was merely found and that nobody has agreed to (C1).

It is a list of what may pass, so that a setting which is added later waits for trust until somebody puts it here. Plain is what can neither
run nor reach, read, pay for, hand over or remove anything: sizes, times, switches between our own ways of working. A value that is the
default asks for nothing. Everything that names something (a class, a command, a path, an address, a model, a variable of the environment,
words for a model to obey) is not plain, nor is a number that makes what is kept about the user smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.config.environment import references
from holdfast.config.known_keys import SEARCH_KEYS, TARGETS
from holdfast.config.memory_sections import Memory
from holdfast.config.reading import KeyPath
from holdfast.config.section import Nested, Section, nested

_OUR_TOOLS = frozenset(
    {path for path in TARGETS.values() if path.startswith("holdfast.agents.tools:")}
    | {f"holdfast.agents.tools:{name}" for name in ("web_fetch", "web_search", *(f"{engine}_web_search" for engine in SEARCH_KEYS))}
)
_MAX_FACTS: int = Memory.model_fields["max_facts"].default

Passes = Callable[[Any], bool]


def _any(value: Any) -> bool:
    return True


def _one_of(*words: str) -> Passes:
    return lambda value: value in words


def _keys(section: str, names: str) -> dict[str, Passes]:
    return {f"{section}.{name}": _any for name in names.split()}


PLAIN: Mapping[str, Passes] = {
    "config_version": _any,
    "holdfast_version": _any,
    **_keys("summarization", "enabled trigger keep trim_tokens_to_summarize summary_role"),
    **_keys("summarization.recall", "enabled share floor knowledge"),
    "summarization.token_counter": _one_of("exact", "approximate"),
    **_keys("memory", "enabled injection_enabled injection debounce_seconds max_injection_tokens inherit extractor"),
    "memory.max_facts": lambda value: value >= _MAX_FACTS,  # fewer would make room by forgetting
    "memory.token_counter": _one_of("exact", "approximate"),
    **_keys("memory.working_memory", "max_tokens eviction_policy"),
    **_keys("memory.long_term_memory", "retrieval_top_k rerank"),
    **_keys("subagents", "timeout_seconds max_turns max_concurrent max_tokens"),
    **_keys("subagents.agents.*", "thinking timeout_seconds max_turns max_tokens"),
    **_keys("sandbox", "approve timeout_seconds bash_output_max_chars read_file_output_max_chars ls_output_max_chars"),
    **_keys("session", "checkpoint_interval"),
    **_keys("session.short", "max_stages max_seconds"),
    **_keys("session.long", "after_stages after_seconds"),
    **_keys("session.limits", "tokens cost"),
    **_keys("knowledge", "rerank top_k"),
    "knowledge.adapter": _one_of("sqlite", "markdown"),
    "knowledge.embedder.use": _one_of("auto", "minilm", "none"),
    "mcp.extensions": _one_of(""),  # no file at all
    **_keys("server", "port max_upload_bytes shutdown_seconds request_seconds gateway_memory"),
    **_keys("logging", "level format"),
    **_keys("title", "enabled max_words max_chars"),
    "tools.*.name": _any,
    "tools.*.group": _any,
    "tools.*.use": lambda value: value in _OUR_TOOLS,
    "tool_groups.*.name": _any,
    **_keys("limits", "tokens cost"),
    **_keys("limits.run", "tokens cost"),
    **_keys("limits.session", "tokens cost"),
}
"""Every plain setting, `*` for any name or number in its path, and which values of it are."""


def plain_part(section: Section, values: Mapping[str, Any], path: KeyPath = ()) -> tuple[dict[str, Any], list[KeyPath]]:
    """The plain settings of a file, and the paths of the others. `section` is what was read from `values`.

    A list counts whole or not at all, and so does each entry of a mapping by names.
    """
    kept: dict[str, Any] = {}
    withheld: list[KeyPath] = []
    for name, value in values.items():
        here = (*path, name)
        if name not in type(section).model_fields:
            if section.strange == "passed on":
                withheld.append(here)
            continue  # of no effect anyway
        inner, read = nested(type(section), name), section.written(name)
        if read is None or inner is None:
            passes = read == type(section).model_fields[name].get_default(call_default_factory=True) or _is_plain(here, read)
            part, others = (value, []) if passes else (None, [here])
        else:
            part, others = _nested(inner, read, value, here)
        withheld += others
        if part or not others:
            kept[name] = part
    return kept, withheld


def _nested(inner: Nested, read: Any, value: Any, here: KeyPath) -> tuple[Any, list[KeyPath]]:
    if inner.kind == "one":
        return plain_part(read, value, here) if isinstance(value, Mapping) else (value, [])
    if inner.kind == "mapping":
        entries = {key: plain_part(item, value[key], (*here, key)) for key, item in read.items()}
        return {key: part for key, (part, others) in entries.items() if not others}, [(*here, k) for k, (_, o) in entries.items() if o]
    items = [plain_part(item, value[index], (*here, index)) for index, item in enumerate(read)]
    return ([], [here]) if any(others for _, others in items) else (value, [])


def _is_plain(path: KeyPath, read: Any) -> bool:
    """Whether this value may pass. One from the environment never is: it is not known yet what it says, and asking is telling."""
    for pattern, passes in PLAIN.items():
        parts = pattern.split(".")
        if len(parts) == len(path) and all(part in ("*", where) for part, where in zip(parts, path, strict=True)):
            return not any(references(read)) and passes(read)
    return False
