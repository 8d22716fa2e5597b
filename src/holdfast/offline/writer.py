"""The writer without a model: a Markdown report in which every sentence is quoted from a source, with its number (W18).

The answers come first, two or three sentences for each question; then what speaks against them, what was not found and what was not read;
further sentences and the list of sources stand in an appendix. What stands outside of the quoted sentences is a fixed frame of headings and
labels. Texts of sources are data: what would be markup is escaped. `render` is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from holdfast.amounts import counted
from holdfast.durable.replace import replace_text
from holdfast.offline.sources import library_of_outputs
from holdfast.offline.synthesizer import Cited, Dispute, QuestionGroup, Said, Synthesis, read_synthesis, synthesize
from holdfast.session.output import CONFIDENCES, Finding, StageOutput
from holdfast.text.normalise import one_line
from holdfast.workflow.agent import StageRequest, StageResult

FILE = "report.md"
_NOTE = (
    "Put together by program, not by a language model: sentences of the sources, word for word; the number says which source. "
    "Nothing was generated, and nothing was judged."
)
_MARKUP = re.compile(r"[<>]|!\[|\]\(|^(?=[#>|]|[+-]\s)", re.MULTILINE)
_ESCAPES = {"<": "&lt;", ">": "&gt;", "![": "\\!\\[", "](": "]\\(", "": "\\"}
_FIRST = 3  # sentences that answer a question; of each of several compared things, one less
_WORDS = 75  # that the sentences after the first may take together
_REF = len("raw:sha256-") + 16  # a beginning that is unique is as good as the whole reference


class Numbering:
    """Numbers the documents in the order in which they are cited."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._raw: dict[str, str] = {}

    def mark(self, cited: Iterable[Cited]) -> str:
        """The reference of a sentence: `[1][3]`."""
        numbers: list[int] = []
        for one in cited:
            number = self._numbers.setdefault(one.document, len(self._numbers) + 1)
            self._raw.setdefault(one.document, one.raw)
            if number not in numbers:
                numbers.append(number)
        return "".join(f"[{number}]" for number in numbers)

    def listed(self) -> list[tuple[int, str, str]]:
        """The documents with their numbers and raw references."""
        return [(number, document, self._raw[document]) for document, number in self._numbers.items()]


def render(task: str, synthesis: Synthesis) -> str:
    """The report on a task. The same synthesis gives the same report, byte for byte."""
    numbering = Numbering()
    lines = [f"# {_title(task)}", "", f"> {_NOTE}", "", _counts(synthesis), ""]
    rest: list[str] = []
    for topic, groups in _by_topic(synthesis.groups).items():
        lines += _section(topic, groups, synthesis.disputes, numbering, rest)
    asked = [one for one in synthesis.disputes if one.questions]
    lines += _disagreements("## Where the sources disagree", asked, numbering)
    lines += _open(synthesis)
    lines += ["## Appendix", "", f"**Task.** {escape(one_line(task))}", ""]
    lines += ["### Further sentences", "", *rest] if rest else []
    beside = [one for one in synthesis.disputes if not one.questions]
    lines += _disagreements("### Where the sources disagree about what was not asked", beside, numbering)
    return "\n".join([*lines, *_sources(numbering, synthesis.documents)]).rstrip() + "\n"


def escape(text: str) -> str:
    """A source's words, with what Markdown or HTML would act upon made harmless."""
    return _MARKUP.sub(lambda match: _ESCAPES[match.group()], text)


def _title(task: str) -> str:
    first = re.split(r"(?<=[.?!。？！])\s|[:\n]", task.strip(), maxsplit=1)[0].rstrip(" .:")
    return escape(first if len(first) <= 100 else first[:97].rsplit(" ", 1)[0] + " ...") or "Report"


def _counts(synthesis: Synthesis) -> str:
    questions = len(synthesis.groups)
    documents = len({one.document for group in synthesis.groups for said in group.said for one in said.cited})
    found = f"Sentences were found for {questions - len(synthesis.unanswered)} of {counted(questions, 'question')}"
    return f"*{found} · {counted(documents, 'source')} · {_disputed(synthesis)}*"


def _disputed(synthesis: Synthesis) -> str:
    return counted(sum(bool(one.questions) for one in synthesis.disputes), "disagreement")


def _by_topic(groups: Sequence[QuestionGroup]) -> dict[str, list[QuestionGroup]]:
    topics: dict[str, list[QuestionGroup]] = {}
    for group in groups:
        topics.setdefault(group.question.topic or group.question.text, []).append(group)
    return topics


def _section(topic: str, groups: Sequence[QuestionGroup], disputes: Sequence[Dispute], numbering: Numbering, rest: list[str]) -> list[str]:
    """What answers a question, or for a topic what answers it for each thing; what is left goes to the appendix."""
    if not any(group.said for group in groups):
        return []
    text = groups[0].question.text if len(groups) == 1 and groups[0].question.kind not in ("aspect", "topic", "context") else topic
    heading = escape(one_line(text[:1].upper() + text[1:]))
    lines, more = [f"## {heading}", ""], []
    several = len(groups) > 1
    for label, said in _by_item(groups).items():
        first = _first(said, _FIRST - 1 if several else _FIRST)
        lines += [f"**{escape(label)}**", ""] if several else []
        lines += [_bullet(one, numbering) for one in first] or ["- *Nothing was found.*"]
        lines += [line for one in first for line in _against(one, first, disputes, numbering)]
        lines.append("")
        more += [_bullet(one, numbering) for one in said if one not in first]
    if more:
        rest += [f"**{heading}**", "", *more, ""]
    return lines


