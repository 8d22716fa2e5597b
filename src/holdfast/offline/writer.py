"""The writer without a model: a Markdown report in which every sentence has a source (W18)."""

from __future__ import annotations

from holdfast.durable.replace import replace_text
from holdfast.offline.gathering import library_of_outputs
from holdfast.offline.report import render
from holdfast.offline.synthesis import Synthesis, read_synthesis, synthesize
from holdfast.session.output import CONFIDENCES, Finding, StageOutput
from holdfast.workflow.agent import StageRequest, StageResult

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
