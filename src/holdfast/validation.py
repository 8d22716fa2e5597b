"""What comes from outside, checked: values, names that become parts of paths, dotted paths. What is wrong is said in our words.

Every model that reads bytes from outside (sessions, workflows, memory, records) reports what pydantic found through `problems_of`: the
place, what is wrong, and the line; so the same mistake is said in the same way everywhere. `spelled_out` is for functions that take many
keywords by the name of a `TypedDict`, `**parts: Unpack[RunParts]`: type checkers read that as it stands, and so it is true at run time,
where `help()`, `inspect.signature` and interactive shells show each keyword, and a wrong one is refused under the function's own name.

`check_name` and `thread_folder` are the only gates through which names from outside (agents, threads, sessions) become parts of paths.
`load_dotted` imports an object by its path, and `missing_extra` says which extra brings a package that is missing; `standing_in` lets code
that was written against another package find what it imports here, for as long as it is being loaded. Amounts in words and near misses are
here too.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import json
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.errors import ExtraMissing, InputError, NotImportable, WrongType, WrongValue

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

Loc = Sequence[str | int]
"""The way to a value inside a document: names of members and indexes of lists."""

_SHOWN = 60
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"|[\[\]{}:,]|[^\s\[\]{}:,"]+', re.DOTALL)
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dataclass_type": "an object",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where, what, and in which line of the file, if that is known."""

    place: str
    what: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.what}" + (f" (line {self.line})" if self.line is not None else "")


def problems_of(error: ValidationError, *, line_of: Callable[[Loc], int | None] | None = None) -> list[Problem]:
    """Everything that is wrong, in the order of the document. `line_of` says the line of a place, such as `json_line` does."""
    found = []
    for one in error.errors(include_url=False):
        line = line_of(one["loc"]) if line_of is not None else None
        found.append(Problem(place_of(one["loc"]), _what(one), line))
    return found


def place_of(loc: Loc) -> str:
    """The way to a value as a person writes it.

    >>> place_of(["stage_outputs", "plan", "key_findings", 2, "source"])
    'stage_outputs.plan.key_findings[2].source'
    """
    shown = ""
    for part in loc:
        shown += f"[{part}]" if isinstance(part, int) else f".{part}" if shown else str(part)
    return shown


def kind_of(value: object) -> str:
    """What a value is, in a word, for "must be text, not a list"."""
    kinds = {dict: "an object", list: "a list", tuple: "a list", str: "text", bool: "true or false", type(None): "nothing"}
    return kinds.get(type(value)) or f"{type(value).__name__} {shown(value)}"


def check_kind(name: str, value: object, kinds: type | tuple[type, ...], wanted: str, *, hint: str | None = None) -> None:
    """WrongType if what a program gives as the argument `name` is of another kind; `wanted` says in words what it takes."""
    if not isinstance(value, kinds):
        raise WrongType(f"`{name}` takes {wanted}, and not {kind_of(value)}.", hint=hint)


def check_number(name: str, value: object, *, least: float | None = None, above: float | None = None, whole: bool = True) -> None:
    """WrongType if what a program gives as the argument `name` is no number, WrongValue if it is too small."""
    if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
        raise WrongType(f"`{name}` takes a {'whole ' if whole else ''}number, and not {kind_of(value)}.")
    if (least is not None and value < least) or (above is not None and not value > above):
        bound = f"at least {least}" if least is not None else f"more than {above}"
        raise WrongValue(f"`{name}` is {value}, and must be {bound}.")


