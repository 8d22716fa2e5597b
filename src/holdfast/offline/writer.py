"""The writer without a model: a Markdown report in which every sentence is quoted from a source, with its number (W18).

The answers come first, two or three sentences for each question; then what speaks against them, what was not found and what was not read;
further sentences and the list of sources stand in an appendix. What stands outside of the quoted sentences is a fixed frame of headings and
labels. Texts of sources are data: what would be markup is escaped. `render` is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from holdfast.durable.replace import replace_text
from holdfast.offline.planner import is_question
from holdfast.offline.sources import library_of_outputs
from holdfast.offline.synthesizer import Cited, Dispute, QuestionGroup, Said, Synthesis, read_synthesis, rechecked, synthesize, unfounded
from holdfast.session.output import CONFIDENCES, Finding, StageOutput
from holdfast.text.language import guess_language, read_lists
from holdfast.text.normalise import one_line
from holdfast.validation import counted
from holdfast.workflow.agent import StageRequest, StageResult, cited_texts, recheck_output

FILE = "report.md"
_LISTS = read_lists("holdfast.offline", "report_words")
_MARKUP = re.compile(r"[<>]|!\[|\]\(|^(?=[#>|]|[+-]\s)", re.MULTILINE)
_ESCAPES = {"<": "&lt;", ">": "&gt;", "![": "\\!\\[", "](": "]\\(", "": "\\"}
_FIRST = 3  # sentences that answer a question; of each of several compared things, one less
_WORDS = 75  # that the sentences after the first may take together
_NUMBERED = re.compile(r"-\d{4}-\d\d-\d\d-\d{3,}$")
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


def render(task: str, synthesis: Synthesis, *, name: str = "", unfounded: Sequence[Finding] = ()) -> str:
    """The report on a task, under this name where the task itself is several questions. The same synthesis gives the same report.

    What is in no source (`unfounded`) is no quotation and stands apart."""
    numbering, words = Numbering(), report_words(task)
    title = _title(task, synthesis, name, words) or words["report"]
    lines = [f"# {title}", "", f"> {words['note']}", "", _counts(synthesis, words), ""]
    rest: list[str] = []
    for topic, groups in _by_topic(synthesis.groups).items():
        lines += _section(topic, groups, synthesis.disputes, numbering, rest, words)
    asked = [one for one in synthesis.disputes if one.questions]
    lines += _disagreements(f"## {words['disagree']}", asked, numbering, words)
    lines += _open(synthesis, words)
    if unfounded:
        lines += [f"## {words['unfounded']}", "", *(f"- {escape(one.fact)} ({escape(one.source)})" for one in unfounded), ""]
    lines += [f"## {words['appendix']}", "", f"**{words['task']}** {escape(one_line(task))}", ""]
    lines += [f"### {words['further']}", "", *rest] if rest else []
    beside = [one for one in synthesis.disputes if not one.questions]
    lines += _disagreements(f"### {words['beside']}", beside, numbering, words)
    return "\n".join([*lines, *_sources(numbering, synthesis.documents, words)]).rstrip() + "\n"


def report_words(task: str) -> Mapping[str, str]:
    """The headings and labels of a report in the language of its task; English where there are none in it."""
    found: Mapping[str, str] = _LISTS.get(guess_language(task), _LISTS["en"])
    return found


def escape(text: str) -> str:
    """A source's words, with what Markdown or HTML would act upon made harmless."""
    return _MARKUP.sub(lambda match: _ESCAPES[match.group()], text)


def _title(task: str, synthesis: Synthesis, name: str, words: Mapping[str, str]) -> str:
    """What the task says first; where that is one of several questions, the name and how many there are: the first is not the whole."""
    parts = (part.strip(" -*#>\t").rstrip(" .:") for part in re.split(r"(?<=[.?!。？！])\s|[:\n]", task.strip()))
    first, *more = [part for part in parts if re.search(r"[^\W\d]", part)] or [""]
    if name and is_question(first) and any(is_question(part) for part in more):
        return escape(f"{one_line(name)}: {len(synthesis.groups)} {words['questions']}")
    return escape(first if len(first) <= 100 else first[:97].rsplit(" ", 1)[0] + " ...")


def _workflow_name(session: str) -> str:
    """The id of the workflow, which the name of a session begins with."""
    return _NUMBERED.sub("", session)


def _counts(synthesis: Synthesis, words: Mapping[str, str]) -> str:
    """How much was found, in the language of the report: what is counted is named before its number, so that every number fits."""
    asked = len(synthesis.groups)
    sources = len({one.document for group in synthesis.groups for said in group.said for one in said.cited})
    found, disputes = asked - len(synthesis.unanswered), len(synthesis.disputes)  # those in the appendix too: they are told as D1, D2
    return f"*{words['counts'].format(found=found, asked=asked, sources=sources, disputes=disputes)}*"


def _by_topic(groups: Sequence[QuestionGroup]) -> dict[str, list[QuestionGroup]]:
    topics: dict[str, list[QuestionGroup]] = {}
    for group in groups:
        topics.setdefault(group.question.topic or group.question.text, []).append(group)
    return topics


def _section(
    topic: str,
    groups: Sequence[QuestionGroup],
    disputes: Sequence[Dispute],
    numbering: Numbering,
    rest: list[str],
    words: Mapping[str, str],
) -> list[str]:
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
        lines += [_bullet(one, numbering, words) for one in first] or [f"- *{words['nothing']}*"]
        lines += [line for one in first for line in _against(one, first, disputes, numbering, words)]
        lines.append("")
        more += [_bullet(one, numbering, words) for one in said if one not in first]
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


