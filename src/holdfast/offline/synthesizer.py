"""The synthesizer without a model: findings grouped by question, said once with all their sources, weighed, and what disagrees (W18).

`synthesize` makes a `Synthesis` of what earlier stages found; `synthesis_json` and `read_synthesis` carry it to the writer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Any

from holdfast.offline.claims import IDENTIFIER, Names, claims_of, names_told
from holdfast.offline.disagreements import Conflict, find_conflicts
from holdfast.offline.documents import Library, SourceDocument, section_name, tainted_units
from holdfast.offline.planner import TaskQuestion, names_asked_about, question_terms, questions_given, questions_json
from holdfast.offline.sources import library_of_outputs
from holdfast.offline.stage_settings import whole_number
from holdfast.session.output import CONFIDENCES, Confidence, Finding, StageOutput
from holdfast.text.likeness import NEAR, likeness
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.output_grounding import lowered

_OUTDATED = 540  # days behind the newest source of its group
_MORE_SOURCES, _OLD, _PARALLEL = 0.15, 0.6, 0.4
_MOST_DISPUTES = 40
_TOUCHED, _SHARED = 0.01, 0.6  # of a question's words: about a thing that is compared any will do, elsewhere most of them must be there


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
    """Statements that do not agree: in what, about what, and each with its value (empty for a yes against a no)."""

    number: int
    kind: str
    subject: str
    topics: tuple[str, ...]
    statements: tuple[tuple[str, Cited, str], ...]


@dataclass(frozen=True, slots=True)
class Synthesis:
    """All that a report is written from."""

    groups: tuple[QuestionGroup, ...]
    disputes: tuple[Dispute, ...] = ()
    unanswered: tuple[TaskQuestion, ...] = ()
    documents: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    passed_over: Mapping[str, int] = field(default_factory=dict)


def synthesize(task: str, given: Sequence[StageOutput], library: Library) -> Synthesis:
    """Group and weigh the findings of the given outputs, and look for what disagrees, in the findings and in the documents around them."""
    findings = [finding for output in given for finding in output.key_findings]
    questions = questions_given(given) or [TaskQuestion("q1", task, question_terms(task), topic=task, asks=task)]
    documents = _documents(given)
    asked = names_asked_about(questions, task)
    compared = any(question.item for question in questions)
    names = Names(tuple(asked if compared else dict.fromkeys((*asked, *names_told(library)))))
    disputes = _disputes(questions, findings, library, names)
    groups = _comparable_first(
        [_group(question, _for_question(question, questions, findings), documents, disputes) for question in questions]
    )
    answered = {group.question.id for group in groups if group.said}
    weak = _weak(given)
    unanswered = tuple(question for question in questions if question.id not in answered or question.id in weak)
    return Synthesis(groups, disputes, unanswered, documents, _passed_over(given))


def _documents(given: Sequence[StageOutput]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for data in _datas(given):
        for one in data.get("documents") or ():
            if isinstance(one, Mapping) and isinstance(one.get("id"), str):
                found.setdefault(one["id"], one)
    return found


def _datas(given: Sequence[StageOutput]) -> list[Mapping[str, Any]]:
    return [output.data for output in given if isinstance(output.data, Mapping)]


def _weak(given: Sequence[StageOutput]) -> set[str]:
    return {str(name) for data in _datas(given) for name in data.get("unanswered") or () if isinstance(name, str)}


def _passed_over(given: Sequence[StageOutput]) -> dict[str, int]:
    return {str(name): count for data in _datas(given) for name, count in (data.get("passed_over") or {}).items() if isinstance(count, int)}


def _for_question(question: TaskQuestion, questions: Sequence[TaskQuestion], findings: Sequence[Finding]) -> list[Finding]:
    """The findings that say which question they answer; of others, those whose words fit this question best."""
    mine = []
    for finding in findings:
        named = finding.extra.get("questions")
        if isinstance(named, (list, tuple)):
            if question.id in named:
                mine.append(finding)
        elif _best(finding, questions) == question.id:
            mine.append(finding)
    return mine


def _best(finding: Finding, questions: Sequence[TaskQuestion]) -> str:
    words = frozenset(question_terms(f"{finding.fact} {finding.source}"))
    ranked = [(-len(words.intersection(question.terms)) / max(len(question.terms), 1), n) for n, question in enumerate(questions)]
    return questions[min(ranked)[1]].id if ranked else ""


def _group(
    question: TaskQuestion, findings: Sequence[Finding], documents: Mapping[str, Mapping[str, Any]], disputes: Sequence[Dispute]
) -> QuestionGroup:
    merged: list[tuple[str, list[Cited], float, bool | None]] = []
    for finding in findings:
        places = _places(finding)
        twin = next((one for one in merged if likeness(one[0], finding.fact) >= NEAR), None)
        if twin is not None:
            twin[1].extend(place for place in places if place.source not in {known.source for known in twin[1]})
        else:
            weight = finding.extra.get("weight")
            merged.append((finding.fact, places, float(weight) if isinstance(weight, (int, float)) else 0.5, finding.grounded))
    newest = max((written for _, places, _, _ in merged for place in places if (written := _written(place, documents))), default=None)
    said = [_said(one, newest, documents, disputes) for one in merged]
    return QuestionGroup(question, tuple(sorted(said, key=lambda one: -one.weight)))


def _comparable_first(groups: Sequence[QuestionGroup]) -> tuple[QuestionGroup, ...]:
    """Rank sentences higher that use the words which are also used about the other compared things: those can be set side by side."""
    said: dict[str, list[tuple[str, str, frozenset[str]]]] = {}
    for group in groups:
        if group.question.item:
            for one in group.said:
                words = frozenset(question_terms(one.fact)) - frozenset(question_terms(group.question.item))
                said.setdefault(group.question.topic, []).append((group.question.item, one.fact, words))
    made = []
    for group in groups:
        others = [(fact, words) for item, fact, words in said.get(group.question.topic, ()) if item != group.question.item]
        shared = [max((_common(one.fact, words) for fact, words in others if fact != one.fact), default=0) for one in group.said]
        most = max(shared, default=0)
        raised = [
            replace(one, weight=round(one.weight + _PARALLEL * count / most, 3)) if most else one
            for one, count in zip(group.said, shared, strict=True)
        ]
        made.append(QuestionGroup(group.question, tuple(sorted(raised, key=lambda one: -one.weight))))
    return tuple(made)


def _common(fact: str, words: frozenset[str]) -> int:
    return len(words & frozenset(question_terms(fact)))


def _places(finding: Finding) -> list[Cited]:
    places = [Cited(finding.source, str(finding.extra.get("raw") or ""))]
    others = [one for one in finding.extra.get("also") or () if isinstance(one, Mapping) and isinstance(one.get("source"), str)]
    return [*places, *(Cited(one["source"], str(one.get("raw") or "")) for one in others)]


def _written(place: Cited, documents: Mapping[str, Mapping[str, Any]]) -> date | None:
    stated = documents.get(place.document, {}).get("written")
    try:
        return date.fromisoformat(stated) if isinstance(stated, str) else None
    except ValueError:
        return None


def _said(
    one: tuple[str, list[Cited], float, bool | None],
    newest: date | None,
    documents: Mapping[str, Mapping[str, Any]],
    disputes: Sequence[Dispute],
) -> Said:
    fact, places, weight, grounded = one
    own = [written for place in places if (written := _written(place, documents))]
    old = own and newest is not None and (newest - max(own)).days >= _OUTDATED
    weight += _MORE_SOURCES * (len({place.document for place in places}) - 1) - (_OLD if old else 0.0)
    against = tuple(dispute.number for dispute in disputes if any(_same(fact, statement) for statement, _, _ in dispute.statements))
    return Said(fact, tuple(places), round(weight, 3), max(own).year if old else None, grounded, against)


def _same(fact: str, statement: str) -> bool:
    return statement == fact or statement in fact or fact in statement


def _disputes(questions: Sequence[TaskQuestion], findings: Sequence[Finding], library: Library, names: Names) -> tuple[Dispute, ...]:
    """Disagreements in the documents that were cited, and between findings whose documents are not at hand; the asked ones first."""
    documents = [*library, *_stand_ins(findings, library)]
    compared = any(question.item for question in questions)
    claims = []
    for document in documents:
        bad = tainted_units(document)
        claims += claims_of(document, names, [n for n in range(len(document.units)) if n not in bad], sure=compared)
    rated = [(_relevance(conflict, questions, findings), conflict) for conflict in find_conflicts(claims)]
    kept = sorted((pair for pair in rated if pair[0][0] > 0), key=lambda pair: -pair[0][0])[:_MOST_DISPUTES]
    order = {topic: n for n, topic in enumerate(dict.fromkeys(question.topic or question.text for question in questions))}
    kept.sort(key=lambda pair: (min((order[topic] for topic in pair[0][1]), default=len(order)), -pair[0][0]))
    refs = {document.id: document.ref or "" for document in library}
    made = []
    for n, ((_, topics), conflict) in enumerate(kept, 1):
        statements = tuple(
            (one.fact, Cited(one.source, refs.get(section_name(one.source)[0], "")), one.value) for one in conflict.statements
        )
        made.append(Dispute(n, conflict.kind, conflict.subject, topics, statements))
    return tuple(made)


def _stand_ins(findings: Sequence[Finding], library: Library) -> Iterable[SourceDocument]:
    """For a source whose text is not at hand: a document of what was found in it."""
    facts: dict[str, list[str]] = {}
    for finding in findings:
        if library.get(finding.source) is None:
            facts.setdefault(finding.source, []).append(finding.fact)
    return [SourceDocument(source, "\n\n".join(said)) for source, said in facts.items()]


def _relevance(conflict: Conflict, questions: Sequence[TaskQuestion], findings: Sequence[Finding]) -> tuple[float, tuple[str, ...]]:
    """How much a disagreement matters, and to which topic: most if findings are in it, least if only the thing itself is asked about."""
    said = [statement.fact for statement in conflict.statements]
    named = [name for finding in findings if any(_same(finding.fact, one) for one in said) for name in finding.extra.get("questions") or ()]
    words = frozenset().union(*(question_terms(fact) for fact in said)) | conflict.terms
    touched: dict[str, float] = {}
    for question in questions:
        other = question.item and question.item != conflict.subject and not IDENTIFIER.fullmatch(conflict.subject)
        asked = set(question_terms(question.asks or question.text)) - set(question_terms(question.item))
        if other or not asked or question.kind in ("context", "choice"):
            continue
        share = len(asked & words) / len(asked)
        worth = share + (2.0 if question.id in named else 0.0)
        if worth >= (_TOUCHED if question.item else _SHARED):
            topic = question.topic or question.text
            touched[topic] = max(touched.get(topic, 0.0), worth)
    best = sorted(touched, key=lambda topic: -touched[topic])[:1]
    compared = {question.item for question in questions if question.item}
    least = 0.1 if conflict.subject in compared or named else 0.0
    return max(touched.values(), default=least), tuple(best)


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
            {
                "number": one.number,
                "kind": one.kind,
                "subject": one.subject,
                "topics": list(one.topics),
                "statements": [
                    {"fact": fact, "source": cited.source, "raw": cited.raw, "value": value} for fact, cited, value in one.statements
                ],
            }
            for one in synthesis.disputes
        ],
        "unanswered": [question.id for question in synthesis.unanswered],
        "documents": [dict(one) for one in synthesis.documents.values()],
        "passed_over": dict(synthesis.passed_over),
    }


def read_synthesis(given: Sequence[StageOutput]) -> Synthesis | None:
    """The synthesis among the given outputs, if one of them holds it in this form."""
    for output in reversed(given):
        data = output.data if isinstance(output.data, Mapping) else {}
        if isinstance(data.get("groups"), list) and isinstance(data.get("questions"), list):
            try:
                return _read(data, given)
            except (KeyError, TypeError, ValueError, AttributeError):
                return None  # another agent's form: the findings themselves are read instead
    return None


def _read(data: Mapping[str, Any], given: Sequence[StageOutput]) -> Synthesis:
    questions = {question.id: question for question in questions_given([StageOutput("read", "read", data=data)])}
    groups = tuple(QuestionGroup(questions[one["question"]], tuple(_read_said(said) for said in one["findings"])) for one in data["groups"])
    disputes = tuple(
        Dispute(
            int(one["number"]),
            str(one["kind"]),
            str(one["subject"]),
            tuple(one["topics"]),
            tuple((str(said["fact"]), Cited(str(said["source"]), str(said["raw"])), str(said["value"])) for said in one["statements"]),
        )
        for one in data["disagreements"]
    )
    unanswered = tuple(questions[name] for name in data["unanswered"] if name in questions)
    return Synthesis(groups, disputes, unanswered, _documents(given), dict(data.get("passed_over") or {}))


def _read_said(value: Mapping[str, Any]) -> Said:
    cited = tuple(Cited(str(one["source"]), str(one["raw"])) for one in value["cited"])
    return Said(
        str(value["fact"]), cited, float(value["weight"]), value.get("old"), value.get("grounded"), tuple(value.get("disputes") or ())
    )


_PER_GROUP = 3
_DISPUTED, _OPEN = 0.25, 0.3
_NAMED = 6  # disagreements that the summary spells out


class Synthesizer:
    """Groups the findings of earlier stages. Setting: `max_findings` that are handed on for each question (3); `data` has all."""

    def run(self, request: StageRequest) -> StageResult:
        most = whole_number(request.stage, "max_findings", _PER_GROUP)
        library = library_of_outputs(request)
        synthesis = synthesize(request.task, request.given, library)
        request.emit(f"{sum(len(group.said) for group in synthesis.groups)} findings, {len(synthesis.disputes)} disagreements")
        refs = dict.fromkeys(ref for output in request.given for ref in output.raw_data_refs)
        output = StageOutput(
            request.stage.name,
            _summary(synthesis),
            _findings(synthesis, most),
            _confidence(request, synthesis),
            (
                *(f"Not answered by the sources: {question.text}" for question in synthesis.unanswered),
                *(f"Check which is right: {_in_short(dispute)}" for dispute in synthesis.disputes),
            ),
            tuple(refs),
            synthesis_json(synthesis),
        )
        return StageResult(output=output)


def _findings(synthesis: Synthesis, most: int) -> tuple[Finding, ...]:
    """The weightiest findings of each group, each once."""
    chosen: dict[str, Finding] = {}
    for group in synthesis.groups:
        for said in group.said[:most]:
            first = said.cited[0]
            extra = {"raw": first.raw, "questions": [group.question.id], "weight": said.weight}
            if len(said.cited) > 1:
                extra["also"] = [{"source": one.source, "raw": one.raw} for one in said.cited[1:]]
            known = chosen.get(said.fact)
            if known is not None:
                extra["questions"] = [*known.extra["questions"], group.question.id]
            chosen[said.fact] = Finding(said.fact, first.source, said.grounded, extra)
    return tuple(chosen.values())


def _summary(synthesis: Synthesis) -> str:
    sentences = sum(len(group.said) for group in synthesis.groups)
    answered = len(synthesis.groups) - len(synthesis.unanswered)
    parts = [f"{sentences} findings; {answered} of {len(synthesis.groups)} questions are answered. Nothing was generated."]
    if synthesis.disputes:
        named = "; ".join(_in_short(dispute) for dispute in synthesis.disputes[:_NAMED])
        more = len(synthesis.disputes) - _NAMED
        parts.append(f"The sources disagree in {len(synthesis.disputes)} points: {named}{f'; and {more} more' if more > 0 else ''}.")
    if synthesis.unanswered:
        parts.append(f"Not answered: {'; '.join(question.text for question in synthesis.unanswered[:_NAMED])}")
    return " ".join(parts)


def _in_short(dispute: Dispute) -> str:
    values = list(dict.fromkeys(value for _, _, value in dispute.statements if value))
    what = f"{dispute.subject}, {dispute.topics[0]}" if dispute.subject and dispute.topics else dispute.subject or "".join(dispute.topics)
    if len(values) > 1:
        return f"{what}: {' against '.join(values)}".strip(": ")
    return f"{what}: “{dispute.statements[0][0]}” against “{dispute.statements[1][0]}”".strip(": ")


def _confidence(request: StageRequest, synthesis: Synthesis) -> Confidence:
    """That of the least sure stage that found something; one step less if much is disputed or open."""
    given = [output.confidence for output in request.given if output.key_findings]
    if not given or not any(group.said for group in synthesis.groups):
        return "low"
    confidence = max(given, key=CONFIDENCES.index)
    answered = [group for group in synthesis.groups if group.said]
    disputed = sum(any(said.disputes for said in group.said) for group in answered) / len(answered)
    missing = len(synthesis.unanswered) / len(synthesis.groups)
    return lowered(confidence) if disputed >= _DISPUTED or missing >= _OPEN else confidence
