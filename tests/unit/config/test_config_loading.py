"""Finding the file, the base directory, and every form of the reference loading unchanged (C1, C4, C6, W1)."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config.loading import config_from_values, find_config, load_config, read_config
from holdfast.config.reading import base_directory
from holdfast.config.section import Section, nested
from holdfast.config.sections import Config
from holdfast.config.triggers import Messages, Tokens
from holdfast.errors import ConfigError, InputError, ModelNotConfigured

ROOT = Path(__file__).parents[3]
FIXTURES = ROOT / "tests" / "fixtures" / "config"
SHARED = ROOT.parent / "shared" / "reference"


def files() -> list[Path]:
    return sorted([*FIXTURES.glob("*.yaml"), *SHARED.glob("*.yaml")])


def kinds(config: Config) -> list[str]:
    return [notice.kind for notice in config.warnings]


@pytest.mark.parametrize("path", files(), ids=lambda path: f"{path.parent.parent.name}-{path.name}")
def test_every_form_of_the_reference_loads_unchanged(path: Path) -> None:
    config = load_config(path, environ={})
    assert config.file == path
    older = re.search(
        r"(?m)^config_version|token_counting|backend_config|(?:use|storage_class): *.?(?:src|deerflow)\.", path.read_text("utf-8")
    )
    assert kinds(config).count("upgraded") == (1 if older else 0), "an older schema is one warning, and what merely has no number is none"


def test_a_file_written_by_hand_without_a_number_is_not_called_old() -> None:
    """C4: only where something in it is of an older form."""
    assert kinds(read_config("title: {max_words: 5}\n", environ={})) == []
    assert kinds(read_config("holdfast_version: 0\ntitle: {max_words: 5}\n", environ={})) == ["upgraded"]
    assert "upgraded" in kinds(read_config("models: [{name: a, use: 'src.models.x:Y', model: m}]\n", environ={}))


def test_a_whole_file_of_the_reference_means_what_it_says() -> None:
    config = load_config(FIXTURES / "full.yaml", environ={"SMALL_API_KEY": "s-1"})
    assert config.config_version == "1"
    assert config.model("small").arguments() == {
        "model": "small-2",
        "api_key": "s-1",
        "max_tokens": 4096,
        "temperature": 0.7,
        "top_p": 0.9,
    }
    assert config.model("nearby").window == 8000
    assert config.summarization.trigger == (Tokens(15564),)
    assert config.summarization.keep == Messages(10)
    assert [group.name for group in config.tool_groups] == ["web", "bash"]
    assert config.raw["channels"]["slack"]["enabled"] is False, "an unknown section is kept"
    ignored = {notice.key: notice.line for notice in config.warnings if notice.kind == "ignored"}
    assert ignored == {"channels": 53}


def test_the_newest_form_of_the_reference_is_taken_over() -> None:
    config = load_config(FIXTURES / "late.yaml", environ={})
    assert config.logging.level == "debug"
    assert (config.memory.debounce_seconds, config.memory.max_facts, config.memory.token_counter) == (12, 250, "approximate")
    assert (config.memory.storage_path, config.memory.storage_class) == ("memory.json", None), "a folder and `file` mean the default"
    pricing = config.models[0].pricing
    assert pricing is not None
    assert (pricing.input, pricing.output, pricing.cache_read, pricing.currency) == (8.0, 32.0, 0.8, "CNY")
    assert config.sandbox.timeout_seconds == 300
    assert config.subagents.agents["general-purpose"].timeout_seconds == 2700
    assert config.subagents.custom_agents["analysis"].system_prompt == "You are paid in $DOLLARS.\n"
    assert config.models[0].arguments(thinking=True)["extra_body"] == {"thinking": {"type": "enabled"}}
    assert "extra_body" not in config.models[0].arguments(thinking=False)
    assert "missing-variable" not in kinds(config), "prose is not searched for variables"
    ignored = {notice.key for notice in config.warnings if notice.kind == "ignored"}
    assert "token_usage" in ignored
    assert "log_level" not in ignored
    assert "memory.backend_config" not in ignored, "what of it has moved is said with the upgrade"
    moved = next(notice.message for notice in config.warnings if notice.kind == "upgraded")
    for key in config.raw["memory"]["backend_config"]:
        said = [f"memory.backend_config.{key}" in ignored, f"memory.backend_config.{key} is now" in moved]
        assert sum(said) == 1, key


def test_a_session_configuration_loads_and_gives_its_database() -> None:
    config = load_config(FIXTURES / "session.yaml", environ={})
    assert config.session.id == "survey-2026-05-02-storage"
    assert config.session.storage_backend == "postgresql"
    assert config.session.dsn() == "postgresql://ada:lovelace@localhost:5432/records"
    assert config.session.checkpoint_interval == 2
    assert config.memory.working_memory.max_tokens == 128000
    assert config.memory.session_memory.path == "/var/lib/holdfast/sessions/{session_id}.json"
    assert config.memory.long_term_memory.rerank_model == "cross-encoder/ms-marco-MiniLM-L-12-v2"


def test_a_workflow_given_as_configuration_says_that_it_is_one() -> None:
    config = load_config(FIXTURES / "workflow.yaml", environ={})
    assert kinds(config) == ["workflow"]
    assert "holdfast run" in str(config.warnings[0])


def known_keys() -> list[str]:
    """The keys of known_keys.txt, one by one: `section.key`, `models[].key` or a section."""
    lines = [
        "logging.enhance",
        "models[].display_name, description, use, model, base_url, api_key, max_tokens, temperature, timeout, context_window, pricing,"
        " supports_thinking, supports_vision, supports_reasoning_effort, when_thinking_enabled, when_thinking_disabled",
        "summarization.skill_file_read_tool_names, preserve_recent_skill_count, preserve_recent_skill_tokens",
        "memory.manager_class, mode, backend_config, shutdown_flush_timeout_seconds, token_counting",
        "sandbox.use, mounts, image, port, base_url, auto_start, allow_host_bash, bash_output_max_chars, environment",
        "subagents.timeout_seconds, max_turns, agents, custom_agents",
        "tools, tool_groups, tool_search, checkpointer, database, channels, guardrails, token_budget, loop_detection, uploads",
    ]
    if (shared := SHARED / "known_keys.txt").exists():
        lines += [line for line in shared.read_text().splitlines() if line and not line.startswith("#")]
    keys = []
    for line in lines:
        first, *rest = line.split(", ")
        section, dot, key = first.partition(".")
        keys += [f"{section}.{name}" for name in (key, *rest)] if dot else [first, *rest]
    return sorted(set(keys))


@pytest.mark.parametrize("key", known_keys())
def test_a_known_key_of_the_reference_is_never_refused(key: str) -> None:
    section, dot, name = key.partition(".")
    text = {"models[]": f"models:\n- name: a\n  {name}:\n"}.get(section, f"{section}:\n  {name}:\n") if dot else f"{section}:\n"
    read_config(text, environ={})


@pytest.mark.parametrize("field", sorted(Config.model_fields))
def test_an_empty_section_means_its_defaults(field: str) -> None:
    assert read_config(f"{field}:\n", environ={}).written(field) == Config().written(field)


def test_no_file_at_all_gives_working_defaults(tmp_path: Path) -> None:
    config = load_config(environ={"HOME": "/home/ann"}, cwd=tmp_path)
    assert (config.file, config.models, config.warnings) == (None, (), ())
    assert config.base == Path("/home/ann/.local/share/holdfast")
    assert config.memory.enabled
    assert config.side_models() == ()
    with pytest.raises(ModelNotConfigured, match="No model is configured"):
        config.model("any")


def test_the_file_is_found_in_the_promised_order(tmp_path: Path) -> None:
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    for path in (tmp_path / "config.yaml", tmp_path / "a" / "config.yaml", tmp_path / "given.yaml", tmp_path / "variable.yaml"):
        path.write_text("")
    variable = {"HOLDFAST_CONFIG": str(tmp_path / "variable.yaml")}
    assert find_config(tmp_path / "given.yaml", variable, deep) == tmp_path / "given.yaml"
    assert find_config(None, variable, deep) == tmp_path / "variable.yaml"
    assert find_config(None, {"HOLDFAST_CONFIG": ""}, deep) == tmp_path / "a" / "config.yaml", "the nearest parent"
    (deep / "config.yaml").write_text("")
    assert find_config(None, {}, deep) == deep / "config.yaml"
    assert find_config("config.yaml", {}, deep) == deep / "config.yaml", "relative to the working directory"


@pytest.mark.parametrize("kind", ["does not exist", "is a folder"])
def test_a_file_that_was_named_and_is_not_there_is_an_error(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "nothing.yaml" if kind == "does not exist" else tmp_path
    for explicit, environ in ((path, {}), (None, {"HOLDFAST_CONFIG": str(path)})):
        with pytest.raises(ConfigError, match=kind) as caught:
            load_config(explicit, environ=environ, cwd=tmp_path)
        assert caught.value.file == str(path)


def test_a_file_that_cannot_be_read_says_so() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config("/proc/self/mem", environ={})  # a file of the kernel whose first byte fails to read, also for root


def test_the_base_directory_is_where_it_is_promised(tmp_path: Path) -> None:
    """C6: the variable, beside the configuration, the user's data directory."""
    file = tmp_path / "project" / "config.yaml"
    assert base_directory(file, {"HOLDFAST_HOME": "/srv/state"}, tmp_path)[0] == Path("/srv/state")
    assert base_directory(file, {"HOLDFAST_HOME": "state"}, tmp_path)[0] == tmp_path / "state"
    assert base_directory(file, {"HOLDFAST_HOME": ""}, tmp_path)[0] == tmp_path / "project" / ".holdfast"
    user = {"HOME": "/home/ann"}
    assert base_directory(None, user, tmp_path) == (Path("/home/ann/.local/share/holdfast"), "the user's data directory")
    assert base_directory(None, {**user, "XDG_DATA_HOME": "/data"}, tmp_path)[0] == Path("/data/holdfast")
    assert base_directory(None, {**user, "XDG_DATA_HOME": "data"}, tmp_path)[0] == Path("/home/ann/.local/share/holdfast"), "not absolute"


