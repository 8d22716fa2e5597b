"""A command with commands below it. Imported by every command: it needs nothing but typer."""

from __future__ import annotations

import shlex
from typing import Any

from typer.core import TyperGroup

from holdfast.errors import InputError


class CommandGroup(TyperGroup):
    """Says where an option goes that stands before the command that it belongs to."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # the types are private to typer
        option = args[0].partition("=")[0] if args and not ctx.resilient_parsing else ""
        at = next((place for place, word in enumerate(args) if word in self.commands), 0)
        if at and option.startswith("-") and not _takes(self, option):
            named, rest = ctx.command_path.split(), args[at:]
            command: Any = self
            while isinstance(command, TyperGroup) and rest and rest[0] in command.commands:
                named.append(rest[0])
                _, command, rest = command.resolve_command(ctx, rest)
            if _takes(command, option):
                hint = f"Type `{shlex.join([*named, *args[:at], *rest])}`."
                raise InputError(f"{option} stands after the command that it is for, not before.", hint=hint)
        return super().parse_args(ctx, args)


def _takes(command: Any, option: str) -> bool:
    known = {"-h", "--help", *(name for one in command.params for name in (*one.opts, *one.secondary_opts))}
    return option in known
