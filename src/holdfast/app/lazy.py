"""A command group that knows the names and one-line helps of its commands, and imports a command only when it is called.

`holdfast --help` therefore costs no more than a small typer program, however many commands there are.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command


@dataclass(frozen=True)
class Entry:
    """A command: its name, the module whose `app` it is or is in, its one-line help, and the heading it stands under."""

    name: str
    module: str
    help: str
    heading: str


def group_of(entries: Sequence[Entry]) -> type[TyperGroup]:
    """A typer group class over these entries."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for entry in entries:
                self.add_command(TyperCommand(entry.name, help=entry.help), entry.name)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # the types are private to typer
            for entry in entries:
                if args and entry.name == args[0]:
                    self.add_command(_load(entry), entry.name)
            return super().resolve_command(ctx, args)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            for heading in dict.fromkeys(entry.heading for entry in entries):
                with formatter.section(heading):
                    formatter.write_dl([(entry.name, entry.help) for entry in entries if entry.heading == heading])

    return LazyGroup


def _load(entry: Entry) -> Any:
    app = importlib.import_module(entry.module).app
    if not isinstance(app, typer.Typer):
        raise TypeError(f"{entry.module}.app is not a typer program")
    command = get_command(app)
    if isinstance(command, TyperGroup):  # a module with several commands, or one command with commands below it
        command = command.commands.get(entry.name, command)
    command.name = entry.name
    return command
