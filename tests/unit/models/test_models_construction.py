"""From settings to a chat model: which class, with what, and clear errors without secrets when it cannot be (A15, C3, T3)."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_openai import ChatOpenAI
from pydantic import Field

from holdfast.config.loading import config_from_values, load_config
from holdfast.config.sections import Config, ModelConfig
from holdfast.errors import ConfigError, MissingVariable, ModelNotConfigured, ModelTooWeak, ModelUnavailable
from holdfast.models.abilities import abilities_of, require
from holdfast.models.factory import build, create_chat_model, memory_model, summary_model
from holdfast.models.providers import class_path_of
from holdfast.testing.models import ScriptedModel
from holdfast.tokens.windows import find_window

KEY = "sk-never-show-this-0123456789"


def one(**settings: Any) -> Config:
    return config_from_values({"models": [{"name": "m", "model": "gpt-4o-mini", "api_key": KEY, **settings}]}, environ={})


def made(**settings: Any) -> ChatOpenAI:
    model = create_chat_model(config=one(**settings))
    assert isinstance(model, ChatOpenAI)
    return model


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY", "HOLDFAST_MODEL", "OPENAI_API_BASE", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    "settings",
    [
        {"use": "langchain_openai:ChatOpenAI"},
        {"use": "langchain_openai.ChatOpenAI"},
        {"use": "langchain_openai.chat_models:ChatOpenAI"},
        {"use": "openai"},
        {"model": "openai:gpt-4o-mini"},
        {},  # LangChain knows whose model this is
    ],
)
def test_all_forms_of_use_lead_to_the_same_model(settings: dict[str, str]) -> None:
    """A15"""
    model = made(**settings)
    assert model.model_name == "gpt-4o-mini"
    assert model.openai_api_key is not None


def test_an_address_without_a_class_means_the_openai_protocol() -> None:
    model = made(model="anything:at-all", base_url="http://127.0.0.1:8080/v1")
    assert (model.model_name, model.openai_api_base) == ("anything:at-all", "http://127.0.0.1:8080/v1")


def test_keys_that_are_not_ours_reach_the_class() -> None:
    """C2, C3"""
    model = made(temperature=0.25, max_tokens=77, top_p=0.5, seed=7)
    assert (model.temperature, model.max_tokens, model.top_p, model.seed) == (0.25, 77, 0.5, 7)


def test_a_time_out_is_always_there() -> None:
    assert made().request_timeout == 300.0
    assert made(timeout=7).request_timeout == 7


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="`asyncio.wait_for` is mended there")
def test_nothing_swallows_a_cancellation() -> None:
    """A14: the library waits for each piece by `asyncio.wait_for`, which loses a cancellation that comes together with a piece."""
    assert made().stream_chunk_timeout is None
    assert made(stream_chunk_timeout=9).stream_chunk_timeout == 9


def test_the_window_of_the_file_goes_into_the_profile_and_the_rest_of_it_stays() -> None:
    """T3"""
    model = made(max_input_tokens=5000, supports_vision=True)
    assert model.profile is not None
    assert model.profile["max_input_tokens"] == 5000
    assert model.profile["tool_calling"] is True
    assert find_window(model).tokens == 5000
    assert find_window(made(context_window=6000)).tokens == 6000
    assert find_window(made()).tokens == 128_000


def test_thinking_that_is_not_supported_is_a_warning_and_off(caplog: pytest.LogCaptureFixture) -> None:
    """A15"""
    config = one(when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}})
    with caplog.at_level(logging.WARNING):
        model = create_chat_model("m", True, config=config)
    assert "supports_thinking" in caplog.text
    assert isinstance(model, ChatOpenAI)
    assert model.extra_body is None


def test_what_is_said_for_thinking_off_is_used_when_it_is_off() -> None:
    config = one(
        supports_thinking=True,
        reasoning_effort="high",
        when_thinking_enabled={"extra_body": {"thinking": {"type": "enabled"}}},
        when_thinking_disabled={"reasoning_effort": "low"},
    )
    off, on = create_chat_model("m", config=config), create_chat_model("m", True, config=config)
    assert isinstance(off, ChatOpenAI)
    assert isinstance(on, ChatOpenAI)
    assert (off.reasoning_effort, off.extra_body) == ("low", None)
    assert (on.reasoning_effort, on.extra_body) == ("high", {"thinking": {"type": "enabled"}})


def test_a_package_that_is_missing_is_named_with_what_installs_it() -> None:
    """A15"""
    with pytest.raises(ModelUnavailable, match="the module langchain_nowhere, which is not installed"):
        create_chat_model(config=one(use="langchain_nowhere.chat_models:ChatNowhere"))
    with pytest.raises(ModelUnavailable, match="pip install langchain-anthropic"):
        create_chat_model(config=one(use="anthropic"))


def test_a_provider_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="nonsense"):
        create_chat_model(config=one(use="nonsense"))
    with pytest.raises(ModelUnavailable, match="cannot be made"):
        create_chat_model(config=one(model="whose-is-this"))
    with pytest.raises(ConfigError, match="does not say which model"):
        create_chat_model(config=one(model=None))


def test_a_class_that_does_not_exist_is_told_with_file_line_and_the_nearest(tmp_path: Path) -> None:
    """C3"""
    path = tmp_path / "config.yaml"
    path.write_text("models:\n  - name: m\n    model: gpt-4o\n    use: langchain_openai:ChatOpenAi\n", encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        create_chat_model(config=load_config(path))
    assert (caught.value.line, caught.value.key, caught.value.nearest) == (4, "models[0].use", "ChatOpenAI")
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("use", ["langchain_openai:OpenAIEmbeddings", "json:dumps", "os:system", "pathlib:Path"])
def test_what_is_not_a_chat_model_is_refused_and_not_called(use: str) -> None:
    with pytest.raises(ConfigError, match="is not a chat model"):
        create_chat_model(config=one(use=use))


def test_settings_that_the_class_refuses_are_told_without_the_key() -> None:
    """C3: the validation error of the class repeats all it was given."""
    with pytest.raises(ConfigError, match="top_p") as caught:
        create_chat_model(
            config=config_from_values(
                {"models": [{"name": "m", "model": "gpt-4o", "api_key": KEY, "temperature": 0.1, "top_p": {"a": KEY}}]}
            )
        )
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_class_that_raises_with_the_key_in_its_text_does_not_leak_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3"""

    class Leaky(BaseChatModel):
        secret_word: str = Field(default="", alias="api_key")

        def __init__(self, **given: Any) -> None:
            raise RuntimeError(f"cannot log in with {given['api_key']}")

        def _generate(self, *args: Any, **options: Any) -> Any:
            return None

        @property
        def _llm_type(self) -> str:
            return "leaky"

    module = types.ModuleType("leaky_models")
    module.Leaky = Leaky  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "leaky_models", module)
    with pytest.raises(ModelUnavailable, match="cannot log in") as caught:
        create_chat_model(config=one(use="leaky_models:Leaky", api_key="plain-word-as-key"))
    assert "plain-word-as-key" not in str(caught.value)


