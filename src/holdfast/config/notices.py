"""What `config check` tells about a file that loads (ignored, missing, without effect), and errors that come in company."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import ConfigError

NoticeKind = Literal["ignored", "missing-variable", "unknown-model", "without-effect", "upgraded", "class-path", "workflow"]


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
