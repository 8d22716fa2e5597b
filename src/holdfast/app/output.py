"""How commands begin and how they speak: the harness of the configuration, tables for a person, one JSON document for a program.

`open_harness` is the one way in, and everything that a command works with is from it. `show` is the one way out: a command makes a plain
value and a function that draws it, and the caller's `--json` decides. Errors and the log go to standard error (O2).
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import ConfigError, HoldfastError, StorageError
from holdfast.redaction import redact_text

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from holdfast.config.sections import Logging
    from holdfast.harness import Harness

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The config.yaml to use. Default: HOLDFAST_CONFIG, then here and upwards."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def open_harness(path: Path | None) -> Harness:
    """What the command works with, from the configuration at this path or the one that is found. The log follows that configuration."""
    from holdfast.config.loading import read_file
    from holdfast.harness import build

    config = read_file(path)  # what it has to say comes after the log is set up, which the file decides
    set_up_log(config.logging, said="logging" in config.raw)
    return build(config)


def set_up_log(settings: Logging, *, said: bool = True) -> None:
    """Send the log of this process to standard error. Where the file does not say a level, a command is quiet up to warnings."""
    from holdfast.events import JsonLines, PlainLines

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if settings.format == "json" else PlainLines("%(message)s"))
    ours = logging.getLogger("holdfast")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(settings.level.upper() if said else logging.WARNING)


def console() -> Console:
    """A terminal that is as wide as the real one; into a pipe it draws no colours and breaks no lines that a person would not."""
    from rich.console import Console

    given = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return Console(highlight=False, soft_wrap=False, width=given)


def show(value: Any, draw: Callable[[Console], None], *, as_json: bool) -> None:
    """Print the value as JSON, or let `draw` put it on the terminal."""
    if as_json:
        typer.echo(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))
    else:
        draw(console())


def say(value: Any, line: str, *, as_json: bool) -> None:
    """Print the value as JSON, or a line for a person."""
    show(value, lambda console: console.print(plain(line), soft_wrap=True), as_json=as_json)


def plain(value: str, style: str = "") -> Text:
    """A value as it is: never markup, and no character reaches the terminal that would command it."""
    from rich.text import Text

    return Text(visible(value), style)


def visible(text: str) -> str:
    """The text without characters that command a terminal or steer a reader's eye."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\ufffd" for one in text)


def typed(*words: object, **options: object) -> str:
    """A command as it can be pasted into a shell: this program, the words quoted, the options that were given, and the settings in the
    environment that it depends on.

    >>> typed("resume", "s 1", session_config=Path("my session.yaml"), config=None)
    "holdfast resume 's 1' --session-config 'my session.yaml'"
    """
    names = ("HOLDFAST_HOME",) if options.get("config") is not None else ("HOLDFAST_CONFIG", "HOLDFAST_HOME")
    said = [f"{name}={shlex.quote(os.environ[name])}" for name in names if os.environ.get(name)]
    given = [("--" + name.replace("_", "-"), value) for name, value in options.items() if value is not None and value is not False]
    more = [part for name, value in given for part in ((name,) if value is True else (name, shlex.quote(str(value))))]
    return " ".join([*said, _program(), *(shlex.quote(str(word)) for word in words), *more])


def _program() -> str:
    """How this program was called, where its bare name would not be found."""
    called = sys.argv[0]
    return called if shutil.which("holdfast") is None and Path(called).name == "holdfast" and Path(called).is_file() else "holdfast"


def table(*columns: str, right: Sequence[str] = (), wraps: Sequence[str] = ()) -> Table:
    """A table without lines. Columns in `right` are flush right; only those in `wraps` may take several lines."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold", show_header=any(columns))
    for name in columns:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in wraps, overflow="fold")
    return made


def moment(time: str) -> str:
    """A time stamp to the minute, for people."""
    return time[:16].replace("T", " ")


def typed_error(error: Exception) -> HoldfastError:
    """The error as one of ours: itself, a storage error with its path, the extra that is missing, or a fault of the program."""
    import sqlite3

    from holdfast.durable.disk import storage_error
    from holdfast.imports import missing_extra

    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, sqlite3.Error):
        return StorageError(f"a database cannot be used: {error}.", hint="`holdfast doctor` looks at each of them.")
    if isinstance(error, OSError):
        return storage_error(error, os.fsdecode(error.filename) if error.filename else "a file", "use")
    known = missing_extra(error)
    told = f"this should not happen: {type(error).__name__}: {redact_text(str(error)) or 'no message'}."
    return known or HoldfastError(told, hint="The same command with --verbose shows where.")


def report_error(error: HoldfastError, *, as_json: bool) -> int:
    """Say what went wrong, each error on its own line, and return the exit code."""
    errors = [error, *(error.others if isinstance(error, ConfigError) else ())]
    if as_json:
        typer.echo(json.dumps({"error": [_error_record(one) for one in errors]}, ensure_ascii=False, indent=2, default=str))
    for one in errors:
        sys.stderr.write(f"holdfast: {visible(str(one))}\n")
    return error.exit_code


def _error_record(error: HoldfastError) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, ConfigError):
        record |= {"file": error.file, "line": error.line, "key": error.key, "nearest": error.nearest}
    return record


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
