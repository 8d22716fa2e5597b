"""How commands speak: tables for a person, one JSON document for a program, errors on standard error.

`show` is the one way out: a command makes a plain value and a function that draws it, and the caller's `--json` decides.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.errors import ConfigError, HoldfastError

if TYPE_CHECKING:
    from rich.console import Console

ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The config.yaml to use. Default: HOLDFAST_CONFIG, then here and upwards."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


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


def report_error(error: HoldfastError, *, as_json: bool) -> int:
    """Say what went wrong, each error on its own line, and return the exit code."""
    errors = [error, *(error.others if isinstance(error, ConfigError) else ())]
    if as_json:
        typer.echo(json.dumps({"error": [_error_record(one) for one in errors]}, ensure_ascii=False, indent=2, default=str))
    for one in errors:
        sys.stderr.write(f"holdfast: {one}\n")
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
