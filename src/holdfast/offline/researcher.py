"""The researcher without a model: for each question the sentences of the sources that answer it, word for word (W18, W10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.errors import Cancelled, ConfigError
from holdfast.offline.claims import Names
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.planner import TaskQuestion, names_asked_about, questions_given, questions_json, split_task
from holdfast.offline.retrieval import GOOD, AnswerUnit, Retrieval
from holdfast.offline.sources import gather
from holdfast.offline.stage_settings import whole_number
from holdfast.session.output import Confidence, Finding, StageOutput
from holdfast.text.likeness import NEAR, likeness
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.output_grounding import ground_output

_PER_QUESTION = 5
_CONTEXT = 8  # findings about what it is all for: a list of requirements is longer than an answer
_PER_DOCUMENT = 3
_KEPT = 200  # documents that are kept for the next stage beside those that are cited


@dataclass
class _Chosen:
    """A sentence that was chosen, the questions that it answers, and further sources that say the same."""

    answer: AnswerUnit
    questions: list[str] = field(default_factory=list)
    also: list[AnswerUnit] = field(default_factory=list)


class Researcher:
    """Reads its sources and selects sentences.

    Settings: `sources` {folder, globs, knowledge, raw, top_k}; `max_findings` for each question (5). The questions are those of a planner
    among the given outputs, or else the task itself, split.
    """

    def run(self, request: StageRequest) -> StageResult:
        questions = questions_given(request.given) or split_task(request.task)
        most = whole_number(request.stage, "max_findings", _PER_QUESTION)
        library = gather(request, questions)
        if not len(library):
            raise ConfigError(
                "there is nothing to search.",
                line=request.stage.line,
                key=f"stages.{request.stage.name}.sources",
                hint="Name a folder (`sources: {folder: docs}`), or configure a knowledge store.",
            )
        request.emit(f"{len(library)} documents, {len(questions)} questions")
        names = Names(tuple(names_asked_about(questions, request.task)))
        with Retrieval(library, names, questions) as retrieval:
            chosen, unanswered = _research(request, questions, retrieval, most)
            tainted = retrieval.tainted
        refs = _stored(request, library, chosen, names)
        output = _output(request, questions, library, chosen, unanswered, refs, tainted)
        return StageResult(output=ground_output(output, library.text_of)[0])


def _research(
    request: StageRequest, questions: Sequence[TaskQuestion], retrieval: Retrieval, most: int
) -> tuple[list[_Chosen], list[TaskQuestion]]:
    chosen: list[_Chosen] = []
    unanswered: list[TaskQuestion] = []
    for question in questions:
        if request.cancelled():
            raise Cancelled("The search was stopped.", session=request.session_id, stage=request.stage.name)
        answers = retrieval.answers(question)
        context = question.kind == "context"
        picked = _picked(answers, max(_CONTEXT, most) if context else most, _CONTEXT if context else _PER_DOCUMENT)
        if not picked or all(answer.coverage < GOOD for answer, _ in picked):
            unanswered.append(question)
        for answer, also in picked:
            _note(chosen, answer, also, question.id)
        request.emit(f"{question.id}: {len(picked)} of {len(answers)} sentences")
    return chosen, unanswered


def _picked(answers: Sequence[AnswerUnit], most: int, of_one: int) -> list[tuple[AnswerUnit, list[AnswerUnit]]]:
    """The best answers, each thing once with all that say the same, and at most `of_one` of one document."""
    picked: list[tuple[AnswerUnit, list[AnswerUnit]]] = []
    heard: dict[str, int] = {}
    for answer in answers:
        twin = next((n for n, (first, _) in enumerate(picked) if likeness(first.fact, answer.fact) >= NEAR), None)
        if twin is not None:
            if answer.document.id != picked[twin][0].document.id:
                picked[twin][1].append(answer)
        elif len(picked) < most and heard.get(answer.document.id, 0) < of_one:
            picked.append((answer, []))
            heard[answer.document.id] = heard.get(answer.document.id, 0) + 1
    return picked


def _note(chosen: list[_Chosen], answer: AnswerUnit, also: Sequence[AnswerUnit], question: str) -> None:
    same = next((one for one in chosen if one.answer.document.id == answer.document.id and one.answer.number == answer.number), None)
    if same is None:
        chosen.append(_Chosen(answer, [question], list(also)))
        return
    same.questions.append(question)
    known = {one.source for one in same.also}
    same.also.extend(one for one in also if one.source not in known)


def _stored(request: StageRequest, library: Library, chosen: Sequence[_Chosen], names: Names) -> dict[str, str]:
    """Keep the text of every document that is cited, and of those that speak of the same things: they may disagree."""
    used = dict.fromkeys(answer.document.id for one in chosen for answer in (one.answer, *one.also))
    documents = {document.id: document for document in library}
    speaking = [document.id for document in library if document.id not in used and names.named(document.text)]
    used.update(dict.fromkeys(speaking[:_KEPT]))
    return {name: _kept(request, documents[name]) for name in used}


def _kept(request: StageRequest, document: SourceDocument) -> str:
    return document.ref or request.raw.put(document.text, source=document.id, media_type="text/markdown")


def _output(
    request: StageRequest,
    questions: Sequence[TaskQuestion],
    library: Library,
    chosen: Sequence[_Chosen],
    unanswered: Sequence[TaskQuestion],
    refs: dict[str, str],
    tainted: dict[str, int],
) -> StageOutput:
    open_ids = {one.id for one in unanswered}
    documents = [_described(document, refs[document.id]) for document in library if document.id in refs]
    answered = len(questions) - len(unanswered)
    cited = {answer.document.id for one in chosen for answer in (one.answer, *one.also)}
    passed = sum(tainted.values())
    notes = f" {passed} sentences that give orders to an assistant were passed over ({', '.join(tainted)})." if passed else ""
    return StageOutput(
        request.stage.name,
        f"{len(chosen)} sentences from {len(cited)} of {len(library)} documents answer {answered} of {len(questions)} questions. "
        f"They are quoted word for word; nothing was generated.{notes}",
        tuple(_finding(one, refs) for one in chosen),
        _confidence(questions, chosen, open_ids),
        tuple(f"Not answered by the sources: {one.text}" for one in unanswered),
        tuple(dict.fromkeys(refs.values())),
        {
            "method": "extraction",
            "questions": questions_json(questions),
            "unanswered": [one.id for one in unanswered],
            "documents": documents,
            "passed_over": tainted,
        },
    )


def _described(document: SourceDocument, ref: str) -> dict[str, Any]:
    described: dict[str, Any] = {"id": document.id, "ref": ref, "title": document.title, "trust": document.trust}
    if document.written is not None:
        described |= {"written": document.written.isoformat(), "dated": document.dated}
    return {**described, **document.extra}


def _finding(one: _Chosen, refs: dict[str, str]) -> Finding:
    extra: dict[str, Any] = {
        "raw": refs[one.answer.document.id],
        "questions": list(one.questions),
        "coverage": round(one.answer.coverage, 3),
        "weight": round(one.answer.score, 3),
    }
    if one.also:
        extra["also"] = [{"fact": other.fact, "source": other.source, "raw": refs[other.document.id]} for other in one.also]
    return Finding(one.answer.fact, one.answer.source, extra=extra)


def _confidence(questions: Sequence[TaskQuestion], chosen: Sequence[_Chosen], unanswered: set[str]) -> Confidence:
    """By how many questions have a good sentence, and how many of those are heard from more than one document."""
    heard: dict[str, set[str]] = {}
    for one in chosen:
        for question in one.questions:
            heard.setdefault(question, set()).update(answer.document.id for answer in (one.answer, *one.also))
    answered = [question for question in questions if question.id not in unanswered]
    share = len(answered) / len(questions) if questions else 0.0
    several = sum(len(heard.get(question.id, ())) > 1 for question in answered) / len(answered) if answered else 0.0
    if share >= 0.8 and several >= 0.5:
        return "high"
    return "medium" if share >= 0.5 else "low"
