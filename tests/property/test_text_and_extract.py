"""What holds for every text: places are exact, nothing is invented, nothing raises (S10, W18, K3, M10)."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from datetime import date

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from tests.conftest import Effort

from holdfast.extract.selection import SourceText, cut, ground, select
from holdfast.redaction import find_secrets, replace_secrets
from holdfast.text.dates import find_dates
from holdfast.text.likeness import likeness
from holdfast.text.normalise import find_invisible, normalise, normalise_with_offsets, strip_invisible
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms, terms_with_offsets, tokenise

# Pieces that rules look for, so that random texts are not just noise to them.
PIECES = [
    "The cat sat. ", "Dr. Smith paid $3.50! ", "See Fig. 3 (p. 4). ", "e.g. ", "\n", "\n\n", "- item ", "1. first\n", "# Head\n",
    "| a | b |\n", "|---|---|\n", "```\n", "    code\n", "今天很好。", "「はい。」と言った。", "한국어 문장. ", "“Quote.” ",
    "(aside) ", "... ", "yesterday ", "two weeks ago ", "March 2024 ", "2024-03-15 ", "31/12/2024 ", "99999 years later ",
    "next Friday ", "password=hunter2X! ", "sk-abc123 ", "token: 5 ", "https://example.com/a?b=c ", "a@b.org ",
    "snake_case camelCase ", "v1.2.3 ", "\u200b", "\u202e", "e\u0301", "ﬁ", "İ", "ß", "👨‍👩‍👧", "\ud800", "not ", "never ",
    "10 ", "ten ", "Berlin ", "\t", "\r\n", "\x00", "\u2028", "Q3 2025 ", "since ", "to ", "昨天", "3月5日",
    "the weekend before last ",
]  # fmt: skip
TEXTS = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=8)), max_size=40).map("".join)


def _run(effort: Effort, check: Callable[..., None], *strategies: st.SearchStrategy[object]) -> None:
    examples = effort(60, 3000)
    wrapped = given(*strategies)(check)
    wrapped = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck))(wrapped)
    seed(effort.seed)(wrapped)()


@pytest.mark.prove
def test_sentences_are_pieces_of_the_text_in_order_and_lose_no_letter(effort: Effort) -> None:
    def check(text: str) -> None:
        units = split_sentences(text)
        end = 0
        for unit in units:
            assert unit.start >= end
            assert text[unit.start : unit.end] == unit.text
            assert unit.text.strip() == unit.text != ""
            end = unit.end
        covered = set().union(*(range(unit.start, unit.end) for unit in units)) if units else set()
        assert all(n in covered for n, c in enumerate(text) if c.isalnum())

    _run(effort, check, TEXTS)


@pytest.mark.prove
def test_every_selected_passage_occurs_byte_for_byte_in_its_source(effort: Effort) -> None:
    def check(texts: list[str], question: str | None, budget: int) -> None:
        sources = {str(n): SourceText(str(n), text) for n, text in enumerate(texts)}
        extract = select(sources.values(), question=question, budget=budget)
        assert extract == select(sources.values(), question=question, budget=budget)
        assert extract.tokens <= budget
        for passage in extract.passages:
            source = sources[passage.source].text
            assert source[passage.start : passage.end] == passage.text
            assert passage.text.encode("utf-8", "surrogatepass") in source.encode("utf-8", "surrogatepass")
        places = [(int(passage.source), passage.start) for passage in extract.passages]
        assert places == sorted(places)
        assert len(extract.passages) + sum(left.units for left in extract.left_out) == len(cut(sources.values()))

    _run(effort, check, st.lists(TEXTS, max_size=3), st.one_of(st.none(), TEXTS), st.integers(0, 120))


@pytest.mark.prove
def test_dates_have_exact_places_and_ordered_days(effort: Effort) -> None:
    def check(text: str, today: date) -> None:
        end = 0
        for span in find_dates(text, today):
            assert span.offset >= end
            assert span.text
            assert text[span.offset : span.offset + len(span.text)] == span.text
            assert span.start <= span.end
            assert span.ambiguous == (span.other is not None)
            end = span.offset + len(span.text)

    _run(effort, check, TEXTS, st.dates())


@pytest.mark.prove
def test_words_and_terms_have_exact_places(effort: Effort) -> None:
    def check(text: str) -> None:
        end = 0
        for word in tokenise(text):
            assert word.start >= end
            assert text[word.start : word.end] == word.text != ""
            end = word.end
        found = terms_with_offsets(text)
        assert [term.key for term in found] == terms(text)
        assert all(0 <= term.start < term.end <= len(text) for term in found)
        assert all(term.key for term in found)
        assert terms(text) == terms(text)

    _run(effort, check, TEXTS)


@pytest.mark.prove
def test_the_compared_form_is_stable_and_leads_back(effort: Effort) -> None:
    def check(text: str) -> None:
        form = normalise_with_offsets(text)
        assert len(form.offsets) == len(form.text) + 1
        assert list(form.offsets) == sorted(form.offsets)
        assert all(0 <= offset <= len(text) for offset in form.offsets)
        assert normalise(normalise(text)) == normalise(text)
        assert [found for found in find_invisible(strip_invisible(text)) if found.kind not in ("private",)] == [] or not text.isascii()
        if text.isascii() or unicodedata.is_normalized("NFKD", text):
            assert form.text == normalise(text)

    _run(effort, check, TEXTS)


@pytest.mark.prove
def test_redacting_removes_every_secret_and_nothing_else(effort: Effort) -> None:
    def check(text: str) -> None:
        found = find_secrets(text)
        end = 0
        kept = []
        for secret in found:
            assert end <= secret.start < secret.end <= len(text)
            kept.append(text[end : secret.start])
            end = secret.end
        kept.append(text[end:])
        redacted = replace_secrets(text)
        assert all(piece in redacted for piece in kept)
        assert (redacted == text) == (not found)

    _run(effort, check, TEXTS)


@pytest.mark.prove
def test_likeness_is_whole_for_the_same_text_and_never_raises(effort: Effort) -> None:
    def check(first: str, second: str) -> None:
        assert 0 <= likeness(first, second) <= 1
        assert likeness(first, first) == 1

    _run(effort, check, TEXTS, TEXTS)


@pytest.mark.prove
def test_what_is_grounded_is_in_the_source(effort: Effort) -> None:
    def check(text: str, claim: str) -> None:
        source = SourceText("a", text)
        found = ground(claim, [source])
        assert bool(found) == (found.passage is not None)
        if found.passage is not None:
            assert text[found.passage.start : found.passage.end] == found.passage.text
        for unit in split_sentences(text)[:3]:
            assert ground(unit.text, [source]).kind == "exact"

    _run(effort, check, TEXTS, TEXTS)
