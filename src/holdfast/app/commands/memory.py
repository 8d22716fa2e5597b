"""`holdfast memory`: what is known about the user, where it comes from, every way to change it (M14), and how it looks on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from holdfast.app.output import (
    ALL_STATE,
    MEMORY,
    Column,
    command,
    confirm,
    echo_json,
    group,
    listing,
    moment,
    open_harness,
    piped_text,
    plain,
    prose,
    say,
    show,
    spans,
)
from holdfast.durable.folder import open_outside
from holdfast.durable.replace import replace_json
from holdfast.durable.strict_json import decode
from holdfast.errors import InputError, NotThere
from holdfast.memory.document import fact_to_json, is_summary_name, summary_label
from holdfast.memory.facts import CATEGORIES
from holdfast.memory.history import held_to_json, to_record
from holdfast.memory.rendering import best_first
from holdfast.text.needle import Needle
from holdfast.validation import counted, nearest

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.memory.document import Document, Match
    from holdfast.memory.facts import Fact
    from holdfast.memory.history import Change, Difference, Held
    from holdfast.memory.reading import Status
    from holdfast.memory.rendering import Rendering
    from holdfast.memory.service import MemoryService


app = group("Look at what is known about the user, and change it.", epilog="Example: holdfast memory show --agent coder")


AgentOption = Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="The agent's own memory. Default: the global one.")]
Words = Annotated[list[str], typer.Argument(help="The words; quotes are not needed.")]


@contextmanager
def _memory() -> Iterator[MemoryService]:
    """The memory that the configuration describes. A command looks or changes; it does not learn from what is queued."""
    with open_harness(*MEMORY) as harness:
        yield harness.memory


@command(app, "show", epilog="Examples: holdfast memory show | holdfast memory show fact_1a2b3c4d | holdfast memory show --injected")
def show_memory(
    fact: Annotated[str | None, typer.Argument(help="The id of one fact: shows all that is known about it.")] = None,
    injected: Annotated[bool, typer.Option("--injected", help="The text exactly as the model sees it.")] = False,
    agent: AgentOption = None,
) -> None:
    """Show the summaries and facts, one fact with its origin and history, or the text that is injected."""
    with open_harness(*MEMORY) as harness:
        memory = harness.memory
        if injected:
            rendering = memory.rendering_for(agent)
            show(rendering, lambda console: draw_rendering(console, rendering))
        elif fact is not None:
            found = memory.document(agent).fact(fact)
            changes = memory.history(agent, fact=fact)
            if found is None and not changes:
                raise NotThere(f"there is no fact {fact!r}.", hint="`holdfast memory show` lists the ids.")
            value: Any = {"fact": fact_to_json(found) if found else None, "history": [to_record(change) for change in changes]}
            show(value, lambda console: draw_fact(console, fact, found, changes))
        else:
            memory.store.check_lost(agent)
            status, document = memory.status(), memory.document(agent)
            inherited = agent is not None and memory.store.own(agent) is None and not document.empty
            where = memory.store.where(None if inherited else agent)
            base = {"base": str(harness.base), "base_source": harness.config.base_source}
            value = {"agent": agent, "path": where, **base, "inherited": inherited, "memory": memory.export(agent), "status": status}
            place = f"{where} ({harness.config.base_source})" if where.startswith(str(harness.base)) else where
            show(value, lambda console: draw_document(console, document, place, inherited, status))


@command(app, "search", epilog="Example: holdfast memory search which database")
def search(
    words: Words,
    top: Annotated[int, typer.Option("--top", min=1, max=200, help="How many facts.")] = 10,
    agent: AgentOption = None,
) -> None:
    """Search the facts by words."""
    with _memory() as memory:
        memory.store.check_lost(agent)
        found = memory.search(" ".join(words), agent, top)
    value = [{"score": round(match.score, 4), "words": match.words, "fact": fact_to_json(match.fact)} for match in found]
    show(value, lambda console: draw_matches(console, found))


@command(app, "add", epilog='Example: holdfast memory add "Prefers short answers" --category preference')
def add(
    words: Words,
    category: Annotated[str, typer.Option("--category", help="preference, identity, goal, decision, ... or context.")] = "context",
    confidence: Annotated[float, typer.Option("--confidence", min=0.0, max=1.0, help="How sure it is.")] = 1.0,
    agent: AgentOption = None,
) -> None:
    """Remember a fact, in place of one that says otherwise. What reads like a secret is refused. A single - reads standard input."""
    with _memory() as memory:
        _check_category(category, memory, agent)
        known = {one.id: one.content for one in memory.document(agent).facts}
        text = piped_text().strip() if words == ["-"] else " ".join(words)
        fact = memory.add(text, agent, category=category, confidence=confidence)
    replaced = "; ".join(known.get(id, id) for id in fact.replaces)
    line = f"Remembered as {fact.id}: {fact.content}" + (f"\nReplaces: {replaced}. This brings it back:" if replaced else "")
    say(fact_to_json(fact), line, then="holdfast memory undo" if replaced else None)


@command(
    app, "edit", epilog='Examples: holdfast memory edit fact_1a2b3c4d "Uses PostgreSQL 17" | holdfast memory edit topOfMind "The release"'
)
def edit(
    id: Annotated[str, typer.Argument(help="The fact, or a summary: workContext, personalContext, topOfMind, recentMonths, ...")],
    words: Annotated[list[str] | None, typer.Argument(help="The new words.")] = None,
    category: Annotated[str | None, typer.Option("--category", help="A fact's new category.")] = None,
    confidence: Annotated[float | None, typer.Option("--confidence", min=0.0, max=1.0, help="A fact's new confidence.")] = None,
    agent: AgentOption = None,
) -> None:
    """Change a fact or one of the six summaries. `undo` brings the old one back."""
    text = " ".join(words) if words else None
    if text is None and category is None and confidence is None:
        raise InputError("there is nothing to change.", hint="Give the new words, --category or --confidence.")
    with _memory() as memory:
        if is_summary_name(id):
            memory.write_slot(id, text or "", agent)
            say({"slot": id, "summary": memory.document(agent).slot(id).text}, f"{id} changed.")
            return
        if category is not None:
            _check_category(category, memory, agent)
        fact = memory.edit(id, agent, content=text, category=category, confidence=confidence)
    say(fact_to_json(fact), f"{fact.id} is now: {fact.content} ({fact.category}, confidence {fact.confidence:.2f})")


def _check_category(category: str, memory: MemoryService, agent: str | None) -> None:
    """Refuse a category that is neither usual nor in use: most likely it is mistyped, and the fact would be found by nobody."""
    known = {*CATEGORIES, *(fact.category for fact in memory.document(agent).facts)}
    if category not in known:
        near = nearest(category, sorted(known))
        hint = f"Did you mean {near}?" if near else f"There are {', '.join(sorted(known))}."
        raise InputError(f"there is no category {category!r}.", hint=hint)


@command(app, "forget", epilog='Examples: holdfast memory forget fact_1a2b3c4d | holdfast memory forget --text "Elm Street 5"')
def forget(
    facts: Annotated[list[str] | None, typer.Argument(help="The ids of facts (or of candidates in quarantine).")] = None,
    text: Annotated[str | None, typer.Option("--text", metavar="WORDS", help="Everything that holds these words, in every memory.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    agent: AgentOption = None,
) -> None:
    """Forget for good: from memory, its history, queue and quarantine; with --text from everything."""
    from holdfast.forgetting import Forgotten, forget_text  # it knows every store; a chat, which draws memory as well, does not need it

    if bool(facts) == bool(text):
        raise InputError("say what to forget.", hint="Give the ids of facts, or --text with some words.")
    what = f"everything that holds {text!r}" if text else ", ".join(facts or ())
    with open_harness(*(ALL_STATE if text else MEMORY)) as harness:
        if text:
            Needle.asked(text)
            holding = counted(len(harness.memory.facts_with(text)), "fact")
            also = f"{holding} and whatever records, conversations and sessions have of it"
            confirm(f"Forget everything that holds {text!r}: {also}? This cannot be undone.", yes=yes)
            done = forget_text(harness, text)
        else:
            for fact in facts or ():
                harness.memory.check_fact(fact, agent)
            confirm(f"Forget {counted(len(facts or ()), 'fact')} ({what})? This cannot be undone.", yes=yes)
            done = Forgotten()
            for one in (harness.memory.forget(fact, agent) for fact in facts or ()):
                done.facts.extend(one.facts)
                for place, number in one.touched.items():
                    done.note(place, number)
    places = [f"  {place}: {number}" for place, number in done.touched.items()] + [f"  not forgotten: {one}" for one in done.left]
    lines = [f"Forgotten: {what}.", *places] if places else [f"Nothing holds {repr(text) if text else what}."]
    say({"facts": done.facts, "touched": done.touched, "left": done.left}, "\n".join(lines))
    if done.left:
        raise typer.Exit(1)


@command(app, "undo", epilog="Examples: holdfast memory undo | holdfast memory undo change-01j8x")
def undo(
    change: Annotated[str | None, typer.Argument(help="The change to take back. Default: the newest that stands.")] = None,
    agent: AgentOption = None,
) -> None:
    """Take back a change. Undoing can be undone, by its own id."""
    with _memory() as memory:
        made = memory.undo(change, agent)
    _show_change(made)


def _show_change(made: Change | None, none: str = "") -> None:
    if made is None:
        say({"change": None}, none)
    else:
        show(to_record(made), lambda console: draw_change(console, made))


@command(app, "history", epilog="Examples: holdfast memory history --last 5 | holdfast memory history --fact fact_1a2b3c4d")
def history(
    fact: Annotated[str | None, typer.Option("--fact", metavar="ID", help="Only the changes of this fact or summary.")] = None,
    last: Annotated[int | None, typer.Option("--last", min=1, help="Only so many of the newest.")] = None,
    agent: AgentOption = None,
) -> None:
    """Show every change: when, by whom, why, from where, and what was there before."""
    with _memory() as memory:
        changes = memory.history(agent, fact=fact, last=last)
        damage = memory.store.damage(agent)
    value = {"changes": [to_record(change) for change in changes], "damage": damage}
    show(value, lambda console: draw_changes(console, changes, damage, in_full=fact is not None))


@command(app, "repair", epilog="Example: holdfast memory repair")
def repair(agent: AgentOption = None) -> None:
    """Bring back, from the history, what was in a memory.json that was damaged. `undo` takes it back."""
    with _memory() as memory:
        made = memory.repair(agent)
    _show_change(made, "Nothing is missing: the memory holds all that its history knows.")


@command(app, "retry", epilog="Example: holdfast memory retry")
def retry() -> None:
    """Try again to learn from the conversations that were given up, and say what came of it."""
    with _memory() as memory:
        again = memory.retry_given_up()
        done = memory.flush() if again else None
    learned, failed, left = (done.done, done.failed, done.left) if done else (0, 0, 0)
    said = f"Tried again: {learned} learned from, {failed} failed, {left} wait." if again else "No conversation was given up."
    say({"retried": again, "learned": learned, "failed": failed, "waiting": left}, said)


@command(app, "export", epilog="Example: holdfast memory export memory-backup.json")
def export(
    file: Annotated[Path | None, typer.Argument(help="Where to; - and the default are standard output.")] = None,
    agent: AgentOption = None,
) -> None:
    """Write the memory document, in the form of memory.json."""
    with _memory() as memory:
        document = memory.export(agent)
    if file is None or str(file) == "-":
        echo_json(document)
        return
    replace_json(file.absolute(), document)
    say({"path": str(file), "facts": len(document["facts"])}, f"{counted(len(document['facts']), 'fact')} written to {file}.")


@command(app, "import", epilog="Example: holdfast memory import memory-backup.json --agent coder")
def import_(
    file: Annotated[Path, typer.Argument(help="A memory document in either spelling; - is standard input.")],
    replace: Annotated[bool, typer.Option("--replace", help="In place of all there is, instead of beside it.")] = False,
    agent: AgentOption = None,
) -> None:
    """Take in a memory document. Secrets are left out, orders wait in `review`; what is known is not doubled, and `undo` takes it back."""
    data = _read(file)
    with _memory() as memory:
        made, left_out = memory.take_in(data, agent, mode="replace" if replace else "merge")
    held = len(made.held) if made else 0
    counts = {"active": _active(made), "held": held, "left_out": list(left_out)}
    value = {**(to_record(made) if made else {"change": None}), "counts": counts}
    show(value, lambda console: draw_import(console, made, held, left_out))
    if left_out:
        raise typer.Exit(1)


def _active(made: Change | None) -> int:
    """How many facts came in with a change."""
    return sum(one.kind == "fact" and one.before is None for one in made.differences) if made else 0


def _read(file: Path) -> Any:
    if str(file) == "-":
        return decode(sys.stdin.buffer.read(), path="standard input")
    try:
        with open_outside(file) as opened:
            return decode(opened.read(), path=str(file))
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}.", hint="Give the path of a memory document.") from error


@command(
    app, "review", epilog="Examples: holdfast memory review | holdfast memory review accept fact_9 | holdfast memory review reject all"
)
def review(
    action: Annotated[str, typer.Argument(help="list, accept or reject.")] = "list",
    ids: Annotated[list[str] | None, typer.Argument(help="The candidates' ids, or all.")] = None,
    agent: AgentOption = None,
) -> None:
    """Decide about what is in quarantine: candidates that might be instructions, or not the user's own words."""
    if action not in ("list", "accept", "reject"):
        raise InputError(f"{action!r} is not something that review can do.", hint="Use list, accept or reject.")
    with _memory() as memory:
        held = memory.review(agent)
        if action == "list":
            show([held_to_json(one) for one in held], lambda console: draw_held(console, held))
            return
        chosen = [one.id for one in held] if ids == ["all"] else ids or []
        if not chosen:
            raise InputError(f"{action} needs ids.", hint="`holdfast memory review` lists what is in quarantine.")
        for one in chosen:
            memory.accept(one, agent) if action == "accept" else memory.reject(one, agent)
    say({action: chosen}, f"{action.capitalize()}ed: {', '.join(chosen)}.")


