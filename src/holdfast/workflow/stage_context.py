"""What a stage's agent is given as text, within the tokens that are allowed (W7, W8), and the Markdown files of a stage for people.

Task, outputs that it may see, and memories; nothing else gets in: no conversation of another stage, no raw data, only references to it.
What does not fit is left out in the order of the policy, and named. What an output says is data: a line of it that looks like a heading
is written so that it is none, and a fact stays on its own line.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from holdfast.errors import BudgetError
from holdfast.session.output import StageOutput
from holdfast.session.state import EARLIER, SessionError
from holdfast.text.normalise import inert, inert_line
from holdfast.tokens.counter import TokenCounter

Kind = Literal["summary", "finding", "recommendations", "data", "memory"]


class Piece(NamedTuple):
    """The smallest thing that can be left out of a prompt: a summary, one finding, one memory."""

    owner: str
    kind: Kind
    text: str
    number: int = 0

    @property
    def name(self) -> str:
        """What the session file calls it when it was left out."""
        return f"memory: {self.owner}" if self.kind == "memory" else f"{self.owner}: {self.kind}"


def output_pieces(output: StageOutput, *, with_data: bool = False) -> tuple[Piece, ...]:
    """An output in pieces, in the order in which they are read."""
    name = output.stage_name
    pieces = [Piece(name, "summary", inert(output.summary))]
    for number, finding in enumerate(output.key_findings):
        doubt = " (not found in its source)" if finding.grounded is False else ""
        pieces.append(Piece(name, "finding", f"- {inert_line(finding.fact)} [{inert_line(finding.source)}]{doubt}", number))
    if output.next_stage_recommendations:
        said = "; ".join(inert_line(text) for text in output.next_stage_recommendations)
        pieces.append(Piece(name, "recommendations", f"Recommended next: {said}"))
    if output.data is not None and (with_data or output.legacy):
        pieces.append(Piece(name, "data", "Data: " + inert_line(json.dumps(output.data, ensure_ascii=False, default=str))))
    return tuple(pieces)


def block(output: StageOutput, pieces: Sequence[Piece], *, provisional: bool) -> str:
    """An output as it stands in a prompt, with the pieces that are left of it."""
    doubt = "; provisional, to be checked" if provisional else ""
    lines = [f"## {output.stage_name} (confidence: {output.confidence}{doubt})", *(piece.text for piece in pieces)]
    if output.raw_data_refs:
        lines.append("Raw data: " + ", ".join(inert_line(ref) for ref in output.raw_data_refs))
    return "\n".join(lines)


def memory_pieces(retrieved: Sequence[Mapping[str, Any]]) -> tuple[Piece, ...]:
    """The retrieved memories in pieces, best first."""
    return tuple(
        Piece(str(memory.get("id") or number + 1), "memory", f"- {inert_line(str(memory.get('text', '')))}{_origin(memory)}", number)
        for number, memory in enumerate(retrieved)
    )


def _origin(memory: Mapping[str, Any]) -> str:
    parts = [inert_line(str(memory[key])) for key in ("source", "time", "trust") if memory.get(key)]
    if memory.get("trust"):
        parts[-1] = f"trust: {parts[-1]}"
    return f" [{'; '.join(parts)}]" if parts else ""


def _context_markdown(system_prompt: str, context: StageContext) -> str:
    left_out = "\n".join(f"- {one['name']} ({one['tokens']} tokens)" for one in context.evicted)
    parts = ["<!-- what the stage's agent was given -->", "# System prompt", system_prompt or "(none)", context.prompt]
    if left_out:
        parts += ["# Left out, because it did not fit", left_out]
    return "\n\n".join(parts) + "\n"


def _output_markdown(output: StageOutput, pieces: Sequence[Piece], *, provisional: bool) -> str:
    parts = [f"# {output.stage_name}", f"Confidence: {output.confidence}{' (provisional)' if provisional else ''}", pieces[0].text]
    if findings := [piece.text for piece in pieces if piece.kind == "finding"]:
        parts += ["## Findings", "\n".join(findings)]
    if output.next_stage_recommendations:
        parts += ["## Recommended next", "\n".join(f"- {inert_line(text)}" for text in output.next_stage_recommendations)]
    if output.raw_data_refs:
        parts += ["## Raw data", "\n".join(f"- {ref}" for ref in output.raw_data_refs)]
    if output.data is not None:
        parts += ["## Data", "```json\n" + json.dumps(output.data, ensure_ascii=False, indent=2, default=str) + "\n```"]
    return "\n\n".join(parts) + "\n"


EvictionPolicy = Literal["oldest_first", "least_relevant"]

_LONGEST_NOTE = 4_000
_WORTH_CLIPPING = 24
"""A summary is not cut down to fewer tokens than this: so few say nothing."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """All that a stage could be given. Outputs in the order of the workflow, memories best first."""

    stage: str
    system_prompt: str = ""
    task: str = ""
    parameters: Mapping[str, Any] | None = None
    outputs: tuple[StageOutput, ...] = ()
    named: frozenset[str] = frozenset()
    """Those that the stage asked for by name: it is given their `data` as well."""
    provisional: frozenset[str] = frozenset()
    skipped: tuple[str, ...] = ()
    retrieved: tuple[Mapping[str, Any], ...] = ()
    note: str | None = None
    """Why the stage is asked again."""


@dataclass(frozen=True, kw_only=True)
class StageContext:
    """What it is given in the end."""

    prompt: str
    given: tuple[StageOutput, ...]
    retrieved: tuple[Mapping[str, Any], ...]
    evicted: tuple[Mapping[str, Any], ...] = ()


class ContextBuilder:
    """Builds contexts for the stages of one run. Remembers how outputs look, so that a long workflow does not render them over and over."""

    def __init__(
        self, counter: Callable[[], TokenCounter], *, max_tokens: int | None = None, policy: EvictionPolicy = "oldest_first"
    ) -> None:
        self.max_tokens = max_tokens
        self._open_counter = counter
        self._policy = policy
        self._cut: dict[tuple[str, bool], tuple[StageOutput, tuple[Piece, ...]]] = {}
        self._seen: dict[tuple[str, bool, bool], tuple[StageOutput, tuple[Piece, ...], str]] = {}
        self._last: tuple[tuple[StageOutput, ...], object, list[tuple[tuple[Piece, ...], str]]] = ((), None, [])

    @cached_property
    def _counter(self) -> TokenCounter:
        """Opened when something has to be counted: a vocabulary takes longer to load than most contexts to build."""
        return self._open_counter()

    def build(self, material: Material) -> StageContext:
        """The context. Raises BudgetError, saying what needs how much, when not even system prompt and task fit."""
        blocks = self._blocks(material)
        memories = memory_pieces(material.retrieved)
        prompt = _prompt(material, [text for _, text in blocks], memories)
        if self._fits(material.system_prompt, prompt):
            return StageContext(prompt=prompt, given=material.outputs, retrieved=material.retrieved)
        return self._evicted(material, [piece for pieces, _ in blocks for piece in pieces], memories)

    def _blocks(self, material: Material) -> list[tuple[tuple[Piece, ...], str]]:
        """All outputs as they stand in a prompt. Most stages are given what the one before was given, and one output more."""
        outputs, same, blocks = self._last
        if same != (material.named, material.provisional) or material.outputs[: len(outputs)] != outputs:
            outputs, blocks = (), []
        blocks = [*blocks, *(self._block(output, material) for output in material.outputs[len(outputs) :])]
        self._last = (material.outputs, (material.named, material.provisional), blocks)
        return blocks

    def _block(self, output: StageOutput, material: Material) -> tuple[tuple[Piece, ...], str]:
        key = (output.stage_name, output.stage_name in material.named, output.stage_name in material.provisional)
        seen = self._seen.get(key)
        if seen is None or seen[0] is not output:
            pieces = self._pieces(output, with_data=key[1])
            seen = self._seen[key] = (output, pieces, block(output, pieces, provisional=key[2]))
        return seen[1], seen[2]

    def _pieces(self, output: StageOutput, *, with_data: bool = False) -> tuple[Piece, ...]:
        """An output in pieces: cut when it is written down, and so for whoever is given it as well."""
        key = (output.stage_name, with_data)
        known = self._cut.get(key)
        if known is None or known[0] is not output:
            known = self._cut[key] = (output, output_pieces(output, with_data=with_data))
        return known[1]

    def markdown(
        self,
        system_prompt: str,
        context: StageContext | None,
        output: StageOutput | None,
        *,
        provisional: bool,
        error: SessionError | None = None,
        trace: str | None = None,
    ) -> tuple[str | None, str | None]:
        """The Markdown files of a stage (W7): what its agent was given, and what it wrote or how it failed, with the traceback."""
        given = _context_markdown(system_prompt, context) if context is not None else None
        written = _output_markdown(output, self._pieces(output), provisional=provisional) if output is not None else None
        if error is not None:
            written = f"{written or ''}# Failed ({error.kind})\n\n{error.message}\n"
        if trace is not None:
            written = f"{written or ''}\n```text\n{trace.replace('```', '` ` `')}\n```\n"
        return given, written

    def _fits(self, system_prompt: str, prompt: str) -> bool:
        limit = self.max_tokens
        if limit is None or len(system_prompt.encode("utf-8", "replace")) + len(prompt.encode("utf-8", "replace")) <= limit:
            return True  # a token is at least a byte
        return self._count(system_prompt, prompt) <= limit

    def _count(self, *texts: str) -> int:
        return sum(self._counter.count_text(text) for text in texts)

    def _evicted(self, material: Material, pieces: list[Piece], memories: tuple[Piece, ...]) -> StageContext:
        limit = self.max_tokens or 0
        everything = [*memories, *pieces]
        leaving = self._leaving_order(material, pieces, memories)
        tokens = {id(piece): self._counter.count_text(piece.text) + 1 for piece in everything}
        gone: list[Piece] = []
        while True:
            outputs, kept = _left(material, everything, gone)
            prompt = _prompt(material, [text for _, text in outputs], kept)
            over = self._count(material.system_prompt, prompt) - limit
            if over <= 0:
                break
            if not leaving:
                raise self._too_small(material)
            while leaving and over > 0:
                gone.append(leaving.pop(0))
                over -= tokens[id(gone[-1])]
        given = tuple(output for output, _ in outputs)
        names = [{"name": piece.name, "tokens": tokens[id(piece)]} for piece in gone]
        clipped = self._clipped(material, given, kept, limit)
        if clipped is not None:
            given, prompt = clipped
            names[-1] = {**names[-1], "name": f"{names[-1]['name']}, in part"}
        numbers = {piece.number for piece in kept}
        retrieved = tuple(memory for number, memory in enumerate(material.retrieved) if number in numbers)
        return StageContext(prompt=prompt, given=given, retrieved=retrieved, evicted=_merged(names))

    def _leaving_order(self, material: Material, pieces: list[Piece], memories: tuple[Piece, ...]) -> list[Piece]:
        """What leaves first, first. Of one output the summary leaves last."""
        by_age: list[Piece] = [*reversed(memories)]
        for output in material.outputs:
            own = [piece for piece in pieces if piece.owner == output.stage_name]
            by_age += [*reversed(own[1:]), own[0]]
        if self._policy == "oldest_first":
            return by_age
        scores = _relevance(f"{material.task} {material.system_prompt}", by_age)
        return [by_age[number] for number in sorted(range(len(by_age)), key=lambda number: scores[number])]

    def _clipped(
        self, material: Material, given: tuple[StageOutput, ...], memories: Sequence[Piece], limit: int
    ) -> tuple[tuple[StageOutput, ...], str] | None:
        """When every output had to go, the beginning of the newest summary, so that the stage is not left with nothing."""
        if given or not material.outputs:
            return None
        newest = material.outputs[-1]
        provisional = newest.stage_name in material.provisional
        bare = _prompt(material, [block(newest, (), provisional=provisional)], memories)
        room = limit - self._count(material.system_prompt, bare) - 4  # joining texts may cost a few tokens
        while room >= _WORTH_CLIPPING:
            text = self._counter.clip(inert(newest.summary), room)
            prompt = _prompt(
                material, [block(newest, [Piece(newest.stage_name, "summary", text + " ...")], provisional=provisional)], memories
            )
            if self._count(material.system_prompt, prompt) <= limit:
                return (replace(newest, summary=text + " ...", key_findings=(), next_stage_recommendations=()),), prompt
            room -= 8
        return None

    def _too_small(self, material: Material) -> BudgetError:
        fixed = replace(material, outputs=(), retrieved=(), note=None)
        needs = {"system prompt": self._count(material.system_prompt), "task": self._count(_prompt(fixed, [], ()))}
        if material.note:
            needs["note"] = self._count(material.note[:_LONGEST_NOTE])
        limit = self.max_tokens or 0
        said = ", ".join(f"{name} {count}" for name, count in needs.items())
        return BudgetError(
            f"stage {material.stage!r} may be given {limit} tokens, and what it must be given takes more: {said}.",
            window=limit,
            needs=needs,
            hint="Raise `memory.working_memory.max_tokens`, or shorten the prompt.",
        )


def _prompt(material: Material, blocks: Sequence[str], memories: Sequence[Piece]) -> str:
    parts = ["# Task", inert(material.task) or "(none)"]
    if material.parameters:
        parts += [
            "# Parameters",
            "\n".join(f"- {inert_line(str(key))}: {inert_line(str(value))}" for key, value in material.parameters.items()),
        ]
    if blocks:
        parts += [EARLIER, *blocks]
    if material.skipped:
        parts.append("Without a result, because they failed: " + ", ".join(material.skipped))
    if memories:
        parts += ["# From memory", "\n".join(piece.text for piece in memories)]
    if material.note:
        parts += ["# Note", inert(material.note[:_LONGEST_NOTE])]
    return "\n\n".join(parts)


def _left(material: Material, everything: Sequence[Piece], gone: Sequence[Piece]) -> tuple[list[tuple[StageOutput, str]], list[Piece]]:
    """The outputs of which something is left, with their text, and the memories that are left."""
    out = {id(piece) for piece in gone}
    left = [piece for piece in everything if id(piece) not in out]
    outputs = []
    for output in material.outputs:
        own = [piece for piece in left if piece.owner == output.stage_name and piece.kind != "memory"]
        if own:
            text = block(output, own, provisional=output.stage_name in material.provisional)
            outputs.append((_reduced(output, own), text))
    return outputs, [piece for piece in left if piece.kind == "memory"]


def _reduced(output: StageOutput, own: Sequence[Piece]) -> StageOutput:
    kinds = {piece.kind for piece in own}
    numbers = {piece.number for piece in own if piece.kind == "finding"}
    return replace(
        output,
        summary=output.summary if "summary" in kinds else "(left out)",
        key_findings=tuple(finding for number, finding in enumerate(output.key_findings) if number in numbers),
        next_stage_recommendations=output.next_stage_recommendations if "recommendations" in kinds else (),
    )


def _merged(names: Sequence[Mapping[str, Any]]) -> tuple[Mapping[str, Any], ...]:
    """One line for all findings of a stage that were left out, with their number."""
    counts: Counter[str] = Counter(one["name"] for one in names)
    tokens: Counter[str] = Counter()
    for one in names:
        tokens[one["name"]] += one["tokens"]
    return tuple(
        {"name": f"{name}s ({counts[name]})" if name.endswith(": finding") and counts[name] > 1 else name, "tokens": tokens[name]}
        for name in counts
    )


def _relevance(question: str, pieces: Sequence[Piece]) -> list[float]:
    """How much each piece has to do with the question, by the words they share, rare words first."""
    from holdfast.text.words import terms

    asked = set(terms(question))
    found = [Counter(terms(piece.text)) for piece in pieces]
    spread: Counter[str] = Counter(term for words in found for term in words)
    return [
        sum(math.log(1 + len(pieces) / spread[term]) for term in words.keys() & asked) / (1 + math.log(1 + sum(words.values())))
        for words in found
    ]
