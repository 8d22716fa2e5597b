"""What all sections have in common: environment values read at use, secrets that are never shown, and rules for keys nobody knows.

The kinds of value that settings have are here too; each says in plain words what would fit. So is what `config check` tells about a file
that loads. Secrets are not repeated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_serializer,
)
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from holdfast.config.reading import EnvironmentReference, references, resolve, shown
from holdfast.errors import ConfigError
from holdfast.redaction import HIDDEN, is_secret_key, redact, redact_text

NoticeKind = Literal[
    "ignored",
    "missing-variable",
    "unknown-model",
    "without-effect",
    "upgraded",
    "class-path",
    "not-ready",
    "workflow",
    "not-trusted",
    "policy",
]


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something about the file that a person should know, though it loads. `kind` is stable, `message` is for people."""

    kind: NoticeKind
    message: str
    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return f"{where + ': ' if where else ''}{self.key + ': ' if self.key else ''}{self.message}"


def raise_all(errors: Iterable[ConfigError]) -> None:
    """Raise the first error of a file, if there is one, with the rest of them in its attribute `others`."""
    found = sorted(errors, key=lambda error: error.line or 0)
    if found:
        found[0].others = found[1:]
        raise found[0]


def all_errors(error: ConfigError) -> list[ConfigError]:
    """This error and the others that the same file has, in the order of their lines."""
    return [error, *error.others]


MISSING = object()
"""Stands for a value that must not be shown."""

_WANTED = {
    "int": "must be a whole number",
    "float": "must be a number",
    "bool": "must be true or false",
    "string": "must be text",
    "list": "must be a list",
    "tuple": "must be a list",
    "dict": "must be a mapping of keys to values",
    "model": "must be a mapping of keys to values",
    "dataclass": "must be a mapping of keys to values",
    "finite": "must be a finite number",
}
_BOUNDS = {
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be one of {expected}",
    "string_too_short": "must not be empty",
}


class Misfit(ValueError):
    """A value does not fit, said by a rule of ours: `wanted` says what would. `at` is the path from the field to the part that is wrong."""

    def __init__(self, wanted: str, *at: str | int, found: Any = MISSING) -> None:
        super().__init__(wanted)
        self.wanted = wanted
        self.at = at
        self.found = found


def plain_words(error: Mapping[str, Any], value: Any = MISSING) -> str:
    """One clause for an error that pydantic found: `must be a whole number, not the text 'many'`; the rest only with the value."""
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind == "missing":
        return "is missing"
    if isinstance(misfit := context.get("error"), Misfit):
        words, value = misfit.wanted, misfit.found if value is not MISSING else MISSING
        return words if value is MISSING else f"{words}, not {described(value, container=_is_container(words))}"
    if kind in _BOUNDS:
        words = _BOUNDS[kind]
        for name, bound in context.items():
            words = words.replace(
                "{" + name + "}",
                str(bound).replace(" or ", ", ") if name == "expected" else f"{bound:g}" if isinstance(bound, float) else str(bound),
            )
    else:
        words = _WANTED.get(kind.split("_", 1)[0], "does not fit")
    return words if value is MISSING else f"{words}, not {described(value, container=_is_container(words))}"


def _is_container(words: str) -> bool:
    return words.endswith(("list", "values", "}", "such"))


def described(value: Any, *, container: bool = False) -> str:
    """What a value is, in words. With `container` a text is not repeated: where a mapping should be, it may hold a secret.

    >>> described("many"), described(True), described([1])
    ("the text 'many'", 'true', 'a list')
    """
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}" if len(str(value)) < 40 else "that number"
    if isinstance(value, EnvironmentReference):
        return "a value from the environment"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value)
    return "text" if container or len(text) > 40 or redact_text(text) != text else f"the text {text!r}"


Strange = Literal["ignored", "passed on", "refused"]

_WHOLE_REFERENCE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*|\$\{[A-Za-z_][A-Za-z0-9_]*\}")


class Deferred(NamedTuple):
    """What stands in the file for a field whose value, or a part of it, comes from the environment."""

    written: Any