# On a terminal: facts, changes and candidates as tables that a person likes to read


_LABELS = {
    "workContext": "Work",
    "personalContext": "Personal",
    "topOfMind": "Top of mind",
    "recentMonths": "Recent",
    "earlierContext": "Earlier",
    "longTermBackground": "Background",
}
_SIGNS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow")}


def draw_document(console: Console, document: Document, where: str, inherited: bool, status: Status) -> None:
    """The summaries, then the facts, best first, then what needs attention."""
    revision = f"revision {document.revision}" + (f", {moment(document.updated)}" if document.updated else "")
    prose(console, plain(f"{where}, {revision}", "dim"))
    if inherited:
        prose(console, "This agent has learned nothing itself yet and reads the global memory.", style="yellow")
    draw_known(console, document)
    _draw_status(console, status)


def draw_known(console: Console, document: Document) -> None:
    """The summaries, then the facts, best first."""
    for name, summary in document.summaries().items():
        label = plain(f"{_LABELS.get(name) or summary_label(name)}: ", "bold")
        prose(console, spans(label, plain(summary.text)))
    for name, block in document.blocks.items():
        prose(console, Text.assemble((f"Block {name}: ", "bold"), plain(block.text)))
    if document.facts:
        _draw_facts(console, best_first(document.facts))
    elif document.empty:
        prose(console, "Nothing is known yet.")


