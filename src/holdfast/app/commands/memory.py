"""`holdfast memory`: what is known about the user, where it comes from, and every way to change it (M14)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.amounts import counted
from holdfast.app.commands import memory_tables as tables
from holdfast.app.output import ALL_STATE, MEMORY, ConfigOption, JsonOption, confirm, echo_json, open_harness, say, show
from holdfast.config.known_keys import nearest
from holdfast.durable.replace import replace_json
from holdfast.durable.strict_json import decode
from holdfast.errors import InputError, NotThere
from holdfast.forgetting import Forgotten, forget_text
from holdfast.memory.document import fact_to_json
from holdfast.memory.facts import CATEGORIES, SLOTS
from holdfast.memory.history import held_to_json, to_record
from holdfast.text.needle import Needle

if TYPE_CHECKING:
    from holdfast.memory.service import MemoryService

app = typer.Typer(
    help="Look at what is known about the user, and change it.",
    epilog="Example: holdfast memory show --agent coder",
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
)


AgentOption = Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="The agent's own memory. Default: the global one.")]
Words = Annotated[list[str], typer.Argument(help="The words; quotes are not needed.")]


@contextmanager
def _memory(config: Path | None) -> Iterator[MemoryService]:
    """The memory that the configuration describes. A command looks or changes; it does not learn from what is queued."""
    with open_harness(config, *MEMORY) as harness:
        yield harness.memory


@app.command("show", epilog="Examples: holdfast memory show | holdfast memory show fact_1a2b3c4d | holdfast memory show --injected")
def show_memory(
    fact: Annotated[str | None, typer.Argument(help="The id of one fact: shows all that is known about it.")] = None,
    injected: Annotated[bool, typer.Option("--injected", help="The text exactly as the model sees it.")] = False,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the summaries and facts, one fact with its origin and history, or the text that is injected."""
    with open_harness(config, *MEMORY) as harness:
        memory = harness.memory
        if injected:
            rendering = memory.rendering_for(agent)
            show(rendering, lambda console: tables.draw_rendering(console, rendering), as_json=as_json)
        elif fact is not None:
            found = memory.document(agent).fact(fact)
            changes = memory.history(agent, fact=fact)
            if found is None and not changes:
                raise NotThere(f"there is no fact {fact!r}.", hint="`holdfast memory show` lists the ids.")
            value: Any = {"fact": fact_to_json(found) if found else None, "history": [to_record(change) for change in changes]}
            show(value, lambda console: tables.draw_fact(console, fact, found, changes), as_json=as_json)
        else:
            memory.store.check_lost(agent)
            status, document = memory.status(), memory.document(agent)
            inherited = agent is not None and memory.store.own(agent) is None and not document.empty
            where = memory.store.where(None if inherited else agent)
            base = {"base": str(harness.base), "base_source": harness.config.base_source}
            value = {"agent": agent, "path": where, **base, "inherited": inherited, "memory": memory.export(agent), "status": status}
            place = f"{where} ({harness.config.base_source})" if where.startswith(str(harness.base)) else where
            show(value, lambda console: tables.draw_document(console, document, place, inherited, status), as_json=as_json)


