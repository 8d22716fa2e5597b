"""The writer without a model: a Markdown report in which every sentence is quoted from a source, with its number (W18).

What stands outside of the quoted sentences is a fixed frame of headings and labels. Texts of sources are data: what would be markup is
escaped. `render` is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from holdfast.durable.replace import replace_text
from holdfast.offline.quantities import Quantity, find_quantities
from holdfast.offline.sources import library_of_outputs
from holdfast.offline.synthesizer import Cited, Dispute, QuestionGroup, Said, Synthesis, read_synthesis, synthesize
from holdfast.session.output import CONFIDENCES, Finding, StageOutput
from holdfast.text.normalise import one_line
from holdfast.workflow.agent import StageRequest, StageResult

_NOTE = (
    "This report was put together by program and not by a language model. It consists of sentences selected from the sources, "
    "word for word; the number in brackets says which source. Nothing was generated, and nothing was judged: "
    "where sources disagree, both are quoted."
)
_MARKUP = re.compile(r"[<>]|!\[|\]\(|^(?=[#>|]|[+-]\s|\d+[.)]\s)", re.MULTILINE)
_ESCAPES = {"<": "&lt;", ">": "&gt;", "![": "\\!\\[", "](": "]\\(", "": "\\"}
_CELL = 3  # figures in one cell of the table
_WORTH = 0.7  # of the weight of the weightiest finding: below, a figure is told in passing


_REF = len("raw:sha256-") + 16  # a beginning that is unique is as good as the whole reference


class Numbering:
    """Numbers the documents in the order in which they are cited."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._cited: dict[str, list[Cited]] = {}

    def mark(self, cited: Iterable[Cited]) -> str:
        """The reference of a sentence: `[1][3]`."""
        numbers: list[int] = []
        for one in cited:
            number = self._numbers.setdefault(one.document, len(self._numbers) + 1)
            self._cited.setdefault(one.document, []).append(one)
            if number not in numbers:
                numbers.append(number)
        return "".join(f"[{number}]" for number in numbers)

    def listed(self) -> list[tuple[int, str, list[Cited]]]:
        """The documents with their numbers and all places of them that were cited."""
        return [(number, document, self._cited[document]) for document, number in self._numbers.items()]


def render(task: str, synthesis: Synthesis) -> str:
    """The report on a task. The same synthesis gives the same report, byte for byte."""
    numbering = Numbering()
    body: list[str] = []
    for topic, groups in _by_topic(synthesis.groups).items():
        body += _section(topic, groups, numbering)
    body += _disagreements(
        synthesis.disputes, numbering, several=len({group.question.topic for group in synthesis.groups if group.question.item}) > 1
    )
    body += _open(synthesis)
    lines = [
        f"# {_title(task)}",
        "",
        f"> {_NOTE}",
        "",
        f"**Task.** {escape(one_line(task))}",
        "",
        _counts(synthesis),
        "",
        *_glance(synthesis, numbering),
        *body,
    ]
    return "\n".join([*lines, *_sources(numbering, synthesis.documents)]).rstrip() + "\n"


def escape(text: str) -> str:
    """A source's words, with what Markdown or HTML would act upon made harmless."""
    return _MARKUP.sub(lambda match: _ESCAPES[match.group()], text)


def _title(task: str) -> str:
    first = re.split(r"(?<=[.?!。？！])\s|[:\n]", task.strip(), maxsplit=1)[0].rstrip(" .:")
    return escape(first if len(first) <= 100 else first[:97].rsplit(" ", 1)[0] + " ...") or "Report"


def _counts(synthesis: Synthesis) -> str:
    questions, found = len(synthesis.groups), sum(len(group.said) for group in synthesis.groups)
    documents = len({one.document for group in synthesis.groups for said in group.said for one in said.cited})
    parts = [
        f"{questions - len(synthesis.unanswered)} of {questions} questions answered",
        f"{found} findings",
        f"{documents} sources",
        f"{len(synthesis.disputes)} disagreements",
    ]
    return "*" + " · ".join(parts) + "*"


def _by_topic(groups: Sequence[QuestionGroup]) -> dict[str, list[QuestionGroup]]:
    topics: dict[str, list[QuestionGroup]] = {}
    for group in groups:
        topics.setdefault(group.question.topic or group.question.text, []).append(group)
    return topics


def _heading(topic: str, groups: Sequence[QuestionGroup]) -> str:
    text = groups[0].question.text if len(groups) == 1 and groups[0].question.kind not in ("aspect", "topic", "context") else topic
    return escape(one_line(text[:1].upper() + text[1:]))


