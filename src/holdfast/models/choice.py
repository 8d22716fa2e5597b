"""Which model to use when nobody said: the first configured one, else a key in the environment, else a server on this machine, else none.

`pick` decides and says why, and lists what it looked at, so that `holdfast doctor` and `holdfast models list` can show it.
Nothing here imports LangChain.
"""

from __future__ import annotations

import http.client
import json
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from holdfast.config.sections import Config, ModelConfig
from holdfast.models.abilities import TASKS, abilities_by_size
from holdfast.models.providers import PROVIDERS, Provider, is_installed, is_loopback, split_model

PATIENCE = 0.3
"""Seconds until a server that does not answer counts as absent."""

_MOST_BYTES = 1_000_000
_OLLAMA_WINDOW = 4096
"""What Ollama gives a model when nobody says otherwise; it cuts longer input without a word, so a larger guess would lose text."""


@dataclass(frozen=True)
class Endpoint:
    """Where to ask: a kind (`ollama` or `llama.cpp`), a literal loopback address and a port."""

    kind: str
    host: str
    port: int

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


@dataclass(frozen=True)
class Server:
    """A server that answered: the model to use there, all that it has, its window and size as far as it told."""

    endpoint: Endpoint
    model: str
    models: tuple[str, ...]
    window: int | None = None
    parameters: int | None = None

    @property
    def base_url(self) -> str:
        return f"{self.endpoint.address}/v1"


def parse_ollama_host(text: str) -> Endpoint | None:
    """The endpoint that OLLAMA_HOST names, or None when it is not on this machine or not an address.

    >>> parse_ollama_host("127.0.0.1:11500")
    Endpoint(kind='ollama', host='127.0.0.1', port=11500)
    >>> parse_ollama_host("ollama.example.org") is None
    True
    """
    text = text.strip()
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname or "127.0.0.1", parts.port or 11434
    except ValueError:
        return None
    if host in {"localhost", "0.0.0.0", "::"}:  # noqa: S104 - what a server binds to; here it means: reach it on loopback
        host = "127.0.0.1"
    return Endpoint("ollama", host, port) if is_loopback(host) and parts.scheme == "http" else None


def endpoints(environ: Mapping[str, str]) -> tuple[Endpoint, ...]:
    """What to ask on this machine: the usual ports, and OLLAMA_HOST when it is a loopback address."""
    usual = (Endpoint("ollama", "127.0.0.1", 11434), Endpoint("llama.cpp", "127.0.0.1", 8080))
    named = parse_ollama_host(environ["OLLAMA_HOST"]) if environ.get("OLLAMA_HOST", "").strip() else None
    return tuple(dict.fromkeys((named, *usual) if named else usual))


def servers(places: Sequence[Endpoint], wanted: str | None = None, *, patience: float = PATIENCE) -> tuple[Server, ...]:
    """The servers that answer, in the order of `places`. All are asked at once; who is not done in three times `patience` is left out.

    `wanted` is a model to prefer where a server has it.
    """
    answers: queue.SimpleQueue[tuple[Endpoint, Server | None]] = queue.SimpleQueue()

    def look(place: Endpoint) -> None:
        try:
            answers.put((place, _LOOKS[place.kind](place, wanted, patience)))
        except (OSError, http.client.HTTPException, ValueError):  # refused, silent, or not speaking the protocol
            answers.put((place, None))

    allowed = [place for place in places if is_loopback(place.host)]
    for place in allowed:  # daemon threads: a server that drips bytes must not keep the program from ending
        threading.Thread(target=look, args=(place,), daemon=True, name=f"look for {place.kind}").start()
    found: dict[Endpoint, Server] = {}
    for _ in allowed:
        try:
            place, server = answers.get(timeout=3 * patience)
        except queue.Empty:
            break
        if server is not None:
            found[place] = server
    return tuple(found[place] for place in allowed if place in found)


def ask(place: Endpoint, path: str, patience: float) -> Any:
    """The JSON document at a path. Raises OSError, HTTPException or ValueError."""
    connection = http.client.HTTPConnection(place.host, place.port, timeout=patience)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        response = connection.getresponse()
        if response.status != http.client.OK:
            raise ValueError(f"answered {response.status}")
        return json.loads(response.read(_MOST_BYTES))
    finally:
        connection.close()


