"""What is known, as the model sees it: inside `<memory>`, most valuable first, never over its budget (M12).

    <memory>
    ## User Context
    Work: ...
    ## Key Facts
    - Uses PostgreSQL 16 (confidence: 0.90)
    </memory>

When room is short, facts go first, then history, then the user's context, which is clipped. The text depends on nothing but the document
and the budget, so it is the same, byte for byte, until something is learned. Stored text is data: it stays on one line and cannot open
or close a tag. Blocks, the texts that an agent edits itself, stand inside `<blocks>` in the same manner, each within its own limit (M15).
What the memory tools of an agent answer is at the end. Summaries of other names than the six stand last in their sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.memory.document import BlockText, Document, summary_label
from holdfast.memory.facts import Fact, Turn
from holdfast.text.normalise import inert_line
from holdfast.validation import check_name

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Block
    from holdfast.memory.service import MemoryService

BASE_FACTS = 15
"""So many of the best facts come before the older history; more follow it if they fit."""
SHORTENED = "(Memory truncated to fit token limit)"
_CUT = f"...\n{SHORTENED}\n"
_OPEN, _CLOSE = "<memory>\n", "</memory>"
_USER = (("workContext", "Work"), ("personalContext", "Personal"), ("topOfMind", "Top of mind"))
_RECENT = (("recentMonths", "Recent"),)
_OLDER = (("earlierContext", "Earlier"), ("longTermBackground", "Background"))
_HEADS = {"user": "## User Context\n", "history": "## Recent History\n", "facts": "## Key Facts\n"}
_LEAST = 12  # tokens below which a clipped summary says nothing

Count = Callable[[str], int]


@dataclass(frozen=True)
class Rendering:
    """The text, what it costs, the facts that are in it, and how many parts were left out or clipped."""

    text: str = ""
    tokens: int = 0
    facts: tuple[str, ...] = ()
    left_out: int = 0


@dataclass(frozen=True)
class _Part:
    """One line of the text: where it stands, what it says, and whether a piece of it is better than nothing."""

    section: str
    order: int
    line: str
    fact: str | None = None
    clippable: bool = False


def render(document: Document, budget: int, count: Count) -> str:
    """The text for the prompt, within `budget` tokens as `count` counts them; empty if nothing is known or nothing fits."""
    return compose(document, budget, count).text


def compose(document: Document, budget: int, count: Count) -> Rendering:
    """The text for the prompt with its tokens and the ids of the facts in it."""
    wanted = list(_parts(document))
    if not wanted or budget <= 0:
        return Rendering(left_out=len(wanted))
    taken = _taken(wanted, budget - count(_OPEN + _CLOSE), count)
    if taken != wanted:
        taken = _taken(wanted, budget - count(_OPEN + _CUT + _CLOSE), count)
    while taken:  # parts that were counted one by one may be dearer together
        text = _text(taken, shortened=taken != wanted)
        tokens = count(text)
        if tokens <= budget:
            shown = tuple(part.fact for part in sorted(taken, key=lambda part: part.order) if part.fact is not None)
            return Rendering(text, tokens, shown, sum(1 for part in wanted if part not in taken))
        taken = taken[:-1]
    return Rendering(left_out=len(wanted))


def remind(facts: Iterable[Fact], budget: int, count: Count) -> Rendering:
    """Facts as lines for a reminder within the conversation: those learned since, or those that the question is about (S19)."""
    wanted = [_Part("facts", order, f"{fact_line(fact)}\n", fact.id) for order, fact in enumerate(filter(is_shown, facts))]
    lines: list[_Part] = []
    for part in wanted:
        if count(_body([*lines, part])) <= budget:
            lines.append(part)
    text = _body(lines)
    return Rendering(text, count(text) if text else 0, tuple(part.fact or "" for part in lines), len(wanted) - len(lines))


def is_shown(fact: Fact) -> bool:
    """Whether a fact may stand in a prompt: a person stated it or agreed to it."""
    return fact.status == "active" and bool(fact.content.strip())


def best_first(facts: Iterable[Fact]) -> list[Fact]:
    """What may stand in a prompt, by value: confidence, confirmations, and the newer first. Nothing that waits for a person (M10)."""
    chosen = sorted((fact for fact in facts if is_shown(fact)), key=lambda fact: fact.id)
    chosen.sort(key=lambda fact: fact.confirmed or fact.created, reverse=True)
    chosen.sort(key=lambda fact: (-fact.confidence, -fact.confirmations))
    return chosen


def fact_line(fact: Fact) -> str:
    """One fact as it is shown."""
    wrong = fact.extra.get("sourceError")
    avoid = f" (avoid: {inert_line(wrong)})" if isinstance(wrong, str) and wrong.strip() else ""
    return f"- {inert_line(fact.content)}{avoid} (confidence: {fact.confidence:.2f})"


def _parts(document: Document) -> Iterable[_Part]:
    """Everything that could be shown, most valuable first; `order` is where it stands in the text."""
    facts = best_first(document.facts)
    others = {name: summary_label(name) for name in document.summaries() if "/" in name}
    yield from _slots(document, "user", (*_USER, *((name, label) for name, label in others.items() if name.startswith("user/"))), 0)
    yield from _slots(document, "history", _RECENT, 100)
    for order, fact in enumerate(facts[:BASE_FACTS], 1000):
        yield _Part("facts", order, f"{fact_line(fact)}\n", fact.id)
    older = (*_OLDER, *((name, label) for name, label in others.items() if name.startswith("history/")))
    yield from _slots(document, "history", older, 101)
    for order, fact in enumerate(facts[BASE_FACTS:], 1000 + BASE_FACTS):
        yield _Part("facts", order, f"{fact_line(fact)}\n", fact.id)


def _slots(document: Document, section: str, names: Iterable[tuple[str, str]], first: int) -> Iterable[_Part]:
    for order, (name, label) in enumerate(names, first):
        text = inert_line(document.slot(name).text)
        if text:
            yield _Part(section, order, f"{label}: {text}\n", clippable=True)


def _taken(wanted: list[_Part], room: int, count: Count) -> list[_Part]:
    """The parts that fit, in the order of their value.

    A fact that does not fit makes way for a shorter one. A summary that does not fit ends it: what is less worth must not stand in its
    place; and the older history needs all of the best facts before it.
    """
    taken: list[_Part] = []
    begun: set[str] = set()
    skipped = False
    for part in wanted:
        head = 0 if part.section in begun else count(f"\n{_HEADS[part.section]}")
        cost = count(part.line)
        if head + cost > room and part.clippable and room - head >= _LEAST and not skipped:
            part = _clipped(part, room - head, count)
            cost = count(part.line)
        if head + cost <= room and not (skipped and part.fact is None):
            taken.append(part)
            begun.add(part.section)
            room -= head + cost
        elif part.fact is None:
            break
        else:
            skipped = True
    return taken


def _clipped(part: _Part, room: int, count: Count) -> _Part:
    """The part cut to its room, at a word."""
    return _Part(part.section, part.order, _longest(lambda length: _cut(part.line, length), len(part.line), room, count), part.fact)


def _longest(cut: Callable[[int], str], high: int, room: int, count: Count) -> str:
    """The longest cut that fits, found by halving."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(cut(middle)) <= room else (low, middle - 1)
    return cut(low)