def test_what_is_known_does_not_depend_on_the_folder_that_one_stands_in(tmp_path: Path) -> None:
    """C6: two folders without a configuration have one base directory; a `.holdfast` that is in one of them already stays its own."""
    user = {"HOME": str(tmp_path / "ann")}
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert base_directory(None, user, one) == base_directory(None, user, other)
    (one / ".holdfast").mkdir()
    assert base_directory(None, user, one) == (one / ".holdfast", ".holdfast of the working directory")
    (other / ".holdfast").write_text("no folder")
    assert base_directory(None, user, other)[0] == tmp_path / "ann" / ".local" / "share" / "holdfast"
    (one / "config.yaml").write_text("")
    assert base_directory(one / "config.yaml", user, one) == (one / ".holdfast", "beside config.yaml")


def test_a_configuration_made_in_a_program_has_the_same_base(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """C6, P2"""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert (Config().base, Config().base_source) == (tmp_path / "data" / "holdfast", "the user's data directory")


def test_loading_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("memory:\n  token_counting: char\n")
    load_config(environ={}, cwd=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    assert (tmp_path / "config.yaml").read_text() == "memory:\n  token_counting: char\n"


def test_paths_of_settings_are_relative_to_what_they_belong_to(tmp_path: Path) -> None:
    config = read_config("", file=tmp_path / "config.yaml", environ={})
    assert config.in_base("memory.json") == tmp_path / ".holdfast" / "memory.json"
    assert config.in_base("/srv/memory.json") == Path("/srv/memory.json")
    assert config.beside("skills") == tmp_path / "skills"


def test_values_from_a_program_are_checked_like_a_file() -> None:
    config = config_from_values({"models": [{"name": "a", "api_key": "$KEY"}], "extra": 1}, environ={"KEY": "k"})
    assert config.model("a").api_key == "k"
    assert {notice.key for notice in config.warnings if notice.kind == "ignored"} == {"extra"}
    with pytest.raises(ConfigError, match="whole number"):
        config_from_values({"server": {"port": "many"}}, environ={})


@pytest.mark.parametrize("text", ["- a\n- b\n", "just words\n", "3\n"])
def test_a_file_that_is_not_a_mapping_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="mapping of sections") as caught:
        read_config(text, file="config.yaml", environ={})
    assert not isinstance(caught.value, InputError)


def test_every_class_of_section_says_what_it_is() -> None:
    seen: set[type[Section]] = set()

    def visit(section: type[Section]) -> None:
        if section not in seen:
            seen.add(section)
            for field in section.model_fields:
                if (inner := nested(section, field)) is not None:
                    visit(inner.section)

    visit(Config)
    assert len(seen) > 20
    assert all(re.match(r"[A-Z`{].*\.", section.__doc__ or "") for section in seen)


def test_redaction_loads_no_parser() -> None:
    code = "import sys, holdfast.redaction; print(sorted({'pydantic', 'ruamel'} & {name.partition('.')[0] for name in sys.modules}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
