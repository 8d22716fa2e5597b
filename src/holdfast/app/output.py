"""How commands begin and how they speak: the harness of the configuration, tables for a person, one JSON document for a program.

`open_harness` is the one way in, and everything that a command works with is from it. `show` is the one way out: a command makes a plain
value and a function that draws it, and `--json` decides. Errors and the log go to standard error (O2).
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import logging
import os
import re
import shlex
import shutil
import sys
import threading
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from holdfast.app.command_group import CommandGroup
from holdfast.config.reading import BASE_NAME
from holdfast.errors import ConfigError, HoldfastError, InputError, NotTrusted, StorageError
from holdfast.events import JsonLines, PlainLines
from holdfast.redaction import harmless, redact_text, visible, visible_json
from holdfast.tracing import set_up_tracing
from holdfast.validation import counted, missing_extra

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions
    from rich.markdown import Markdown
    from rich.text import Text

    from holdfast.config.sections import Logging
    from holdfast.harness import Harness


_WIDEST = 110
"""Columns after which lines of prose are wrapped however wide the terminal is: longer ones are hard to read."""
_WORD = re.compile(r"\s*(?:[\u2e80-\u9fff\uac00-\ud7af\uff00-\uff60]|[^\s\u2e80-\u9fff\uac00-\ud7af\uff00-\uff60]+)\s*")
_NARROWEST, _READABLE, _INDENT = 20, 36, 4
"""Columns that prose has at least, that the text of a table has if it is one, and that stand before a text below its mark."""
_TOLD: set[str] = set()
"""Files of which it was said that they do not count whole."""
MOST_ERRORS = 20
"""Mistakes of one file that are told at once."""
JSON_LOG = threading.Event()
"""Whether the log is JSON: then standard error has nothing else, unless a person looks at it."""
TRACEBACKS = threading.Event()
"""Set by `--verbose`: the traceback of whatever goes wrong is shown too."""
_CONFIG = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The config.yaml to use. Default: HOLDFAST_CONFIG, then here and upwards."),
]
_JSON = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


class Given(NamedTuple):
    """The options that every command has."""

    config: Path | None = None
    as_json: bool = False


_GIVEN = [Given()]


def given() -> Given:
    """Those of the command that runs."""
    return _GIVEN[-1]


def command(
    app: typer.Typer, name: str | None = None, *, epilog: str, config: bool = True, json: bool = True, config_first: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make the function a command of this program, with `--config` and `--json` beside its own options: `given()` has their values."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def run(**options: Any) -> None:
            _GIVEN.append(Given(options.pop("config", None), options.pop("as_json", False)))
            try:
                function(**options)
            finally:
                _GIVEN.pop()

        own = [*inspect.signature(function, eval_str=True).parameters.values()]
        ours = [("config", _CONFIG, None)] * config + [("as_json", _JSON, False)] * json
        more = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind) for name, kind, default in ours]
        keywords = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in own]
        parameters = [more[0], *keywords, *more[1:]] if config_first else [*keywords, *more]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name, epilog=epilog)(run)
        return function

    return register


def group(help: str, epilog: str) -> typer.Typer:
    """A command that has commands below it."""
    return typer.Typer(cls=CommandGroup, help=help, epilog=epilog, rich_markup_mode=None, no_args_is_help=True, add_completion=False)


MEMORY = ("memory.dsn", "memory.storage_class", "memory.storage_path")
KNOWLEDGE = (
    *(f"knowledge.{key}" for key in ("adapter", "use", "arguments", "path", "dsn", "server", "collection")),
    "session.vector_store",
)
SESSIONS = ("session.storage_backend", "session.connection", "session.path", "session.vector_store", "memory.session_memory.path")
ALL_STATE = (*MEMORY, *KNOWLEDGE, *SESSIONS, f"{BASE_NAME}/")
"""The settings that say where something is kept: a command that is about it must not look elsewhere, nor write there."""


def open_harness(*needs: str, traced: bool = False, tells_notices: bool = False, logs: bool = False) -> Harness:
    """What the command works with, from the configuration that was given or the one that is found. The log follows that configuration.

    What of a file that was merely found does not count is said on standard error, whatever the file says about the log. `needs` are keys
    that the command is about: NotTrusted is raised when the file sets one of them and it does not count (C1). `traced` commands send spans
    where the standard `OTEL_*` variables say (O2). A command that `tells_notices` of the configuration itself has none of them in the log.
    One that `logs` keeps to the level of the configuration also where the file says nothing of it.
    """
    from holdfast.config.loading import announce, read_file
    from holdfast.harness import build

    config = read_file(given().config)  # what it has to say comes after the log is set up, which the file decides
    config.need(*needs)
    set_up_log(config.logging, said=logs or _asks_for_log(config.raw))
    if (told := config.trust.told(config.file)) is not None:
        _TOLD.add(str(config.file))
        complain(told)
    if not tells_notices:
        announce(config, withheld=False, policies=traced)
    if traced:
        set_up_tracing()
    return build(config)


def _asks_for_log(raw: Mapping[str, Any]) -> bool:
    """Whether the file says which log a command shows. A level that is but the copy of the reference's `log_level` is for a server."""
    said = raw.get("logging")
    return "logging" in raw and not (isinstance(said, Mapping) and said.keys() == {"level"} and said["level"] == raw.get("log_level"))


