"""How memory looks on a terminal: facts, changes and candidates as tables that a person likes to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from holdfast.amounts import counted
from holdfast.app.output import Column, listing, moment, plain, prose, spans
from holdfast.memory.rendering import best_first

if TYPE_CHECKING:
    from rich.console import Console

    from holdfast.memory.document import Document, Match
    from holdfast.memory.facts import Fact
    from holdfast.memory.history import Change, Difference, Held
    from holdfast.memory.rendering import Rendering
    from holdfast.memory.service import Status

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
    for name, label in _LABELS.items():
        if document.slot(name).text:
            prose(console, Text.assemble((f"{label}: ", "bold"), plain(document.slot(name).text)))
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