def _draw_status(console: Console, status: Status) -> None:
    if not status.enabled:
        prose(console, "Memory is switched off (memory.enabled: false): nothing is learned or injected.", style="yellow")
    elif not status.injection:
        prose(console, "Injection is switched off (memory.injection_enabled: false).", style="yellow")
    if status.storage.state == "fallback":
        prose(console, plain(f"{status.storage.asked} cannot be used, so files are: {status.storage.message}", "red"))
    for path in status.storage.set_aside:
        prose(console, plain(f"A damaged file was set aside: {path}", "red"))
    if status.waiting:
        prose(console, f"{counted(status.waiting, 'conversation waits', 'conversations wait')} to be learned from.")
    if status.given_up:
        prose(console, f"{counted(status.given_up, 'conversation')} could not be learned from: holdfast memory retry", style="red")
    if status.held:
        prose(console, f"{counted(status.held, 'candidate is', 'candidates are')} in quarantine: holdfast memory review", style="yellow")


def _draw_facts(console: Console, facts: Sequence[Fact]) -> None:
    columns = (
        Column("sure", right=True),
        Column("fact", text=True),
        Column("category", style="dim"),
        Column("said", right=True, style="dim"),
        Column("since", style="dim"),
        Column("id", style="dim"),
    )
    rows = []
    for fact in facts:
        sure = plain(f"{fact.confidence:.2f}", "yellow" if fact.status == "provisional" else "")
        said = f"{fact.confirmations}x" if fact.confirmations > 1 else ""
        rows.append((sure, fact.content, fact.category, said, fact.created[:10], fact.id))
    listing(console, columns, rows)