def _cut(line: str, length: int) -> str:
    head = line[:length].rstrip()
    space = head.rfind(" ")
    if length < len(line) and space > len(head) // 2 and not line[length : length + 1].isspace():
        head = head[:space]
    return f"{head}…\n"


def _text(parts: list[_Part], *, shortened: bool) -> str:
    return f"{_OPEN}{_body(parts)}{_CUT if shortened else ''}{_CLOSE}"


def _body(parts: Iterable[_Part]) -> str:
    ordered = sorted(parts, key=lambda part: part.order)
    sections = []
    for section, head in _HEADS.items():
        lines = [part.line for part in ordered if part.section == section]
        if lines:
            sections.append(head + "".join(lines))
    return "\n".join(sections)


# Blocks


@dataclass(frozen=True)
class BlockView:
    """A block as it is now."""

    name: str
    text: str
    description: str = ""
    max_tokens: int = 500
    read_only: bool = False
    updated: str = ""


def blocks_of(document: Document, settings: Mapping[str, Block]) -> list[BlockView]:
    """All blocks: those of the configuration in its order, with the text of the document where there is one."""
    views = []
    for name, block in settings.items():
        held = document.blocks.get(check_name(name, "block name"))
        shown = held.text if held is not None and not block.read_only else block.text
        updated = held.updated if held is not None and not block.read_only else ""
        views.append(BlockView(check_name(name), shown, block.description or "", block.max_tokens, block.read_only, updated))
    return views