def set_up_log(settings: Logging, *, said: bool = True) -> None:
    """Send the log of this process to standard error. Where the file does not say a level, a command is quiet up to warnings.

    A log of JSON has nothing else: what other packages log, warnings and, unless it is a terminal, what `complain` says are objects too.
    """
    handler = logging.StreamHandler(sys.stderr)
    structured = settings.format == "json"
    handler.setFormatter(JsonLines() if structured else PlainLines("%(message)s"))
    others = logging.getLogger()
    others.handlers[:] = [one for one in others.handlers if not isinstance(one.formatter, JsonLines)] + [handler] * structured
    logging.captureWarnings(structured)
    (JSON_LOG.set if structured else JSON_LOG.clear)()
    ours = logging.getLogger("holdfast")
    ours.handlers[:] = [handler]
    ours.propagate = False
    ours.setLevel(settings.level.upper() if said else logging.WARNING)


def console() -> Console:
    """A terminal that is as wide as the real one; into a pipe it draws no colours and breaks no lines that a person would not."""
    given = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 160
    return clean_console()(highlight=False, soft_wrap=False, width=given)


@cache
def clean_console() -> type[Console]:
    """Rich's console, made so that no text that it is given, in a line, a table or a style, commands the terminal."""
    from rich.console import Console, RenderableType
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=visible(segment.text))

    return CleanConsole


def echo(text: str, *, exact: bool = False, nl: bool = True) -> None:
    """A line for a person. With `exact` it is a document, which a pipe gets as it is but for what would command a terminal behind it."""
    typer.echo(harmless(text) if exact and not sys.stdout.isatty() else visible(text), nl=nl)


def echo_json(value: Any) -> None:
    """A value for a program: one JSON document, in which what nobody sees is an escape."""
    typer.echo(visible_json(json.dumps(value, ensure_ascii=False, indent=2, default=_plain)))


def show(value: Any, draw: Callable[[Console], None]) -> None:
    """Print the value as JSON if that was asked for, else let `draw` put it on the terminal."""
    if given().as_json:
        echo_json(value)
    else:
        draw(console())


def say(value: Any, line: str, *, then: str | None = None) -> None:
    """Print the value as JSON if that was asked for, else a line for a person, and below it the command that comes `then`."""

    def draw(console: Console) -> None:
        prose(console, line)
        if then is not None:
            to_paste(console, then)

    show(value, draw)


def prose(console: Console, text: str | Text, *, mark: str | Text = "", style: str = "", paragraph: bool = False) -> None:
    """Print a text, on a terminal wrapped at words with its further lines below the first.

    `mark` stands before the first line, which may be a bullet or an indentation. A word that is too long for a line, such as a path, stays
    whole, so that it can be copied. Into a pipe no line is broken, unless it is a `paragraph`, which somebody reads from its beginning to
    its end.
    """
    shown = text if not isinstance(text, str) else plain(text, style)
    begins = mark if not isinstance(mark, str) else plain(mark)
    if not console.is_terminal and not paragraph:
        console.print(spans(begins, shown), soft_wrap=True)
        return
    if begins.cell_len > _INDENT and console.width - begins.cell_len < _NARROWEST:  # no room beside it
        console.print(begins, no_wrap=True, overflow="ignore", crop=False)
        begins = plain(" " * _INDENT)
    width = max(_NARROWEST, min(console.width, _WIDEST) - begins.cell_len)
    lines = [part for line in shown.split("\n", allow_blank=True) for part in line.divide(_breaks(line.plain, width))]
    for number, line in enumerate(lines):
        head = begins if number == 0 else plain(" " * begins.cell_len)
        line.rstrip()
        console.print(spans(head, line), no_wrap=True, overflow="ignore", crop=False)


def _breaks(line: str, width: int) -> list[int]:
    """Where a line is broken so that it fits: before words, and between the characters of scripts that are written without spaces."""
    from rich.cells import cell_len

    found, begun = [], 0
    for word in _WORD.finditer(line):
        if word.start() > begun and cell_len(line[begun : word.end()].rstrip()) > width:
            begun = word.start()
            found.append(begun)
    return found


def to_paste(console: Console, command: str) -> None:
    """Print a command on a line of its own, never broken: a terminal copies it as one."""
    console.print(plain(f"  {command}"), soft_wrap=True)


