"""Older forms are upgraded in memory and, on request, in the text with every comment kept (C4)."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from holdfast.agents.tools.toolset import BUILT_IN, COMES_WITH_A_MIDDLEWARE
from holdfast.config import migration
from holdfast.config.loading import read_config
from holdfast.config.migration import CURRENT, STEPS, upgrade_text
from holdfast.config.reading import read_yaml
from holdfast.errors import ConfigError
from holdfast.models.providers import package_of
from holdfast.validation import load_dotted

ROOT = Path(__file__).parents[3]
FILES = sorted([*(ROOT / "tests" / "fixtures" / "config").glob("*.yaml"), *(ROOT.parent / "shared" / "reference").glob("*.yaml")])


def changed_lines(old: str, new: str) -> tuple[list[str], list[str]]:
    """The lines that went and the lines that came, but for class paths, which are rewritten in their place."""
    for path in set(re.findall(r"\b(?:src|deerflow)\.[\w.]+[:.]\w+", old)):
        old = old.replace(path, migration.mapped(path) or path)
    diff = list(difflib.ndiff(old.splitlines(), new.splitlines()))
    return [line[2:] for line in diff if line.startswith("- ")], [line[2:] for line in diff if line.startswith("+ ")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_an_upgrade_keeps_the_meaning_and_every_other_line(path: Path) -> None:
    old = path.read_text()
    upgrade = upgrade_text(old, path)
    before, after = read_config(old, environ={}), read_config(upgrade.text, environ={})
    one, other = before.model_dump(), after.model_dump()
    for dump in (one, other):  # what is moved out of it stays in the text, without effect
        dump["memory"].pop("backend_config", None)
    assert one == other
    assert "upgraded" not in [notice.kind for notice in after.warnings]
    went, came = changed_lines(old, upgrade.text)
    assert len(went) <= 1, "only a renamed key changes its line"
    assert len(came) <= 5
    comments = [line.partition("#")[2] for line in old.splitlines() if "#" in line]
    assert all(comment in upgrade.text for comment in comments)
    again = upgrade_text(upgrade.text, path)
    assert (again.changed, again.text) == (False, upgrade.text)


def test_what_is_moved_is_written_where_it_belongs_now() -> None:
    old = (ROOT / "tests" / "fixtures" / "config" / "late.yaml").read_text()
    upgrade = upgrade_text(old)
    went, came = changed_lines(old, upgrade.text)
    assert went == []
    assert sorted(came) == [
        "  debounce_seconds: 12",
        "  level: debug",
        "  max_facts: 250",
        "  token_counter: approximate",
        "holdfast_version: 1",
    ]
    assert "memory.backend_config.max_facts is now memory.max_facts" in upgrade.changes
    assert "    max_facts: 250              # more than usual" in upgrade.text, "the old line stays with its comment"


def test_a_renamed_key_changes_in_its_place() -> None:
    upgrade = upgrade_text("memory:\n  token_counting:   'tiktoken'   # exact\n  max_facts: 3\n")
    assert upgrade.text == "holdfast_version: 1\nmemory:\n  token_counter:   exact   # exact\n  max_facts: 3\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", "holdfast_version: 1\n"),
        ("# a comment\n", "# a comment\nholdfast_version: 1\n"),
        ("# no line end", "# no line end\nholdfast_version: 1\n"),
        ("{}", "{holdfast_version: 1}"),
        ("{memory: {max_facts: 3}} # c\n", "{holdfast_version: 1, memory: {max_facts: 3}} # c\n"),
        ("a: 1\r\nb: 2\r\n", "holdfast_version: 1\r\na: 1\r\nb: 2\r\n"),
        ("---\n# c\n  a: 1\n  b: 2\n", "---\n# c\n  holdfast_version: 1\n  a: 1\n  b: 2\n"),
        ("config_version: 3 # c\n\na: 1\n", "config_version: 3 # c\nholdfast_version: 1\n\na: 1\n"),
        ("a: 1\nconfig_version: 3", "holdfast_version: 1\na: 1\nconfig_version: 3"),
        ("holdfast_version: 0 # old\na: 1\n", "holdfast_version: 1 # old\na: 1\n"),
        ("holdfast_version: # none\na: 1\n", "holdfast_version: 1 # none\na: 1\n"),
        ("log_level: info\nlogging: # c\na: 1\n", "holdfast_version: 1\nlog_level: info\nlogging: {level: info} # c\na: 1\n"),
        ("log_level: info\na: 1\n", "holdfast_version: 1\nlogging: {level: info}\nlog_level: info\na: 1\n"),
        ("log_level: info\nlogging: {format: json}\n", "holdfast_version: 1\nlog_level: info\nlogging: {level: info, format: json}\n"),
    ],
)
def test_only_what_must_change_is_touched(old: str, new: str) -> None:
    assert upgrade_text(old).text == new


@pytest.mark.parametrize("text", ["? a\n: 1\n", "&x a: 1\n", "!!map\na: 1\n"])
def test_a_file_too_unusual_is_upgraded_right_or_refused_never_wrong(text: str) -> None:
    try:
        upgrade = upgrade_text(text, "config.yaml")
    except ConfigError as error:
        assert f"holdfast_version: {CURRENT}" in str(error)
    else:
        assert read_yaml(upgrade.text).values == {"a": 1, "holdfast_version": CURRENT}


def test_settings_of_our_own_win_over_those_that_would_be_moved() -> None:
    text = "log_level: debug\nlogging: {level: error}\n"
    text += "memory: {max_facts: 7, token_counter: exact, token_counting: char, backend_config: {max_facts: 9}}\n"
    config = read_config(text, environ={})
    assert (config.logging.level, config.memory.max_facts, config.memory.token_counter) == ("error", 7, "exact")
    assert changed_lines(text, upgrade_text(text).text) == ([], ["holdfast_version: 1"])


def test_a_moved_setting_that_is_wrong_has_the_line_where_it_stands() -> None:
    with pytest.raises(ConfigError) as caught:
        read_config("memory:\n  backend_config:\n    x: 1\n    max_facts: many\n", file="config.yaml", environ={})
    assert (caught.value.line, caught.value.key) == (4, "memory.max_facts")


def test_the_current_form_moves_nothing() -> None:
    config = read_config("holdfast_version: 1\nmemory: {backend_config: {max_facts: 9}}\n", environ={})
    assert config.memory.max_facts == 100
    assert "upgraded" not in [notice.kind for notice in config.warnings]


@pytest.mark.parametrize("version", ["1", '"1"', "33", "2.0", "draft", "null", "[1]"])
def test_the_version_of_the_reference_may_be_any_number_or_text(version: str) -> None:
    try:
        config = read_config(f"config_version: {version}\n", environ={})
    except ConfigError as error:
        assert version == "[1]"
        assert error.key == "config_version"
    else:
        assert config.config_version == read_yaml(version).values


def test_there_is_a_step_for_every_schema() -> None:
    assert len(STEPS) == CURRENT


def test_a_class_path_of_the_reference_is_mapped_to_what_exists_here() -> None:
    targets = {"config.loading:load": "holdfast.config.loading:load_config"}
    assert migration.mapped("src.config.loading:load", targets) == "holdfast.config.loading:load_config"
    assert migration.mapped("deerflow.config.loading.load", targets) == "holdfast.config.loading:load_config", "with a dot as well"
    assert migration.mapped("src.gone:Thing", targets) is None
    assert migration.mapped("other.config.loading:load", targets) is None
    assert migration.mapped("src.config.loading:load\n", targets) is None


def test_every_class_path_of_the_table_exists_here() -> None:
    """C4"""
    for ours in migration.TARGETS.values():
        module, _, name = ours.partition(":")
        if module == "holdfast.agents.tools":
            assert name in BUILT_IN or name in COMES_WITH_A_MIDDLEWARE, ours
        elif not module.startswith("holdfast."):
            assert package_of(module) is not None, ours  # a class of a known provider's package, which need not be installed
        else:
            assert load_dotted(ours, "the target") is not None


def test_mapping_is_done_at_every_load_and_what_is_not_here_is_noted() -> None:
    config = read_config("holdfast_version: 1\nsandbox:\n  use: src.nowhere.at_all:Thing\n", file="config.yaml", environ={})
    (notice,) = config.warnings
    assert (notice.kind, notice.line, notice.key) == ("class-path", 3, "sandbox.use")
    assert config.sandbox.use == "src.nowhere.at_all:Thing"
    for path, ours in migration.TARGETS.items():
        text = f"memory:\n  storage_class: deerflow.{path.replace(':', '.')}\n"
        assert read_config(text, environ={}).memory.storage_class == ours


OLD_PATHS = """# kept
config_version: 33   # theirs
models:
  - name: deep
    use: "deerflow.models.patched_deepseek:PatchedChatDeepSeek"   # quoted
    model: x
  - {name: plain, use: langchain_openai:ChatOpenAI, model: y}   # stays
  - {name: other, use: deerflow.models.vllm_provider:VllmChatModel, model: z}