def edited(document: Document, view: BlockView, text: str, *, count: Count, now: str) -> Document:
    """The document with another text in this block. InputError if the agent may not write it, or if it is too long."""
    if view.read_only:
        raise InputError(f"the block {view.name!r} is read-only.", hint="A person changes it in config.yaml, under memory.blocks.")
    tokens = count(text)
    if tokens > view.max_tokens:
        raise InputError(
            f"the block {view.name!r} takes {view.max_tokens} tokens, and this text has {tokens}.", hint="Shorten it and write it again."
        )
    return document.with_block(view.name, BlockText(text, now))


def render_blocks(views: Sequence[BlockView], count: Count, budget: int | None = None, *, hint: str = "") -> str:
    """The blocks for the prompt, all of them within `budget` tokens; empty when there are none.

    Text in a block keeps its lines, but cannot close it, and is cut where it is over its limit: the configuration or another program
    may have written it. Where the budget is short the longest are cut first, and `hint` stands below what was cut for it.
    """
    texts = ["\n".join(inert_line(line) for line in view.text.splitlines()) for view in views]
    limits = [min(count(text), view.max_tokens) for text, view in zip(texts, views, strict=True)]
    rooms = limits
    text = _framed(views, texts, limits, rooms, count, hint)
    while budget is not None and count(text) > budget and any(rooms):
        over = count(text) - budget
        rooms = _shared_out(rooms, max(0, sum(rooms) - over))
        text = _framed(views, texts, limits, rooms, count, hint)
    return text


def _framed(views: Sequence[BlockView], texts: Sequence[str], limits: Sequence[int], rooms: Sequence[int], count: Count, hint: str) -> str:
    said = []
    for view, text, limit, room in zip(views, texts, limits, rooms, strict=True):
        about = f"{inert_line(view.description)}\n" if view.description else ""
        access = "read-only" if view.read_only else f"up to {view.max_tokens} tokens"
        cut = f"\n{hint}" if hint and room < limit else ""
        said.append(f'<block name="{view.name}" access="{access}">\n{about}{_within(text, room, count)}{cut}\n</block>')
    return "<blocks>\n" + "\n".join(said) + "\n</blocks>" if said else ""