def _by_item(groups: Sequence[QuestionGroup]) -> dict[str, list[Said]]:
    """What was said about each thing, each sentence once: two questions about one thing may have the same answer."""
    items: dict[str, list[Said]] = {}
    for group in groups:
        known = items.setdefault(group.question.item or group.question.text, [])
        known += [one for one in group.said if one.fact not in {other.fact for other in known}]
    return items


def _first(said: Sequence[Said], most: int) -> list[Said]:
    """The first sentences, fewer where they are long."""
    chosen = list(said[:1])
    for one in said[1:most]:
        if sum(len(other.fact.split()) for other in chosen[1:]) + len(one.fact.split()) <= _WORDS:
            chosen.append(one)
    return chosen


def _bullet(said: Said, numbering: Numbering) -> str:
    notes = []
    if said.old is not None:
        notes.append(f"from {said.old}, older than the other sources")
    if said.grounded is False:
        notes.append("not found in its source")
    return f"- {escape(said.fact)} {numbering.mark(said.cited)}" + (f" *({'; '.join(notes)})*" if notes else "")


def _against(said: Said, shown: Sequence[Said], disputes: Sequence[Dispute], numbering: Numbering) -> list[str]:
    """The sentences that a shown one does not agree with, unless they are shown beside it."""
    facts = {one.fact for one in shown}
    return [
        f"- {escape(one.fact)} {numbering.mark([Cited(one.source)])} *(against it: D{dispute.number})*"
        for dispute in disputes
        if dispute.number in said.disputes
        for one in dispute.statements
        if one.fact not in facts
    ]


def _disagreements(heading: str, disputes: Sequence[Dispute], numbering: Numbering) -> list[str]:
    if not disputes:
        return []
    lines = [heading, ""]
    for dispute in disputes:
        lines += [f"**D{dispute.number}. {escape(dispute.values)}?**", ""]
        lines += [f"- {escape(one.fact)} {numbering.mark([Cited(one.source)])}" for one in dispute.statements]
        lines.append("")
    return lines


def _open(synthesis: Synthesis) -> list[str]:
    """What the sources do not answer, and what in them was left aside."""
    lines: list[str] = []
    if synthesis.unanswered:
        lines += ["## What was not found", "", *(f"- {escape(question.text)}" for question in synthesis.unanswered), ""]
    if synthesis.not_read:
        lines += ["## What was not read", "", *(f"- {escape(name)}: {escape(why)}" for name, why in synthesis.not_read.items()), ""]
    if synthesis.passed_over:
        names = {document: _name(document, synthesis.documents.get(document, {})) for document in synthesis.passed_over}
        told = [
            f"- *{escape(names[document])}: {counted(count, 'sentence')} with orders to an assistant instead of something said.*"
            for document, count in synthesis.passed_over.items()
        ]
        lines += ["## What was passed over", "", *told, ""]
    return lines


def _sources(numbering: Numbering, documents: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["## Sources", ""]
    for number, document, raw in numbering.listed():
        known = documents.get(document, {})
        title, author, dated = (known.get(key) for key in ("title", "author", "dated"))
        name = _name(document, known)
        called = f"“{escape(title)}”" if title and title != name else ""
        parts = [escape(name), called, escape(author or ""), f"dated {dated}" if dated else "not dated"]
        ref = raw or str(known.get("ref") or "")
        ids = [f"`{one}`" for one in (document if name != document else "", ref[:_REF]) if one]
        lines.append(f"{number}. {', '.join(part for part in parts if part)}" + (f" ({', '.join(ids)})" if ids else ""))
    return lines if len(lines) > 2 else []


def _name(document: str, known: Mapping[str, Any]) -> str:
    """What people call a document: the name of its file; of a record what it is from, else how it begins, and not its id."""
    return str(known["source"] or known.get("title") or document) if "source" in known else document


class Writer:
    """Renders what was found. It takes a synthesis where one was given, and makes one of the findings where not."""

    def run(self, request: StageRequest) -> StageResult:
        synthesis = read_synthesis(request.given) or synthesize(request.task, request.given, library_of_outputs(request))
        report = render(request.task, synthesis)
        path = request.folder / FILE
        replace_text(path, report)
        ref = request.raw.put(report, source=FILE, media_type="text/markdown")
        request.emit(f"{counted(len(report.split()), 'word')} in {path}")
        return StageResult(output=_output(request, synthesis, report, ref))


def _output(request: StageRequest, synthesis: Synthesis, report: str, ref: str) -> StageOutput:
    found = [group for group in synthesis.groups if group.said]
    confidences = [output.confidence for output in request.given if output.key_findings]
    refs = dict.fromkeys((ref, *(one for output in request.given for one in output.raw_data_refs)))
    return StageOutput(
        request.stage.name,
        f"A report of {counted(len(report.split()), 'word')}, made of sentences selected from the sources. It has sentences for "
        f"{len(found)} of {counted(len(synthesis.groups), 'question')} and names {_disputed(synthesis)}. Nothing was generated. It is in "
        f"{request.folder / FILE}.",
        tuple(
            Finding(group.said[0].fact, group.said[0].cited[0].source, group.said[0].grounded, {"questions": [group.question.id]})
            for group in found
        ),
        max(confidences, key=CONFIDENCES.index) if confidences and found else "low",
        tuple(f"Not answered by the sources: {question.text}" for question in synthesis.unanswered),
        tuple(refs),
        {"method": "extraction", "report": report, "file": FILE},
    )
