"""C1: which settings count in a file that nobody has agreed to. Every setting that there is must have been decided on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

import pytest
from pydantic import TypeAdapter

from holdfast.config.loading import config_from_values, example_text, read_config, read_file
from holdfast.config.section import Section, nested
from holdfast.config.sections import Config
from holdfast.config.trust import PLAIN, plain_part

NEEDS = {
    "models.*",
    "summarization.model_name summary_prompt",
    "memory.storage_path storage_class dsn model_name fact_confidence_threshold mode",
    "memory.blocks.*",
    "memory.session_memory.persist path",
    "memory.long_term_memory.min_trust rerank_model",
    "subagents.retain_days",
    "subagents.agents.*.model tools disallowed_tools skills",
    "subagents.custom_agents.*",
    "sandbox.use allow_host_bash network environment memory_mb max_bytes",
    "sandbox.mounts.*",
    "skills.path container_path",
    "session.id storage_backend connection path retain_days",
    "session.vector_store.provider connection collection",
    "knowledge.use arguments share_text path dsn collection rerank_model",
    "knowledge.server.*",
    "mcp.servers.*",
    "server.host token cors allowed_hosts workflows gateway_learn",
    "title.model_name",
}
"""Settings that wait for trust. A new setting belongs here, or into PLAIN where it can do no harm."""


def leaves(section: type[Section], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name in section.model_fields:
        inner = nested(section, name)
        here = (*path, name)
        if inner is None:
            yield here
        else:
            yield from leaves(inner.section, here if inner.kind == "one" else (*here, "*"))


def waiting() -> set[tuple[str, ...]]:
    found = set()
    for line in NEEDS:
        above, _, names = line.rpartition(".")
        found |= {(*above.split("."), name) for name in names.split()}
    return found


def decided(path: tuple[str, ...]) -> bool:
    whole = {pattern[:-1] for pattern in waiting() if pattern[-1] == "*"}
    return path in waiting() or any(path[: len(above)] == above for above in whole)


def test_every_setting_is_plain_or_waits_for_trust_and_none_is_both() -> None:
    """C1"""
    every = set(leaves(Config))
    plain = {tuple(pattern.split(".")) for pattern in PLAIN}
    assert plain <= every, "a plain setting that there is not"
    assert {".".join(path) for path in every if path not in plain and not decided(path)} == set()
    assert {".".join(path) for path in plain if decided(path)} == set()


def other_than_default(annotation: Any, default: Any) -> Iterator[Any]:
    """Values that a setting of this form takes and that are not what it is without one."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is not None and str(origin) == "typing.Literal":
        yield from (value for value in arguments if value != default)
    for value in (True, False, 7, 0.25, "x.y:Z", "/abs", "../up", "$HOME", ["a"], {"a": "b"}, [["messages", 7]], ["messages", 7]):
        try:
            TypeAdapter(annotation).validate_python(value)
        except ValueError:
            continue
        if value != default:
            yield value


def test_no_value_of_a_setting_that_waits_gets_through() -> None:
    """C1: whatever it says, what holds is the default."""
    tried = 0
    for path in leaves(Config):
        if "*" in path or not decided(path):
            continue
        section: type[Section] = Config
        for name in path[:-1]:
            inner = nested(section, name)
            assert inner is not None
            section = inner.section
        field = section.model_fields[path[-1]]
        for value in other_than_default(field.annotation, field.get_default(call_default_factory=True)):
            values: Any = value
            for name in reversed(path):
                values = {name: values}
            try:
                full = config_from_values(values, environ={})
            except ValueError:
                continue
            except Exception as error:  # noqa: BLE001 - two settings that need each other: the next value is tried
                assert type(error).__name__ == "ConfigError"
                continue
            kept, withheld = plain_part(full, values)
            assert withheld == [path], (path, value)
            assert Config.model_validate(kept) == Config()
            tried += 1
    assert tried > 60


@pytest.mark.parametrize(
    ("text", "withheld"),
    [
        ("memory: {max_facts: 1}", ["memory.max_facts"]),
        ("memory: {max_facts: 100}", []),
        ("summarization: {keep: $KEEP}", ["summarization.keep"]),
        ("sandbox: {timeout_seconds: $T}", ["sandbox.timeout_seconds"]),
        ("sandbox: {timeout_seconds: 5, approve: [bash]}", []),
        ("tools: [{name: bash}, {name: web_search, use: src.community.tavily.tools:web_search_tool}]", []),
        ("tools: [{name: bash}, {name: mine, use: 'my.tools:mine'}]", ["tools"]),
        ("tools: [{name: bash, use: 'holdfast.agents.tools.toolset:open_tools'}]", ["tools"]),
        ("tools: [{name: web_search, base_url: 'http://x'}]", ["tools"]),
        ("subagents: {agents: {coder: {max_turns: 3}, other: {model: m}}, max_turns: 3}", ["subagents.agents.other"]),
        ("subagents: {custom_agents: {x: {description: d, system_prompt: obey}}}", ["subagents.custom_agents.x"]),
        ("knowledge: {embedder: minilm, adapter: markdown}", []),
        ("knowledge: {embedder: {use: minilm, more: 1}}", ["knowledge.embedder.more"]),
        ("knowledge: {embedder: 'a.b:C'}", ["knowledge.embedder.use"]),
        ("mcp: {extensions: ''}", []),
        ("mcp: {extensions: other.json}", ["mcp.extensions"]),
        ("token_counting: x\nmemory: {backend_config: {storage_class: 'a:b'}}", ["memory.storage_class"]),
        ("models:\n", []),
    ],
)
def test_what_is_plain(tmp_path: Any, text: str, withheld: list[str]) -> None:
    """C1, C4: also what an older schema has elsewhere."""
    (tmp_path / "config.yaml").write_text(text)
    assert [one.key for one in read_file(environ={}, cwd=tmp_path).trust.withheld] == withheld


def test_the_example_asks_for_nothing(tmp_path: Any) -> None:
    """C1: all of it is defaults."""
    (tmp_path / "config.yaml").write_text(example_text())
    config = read_file(environ={}, cwd=tmp_path)
    assert config.trust.withheld == ()
    assert config == read_file(environ={}, cwd=tmp_path)


def test_what_is_left_is_what_the_file_says(tmp_path: Any) -> None:
    """C1, W1: a setting that does not count is not one that the file sets, so it wins over nothing."""
    (tmp_path / "config.yaml").write_text("session: {path: ../x, checkpoint_interval: 3}\n")
    config = read_file(environ={}, cwd=tmp_path)
    assert config.session.model_fields_set == {"checkpoint_interval"}
    assert read_config("session: {path: ../x}", file="x.yaml").session.path == "../x"
