"""Which model to use when nobody said: the first configured one, else a key in the environment, else a server on this machine, else none.

`pick` decides and says why, and lists what it looked at, so that `holdfast doctor` and `holdfast models list` can show it.
Nothing here imports LangChain.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from holdfast.config.sections import Config, ModelConfig
from holdfast.models.abilities import Task, abilities_by_size
from holdfast.models.loopback import Endpoint, Server, endpoints, parse_ollama_host, servers
from holdfast.models.providers import PROVIDERS, Provider, is_installed, split_model

TASKS: tuple[Task, ...] = get_args(Task)
VARIABLE = "HOLDFAST_MODEL"
"""Names a configured model, or the model to ask for (`gpt-5.5`, `groq:llama-3.3-70b-versatile`, `ollama:qwen3:8b`)."""


@dataclass(frozen=True)
class Considered:
    """One thing that was looked at: what, whether it can be used, and what was seen."""

    what: str
    usable: bool
    seen: str


@dataclass(frozen=True)
class Choice:
    """The decision: the name and settings of the model, or None for both, why in one sentence, and what was looked at on the way."""

    name: str | None
    config: ModelConfig | None
    why: str
    considered: tuple[Considered, ...] = ()


Answers = Callable[[Sequence[Endpoint], str | None], Sequence[Server]]
"""Which of these places have a server that answers. The second argument is a model to prefer."""


def _ask(places: Sequence[Endpoint], wanted: str | None) -> Sequence[Server]:
    return servers(places, wanted=wanted)


def pick(config: Config, environ: Mapping[str, str] | None = None, *, answers: Answers = _ask) -> Choice:
    """The model that is used when none is named. Never raises; asks servers on this machine only when nothing came before them."""
    environ = os.environ if environ is None else environ
    wanted = environ.get(VARIABLE, "").strip() or None
    if config.models:
        return _configured(config, wanted)
    provider_wanted, model_wanted = split_model(wanted) if wanted else (None, None)
    considered = [Considered("models: in config.yaml", False, "no model is configured")]
    if provider_wanted not in {"ollama", "llama.cpp"}:
        for provider in PROVIDERS:
            if provider_wanted in {None, provider.name} and (key := provider.key_in(environ)):
                settings, seen = _by_key(provider, key, environ, model_wanted)
                considered.append(Considered(f"{key} in the environment", settings is not None, seen))
                if settings is not None:
                    why = f"{key} is set in the environment, so {settings.name} is used."
                    return Choice(settings.name, settings, why, tuple(considered))
        if not any(provider.key_in(environ) for provider in PROVIDERS):
            considered.append(Considered("keys in the environment", False, "none of " + ", ".join(p.keys[0] for p in PROVIDERS)))
    if provider_wanted in {None, "ollama", "llama.cpp"}:
        found = list(_on_this_machine(environ, provider_wanted, model_wanted, answers))
        considered += [one for one, _ in found]
        for one, settings in found:
            if settings is not None:
                return Choice(settings.name, settings, f"{one.what} answers, so {settings.name} is used.", tuple(considered))
    return Choice(None, None, _none(wanted), tuple(considered))


def _none(wanted: str | None) -> str:
    without = "what needs a model is done by extraction, without one."
    if wanted:
        return f"{VARIABLE} asks for {wanted!r}, and nothing here can give it: {without}"
    return f"No model is configured, no key is in the environment and no server answers on this machine: {without}"


def _configured(config: Config, wanted: str | None) -> Choice:
    first = config.models[0]
    if wanted is None:
        return Choice(first.name, first, f"{first.name} is the first model in config.yaml.")
    named = next((model for model in config.models if model.name == wanted), None)
    if named is not None:
        return Choice(named.name, named, f"{VARIABLE} names {named.name}, which is configured.")
    note = Considered(f"{VARIABLE}={wanted}", False, "no configured model has this name")
    return Choice(first.name, first, f"{first.name} is the first model in config.yaml; {VARIABLE} names none of them.", (note,))


def _by_key(provider: Provider, key: str, environ: Mapping[str, str], wanted: str | None) -> tuple[ModelConfig | None, str]:
    """The settings for a provider whose key is there, or None, and what was seen."""
    missing = provider.missing_from(environ)
    if missing:
        return None, f"{' and '.join(missing)} must be set as well"
    model = wanted or provider.model
    values: dict[str, Any] = {"name": f"{provider.name}:{model}", "model": model, "api_key": environ[key].strip()}
    if model == provider.model:
        values["max_input_tokens"] = provider.window
    if is_installed(provider.module):
        values["use"] = f"{provider.module}:{provider.class_name}"
        return ModelConfig.model_validate(values), f"{provider.package} is installed"
    if provider.base_url and is_installed("langchain_openai"):
        values |= {"use": "langchain_openai:ChatOpenAI", "base_url": provider.base_url}
        return ModelConfig.model_validate(values), "reached at its OpenAI-compatible address"
    return None, f"the package is missing: pip install {provider.package}"


def _on_this_machine(
    environ: Mapping[str, str], kind: str | None, wanted: str | None, answers: Answers
) -> Iterator[tuple[Considered, ModelConfig | None]]:
    """Each place on this machine: what was seen there, and the settings if it can be used."""
    named = environ.get("OLLAMA_HOST", "").strip()
    if named and parse_ollama_host(named) is None:
        yield Considered("OLLAMA_HOST", False, "is not an address of this machine, so it is not asked"), None
    places = [place for place in endpoints(environ) if kind in {None, place.kind}]
    found = {server.endpoint: server for server in answers(places, wanted)}
    for place in places:
        what = f"{place.kind} at {place.address}"
        server = found.get(place)
        if server is None:
            yield Considered(what, False, "does not answer"), None
        elif wanted is not None and server.model not in {wanted, f"{wanted}:latest"}:
            yield Considered(what, False, f"answers, but has no model {wanted}"), None
        elif not is_installed("langchain_openai"):
            yield Considered(what, False, "answers, but the package is missing: pip install langchain-openai"), None
        else:
            yield Considered(what, True, f"answers with {', '.join(server.models[:5])}"), _served(server)


def _served(server: Server) -> ModelConfig:
    values: dict[str, Any] = {
        "name": f"{server.endpoint.kind}:{server.model}",
        "use": "langchain_openai:ChatOpenAI",
        "model": server.model,
        "base_url": server.base_url,
        "api_key": "none",
    }
    if server.window:
        values["max_input_tokens"] = server.window
    if server.parameters:
        able = abilities_by_size(server.parameters)
        values["can"] = {task: able.can(task) for task in TASKS}
    return ModelConfig.model_validate(values)


def how_to_get_one() -> tuple[str, ...]:
    """What a person can do who has no model, shortest way first."""
    return (
        "Set a provider's key, for example: export OPENAI_API_KEY=...",
        "Or start Ollama (ollama run qwen3) or llama-server on this machine: it is found by itself.",
        "Or describe one under models: in config.yaml; `holdfast config init` writes an example.",
        "Or run a GGUF file: models: [{name: local, use: llama.cpp, path: model.gguf}].",
    )
