"""Claims: what a clause of a source says, and about which of several named things, in a form that can be compared with other claims.

A sentence is about what it names, or else what its paragraph, heading or document is about (`Names`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date

from holdfast.extract.passages import TextUnit
from holdfast.offline.documents import SourceDocument
from holdfast.offline.quantities import Quantity, find_quantities, full_dates, periods
from holdfast.text.dates import Span, find_dates
from holdfast.text.language import guess_language
from holdfast.text.likeness import count_negations, without_negations
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences
from holdfast.text.word_lists import read_lists
from holdfast.text.words import keys, tokenise

IDENTIFIER = re.compile(r"\b[A-Z]{2,}[A-Z0-9]*-\d+\b|\bCVE-\d{4}-\d+\b")
"""Numbers of tickets, defects and incidents: names that nobody shares."""
_POINTS_BACK = re.compile(
    r"^[\s\-*\"'“(]*(?:it|its|they|their|this|these|that|he|she|his|her|the latter|er|sie|es|il|elle|ils)\b", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[a-z,;:’'\"] )[A-Z][a-z]\w+(?: \d+\b| [A-Z]\d+\b)?")
_REFERENCE = date(2000, 6, 15)
_DOMINANT = 0.75
Subject = frozenset[str]
_NOBODY: Subject = frozenset()


@dataclass(frozen=True)
class Names:
    """The names that matter in a task, as patterns. A name with a capital is not found in lower case: an osprey is no Osprey."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_patterns", [(name, _pattern(name)) for name in self.names])

    def places(self, text: str) -> list[tuple[int, int, str]]:
        """Where names stand, in order; a name inside a longer one does not count."""
        patterns: list[tuple[str, re.Pattern[str]]] = self._patterns  # type: ignore[attr-defined]
        found = sorted(
            ((match.start(), match.end(), name) for name, pattern in patterns for match in pattern.finditer(text)),
            key=lambda one: (one[0], -one[1]),
        )
        kept: list[tuple[int, int, str]] = []
        for place in found:
            if not kept or place[0] >= kept[-1][1]:
                kept.append(place)
        return kept

    def named(self, text: str) -> Subject:
        return frozenset(name for _, _, name in self.places(text))

    def masked(self, text: str) -> str:
        """The text with its names blanked, so that the 9 of "Calder 9" is no figure."""
        for start, end, _ in reversed(self.places(text)):
            text = text[:start] + " " * (end - start) + text[end:]
        return text

    def of_document(self, document: SourceDocument, *, sure: bool = False) -> Subject:
        """What a document as a whole is about: the only name in its title, or (less surely) the one that it speaks of nearly always."""
        titled = self.named(document.title)
        if titled or sure:
            return titled if len(titled) == 1 else _NOBODY
        counted = Counter(name for _, _, name in self.places(document.text))
        if not counted:
            return _NOBODY
        name, count = min(counted.items(), key=lambda pair: (-pair[1], pair[0]))
        return frozenset((name,)) if count >= 2 and count >= _DOMINANT * counted.total() else _NOBODY

    def of_units(self, document: SourceDocument, *, sure: bool = False) -> list[Subject]:
        """What each unit of a document is about; several names when a sentence speaks of several, none when nothing tells.

        `sure` leaves out what only the rest of the document suggests: enough to find a sentence, not to hold it against another.
        """
        whole = self.of_document(document, sure=sure)
        found: list[Subject] = []
        before: tuple[int, Subject] = (-1, _NOBODY)
        for unit in document.units:
            subject = self.named(unit.passage.text) or self._supplied(unit, before, whole)
            if unit.kind != "heading":
                before = (unit.block, subject)
            found.append(subject)
        return found

    def _supplied(self, unit: TextUnit, before: tuple[int, Subject], whole: Subject) -> Subject:
        block, subject = before
        if block == unit.block and len(subject) == 1 and _POINTS_BACK.match(unit.passage.text):
            return subject
        for heading in reversed(unit.heading):
            named = self.named(heading)
            if named:
                return named if len(named) == 1 else _NOBODY
        if block == unit.block and len(subject) == 1 and not whole:
            return subject
        return whole


def names_told(documents: Iterable[SourceDocument]) -> list[str]:
    """The names that documents are about: in each, the one that it writes most often. For tasks that name nothing themselves."""
    found: dict[str, None] = {}
    for document in documents:
        counted = Counter(match.group() for match in _NAME.finditer(document.text))
        small = Counter(word for word in re.findall(r"\b[a-z]\w+", document.text))
        good = {name: count for name, count in counted.items() if count > small[name.lower()] and not find_dates(name, _REFERENCE)}
        if good:
            name, count = min(good.items(), key=lambda pair: (-pair[1], pair[0]))
            if count >= 3 or name in document.title:
                found[name] = None
    return list(found)


