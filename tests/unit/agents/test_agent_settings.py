"""M4, A1: settings of one agent, and every name and file that comes from outside is checked."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.agents.bench import configured

from holdfast.agents.agent_settings import AgentSettings, agent_names, filled, lead_prompt, load_agent
from holdfast.errors import ConfigError, HoldfastError, InputError


def folder_of(base: Path, name: str, text: str = "", soul: str = "") -> Path:
    folder = base / "agents" / name
    folder.mkdir(parents=True)
    if text:
        (folder / "config.yaml").write_text(text)
    if soul:
        (folder / "SOUL.md").write_text(soul)
    return folder


def test_an_agent_without_a_folder_has_the_defaults(tmp_path: Path) -> None:
    assert load_agent(configured(tmp_path), "Coder") == AgentSettings("coder")


def test_everything_in_the_file_is_read(tmp_path: Path) -> None:
    folder_of(
        tmp_path,
        "coder",
        "name: coder\ndescription: Codes.\nprompt: Be brief.\nmodel: big\nthinking: true\ntools: [look]\n"
        "tool_groups: web\nskills: [tidy]\nmemory: false\nsubagents: false\n",
        "# Soul\n<!-- a note -->\nYou like tests.",
    )
    found = load_agent(configured(tmp_path), "coder")
    assert found.prompt == "Be brief.\n\n# Soul\n\nYou like tests."
    assert (found.model, found.thinking, found.tools, found.tool_groups) == ("big", True, ("look",), ("web",))
    assert (found.skills, found.memory, found.subagents) == (("tidy",), False, False)


def test_tools_are_allowed_by_name_or_by_group(tmp_path: Path) -> None:
    config = configured(tmp_path, {"tools": [{"name": "fetch", "group": "web", "use": "x:y"}], "tool_groups": ["web"]})
    settings = AgentSettings("a", tools=("look",), tool_groups=("web",))
    assert [name for name in ("look", "fetch", "make") if settings.allows(name, config)] == ["look", "fetch"]
    assert AgentSettings("a").allows("anything", config)


@pytest.mark.parametrize(
    ("text", "said"), [("toolz: [a]", "tools"), ("- a", "mapping"), ("memory: maybe", "memory"), ("model: [a]", "model"), ("a: [", "coder")]
)
def test_a_file_that_does_not_fit_is_an_error_with_its_place(tmp_path: Path, text: str, said: str) -> None:
    folder_of(tmp_path, "coder", text)
    with pytest.raises(ConfigError, match=said) as caught:
        load_agent(configured(tmp_path), "coder")
    assert caught.value.file is not None
    assert "coder" in caught.value.file


@pytest.mark.parametrize("name", ["", "a/b", "..", "a\n", "ä", "a" * 65])
def test_names_that_are_not_allowed_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        load_agent(configured(tmp_path), name)


def test_a_link_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("prompt: stolen")
    (folder_of(tmp_path, "coder") / "config.yaml").symlink_to(secret)
    with pytest.raises(HoldfastError):
        load_agent(configured(tmp_path), "coder")


def test_agents_with_settings_are_listed(tmp_path: Path) -> None:
    folder_of(tmp_path, "b", soul="x")
    folder_of(tmp_path, "a", "model: x")
    folder_of(tmp_path, "Not-Lower", "model: x")
    (tmp_path / "agents" / "memory-only").mkdir()
    assert agent_names(configured(tmp_path)) == ["a", "b"]


def test_braces_in_what_is_filled_in_stay_what_they_are() -> None:
    assert "{answer}" in filled("title.md", words="6", question="{answer}", answer="no")
    assert "{name} stays" in lead_prompt(AgentSettings("coder", prompt="{name} stays"))
