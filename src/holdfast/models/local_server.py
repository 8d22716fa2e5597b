"""A GGUF file behind llama.cpp's OpenAI-compatible server inside this process, on a loopback port (A15). No LangChain here.

`shared_server(path)` starts one per file and options in a process, within the cores and the memory that this machine has to offer.
`local_model.local_chat_model` makes the chat model that talks to it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import math
import os
import secrets
import threading
import time
import urllib.request
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.errors import InputError, ModelUnavailable
from holdfast.models.weights import GgufHead, read_head

_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")


def sensible_threads() -> int:
    """One thread under pytest, else one for each physical core.

    More threads than free cores make llama.cpp slower than one: all of them wait for the one that lost its core.
    """
    return 1 if "PYTEST_VERSION" in os.environ else physical_cores()


def physical_cores() -> int:
    """The physical cores that this process may use, within the limit of its control group."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    siblings = {_read(_CPUS / f"cpu{cpu}/topology/core_cpus_list") or str(cpu) for cpu in allowed}
    quota, _, period = _read(_CGROUP / "cpu.max").partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return max(1, min(len(siblings), math.ceil(int(quota) / int(period))))
    return max(1, len(siblings))


def available_memory() -> int | None:
    """Bytes that can be taken without swapping or hitting the limit of the control group; None where that is not told."""
    free = [int(line.split()[1]) * 1024 for line in _read(_MEMINFO).splitlines() if line.startswith("MemAvailable:")]
    most, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if most.isdigit() and used.isdigit():
        free.append(int(most) - int(used))
    return min(free, default=None)


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""  # not Linux, or not told: the caller has a fallback


_LOG = logging.getLogger(__name__)
_DEFAULT_WINDOW = 8192
_PROMPT_CACHE_MIB = 256  # the runtime's own default is 8 GiB
_FORKED = False  # whether this process was forked from one in which a server was running
_LOADING = threading.Lock()
_ALIVE: weakref.WeakSet[LocalServer] = weakref.WeakSet()
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of the machine is not for loopback


@dataclass(frozen=True)
class ServerOptions:
    """How a model is served. `window` is per slot; a slot serves one request at a time; `seed` makes sampling repeatable."""

    window: int | None = None
    threads: int | None = None
    slots: int = 1
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, value, least in (("window", self.window, 64), ("threads", self.threads, 1), ("slots", self.slots, 1)):
            if value is not None and (not isinstance(value, int) or value < least):
                raise InputError(f"{name} of a local model is {value!r}.", hint=f"Give a whole number of at least {least}.")