def _ollama(place: Endpoint, wanted: str | None, patience: float) -> Server | None:
    tags = ask(place, "/api/tags", patience)
    entries = (
        {entry["name"]: entry for entry in tags["models"] if isinstance(entry, dict) and isinstance(entry.get("name"), str)}
        if isinstance(tags, dict) and isinstance(tags.get("models"), list)
        else {}
    )
    names = tuple(name for name, entry in entries.items() if not _embeds(name, entry))
    model = _choose(names, wanted)
    if model is None:
        return None
    details = entries[model].get("details")
    size = details.get("parameter_size") if isinstance(details, dict) else None
    return Server(place, model, names, _loaded_window(place, model, patience) or _OLLAMA_WINDOW, _parameters(size))


def _loaded_window(place: Endpoint, model: str, patience: float) -> int | None:
    """The window of a model that Ollama has in memory now."""
    try:
        running = ask(place, "/api/ps", patience)
        return next((_positive(one.get("context_length")) for one in running["models"] if one.get("name") == model), None)
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
        return None


def _llama_cpp(place: Endpoint, wanted: str | None, patience: float) -> Server | None:
    listing = ask(place, "/v1/models", patience)
    data = listing.get("data") if isinstance(listing, dict) else None
    entries = {one["id"]: one for one in data if isinstance(one, dict) and isinstance(one.get("id"), str)} if isinstance(data, list) else {}
    model = _choose(tuple(entries), wanted)
    if model is None:
        return None
    meta = entries[model].get("meta")
    parameters = meta.get("n_params") if isinstance(meta, dict) else None
    return Server(
        place, model, tuple(entries), _slot_window(place, patience) or _positive(entries[model].get("max_model_len")), _positive(parameters)
    )


def _slot_window(place: Endpoint, patience: float) -> int | None:
    """The window that llama.cpp gives one conversation, which may be less than what the model was trained for."""
    try:
        return _positive(ask(place, "/props", patience)["default_generation_settings"]["n_ctx"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return None


_LOOKS: Mapping[str, Callable[[Endpoint, str | None, float], Server | None]] = {"ollama": _ollama, "llama.cpp": _llama_cpp}


def _choose(names: Sequence[str], wanted: str | None) -> str | None:
    """The wanted model where the server has it, else its first: Ollama lists the one that was changed last first."""
    return next((name for name in names if name in {wanted, f"{wanted}:latest"}), names[0] if names else None)


def _embeds(name: str, entry: Mapping[str, Any]) -> bool:
    """Whether it makes vectors and cannot chat."""
    details = entry.get("details")
    family = str(details.get("family", "")) if isinstance(details, dict) else ""
    return "embed" in name.lower() or "bert" in family.lower()


def _parameters(text: object) -> int | None:
    """`3.2B` -> 3_200_000_000, `135M` -> 135_000_000."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMBT])", str(text).strip(), re.IGNORECASE)
    return round(float(match[1]) * {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[match[2].upper()]) if match else None


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


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


def pick(config: Config, environ: Mapping[str, str] | None = None, *, answers: Answers = servers) -> Choice:
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
    return Choice(None, None, _none(wanted, unusable_keys(environ)), tuple(considered))


def unusable_keys(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The keys in the environment that cannot be used as it is, each with what is missing: "OPENAI_API_KEY is set, and ..."."""
    environ = os.environ if environ is None else environ
    found = []
    for provider in PROVIDERS:
        if key := provider.key_in(environ):
            settings, seen = _by_key(provider, key, environ, None)
            if settings is None:
                found.append(f"{key} is set, and {seen}")
    return tuple(found)


def _none(wanted: str | None, unusable: Sequence[str] = ()) -> str:
    without = "what needs a model is done by extraction, without one."
    if wanted:
        return f"{VARIABLE} asks for {wanted!r}, and nothing here can give it: {without}"
    if unusable:
        return f"No model can be used. {'; '.join(unusable)}. Until then {without}"
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
    return None, f"the package is missing: {_install(provider.package)}"


def _install(package: str) -> str:
    return "pip install 'holdfast[agents]'" if package == "langchain-openai" else f"pip install {package}"


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
        *(unusable_keys() or ("Set the key of a provider in the environment, for example OPENAI_API_KEY.",)),
        "Or start Ollama (ollama run qwen3) or llama-server on this machine: it is found by itself.",
        "Or describe one under models: in config.yaml; `holdfast config init` writes an example.",
        "Or run a GGUF file: models: [{name: local, use: llama.cpp, path: model.gguf}].",
    )