def _bullet(said: Said, numbering: Numbering, words: Mapping[str, str]) -> str:
    notes = []
    if said.old is not None:
        notes.append(words["older"].format(year=said.old))
    return f"- {escape(said.fact)} {numbering.mark(said.cited)}" + (f" *({'; '.join(notes)})*" if notes else "")


def _against(said: Said, shown: Sequence[Said], disputes: Sequence[Dispute], numbering: Numbering, words: Mapping[str, str]) -> list[str]:
    """The sentences that a shown one does not agree with, unless they are shown beside it."""
    facts = [one.fact for one in shown]
    return [
        f"- {escape(one.fact)} {numbering.mark([Cited(one.source)])} *({words['against'].format(mark=f'D{dispute.number}')})*"
        for dispute in disputes
        if dispute.number in said.disputes
        for one in dispute.statements
        if not one.stands_in(facts)
    ]


def _disagreements(heading: str, disputes: Sequence[Dispute], numbering: Numbering, words: Mapping[str, str]) -> list[str]:
    if not disputes:
        return []
    lines = [heading, ""]
    for dispute in disputes:
        values = f" {words['or']} ".join(one.value for one in dispute.statements)
        lines += [f"**D{dispute.number}. {escape(values)}?**", ""]
        lines += [f"- {escape(one.fact)} {numbering.mark([Cited(one.source)])}" for one in dispute.statements]
        lines.append("")
    return lines


def _open(synthesis: Synthesis, words: Mapping[str, str]) -> list[str]:
    """What the sources do not answer, and what in them was left aside."""
    lines: list[str] = []
    if synthesis.unanswered:
        lines += [f"## {words['not_found']}", "", *(f"- {escape(question.text)}" for question in synthesis.unanswered), ""]
    if synthesis.not_read:
        lines += [f"## {words['not_read']}", "", *(f"- {escape(name)}: {escape(why)}" for name, why in synthesis.not_read.items()), ""]
    if synthesis.passed_over:
        names = {document: _name(document, synthesis.documents.get(document, {})) for document in synthesis.passed_over}
        told = [f"- *{escape(names[one])}: {words['orders'].format(count=count)}.*" for one, count in synthesis.passed_over.items()]
        lines += [f"## {words['passed_over']}", "", *told, ""]
    return lines


def _sources(numbering: Numbering, documents: Mapping[str, Mapping[str, Any]], words: Mapping[str, str]) -> list[str]:
    lines = [f"## {words['sources']}", ""]
    for number, document, raw in numbering.listed():
        known = documents.get(document, {})
        title, author, dated = (known.get(key) for key in ("title", "author", "dated"))
        name = _name(document, known)
        called = f"“{escape(title)}”" if title and title != name else ""
        parts = [escape(name), called, escape(author or ""), f"{words['dated']} {dated}" if dated else words["not_dated"]]
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
        given = rechecked(request)
        read = read_synthesis(given)
        synthesis = _quoted(read, request) if read is not None else synthesize(request.task, given, library_of_outputs(request))
        report = render(request.task, synthesis, name=_workflow_name(request.session_id), unfounded=unfounded(given))
        path = request.folder / FILE
        replace_text(path, report)
        ref = request.raw.put(report, source=FILE, media_type="text/markdown")
        request.emit(f"{counted(len(report.split()), 'word')} in {path}")
        return StageResult(output=_output(request, synthesis, report, ref))


def _quoted(synthesis: Synthesis, request: StageRequest) -> Synthesis:
    """A synthesis that was handed on, without what a person put among its sentences that is in no source."""
    resolve = cited_texts(request.given, request.raw.text)

    def kept(group: QuestionGroup) -> QuestionGroup:
        found = tuple(Finding(said.fact, said.cited[0].source, said.grounded) for said in group.said)
        checked = recheck_output(StageOutput("read", "read", found, data={"method": "extraction"}), resolve).key_findings
        return replace(group, said=tuple(said for said, one in zip(group.said, checked, strict=True) if one.grounded is not False))

    return replace(synthesis, groups=tuple(kept(group) for group in synthesis.groups))


def _output(request: StageRequest, synthesis: Synthesis, report: str, ref: str) -> StageOutput:
    found = [group for group in synthesis.groups if group.said]
    confidences = [output.confidence for output in request.given if output.key_findings]
    refs = dict.fromkeys((ref, *(one for output in request.given for one in output.raw_data_refs)))
    return StageOutput(
        request.stage.name,
        f"A report of {counted(len(report.split()), 'word')}, made of sentences selected from the sources. It has sentences for "
        f"{len(found)} of {counted(len(synthesis.groups), 'question')} "
        f"and names {counted(len(synthesis.disputes), 'disagreement')}. Nothing was generated.",
        tuple(
            Finding(group.said[0].fact, group.said[0].cited[0].source, group.said[0].grounded, {"questions": [group.question.id]})
            for group in found
        ),
        max(confidences, key=CONFIDENCES.index) if confidences and found else "low",
        tuple(f"Not answered by the sources: {question.text}" for question in synthesis.unanswered),
        tuple(refs),
        {"method": "extraction", "report": report, "file": FILE},
    )
