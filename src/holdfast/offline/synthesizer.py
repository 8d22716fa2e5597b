"""The synthesizer without a model: findings grouped by question, said once with all their sources, and what disagrees (W18).

`synthesize` makes a `Synthesis` of what earlier stages found; `synthesis_json` and `read_synthesis` carry it to the writer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from holdfast.offline.disagreements import Statement, find_disagreements
from holdfast.offline.documents import Library, section_name
from holdfast.offline.planner import TaskQuestion, questions_given, questions_json
from holdfast.offline.sources import library_of_outputs, stand_ins, whole_number
from holdfast.session.output import CONFIDENCES, Confidence, Finding, StageOutput
from holdfast.text.likeness import NEAR, likeness
from holdfast.text.words import terms
from holdfast.validation import counted, some
from holdfast.workflow.agent import StageRequest, StageResult, cited_texts, lowered, recheck_output

_OUTDATED = 540  # days behind the newest source
_OPEN = 0.3  # of the questions: more that are open lower the confidence
_PER_GROUP = 3
_NAMED = 6  # disagreements that the summary spells out


@dataclass(frozen=True, slots=True)
class Cited:
    """A place that says something: the citation, and the raw reference of its text where there is one."""

    source: str
    raw: str = ""

    @property
    def document(self) -> str:
        return section_name(self.source)[0] if not self.source.startswith(("http:", "https:")) else self.source


@dataclass(frozen=True, slots=True)
class Said:
    """One sentence, all the places that say it, and its weight among the others. `old` is its year if newer sources speak of the same."""

    fact: str
    cited: tuple[Cited, ...]
    weight: float = 0.0
    old: int | None = None
    grounded: bool | None = None
    disputes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class QuestionGroup:
    """A question and what was found for it, the weightiest first."""

    question: TaskQuestion
    said: tuple[Said, ...]


@dataclass(frozen=True, slots=True)
class Dispute:
    """Two statements that do not agree, and the questions to which one of them is an answer."""

    number: int
    statements: tuple[Statement, ...]
    questions: tuple[str, ...] = ()

    @property
    def values(self) -> str:
        return " or ".join(one.value for one in self.statements)


@dataclass(frozen=True, slots=True)
class Synthesis:
    """All that a report is written from."""

    groups: tuple[QuestionGroup, ...]
    disputes: tuple[Dispute, ...] = ()
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    passed_over: Mapping[str, int] = field(default_factory=dict)
    not_read: Mapping[str, str] = field(default_factory=dict)

    @property
    def unanswered(self) -> list[TaskQuestion]:
        return [group.question for group in self.groups if not group.said]


def synthesize(task: str, given: Sequence[StageOutput], library: Library) -> Synthesis:
    """Group and weigh the findings of the given outputs, and look for what disagrees in the documents around them.

    What is not in its source is no sentence of the sources, and is left out."""
    findings = [finding for output in given for finding in output.key_findings if finding.grounded is not False]
    questions = questions_given(given) or [TaskQuestion("q1", task, topic=task)]
    documents = {
        one["id"]: one for one in _listed(given, "documents") if isinstance(one, Mapping) and isinstance(one.get("id"), str)
    }  # fmt: skip
    facts = [finding.fact for finding in findings]
    pairs = [(one.first, one.second) for one in find_disagreements([*library, *stand_ins(given, library)])]
    pairs.sort(key=lambda pair: not any(one.stands_in(facts) for one in pair))  # those about what was asked come first
    groups = tuple(_group(question, questions, findings, documents, pairs) for question in questions)
    disputes = tuple(_dispute(number, pair, groups) for number, pair in enumerate(pairs, 1))
    return Synthesis(groups, disputes, documents, _merged(given, "passed_over"), _merged(given, "not_read"))


def rechecked(request: StageRequest) -> tuple[StageOutput, ...]:
    """The outputs that a stage is given, with what a person put in looked up in its source."""
    resolve = cited_texts(request.given, request.raw.text)
    return tuple(recheck_output(output, resolve) for output in request.given)


def unfounded(given: Sequence[StageOutput]) -> tuple[Finding, ...]:
    """What was found in no source, each once."""
    found = {(one.fact, one.source): one for output in given for one in output.key_findings if one.grounded is False}
    return tuple(found.values())


def _listed(given: Sequence[StageOutput], key: str) -> list[Any]:
    return [one for output in given if isinstance(output.data, Mapping) for one in output.data.get(key) or ()]


def _merged(given: Sequence[StageOutput], key: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for output in given:
        part = output.data.get(key) if isinstance(output.data, Mapping) else None
        found |= part if isinstance(part, Mapping) else {}
    return found


def _group(
    question: TaskQuestion,
    questions: Sequence[TaskQuestion],
    findings: Sequence[Finding],
    documents: Mapping[str, Mapping[str, Any]],
    pairs: Sequence[tuple[Statement, Statement]],
) -> QuestionGroup:
    merged: list[tuple[Finding, list[Cited], float, list[str]]] = []
    for finding in findings:
        if not _answers(finding, question, questions):
            continue
        twin = next((one for one in merged if likeness(one[0].fact, finding.fact) >= NEAR), None)
        if twin is not None:
            twin[1].extend(place for place in _places(finding) if place not in twin[1])
            twin[3].append(finding.fact)
        else:
            merged.append((finding, _places(finding), _weight(finding, question.id), [finding.fact]))
    written = {place: day for _, places, _, _ in merged for place in places if (day := _written(place.document, documents))}
    newest = max((day for name in documents if (day := _written(name, documents))), default=None)
    said = []
    for finding, places, weight, facts in merged:
        own = max((written[place] for place in places if place in written), default=None)
        old = own.year if own and newest and (newest - own).days >= _OUTDATED else None
        against = tuple(n for n, pair in enumerate(pairs, 1) if any(one.stands_in(facts) for one in pair))
        said.append(Said(finding.fact, tuple(places), weight, old, finding.grounded, against))
    return QuestionGroup(question, tuple(sorted(said, key=lambda one: -one.weight)))


def _answers(finding: Finding, question: TaskQuestion, questions: Sequence[TaskQuestion]) -> bool:
    """Whether a finding says that it answers this question; of one that says nothing, whether its words fit this one best."""
    named = finding.extra.get("questions")
    if isinstance(named, (list, tuple)):
        return question.id in named
    words = set(terms(f"{finding.fact} {finding.source}"))
    shares = [len(words & (wanted := set(terms(one.query)))) / max(len(wanted), 1) for one in questions]
    return questions[shares.index(max(shares))].id == question.id


def _weight(finding: Finding, question: str) -> float:
    weights = finding.extra.get("weights")
    weight = weights.get(question) if isinstance(weights, Mapping) else finding.extra.get("weight")
    return float(weight) if isinstance(weight, (int, float)) else 0.5


def _places(finding: Finding) -> list[Cited]:
    others = [one for one in finding.extra.get("also") or () if isinstance(one, Mapping) and isinstance(one.get("source"), str)]
    found = [
        Cited(finding.source, str(finding.extra.get("raw") or "")),
        *(Cited(one["source"], str(one.get("raw") or "")) for one in others),
    ]
    return list(dict.fromkeys(found))


def _written(document: str, documents: Mapping[str, Mapping[str, Any]]) -> date | None:
    stated = documents.get(document, {}).get("written")
    try:
        return date.fromisoformat(stated) if isinstance(stated, str) else None
    except ValueError:
        return None


def _dispute(number: int, pair: tuple[Statement, Statement], groups: Sequence[QuestionGroup]) -> Dispute:
    touched = [group.question.id for group in groups if any(number in said.disputes for said in group.said)]
    return Dispute(number, pair, tuple(touched))


def synthesis_json(synthesis: Synthesis) -> dict[str, Any]:
    """The synthesis as a stage's `data`."""
    return {
        "method": "extraction",
        "questions": questions_json(group.question for group in synthesis.groups),
        "groups": [
            {"question": group.question.id, "topic": group.question.topic, "findings": [asdict(said) for said in group.said]}
            for group in synthesis.groups
        ],
        "disagreements": [
            {"number": one.number, "questions": list(one.questions), "statements": [asdict(said) for said in one.statements]}
            for one in synthesis.disputes
        ],
        "unanswered": [question.id for question in synthesis.unanswered],
        "documents": [dict(one) for one in synthesis.documents.values()],
        "passed_over": dict(synthesis.passed_over),
        "not_read": dict(synthesis.not_read),
    }


