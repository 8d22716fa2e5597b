"""T4: what the lead agent brings along fits the share that the budget gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage

from holdfast import make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, repeat
from holdfast.tokens.budget import Budget
from holdfast.tokens.counter import open_counter

COUNT = open_counter("exact")


def last_request(window: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, **settings: Any) -> Request:
    """A thread from which something has left, so that every tool that will ever be offered is there."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path))
    config = config_from_values({"memory": {"enabled": False}, "title": {"enabled": False}, **settings})
    model = ScriptedModel([repeat("Noted.")], profile={"max_input_tokens": window})
    agent = make_lead_agent(config, model=model)
    for turn in range(4):
        agent.graph.invoke(
            {"messages": [HumanMessage(f"{turn} " + "words and more words " * (window // 12))]}, {"configurable": {"thread_id": "t"}}
        )
    return model.requests[-1]


def test_the_tools_and_the_prompt_fit_the_budget_of_8k(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """1,000 tokens for the tools and 500 for the prompt, the tools of the archive among them."""
    request = last_request(8000, monkeypatch, tmp_path)
    budget = Budget.split(8000)
    assert {"search_history", "read_history", "read_file", "write_file", "task", "present_files"} <= set(request.tool_names)
    assert COUNT.count_tools(request.tools) <= budget.tool_definitions
    assert COUNT.count_message(request.messages[0]) <= budget.base


@pytest.mark.parametrize(("window", "all_of_them"), [(8000, False), (32_000, True)])
def test_in_a_small_window_what_bash_does_is_left_to_bash(
    window: int, all_of_them: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = set(last_request(window, monkeypatch, tmp_path).tool_names)
    assert ({"ls", "glob", "grep", "str_replace"} <= names) is (all_of_them or "bash" not in names)


def test_tools_that_are_listed_are_offered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A10: what the user lists is the user's choice."""
    listed = [{"name": name} for name in ("bash", "ls", "grep", "read_file")]
    names = set(last_request(8000, monkeypatch, tmp_path, tools=listed).tool_names)
    assert {"ls", "grep", "read_file"} <= names
