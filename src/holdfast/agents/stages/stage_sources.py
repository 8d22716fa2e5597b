"""What a stage with a model may read and cite: passages that it was shown, documents behind raw references, and tools to read them (W7).

Only what the stage was given is here: raw data of another stage can be read where that stage's output was given, and not otherwise.
Whatever is read lies on the desk, is shown to the model when it writes its output, and is what its findings are checked against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.extract.selection import SourceText, select
from holdfast.knowledge.records import Trust, least_trusted
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.sources import gather, library_of_outputs
from holdfast.session.output import Finding, StageOutput
from holdfast.text.normalise import inert
from holdfast.workflow.agent import StageRequest, Verdict, ground_finding, strange_figures

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

PAGE = 6_000
"""Characters that one reading gives at most."""
_AROUND = 300
_MOST_LISTED = 40
_REF_DIGITS = 12


@dataclass(frozen=True, slots=True)
class Passage:
    """A text with the name that findings cite. `ref` is where the whole of it is kept as raw data."""

    source: str
    text: str
    ref: str | None = None
    trust: Trust | None = None
    """How far it is trusted, where that is known here: what came from a web page or a tool is not trusted far."""


@dataclass(frozen=True)
class Evidence:
    """Passages that are shown to a model, and texts that are only looked at when its findings are checked."""

    shown: tuple[Passage, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    raw: Callable[[str], str] | None = None
    library: Library = field(default_factory=Library)

    @classmethod
    def given(cls, request: StageRequest, shown: Iterable[Passage] = (), library: Library | None = None) -> Evidence:
        """What the request itself brings: findings of earlier stages by their sources, memories, and raw data by reference.

        A finding that was not found in its source is no evidence for itself.
        """
        texts: dict[str, list[str]] = {}
        for output in request.given:
            for finding in output.key_findings:
                if finding.grounded is not False:
                    texts.setdefault(finding.source, []).append(finding.fact)
            texts.setdefault(output.stage_name, []).append(output.summary)
        for memory in request.retrieved:
            for name in (memory.get("source"), memory.get("id")):
                if name:
                    texts.setdefault(str(name), []).append(str(memory.get("text", "")))
        known = {source: "\n".join(found) for source, found in texts.items()}
        return cls(tuple(shown), known, request.raw.text, library if library is not None else library_of_outputs(request))

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

    def weighed(self, output: StageOutput) -> StageOutput:
        """The output, of low confidence where most figures of what it says as a whole are in nothing that the stage was given."""
        data = output.data.get("report") if isinstance(output.data, Mapping) else None
        said = f"{output.summary}\n{data if isinstance(data, str) else ''}"
        texts = [passage.text for passage in self.shown] + list(self.known.values())
        strange = strange_figures(said, "\n".join(texts)) if texts else []
        if not strange:
            return output
        return replace(output, confidence="low", extra={**output.extra, "not_in_sources": strange})

    def named(self, output: StageOutput) -> StageOutput:
        """The output with sources in the spelling of the passages: models like to keep the brackets, or to say `source: x`.

        Where it is known how far a source is trusted, the finding says so, and the output says it of all that was shown.
        """
        names = {_plain(passage.source): passage.source for passage in self.shown} | {_plain(name): name for name in self.known}
        findings = tuple(self._rated(replace(one, source=names.get(_plain(one.source), one.source))) for one in output.key_findings)
        refs = tuple(dict.fromkeys((*output.raw_data_refs, *self._refs(findings))))
        rated = [passage.trust for passage in self.shown if passage.trust is not None]
        extra = {**output.extra, "trust": least_trusted(rated)} if rated else output.extra
        return replace(output, key_findings=findings, raw_data_refs=refs, extra=extra)

    def _rated(self, finding: Finding) -> Finding:
        rated = [passage.trust for passage in self.shown if passage.trust is not None and passage.source == finding.source]
        return replace(finding, extra={**finding.extra, "trust": least_trusted(rated)}) if rated else finding

    def _refs(self, findings: Iterable[Finding]) -> Iterable[str]:
        by_source = {passage.source: passage.ref for passage in self.shown}
        for one in findings:
            document = self.library.get(one.source)
            ref = by_source.get(one.source) or (document.ref if document is not None else None)
            if ref is not None:
                yield ref

    def resolve(self, source: str) -> str | None:
        """The text behind a source, or None when there is none of that name."""
        found = [passage.text for passage in self.shown if passage.source == source]
        if (kept := self.library.text_of(source)) is not None:
            found.append(kept)
        elif source in self.known:
            found.append(self.known[source])
        if not found and self.raw is not None and source.startswith("raw:"):
            try:
                return self.raw(source)
            except InputError:
                return None
        return "\n".join(found) if found else None


def _plain(source: str) -> str:
    text = source.strip().strip("[]()`\"'").strip()
    return text.removeprefix("source:").removeprefix("Source:").strip().casefold()


class Desk:
    """What a stage may read, and the passages that it has read so far, each under the name that findings cite."""

    def __init__(self, request: StageRequest, library: Library | None = None) -> None:
        self.request = request
        self.given = library_of_outputs(request)
        """The documents that the given outputs refer to."""
        self.library = library if library is not None else Library()
        """The stage's own sources."""
        self.passages: dict[str, Passage] = {}

    @classmethod
    def of(cls, request: StageRequest) -> Desk:
        """The desk of a stage: what the given outputs refer to, and what its own `sources` name."""
        if "sources" not in request.stage.settings:
            return cls(request)
        return cls(request, gather(request, [request.task]))

    def __iter__(self) -> Iterator[SourceDocument]:
        yield from self.library
        yield from (document for document in self.given if self.library.get(document.id) is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def evidence(self) -> Evidence:
        """What findings may be about: the passages that were read, and behind them all documents."""
        return Evidence.given(self.request, self.passages.values(), Library(self))

    def find(self, name: str) -> tuple[str, SourceDocument, str] | None:
        """What a name stands for: the name by which it is cited, the document, and the text, which may be a section of it.

        A raw reference may be cut short; it is cited by the document's own name.
        """
        wanted = name.strip().strip("[]`\"' ")
        for library in (self.library, self.given):
            document, text = library.get(wanted), library.text_of(wanted)
            if document is not None and text is not None:
                return document.id if wanted.startswith("raw:") else wanted, document, text
        return None

    def lay(self, source: str, text: str, *, document: SourceDocument | None = None, trust: Trust | None = None) -> Passage:
        """Keep what a passage is from as raw data, and the passage for the model. A second piece of a source is added to the first."""
        known = self.passages.get(source)
        if known is not None:
            if text not in known.text:
                self.passages[source] = replace(known, text=f"{known.text}\n...\n{text}")
            return self.passages[source]
        ref = document.ref if document is not None else None
        if ref is None:
            whole, name = (document.text, document.id) if document is not None else (text, source)
            ref = self.request.raw.put(whole, source=name, media_type="text/markdown")
        passage = self.passages[source] = Passage(source, text, ref, trust)
        return passage

    def trust_of(self, document: SourceDocument) -> Trust | None:
        """How far a document of the stage's own is trusted; what earlier stages read was rated by them."""
        rated: Any = document.trust
        return rated if self.library.get(document.id) is document else None

    def listed(self) -> str:
        """The documents by name and reference, as a list for a prompt."""
        lines = []
        for document in self:
            ref = f"{document.ref[: len('raw:sha256-') + _REF_DIGITS]}, " if document.ref and document.ref != document.id else ""
            lines.append(f"- {document.id} ({ref}{len(document.text)} characters)")
        shown = lines if len(lines) <= _MOST_LISTED + 1 else [*lines[:_MOST_LISTED], f"- and {len(lines) - _MOST_LISTED} more"]
        return "\n".join(shown)

    def unknown(self, name: str) -> str:
        """What to answer about a name that stands for nothing here."""
        return f"There is no source {name!r} among what this stage was given. There are:\n{self.listed() or '(none)'}"

    def read(self, name: str, offset: int = 0, most: int = PAGE) -> str:
        """A page of a source from a place on, and how to read on."""
        found = self.find(name)
        if found is None:
            return self.unknown(name)
        source, document, text = found
        start = max(0, min(offset, len(text)))
        end = _page_end(text, start, most)
        if start >= len(text):
            return f"[{source}] ends at {len(text)}."
        self.lay(source, text[start:end], document=document, trust=self.trust_of(document))
        rest = f"It goes on: offset={end}." if end < len(text) else "This is its end."
        return f"[{source}] {start} to {end} of {len(text)} characters. {rest}\n\n{text[start:end]}"

    def locate(self, quote: str, name: str = "") -> str:
        """Where a sentence stands in a source, or in any of them, word for word or nearly; or that it does not."""
        found = self.find(name) if name.strip() else None
        if name.strip() and found is None:
            return self.unknown(name)
        places = [found] if found is not None else [(document.id, document, document.text) for document in self]
        verdicts = [(self._verdict(quote, place, text), place, document, text) for place, document, text in places]
        stands = [one for one in verdicts if one[0].grounded]
        if not stands:
            reasons = "; ".join(dict.fromkeys(one[0].why for one in verdicts)) if len(verdicts) <= 3 else "none of the sources says so"
            return f"Not found: {reasons or 'there is nothing to look in'}."
        verdict, place, document, text = min(stands, key=lambda one: _EXACTNESS.index(one[0].kind))
        start, end = (verdict.passage.start, verdict.passage.end) if verdict.passage is not None else (0, 0)
        first, last = max(0, start - _AROUND), min(len(text), end + _AROUND)
        self.lay(place, text[first:last], document=document, trust=self.trust_of(document))
        return f"Found {_IN_WORDS[verdict.kind]} in [{place}] at {start} to {end}:\n\n{text[first:last]}"

    @staticmethod
    def _verdict(quote: str, place: str, text: str) -> Verdict:
        return ground_finding(Finding(quote, place), lambda _: text)


_EXACTNESS = ("exact", "normalised", "near")
_IN_WORDS = {"exact": "word for word", "normalised": "but for case and punctuation", "near": "nearly"}


def _page_end(text: str, start: int, most: int) -> int:
    """Where a page ends: at the end of a line or of a word, where there is one near."""
    end = min(len(text), start + max(1, most))
    if end == len(text):
        return end
    for mark in ("\n", " "):
        near = text.rfind(mark, start + most // 2, end)
        if near > start:
            return near + 1
    return end


def source_tools(desk: Desk, *, page: int = PAGE) -> list[BaseTool]:
    """The tools that read what a stage was given."""
    from langchain_core.tools import StructuredTool

    def read_source(name: str, offset: int = 0) -> str:
        """Read a source: a document, a section of one, or raw data by its reference (raw:sha256-..., its first digits are enough).
        Long ones come page by page: give the offset where the last page ended."""
        return desk.read(name, offset, page)

    def find_quote(quote: str, name: str = "") -> str:
        """Check a statement against its source: says where the sentence stands in it, word for word or nearly, or that it does not.
        Without a name all sources are searched."""
        return desk.locate(quote, name)

    return [StructuredTool.from_function(read_source), StructuredTool.from_function(find_quote)]
