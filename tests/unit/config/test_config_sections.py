"""Defaults, the example, the effective view, and what sections say about themselves (C1, C5, S1-S3, S14, M1, A7, A8, T3, T5, W1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.checks import effective_settings
from holdfast.config.loading import example_text, read_config
from holdfast.config.reading import read_yaml
from holdfast.config.section import Section, nested
from holdfast.config.sections import Config
from holdfast.config.triggers import AllOf, Fraction, Messages, Size, Tokens
from holdfast.errors import ConfigError

DOCS = Path(__file__).parents[3] / "docs" / "configuration.md"


def read(text: str, **environ: str) -> Config:
    return read_config(text, file="config.yaml", environ=environ)


def test_the_defaults_are_those_of_the_specification() -> None:
    config = Config()
    summarization, memory, subagents = config.summarization, config.memory, config.subagents
    assert (summarization.enabled, summarization.model_name, summarization.trigger, summarization.keep) == (
        False,
        None,
        None,
        Messages(20),
    )
    assert (summarization.trim_tokens_to_summarize, summarization.summary_prompt, summarization.summary_role) == (4000, None, "human")
    assert (memory.enabled, memory.injection_enabled, memory.storage_path, memory.debounce_seconds) == (True, True, "memory.json", 30)
    assert (memory.max_facts, memory.fact_confidence_threshold, memory.max_injection_tokens) == (100, 0.7, 2000)
    assert (memory.inherit, memory.injection, memory.extractor, memory.mode, memory.token_counter) == (
        True,
        "base",
        "auto",
        "middleware",
        "exact",
    )
    assert (subagents.timeout_seconds, subagents.max_concurrent, subagents.max_tokens, subagents.retain_days) == (900, 3, 200_000, 30)
    assert (config.sandbox.allow_host_bash, config.sandbox.network, config.server.host) == (False, False, "127.0.0.1")
    assert (config.knowledge.adapter, config.session.storage_backend, config.session.short.max_stages) == ("sqlite", "file", None)


@pytest.mark.parametrize(
    ("written", "trigger"),
    [
        ("{type: fraction, value: 0.8}", (Fraction(0.8),)),
        ("[{type: tokens, value: 10}, {type: messages, value: 5}]", (Tokens(10), Messages(5))),
        ("[tokens, 10]", (Tokens(10),)),
        ("[[tokens, 10], [messages, 5]]", (Tokens(10), Messages(5))),
        (
            "[{all: [{type: tokens, value: 10}, [messages, 5]]}, [fraction, 1]]",
            (AllOf((Tokens(10), Messages(5))), Fraction(1.0)),
        ),
        ("{all: [messages, 5]}", (AllOf((Messages(5),)),)),
    ],
)
def test_a_trigger_is_one_condition_or_a_list_or_all_of_a_list(written: str, trigger: object) -> None:
    assert read(f"summarization:\n  enabled: true\n  trigger: {written}\n").summarization.trigger == trigger


@pytest.mark.parametrize(
    ("models", "name"),
    [
        ("[{name: a}, {name: b, lightweight: true}, {name: c, pricing: {input: 0}}]", "b"),
        ("[{name: a, pricing: {input: 2, output: 8}}, {name: b}, {name: c, pricing: {input: 1, output: 4}}]", "c"),
        ("[{name: a}, {name: b, pricing: {input: 1, output: 4}}]", "a"),
        ("[{name: a}, {name: b}]", "a"),
        ("[{name: a, pricing: {input: 9}}, {name: b, pricing: {input: 1, currency: CNY}}]", "a"),
    ],
)
def test_side_work_goes_to_the_lightweight_model_else_the_cheapest_else_the_first(models: str, name: str) -> None:
    assert read(f"models: {models}").side_models()[0].name == name


def test_a_window_comes_from_either_key() -> None:
    windows = [
        model.window
        for model in read("models: [{name: a, max_input_tokens: 1, context_window: 2}, {name: b, context_window: 2}, {name: c}]").models
    ]
    assert windows == [1, 2, None]


def test_limits_of_a_run_and_of_a_session() -> None:
    config = read("limits: {tokens: 10, cost: 1, run: {cost: 2}, session: {tokens: 30, cost: 3}}\nsession: {limits: {tokens: 40}}\n")
    assert (config.run_limit().tokens, config.run_limit().cost) == (10, 2)
    assert (config.session_limit().tokens, config.session_limit().cost) == (40, 3)
    assert (Config().run_limit().tokens, Config().session_limit().cost) == (None, None)


def test_thinking_adds_its_arguments_without_losing_others() -> None:
    config = read(
        "models: [{name: a, extra_body: {x: 1}, when_thinking_enabled: {extra_body: {think: $T}}, when_thinking_disabled: {y: 2}}]",
        T="deep",
    )
    model = config.models[0]
    assert model.arguments(thinking=True) == {"extra_body": {"x": 1, "think": "deep"}}
    assert model.arguments(thinking=False) == {"extra_body": {"x": 1}, "y": 2}
    assert model.arguments() == {"extra_body": {"x": 1}}


def test_a_misspelt_setting_of_a_block_is_refused() -> None:
    """C2, M15: passed over, it would leave the block empty or without its limit."""
    with pytest.raises(ConfigError, match=r"memory\.blocks\.persona\.value: there is no setting of this name.*text, max_tokens"):
        read("memory: {mode: tool, blocks: {persona: {value: I am brief.}}}\n")


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("summarization:\n  trigger: [tokens, 3]\n", "summarization.trigger"),
        ("memory:\n  blocks: {a: {}}\n", "memory.blocks"),
        ("memory:\n  long_term_memory: {rerank_model: x}\n", "memory.long_term_memory.rerank_model"),
        ("knowledge:\n  dsn: postgresql://h/d\n", "knowledge.dsn"),
        ("session:\n  connection: postgresql://h/d\n", "session.connection"),
    ],
)
def test_a_setting_without_effect_is_a_warning(text: str, key: str) -> None:
    (notice,) = [notice for notice in read(text).warnings if notice.kind == "without-effect"]
    assert (notice.key, notice.line) == (key, 2)


def test_a_setting_that_has_its_effect_is_no_warning() -> None:
    text = "summarization: {enabled: true, trigger: [tokens, 3]}\nmemory: {mode: tool, blocks: {a: {}}}\n"
    text += "knowledge: {adapter: postgres, dsn: $D}\n"
    assert "without-effect" not in [notice.kind for notice in read(text).warnings]


def test_the_effective_view_has_every_setting_with_its_source() -> None:
    config = read(
        "memory:\n  max_facts: 7\n  max_injection_tokens: $MAX\n  debounce_seconds:\n  manager_class: x\n"
        "models:\n- name: a\n  pricing:\n    input_per_million: 3\n  top_p: 1\n"
    )
    settings = {setting.key: setting for setting in effective_settings(config)}
    assert (settings["memory.max_facts"].value, str(settings["memory.max_facts"].source)) == (7, "config.yaml:2")
    assert str(settings["memory.max_injection_tokens"].source) == "environment MAX (not set), config.yaml:3"
    assert (settings["memory.debounce_seconds"].value, str(settings["memory.debounce_seconds"].source)) == (30.0, "default")
    assert (settings["models[0].pricing.input"].value, str(settings["models[0].pricing.input"].source)) == (3.0, "config.yaml:9")
    assert str(settings["models[0].top_p"].source) == "config.yaml:10"
    assert str(settings["server.port"].source) == "default"
    assert "memory.manager_class" not in settings, "what is ignored is not in effect"
    for section in Config.model_fields:
        assert any(re.match(rf"{section}(\.|\[|$)", key) for key in settings), section


def test_the_base_directory_is_part_of_the_effective_view() -> None:
    setting = effective_settings(read_config("", environ={"HOLDFAST_HOME": "/srv/h"}))[0]
    assert (setting.key, setting.value, str(setting.source)) == ("base", "/srv/h", "environment HOLDFAST_HOME")


def all_keys(section: type[Section], path: str = "") -> Iterator[tuple[str, type[Section], str]]:
    """Path, section and name of every key that there is."""
    for name in section.model_fields:
        yield f"{path}{name}", section, name
        if (inner := nested(section, name)) is not None:
            yield from all_keys(inner.section, f"{path}{name}{ {'one': '', 'list': '[]', 'mapping': '.NAME'}[inner.kind] }.")


def test_the_example_is_valid_complete_and_says_only_defaults() -> None:
    config = read_config(example_text(), environ={})
    assert config.warnings == ()
    assert config.model_dump() == Config().model_dump(), "an example that changes something is no example"
    for key, _, name in all_keys(Config):
        assert re.search(rf"(^|[\s{{#,]){name}:", example_text()), f"{key} is not in the example"


def test_the_parts_of_the_example_that_are_commented_out_are_valid_too() -> None:
    text = example_text()
    live = re.sub(r"^(models|tools|tool_groups): \[\]$", r"\1:", text, flags=re.MULTILINE)
    live = re.sub(
        r"^  (blocks|agents|custom_agents|servers): \{\}|^  mounts: \[\]|^  vector_store: null",
        lambda found: found.group().split(":")[0] + ":",
        live,
        flags=re.MULTILINE,
    )
    live = re.sub(r"^( *)# ?( *)(?=- |  \w+:|\w+: \{|\{provider|  # any)", r"\1 \2", live, flags=re.MULTILINE)
    config = read_config(live, environ={})
    assert config.models[0].name == "main"
    assert config.memory.blocks["persona"].max_tokens == 500
    assert config.subagents.custom_agents["analyst"].system_prompt == "You analyse data."
    assert config.sandbox.mounts[0].read_only
    assert config.tools[0].name == "web_search"
    assert config.session.vector_store is not None
    assert config.mcp.servers["wiki"].approve == ("write_page",)


def documented() -> dict[str, str]:
    """Key and default of every row in the tables of the page; a section's name comes from the heading above."""
    found: dict[str, str] = {}
    heading = ""
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            heading = line.lstrip("# ").strip("`")
        elif (row := re.match(r"\| `([\w.\[\]]+)` \| (required|`[^`]*`) \|", line)) is not None:
            found[f"{heading}.{row[1]}" if heading in Config.model_fields else row[1]] = row[2].strip("`")
    return found


def real() -> dict[str, tuple[type[Section], str]]:
    """Every key that is a setting by itself, as the page writes it."""
    lists = re.compile(r"^(models|tools|tool_groups)\[\]\.")
    return {lists.sub(r"\1.", key): (section, name) for key, section, name in all_keys(Config) if nested(section, name) is None}


def test_the_page_about_the_configuration_has_exactly_the_keys_that_there_are() -> None:
    assert documented().keys() - real().keys() == set(), "the page names keys that do not exist"
    assert real().keys() - documented().keys() == set(), "the page lacks keys"


@pytest.mark.parametrize("key", sorted(real()))
def test_the_page_tells_the_defaults_that_hold(key: str) -> None:
    section, name = real()[key]
    field = section.model_fields[name]
    default = documented()[key]
    if field.is_required():
        assert default == "required"
        return
    value = field.get_default(call_default_factory=True)
    plain = {"type": value.type, "value": value.value} if isinstance(value, Size) else list(value) if isinstance(value, tuple) else value
    assert read_yaml(default).values == plain
