"""Values from the environment are read at first use, and secrets never show (C3)."""

from __future__ import annotations

import json
import os
import traceback

import pytest

from holdfast.config.checks import effective_settings
from holdfast.config.loading import load_config, read_config
from holdfast.config.reading import EnvironmentReference
from holdfast.config.sections import Config
from holdfast.errors import ConfigError, MissingVariable, ModelNotConfigured
from holdfast.redaction import is_secret_key, redact, redact_text


def read(text: str, **environ: str) -> Config:
    return read_config(text, file="config.yaml", environ=environ)


def test_a_value_is_read_when_it_is_first_used_and_then_stays() -> None:
    environ: dict[str, str] = {}
    config = read_config("server:\n  port: $PORT\n", environ=environ)
    environ["PORT"] = "9000"
    assert config.server.port == 9000
    environ["PORT"] = "9001"
    assert config.server.port == 9000


def test_a_missing_variable_is_a_warning_at_load_and_an_error_at_use() -> None:
    config = read("models:\n- name: a\n  api_key: $KEY\n")
    (notice,) = [notice for notice in config.warnings if notice.kind == "missing-variable"]
    assert (notice.file, notice.line, notice.key) == ("config.yaml", 3, "models[0].api_key")
    assert "KEY" in notice.message
    for use in (lambda: config.models[0].api_key, lambda: config.models[0].arguments()):
        with pytest.raises(MissingVariable) as caught:
            use()
        error = caught.value
        assert (error.variable, error.file, error.line, error.key) == ("KEY", "config.yaml", 3, "models[0].api_key")


def test_other_settings_work_while_a_variable_is_missing() -> None:
    config = read("models:\n- name: a\n  model: m\n  api_key: $KEY\n")
    assert config.model("a").model == "m"


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("HOLDFAST_TEST_PORT", "1234")
    assert read_config("server: {port: $HOLDFAST_TEST_PORT}").server.port == 1234
    monkeypatch.setenv("HOLDFAST_CONFIG", os.devnull + "/no")
    with pytest.raises(ConfigError):
        load_config()


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("$A", "1"),
        ("${A}", "1"),
        ("x${A}y$B.z", "x1y2.z"),
        ("${A}${B}", "12"),
        ("$$A", "$A"),
        ("$$", "$"),
        ("costs $5", "costs $5"),
        ("a$", "a$"),
        ("${", "${"),
        ("${NOT VALID}", "${NOT VALID}"),
        ("${C:-other}", "other"),
        ("${A:-other}", "1"),
        ("${EMPTY:-other}", "other"),
        ("$EMPTY", ""),
        ("$$$A", "$1"),
    ],
)
def test_references_are_written_in_the_usual_ways(template: str, value: str) -> None:
    config = read(f"skills:\n  container_path: '{template}'\n", A="1", B="2", EMPTY="")
    assert config.skills.container_path == value


@pytest.mark.parametrize(
    ("text", "value", "attribute"),
    [
        ("server: {port: $V}", "80", ("server", "port", 80)),
        ("memory: {enabled: $V}", "false", ("memory", "enabled", False)),
        ("memory: {fact_confidence_threshold: $V}", "0.5", ("memory", "fact_confidence_threshold", 0.5)),
        ("memory: {mode: $V}", "tool", ("memory", "mode", "tool")),
        ("server: {cors: [$V, b]}", "a", ("server", "cors", ("a", "b"))),
        ("server: {cors: $V}", "a", ("server", "cors", ("a",))),
        ("sandbox: {environment: {A: $V}}", "5", ("sandbox", "environment", {"A": "5"})),
        ("session: {checkpoint_interval: $V}", "", ("session", "checkpoint_interval", None)),
        ("session: {id: $V}", "007", ("session", "id", "007")),
    ],
)
def test_a_reference_may_stand_for_any_kind_of_value(text: str, value: str, attribute: tuple[str, str, object]) -> None:
    section, name, wanted = attribute
    assert getattr(getattr(read(text, V=value), section), name) == wanted


