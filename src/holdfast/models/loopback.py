"""Model servers that answer on this machine: Ollama, llama.cpp, and whatever else speaks the OpenAI protocol there.

Only loopback addresses are ever asked, never through a proxy, never following a redirect, all at once and for a fraction of a second.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import queue
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

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


def is_loopback(host: str) -> bool:
    """Whether a host is this machine by its very text. No name but `localhost` is trusted to stay here."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


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


def servers(places: Sequence[Endpoint], *, wanted: str | None = None, patience: float = PATIENCE) -> tuple[Server, ...]:
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
        place,
        model,
        tuple(entries),
        _slot_window(place, patience) or _positive(entries[model].get("max_model_len")),
        _positive(parameters),
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
