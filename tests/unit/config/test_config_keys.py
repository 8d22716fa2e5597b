"""Keys and values that are wrong: each one clear message with file, line, key and what would fit (C2)."""

from __future__ import annotations

import pytest

from holdfast.config.loading import read_config
from holdfast.config.memory_sections import Knowledge, Session
from holdfast.config.migration import MODEL_ARGUMENTS
from holdfast.config.section import Section, all_errors
from holdfast.config.sections import ModelConfig, Server
from holdfast.errors import ConfigError, ModelNotConfigured
from holdfast.validation import near_miss


def fault(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_config(text, file="config.yaml", environ={})
    return caught.value


@pytest.mark.parametrize(
    ("text", "line", "key", "nearest"),
    [
        ("\nsumarization:\n  enabled: true\n", 2, "sumarization", "summarization"),
        ("memory:\n  enabled: true\n  debounce-seconds: 3\n", 3, "memory.debounce-seconds", "debounce_seconds"),
        ("memory:\n  maxFacts: 3\n", 2, "memory.maxFacts", "max_facts"),
        ("summarization:\n  triger: {type: tokens, value: 3}\n", 2, "summarization.triger", "trigger"),
        ("models:\n- name: a\n  api_keys: x\n", 3, "models[0].api_keys", "api_key"),
        ("models:\n- name: a\n  pricing:\n    inputs: 3\n", 4, "models[0].pricing.inputs", "input"),
        ("session:\n  checkpoint_intervall: 2\n", 2, "session.checkpoint_intervall", "checkpoint_interval"),
        ("subagents:\n  custom_agents:\n    a:\n      sytem_prompt: x\n", 4, "subagents.custom_agents.a.sytem_prompt", "system_prompt"),
        ("checkpoint:\n  type: sqlite\n", 1, "checkpoint", "checkpointer"),
        ("server:\n  prot: 80\n", 2, "server.prot", "port"),
    ],
)
def test_a_misspelt_key_is_an_error_that_names_the_nearest(text: str, line: int, key: str, nearest: str) -> None:
    error = fault(text)
    assert (error.file, error.line, error.key, error.nearest) == ("config.yaml", line, key, nearest)
    assert str(error).startswith(f"config.yaml:{line}: {key}: ")
    assert f"`{nearest}`" in str(error)


@pytest.mark.parametrize("section", ["session", "knowledge", "server"])
def test_an_unknown_key_in_a_section_of_our_own_is_an_error(section: str) -> None:
    error = fault(f"{section}:\n  zzz: 1\n")
    assert (error.line, error.key) == (2, f"{section}.zzz")
    models: dict[str, type[Section]] = {"session": Session, "knowledge": Knowledge, "server": Server}
    assert all(name in str(error) for name in models[section].model_fields), "without anything near, all valid keys are named"


def test_an_unknown_section_or_key_elsewhere_is_kept_and_named_as_ignored() -> None:
    config = read_config("memory:\n  zzz: 1\nplugins:\n  x: 1\n", file="config.yaml", environ={})
    ignored = {notice.key: notice.line for notice in config.warnings if notice.kind == "ignored"}
    assert ignored == {"memory.zzz": 2, "plugins": 3}
    assert config.raw["memory"]["zzz"] == 1
    assert config.memory.extras() == {"zzz": 1}


def test_a_model_gets_every_key_that_is_not_ours() -> None:
    config = read_config("models:\n- name: a\n  model: m\n  wholly_new: [1, $X]\n  max_output_tokens: 9\n", environ={"X": "y"})
    assert config.models[0].arguments() == {"model": "m", "wholly_new": [1, "y"], "max_output_tokens": 9}
    assert not [notice for notice in config.warnings if notice.kind == "ignored"]


@pytest.mark.parametrize("argument", sorted(MODEL_ARGUMENTS))
def test_a_usual_argument_of_a_model_is_never_taken_for_a_misspelling(argument: str) -> None:
    assert argument not in ModelConfig.model_fields
    assert read_config(f"models:\n- name: a\n  {argument}: 1\n", environ={}).models[0].arguments() == {argument: 1}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("server:\n  port: many\n", 2, "server.port: must be a whole number, not the text 'many'."),
        ("server:\n  port: 1.5\n", 2, "server.port: must be a whole number, not the number 1.5."),
        ("server:\n  port: 70000\n", 2, "server.port: must be 65535 or less, not the number 70000."),
        ("server:\n  port: [1]\n", 2, "server.port: must be a whole number, not a list."),
        ("memory:\n  max_facts: true\n", 2, "memory.max_facts: must be a number, not true."),
        ("memory:\n  max_facts: 0\n", 2, "memory.max_facts: must be 1 or more, not the number 0."),
        ("memory:\n  enabled: perhaps\n", 2, "memory.enabled: must be true or false, not the text 'perhaps'."),
        ("memory:\n  fact_confidence_threshold: 7\n", 2, "memory.fact_confidence_threshold: must be 1 or less, not the number 7."),
        ("memory:\n  debounce_seconds: .inf\n", 2, "memory.debounce_seconds: must be a finite number, not the number inf."),
        ("memory: on\n", 1, "memory: must be a mapping of keys to values, not text."),
        ("models: 3\n", 1, "models: must be a list, not the number 3."),
        ("models:\n- gpt\n", 2, "models[0]: must be a mapping of keys to values, not text."),
        ("models:\n- model: gpt\n", 2, "models[0].name: is missing."),
        ("models:\n- name: 1.5\n", 2, "models[0].name: must be text in quotes, not the number 1.5."),
        ("sandbox:\n  mounts:\n  - host_path: /a\n", 3, "sandbox.mounts[0].container_path: is missing."),
        ("sandbox:\n  approve: {a: 1}\n", 2, "sandbox.approve: must be a list, not a mapping."),
        (
            "summarization:\n  trigger: 3\n",
            2,
            "summarization.trigger: must be {type: fraction|tokens|messages, value: ...}, or a list of such, not the number 3.",
        ),
        (
            "summarization:\n  keep:\n    value: 3\n",
            3,
            "summarization.keep: needs `type`: it must be {type: fraction|tokens|messages, value: ...}.",
        ),
        (
            "summarization:\n  trigger:\n  - type: tokens\n    value: 3\n  - type: fraction\n    value: 80\n",
            6,
            "summarization.trigger[1].value: must be more than 0 and at most 1 for a fraction, not the number 80.",
        ),
        (
            "summarization:\n  trigger:\n  - all:\n    - [tokens, 10]\n    - [messages, 1.5]\n",
            5,
            "summarization.trigger[0].all[1][1]: must be a whole number of messages, 1 or more, not the number 1.5.",
        ),
        (
            "summarization:\n  keep: {type: messages, value: 3, valu: 4}\n",
            2,
            "summarization.keep.valu: has no key of this name; it must be {type: fraction|tokens|messages, value: ...}.",
        ),
        (
            "summarization:\n  enabled: true\n",
            2,
            "summarization.enabled: is true without a `trigger`. Add one, for example `trigger: {type: fraction, value: 0.8}`.",
        ),
        (
            "summarization:\n  enabled: true\n  trigger: []\n",
            2,
            "summarization.enabled: is true without a `trigger`. Add one, for example `trigger: {type: fraction, value: 0.8}`.",
        ),
        (
            "knowledge:\n  adapter: postgres\n",
            2,
            "knowledge.adapter: the adapter postgres needs `knowledge.dsn`. Add the address of the database.",
        ),
        (
            "knowledge:\n  adapter: mcp\n",
            2,
            "knowledge.adapter: the adapter mcp needs `knowledge.server` with a `command` or a `url`. Add it.",
        ),
        (
            "session:\n  storage_backend: postgresql\n",
            2,
            "session.storage_backend: postgresql needs `session.connection`. Add the address of the database.",
        ),
        (
            "models:\n- name: a\n- name: b\n- name: a\n",
            4,
            "models[2].name: the name is already that of models[0]. Give each model a name of its own.",
        ),
        (
            "holdfast_version: 99\n",
            1,
            "holdfast_version: the file has schema 99, and this version of Holdfast knows schemas up to 1. Update Holdfast.",
        ),
        ("holdfast_version: new\n", 1, "holdfast_version: must be a whole number from 0 to 1."),
        ("memory:\n  storage_path: {a: 1}\n", 2, "memory.storage_path: must be text, not a mapping."),
    ],
)
def test_a_wrong_value_is_said_in_plain_words_with_the_line_of_the_value(text: str, line: int, message: str) -> None:
    assert str(fault(text)) == f"config.yaml:{line}: {message}"