def shown(value: object) -> str:
    """A value in one short piece of text."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def json_line(text: str, loc: Loc) -> int | None:
    """The line of the value at `loc` in a JSON text, or of the nearest thing around it; None if the text has nothing of it."""
    wanted, best, depth = list(loc), None, -1
    path: list[str | int] = []
    opened: list[str] = []
    is_value, key = True, ""
    for match in _TOKEN.finditer(text):
        piece = match.group()
        if piece in "}]":
            if not opened:
                break
            opened.pop()
            path.pop()
        elif piece == ",":
            is_value = bool(opened) and opened[-1] == "["
            if is_value and isinstance(path[-1], int):
                path[-1] += 1
        elif piece == ":":
            path[-1], is_value = key, True
        elif not is_value:
            key = _text(piece)
        else:
            if depth < len(path) <= len(wanted) and path == wanted[: len(path)]:
                best, depth = text.count("\n", 0, match.start()) + 1, len(path)
            is_value = piece == "["
            if piece in "{[":
                opened.append(piece)
                path.append(0 if piece == "[" else "")
    return best


def _text(piece: str) -> str:
    try:
        return str(json.loads(piece))
    except ValueError:
        return piece


def _what(error: ErrorDetails) -> str:
    kind, given, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing" or (given is None and kind in _WANTED):
        return "is missing"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, not {kind_of(given)}"
    if kind == "literal_error":
        expected: Any = context.get("expected", "")
        return f"must be {str(expected).replace(chr(39), '')}, not {shown(given) if isinstance(given, str) else kind_of(given)}"
    if kind == "string_too_short":
        return "is empty"
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = context.get("ge", context.get("le"))
        return f"must be {limit} or {'more' if kind == 'greater_than_equal' else 'less'}, not {kind_of(given)}"
    if kind == "extra_forbidden":
        return "is not known"
    if kind in ("value_error", "assertion_error") and "error" in context:
        return str(context["error"])
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}"


_F = TypeVar("_F", bound=Callable[..., Any])


class _Usual:
    """Stands in a signature for a default that is made when the function is called."""

    def __repr__(self) -> str:
        return "<default>"


def spelled_out(keywords: type, *, checked: bool = True) -> Callable[[_F], _F]:
    """The function with the keywords of this `TypedDict` in its signature, in place of the `**` that stands for them.

    What each is without being given is shown as `<default>`. Without `checked` other keywords are left to the function.
    """

    def wrap(function: _F) -> _F:
        own = list(inspect.signature(function).parameters.values())
        *named, rest = own
        if rest.kind is not inspect.Parameter.VAR_KEYWORD:
            raise TypeError(f"{function.__qualname__} has no `**` to spell out")
        more = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=_Usual(), annotation=getattr(said, "__forward_arg__", said))
            for name, said in keywords.__annotations__.items()
        ]
        known = [one.name for one in (*named, *more)]

        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for name in given if checked else ():
                if name not in known:
                    near = difflib.get_close_matches(name, known, 1)
                    hint = f". Did you mean {near[0]!r}?" if near else f". There are {', '.join(known)}."
                    raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
            return function(*args, **given)

        returns = function.__annotations__.get("return", inspect.Signature.empty)
        called.__signature__ = inspect.Signature([*named, *more], return_annotation=returns)  # type: ignore[attr-defined]  # what inspect looks for
        return called  # type: ignore[return-value]  # the same function, with a check before it

    return wrap


def counted(number: int, one: str, many: str | None = None) -> str:
    """So many things, in words.

    >>> counted(1, "file"), counted(2, "file"), counted(0, "memory", "memories")
    ('1 file', '2 files', '0 memories')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def some(things: Iterable[str], most: int, between: str = ", ") -> str:
    """The first of many things and how many more there are; all of them where only one would be left out, which takes no more room.

    >>> some(["a", "b", "c"], 2), some(["a", "b", "c", "d"], 2)
    ('a, b, c', 'a, b and 2 more')
    """
    listed = list(things)
    if len(listed) <= most + 1:
        return between.join(listed)
    return f"{between.join(listed[:most])}{between.rstrip() if between.strip() == ';' else ''} and {len(listed) - most} more"


NEAR = 0.8


def _likeness(one: str, other: str) -> float:
    if _plain(one) == _plain(other):
        return 1.0
    return difflib.SequenceMatcher(None, one, other).ratio()