class LocalServer:
    """A running server for one model file. Answers only to its own random key; closed by `close` or at the end of `with`.

    Loading holds up the other Python threads of the process, for 0.3 s with a small model and some seconds with a large
    one. Raises ModelUnavailable when the file is missing, no GGUF, damaged, too large for the memory, or does not load.
    """

    def __init__(self, path: str | Path, options: ServerOptions | None = None) -> None:
        self.path = Path(path).expanduser()
        self.options = options or ServerOptions()
        self.head = read_head(self.path)
        self.window = _window(self.path, self.head, self.options)
        self.threads = self.options.threads or sensible_threads()
        self.api_key = secrets.token_urlsafe(24)
        self._native: Any = None
        self._pid = os.getpid()
        _check_memory(self.path, self.head.memory(self.window, self.options.slots))
        started = time.monotonic()
        with _LOADING:
            self._native = _start(self)
            _ALIVE.add(self)
        self._address = str(self._native.listening_address)
        try:
            self._await_health()
            self._await_loop()
            served = self._asked(self._about("/props"))["default_generation_settings"]["n_ctx"]  # of a slot, as the runtime has it
            self.window = min(self.window, int(served))
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.monotonic() - started
        _LOG.debug("serving %s at %s: window %d, %d threads", self.path.name, self._address, self.window, self.threads)

    @property
    def base_url(self) -> str:
        """What an OpenAI client takes as its base address."""
        return f"{self._address}/v1"

    @property
    def closed(self) -> bool:
        """Whether it serves no more. In a forked child it never does: its threads stayed with the parent."""
        return self._native is None or self._pid != os.getpid()

    def close(self) -> None:
        """Stop serving and free the memory. Requests that run are broken off, which can take two seconds. Twice is fine."""
        if self._pid == os.getpid():
            self._native = None  # the last reference: the runtime stops its threads when it goes

    def __enter__(self) -> LocalServer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"LocalServer({self.path.name!r}, window={self.window}, {'closed' if self.closed else self.base_url})"

    def __deepcopy__(self, memo: dict[int, Any]) -> LocalServer:
        return self  # copies of a chat model talk to the same server

    def tokenize(self, text: str) -> list[int]:
        """The token ids of a text, by the model's own vocabulary."""
        tokens = self._post("/tokenize", {"content": text})["tokens"]
        return [int(token) for token in tokens]

    def count_messages(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None = None) -> int:
        """How many tokens these messages and tools (in OpenAI's form) take, with all that the chat template puts around them."""
        prompt = self._post("/apply-template", {"messages": list(messages), **({"tools": list(tools)} if tools else {})})["prompt"]
        return len(self.tokenize(str(prompt)))

    def _post(self, route: str, body: dict[str, Any]) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.api_key}"}
        return self._asked(urllib.request.Request(self._address + route, json.dumps(body).encode(), headers))  # noqa: S310 - our own server

    def _asked(self, request: urllib.request.Request, read: Callable[[Any], Any] = json.load) -> Any:
        try:
            with _DIRECT.open(request, timeout=60) as answer:
                return read(answer)
        except (OSError, ValueError) as error:
            raise ModelUnavailable(f"the local server of {self.path.name} did not answer: {error}.", model=self.path.stem) from error

    def _about(self, route: str) -> urllib.request.Request:
        return urllib.request.Request(self._address + route, headers={"Authorization": f"Bearer {self.api_key}"})  # noqa: S310 - our own server

    def _await_loop(self) -> None:
        """Wait until the loop that carries out requests runs: a server that was closed before that once waited for its end for ever."""
        self._asked(self._about("/metrics"), lambda answer: answer.read())

    def _await_health(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            try:
                with _DIRECT.open(f"{self._address}/health", timeout=5) as answer:
                    if json.load(answer).get("status") == "ok":
                        return
            except (OSError, ValueError) as error:
                last: object = error
            else:
                last = "not ready"
            if time.monotonic() > deadline:
                raise ModelUnavailable(f"the local server of {self.path.name} did not become ready: {last}.", model=self.path.stem)
            time.sleep(0.02)


def _window(path: Path, head: GgufHead, options: ServerOptions) -> int:
    trained = head.window or _DEFAULT_WINDOW
    asked = options.window or min(trained, _DEFAULT_WINDOW)
    if asked > trained:
        _LOG.warning(
            "%s was trained with a window of %d tokens; %d is more than it understands, so %d is used", path.name, trained, asked, trained
        )
    return min(asked, trained)


def _check_memory(path: Path, needed: int) -> None:
    """Refuse beforehand: with overcommitted memory a model that does not fit gets the whole process killed."""
    free = available_memory()
    if free is not None and needed > free:
        raise ModelUnavailable(
            f"{path.name} needs about {needed / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free.",
            model=path.stem,
            hint="Use a smaller model, a smaller window or fewer slots.",
        )


def _start(server: LocalServer) -> Any:
    if _FORKED:
        raise ModelUnavailable(
            f"{server.path.name} cannot be served here: this process was forked from one that serves a local model.",
            model=server.path.stem,
            hint="Start the process anew (multiprocessing's `spawn`), or load the model only after the fork.",
        )
    # Read by the OpenMP runtime when it is loaded: threads that wait actively take the core from everybody else.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        xllamacpp: Any = import_module("xllamacpp")
    except ImportError as error:
        raise ModelUnavailable(f"local models need the package xllamacpp: {error}.", hint="Run `pip install 'holdfast[local]'`.") from error
    options = server.options
    params = xllamacpp.CommonParams()
    params.model.path = str(server.path)
    params.model_alias = {server.path.stem}
    params.n_parallel = options.slots
    params.n_ctx = server.window * options.slots
    params.fit_params = False  # would change the window quietly
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = server.threads
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.api_keys = [server.api_key]
    params.ui = params.endpoint_slots = False
    params.endpoint_metrics = True  # what answers it is the loop of all requests, see `_await_loop`
    params.cache_ram_mib = _PROMPT_CACHE_MIB
    params.sse_ping_interval = 1  # `close` waits for the next ping of a running stream
    params.verbosity = -1
    if options.seed is not None:
        params.sampling.seed = options.seed
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelUnavailable(
            f"llama.cpp could not load {server.path} (window {server.window}, {options.slots} slots): {error}.",
            model=server.path.stem,
            hint="The file may be damaged or of a kind that this version does not know, or the memory may not suffice.",
        ) from error


_SERVERS: dict[tuple[Path, ServerOptions], LocalServer] = {}
_REGISTRY = threading.RLock()


def shared_server(path: str | Path, options: ServerOptions | None = None) -> LocalServer:
    """The server of this process for this file and these options; started when there is none, closed when the process ends."""
    options = options or ServerOptions()
    key = (Path(path).expanduser().resolve(), options)
    with _REGISTRY:
        server = _SERVERS.get(key)
        if server is None or server.closed:
            server = _SERVERS[key] = LocalServer(key[0], options)
        return server


def close_servers() -> None:
    """Close every shared server of this process."""
    with _REGISTRY:
        for server in _SERVERS.values():
            server.close()
        _SERVERS.clear()


def _after_fork() -> None:
    """In a forked child: never let go of the parent's servers, as that would wait for ever for threads that are not here."""
    global _REGISTRY, _LOADING, _FORKED
    _REGISTRY, _LOADING, _FORKED = threading.RLock(), threading.Lock(), _FORKED or bool(_ALIVE)
    for server in _ALIVE:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(server._native))  # one reference too many, on purpose
    _SERVERS.clear()


atexit.register(close_servers)
os.register_at_fork(after_in_child=_after_fork)