def _shared_out(wants: Sequence[int], room: int) -> list[int]:
    """Room for each: what it wants, or as much as the others that do not get what they want either.

    >>> _shared_out([10, 100, 200], 110)
    [10, 50, 50]
    """
    shares, left = [0] * len(wants), room
    for done, place in enumerate(sorted(range(len(wants)), key=wants.__getitem__)):
        shares[place] = min(wants[place], left // (len(wants) - done))
        left -= shares[place]
    return shares


def _within(text: str, room: int, count: Count) -> str:
    return text if count(text) <= room else _longest(lambda length: _cut(text, length).rstrip(), len(text), room, count)


# The memory tools of an agent, as plain functions over a `MemoryService` (M15): what they return is text for the model. Nothing that an
# agent writes is believed more than what the user typed: it goes through the gate, and what he did not say himself waits for review (M10).


def memory_search(service: MemoryService, query: str, *, agent: str | None = None, top_k: int = 8) -> str:
    """Search what is known about the user. Gives facts with their ids, best first."""
    found = service.search(query, agent, max(1, min(top_k, 50)))
    if not found:
        return "Nothing in memory fits. Try other words."
    lines = [f"[{match.fact.id}] {inert_line(match.fact.content)} (confidence: {match.fact.confidence:.2f})" for match in found]
    return "\n".join(lines)


def memory_add(
    service: MemoryService, content: str, *, agent: str | None = None, turns: Sequence[Turn] = (), thread: str | None = None
) -> str:
    """Remember a fact about the user. `turns` is the conversation so far: what the user typed there counts as the source."""
    try:
        decision = service.propose(content, agent, turns=turns, thread=thread)
    except InputError as error:
        return f"Not stored: {error}"
    if decision.verdict in ("add", "replace") and decision.fact is not None:
        return f"Stored as [{decision.fact.id}]: {inert_line(decision.fact.content)}"
    if decision.verdict == "confirm":
        return f"Known already as [{decision.target}]; noted that it was confirmed."
    if decision.verdict == "quarantine":
        return f"Not stored: a person has to look at it first ({decision.why})."
    return f"Not stored: {decision.why}."


def memory_update(
    service: MemoryService, id: str, content: str, *, agent: str | None = None, turns: Sequence[Turn] = (), thread: str | None = None
) -> str:
    """Put a corrected fact in place of one that is no longer true. The old one goes only when the new one counts."""
    if service.document(agent).fact(id) is None:
        return f"There is no fact [{id}]. Search for it first."
    try:
        decision = service.propose(content, agent, turns=turns, thread=thread, replaces=id)
    except InputError as error:
        return f"Not changed: {error}"
    if decision.verdict == "quarantine":
        return f"Not changed: a person has to look at it first ({decision.why})."
    if decision.verdict == "drop" or decision.fact is None:
        return f"Not changed: {decision.why}."
    if id != decision.fact.id and id not in decision.fact.replaces:
        return f"Stored as [{decision.fact.id}]; [{id}] stays: it speaks of something else."
    return f"Changed: [{decision.fact.id}] stands in place of [{id}]."


def memory_remove(
    service: MemoryService, id: str, *, agent: str | None = None, turns: Sequence[Turn] = (), thread: str | None = None
) -> str:
    """Take out a fact that the user says is wrong or over. A person can bring it back."""
    try:
        fact = service.remove_said(id, agent, turns=turns, thread=thread)
    except InputError as error:
        return f"Not removed: {error}"
    return f"Removed [{fact.id}]: {inert_line(fact.content)}"


def memory_read_block(service: MemoryService, name: str, *, agent: str | None = None) -> str:
    """A block as it is now, in full: in the prompt it may be cut, or older."""
    views = service.blocks(agent)
    view = next((view for view in views if view.name == name), None)
    if view is None:
        return f"There is no block {name!r}. There are: {', '.join(view.name for view in views) or 'none'}."
    return "\n".join(inert_line(line) for line in view.text.splitlines()) or "(empty)"


def memory_write_block(
    service: MemoryService, name: str, text: str, *, agent: str | None = None, turns: Sequence[Turn] = (), thread: str | None = None
) -> str:
    """Write an editable block anew. It must fit its limit; a read-only block is not changed. Says what was left out for review."""
    try:
        view, left_out = service.write_block_said(name, text, agent, turns=turns, thread=thread)
    except InputError as error:
        return f"Not written: {error}"
    waits = f" Left out, a person has to look at it first: {inert_line('; '.join(left_out))}" if left_out else ""
    return f"Block {view.name!r} written.{waits}"
