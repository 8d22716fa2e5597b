"""The memory tools of an agent, as plain functions over a `MemoryService` (M15). What they return is text for the model.

Nothing that an agent writes is believed more than what the user typed: adding, replacing, removing and the blocks go through the gate. What
the user did not say himself waits for review, and what he did not call over or wrong stays (M10).
"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import InputError
from holdfast.memory.facts import Turn
from holdfast.memory.service import MemoryService
from holdfast.text.framing import inert_line


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