def draw_fact(console: Console, id: str, fact: Fact | None, changes: Sequence[Change]) -> None:
    """One fact: what it says, where it comes from, what became of it."""
    if fact is None:
        prose(console, plain(f"{id} is not in memory any more.", "yellow"))
    else:
        prose(console, plain(fact.content, "bold"))
        for label, value in _details(fact):
            prose(console, value, mark=Text(f"{label:<12}", "dim"))
    draw_changes(console, changes, [], in_full=True, only=id)


def _details(fact: Fact) -> list[tuple[str, str]]:
    origin = fact.origin
    said = [
        ("id", fact.id),
        ("category", fact.category),
        ("confidence", f"{fact.confidence:.2f}{' (unconfirmed)' if fact.status == 'provisional' else ''}"),
        ("confirmed", f"{counted(fact.confirmations, 'time')}{', last ' + moment(fact.confirmed) if fact.confirmed else ''}"),
        ("since", moment(fact.valid_from or fact.created)),
        ("source", fact.source),
        ("said by", origin.kind if origin.kind != "unknown" else ""),
        ("thread", origin.thread or ""),
        ("messages", ", ".join(origin.messages)),
        ("quote", f"“{origin.quote}”" if origin.quote else ""),
        ("replaces", ", ".join(fact.replaces)),
        *((key, str(value)) for key, value in fact.extra.items()),
    ]
    return [(label, value) for label, value in said if value]


