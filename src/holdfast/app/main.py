"""The program `holdfast`. Commands are listed here and imported when they are called.

The command group knows the names and one-line helps of its commands, and imports a command only when it is called.
"""

from __future__ import annotations

import importlib
import io
import os
import shutil
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from holdfast import __version__
from holdfast.app.command_group import CommandGroup
from holdfast.errors import InputError


@dataclass(frozen=True)
class Entry:
    """A command: its name, the module of `commands/` whose `app` or `NAME_app` it is or is in, its one-line help, and its heading."""

    name: str
    module: str
    help: str
    heading: str


def group_of(entries: Sequence[Entry]) -> type[TyperGroup]:
    """A typer group class over these entries."""

    class LazyGroup(CommandGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            for entry in entries:
                self.add_command(TyperCommand(entry.name, help=entry.help), entry.name)

        def make_context(self, *words: Any, **settings: Any) -> Any:
            with _clean_refusals():
                return super().make_context(*words, **settings)

        def invoke(self, ctx: Any) -> Any:
            with _clean_refusals():
                return super().invoke(ctx)

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


_REFUSAL: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")  # private to typer


@contextmanager
def _clean_refusals() -> Iterator[None]:
    """What typer says of a command line repeats its words: they are cleaned here for all commands, before it is shown.

    Below it stands the first example of the command, as its help has it.
    """
    try:
        yield
    except _REFUSAL as error:
        from holdfast.redaction import visible

        for name, value in vars(error).items():
            if isinstance(value, str):
                setattr(error, name, visible(value))
        context, said = getattr(error, "ctx", None), error.format_message()  # type: ignore[attr-defined]  # private to typer
        if context is not None and context.parent is not None and context.command.epilog and "Example" not in said:
            example = context.command.epilog.partition(" | ")[0].replace("Examples:", "Example:")
            vars(error)["format_message"] = lambda: f"{said}\n{example}"
        raise


def _load(entry: Entry) -> Any:
    module = importlib.import_module(f"holdfast.app.commands.{entry.module}")
    command = get_command(getattr(module, f"{entry.name}_app", module.app))
    if isinstance(command, TyperGroup):  # a module with several commands, or one command with commands below it
        command = command.commands.get(entry.name, command)
    command.name = entry.name
    _take_short_help(command)
    return command


def _take_short_help(command: Any) -> None:
    """`-h` beside `--help`, and names of values that people can read, for the command and all below it."""
    command.context_settings.setdefault("help_option_names", ["-h", "--help"])
    for parameter in command.params:
        _name_values(parameter)
    for below in command.commands.values() if isinstance(command, TyperGroup) else ():
        _take_short_help(below)


def _name_values(parameter: Any) -> None:
    """`--top N` and `PATH` in place of `<int range>` and `{path} <path>`."""
    if parameter.metavar is None and not getattr(parameter, "is_flag", False):
        number = parameter.min is not None or parameter.type_descriptor.annotation is int
        parameter.metavar = "N" if number else parameter.name.upper().replace("_", "-")
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: ""
        if parameter.required:
            shown = parameter.metavar.removesuffix("...") + ("..." if parameter.nargs != 1 else "")
            parameter.get_usage_pieces = lambda ctx: [shown]


COMMANDS = (
    Entry("chat", "chat", "Talk to the agent; the conversation survives everything.", "Agents"),
    Entry("run", "workflows", "Run a workflow; whatever stops it, it can be resumed.", "Workflows"),
    Entry("resume", "workflows", "Go on with a session that was stopped, halted or killed.", "Workflows"),
    Entry("cancel", "workflows", "Stop a running session at once.", "Workflows"),
    Entry("approve", "workflows", "Agree with a stage that waits, and go on.", "Workflows"),
    Entry("reject", "workflows", "Refuse what a stage wrote, and say why.", "Workflows"),
    Entry("sessions", "sessions", "List the sessions: how far each came, and what keeps it.", "Workflows"),
    Entry("session", "sessions", "Look at a session: fix, edit, compare, fork, restore, export it.", "Workflows"),
    Entry("worker", "workers", "Advance queued sessions, on as many machines as you like.", "Workflows"),
    Entry("schedule", "workers", "Begin workflows by the clock.", "Workflows"),
    Entry("mcp", "serve", "Serve memory, knowledge, history and sessions to other agents.", "Agents"),
    Entry("acp", "serve", "Serve the agent to an editor (Zed and others).", "Agents"),
    Entry("config", "settings", "Check, write, upgrade and trust config.yaml.", "Settings"),
    Entry("doctor", "maintenance", "Look at this installation: versions, model, folders, sandbox, disk.", "Settings"),
    Entry("import", "maintenance", "Take over memory and configuration from another installation.", "Settings"),
    Entry("backup", "maintenance", "Copy all state while everything goes on running.", "Settings"),
    Entry("restore", "maintenance", "Check a backup and put it back.", "Settings"),
    Entry("prune", "maintenance", "Remove completed sessions and sub-agents that are too old.", "Settings"),
    Entry("models", "settings", "List, install and test models.", "Settings"),
    Entry("skills", "settings", "List skills, and switch them on and off.", "Settings"),
    Entry("memory", "memory", "See, search, correct and undo what is known about you.", "Memory"),
    Entry("knowledge", "knowledge", "Search, add, import and forget records of long-term memory.", "Memory"),
    Entry("eval", "knowledge", "Measure recall on your own data.", "Memory"),
    Entry("threads", "history", "List the conversations: go on in one, or read it.", "Agents"),
    Entry("serve", "serve", "Serve it all over HTTP, and any model to clients of others.", "Agents"),
    Entry("history", "history", "Read and search what was said in a thread.", "Working memory"),
    Entry("budget", "history", "Show how a model's window is split.", "Working memory"),
    Entry("compact", "history", "Shorten a conversation now, losing nothing.", "Working memory"),
)

app = typer.Typer(
    name="holdfast",
    cls=group_of(COMMANDS),
    help="Keeps what an agent needs: inside the window, across crashes, across conversations.",
    epilog="Example: holdfast config check",
    rich_markup_mode=None,  # plain help: the formatted one imports 0.3 s of Markdown and syntax colouring
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    add_completion=True,
    no_args_is_help=False,
    invoke_without_command=True,
)


@app.callback()
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show the traceback of an error, also one that an agent of yours raised; may stand anywhere.")
    ] = False,
) -> None:
    """Keeps what an agent needs: inside the window, across crashes, across conversations."""
    if version:
        typer.echo(f"holdfast {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the program. Whatever goes wrong is one clear message and an exit code; the traceback is shown with `--verbose` alone."""
    _open_closed_streams()
    verbose = _take_flag("--verbose")
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without this letter, or bytes that are no text, end nothing
    if verbose:
        from holdfast.app.output import TRACEBACKS

        TRACEBACKS.set()
    try:
        _check_arguments(sys.argv[1:])
        app(prog_name="holdfast", terminal_width=_help_width())
    except KeyboardInterrupt:
        typer.echo("holdfast: stopped", err=True)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 - the outermost handler: everything is told in a sentence, also what nobody foresaw
        from holdfast.app.output import report_error, typed_error
        from holdfast.redaction import visible

        if verbose:
            sys.stderr.write(visible(traceback.format_exc()))

        sys.exit(report_error(typed_error(error), as_json="--json" in sys.argv[1:]))


def _help_width() -> int | None:
    """The columns for help on a narrow terminal; None elsewhere. Left to itself it is never narrower than 50."""
    columns = shutil.get_terminal_size().columns
    return max(20, columns - 2) if columns < 52 else None


def _open_closed_streams() -> None:
    """Where a standard stream is closed (`>&-`, a daemon), read nothing and write nowhere: no file of ours may get its number."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115, PTH123 - open for as long as the program runs; every command starts here
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123


def _take_flag(name: str) -> bool:
    """Whether the flag stands anywhere before a `--`; it is taken out, so that every command knows it."""
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    if name not in sys.argv[1:end]:
        return False
    sys.argv[1:end] = [word for word in sys.argv[1:end] if word != name]
    return True


def _check_arguments(words: Sequence[str]) -> None:
    """Refuse words that are not text in UTF-8, unless they name a file that is there."""
    for number, word in enumerate(words, 1):
        if any("\ud800" <= letter <= "\udfff" for letter in word) and not os.path.lexists(word):
            shown = os.fsencode(word).decode(errors="replace")
            raise InputError(f"word {number} of the command ({shown}) is not UTF-8.", hint="Type it in UTF-8, or give the text in a file.")


if __name__ == "__main__":
    main()
