"""Stage outputs and memories as text: in the prompt of a later stage, and as Markdown for people (W7).

What an output says is data. A line of it that looks like a heading is written so that it is none, and a fact stays on its own line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.session.output import StageOutput

Kind = Literal["summary", "finding", "recommendations", "data", "memory"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The smallest thing that can be left out of a prompt: a summary, one finding, one memory."""

    owner: str
    kind: Kind
    text: str
    number: int = 0

    @property
    def name(self) -> str:
        """What the session file calls it when it was left out."""
        return f"memory: {self.owner}" if self.kind == "memory" else f"{self.owner}: {self.kind}"


def inert(text: str) -> str:
    """The text with no line in it that could be taken for a heading of ours."""
    return "\n".join(f"\\{line}" if line.startswith("#") else line for line in text.strip().splitlines())


def one_line(text: str) -> str:
    return " ".join(text.split())


def output_pieces(output: StageOutput, *, with_data: bool = False) -> tuple[Piece, ...]:
    """An output in pieces, in the order in which they are read."""
    name = output.stage_name
    pieces = [Piece(name, "summary", inert(output.summary))]
    for number, finding in enumerate(output.key_findings):
        doubt = " (not found in its source)" if finding.grounded is False else ""
        pieces.append(Piece(name, "finding", f"- {one_line(finding.fact)} [{one_line(finding.source)}]{doubt}", number))
    if output.next_stage_recommendations:
        said = "; ".join(one_line(text) for text in output.next_stage_recommendations)
        pieces.append(Piece(name, "recommendations", f"Recommended next: {said}"))
    if output.data is not None and (with_data or output.legacy):
        pieces.append(Piece(name, "data", "Data: " + json.dumps(output.data, ensure_ascii=False, default=str)))
    return tuple(pieces)


def block(output: StageOutput, pieces: Sequence[Piece], *, provisional: bool) -> str:
    """An output as it stands in a prompt, with the pieces that are left of it."""
    doubt = "; provisional, to be checked" if provisional else ""
    lines = [f"## {output.stage_name} (confidence: {output.confidence}{doubt})", *(piece.text for piece in pieces)]
    if output.raw_data_refs:
        lines.append("Raw data: " + ", ".join(one_line(ref) for ref in output.raw_data_refs))
    return "\n".join(lines)


def memory_pieces(retrieved: Sequence[Mapping[str, Any]]) -> tuple[Piece, ...]:
    """The retrieved memories in pieces, best first."""
    return tuple(
        Piece(str(memory.get("id") or number + 1), "memory", f"- {one_line(str(memory.get('text', '')))}{_origin(memory)}", number)
        for number, memory in enumerate(retrieved)
    )


def _origin(memory: Mapping[str, Any]) -> str:
    parts = [one_line(str(memory[key])) for key in ("source", "time", "trust") if memory.get(key)]
    if memory.get("trust"):
        parts[-1] = f"trust: {parts[-1]}"
    return f" [{'; '.join(parts)}]" if parts else ""


def context_markdown(system_prompt: str, prompt: str, evicted: Sequence[Mapping[str, Any]]) -> str:
    """What a stage was given, for people."""
    left_out = "\n".join(f"- {one['name']} ({one['tokens']} tokens)" for one in evicted)
    parts = ["<!-- what the stage's agent was given -->", "# System prompt", system_prompt or "(none)", prompt]
    if left_out:
        parts += ["# Left out, because it did not fit", left_out]
    return "\n\n".join(parts) + "\n"


def output_markdown(output: StageOutput, *, provisional: bool = False) -> str:
    """What a stage wrote, for people."""
    parts = [f"# {output.stage_name}", f"Confidence: {output.confidence}{' (provisional)' if provisional else ''}", inert(output.summary)]
    pieces = output_pieces(output)
    if findings := [piece.text for piece in pieces if piece.kind == "finding"]:
        parts += ["## Findings", "\n".join(findings)]
    if output.next_stage_recommendations:
        parts += ["## Recommended next", "\n".join(f"- {one_line(text)}" for text in output.next_stage_recommendations)]
    if output.raw_data_refs:
        parts += ["## Raw data", "\n".join(f"- {ref}" for ref in output.raw_data_refs)]
    if output.data is not None:
        parts += ["## Data", "```json\n" + json.dumps(output.data, ensure_ascii=False, indent=2, default=str) + "\n```"]
    return "\n\n".join(parts) + "\n"
