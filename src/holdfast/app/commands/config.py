"""`holdfast config`: check, init, upgrade, trust."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.amounts import counted
from holdfast.app.output import Column, ConfigOption, JsonOption, listing, open_harness, plain, prose, say, show
from holdfast.config.checks import Setting, effective_settings
from holdfast.config.environment import BASE_VARIABLE, base_directory
from holdfast.config.loading import FILE_NAME, asked_for, beside, example_text, find_config, servers_file, skills_folder
from holdfast.config.mcp_servers import EXTENSIONS, all_servers
from holdfast.config.migration import upgrade_text
from holdfast.config.sections import Config
from holdfast.config.trust import Withheld, agree, agreement, agreements, judge, revoke
from holdfast.durable.replace import replace
from holdfast.errors import ConfigError, InputError, NotTrusted

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.harness import Harness

app = typer.Typer(
    help="Check, write, upgrade and trust config.yaml.",
    epilog="Example: holdfast config check --config config.yaml",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)


@app.command(epilog="Example: holdfast config check --all")
def check(
    config: ConfigOption = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show the defaults too, not only what differs from them.")] = False,
    servers: Annotated[bool, typer.Option("--servers", help="Start the MCP servers and show the tools of each.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the effective settings, where each came from, and what has no effect.

    Exits with 2 and one line for each mistake when the file is wrong.
    """
    with open_harness(config, *(("mcp", EXTENSIONS) if servers else ())) as harness:
        loaded = harness.config
        found = _servers(harness, start=servers)
    settings = effective_settings(loaded)
    value = {
        "file": loaded.file,
        "base": loaded.base,
        "trust": {"state": loaded.trust.state, "reason": loaded.trust.reason, "left_out": [one.key for one in loaded.trust.withheld]},
        "settings": [{"key": s.key, "value": s.value, "source": str(s.source), "default": s.is_default} for s in settings],
        "warnings": [{"kind": w.kind, "key": w.key, "line": w.line, "message": w.message} for w in loaded.warnings],
        "mcp_servers": found,
    }

    def draw(console: Console) -> None:
        _draw(console, loaded, settings, everything)
        _draw_servers(console, found)

    show(value, draw, as_json=as_json)


def _servers(harness: Harness, *, start: bool) -> list[dict[str, Any]]:
    """Every MCP server that is named, where, and whether it is on; what it offers only when it may be started."""
    known = all_servers(harness.config)
    problems = [{"name": "", "file": "", "state": "problem", "problem": problem} for problem in known.problems]
    if start and known.origins:
        seen = [{**asdict(one), "tools": list(one.tools), "file": known.origins.get(one.name, "")} for one in harness.mcp.states()]
        return [*seen, *problems]
    states = [(name, "on") for name in known.enabled] + [(name, "off") for name in known.disabled]
    return [*({"name": name, "file": known.origins[name], "state": state} for name, state in states), *problems]


def _draw_servers(console: Console, found: list[dict[str, Any]]) -> None:
    for one in found:
        tools = f": {', '.join(one['tools'])}" if one.get("tools") else ""
        problem = f" {one['problem']}" if one.get("problem") else ""
        prose(console, f"MCP server {one['name']} ({one['state']}, {one['file']}){tools}{problem}")
    if any(one["state"] == "on" for one in found):
        console.print("--servers starts them and shows their tools.", style="dim")


def _draw(console: Console, config: Config, settings: list[Setting], everything: bool) -> None:
    said = [s for s in settings if everything or not s.is_default]
    prose(console, str(config.file) if config.file else "No config.yaml: every setting is a default.", style="bold")
    if config.file is not None:
        prose(console, f"It {config.trust.reason}{'' if config.trust.whole else ': only its plain settings count'}.")
    prose(console, f"State is kept in {config.base} ({config.base_source}).")
    console.print()
    file = str(config.file)
    rows = [(s.key, _short(s.value), str(s.source).replace(f"{file}:", "line ").replace(file, "file")) for s in said]
    if rows:
        listing(console, (Column("setting"), Column("value", text=True), Column("from", text=True, style="dim")), rows, text_first=False)
    hidden = [s for s in settings if s not in said]
    if hidden:
        written = sum(s.source.kind != "default" for s in hidden)
        also = f", {written} of them written in the file" if written else ""
        console.print()
        prose(console, f"{counted(len(hidden), 'setting')} with the default{also}; --all shows them.", style="dim")
    for notice in config.warnings:
        where = f"line {notice.line}: " if notice.line else ""
        console.print()
        prose(console, f"{where}{f'{notice.key}: ' if notice.key else ''}{notice.message}", mark=plain("! ", "yellow"))


def _short(value: Any) -> str:
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else f"{text[:197]}..."


