"""What `config check` finds before anything runs: names, folders, modules, values of variables, and policies that do not hold (C2, C5)."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.agents.agent_settings import Registry
from holdfast.app.output import _asks_for_log
from holdfast.config.checks import SUBAGENT_TYPES
from holdfast.config.loading import PolicyIdle, announce, read_config
from holdfast.config.sections import Config
from holdfast.events import Bus, Event


def told(text: str, **environ: str) -> dict[str, str]:
    return {one.key or "": one.message for one in read_config(text, environ=environ).warnings}


def test_the_types_of_sub_agent_that_are_known_without_a_configuration_are_those_that_there_are() -> None:
    """A2"""
    assert tuple(Registry.of(Config())) == SUBAGENT_TYPES


@pytest.mark.parametrize(
    ("text", "key", "says"),
    [
        ("subagents: {agents: {generalpurpose: {max_turns: 5}}}", "subagents.agents.generalpurpose", "Did you mean general-purpose?"),
        ("subagents: {custom_agents: {'x y': {}}}", "subagents.custom_agents.x y", "not a usable type of sub-agent"),
        ("sandbox: {mounts: [{host_path: /nonexistent/data, container_path: /mnt/data}]}", "sandbox.mounts[0].host_path", "not a folder"),
        ("knowledge: {embedder: 'nosuchpkg.mod:Emb'}", "knowledge.embedder.use", "nosuchpkg.mod cannot be found"),
        ("memory: {storage_class: nosuchpkg.mod.Store}", "memory.storage_class", "nosuchpkg.mod cannot be found"),
        ("sandbox: {use: 'email.nothing:Box'}", "sandbox.use", "email.nothing cannot be found"),
        ("server: {port: $PORT}", "server.port", "PORT must be a whole number"),
        ("tools: [{name: mine, use: 'json.decoder:JSONDecoder', factor: 3}]", "tools[0]", "only if `use` names a class"),
    ],
)
def test_what_cannot_work_is_found_before_anything_runs(text: str, key: str, says: str) -> None:
    """C5"""
    assert says in told(text, PORT="abc")[key]


def test_what_can_work_is_not_doubted(tmp_path: Path) -> None:
    """C5"""
    (tmp_path / "data").mkdir()
    text = f"""
holdfast_version: 1
subagents: {{agents: {{bash: {{max_turns: 5}}, mine: {{max_turns: 3}}}}, custom_agents: {{mine: {{}}}}}}
sandbox: {{mounts: [{{host_path: {tmp_path / "data"}, container_path: /mnt/data}}], use: 'holdfast.sandbox.local:LocalSandbox'}}
memory: {{storage_class: holdfast.memory.storage.FileMemoryStorage}}
server: {{port: $PORT}}
knowledge: {{embedder: 'openai:text-embedding-3-small'}}
tools: [{{name: grep, max_results: 1}}, {{name: mine, use: 'json.decoder:JSONDecoder'}}]
"""
    assert told(text, PORT="8000") == {}


POLICIES = """
guardrails: {enabled: true, provider: {use: 'deerflow.guardrails.builtin:AllowlistProvider', config: {denied_tools: [bash, write_file]}}}
authorization: {enabled: true}
token_budget: {enabled: true, max_tokens: 20}
extensions: {middlewares: ['a.b:C']}
"""


def test_policies_of_the_reference_that_are_switched_on_are_named_once_with_what_to_use_instead() -> None:
    """C2: one line for each, and none for those that are off."""
    config = read_config(POLICIES, environ={})
    assert {one.key for one in config.warnings if one.kind in ("policy", "ignored")} == {
        "guardrails",
        "authorization",
        "token_budget",
        "extensions.middlewares",
    }
    heard: list[Event] = []
    announce(config, Bus(heard.append))
    announce(config, Bus(heard.append))
    lines = [event.told for event in heard if isinstance(event, PolicyIdle)]
    assert len(lines) == 4
    assert any("limits.tokens" in line for line in lines) and any("no agent has bash, write_file" in line for line in lines)
    assert config.denied_tools == ("bash", "write_file")
    off = read_config("guardrails: {enabled: false, provider: {}}\ntoken_budget: {enabled: false}", environ={})
    assert {one.kind for one in off.warnings} == {"ignored"} and off.denied_tools == ()


def test_a_level_that_is_only_the_copy_of_the_references_makes_no_command_talk() -> None:
    """O2: a level of ours still does what it says."""
    assert not _asks_for_log({"log_level": "info"})
    assert not _asks_for_log({"log_level": "info", "logging": {"level": "info"}})
    assert _asks_for_log({"logging": {"level": "info"}})
    assert _asks_for_log({"log_level": "info", "logging": {"level": "debug"}})