def test_a_variable_that_is_missing_is_named_when_the_model_is_made() -> None:
    """C3"""
    config = one(api_key="$NO_SUCH_KEY")
    with pytest.raises(MissingVariable, match="NO_SUCH_KEY"):
        create_chat_model(config=config)


def test_no_provider_gets_the_key_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: through the OpenAI-compatible address the class would take OPENAI_API_KEY."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(MissingVariable, match="GROQ_API_KEY"):
        create_chat_model(config=one(use="groq", model="openai/gpt-oss-20b", api_key=None))
    monkeypatch.setenv("GROQ_API_KEY", "gsk-of-groq-0123456789")
    model = create_chat_model(config=one(use="groq", model="openai/gpt-oss-20b", api_key=None))
    assert isinstance(model, ChatOpenAI)
    assert model.openai_api_base == "https://api.groq.com/openai/v1"
    assert getattr(model.openai_api_key, "get_secret_value", str)() == "gsk-of-groq-0123456789"


def test_a_local_model_needs_weights_and_a_path_is_relative_to_the_file(tmp_path: Path) -> None:
    """A15"""
    with pytest.raises(ConfigError, match="which weights"):
        create_chat_model(config=config_from_values({"models": [{"name": "local", "use": "llama.cpp"}]}))
    path = tmp_path / "config.yaml"
    path.write_text("models: [{name: local, use: llama.cpp, path: weights/none.gguf}]", encoding="utf-8")
    with pytest.raises(ModelUnavailable, match=str(tmp_path / "weights")):
        create_chat_model(config=load_config(path))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"use": "a.b:C"}, ("a.b", "C")),
        ({"use": "llama.cpp"}, (None, None)),
        ({"use": "gemini"}, ("langchain_openai", "ChatOpenAI")),
        ({"model": "anthropic:claude"}, ("langchain_anthropic", "ChatAnthropic")),
        ({"base_url": "http://127.0.0.1:1/v1"}, ("langchain_openai", "ChatOpenAI")),
        ({"model": "who-knows"}, (None, None)),
    ],
)
def test_the_class_is_known_before_anything_is_imported(settings: dict[str, str], expected: tuple[str | None, str | None]) -> None:
    assert class_path_of(ModelConfig.model_validate({"name": "m", **settings})) == expected


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "use": "openai", "model": name, "api_key": KEY, **more}