@app.command(epilog="Example: holdfast config init --output config.yaml")
def init(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("config.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented example with every setting and its default."""
    if output.exists() and not force:
        raise InputError(f"{output} is there already.", hint="Choose another name with --output, or replace it with --force.")
    there = beside(output.absolute().parent)
    before, _ = base_directory(None)
    replace(output, example_text().encode())
    told = f"Wrote {output}. Everything in it is optional. {agree_to_own(output, there)}{_moved(output, before)}"
    show({"file": output.absolute()}, lambda console: prose(console, told), as_json=as_json)


def _moved(output: Path, before: Path) -> str:
    """Where state is kept from now on, if there is some elsewhere: it would seem to be gone (C6)."""
    now, _ = base_directory(output)
    if now == before or not before.is_dir():
        return ""
    return (
        f" Here, state is kept in {now} from now on. What was kept so far stays in {before}: to go on with it, set {BASE_VARIABLE} to that."
    )


@app.command(epilog="Example: holdfast config upgrade --dry-run")
def upgrade(
    config: ConfigOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new text and change nothing.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the file to the current schema. Every comment stays, and the old file is left beside it as `.bak`."""
    file = find_config(config)
    if file is None:
        raise ConfigError("there is no config.yaml to upgrade.", hint="`holdfast config init` writes one.")
    old = file.read_bytes()
    result = upgrade_text(old, file)
    value = {
        "file": file,
        "changed": result.changed,
        "changes": [str(change) for change in result.changes],
        "text": result.text if dry_run else None,
    }
    if dry_run:
        show(value, lambda console: console.out(result.text, end="", highlight=False), as_json=as_json)
        return
    if result.changed:
        backup = file.with_name(f"{file.name}.bak")
        was_trusted = judge(file, old, *_belonging(asked_for(file)[0])).state == "trusted"
        replace(backup, old)
        replace(file, result.text.encode())
        if was_trusted:  # what was agreed to is the same in another form
            _agree(file)
    show(value, lambda console: _draw_upgrade(console, file, [str(change) for change in result.changes], result.changed), as_json=as_json)


def agree_to_own(file: Path, there: Sequence[Withheld]) -> str:
    """Agree to a file that we have just written, unless something was `there` in the folder that would count from then on. Says so."""
    if there and agreement(file) is None:
        return f"There was {', '.join(one.key for one in there)} in the folder already: `holdfast config trust` lets all of it count."
    try:
        _agree(file)
    except NotTrusted as error:
        return f"It is used with --config only: it {error.message}"
    return "It is trusted as it is; after an edit `holdfast config trust` agrees again."


def _agree(file: Path, config: Config | None = None) -> None:
    source = file.read_bytes() if file.exists() else None
    agree(file, source, *_belonging(config or asked_for(file)[0]), time=datetime.now(UTC).isoformat(timespec="seconds"))


def _belonging(config: Config) -> tuple[Path | None, Path | None]:
    """What is agreed to together with a configuration: its file of MCP servers, and its skills."""
    return servers_file(config), skills_folder(config)


@app.command(epilog="Examples: holdfast config trust | holdfast config trust ~/work/config.yaml | holdfast config trust --list")
def trust(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A config.yaml or its folder. Default: the one found here.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what was agreed to, and whether it still holds.")] = False,
    revoked: Annotated[bool, typer.Option("--revoke", help="Take the agreement back.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Agree to a config.yaml that is found and not named, as it stands now: its models, classes, commands, addresses, variables, mounts.

    Without it only the plain settings of such a file count. Any change to it, or to the extensions_config.json beside it, needs a new
    agreement. A file that somebody else owns or may write to cannot be trusted.
    """
    if listed:
        rows = [{"file": str(one.path), "since": one.time, "state": _state(one.path)} for one in agreements()]
        show({"trusted": rows}, lambda console: _draw_agreements(console, rows), as_json=as_json)
        return
    file = _trust_file(path)
    if revoked:
        gone = revoke(file)
        told = f"{file} is not trusted any more." if gone else f"{file} was not trusted."
        say({"file": file, "state": "unknown", "revoked": gone}, told, as_json=as_json)
        return
    config, asks = asked_for(file)
    _agree(file, config)
    keys = [one.key for one in asks]
    values = [one for one in effective_settings(config) if any(one.key.startswith(key) for key in keys) and one.source.kind != "default"]
    value = {"file": file, "state": "trusted", "asks_for": keys, "base": config.base}

    def draw(console: Console) -> None:
        prose(console, f"{file} is trusted as it is now{', and so is what it asks for:' if asks else '. It asks for nothing more.'}")
        for key in keys:
            said = [one for one in values if one.key == key or one.key.startswith((f"{key}.", f"{key}["))]
            for one in said:
                prose(console, f"  {one.key}: {_short(one.value)}")
            if not said:
                prose(console, f"  {key}")
        prose(console, f"State is kept in {config.base}.")

    show(value, draw, as_json=as_json)


def _trust_file(path: Path | None) -> Path:
    """The config.yaml that is meant; where there is none, the folder's, which stands for what else lies in it."""
    if path is None:
        return find_config(environ={}) or Path.cwd() / FILE_NAME
    path = path.expanduser().absolute()
    file = path / FILE_NAME if path.is_dir() else path
    if file.name != FILE_NAME:
        raise InputError(f"{path} is never found, only named.", hint=f"Files called {FILE_NAME} are found; --config FILE names another.")
    if not file.parent.is_dir() or (file != path / FILE_NAME and not file.exists()):
        raise InputError(f"{file} is not there.", hint="`holdfast config init` writes one.")
    return file


def _state(file: Path) -> str:
    """Whether an agreement still holds: trusted, changed, foreign, gone, or broken where the file cannot be read."""
    if not file.parent.is_dir():
        return "gone"
    try:
        return judge(file, file.read_bytes() if file.exists() else None, *_belonging(asked_for(file)[0])).state
    except (ConfigError, OSError):
        return "broken"


def _draw_agreements(console: Console, rows: list[dict[str, str]]) -> None:
    if not rows:
        console.print("Nothing is trusted.")
    for row in rows:
        prose(console, f"{row['since'][:16].replace('T', ' ')}  {row['state']:8} {row['file']}")


def _draw_upgrade(console: Console, file: Path, changes: list[str], changed: bool) -> None:
    if not changed:
        prose(console, f"{file} is in the current schema already.")
        return
    prose(console, f"{file} was upgraded; the old one is {file.name}.bak.")
    for change in changes:
        prose(console, f"  {change}")
