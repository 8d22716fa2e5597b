"""How memory looks on a terminal: facts, changes and candidates as tables that a person likes to read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from holdfast.app.output import moment, plain, table
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
    console.print(plain(f"{where}, {revision}", "dim"), soft_wrap=True)
    if inherited:
        console.print("This agent has learned nothing itself yet and reads the global memory.", style="yellow")
    for name, label in _LABELS.items():
        if document.slot(name).text:
            console.print(Text.assemble((f"{label}: ", "bold"), plain(document.slot(name).text)), soft_wrap=True)
    for name, block in document.blocks.items():
        console.print(Text.assemble((f"Block {name}: ", "bold"), plain(block.text)), soft_wrap=True)
    if document.facts:
        console.print(_facts(best_first(document.facts)))
    elif document.empty:
        console.print("Nothing is known yet.")
    _draw_status(console, status)


def _draw_status(console: Console, status: Status) -> None:
    if not status.enabled:
        console.print("Memory is switched off (memory.enabled: false): nothing is learned or injected.", style="yellow")
    elif not status.injection:
        console.print("Injection is switched off (memory.injection_enabled: false).", style="yellow")
    if status.storage.state == "fallback":
        console.print(plain(f"{status.storage.asked} cannot be used, so files are: {status.storage.message}", "red"), soft_wrap=True)
    for path in status.storage.set_aside:
        console.print(plain(f"A damaged file was set aside: {path}", "red"), soft_wrap=True)
    if status.waiting:
        console.print(f"{status.waiting} conversations wait to be learned from.")
    if status.given_up:
        console.print(f"{status.given_up} conversations could not be learned from: holdfast memory retry", style="red")
    if status.held:
        console.print(f"{status.held} candidates are in quarantine: holdfast memory review", style="yellow")


def _facts(facts: Sequence[Fact]) -> Table:
    rows = table("sure", "fact", "category", "said", "since", "id", right=("sure", "said"), wraps=("fact",))
    for fact in facts:
        sure = Text(f"{fact.confidence:.2f}", "yellow" if fact.status == "provisional" else "")
        said = f"{fact.confirmations}x" if fact.confirmations > 1 else ""
        rows.add_row(sure, plain(fact.content), plain(fact.category), said, _day(fact.created), plain(fact.id, "dim"))
    return rows


def draw_fact(console: Console, id: str, fact: Fact | None, changes: Sequence[Change]) -> None:
    """One fact: what it says, where it comes from, what became of it."""
    if fact is None:
        console.print(plain(f"{id} is not in memory any more.", "yellow"))
    else:
        console.print(plain(fact.content, "bold"), soft_wrap=True)
        rows = table("", "", wraps=("",))
        for label, value in _details(fact):
            rows.add_row(Text(label, "dim"), plain(value))
        console.print(rows)
    draw_changes(console, changes, [], in_full=True, only=id)


def _details(fact: Fact) -> list[tuple[str, str]]:
    origin = fact.origin
    said = [
        ("id", fact.id),
        ("category", fact.category),
        ("confidence", f"{fact.confidence:.2f}{' (unconfirmed)' if fact.status == 'provisional' else ''}"),
        ("confirmed", f"{fact.confirmations} times{', last ' + moment(fact.confirmed) if fact.confirmed else ''}"),
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
        console.print("No fact fits. Try other words.")
        return
    rows = table("fact", "because of", "id", wraps=("fact",))
    for match in found:
        rows.add_row(plain(match.fact.content), plain(", ".join(match.words), "dim"), plain(match.fact.id, "dim"))
    console.print(rows)


def draw_rendering(console: Console, rendering: Rendering) -> None:
    """The text as the model sees it."""
    console.print(plain(rendering.text or "Nothing is injected."), soft_wrap=True)
    if rendering.text:
        left = f", {rendering.left_out} parts left out" if rendering.left_out else ""
        console.print(f"{rendering.tokens} tokens, {len(rendering.facts)} facts{left}", style="dim")


def draw_changes(
    console: Console, changes: Sequence[Change], damage: Sequence[str], *, in_full: bool = False, only: str | None = None
) -> None:
    """Changes, oldest first: a table, or each with its differences."""
    if not changes:
        console.print("Nothing has been changed yet.")
    elif in_full:
        for change in changes:
            draw_change(console, change, only=only)
    else:
        rows = table("when", "by", "what", "why", "from", "id", wraps=("what", "why"))
        for change in changes:
            row = (moment(change.time), change.by, _counts(change), plain(change.why), plain(change.thread or ""), plain(change.id, "dim"))
            rows.add_row(*row)
        console.print(rows)
    for one in damage:
        console.print(plain(f"Damaged: {one} Everything else can be read.", "red"), soft_wrap=True)


def draw_change(console: Console, change: Change, *, only: str | None = None) -> None:
    """One change with what was there before and after."""
    origin = f" from {change.thread}" if change.thread else ""
    head = Text.assemble((moment(change.time), "bold"), f"  {change.by}: ", plain(change.why + origin), ("  " + change.id, "dim"))
    console.print(head, soft_wrap=True)
    for difference in change.differences:
        if only is None or difference.id == only:
            console.print(_difference(difference), soft_wrap=True)


def _difference(difference: Difference) -> Text:
    sign, colour = _SIGNS[difference.what]
    text = Text(f"  {sign} ", colour)
    text.append_text(plain(f"{_LABELS.get(difference.id, difference.id)}: ", "dim"))
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


def _counts(change: Change) -> Text:
    text = Text()
    for what, (sign, colour) in _SIGNS.items():
        number = sum(1 for difference in change.differences if difference.what == what)
        if number:
            text.append(f"{sign}{number} ", colour)
    if change.held:
        text.append(f"!{len(change.held)} ", "magenta")
    shown = next((_said(one.after or one.before) for one in change.differences), "")
    return text.append_text(plain(shown if len(shown) <= 60 else f"{shown[:59]}…", "dim"))


def draw_held(console: Console, held: Sequence[Held]) -> None:
    """What waits for a person."""
    if not held:
        console.print("Nothing is in quarantine.")
        return
    rows = table("candidate", "why", "when", "from", "id", wraps=("candidate", "why"))
    for one in held:
        rows.add_row(plain(one.fact.content), plain(one.why), moment(one.time), plain(one.thread or ""), plain(one.id, "dim"))
    console.print(rows)
    console.print("Accept or reject: holdfast memory review accept ID | holdfast memory review reject ID", style="dim")


def _day(time: str) -> str:
    return time[:10]
