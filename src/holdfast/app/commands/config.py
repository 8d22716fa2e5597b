"""`holdfast config`: check, init, upgrade."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import ConfigOption, JsonOption, open_harness, show
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
        console.print(f"MCP server {one['name']} ({one['state']}, {one['file']}){tools}{problem}", markup=False, soft_wrap=True)
    if any(one["state"] == "on" for one in found):
        console.print("--servers starts them and shows their tools.", style="dim")


def _draw(console: Console, config: Config, settings: list[Setting], everything: bool) -> None:
    from rich.markup import escape
    from rich.table import Table

    said = [s for s in settings if everything or s.source.kind != "default"]
    console.print(f"[bold]{escape(str(config.file)) if config.file else 'No config.yaml: every setting is a default.'}[/]")
    console.print(f"State is kept in {escape(str(config.base))} ({config.base_source}).\n")
    file = str(config.file)
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 3, 0, 0))
    for heading in ("setting", "value", "from"):
        table.add_column(heading, overflow="fold")
    for setting in said:
        source = str(setting.source).replace(f"{file}:", "line ").replace(file, "file")
        table.add_row(escape(setting.key), escape(_short(setting.value)), f"[dim]{escape(source)}[/]")
    console.print(table)
    hidden = len(settings) - len(said)
    if hidden:
        console.print(f"\n[dim]{hidden} settings have their default; --all shows them.[/]")
    for notice in config.warnings:
        where = f"line {notice.line}: " if notice.line else ""
        console.print(f"\n[yellow]![/] {escape(where)}{escape(f'{notice.key}: ' if notice.key else '')}{escape(notice.message)}", end="")
    console.print("" if not config.warnings else "\n")


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
    show({"file": output.absolute()}, lambda console: console.print(f"Wrote {output}. Everything in it is optional."), as_json=as_json)


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
        console.print(f"{file} is in the current schema already.", markup=False)
        return
    console.print(f"{file} was upgraded; the old one is {file.name}.bak.", markup=False)
    for change in changes:
        console.print(f"  {change}", markup=False)