def markdown(text: str) -> Markdown:
    """A Markdown text as it is meant to be read: headings, lists, tables and code. Addresses of links stay visible."""
    from rich.markdown import Heading, ListItem, Markdown
    from rich.segment import Segment
    from rich.text import Text

    class LeftHeading(Heading):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
            if self.tag != "h1":
                yield Text("")
            self.text.justify = "left"
            self.text.stylize("underline" if self.tag == "h1" else "")
            yield self.text

    class DottedItem(ListItem):
        def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> Iterator[Segment]:
            wide = len(str(last_number)) + 2
            for place, line in enumerate(console.render_lines(self.elements, options.update(width=options.max_width - wide - 1))):
                yield Segment(f" {f'{number}. ':<{wide}}" if place == 0 else " " * (wide + 1))
                yield from line
                yield Segment("\n")

    class Left(Markdown):
        elements = {**Markdown.elements, "heading_open": LeftHeading, "list_item_open": DottedItem}  # noqa: RUF012 - as the class above

    return Left(visible(text), hyperlinks=False, code_theme="ansi_dark")


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is gone for good; where nobody can be asked it needs `--yes`. Raises InputError then: nothing has happened."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise InputError(f"{question} There is nobody to answer, so nothing was done.", hint="Say it with --yes.")
    typer.confirm(question, abort=True, err=True)


def piped_text(most: int | None = None) -> str:
    """What is piped in, with plain line ends. InputError if it is no UTF-8 (no letter is guessed), or has more than `most` characters."""
    data = sys.stdin.buffer.read(-1 if most is None else 4 * most + 1)  # a character has at most four bytes
    if most is None or len(data) <= 4 * most:
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            encoding = "UTF-16" if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) else "ISO-8859-1"
            raise InputError(
                f"what is piped in is not UTF-8 text, at byte {error.start}. Nothing was stored.",
                hint=f"Convert it first, from the encoding that it has: iconv -f {encoding} -t UTF-8 FILE",
            ) from error
        if most is None or len(text) <= most:
            return text.replace("\r\n", "\n").replace("\r", "\n")
    raise InputError(f"more than {most:,} characters were piped in.", hint="Give them as a file: `holdfast chat -p QUESTION -f FILE`.")


def check_place(store: str | None) -> None:
    """Refuse a path of a knowledge store at which there is none: a mistyped one would be made, and found empty, without a word."""
    if store is None or "://" in store or Path(store).expanduser().exists():
        return
    raise InputError(f"there is no knowledge store at {store}.", hint="`holdfast knowledge add` and `knowledge import` make one: -s PATH.")


def plain(value: str, style: str = "") -> Text:
    """A value as it is: never markup, and no character reaches the terminal that would command it."""
    from rich.text import Text

    return Text(visible(value), style)


