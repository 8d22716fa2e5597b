"""Import an object by its dotted path, and say which extra brings a package that is missing.

`standing_in` lets code that was written against another package find what it imports here, for as long as it is being loaded.
"""

from __future__ import annotations

import difflib
import importlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.errors import ExtraMissing, NotImportable

_EXTRAS = {
    "agents": ("langchain", "langchain_core", "langchain_openai", "langgraph", "openai"),
    "local": ("xllamacpp",),
    "vectors": ("numpy", "onnxruntime", "tokenizers"),
    "postgres": ("psycopg", "psycopg_pool"),
    "mcp": ("mcp",),
    "acp": ("acp",),
    "server": ("ag_ui", "fastapi", "jinja2", "markdown_it", "markupsafe", "multipart", "prometheus_client", "starlette", "uvicorn"),
    "web": ("httpx", "markitdown"),
    "workers": ("croniter", "procrastinate"),
}
_EXTRA_OF = {module: extra for extra, modules in _EXTRAS.items() for module in modules}


def missing_extra(error: BaseException) -> ExtraMissing | None:
    """The error that says which line to type, when a package of one of our extras was not found. None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    return ExtraMissing(module, _EXTRA_OF[module]) if module in _EXTRA_OF else None


def load_dotted(
    path: str,
    what: str,
    *,
    key: str | None = None,
    file: str | PathLike[str] | None = None,
    line: int | None = None,
    hint: str | None = None,
    beside: Path | None = None,
) -> Any:
    """The object at `package.module:Name` (`Name` may be dotted) or `package.module.Name`.

    `what` is its part in the sentence of the error ("the token counter"); `key`, `file` and `line` say where the path is written, `hint`
    what else would fit there. NotImportable if there is no such module or name, or if the module raises when it is imported.

    A module in the folder `beside` is found too: the folder is then the last one on the Python path, and stays there, because what is
    loaded may import its neighbours later. It never hides a module that is installed; if one has the same name, NotImportable says so.
    """
    where: dict[str, Any] = {"key": key, "file": file, "line": line}
    module_name, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module_name and colon and name) or module_name.startswith("."):
        raise NotImportable(f"{what} {path!r} cannot be loaded: it is no path.", path, **where, hint=hint or "Write `package.module:Name`.")
    neighbour = _neighbour(module_name, beside)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        advice = hint or f"Is {missing.partition('.')[0]} installed, and on the Python path?"
        raise NotImportable(f"{what} {path!r} cannot be loaded: {error}.", path, missing=missing, **where, hint=advice) from error
    except Exception as error:  # a module from outside may raise anything when it is imported
        problem = f"{what} {path!r} cannot be loaded: {module_name} cannot be imported ({type(error).__name__}: {error})."
        raise NotImportable(problem, path, **where, hint=hint) from error
    if neighbour is not None and not _is_from(found, neighbour):
        problem = f"{what} {path!r} cannot be loaded: {module_name} is another module than {neighbour}."
        raise NotImportable(problem, path, **where, hint="Give the one beside the file an other name: installed modules come first.")
    for part in name.split("."):
        if not hasattr(found, part):
            near = next(iter(difflib.get_close_matches(part, [known for known in dir(found) if not known.startswith("_")], 1)), None)
            problem = f"{what} {path!r} cannot be loaded: {module_name} has no {name!r}."
            raise NotImportable(problem, path, **where, nearest=near, hint=f"Did you mean `{near}`?" if near else hint)
        found = getattr(found, part)
    return found


def _neighbour(module: str, folder: Path | None) -> Path | None:
    """The file or folder of a module that is in this folder, which is put on the Python path then; None if it is not there."""
    top = module.partition(".")[0]
    if folder is None or not top:
        return None
    folder = folder.absolute()
    found = next((place for place in (folder / f"{top}.py", folder / top) if place.is_file() or any(place.glob("*.py"))), None)
    if found is not None and str(folder) not in sys.path:
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    return found


def _is_from(module: ModuleType, place: Path) -> bool:
    """Whether the module was loaded from this file or from below this folder."""
    file = getattr(module, "__file__", None)
    places = [Path(file)] if file else [Path(one) for one in getattr(module, "__path__", ())]
    return any(one.resolve().is_relative_to(place.resolve()) for one in places)


_STANDING_IN = threading.RLock()


class _StandIns(MetaPathFinder, Loader):
    """Makes modules out of names. It is asked last, so whatever is really there is found before."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        above = {module.rsplit(".", depth)[0] for module in modules for depth in range(module.count(".") + 1)}
        self.names: dict[str, Mapping[str, Any]] = {**{name: {} for name in above}, **modules}
        self.made: dict[str, ModuleType] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname in self.names else None

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(self.names[module.__name__])
        self.made[module.__name__] = module


@contextmanager
def standing_in(modules: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """While the block runs, these modules can be imported, each with these names, where nothing real is called so.

    Afterwards they are gone again; what was imported meanwhile keeps what it took from them.
    """
    with _STANDING_IN:
        finder = _StandIns(modules)
        sys.meta_path.append(finder)
        try:
            yield
        finally:
            sys.meta_path.remove(finder)
            for name, module in finder.made.items():
                if sys.modules.get(name) is module:
                    del sys.modules[name]
                above, _, last = name.rpartition(".")
                if above in sys.modules and vars(sys.modules[above]).get(last) is module:
                    delattr(sys.modules[above], last)
            importlib.invalidate_caches()