def _section(topic: str, groups: Sequence[QuestionGroup], numbering: Numbering) -> list[str]:
    if not any(group.said for group in groups):
        return []
    lines = [f"## {_heading(topic, groups)}", ""]
    several = len(groups) > 1
    for label, said in _by_item(groups).items():
        if several:
            lines += [f"**{escape(label)}**", ""]
        lines += [_bullet(one, numbering) for one in said] or ["- *Nothing was found.*"]
        lines.append("")
    return lines


def _by_item(groups: Sequence[QuestionGroup]) -> dict[str, list[Said]]:
    """What was said about each thing, each sentence once: two questions about one thing may have the same answer."""
    items: dict[str, list[Said]] = {}
    for group in groups:
        known = items.setdefault(group.question.item or group.question.text, [])
        known += [one for one in group.said if one.fact not in {other.fact for other in known}]
    return items


def _bullet(said: Said, numbering: Numbering) -> str:
    notes = []
    if said.old is not None:
        notes.append(f"from {said.old}, older than the other sources")
    if said.disputes:
        notes.append("disputed: " + ", ".join(f"D{number}" for number in said.disputes))
    if said.grounded is False:
        notes.append("not found in its source")
    return f"- {escape(said.fact)} {numbering.mark(said.cited)}" + (f" *({'; '.join(notes)})*" if notes else "")


def _disagreements(disputes: Sequence[Dispute], numbering: Numbering, *, several: bool) -> list[str]:
    if not disputes:
        return []
    lines = ["## Where the sources disagree", ""]
    for dispute in disputes:
        values = list(dict.fromkeys(value for _, _, value in dispute.statements if value))
        what = ", ".join(part for part in (dispute.subject, *(dispute.topics if several else ())) if part)
        how = " or ".join(values) + "?" if len(values) > 1 else "yes and no" if dispute.kind == "negation" else "one and its opposite"
        lines += [f"**D{dispute.number}. {escape(what)}: {escape(how)}**" if what else f"**D{dispute.number}. {escape(how)}**", ""]
        lines += [f"- {escape(fact)} {numbering.mark([cited])}" for fact, cited, _ in dispute.statements]
        lines.append("")
    return lines


def _open(synthesis: Synthesis) -> list[str]:
    """What the sources do not answer, and what in them was left aside."""
    lines: list[str] = []
    found = {group.question.id for group in synthesis.groups if group.said}
    if synthesis.unanswered:
        lines += ["## What was not found", ""]
        lines += [
            f"- {escape(question.text)}" + (" *(only sentences that touch on it)*" if question.id in found else "")
            for question in synthesis.unanswered
        ]
        lines.append("")
    if synthesis.passed_over:
        lines += ["## What was passed over", ""]
        lines += [
            f"- *{count} sentences of {escape(document)} that give orders to an assistant instead of saying something.*"
            for document, count in synthesis.passed_over.items()
        ]
        lines.append("")
    return lines


def _glance(synthesis: Synthesis, numbering: Numbering) -> list[str]:
    """A table of the figures, one row for each topic and one column for each thing, where most of a row can be filled."""
    items = list(dict.fromkeys(group.question.item for group in synthesis.groups if group.question.item))
    if len(items) < 2:
        return []
    rows = []
    for topic, groups in _by_topic([group for group in synthesis.groups if group.question.item]).items():
        sort = _telling_sort(groups, items)
        cells: dict[str, str] = {}
        for group in groups if sort else ():
            usual = _usual(groups, sort or "", items)
            cells[group.question.item] = cells.get(group.question.item) or _cell(group, sort or "", usual, items, numbering)
        if sum(bool(cell) for cell in cells.values()) * 2 > len(items):
            rows.append(f"| {escape(topic)} | " + " | ".join(cells.get(item, "") or "–" for item in items) + " |")
    if not rows:
        return []
    head = ["| | " + " | ".join(escape(item) for item in items) + " |", "|---|" + "---|" * len(items)]
    return ["## At a glance", "", *head, *rows, "", "*The figures as the sources give them, each under its own conditions; see below.*", ""]


def _figures(text: str, item: str, items: Sequence[str]) -> list[Quantity]:
    """The figures of a sentence that are about this thing: all, or those between its name and the next one."""
    places = sorted((match.start(), other) for other in items for match in re.finditer(rf"\b{re.escape(other)}\b", text))
    for other in items:
        text = re.sub(rf"\b{re.escape(other)}(?: \d+(?:\.\d+)+)?", lambda match: " " * len(match.group()), text)
    found = find_quantities(text)
    if len({other for _, other in places}) < 2:
        return found
    starts = [start for start, _ in places] + [len(text)]
    spans = [(start, starts[n + 1]) for n, (start, other) in enumerate(places) if other == item]
    return [one for one in found if any(start <= one.start < end for start, end in spans)]


