"""The plain stage without a model: what its system prompt asks for, answered by sentences of what it was given (W12, W18)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from holdfast.amounts import counted
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.offline.documents import Library, SourceDocument, tainted_units
from holdfast.offline.sources import check_sources, gather, library_of_outputs
from holdfast.offline.stage_settings import whole_number
from holdfast.session.output import CONFIDENCES, Finding, StageOutput
from holdfast.workflow.agent import StageRequest, StageResult
from holdfast.workflow.definition import Stage
from holdfast.workflow.output_grounding import ground_output

_TOKENS = 400


class Plain:
    """Selects the sentences that answer the system prompt and the task. Settings: `max_tokens` of what is selected (400), `sources`.

    It reads the findings and raw data of the outputs that it was given, the retrieved memories, and its own `sources`.
    """

    def check_sources(self, stage: Stage, home: Path | None) -> None:
        """ConfigError for sources that cannot be read."""
        check_sources(stage, home)

    def run(self, request: StageRequest) -> StageResult:
        budget = whole_number(request.stage, "max_tokens", _TOKENS)
        asked = " ".join(part.strip() for part in (request.system_prompt, request.task) if part.strip())
        library = readings(request, asked)
        question = asked or None
        extract = select([SourceText(document.id, without_orders(document)) for document in library], budget=budget, question=question)
        findings = tuple(
            Finding(" ".join(passage.text.split()), passage.source) for passage in extract.passages if passage.text.strip("#- \n")
        )
        refs = {
            document.id: document.ref or request.raw.put(document.text, source=document.id, media_type="text/markdown")
            for document in library
        }
        used = dict.fromkeys(finding.source for finding in findings)
        left = sum(one.units for one in extract.left_out)
        given = [output.confidence for output in request.given if output.key_findings]
        output = StageOutput(
            request.stage.name,
            _summary(len(findings), len(library), left),
            tuple(Finding(one.fact, one.source, extra={"raw": refs[one.source]}) for one in findings),
            max((*given, "medium"), key=CONFIDENCES.index) if findings else "low",
            () if findings else ("Give this stage sources, or outputs to read.",),
            tuple(dict.fromkeys(refs[name] for name in used)),
            {"method": "extraction", "text": extract.text},
        )
        return StageResult(output=ground_output(output, library.text_of)[0])


def _summary(found: int, texts: int, left: int) -> str:
    if not found:
        return "There was nothing to select from. Nothing was generated."
    selected = f"Selected for what was asked, word for word: {counted(found, 'sentence')} of {counted(texts, 'text')}"
    return f"{selected}; left out: {left:,}. Nothing was generated."


def readings(request: StageRequest, asked: str) -> Library:
    """All that the stage may read: raw data of the given outputs, findings whose raw data is not at hand, memories, its own sources."""
    library = library_of_outputs(request)
    for document in _findings(request, library):
        library.add(document)
    for document in gather(request, [asked] if asked else []):
        if library.get(document.id) is None:
            library.add(document)
    return library


def _findings(request: StageRequest, library: Library) -> Iterable[SourceDocument]:
    facts: dict[str, list[str]] = {}
    for output in request.given:
        for finding in output.key_findings:
            if library.get(finding.source) is None:
                facts.setdefault(finding.source, []).append(finding.fact)
    return [SourceDocument(source, "\n\n".join(said) + "\n") for source, said in facts.items()]


def without_orders(document: SourceDocument) -> str:
    """The text without what gives orders to an assistant."""
    bad = tainted_units(document)
    text = document.text
    for n in sorted(bad, reverse=True):
        passage = document.units[n].passage
        text = text[: passage.start] + text[passage.end :]
    return text
