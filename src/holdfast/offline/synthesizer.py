"""The synthesizer without a model: findings grouped, ordered and merged, with what the sources disagree about (W18)."""

from __future__ import annotations

from holdfast.offline.gathering import library_of_outputs
from holdfast.offline.settings import whole_number
from holdfast.offline.synthesis import Dispute, Synthesis, synthesis_json, synthesize
from holdfast.session.output import CONFIDENCES, Confidence, Finding, StageOutput
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.grounding import lowered

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