tools:
  - name: web_search
    use: deerflow.community.ddg_search.tools:web_search_tool  # free
  - name: mine
    use: src.nowhere.at_all:Tool   # names nothing here
memory:
  storage_class: 'src.agents.memory.storage.FileMemoryStorage'
title:
  use: deerflow.models.vllm_provider:VllmChatModel   # no class path of a section of ours
"""


def test_class_paths_that_are_mapped_are_rewritten_and_nothing_else_is() -> None:
    """C4"""
    done = upgrade_text(OLD_PATHS, "config.yaml")
    expected = OLD_PATHS.replace("# theirs\n", "# theirs\nholdfast_version: 1\n", 1)
    for old, new in (
        ("deerflow.models.patched_deepseek:PatchedChatDeepSeek", "holdfast.models.compatible:DeepSeekChat"),
        ("use: deerflow.models.vllm_provider:VllmChatModel, model: z", "use: holdfast.models.compatible:VllmChat, model: z"),
        ("deerflow.community.ddg_search.tools:web_search_tool", "holdfast.agents.tools:duckduckgo_web_search"),
        ("src.agents.memory.storage.FileMemoryStorage", "holdfast.memory.storage:FileMemoryStorage"),
    ):
        expected = expected.replace(old, new)
    assert done.text == expected
    assert "models[0].use is now holdfast.models.compatible:DeepSeekChat" in done.changes
    before, after = (read_config(text, file="config.yaml", environ={}) for text in (OLD_PATHS, done.text))
    assert [model.use for model in after.models] == [model.use for model in before.models]
    assert [tool.use for tool in after.tools] == [tool.use for tool in before.tools]
    again = upgrade_text(done.text, "config.yaml")
    assert (again.changed, again.text) == (False, done.text)


def test_a_file_of_the_current_schema_gets_its_class_paths_rewritten_too() -> None:
    """C4"""
    done = upgrade_text("holdfast_version: 1\nsandbox: {use: src.sandbox.local:LocalSandboxProvider}  # here\n", "config.yaml")
    assert done.text == "holdfast_version: 1\nsandbox: {use: holdfast.sandbox.local:LocalSandbox}  # here\n"


def test_a_path_behind_an_anchor_is_left_as_it_is() -> None:
    """C4: never a wrong file."""
    first = "{name: a, use: &x deerflow.models.vllm_provider:VllmChatModel, model: m}"
    text = f"config_version: 1\nmodels:\n  - {first}\n  - {{name: b, use: *x, model: m}}\n"
    done = upgrade_text(text, "config.yaml")
    assert "&x" in done.text
    assert [model.use for model in read_config(done.text, environ={}).models] == ["holdfast.models.compatible:VllmChat"] * 2