@app.command("search", epilog="Example: holdfast memory search which database")
def search(
    words: Words,
    top: Annotated[int, typer.Option("--top", min=1, max=200, help="How many facts.")] = 10,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the facts by words."""
    with _memory(config) as memory:
        memory.store.check_lost(agent)
        found = memory.search(" ".join(words), agent, top)
    value = [{"score": round(match.score, 4), "words": match.words, "fact": fact_to_json(match.fact)} for match in found]
    show(value, lambda console: tables.draw_matches(console, found), as_json=as_json)


@app.command("add", epilog='Example: holdfast memory add "Prefers short answers" --category preference')
def add(
    words: Words,
    category: Annotated[str, typer.Option("--category", help="preference, identity, goal, decision, ... or context.")] = "context",
    confidence: Annotated[float, typer.Option("--confidence", min=0.0, max=1.0, help="How sure it is.")] = 1.0,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Remember a fact. Secrets in it are redacted."""
    with _memory(config) as memory:
        _check_category(category, memory, agent)
        fact = memory.add(" ".join(words), agent, category=category, confidence=confidence)
    say(fact_to_json(fact), f"Remembered as {fact.id}: {fact.content}", as_json=as_json)


@app.command(
    "edit", epilog='Examples: holdfast memory edit fact_1a2b3c4d "Uses PostgreSQL 17" | holdfast memory edit topOfMind "The release"'
)
def edit(
    id: Annotated[str, typer.Argument(help="The fact, or a summary: workContext, personalContext, topOfMind, recentMonths, ...")],
    words: Annotated[list[str] | None, typer.Argument(help="The new words.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="A fact's new category.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", min=0.0, max=1.0, help="A fact's new confidence.")] = None,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change a fact or one of the six summaries. `undo` brings the old one back."""
    text = " ".join(words) if words else None
    if text is None and category is None and confidence is None:
        raise InputError("there is nothing to change.", hint="Give the new words, --category or --confidence.")
    with _memory(config) as memory:
        if id in SLOTS:
            memory.write_slot(id, text or "", agent)
            say({"slot": id, "summary": memory.document(agent).slot(id).text}, f"{id} changed.", as_json=as_json)
            return
        if category is not None:
            _check_category(category, memory, agent)
        fact = memory.edit(id, agent, content=text, category=category, confidence=confidence)
    say(fact_to_json(fact), f"{fact.id} is now: {fact.content} ({fact.category}, confidence {fact.confidence:.2f})", as_json=as_json)


def _check_category(category: str, memory: MemoryService, agent: str | None) -> None:
    """Refuse a category that is neither usual nor in use: most likely it is mistyped, and the fact would be found by nobody."""
    known = {*CATEGORIES, *(fact.category for fact in memory.document(agent).facts)}
    if category not in known:
        near = nearest(category, sorted(known))
        hint = f"Did you mean {near}?" if near else f"There are {', '.join(sorted(known))}."
        raise InputError(f"there is no category {category!r}.", hint=hint)


@app.command("forget", epilog='Examples: holdfast memory forget fact_1a2b3c4d | holdfast memory forget --text "Elm Street 5"')
def forget(
    facts: Annotated[list[str] | None, typer.Argument(help="The ids of facts (or of candidates in quarantine).")] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="WORDS", help="Everything that holds these words, in every memory.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Forget for good: from memory, its history, queue and quarantine; with --text from everything."""
    if bool(facts) == bool(text):
        raise InputError("say what to forget.", hint="Give the ids of facts, or --text with some words.")
    what = f"everything that holds {text!r}" if text else ", ".join(facts or ())
    with open_harness(config, *(ALL_STATE if text else MEMORY)) as harness:
        if text:
            needle = Needle(text)
            holding = counted(sum(needle.in_text(fact.content) for fact in harness.memory.document(agent).facts), "fact")
            also = f"{holding} and whatever records, conversations and sessions have of it"
            confirm(f"Forget everything that holds {text!r}: {also}? This cannot be undone.", yes=yes)
        else:
            for fact in facts or ():
                harness.memory.check_fact(fact, agent)
            confirm(f"Forget {counted(len(facts or ()), 'fact')} ({what})? This cannot be undone.", yes=yes)
        if text:
            done = forget_text(harness, text)
        else:
            done = Forgotten()
            for one in (harness.memory.forget(fact, agent) for fact in facts or ()):
                done.facts.extend(one.facts)
                for place, number in one.touched.items():
                    done.note(place, number)
    places = [f"  {place}: {number}" for place, number in done.touched.items()] + [f"  not forgotten: {one}" for one in done.left]
    lines = [f"Forgotten: {what}.", *places] if places else [f"Nothing holds {repr(text) if text else what}."]
    say({"facts": done.facts, "touched": done.touched, "left": done.left}, "\n".join(lines), as_json=as_json)
    if done.left:
        raise typer.Exit(1)


@app.command("undo", epilog="Examples: holdfast memory undo | holdfast memory undo change-01j8x")
def undo(
    change: Annotated[str | None, typer.Argument(help="The change to take back. Default: the newest that stands.")] = None,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take back a change. Undoing can be undone, by its own id."""
    with _memory(config) as memory:
        made = memory.undo(change, agent)
    show(to_record(made), lambda console: tables.draw_change(console, made), as_json=as_json)


@app.command("history", epilog="Examples: holdfast memory history --last 5 | holdfast memory history --fact fact_1a2b3c4d")
def history(
    fact: Annotated[str | None, typer.Option("--fact", metavar="ID", help="Only the changes of this fact or summary.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only so many of the newest.")] = None,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show every change: when, by whom, why, from where, and what was there before."""
    with _memory(config) as memory:
        changes = memory.history(agent, fact=fact, last=last)
        damage = memory.store.damage(agent)
    value = {"changes": [to_record(change) for change in changes], "damage": damage}
    show(value, lambda console: tables.draw_changes(console, changes, damage, in_full=fact is not None), as_json=as_json)


@app.command("repair", epilog="Example: holdfast memory repair")
def repair(agent: AgentOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Bring back, from the history, what was in a memory.json that was damaged. `undo` takes it back."""
    with _memory(config) as memory:
        made = memory.repair(agent)
    if made is None:
        say({"change": None}, "Nothing is missing: the memory holds all that its history knows.", as_json=as_json)
        return
    show(to_record(made), lambda console: tables.draw_change(console, made), as_json=as_json)


@app.command("retry", epilog="Example: holdfast memory retry")
def retry(config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Try again to learn from the conversations that were given up, and say what came of it."""
    with _memory(config) as memory:
        again = memory.retry_given_up()
        done = memory.flush() if again else None
    learned, failed, left = (done.done, done.failed, done.left) if done else (0, 0, 0)
    said = f"Tried again: {learned} learned from, {failed} failed, {left} wait." if again else "No conversation was given up."
    say({"retried": again, "learned": learned, "failed": failed, "waiting": left}, said, as_json=as_json)


@app.command("export", epilog="Example: holdfast memory export memory-backup.json")
def export(
    file: Annotated[Path | None, typer.Argument(help="Where to. Default: standard output.")] = None,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the memory document, in the form of memory.json."""
    with _memory(config) as memory:
        document = memory.export(agent)
    if file is None:
        echo_json(document)
        return
    replace_json(file.absolute(), document)
    say(
        {"path": str(file), "facts": len(document["facts"])},
        f"{counted(len(document['facts']), 'fact')} written to {file}.",
        as_json=as_json,
    )


@app.command("import", epilog="Example: holdfast memory import memory-backup.json --agent coder")
def import_(
    file: Annotated[Path, typer.Argument(help="A memory document in either spelling; - is standard input.")],
    replace: Annotated[bool, typer.Option("--replace", help="In place of all there is, instead of beside it.")] = False,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take in a memory document. What is known already is not doubled; `undo` takes it back."""
    data = _read(file)
    with _memory(config) as memory:
        made = memory.import_(data, agent, mode="replace" if replace else "merge")
    if made is None:
        say({"change": None}, "Everything in it is known already.", as_json=as_json)
        return
    show(to_record(made), lambda console: tables.draw_change(console, made), as_json=as_json)


def _read(file: Path) -> Any:
    if str(file) == "-":
        return decode(sys.stdin.buffer.read(), path="standard input")
    try:
        return decode(file.read_bytes(), path=str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.", hint="Give the path of a memory document.") from error


@app.command("review", epilog="Examples: holdfast memory review | holdfast memory review accept fact_9 | holdfast memory review reject all")
def review(
    action: Annotated[str, typer.Argument(help="list, accept or reject.")] = "list",
    ids: Annotated[list[str] | None, typer.Argument(help="The candidates' ids, or all.")] = None,
    agent: AgentOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Decide about what is in quarantine: candidates that might be instructions, or not the user's own words."""
    if action not in ("list", "accept", "reject"):
        raise InputError(f"{action!r} is not something that review can do.", hint="Use list, accept or reject.")
    with _memory(config) as memory:
        held = memory.review(agent)
        if action == "list":
            show([held_to_json(one) for one in held], lambda console: tables.draw_held(console, held), as_json=as_json)
            return
        chosen = [one.id for one in held] if ids == ["all"] else ids or []
        if not chosen:
            raise InputError(f"{action} needs ids.", hint="`holdfast memory review` lists what is in quarantine.")
        for one in chosen:
            memory.accept(one, agent) if action == "accept" else memory.reject(one, agent)
    say({action: chosen}, f"{action.capitalize()}ed: {', '.join(chosen)}.", as_json=as_json)