def test_a_choice_names_what_would_fit_and_the_nearest() -> None:
    error = fault("memory:\n  mode: tol\n")
    assert error.nearest == "tool"
    assert "'middleware', 'tool'" in str(error)


def test_all_errors_of_a_file_come_together_in_the_order_of_their_lines() -> None:
    error = fault("server:\n  port: many\nmemory:\n  max_fact: 3\n  enabled: perhaps\nmodels:\n- nam: x\n")
    assert [(found.line, found.key) for found in all_errors(error)] == [
        (2, "server.port"),
        (4, "memory.max_fact"),
        (5, "memory.enabled"),
        (7, "models[0].nam"),
    ], "a key that is missing because it is misspelt is said once"
    error = fault("memory: [1]\nsummarization: {enabled: true}\nmodels: [{name: a}, {name: a}]\n")
    assert [found.line for found in all_errors(error)] == [1, 2, 3], "what contradicts in the sections that are right as well"


def test_an_error_does_not_repeat_a_secret() -> None:
    for text in (
        "models:\n- name: a\n  api_key: [hunter2hunter2]\n",
        "server:\n  token: {x: hunter2hunter2}\n",
        "models: api_key=hunter2hunter2\n",
        "session:\n  checkpoint_interval: postgresql://u:hunter2hunter2@h/d\n",
        "knowledge:\n  adapter: sk-hunter2hunter2\n",
        "summarization:\n  trigger: hunter2hunter2\n",
    ):
        assert "hunter2" not in str(fault(text))
        assert "hunter2" not in repr(fault(text))