class Section(BaseModel):
    """One mapping of the file. Reading an attribute whose value names an environment variable reads that variable, once.

    Raises MissingVariable or ConfigError then, with file, line and key. `repr`, `str` and `model_dump` show no secret and read no variable.
    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True, protected_namespaces=())

    strange: ClassVar[Strange] = "ignored"
    """What becomes of a key that nobody knows and that is no near miss of a known one."""
    tolerated: ClassVar[frozenset[str]] = frozenset()
    """Keys of the reference that are accepted and not used; where keys are passed on, those that are no near miss of ours."""
    spellings: ClassVar[MappingProxyType[str, str]] = MappingProxyType({})
    """Other spellings of our keys, which mean the same."""

    shorthand: ClassVar[str | None] = None
    """The key that a plain text stands for where this section is expected."""

    _used: dict[str, Any] = PrivateAttr(default_factory=dict)

    @field_validator("*", mode="wrap")
    @classmethod
    def _read_later(cls, value: Any, handler: Any, info: Any) -> Any:
        field = cls.model_fields[info.field_name]
        if nested(cls, info.field_name) is None and any(references(value)):
            return Deferred(value)
        if value is None and not _takes_null(cls, info.field_name) and not field.is_required():
            return field.get_default(call_default_factory=True)  # `key:` with nothing after it means: not set
        return handler(value)

    if not TYPE_CHECKING:  # so that the type checker still knows every field

        def __getattribute__(self, name: str) -> Any:
            value = super().__getattribute__(name)
            return self._read_now(name, value) if value.__class__ is Deferred else value

    def _read_now(self, name: str, deferred: Deferred) -> Any:
        if name not in self._used:
            self._used[name] = _validated(type(self), name, deferred)
        return self._used[name]

    def written(self, name: str) -> Any:
        """What the file has for the field, with references as they are: nothing is read from the environment."""
        value = self.__dict__[name]
        return value.written if isinstance(value, Deferred) else value

    def extras(self) -> dict[str, Any]:
        """The keys that are not ours, with environment values filled in now."""
        return {name: resolve(value) for name, value in (self.__pydantic_extra__ or {}).items()}

    def fields(self) -> Iterator[tuple[str, Any]]:
        """Name and written value of every field, then of every other key."""
        for name in type(self).model_fields:
            yield name, self.written(name)
        yield from (self.__pydantic_extra__ or {}).items()

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        for name, value in self.fields():
            yield name, value if _holds_sections(value) else presentable(value, name)

    @model_serializer(mode="plain")
    def _presented(self) -> dict[str, Any]:
        return {name: presentable(value, name) for name, value in self.fields()}


def presentable(value: Any, key: object = "") -> Any:
    """A value of a section as plain data that may be shown to anybody."""
    if isinstance(value, Section):
        return {name: presentable(item, name) for name, item in value.fields()}
    if isinstance(value, EnvironmentReference) and is_secret_key(key):
        return value.template if _WHOLE_REFERENCE.fullmatch(value.template) else HIDDEN
    if isinstance(value, list | tuple) and not is_secret_key(key):
        return [presentable(item) for item in value]
    if isinstance(value, dict) and not is_secret_key(key):
        return {name: presentable(item, name) for name, item in value.items()}
    return redact(to_jsonable_python(shown(value), fallback=str), key)


def _holds_sections(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
    return any(isinstance(item, Section) for item in items)


class Nested(NamedTuple):
    """Which section a field holds, and how: alone, in a list, or in a mapping by name."""

    section: type[Section]
    kind: Literal["one", "list", "mapping"]


@cache
def nested(section: type[Section], field: str) -> Nested | None:
    """The section that a field holds, if it does."""
    return _nested(section.model_fields[field].annotation)


def _nested(annotation: Any, kind: Literal["one", "list", "mapping"] = "one") -> Nested | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return Nested(annotation, kind)
    origin = get_origin(annotation)
    if origin in (list, tuple):
        kind = "list"
    elif origin is dict:
        kind = "mapping"
    for argument in get_args(annotation):
        if (found := _nested(argument, kind)) is not None:
            return found
    return None


@cache
def _takes_null(section: type[Section], field: str) -> bool:
    annotation = section.model_fields[field].annotation
    return annotation is Any or (get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation))


@cache
def _adapter(section: type[Section], field: str) -> TypeAdapter[Any]:
    info: FieldInfo = section.model_fields[field]
    form: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
    return TypeAdapter(form)


def _validated(section: type[Section], name: str, deferred: Deferred) -> Any:
    """The value of a field now that its variables are read. An error names the setting and what would fit, never the value."""
    first = next(references(deferred.written))
    value = resolve(deferred.written)
    if value == "" and _takes_null(section, name):
        value = None  # an empty variable is how a shell says: nothing
    try:
        return _adapter(section, name).validate_python(value)
    except ValidationError as error:
        wanted = plain_words(error.errors(include_url=False, include_input=False)[0])
    names = ", ".join(first.names)
    raise ConfigError(f"the value of the environment variable {names} {wanted}.", file=first.file, line=first.line, key=first.key)


def _no_truth(value: Any) -> Any:
    """pydantic takes `true` for 1; in a file it is a mistake."""
    if isinstance(value, bool):
        raise Misfit("must be a number", found=value)
    return value


def _text(value: Any) -> Any:
    """A whole number without quotes is fine as text (an id, a port); anything else loses its spelling, so it needs quotes."""
    if isinstance(value, bool | float):
        raise Misfit("must be text in quotes", found=value)
    return str(value) if isinstance(value, int) else value


def _variable(value: Any) -> Any:
    """The value of an environment variable: always text in the end."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _texts(value: Any) -> Any:
    """One text stands for a list of one."""
    return [value] if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(_text)]
Value = Annotated[str, BeforeValidator(_variable)]
Count = Annotated[int, BeforeValidator(_no_truth), Field(ge=1)]
Amount = Annotated[int, BeforeValidator(_no_truth), Field(ge=0)]
Number = Annotated[float, BeforeValidator(_no_truth), Field(allow_inf_nan=False)]
Seconds = Annotated[float, BeforeValidator(_no_truth), Field(gt=0, allow_inf_nan=False)]
Price = Annotated[float, BeforeValidator(_no_truth), Field(ge=0, allow_inf_nan=False)]
Span = Price
"""A stretch of time in seconds, which may be none."""
Share = Annotated[float, BeforeValidator(_no_truth), Field(ge=0, le=1)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(_texts)]