def _pattern(name: str) -> re.Pattern[str]:
    words = r"[\s-]+".join(re.escape(word) for word in name.split())
    before = r"(?<![\w-])" if name[:1].isascii() else ""
    after = r"(?![\w])" if name[-1:].isascii() else ""
    if name.lower() == name:
        return re.compile(f"{before}{words}{after}", re.IGNORECASE)
    return re.compile(f"{before}(?:{words}|{words.upper() if words.isalpha() else words}){after}")


_MARKER = re.compile(r"^\s*(?:[-*+•‣◦▪]\s+(?:\[[ xX]\]\s+)?|\(?\d{1,3}[.)]\s+|>\s*)+")
_CLAUSES = re.compile(
    r"(?<=[;:])\s+|,\s+|\s+[–—]\s+|\s+(?:and|but|yet|und|aber|et|mais|y|pero)\s+(?=(?:has|have|had|is|are|was|were|does|do|did|can|cannot|could|needs?|uses?|hat|ist|war"
    r"|kann|wird|a|est|était|es|fue|tiene)\b)"
)
_MORE_CLAUSES = re.compile(r"\s+(?:and|but|while|whereas|und|während|et|tandis que|y|mientras)\s+|,\s+|;\s+")
_VERSION = re.compile(r"\b(?:versions?|release|v)\s*(\d+(?:\.\d+)+)", re.IGNORECASE)
_NUMBER_AFTER = re.compile(r"\s+v?(\d+(?:\.\d+)+)\b")
_NO_LONGER = re.compile(r"\b(?:no longer|not any ?more|nicht mehr|ne \w+ plus|ya no)\b", re.IGNORECASE)
_IRREGULAR = {form: verb for verb, forms in read_lists("holdfast.offline", "claim_words")["irregular"].items() for form in forms.split()}
_LIGHT, _NO_WHAT = (frozenset(read_lists("holdfast.offline", "claim_words")[name].split()) for name in ("light", "denying"))
_NEGATION_AT = re.compile(
    r"\b(?:no longer|not any ?more|nicht mehr|not|no|never|none|nothing|neither|cannot|without|nicht|kein\w*|nie|pas|jamais|nunca|non"
    r"|\w+n['’]t)\b|[不没沒未]|ない|ません",
    re.IGNORECASE,
)
_SCOPE = 4


@dataclass(frozen=True, slots=True)
class Claim:
    """One clause: its subject, what it says by its words, figures and dates, whether it denies, and the sentence around it."""

    document: str
    source: str
    written: date | None
    sentence: str
    clause: str
    subject: Subject
    identified: bool
    terms: frozenset[str]
    order: tuple[str, ...]
    quantities: tuple[Quantity, ...]
    around: tuple[Quantity, ...]
    dates: tuple[Span, ...]
    around_dates: tuple[Span, ...]
    denied: tuple[str, ...] | None
    no_longer: bool
    version: str
    leads: bool
    """Whether the subject is named at the beginning of the clause or of its sentence: then the clause is surely about it."""


def bare_text(unit: TextUnit) -> str:
    """The words of a unit on one line, without the mark of a list item or a heading."""
    return re.sub(r"\s+", " ", _MARKER.sub("", unit.passage.text)).strip().strip("#").strip()


def claims_of(document: SourceDocument, names: Names, chosen: Sequence[int] | None = None, *, sure: bool = True) -> list[Claim]:
    """The claims of a document, or of its units with these numbers. Questions, headings and code claim nothing.

    `sure` is that of `Names.of_units`: whether a sentence may be about what only the rest of its document suggests.
    """
    subjects = names.of_units(document, sure=sure)
    wanted = range(len(document.units)) if chosen is None else chosen
    whole = _document_version(document, names)
    found: list[Claim] = []
    for n in wanted:
        unit = document.units[n]
        if unit.kind not in ("sentence", "item", "row"):
            continue
        for sentence in _sentences(unit):
            found.extend(_claims(document, unit, sentence, subjects[n], names, whole))
    return found


def _sentences(unit: TextUnit) -> list[str]:
    text = bare_text(unit)
    pieces = [one.text for one in split_sentences(text)] if unit.kind == "item" else [text]
    return [piece for piece in pieces if not piece.rstrip("\"'”) ").endswith(("?", "？"))]


def _leads(text: str, names: Names) -> bool:
    return any(len(text[:start].split()) <= 1 for start, _, _ in names.places(text)[:1])


def _document_version(document: SourceDocument, names: Names) -> tuple[Subject, str]:
    """The version that a document describes, and of what."""
    head = " ".join(unit.passage.text for unit in document.units[:3])
    for _, end, name in names.places(head):
        match = _NUMBER_AFTER.match(head, end)
        if match:
            return frozenset((name,)), match.group(1)
    stated = _VERSION.search(head)
    return names.of_document(document), stated.group(1) if stated else ""


