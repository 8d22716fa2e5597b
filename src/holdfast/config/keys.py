"""Goes over the keys of a file before their values are looked at: misspelt, unknown, spelt otherwise, or to be read later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.config import known_keys
from holdfast.config.environment import mark
from holdfast.config.known_keys import IGNORED_SECTIONS, WORKFLOW_KEYS, near_miss, nearest
from holdfast.config.problems import Notice, NoticeKind
from holdfast.config.reading import KeyPath, Reading, dotted
from holdfast.config.section import Nested, Section, nested
from holdfast.errors import ConfigError

LITERAL = frozenset({"summary_prompt", "system_prompt", "prompt", "description", "display_name", "text"})
"""Settings that are prose: a dollar sign in them is a dollar sign."""

_CLASS_KEYS = frozenset({"use", "storage_class", "token_counter"})


class KeyCheck:
    """One pass over the values of a file. `errors` and `notices` hold what was found."""

    def __init__(self, reading: Reading, environ: Mapping[str, str]) -> None:
        self._reading = reading
        self._environ = environ
        self.errors: list[ConfigError] = []
        self.notices: list[Notice] = []

    def root(self, section: type[Section], values: Mapping[str, Any]) -> dict[str, Any]:
        """The top level: sections that are ours, cleaned. The others are noted as ignored, or as misspelt."""
        result: dict[str, Any] = {}
        known = set(section.model_fields) | IGNORED_SECTIONS
        if "stages" in values:
            self.notice(
                "workflow",
                "this file is a workflow: `holdfast run` runs it. As a configuration it only sets what stands beside the stages.",
                ("stages",),
            )
        for key, value in values.items():
            if key in section.model_fields:
                result[key] = self._value(section, key, value, (key,))
            elif "stages" in values and key in WORKFLOW_KEYS:
                continue
            elif key not in IGNORED_SECTIONS and (near := near_miss(key, known)) is not None:
                self._misspelt((key,), near)
            else:
                self.notice("ignored", "Holdfast does not use this section; it is kept and ignored.", (key,))
        return result

    def _section(self, section: type[Section], values: Any, path: KeyPath) -> Any:
        if isinstance(values, str) and section.shorthand is not None:
            return {section.shorthand: values}
        if not isinstance(values, dict):
            return mark(values, path, self._reading, self._environ)
        result: dict[str, Any] = {}
        for key, value in values.items():
            here = (*path, key)
            name = section.spellings.get(key, key)
            if name in section.model_fields:
                if name != key and name in values:
                    self.notice("ignored", f"`{name}` says the same and wins.", here)
                    continue
                if name != key:
                    self._reading.also_at(here, (*path, name))
                result[name] = self._value(section, name, value, here)
            elif self._is_accepted(section, here):
                result[key] = mark(value, here, self._reading, self._environ) if section.strange == "passed on" else value
        return result

    def _is_accepted(self, section: type[Section], path: KeyPath) -> bool:
        """Whether a key that is not a setting of ours stays. Notes the error or the notice that goes with it."""
        key = str(path[-1])
        if key not in section.tolerated:
            known = set(section.model_fields) | set(section.spellings) | section.tolerated
            if (near := near_miss(key, known)) is not None:
                self._misspelt(path, near)
                return False
            if section.strange == "refused":
                self._misspelt(path, nearest(key, section.model_fields), section.model_fields)
                return False
        if section.strange != "passed on":
            self.notice("ignored", "Holdfast does not use this key; it is kept and ignored.", path)
        return True

    def _misspelt(self, path: KeyPath, near: str | None, known: Mapping[str, Any] | None = None) -> None:
        hint = f"Did you mean `{near}`?" if near is not None else f"Valid here: {', '.join(known or ())}."
        line = self._reading.line(path, of_key=True)
        self.errors.append(
            ConfigError("there is no setting of this name.", file=self._reading.file, line=line, key=dotted(path), nearest=near, hint=hint)
        )

    def _value(self, section: type[Section], name: str, value: Any, path: KeyPath) -> Any:
        inner = nested(section, name)
        if inner is not None:
            return self._nested(inner, value, path)
        if name in LITERAL:
            return value
        if name in _CLASS_KEYS and isinstance(value, str) and known_keys.is_reference_path(value):
            return self._class_path(value, path)
        return mark(value, path, self._reading, self._environ)

    def _class_path(self, value: str, path: KeyPath) -> str:
        ours = known_keys.mapped(value)
        if ours is None:
            self.notice("class-path", "this class path of the reference names nothing that exists here.", path)
        return ours or value

    def _nested(self, inner: Nested, value: Any, path: KeyPath) -> Any:
        if inner.kind == "one":
            return self._section(inner.section, value, path)
        if inner.kind == "list" and isinstance(value, list):
            return [self._section(inner.section, item, (*path, index)) for index, item in enumerate(value)]
        if inner.kind == "mapping" and isinstance(value, dict):
            return {key: self._section(inner.section, {} if item is None else item, (*path, key)) for key, item in value.items()}
        return mark(value, path, self._reading, self._environ)

    def notice(self, kind: NoticeKind, message: str, path: KeyPath) -> None:
        line = self._reading.line(path, of_key=True)
        self.notices.append(Notice(kind=kind, message=message, file=self._reading.file, line=line, key=dotted(path)))