def read_synthesis(given: Sequence[StageOutput]) -> Synthesis | None:
    """The synthesis among the given outputs, if one of them holds it in this form."""
    for output in reversed(given):
        data = output.data if isinstance(output.data, Mapping) else {}
        if isinstance(data.get("groups"), list) and isinstance(data.get("questions"), list):
            try:
                return _read(data)
            except (KeyError, TypeError, ValueError, AttributeError):
                return None  # another agent's form: the findings themselves are read instead
    return None


def _read(data: Mapping[str, Any]) -> Synthesis:
    questions = {question.id: question for question in questions_given([StageOutput("read", "read", data=data)])}
    groups = tuple(QuestionGroup(questions[one["question"]], tuple(_read_said(said) for said in one["findings"])) for one in data["groups"])
    disputes = tuple(
        Dispute(
            int(one["number"]),
            tuple(Statement(str(said["fact"]), str(said["source"]), str(said["value"])) for said in one["statements"]),
            tuple(one.get("questions") or ()),
        )
        for one in data["disagreements"]
    )
    documents = {str(one["id"]): one for one in data.get("documents") or ()}
    return Synthesis(groups, disputes, documents, dict(data.get("passed_over") or {}), dict(data.get("not_read") or {}))


def _read_said(value: Mapping[str, Any]) -> Said:
    cited = tuple(Cited(str(one["source"]), str(one["raw"])) for one in value["cited"])
    return Said(
        str(value["fact"]), cited, float(value["weight"]), value.get("old"), value.get("grounded"), tuple(value.get("disputes") or ())
    )


