"""The researcher without a model: for each question the sentences of the sources that answer it, word for word (W18, W10)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.amounts import counted
from holdfast.errors import Cancelled, ConfigError
from holdfast.extract.sentence_index import FAIR, SURE
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.planner import TaskQuestion, questions_given, questions_json, split_task
from holdfast.offline.retrieval import AnswerUnit, Retrieval, speaks_of
from holdfast.offline.sources import check_sources, gather
from holdfast.offline.stage_settings import whole_number
from holdfast.session.output import Confidence, Finding, StageOutput
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.definition import Stage
from holdfast.workflow.output_grounding import ground_output

_PER_QUESTION = 5
_KEPT = 200  # documents that are kept for the next stage beside those that are cited
Answered = dict[str, list[AnswerUnit]]


class Researcher:
    """Reads its sources and selects sentences.

    Settings: `sources` {folder, globs, knowledge, raw, top_k}; `max_findings` for each question (5). The questions are those of a planner
    among the given outputs, or else the task itself, split.
    """

    def check_sources(self, stage: Stage, home: Path | None) -> None:
        """ConfigError for sources that cannot be read."""
        check_sources(stage, home)

    def run(self, request: StageRequest) -> StageResult:
        questions = questions_given(request.given) or split_task(request.task)
        most = whole_number(request.stage, "max_findings", _PER_QUESTION)
        library = gather(request, [question.query for question in questions])
        if not len(library):
            raise ConfigError(
                "there is nothing to search.",
                line=request.stage.line_of("sources"),
                key=f"stages.{request.stage.name}.sources",
                hint="Name a folder (`sources: {folder: docs}`), or configure a knowledge store.",
            )
        request.emit(f"{counted(len(library), 'document')}, {counted(len(questions), 'question')}")
        retrieval = Retrieval(library)
        answered: Answered = {}
        for question in questions:
            if request.cancelled():
                raise Cancelled("The search was stopped.", session=request.session_id, stage=request.stage.name)
            answered[question.id] = _answers(question, questions, retrieval, most)
            request.emit(f"{question.id}: {counted(len(answered[question.id]), 'sentence')}")
        output = _output(request, questions, library, answered, _stored(request, library, answered), retrieval.tainted)
        return StageResult(output=ground_output(output, library.text_of)[0])


def _answers(question: TaskQuestion, questions: Sequence[TaskQuestion], retrieval: Retrieval, most: int) -> list[AnswerUnit]:
    """What answers a question. Of several things together only that speaks which itself names one of them."""
    if question.kind != "choice":
        return retrieval.answers(question.query, most, name=question.item)
    names = [speaks_of(item) for item in dict.fromkeys(one.item for one in questions if one.item and one.item in question.text)]
    found = retrieval.answers(question.query, most * 4 if names else most)
    return [one for one in found if not names or any(name.search(one.fact) for name in names)][:most]


def _stored(request: StageRequest, library: Library, answered: Answered) -> dict[str, str]:
    """Keep the text of every document that is cited, and of others: they may disagree."""
    used = dict.fromkeys(one.document.id for found in answered.values() for answer in found for one in (answer, *answer.also))
    used.update(dict.fromkeys([document.id for document in library if document.id not in used][:_KEPT]))
    documents = {document.id: document for document in library}
    return {name: _kept(request, documents[name]) for name in used}


def _kept(request: StageRequest, document: SourceDocument) -> str:
    return document.ref or request.raw.put(document.text, source=document.id, media_type="text/markdown")


def _output(
    request: StageRequest,
    questions: Sequence[TaskQuestion],
    library: Library,
    answered: Answered,
    refs: dict[str, str],
    tainted: dict[str, int],
) -> StageOutput:
    findings = _findings(answered, refs)
    unanswered = [one for one in questions if not answered[one.id]]
    cited = {one.document.id for found in answered.values() for answer in found for one in (answer, *answer.also)}
    passed = sum(tainted.values())
    notes = f" Passed over: {counted(passed, 'sentence')} with orders to an assistant ({', '.join(tainted)})." if passed else ""
    notes += f" Not read: {', '.join(library.not_read)}." if library.not_read else ""
    return StageOutput(
        request.stage.name,
        f"{counted(len(findings), 'sentence')} from {len(cited)} of {counted(len(library), 'document')} for "
        f"{len(questions) - len(unanswered)} of {counted(len(questions), 'question')}. "
        f"They are quoted word for word; nothing was generated.{notes}",
        findings,
        _confidence(answered),
        tuple(f"Not answered by the sources: {one.text}" for one in unanswered),
        tuple(dict.fromkeys(refs.values())),
        {
            "method": "extraction",
            "questions": questions_json(questions),
            "unanswered": [one.id for one in unanswered],
            "documents": [_described(document, refs[document.id]) for document in library if document.id in refs],
            "passed_over": tainted,
            "not_read": dict(library.not_read),
        },
    )


def _described(document: SourceDocument, ref: str) -> dict[str, Any]:
    described: dict[str, Any] = {"id": document.id, "ref": ref, "title": document.title, "trust": document.trust}
    if document.written is not None:
        described |= {"written": document.written.isoformat(), "dated": document.dated}
    if document.author:
        described["author"] = document.author
    return {**described, **document.extra}


def _findings(answered: Answered, refs: dict[str, str]) -> tuple[Finding, ...]:
    """Each sentence once, with the questions that it answers and its score for each of them."""
    found: dict[tuple[str, int], Finding] = {}
    for question, answers in answered.items():
        for one in answers:
            place = (one.document.id, one.number)
            if place in found:
                found[place].extra["weights"][question] = one.score
                found[place].extra["questions"].append(question)
                continue
            extra: dict[str, Any] = {"raw": refs[one.document.id], "questions": [question], "weights": {question: one.score}}
            if one.also:
                extra["also"] = [{"fact": other.fact, "source": other.source, "raw": refs[other.document.id]} for other in one.also]
            found[place] = Finding(one.fact, one.source, extra=extra)
    return tuple(found.values())


def _confidence(answered: Answered) -> Confidence:
    """By the score of the best sentence of each question."""
    best = [found[0].score if found else 0.0 for found in answered.values()]
    sure = sum(score >= SURE for score in best) / max(len(best), 1)
    fair = sum(score >= FAIR for score in best) / max(len(best), 1)
    return "high" if sure >= 0.7 and fair >= 0.9 else "medium" if fair >= 0.5 else "low"
