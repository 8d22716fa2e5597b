"""`holdfast config`: check, init, upgrade."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import Column, ConfigOption, JsonOption, listing, open_harness, plain, prose, show
from holdfast.config.checks import Setting, effective_settings
from holdfast.config.loading import example_text, find_config
from holdfast.config.mcp_servers import all_servers
from holdfast.config.migration import upgrade_text
from holdfast.config.sections import Config
from holdfast.durable.replace import replace
from holdfast.errors import ConfigError, InputError

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.harness import Harness

app = typer.Typer(
    help="Check, write and upgrade config.yaml.",
    epilog="Example: holdfast config check --config config.yaml",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)


@app.command(epilog="Example: holdfast config check --all")
def check(
    config: ConfigOption = None,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show the defaults too, not only what the file and the environment set.")
    ] = False,
    servers: Annotated[bool, typer.Option("--servers", help="Start the MCP servers and show the tools of each.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the effective settings, where each came from, and what has no effect.

    Exits with 2 and one line for each mistake when the file is wrong.
    """
    with open_harness(config) as harness:
        loaded = harness.config
        found = _servers(harness, start=servers)
    settings = effective_settings(loaded)
    value = {
        "file": loaded.file,
        "base": loaded.base,
        "settings": [{"key": s.key, "value": s.value, "source": str(s.source)} for s in settings],
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
    said = [s for s in settings if everything or s.source.kind != "default"]
    prose(console, str(config.file) if config.file else "No config.yaml: every setting is a default.", style="bold")
    prose(console, f"State is kept in {config.base} ({config.base_source}).")
    console.print()
    file = str(config.file)
    rows = [(s.key, _short(s.value), str(s.source).replace(f"{file}:", "line ").replace(file, "file")) for s in said]
    if rows:
        listing(console, (Column("setting"), Column("value", text=True), Column("from", text=True, style="dim")), rows, text_first=False)
    hidden = len(settings) - len(said)
    if hidden:
        console.print()
        prose(console, f"{hidden} settings have their default; --all shows them.", style="dim")
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
    replace(output, example_text().encode())
    show({"file": output.absolute()}, lambda console: prose(console, f"Wrote {output}. Everything in it is optional."), as_json=as_json)


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
        replace(backup, old)
        replace(file, result.text.encode())
    show(value, lambda console: _draw_upgrade(console, file, [str(change) for change in result.changes], result.changed), as_json=as_json)


def _draw_upgrade(console: Console, file: Path, changes: list[str], changed: bool) -> None:
    if not changed:
        prose(console, f"{file} is in the current schema already.")
        return
    prose(console, f"{file} was upgraded; the old one is {file.name}.bak.")
    for change in changes:
        prose(console, f"  {change}")
