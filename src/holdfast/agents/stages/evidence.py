"""What a stage's findings may be about: passages with a name, shown by that name, and found again by it when findings are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from holdfast.errors import InputError
from holdfast.extract.passages import SourceText
from holdfast.extract.selection import select
from holdfast.offline.documents import Library
from holdfast.offline.sources import library_of_outputs
from holdfast.session.output import Finding, StageOutput
from holdfast.workflow.agent import StageRequest
from holdfast.workflow.stage_context import inert


@dataclass(frozen=True, slots=True)
class Passage:
    """A text with the name that findings cite. `ref` is where the whole of it is kept as raw data."""

    source: str
    text: str
    ref: str | None = None


@dataclass(frozen=True)
class Evidence:
    """Passages that are shown to a model, and texts that are only looked at when its findings are checked."""

    shown: tuple[Passage, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    raw: Callable[[str], str] | None = None
    library: Library = field(default_factory=Library)

    @classmethod
    def given(cls, request: StageRequest, shown: Iterable[Passage] = ()) -> Evidence:
        """What the request itself brings: findings of earlier stages by their sources, memories, and raw data by reference."""
        texts: dict[str, list[str]] = {}
        for output in request.given:
            for finding in output.key_findings:
                texts.setdefault(finding.source, []).append(finding.fact)
            texts.setdefault(output.stage_name, []).append(output.summary)
        for memory in request.retrieved:
            for name in (memory.get("source"), memory.get("id")):
                if name:
                    texts.setdefault(str(name), []).append(str(memory.get("text", "")))
        known = {source: "\n".join(found) for source, found in texts.items()}
        return cls(tuple(shown), known, request.raw.text, library_of_outputs(request))

    def rendered(self, budget: int, question: str, count: Callable[[str], int]) -> str:
        """The passages as they stand in a prompt, each under its name, within the budget: of long ones what matters for the question."""
        if not self.shown or budget <= 0:
            return ""
        head = "# Passages\n\nCite a passage by the name in brackets."
        left = budget - count(head)
        whole = [self._block(passage) for passage in self.shown]
        if sum(count(text) for text in whole) > left:
            names = sum(count(f"[{passage.source}]\n\n") for passage in self.shown)
            chosen = select(
                [SourceText(str(number), passage.text) for number, passage in enumerate(self.shown)],
                budget=max(0, left - names),
                question=question,
                count=count,
            )
            parts: dict[int, list[str]] = {}
            for piece in chosen.passages:
                parts.setdefault(int(piece.source), []).append(piece.text)
            whole = [self._block(replace(self.shown[number], text="\n".join(texts))) for number, texts in sorted(parts.items())]
        return "\n\n".join([head, *whole]) if whole else ""

    @staticmethod
    def _block(passage: Passage) -> str:
        return f"[{passage.source}]\n{inert(passage.text)}"

    def named(self, output: StageOutput) -> StageOutput:
        """The output with sources in the spelling of the passages: models like to keep the brackets, or to say `source: x`."""
        names = {_plain(passage.source): passage.source for passage in self.shown} | {_plain(name): name for name in self.known}
        findings = tuple(replace(one, source=names.get(_plain(one.source), one.source)) for one in output.key_findings)
        refs = tuple(dict.fromkeys((*output.raw_data_refs, *self._refs(findings))))
        return replace(output, key_findings=findings, raw_data_refs=refs)

    def _refs(self, findings: Iterable[Finding]) -> Iterable[str]:
        by_source = {passage.source: passage.ref for passage in self.shown}
        return (ref for one in findings if (ref := by_source.get(one.source)))

    def resolve(self, source: str) -> str | None:
        """The text behind a source, or None when there is none of that name."""
        found = [passage.text for passage in self.shown if passage.source == source]
        if source in self.known:
            found.append(self.known[source])
        if not found and (kept := self.library.text_of(source)) is not None:
            return kept
        if not found and self.raw is not None and source.startswith("raw:"):
            try:
                return self.raw(source)
            except InputError:
                return None
        return "\n".join(found) if found else None


def _plain(source: str) -> str:
    text = source.strip().strip("[]()`\"'").strip()
    return text.removeprefix("source:").removeprefix("Source:").strip().casefold()