def test_a_secret_of_the_wrong_type_is_not_repeated_either() -> None:
    assert str(fault("server:\n  token: 12345.5\n")) == "config.yaml:2: server.token: must be text in quotes."
    assert "12345" not in str(fault("models:\n- name: a\n  default_headers: 1\n  api_key: 12345.5\n"))


def test_a_notice_does_not_repeat_a_secret_that_stands_in_the_wrong_place() -> None:
    config = read_config("memory:\n  model_name: https://hunter2hunter2@host\n", environ={})
    assert "hunter2" not in str(config.warnings)
    with pytest.raises(ModelNotConfigured) as caught:
        config.model("postgresql://u:hunter2hunter2@h/d")
    assert "hunter2" not in str(caught.value)


def test_what_is_near_is_decided_by_one_rule() -> None:
    known = ["max_facts", "memory", "models"]
    assert near_miss("Max-Facts", known) == "max_facts"
    assert near_miss("memry", known) == "memory"
    assert near_miss("metrics", known) is None


def test_lists_and_numbers_may_be_written_the_short_way() -> None:
    config = read_config(
        "sandbox:\n  approve: bash\n  environment: {DEBUG: false, PORT: 80}\ntool_groups: [web]\nmodels:\n- name: 7\n  can: [tools]\n"
        "memory:\n  enabled: off\n  max_facts: '30'\nlogging: {level: WARN}\n",
        environ={},
    )
    assert config.sandbox.approve == ("bash",)
    assert config.sandbox.environment == {"DEBUG": "false", "PORT": "80"}
    assert config.tool_groups[0].name == "web"
    assert config.model("7").can == {"tools": True}
    assert (config.memory.enabled, config.memory.max_facts, config.logging.level) == (False, 30, "warning")