def _plain(key: str) -> str:
    return key.lower().replace("-", "").replace("_", "").replace(" ", "")


def near_miss(key: str, known: Iterable[str]) -> str | None:
    """The known key that this one is a misspelling of, if it is.

    >>> near_miss("debounce-seconds", ["debounce_seconds"]), near_miss("sumary_prompt", ["summary_prompt"]), near_miss("slack", ["skills"])
    ('debounce_seconds', 'summary_prompt', None)
    """
    found = nearest(key, known)
    return found if found is not None and _likeness(key, found) >= NEAR else None


def nearest(key: str, known: Iterable[str]) -> str | None:
    """The known key that is most like this one, or None when none is like it at all."""
    likeness, found = max(((_likeness(key[:100], name), name) for name in sorted(known)), default=(0.0, ""))
    return found if likeness > 0.4 else None


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


def is_findable(module: str) -> bool:
    """Whether a module is there to be imported. Nothing of it is, nor of the packages that it is in.

    >>> is_findable("email.mime.text"), is_findable("email.nothing")
    (True, False)
    """
    if module in sys.modules:
        return True
    name, places = "", None
    for part in module.split("."):
        name = f"{name}.{part}" if name else part
        try:
            found = importlib.util.find_spec(name) if places is None else importlib.machinery.PathFinder.find_spec(name, places)
        except (ImportError, ValueError):
            return False
        if found is None:
            return False
        places = found.submodule_search_locations if found.submodule_search_locations is not None else []
    return True


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


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_PLAIN_THREAD = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.:-]{0,127}", re.ASCII)
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+", re.ASCII)
_LONGEST_THREAD = 4096
THREAD_NOTE = "thread.json"
"""The file in a thread's folder that says its id, where the folder's name does not."""


def check_name(name: str, what: str = "name") -> str:
    """The name as it is used in paths (lower case), or an InputError that says what is allowed.

    >>> check_name("Coder-2")
    'coder-2'
    """
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InputError(
            f"{name!r} is not a usable {what}.",
            hint="Use 1 to 64 ASCII letters, digits, hyphens or underscores.",
        )
    return name.lower()


def check_thread(thread: str) -> str:
    """The id of a thread: any text that LangGraph takes for one. InputError for what is none."""
    if not isinstance(thread, str) or not 0 < len(thread) <= _LONGEST_THREAD:
        shown = repr(thread) if len(repr(thread)) < 100 else f"{repr(thread)[:100]}..."
        raise InputError(f"{shown} is not a usable thread.", hint=f"Use a text of 1 to {_LONGEST_THREAD} characters.")
    return thread


def thread_folder(thread: str) -> str:
    """The name of the folder in which a thread's files are: its id, or for an id that is no safe name a readable part of it and a hash.

    No two ids have the same folder: a plain id never begins with `~`.

    >>> thread_folder("trip-7")
    'trip-7'
    >>> thread_folder("anna@example.com")
    '~anna-example.com~91dc638a967264470c7cc094427eee7a'
    """
    if _PLAIN_THREAD.fullmatch(check_thread(thread)):
        return thread
    readable = _UNSAFE.sub("-", thread)[:40].strip("-.")
    return f"~{readable}~{blake2b(thread.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def thread_note(thread: str) -> bytes | None:
    """What `THREAD_NOTE` holds for a thread; None where the folder's name is the id."""
    return None if thread_folder(thread) == thread else json.dumps({"thread": thread}).encode()


def thread_in(folder: str, note: bytes | None) -> str | None:
    """The id of the thread whose folder this is, by its name or by its note; None if it is no thread's."""
    if _PLAIN_THREAD.fullmatch(folder):
        return folder
    try:
        thread = json.loads(note or b"null")["thread"]
        return str(thread) if thread_folder(thread) == folder else None
    except (ValueError, TypeError, KeyError, InputError):
        return None  # no note of ours