class Synthesizer:
    """Groups the findings of earlier stages. Setting: `max_findings` that are handed on for each question (3); `data` has all."""

    def run(self, request: StageRequest) -> StageResult:
        most = whole_number(request.stage, "max_findings", _PER_GROUP)
        given = rechecked(request)
        synthesis = synthesize(request.task, given, library_of_outputs(request))
        request.emit(
            f"{counted(sum(len(group.said) for group in synthesis.groups), 'finding')}, {counted(len(synthesis.disputes), 'disagreement')}"
        )
        output = StageOutput(
            request.stage.name,
            _summary(synthesis),
            (*_findings(synthesis, most), *unfounded(given)),
            _confidence(request, synthesis),
            (
                *(f"Not answered by the sources: {question.text}" for question in synthesis.unanswered),
                *(f"Check which is right: {dispute.values}" for dispute in synthesis.disputes),
            ),
            tuple(dict.fromkeys(ref for output in request.given for ref in output.raw_data_refs)),
            synthesis_json(synthesis),
        )
        return StageResult(output=output)


def _findings(synthesis: Synthesis, most: int) -> tuple[Finding, ...]:
    """The weightiest findings of each group, each once."""
    chosen: dict[str, Finding] = {}
    for group in synthesis.groups:
        for said in group.said[:most]:
            if said.fact in chosen:
                chosen[said.fact].extra["questions"].append(group.question.id)
                continue
            extra: dict[str, Any] = {"raw": said.cited[0].raw, "questions": [group.question.id], "weight": said.weight}
            if len(said.cited) > 1:
                extra["also"] = [{"source": one.source, "raw": one.raw} for one in said.cited[1:]]
            chosen[said.fact] = Finding(said.fact, said.cited[0].source, said.grounded, extra)
    return tuple(chosen.values())


def _summary(synthesis: Synthesis) -> str:
    sentences, open_ones = sum(len(group.said) for group in synthesis.groups), synthesis.unanswered
    answered = len(synthesis.groups) - len(open_ones)
    parts = [f"{counted(sentences, 'finding')} for {answered} of {counted(len(synthesis.groups), 'question')}. Nothing was generated."]
    asked = [dispute for dispute in synthesis.disputes if dispute.questions]
    if asked:
        named = some((dispute.values for dispute in asked), _NAMED, "; ")
        parts.append(f"The sources disagree in {counted(len(asked), 'point')}: {named}.")
    if beside := len(synthesis.disputes) - len(asked):
        parts.append(f"They disagree in {counted(beside, 'point')} that nobody asked about.")
    if open_ones:
        parts.append(f"Not found: {'; '.join(question.text for question in open_ones[:_NAMED])}")
    return " ".join(parts)


def _confidence(request: StageRequest, synthesis: Synthesis) -> Confidence:
    """That of the least sure stage that found something; one step less if much is open."""
    given = [output.confidence for output in request.given if output.key_findings]
    if not given or not any(group.said for group in synthesis.groups):
        return "low"
    confidence = max(given, key=CONFIDENCES.index)
    return lowered(confidence) if len(synthesis.unanswered) >= _OPEN * len(synthesis.groups) else confidence