def spans(*parts: Text) -> Text:
    """Texts one after the other, each in its own style: `+` would give the style of the first to all."""
    from rich.text import Text

    return Text().join(Text().append_text(part) for part in parts)


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


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a listing. One that is `right` holds figures; one that is `text` may take several lines. Where a row is a paragraph,
    the name of a column that is `right` or `named` is said with its value."""

    name: str
    right: bool = False
    text: bool = False
    named: bool = False
    style: str = ""

    def said(self, cell: Text) -> Text:
        """The value in a paragraph."""
        label = self.name if self.name == "#" else f"{self.name} "
        return spans(plain(label, "dim"), cell) if self.right or self.named else cell


def listing(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str | Text]], *, text_first: bool = True) -> None:
    """Print rows as a table where the terminal is wide enough for all of it, else each as a paragraph: its text, and the rest below it.

    Nothing is cut, and no column is shown in which nothing stands. With `text_first=False` a paragraph begins with the other columns, for
    rows that are looked for by their name.
    """
    cells = [[cell if not isinstance(cell, str) else plain(cell) for cell in row] for row in rows]
    used = [index for index, column in enumerate(columns) if column.text or any(row[index].plain for row in cells)]
    columns, cells = [columns[index] for index in used], [[row[index] for index in used] for row in cells]
    for row in cells:
        for column, cell in zip(columns, row, strict=True):
            cell.stylize_before(column.style)
    wide = [max([len(column.name), *(row[place].cell_len for row in cells)]) for place, column in enumerate(columns)]
    others = sum(size + 2 for size, column in zip(wide, columns, strict=True) if not column.text)
    longest = [size for size, column in zip(wide, columns, strict=True) if column.text]
    if console.width - others >= sum(min(size, _READABLE // len(longest)) + 2 for size in longest) - 2:
        from rich.table import Table

        drawn = Table(box=None, pad_edge=False, header_style="bold", show_header=any(column.name for column in columns))
        for column in columns:
            drawn.add_column(column.name, justify="right" if column.right else "left", no_wrap=not column.text, overflow="fold")
        for row in cells:
            drawn.add_row(*row)
        console.print(drawn)
        return
    for row in cells:
        _paragraph(console, columns, row, text_first=text_first)


def _paragraph(console: Console, columns: Sequence[Column], row: Sequence[Text], *, text_first: bool) -> None:
    cells = [(column, column.said(cell)) for column, cell in zip(columns, row, strict=True) if cell.plain]
    text, rest = (plain("  ").join(spans(cell) for column, cell in cells if column.text is wanted) for wanted in (True, False))
    first, second = (text, rest) if text_first else (rest, text)
    prose(console, first)
    if second.plain:
        prose(console, second, mark="  ")


def moment(time: str) -> str:
    """A time stamp to the minute, for people."""
    return time[:16].replace("T", " ")


def typed_error(error: Exception) -> HoldfastError:
    """The error as one of ours: itself, a storage error with its path, the extra that is missing, or a fault of the program."""
    import sqlite3

    from holdfast.durable.disk import storage_error

    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, sqlite3.Error):
        return StorageError(f"a database cannot be used: {error}.", hint="`holdfast doctor` looks at each of them.")
    if isinstance(error, OSError) and not error.filename and _output_is_lost():
        hint = "Send it elsewhere. What was done so far is kept; `holdfast resume` goes on with a session."
        return StorageError(f"the output could not be written: {error.strerror or error}.", hint=hint)
    if isinstance(error, OSError):
        return storage_error(error, os.fsdecode(error.filename) if error.filename else "a file", "use")
    known = missing_extra(error)
    told = f"this should not happen: {type(error).__name__}: {redact_text(str(error)) or 'no message'}."
    return known or HoldfastError(told, hint="The same command with --verbose shows where.")


def _output_is_lost() -> bool:
    """Whether it is the standard output that takes nothing: then an empty line fails as well, and what still waits goes nowhere."""
    try:
        sys.stdout.write("\n")
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        return True
    return False


def report_error(error: HoldfastError, *, as_json: bool) -> int:
    """Say what went wrong, each error on its own line, and return the exit code."""
    errors = [error, *(error.others if isinstance(error, ConfigError) else ())]
    if as_json:
        echo_json({"error": [_error_record(one) for one in errors]})
    shown = errors if len(errors) <= MOST_ERRORS + 1 else errors[:MOST_ERRORS]
    for one in shown:
        complain(as_typed(_once(one)))
    if len(errors) > len(shown):
        complain(f"and {counted(len(errors) - len(shown), 'more mistake')}; mend these first.")
    return error.exit_code


def as_typed(text: str) -> str:
    """What an error says, with the keywords that a Python program would give as the options that are typed here.

    >>> as_typed("`accept_changes=True` goes on with it.")
    '`--accept-changes` goes on with it.'
    """
    return _KEYWORD.sub(lambda found: f"`--{found[1].replace('_', '-')}`", text)


_KEYWORD = re.compile(r"`([a-z_]+)=(?:True|\.\.\.)`")


def _once(error: HoldfastError) -> str:
    """What an error says, without what this process has said already: that a file is not trusted, and what to do about it."""
    if not isinstance(error, NotTrusted) or str(error.file) not in _TOLD:
        return str(error)
    return str(NotTrusted("is needed for this, and does not count.", file=error.file, line=error.line, key=error.key))


def complain(text: str) -> None:
    """Say on standard error what is wrong: on a terminal wrapped at words, elsewhere one line."""
    if JSON_LOG.is_set() and not sys.stderr.isatty():
        logging.getLogger("holdfast").error("%s", text)
        return
    if not sys.stderr.isatty():
        sys.stderr.write(f"holdfast: {visible(text)}\n")
        return

    prose(clean_console()(file=sys.stderr, highlight=False), text, mark=plain("holdfast: ", "red"))


def _error_record(error: HoldfastError) -> dict[str, Any]:
    record: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": as_typed(error.hint) if error.hint else None}
    if isinstance(error, ConfigError):
        record |= {"file": error.file, "line": error.line, "key": error.key, "nearest": error.nearest}
    return record


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


@contextmanager
def progress_of(what: str, things: str) -> Iterator[Callable[[int, object], None]]:
    """A bar on a terminal, else a plain line on standard error now and then. It is told how many `things` are done, and of how many."""
    if not sys.stderr.isatty():
        last = 0

        def line(done: int, total: object) -> None:
            nonlocal last
            if done // 100 > last // 100:
                sys.stderr.write(f"{what}: {done} {things}\n")
            last = done

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    head, count = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn()), (MofNCompleteColumn(), TextColumn(things))
    with Bar(*head, *count, TimeElapsedColumn(), console=clean_console()(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total if isinstance(total, int) else None)