def draw_matches(console: Console, found: Sequence[Match]) -> None:
    """What a search found, with the words that it was found by."""
    if not found:
        prose(console, "No fact fits. Try other words.")
        return
    columns = (Column("fact", text=True), Column("because of", style="dim"), Column("id", style="dim"))
    listing(console, columns, [(match.fact.content, ", ".join(match.words), match.fact.id) for match in found])


def draw_rendering(console: Console, rendering: Rendering) -> None:
    """The text as the model sees it."""
    prose(console, plain(rendering.text or "Nothing is injected."))
    if rendering.text:
        left = f", {counted(rendering.left_out, 'part')} left out" if rendering.left_out else ""
        prose(console, f"{counted(rendering.tokens, 'token')}, {counted(len(rendering.facts), 'fact')}{left}", style="dim")


def draw_changes(
    console: Console, changes: Sequence[Change], damage: Sequence[str], *, in_full: bool = False, only: str | None = None
) -> None:
    """Changes, oldest first: a table, or each with its differences."""
    if not changes:
        prose(console, "Nothing has been changed yet.")
    elif in_full:
        for change in changes:
            draw_change(console, change, only=only)
    else:
        for change in changes:
            prose(console, _what(change), mark=Text(f"{moment(change.time)}  ", "dim"))
            origin = f"from {change.thread}" if change.thread else ""
            prose(
                console,
                "  ".join(part for part in (f"by {change.by}: {change.why}", origin, change.id) if part),
                mark=" " * 18,
                style="dim",
            )
    for one in damage:
        prose(console, plain(f"Damaged: {one} Everything else can be read.", "red"))


