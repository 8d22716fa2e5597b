"""Checking a stage's output by program: each source resolves, and each fact is in its source. For outputs of models and of agents alike.

What is not grounded is marked so and never removed: a person may know better. Each figure and each stretch in quotation
marks of a fact has to be in the source word for word, however alike the rest is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from holdfast.amounts import counted
from holdfast.extract.passages import Grounding, Passage, SourceText, ground
from holdfast.session.output import CONFIDENCES, Confidence, Finding, StageOutput
from holdfast.text.normalise import normalise

Resolve = Callable[[str], str | None]
"""The text that a source stands for, or None if there is no such source."""
Kind = Literal["exact", "normalised", "near", "absent", "other figure", "other quote", "no source"]

_ONE_PLACE = 1_000  # characters
_FIGURE = re.compile(r"(?<![\w.])[-−]?\d+(?:[.,:]\d+)*(?![\w]*[A-Za-z_]\d)")
_QUOTED = re.compile(r"[“„«\"]([^“”„«»\"]{8,}?)[”“»\"]")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the check of one finding found: whether it stands, how it is in its source, and why not, in words."""

    finding: Finding
    grounded: bool
    kind: Kind
    why: str = ""
    passage: Passage | None = None
    """Where it stands in its source."""


@dataclass(frozen=True, slots=True)
class GroundingReport:
    """The verdicts on all findings of one output."""

    verdicts: tuple[Verdict, ...]

    @property
    def ungrounded(self) -> tuple[Verdict, ...]:
        return tuple(verdict for verdict in self.verdicts if not verdict.grounded)

    @property
    def summary(self) -> str:
        """One line for a person."""
        total, bad = len(self.verdicts), len(self.ungrounded)
        return f"{total - bad} of {counted(total, 'finding')} can be found in the sources." if total else "There are no findings to check."


def ground_output(output: StageOutput, resolve: Resolve) -> tuple[StageOutput, GroundingReport]:
    """The output with `grounded` set on each finding, and the verdicts. One that is not grounded lowers the confidence by one step; if
    several are there and none of them is, it is low."""
    verdicts = tuple(ground_finding(finding, resolve) for finding in output.key_findings)
    marked = tuple(replace(verdict.finding, grounded=verdict.grounded) for verdict in verdicts)
    report = GroundingReport(verdicts)
    confidence = lowered(output.confidence) if report.ungrounded else output.confidence
    if len(report.ungrounded) == len(report.verdicts) > 1:
        confidence = "low"
    return replace(output, key_findings=marked, confidence=confidence), report


def ground_finding(finding: Finding, resolve: Resolve) -> Verdict:
    """Whether one fact is in the source that it names."""
    text = resolve(finding.source)
    if text is None:
        return Verdict(finding, False, "no source", f"there is no source {finding.source!r}")
    found = _ground(finding.fact, SourceText(finding.source, text))
    if found.kind in ("exact", "normalised"):
        return Verdict(finding, True, found.kind, passage=found.passage)
    missing = _missing_figure(finding.fact, text)
    if missing:
        return Verdict(finding, False, "other figure", f"the figure {missing} is not in {finding.source}")
    quote = next((quoted for quoted in _QUOTED.findall(finding.fact) if normalise(quoted).strip(" .,;:") not in normalise(text)), None)
    if quote is not None:
        return Verdict(finding, False, "other quote", f"the words “{quote[:80]}” are not in {finding.source}")
    if found.kind == "near":
        return Verdict(finding, True, "near", passage=found.passage)
    return Verdict(finding, False, "absent", f"{finding.source} does not say so")


def _ground(fact: str, source: SourceText) -> Grounding:
    """As `ground`, but what is nearly there has to be in one place: a log whose lines end in no full stop is one sentence to a splitter,
    and a page full of words and figures would hold nearly anything."""
    found = ground(fact, [source])
    if found.kind != "near" or found.passage is None or len(found.passage.text) <= _ONE_PLACE:
        return found
    start, best = 0, Grounding("absent", 0.0)
    for line in source.text.splitlines(keepends=True):
        near = ground(fact, [SourceText(source.id, line)]) if len(line) <= _ONE_PLACE else best
        if near.score > best.score and near.passage is not None:
            here = near.passage
            best = replace(near, passage=replace(here, start=start + here.start, end=start + here.end))
        start += len(line)
    return best


def strange_figures(text: str, sources: str) -> list[str]:
    """The figures of a text that its sources do not have, if there are several and they are most of its figures; else none.

    One or two that are new may be sums and counts of its own.
    """
    there = {_plain(figure) for figure in _FIGURE.findall(normalise(sources))}
    said = list(dict.fromkeys(_FIGURE.findall(normalise(text))))
    new = [figure for figure in said if _plain(figure) not in there]
    return new if len(new) > 2 and 2 * len(new) > len(said) else []


def _missing_figure(fact: str, text: str) -> str | None:
    """A figure of the fact that the source does not have, thousands separators aside."""
    there = {_plain(figure) for figure in _FIGURE.findall(normalise(text))}
    return next((figure for figure in _FIGURE.findall(normalise(fact)) if _plain(figure) not in there), None)


def _plain(figure: str) -> str:
    return re.sub(r"(?<=\d),(?=\d{3}(?:\D|$))", "", figure).replace(",", ".").rstrip(".:")


def lowered(confidence: Confidence) -> Confidence:
    """One step less sure.

    >>> lowered("high"), lowered("low")
    ('medium', 'low')
    """
    return CONFIDENCES[min(CONFIDENCES.index(confidence) + 1, len(CONFIDENCES) - 1)]