def side_models(*models: dict[str, Any], **sections: Any) -> tuple[str | None, str | None]:
    config = config_from_values({"models": list(models), **sections}, environ={})
    return tuple(getattr(model, "model_name", None) for model in (summary_model(config, environ={}), memory_model(config, environ={})))  # type: ignore[return-value]


def test_side_work_takes_the_named_then_the_lightweight_then_the_cheapest_then_the_first() -> None:
    """S14"""
    dear, cheap = entry("dear", pricing={"input": 5, "output": 9}), entry("cheap", pricing={"input": 1, "output": 2})
    light = entry("light", lightweight=True)
    assert side_models(entry("first"), dear, cheap, light, summarization={"model_name": "dear"}, memory={"model_name": "cheap"}) == (
        "dear",
        "cheap",
    )
    assert side_models(entry("first"), dear, cheap, light) == ("light", "light")
    assert side_models(entry("first", pricing={"input": 3, "output": 3}), dear, cheap) == ("cheap", "cheap")
    assert side_models(entry("first"), dear, cheap) == ("first", "first"), "a price says nothing beside a model that has none"
    assert side_models(entry("first"), entry("second")) == ("first", "first")


def test_a_model_that_cannot_be_made_now_is_passed_over_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """S14"""
    price = {"input": 1, "output": 2}
    without_key = entry("without-key", lightweight=True) | {"api_key": "$HOLDFAST_TEST_NO_SUCH_KEY"}
    without_package = entry("without-package", pricing=price) | {"use": "no_such_package.chat:Model"}
    first = entry("first", pricing={"input": 3, "output": 3})
    assert side_models(first, without_key, without_package) == ("first", "first")
    (line,) = [record.getMessage() for record in caplog.records if "without-key" in record.getMessage()]
    assert "HOLDFAST_TEST_NO_SUCH_KEY is missing" in line and "without-package" in line and "so first writes summaries" in line
    with pytest.raises(MissingVariable):
        side_models(without_key, without_package)


def test_a_model_that_is_too_weak_for_side_work_is_not_asked(caplog: pytest.LogCaptureFixture) -> None:
    """A15: extraction takes its place, and the log says so."""
    assert side_models(entry("weak", can={"summary": False})) == (None, "weak")
    assert "weak" in caplog.text


def test_a_named_side_model_that_does_not_exist_is_an_error() -> None:
    """C3: it says which setting names it, and what there is."""
    config = config_from_values({"models": [entry("first")], "summarization": {"model_name": "nobody"}})
    with pytest.raises(ModelNotConfigured, match=r"'nobody', which `summarization\.model_name` names.*first"):
        summary_model(config)


def test_what_the_configuration_denies_is_denied_of_the_made_model_too() -> None:
    """A15"""
    model = build(one(can={"tools": False, "json": False}).models[0])
    assert abilities_of(model).tools is False
    with pytest.raises(ModelTooWeak, match="json"):
        require(model, "json")
    require(model, "summary")


def test_a_profile_that_denies_tools_is_believed() -> None:
    assert abilities_of(ScriptedModel(["x"], profile={"tool_calling": False})).tools is False
    assert abilities_of(ScriptedModel(["x"])).tools is True