def draw_change(console: Console, change: Change, *, only: str | None = None) -> None:
    """One change with what was there before and after."""
    origin = f" from {change.thread}" if change.thread else ""
    head = Text.assemble((moment(change.time), "bold"), f"  {change.by}: ", plain(change.why + origin), ("  " + change.id, "dim"))
    prose(console, head)
    for difference in change.differences:
        if only is None or difference.id == only:
            sign, colour = _SIGNS[difference.what]
            prose(console, _difference(difference), mark=plain(f"  {sign} ", colour))


def draw_import(console: Console, change: Change | None, held: int, left_out: Sequence[str]) -> None:
    """What came in, what waits, and what was left out."""
    if change is not None:
        draw_change(console, change)
    elif not left_out:
        prose(console, "Everything in it is known already.")
    if held:
        prose(console, f"{counted(held, 'part waits', 'parts wait')} in quarantine: holdfast memory review", style="yellow")
    for one in left_out:
        prose(console, plain(f"Left out: {one}.", "red"))


def _difference(difference: Difference) -> Text:
    text = spans(plain(f"{_LABELS.get(difference.id, difference.id)}: ", "dim"))
    if difference.before is not None:
        text.append_text(plain(_said(difference.before), "strike" if difference.after is not None else ""))
    if difference.before is not None and difference.after is not None:
        text.append(" -> ", "dim")
    if difference.after is not None:
        text.append_text(plain(_said(difference.after)))
    return text.append_text(plain(f"  ({difference.why})", "dim")) if difference.why else text


def _said(value: Any) -> str:
    if isinstance(value, dict):
        words = next((str(value[key]) for key in ("content", "summary", "text") if value.get(key)), "")
        more = [f"{value['confidence']:.2f}" if isinstance(value.get("confidence"), float) else ""]
        more.append(f"{value['confirmationCount']}x" if value.get("confirmationCount") else "")
        return f"{words} [{', '.join(part for part in more if part)}]" if any(more) else words
    return str(value)


def _what(change: Change) -> Text:
    """What a change did, in words: the first difference, and how many more; two are both shown."""
    text = Text()
    shown = change.differences if len(change.differences) == 2 else change.differences[:1]
    for number, difference in enumerate(shown):
        sign, colour = _SIGNS[difference.what]
        text.append("  " if number else "").append(f"{sign} ", colour).append_text(plain(_said(difference.after or difference.before)))
    if len(change.differences) > len(shown):
        text.append(f"  and {len(change.differences) - len(shown)} more", "dim")
    if change.held:
        text.append(f"  {len(change.held)} held for review", "magenta")
    return text


def draw_held(console: Console, held: Sequence[Held]) -> None:
    """What waits for a person."""
    if not held:
        prose(console, "Nothing is in quarantine.")
        return
    for one in held:
        prose(console, one.fact.content)
        prose(console, f"held: {one.why}", mark="  ", style="yellow")
        prose(console, "  ".join(part for part in (moment(one.time), one.thread or "", one.id) if part), mark="  ", style="dim")
    prose(console, "Accept or reject: holdfast memory review accept ID | holdfast memory review reject ID", style="dim")
