"""Import an object by its dotted path, and say which extra brings a package that is missing."""

from __future__ import annotations

import difflib
import importlib
from os import PathLike
from typing import Any

from holdfast.errors import ExtraMissing, NotImportable

_EXTRAS = {
    "agents": ("langchain", "langchain_core", "langchain_openai", "langgraph", "openai"),
    "local": ("xllamacpp",),
    "vectors": ("numpy", "onnxruntime", "tokenizers"),
    "postgres": ("psycopg", "psycopg_pool"),
    "mcp": ("mcp",),
    "web": ("httpx", "markitdown"),
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
) -> Any:
    """The object at `package.module:Name` (`Name` may be dotted) or `package.module.Name`.

    `what` is its part in the sentence of the error ("the token counter"); `key`, `file` and `line` say where the path is written, `hint`
    what else would fit there. NotImportable if there is no such module or name, or if the module raises when it is imported.
    """
    where: dict[str, Any] = {"key": key, "file": file, "line": line}
    module_name, colon, name = path.partition(":") if ":" in path else path.rpartition(".")
    if not (module_name and colon and name) or module_name.startswith("."):
        raise NotImportable(f"{what} {path!r} cannot be loaded: it is no path.", path, **where, hint=hint or "Write `package.module:Name`.")
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        advice = hint or f"Is {missing.partition('.')[0]} installed, and on the Python path?"
        raise NotImportable(f"{what} {path!r} cannot be loaded: {error}.", path, missing=missing, **where, hint=advice) from error
    except Exception as error:  # a module from outside may raise anything when it is imported
        problem = f"{what} {path!r} cannot be loaded: {module_name} cannot be imported ({type(error).__name__}: {error})."
        raise NotImportable(problem, path, **where, hint=hint) from error
    for part in name.split("."):
        if not hasattr(found, part):
            near = next(iter(difflib.get_close_matches(part, [known for known in dir(found) if not known.startswith("_")], 1)), None)
            problem = f"{what} {path!r} cannot be loaded: {module_name} has no {name!r}."
            raise NotImportable(problem, path, **where, nearest=near, hint=f"Did you mean `{near}`?" if near else hint)
        found = getattr(found, part)
    return found