def _usual(groups: Sequence[QuestionGroup], sort: str, items: Sequence[str]) -> float:
    values = [
        one.value for group in groups for said in group.said for one in _figures(said.fact, group.question.item, items) if one.sort == sort
    ]
    return median(values) if values else 0.0


def _telling_sort(groups: Sequence[QuestionGroup], items: Sequence[str]) -> str | None:
    """The sort of figure with the most different values: what varies is what is told, what stays the same is a condition."""
    values: dict[str, set[tuple[str, float]]] = {}
    for group in groups:
        for said in group.said:
            for one in _figures(said.fact, group.question.item, items):
                if one.sort:
                    values.setdefault(one.sort, set()).add((group.question.item, one.value))
    things = {sort: len({item for item, _ in found}) for sort, found in values.items()}
    good = [sort for sort, found in values.items() if things[sort] > 1 and len(found) > 2]
    return min(good, key=lambda sort: (-things[sort], -len(values[sort]), sort)) if good else None


def _cell(group: QuestionGroup, sort: str, usual: float, items: Sequence[str], numbering: Numbering) -> str:
    """The figures of the weightiest findings. One a thousand times larger or smaller than is usual measures something else."""
    shown: dict[str, list[Cited]] = {}
    best = max((said.weight for said in group.said), default=0.0)
    for said in group.said:
        figures = [one for one in _figures(said.fact, group.question.item, items) if one.sort == sort]
        if figures and said.old is None and said.weight >= _WORTH * best:
            figure = figures[-1] if re.search(r"\bfrom\s+$", said.fact[: figures[0].start]) else figures[0]
            if usual and not 1e-3 <= abs(figure.value / usual) <= 1e3:
                continue
            shown.setdefault(one_line(figure.text), []).extend(said.cited)
    return ", ".join(f"{escape(text)} {numbering.mark(cited)}" for text, cited in list(shown.items())[:_CELL]).replace("|", "\\|")


def _sources(numbering: Numbering, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["## Sources", ""]
    for number, document, cited in numbering.listed():
        known = documents.get(document, {})
        title = known.get("title")
        parts = [escape(document), f"“{escape(title)}”" if isinstance(title, str) else "", _day(known.get("dated") or known.get("written"))]
        raw = next((one.raw for one in cited if one.raw), "") or str(known.get("ref") or "")
        lines.append(f"{number}. {', '.join(part for part in parts if part)}" + (f" (`{raw[:_REF]}`)" if raw else ""))
    return lines if len(lines) > 2 else []


def _day(written: object) -> str:
    return f"dated {written}" if isinstance(written, str) else "not dated"


FILE = "report.md"


class Writer:
    """Renders what was found. It takes a synthesis where one was given, and makes one of the findings where not."""

    def run(self, request: StageRequest) -> StageResult:
        synthesis = read_synthesis(request.given) or synthesize(request.task, request.given, library_of_outputs(request))
        report = render(request.task, synthesis)
        path = request.folder / FILE
        replace_text(path, report)
        ref = request.raw.put(report, source=FILE, media_type="text/markdown")
        request.emit(f"{len(report.split())} words in {FILE}")
        return StageResult(output=_output(request, synthesis, report, ref))


def _output(request: StageRequest, synthesis: Synthesis, report: str, ref: str) -> StageOutput:
    found = [group for group in synthesis.groups if group.said]
    confidences = [output.confidence for output in request.given if output.key_findings]
    refs = dict.fromkeys((ref, *(one for output in request.given for one in output.raw_data_refs)))
    answered = len(synthesis.groups) - len(synthesis.unanswered)
    return StageOutput(
        request.stage.name,
        f"A report of {len(report.split())} words, made of sentences selected from the sources. It answers {answered} of "
        f"{len(synthesis.groups)} questions and names {len(synthesis.disputes)} disagreements. Nothing was generated. It is in "
        f"{request.folder.parent.name}/{request.folder.name}/{FILE}.",
        tuple(
            Finding(group.said[0].fact, group.said[0].cited[0].source, group.said[0].grounded, {"questions": [group.question.id]})
            for group in found
        ),
        max(confidences, key=CONFIDENCES.index) if confidences and found else "low",
        tuple(f"Not answered by the sources: {question.text}" for question in synthesis.unanswered),
        tuple(refs),
        {"method": "extraction", "report": report, "file": FILE},
    )