def test_conditions_may_come_from_the_environment() -> None:
    config = read("summarization:\n  enabled: true\n  trigger:\n  - {type: tokens, value: $LIMIT}\n", LIMIT="500")
    assert config.summarization.trigger is not None
    assert [condition.value for condition in config.summarization.trigger if hasattr(condition, "value")] == [500]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("server: {port: $V}", "must be a whole number"),
        ("memory: {mode: $V}", "must be one of 'middleware', 'tool'"),
        ("summarization: {keep: {type: tokens, value: $V}}", "must be a number"),
        ("memory: {token_counter: $V}", "must be exact"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_that_does_not_show_it(text: str, wanted: str) -> None:
    config = read(f"\n{text}", V="hunter2 secret")
    with pytest.raises(ConfigError, match=wanted) as caught:
        [getattr(getattr(config, text.split(":")[0]), name) for name in type(getattr(config, text.split(":")[0])).model_fields]
    assert (caught.value.file, caught.value.line) == ("config.yaml", 2)
    assert "variable V " in str(caught.value)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_a_section_cannot_come_from_the_environment() -> None:
    with pytest.raises(ConfigError, match="a value from the environment"):
        read("memory: $V", V="x")


def test_prose_is_literal() -> None:
    config = read(
        "summarization:\n  summary_prompt: Sum $X up for $$5\nsubagents:\n  custom_agents: {a: {system_prompt: $X, description: $X}}\n",
        X="y",
    )
    assert config.summarization.summary_prompt == "Sum $X up for $$5"
    assert config.subagents.custom_agents["a"].system_prompt == "$X"
    assert config.warnings == ()


def test_a_model_that_is_not_configured_is_a_warning_and_an_error_at_use() -> None:
    config = read("models:\n- {name: a, fallbacks: [c]}\nmemory:\n  model_name: b\nsubagents: {agents: {bash: {model: inherit}}}\n")
    unknown = {notice.key: notice.line for notice in config.warnings if notice.kind == "unknown-model"}
    assert unknown == {"memory.model_name": 4, "models[0].fallbacks[0]": 2}
    with pytest.raises(ModelNotConfigured, match="Configured are: a"):
        config.model("b")


SECRETS = """
models:
- name: a
  api_key: hunter2-a
  openai_api_key: hunter2-b
  base_url: https://u:hunter2-c@host/v1
  default_headers: {Authorization: Bearer hunter2-d, X-Api-Key: hunter2-e}
  extra_body: {auth: {deep: [hunter2-f]}}
tools:
- {name: t, api_key: hunter2-g, url: "https://x/?token=hunter2-h&a=1"}
session:
  storage_backend: postgresql
  connection: "host=h password=hunter2-i user=u"
  vector_store: {provider: pgvector, connection: "postgresql://u:hunter2@-/x:j@h/d"}
knowledge: {adapter: mcp, server: {url: "https://hunter2k@h/", token: hunter2-l}}
server: {token: "${TOKEN:-hunter2-m}"}
sandbox: {environment: {DB_PASSWORD: hunter2-n, GITHUB_TOKEN: hunter2-o}}
channels: {slack: {bot_token: hunter2-p, url: "redis://:hunter2-q@h"}}
"""


def test_no_way_of_showing_a_configuration_shows_a_secret() -> None:
    config = read(SECRETS)
    assert config.models[0].api_key == "hunter2-a"
    assert config.session.dsn() == "host=h password=hunter2-i user=u"
    assert config.server.token == "hunter2-m", "using it does not make it visible either"  # noqa: S105
    views = [
        repr(config),
        str(config),
        f"{config}",
        json.dumps(config.model_dump()),
        config.model_dump_json(),
        repr(config.raw),
        repr(config.models[0]),
        str(config.session),
        str(config.warnings),
        "\n".join(f"{setting.key} {setting.value} {setting.source}" for setting in effective_settings(config)),
    ]
    for view in views:
        assert "hunter2" not in view
    assert "***" in views[0]


def test_a_value_read_from_the_environment_shows_as_its_name() -> None:
    config = read("models:\n- {name: a, api_key: $KEY, base_url: $URL}\nserver: {port: $PORT}\n", KEY="hunter2", URL="hunter2", PORT="81")
    assert (config.models[0].api_key, config.models[0].base_url, config.server.port) == ("hunter2", "hunter2", 81)
    shown = {setting.key: setting for setting in effective_settings(config)}
    assert "hunter2" not in repr(shown)
    assert "hunter2" not in repr(config)
    assert (shown["models[0].api_key"].value, str(shown["models[0].api_key"].source)) == ("$KEY", "environment KEY, config.yaml:2")
    assert shown["server.port"].value == 81, "a number is no secret"


def test_the_path_of_a_tool_may_come_from_the_environment() -> None:
    """C3, A10: whether a tool is a web search that lacks its key is told without reading the value."""
    config = read("tools: [{name: find, use: 'x${S}y'}]", S="holdfast.agents.tools:tavily_web_search")
    assert isinstance(config.tools[0].written("use"), EnvironmentReference)
    assert not [one for one in config.warnings if one.kind == "not-ready"]


def test_the_name_of_a_setting_decides_whether_it_is_secret() -> None:
    for name in (
        "api_key",
        "API-KEY",
        "apiKey",
        "OPENAI_API_KEY",
        "token",
        "bot_token",
        "password",
        "DB_PASSWORD",
        "clientSecret",
        "credentials",
        "client_s*ecret",
        "pass'word",
    ):
        assert is_secret_key(name), name
    for name in (
        "max_tokens",
        "tokens",
        "token_counter",
        "token_counting",
        "keep",
        "trim_tokens_to_summarize",
        "key_findings",
        "name",
        "monkey",
    ):
        assert not is_secret_key(name), name


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgresql://u:p@ss:w/rd@h:5432/d?sslmode=on", "postgresql://u:***@h:5432/d?sslmode=on"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("https://token@h/d", "https://***@h/d"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("host=h password='a b' user=u", "host=h password=*** user=u"),
        ("https://h/?api_key=abc&x=1", "https://h/?api_key=***&x=1"),
        ("see sk-abcdefgh12345678", "see ***"),
        ("an ordinary sentence: about keys", "an ordinary sentence: about keys"),
    ],
)
def test_secrets_inside_a_text_are_found_by_their_form(text: str, clean: str) -> None:
    assert redact_text(text) == clean
    assert redact({"a": [text]}) == {"a": [clean]}


def test_a_reference_does_not_show_the_environment_it_reads() -> None:
    reference = EnvironmentReference("$A", environ={"A": "hunter2"})
    assert "hunter2" not in repr(reference)
    assert str(reference) == "$A"
