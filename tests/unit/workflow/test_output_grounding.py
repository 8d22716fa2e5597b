"""W3, W18: the program check of findings, for agents and models alike."""

from __future__ import annotations

import pytest

from holdfast.session.output import Finding, StageOutput
from holdfast.workflow.agent import Verdict, ground_finding, ground_output

TEXT = (
    "Osprey 3.2 sustains 185,000 messages per second on three nodes.\nThe licence  costs 1,200 euros per node —\nand “support” is extra. "
    "It does not lose messages. Port 8080 is used. Der Preis beträgt 1.200 Euro. 延迟为 4 毫秒。"
)


def resolve(source: str) -> str | None:
    return TEXT if source == "doc.md" else None


def verdict(fact: str, source: str = "doc.md") -> tuple[bool, str]:
    output, report = ground_output(StageOutput("s", "x", (Finding(fact, source),), "high"), resolve)
    assert output.key_findings[0].grounded is report.verdicts[0].grounded
    assert (output.confidence == "high") == report.verdicts[0].grounded
    return report.verdicts[0].grounded, report.verdicts[0].kind


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        ("Osprey 3.2 sustains 185,000 messages per second on three nodes.", "exact"),
        ('the licence costs 1,200 euros per node - and "support" is extra', "normalised"),
        ("Ｏsprey 3.2 sustains 185,000 messages per second", "normalised"),
        ("延迟为 4 毫秒", "exact"),
        ("Osprey 3.2 sustains 185000 messages per second on the three nodes.", "near"),
    ],
)
def test_what_is_in_the_source_is_grounded_whatever_its_spaces_quotes_and_dashes(fact: str, kind: str) -> None:
    assert verdict(fact) == (True, kind)


@pytest.mark.parametrize(
    ("fact", "kind"),
    [
        ("Osprey 3.2 sustains 195,000 messages per second on three nodes.", "other figure"),
        ("Osprey 3.2 sustains 18,500 messages per second on three nodes.", "other figure"),
        ("Port 80 is used.", "other figure"),
        ("It does lose messages.", "absent"),
        ("It loses messages.", "absent"),
        ("The guide says “support is always included in the price”, per node.", "other quote"),
        ("Harrow is written in Rust.", "absent"),
    ],
)
def test_changed_figures_turned_statements_and_invented_quotes_are_not(fact: str, kind: str) -> None:
    assert verdict(fact) == (False, kind)


@pytest.mark.parametrize("source", ["other.md", "", "doc.md#nope", "https://x.example"])
def test_a_source_that_does_not_resolve_is_not_a_source(source: str) -> None:
    assert verdict("Osprey 3.2 sustains 185,000 messages per second on three nodes.", source or " ") == (False, "no source")


def test_one_bad_finding_lowers_the_confidence_by_one_step_and_none_is_removed() -> None:
    findings = (Finding("Port 8080 is used.", "doc.md"), Finding("Port 9090 is used.", "doc.md"), Finding("It is blue.", "doc.md"))
    output, report = ground_output(StageOutput("s", "x", findings, "high"), resolve)
    assert [finding.grounded for finding in output.key_findings] == [True, False, False]
    assert output.confidence == "medium" and report.summary == "1 of 3 findings can be found in the sources."
    assert "9090" in report.ungrounded[0].why
    assert ground_output(StageOutput("s", "x", findings, "low"), resolve)[0].confidence == "low"
    assert ground_output(StageOutput("s", "x"), resolve)[1].summary == "There are no findings to check."


def test_a_log_that_is_one_sentence_to_a_splitter_does_not_hold_whatever_its_words_and_figures_would_make() -> None:
    """W3: words and figures from different lines are no finding; the one line that says it nearly is found, with its place."""
    log = "".join(f"Line {n}: Heron answered request {n} in {n % 7} ms.\n" for n in range(600)) + "The slowest answer took 480 ms.\n"

    def check(fact: str) -> Verdict:
        return ground_finding(Finding(fact, "heron.log"), lambda _: log)

    assert not check("The slowest answer took 490 ms.").grounded
    near = check("The slowest answer of all took 480 ms.")
    assert near.kind == "near" and near.passage is not None
    assert log[near.passage.start : near.passage.end] == "The slowest answer took 480 ms."
