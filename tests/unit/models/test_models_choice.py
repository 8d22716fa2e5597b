"""Which model is used when nobody names one, and why: configured, then a key, then a server on this machine, then none (A15)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.errors import ModelNotConfigured, ModelTooWeak
from holdfast.models.abilities import ABLE, abilities_of, require
from holdfast.models.choice import Choice, Endpoint, Server, pick
from holdfast.models.factory import create_chat_model, entry_of, settings_of, summary_model
from holdfast.models.providers import PROVIDERS, is_installed, provider_named

KEY = "sk-never-show-this-0123456789"
EMPTY = config_from_values({}, environ={})


class Machine:
    """Servers that would answer, and whether anybody asked."""

    def __init__(self, *found: Server) -> None:
        self.found = found
        self.asked: list[tuple[Endpoint, ...]] = []

    def __call__(self, places: Sequence[Endpoint], wanted: str | None) -> Sequence[Server]:
        self.asked.append(tuple(places))
        return [server for server in self.found if server.endpoint in places]


OLLAMA = Server(Endpoint("ollama", "127.0.0.1", 11434), "qwen3:8b", ("qwen3:8b",), 4096, 8_200_000_000)
LLAMA_CPP = Server(Endpoint("llama.cpp", "127.0.0.1", 8080), "big.gguf", ("big.gguf",), 16384, 7_000_000_000)


def chosen(environ: Mapping[str, str], *found: Server, config: Config = EMPTY) -> Choice:
    return pick(config, environ, answers=Machine(*found))


def test_a_configured_model_comes_first_and_nothing_else_is_looked_at() -> None:
    """A15"""
    machine = Machine(OLLAMA)
    config = config_from_values({"models": [{"name": "mine", "model": "gpt-4o"}, {"name": "other", "model": "gpt-4o"}]})
    choice = pick(config, {"OPENAI_API_KEY": KEY}, answers=machine)
    assert choice.name == "mine"
    assert "first model in config.yaml" in choice.why
    assert machine.asked == []


def test_a_variable_may_name_another_configured_model() -> None:
    config = config_from_values({"models": [{"name": "mine", "model": "gpt-4o"}, {"name": "other", "model": "gpt-4o"}]})
    assert pick(config, {"HOLDFAST_MODEL": "other"}).name == "other"
    strange = pick(config, {"HOLDFAST_MODEL": "nobody"})
    assert strange.name == "mine"
    assert "HOLDFAST_MODEL" in strange.why


def test_a_key_in_the_environment_comes_before_a_server_on_this_machine() -> None:
    """A15"""
    machine = Machine(OLLAMA)
    choice = pick(EMPTY, {"OPENAI_API_KEY": KEY}, answers=machine)
    assert choice.name == "openai:gpt-5.4-mini"
    assert choice.why == "OPENAI_API_KEY is set in the environment, so openai:gpt-5.4-mini is used."
    assert machine.asked == []


def test_the_key_itself_is_shown_nowhere() -> None:
    """C3"""
    choice = chosen({"OPENAI_API_KEY": KEY})
    assert KEY not in repr(choice)
    assert choice.config is not None
    assert choice.config.api_key == KEY


def test_a_key_whose_package_is_missing_is_told_and_the_next_one_is_used() -> None:
    """A15"""
    assert not is_installed("langchain_anthropic")
    choice = chosen({"ANTHROPIC_API_KEY": KEY, "GROQ_API_KEY": KEY})
    assert choice.name == "groq:openai/gpt-oss-20b"
    told = {one.what: one for one in choice.considered}
    assert not told["ANTHROPIC_API_KEY in the environment"].usable
    assert "pip install langchain-anthropic" in told["ANTHROPIC_API_KEY in the environment"].seen


def test_a_provider_with_an_openai_compatible_address_needs_no_package_of_its_own() -> None:
    choice = chosen({"DEEPSEEK_API_KEY": KEY})
    assert choice.config is not None
    assert choice.config.base_url == "https://api.deepseek.com/v1"
    assert choice.config.api_key == KEY
    assert choice.config.window == 1_000_000


def test_an_empty_key_is_no_key() -> None:
    assert chosen({"OPENAI_API_KEY": "  "}).name is None


def test_azure_needs_its_address_as_well() -> None:
    choice = chosen({"AZURE_OPENAI_API_KEY": KEY})
    assert choice.name is None
    assert any("AZURE_OPENAI_ENDPOINT" in one.seen for one in choice.considered)
    whole = {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://a.example.org", "OPENAI_API_VERSION": "1"}
    assert chosen(whole).name == "azure_openai:gpt-5.4-mini"


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: str(provider.name))
def test_every_provider_is_used_or_told_about(provider: Any) -> None:
    environ = dict.fromkeys((*provider.keys[-1:], *provider.needs), KEY)
    choice = chosen(environ)
    assert choice.name == f"{provider.name}:{provider.model}" or any("pip install" in one.seen for one in choice.considered)


def test_a_server_on_this_machine_is_used_when_there_is_no_key() -> None:
    """A15"""
    choice = chosen({}, LLAMA_CPP, OLLAMA)
    assert choice.name == "ollama:qwen3:8b"
    assert choice.why == "ollama at http://127.0.0.1:11434 answers, so ollama:qwen3:8b is used."
    assert choice.config is not None
    assert (choice.config.base_url, choice.config.window) == ("http://127.0.0.1:11434/v1", 4096)
    assert chosen({}, LLAMA_CPP).name == "llama.cpp:big.gguf"


def test_ollama_on_another_machine_is_not_asked_and_that_is_told() -> None:
    machine = Machine()
    choice = pick(EMPTY, {"OLLAMA_HOST": "gpu.example.org"}, answers=machine)
    assert any(one.what == "OLLAMA_HOST" and "not asked" in one.seen for one in choice.considered)
    assert all(place.host == "127.0.0.1" for place in machine.asked[0])


def test_none_is_an_answer_that_says_what_was_looked_at() -> None:
    """A15"""
    choice = chosen({})
    assert (choice.name, choice.config) == (None, None)
    assert "extraction" in choice.why
    assert [one.usable for one in choice.considered] == [False] * 4
    assert any("OPENAI_API_KEY" in one.seen for one in choice.considered)


@pytest.mark.parametrize(
    ("wanted", "environ", "name"),
    [
        ("gpt-5.5", {"OPENAI_API_KEY": KEY}, "openai:gpt-5.5"),
        ("groq:llama-3.3-70b-versatile", {"OPENAI_API_KEY": KEY, "GROQ_API_KEY": KEY}, "groq:llama-3.3-70b-versatile"),
        ("groq:llama-3.3-70b-versatile", {"OPENAI_API_KEY": KEY}, None),
        ("ollama:qwen3:8b", {"OPENAI_API_KEY": KEY}, "ollama:qwen3:8b"),
        ("ollama:gemma4", {"OPENAI_API_KEY": KEY}, None),
        ("qwen3:8b", {}, "ollama:qwen3:8b"),
        ("llama.cpp:big.gguf", {}, "llama.cpp:big.gguf"),
    ],
)
def test_a_wanted_model_decides_where_to_look(wanted: str, environ: dict[str, str], name: str | None) -> None:
    choice = chosen({**environ, "HOLDFAST_MODEL": wanted}, OLLAMA, LLAMA_CPP)
    assert choice.name == name
    if name is None:
        assert wanted in choice.why


def test_a_window_that_was_found_belongs_to_the_default_model_alone() -> None:
    """T3: for another model of the provider its own profile decides."""
    choice = chosen({"OPENAI_API_KEY": KEY, "HOLDFAST_MODEL": "gpt-4o-mini"})
    assert choice.config is not None
    assert choice.config.window is None
    assert entry_of(choice.config, {}).window == 128_000


def test_the_default_model_of_openai_is_one_that_its_package_knows() -> None:
    provider = provider_named("openai")
    assert provider is not None
    config = config_from_values({"models": [{"name": "m", "model": f"openai:{provider.model}", "api_key": KEY}]})
    known = create_chat_model(config=config).profile
    assert known is not None
    assert known["max_input_tokens"] == provider.window
    assert known.get("status") != "deprecated"


@pytest.mark.parametrize("settings", [{"use": "json:JSONDecoder"}, {"use": "no_such_package:Chat"}])
def test_a_model_that_cannot_be_made_has_the_usual_window_in_the_list(settings: dict[str, str]) -> None:
    """T3"""
    config = config_from_values({"models": [{"name": "a", "model": "gpt-4o", **settings}]})
    assert entry_of(config.models[0], {}).window_source == "default"


def test_a_name_that_is_not_configured_is_an_error_that_names_those_that_are() -> None:
    """C3"""
    config = config_from_values({"models": [{"name": "mine", "model": "gpt-4o"}]})
    with pytest.raises(ModelNotConfigured, match="mine"):
        create_chat_model("yours", config=config)
    with pytest.raises(ModelNotConfigured, match=r"openai:gpt-5\.4-mini"):
        settings_of("yours", config=EMPTY, environ={"OPENAI_API_KEY": KEY})
    assert settings_of("openai:gpt-5.4-mini", config=EMPTY, environ={"OPENAI_API_KEY": KEY}).model == "gpt-5.4-mini"


def test_a_small_model_on_this_machine_is_not_asked_for_summaries() -> None:
    """A15"""
    small = Server(OLLAMA.endpoint, "smollm2:135m", ("smollm2:135m",), 4096, 135_000_000)
    settings = chosen({}, small).config
    assert settings is not None
    assert not abilities_of(settings).summary
    with pytest.raises(ModelTooWeak, match="summary"):
        require(settings, "summary")
    assert abilities_of(settings).json
    large = chosen({}, OLLAMA).config
    assert large is not None
    require(large, "summary")


def test_known_weights_are_known_to_be_weak_before_they_are_loaded() -> None:
    """A15: extraction is used, and nothing is loaded for it; the second file does not even exist."""
    for weights in ({"model": "smollm2"}, {"path": "nowhere/Some-135M-Instruct.gguf"}):
        config = config_from_values({"models": [{"name": "local", "use": "llama.cpp", **weights}]})
        assert not abilities_of(config.models[0]).summary
        assert summary_model(config) is None


def test_what_the_configuration_says_of_a_model_counts() -> None:
    config = config_from_values(
        {"models": [{"name": "a", "model": "gpt-4o", "can": {"summary": False, "tools": False}}, {"name": "b", "model": "gpt-4o"}]}
    )
    able = abilities_of(config.models[0])
    assert (able.summary, able.tools, able.extraction) == (False, False, True)
    assert abilities_of(config.models[1]) == ABLE


def test_looking_for_a_model_imports_no_langchain() -> None:
    """A15, P1: the default model of a provider; for another one its class is asked what it knows."""
    code = (
        "import sys\nfrom holdfast.models.choice import pick\nfrom holdfast.models.factory import entry_of\n"
        "from holdfast.config.loading import config_from_values\n"
        "config = config_from_values({'models': [{'name': 'a', 'use': 'langchain_openai:ChatOpenAI', 'model': 'gpt-5.4-mini'}]})\n"
        "pick(config, {}); print(entry_of(config.models[0], {}).window); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    first, _, modules = done.stdout.partition("\n")
    assert first == "400000"
    assert not {name.partition(".")[0] for name in modules.split()} & {"langchain", "langchain_core", "langchain_openai", "openai", "rich"}


def test_a_key_whose_package_is_missing_is_not_told_as_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """C4, A15: the sentence says which key is there and which line to type."""
    monkeypatch.setattr("holdfast.models.choice.is_installed", lambda module: False)
    environ = {"OPENAI_API_KEY": "sk-made-up"}
    why = pick(config_from_values({}), environ, answers=lambda places, wanted: ()).why
    assert "OPENAI_API_KEY is set, and the package is missing: pip install 'holdfast[agents]'" in why
    assert "no key" not in why
    assert "no key is in the environment" in pick(config_from_values({}), {}, answers=lambda places, wanted: ()).why
