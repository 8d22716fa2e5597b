"""A2: which types of sub-agent there are, and what each may do."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.agents.bench import look, make

from holdfast.agents.agent_settings import NEVER, Registry
from holdfast.agents.subagents import NO_RESPONSE, SubagentResult
from holdfast.config.loading import config_from_values
from holdfast.errors import InputError


def registry(**subagents: Any) -> Registry:
    return Registry.of(config_from_values({"subagents": subagents}))


def test_two_types_are_built_in() -> None:
    types = registry()
    assert list(types) == ["general-purpose", "bash"]
    assert types["general-purpose"].pick([look, make]) == [look, make]
    assert types["bash"].pick([look, make]) == []
    assert types["bash"].may_use("bash")
    assert not any(types[name].may_use(tool) for name in types for tool in NEVER), "no sub-agent starts others or asks the user"


def test_limits_are_inherited_and_changed_for_each_type() -> None:
    """A7"""
    types = registry(
        max_turns=9,
        timeout_seconds=60,
        max_tokens=1000,
        agents={"bash": {"max_turns": 3, "timeout_seconds": 5, "max_tokens": 50, "disallowed_tools": ["ls"], "model": "inherit"}},
        custom_agents={
            "Reviewer": {"description": "Reviews.", "system_prompt": "You review.", "thinking": True, "tools": ["task", "look"]}
        },
    )
    general, bash, reviewer = types["general-purpose"], types["bash"], types["reviewer"]
    assert (general.max_turns, general.timeout_seconds, general.max_tokens) == (9, 60, 1000)
    assert (bash.max_turns, bash.timeout_seconds, bash.max_tokens, bash.model) == (3, 5, 50, None)
    assert not bash.may_use("ls")
    assert (reviewer.max_turns, reviewer.thinking, reviewer.prompt) == (9, True, "You review.")
    assert not reviewer.may_use("task"), "not even when its settings say so"


def test_a_call_may_ask_for_turns_within_the_limits() -> None:
    types = registry(max_turns=9, agents={"bash": {"max_turns": 3}})
    assert types["general-purpose"].turns(20, 20) == 9, "nothing was asked for"
    assert types["general-purpose"].turns(50, 20) == 50
    assert types["general-purpose"].turns(10_000, 20) == 200
    assert types["bash"].turns(50, 20) == 3
    assert types["bash"].turns(0, 20) == 3


def test_an_unknown_type_is_an_error_that_names_the_known_ones() -> None:
    with pytest.raises(InputError, match="general-purpose"):
        registry().find("general")
    with pytest.raises(InputError, match="sub-agent"):
        registry(agents={"nobody": {"max_turns": 1}})
    with pytest.raises(InputError):
        registry(custom_agents={"../x": {"system_prompt": "x"}})


def test_what_the_parent_reads_says_how_it_ended() -> None:
    """A4"""
    assert SubagentResult("1", "subagent-1", "completed", "Done.").text() == "Done."
    assert SubagentResult("1", "subagent-1", "completed").text() == NO_RESPONSE
    failed = SubagentResult("1", "subagent-1", "failed", "Half of it.", ("a.md",), reason="{tokens} broke").text()
    assert failed == "The sub-agent failed: {tokens} broke\n\nIts work up to then:\nHalf of it.\n\nFiles: a.md"
    assert "12 turns" in SubagentResult("1", "subagent-1", "turn_capped", "x", turns=12).text()