def _claims(
    document: SourceDocument, unit: TextUnit, sentence: str, subject: Subject, names: Names, whole: tuple[Subject, str]
) -> Iterator[Claim]:
    language = guess_language(sentence)
    masked, version = _masked(sentence, names)
    around, around_dates = tuple(find_quantities(masked)), tuple(periods(masked))
    identifiers = frozenset(IDENTIFIER.findall(sentence))
    for start, end in _spans(masked, several=len(names.named(sentence)) > 1):
        clause, hidden = sentence[start:end], masked[start:end]
        about, identified = _about(clause, subject, identifiers, names)
        if about is None:
            continue
        quantities = tuple(find_quantities(hidden))
        order = _terms(_unquantified(hidden, quantities), language)
        if not order:
            continue
        yield Claim(
            document=document.id,
            source=document.cite(unit),
            written=document.written,
            sentence=sentence,
            clause=clause.strip(" ,;:"),
            subject=about,
            identified=identified,
            terms=frozenset(order),
            order=order,
            quantities=quantities,
            around=around,
            dates=tuple(full_dates(hidden)),
            around_dates=around_dates,
            denied=_denied(hidden, language),
            no_longer=_NO_LONGER.search(clause) is not None,
            version=version or (whole[1] if about == whole[0] else ""),
            leads=_leads(clause, names) or _leads(sentence, names),
        )


def _masked(sentence: str, names: Names) -> tuple[str, str]:
    """The sentence with names, versions and ticket numbers blanked, and the version that it speaks of."""
    versions: list[str] = []
    masked = sentence
    for _, end, _ in names.places(sentence):
        match = _NUMBER_AFTER.match(sentence, end)
        if match:
            versions.append(match.group(1))
            masked = masked[: match.start()] + " " * (match.end() - match.start()) + masked[match.end() :]
    masked = names.masked(masked)
    for pattern in (IDENTIFIER, _VERSION):
        masked = pattern.sub(lambda match: " " * len(match.group()), masked)
    return masked, versions[0] if versions else ""


def _spans(sentence: str, *, several: bool) -> list[tuple[int, int]]:
    """Where the clauses stand. One without words of its own belongs to the one before it."""
    spans: list[tuple[int, int]] = []
    start = 0
    for match in (_MORE_CLAUSES if several else _CLAUSES).finditer(sentence):
        if len(sentence[start : match.start()]) >= 6 and re.search(r"[^\W\d_]{2}", sentence[match.end() :][:60]):
            # "Noise: 44 dB" is one claim; "needs 6 GB: 2 GB for the heap" are two.
            short = (
                sentence[match.start() - 1] == ":"
                and re.match(r"[-+]?[\d$€£]", sentence[match.end() :])
                and not re.search(r"\d", sentence[start : match.start()])
            )
            if not short:
                spans.append((start, match.start()))
                start = match.end()
    spans.append((start, len(sentence)))
    return spans


def _about(clause: str, subject: Subject, identifiers: frozenset[str], names: Names) -> tuple[Subject | None, bool]:
    """What a clause is about; None if it could be about several things. The number of a ticket says it best."""
    own = frozenset(IDENTIFIER.findall(clause)) or identifiers
    if own:
        return (own, True) if len(own) == 1 else (None, True)
    named = names.named(clause) or subject
    return (named, False) if len(named) <= 1 else (None, False)


def _unquantified(text: str, quantities: Sequence[Quantity]) -> str:
    for one in reversed(quantities):
        text = text[: one.start] + " " * (one.end - one.start) + text[one.end :]
    return text


def _terms(text: str, language: str) -> tuple[str, ...]:
    """The content words of a clause: no numbers, no light words, no negation; irregular verbs in one form."""
    dates = {piece for span in full_dates(text) for word in tokenise(span.text) for piece in keys(word, language)}
    found: dict[str, None] = {}
    for word in tokenise(without_negations(text, language)):
        if word.kind in ("number", "version", "date"):
            continue
        for key in keys(word, language):
            key = _IRREGULAR.get(word.text.lower(), _IRREGULAR.get(key, key))
            if key not in _LIGHT and key not in dates and not key.isdigit():
                found[key] = None
    return tuple(found)


def _denied(clause: str, language: str) -> tuple[str, ...] | None:
    """What a clause denies: the words after its negation; None if it does not deny, or denies twice."""
    if count_negations(normalise(clause), language) % 2 == 0:
        return None
    at = _NEGATION_AT.search(clause)
    if at is None:
        return None
    # "Loses no message": the verb before the negation is denied with what follows. "Is not ours" denies nothing that can be compared.
    verb = _terms(clause[: at.start()], language)[-1:] if at.group().lower() in _NO_WHAT else ()
    after = _terms(clause[at.end() :], language)
    if not after and language != "en":
        return _terms(clause, language)[-_SCOPE:] or None
    return (*verb, *after[:_SCOPE]) if after else None
