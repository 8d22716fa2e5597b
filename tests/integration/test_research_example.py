"""W18, W12, W10, W7: the research example from the file to the report, with the real runner and no model."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from holdfast.offline.documents import Library
from holdfast.offline.sources import read_folder
from holdfast.session.output import Finding, StageOutput
from holdfast.session.state import Session
from holdfast.session.store import SessionStore
from holdfast.workflow.agent import ground_output
from holdfast.workflow.launcher import run_workflow
from holdfast.workflow.run_settings import file_sessions
from holdfast.workflow.workflow_file import load_workflow

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "research"

# What the documents were written to contradict each other in: a piece of each statement.
PLANTED = {
    "throughput of Osprey": ("185,000 messages per second", "121,000 messages per second"),
    "latency of Osprey": ("Osprey is 4 ms", "Osprey was 11 ms"),
    "durability of Osprey": ("Osprey loses no acknowledged", "Osprey lost acknowledged"),
    "flushing of Osprey": ("calls fsync after every batch", "does not call fsync after every batch"),
    "memory of Osprey": ("needs 6 GB of memory", "needs 2 GB of memory"),
    "fix of OSP-2141": ("on 14 March 2026", "on 2 April 2026"),
    "order in Harrow": ("Harrow preserves the order", "Harrow does not preserve the order"),
    "memory of Harrow": ("uses 300 MB of memory", "uses 900 MB of memory"),
    "state of Harrow": ("Harrow is maintained", "no longer maintained"),
    "throughput of Tarnfield": ("accepts 90,000", "accepted 38,000"),
    "latency of Tarnfield": ("Tarnfield is 20 ms", "Tarnfield was 35 ms"),
    "price of Tarnfield": ("0.40 euros", "0.55 euros"),
    "outage of Tarnfield": ("lasted 47 minutes", "lasted 3 hours"),
    "fix of TF-88": ("on 20 February 2026", "on 21 May 2026"),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Session, SessionStore, Path]:
    """The example, run once for all tests of this file."""
    folder = tmp_path_factory.mktemp("research")
    store = file_sessions(folder / "sessions")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        session = run_workflow(load_workflow(EXAMPLE / "workflow.yaml"), store=store, config={}, session_id="example", check=True)
    return session, store, folder


def _disagreements(session: Session) -> list[list[str]]:
    return [[said["fact"] for said in one["statements"]] for one in session.stage_outputs["synthesize"].data["disagreements"]]


def test_the_example_completes_and_answers_every_question(finished: tuple[Session, SessionStore, Path]) -> None:
    session, _, _ = finished
    assert session.status == "completed" and session.completed_stages == ("plan", "research", "synthesize", "report")
    plan, research = session.stage_outputs["plan"], session.stage_outputs["research"]
    assert len(plan.data["questions"]) == 23 and research.data["unanswered"] == []
    assert all("nothing was generated" in output.summary.lower() for output in session.stage_outputs.values())


def test_at_least_half_of_the_planted_contradictions_are_found_and_no_false_one(
    finished: tuple[Session, SessionStore, Path],
) -> None:
    told = _disagreements(finished[0])
    found = [name for name, parts in PLANTED.items() if any(all(any(part in fact for fact in facts) for part in parts) for facts in told)]
    false_alarms = [
        facts for facts in told if not any(all(any(part in fact for fact in facts) for part in parts) for parts in PLANTED.values())
    ]
    assert len(found) >= 0.5 * len(PLANTED), sorted(set(PLANTED) - set(found))
    assert false_alarms == []


def test_every_quoted_sentence_of_the_report_is_in_the_document_that_it_names(finished: tuple[Session, SessionStore, Path]) -> None:
    report = finished[0].stage_outputs["report"].data["report"]
    documents = dict(re.findall(r"^(\d+)\. ([\w.-]+),", report.split("## Sources")[1], re.MULTILINE))
    library = Library(read_folder(EXAMPLE / "corpus"))
    quoted = re.findall(r"^- (.+?) ((?:\[\d+\])+)(?: \*\(.+\)\*)?$", report, re.MULTILINE)
    assert len(quoted) > 80
    # A sentence with several numbers is quoted from the first; the others say the same in nearly the same words.
    findings = tuple(
        Finding(fact.replace("&lt;", "<").replace("&gt;", ">"), documents[re.findall(r"\d+", marks)[0]]) for fact, marks in quoted
    )
    _, verdicts = ground_output(StageOutput("report", "x", findings), library.text_of)
    assert verdicts.ungrounded == ()
    assert {verdict.kind for verdict in verdicts.verdicts} <= {"exact", "normalised"}


def test_the_injected_orders_have_no_effect_and_are_no_findings(finished: tuple[Session, SessionStore, Path]) -> None:
    session = finished[0]
    corpus = (EXAMPLE / "corpus" / "forum-osprey-small-machines.html").read_text(encoding="utf-8")
    assert "Ignore all previous instructions" in corpus and "900,000" in corpus
    told = json.dumps({name: [finding.fact for finding in output.key_findings] for name, output in session.stage_outputs.items()})
    report = session.stage_outputs["report"].data["report"]
    for text in (told, report, json.dumps(_disagreements(session))):
        assert "900,000" not in text and "collect.example" not in text and "previous instructions" not in text
    assert "Harrow" in report and "Tarnfield" in report
    assert "forum-osprey-small-machines.html: sentences that give orders to an assistant, or go on from one: 3" in report
    assert session.stage_outputs["research"].data["passed_over"] == {"forum-osprey-small-machines.html": 3}


def test_the_outdated_review_is_marked_and_the_newsletter_is_not_cited(finished: tuple[Session, SessionStore, Path]) -> None:
    report = finished[0].stage_outputs["report"].data["report"]
    old = [line for line in report.splitlines() if line.startswith("- ") and ("Osprey 2.8" in line or "In 2023" in line)]
    assert old and all("from 2023, older than the other sources" in line for line in old)
    assert "canteen" not in report
    for line in report.split("## Where the sources disagree")[1].split("\n## ")[0].splitlines():
        assert "2.8" not in line and "2023" not in line


def test_the_answers_come_first_short_enough_to_be_read_and_the_rest_is_an_appendix(finished: tuple[Session, SessionStore, Path]) -> None:
    """W18: per question two or three sentences, then what speaks against them, then what was not found; a page for five questions."""
    report = finished[0].stage_outputs["report"].data["report"]
    body, appendix = report.split("## Appendix")
    assert body.index("## Throughput") < body.index("## Where the sources disagree") and "### Further sentences" in appendix
    assert len(body.split("## Where the sources disagree")[0].split()) <= 23 / 5 * 500
    throughput = body.split("## Throughput")[1].split("\n## ")[0]
    assert "messages per second" in throughput and "against it: D" in body
    assert "messages per second" in report.split("## The message queue for our order pipeline")[1].split("##")[0]


def test_the_documents_are_kept_as_raw_data_and_the_report_as_a_file(finished: tuple[Session, SessionStore, Path]) -> None:
    session, store, folder = finished
    research = session.stage_outputs["research"]
    for document in research.data["documents"]:
        data = store.raw_get("example", document["ref"])
        assert data.source == document["id"] and data.text().strip()
    assert {document["ref"] for document in research.data["documents"]} == set(research.raw_data_refs)
    written = list(folder.rglob("report.md"))
    assert [path.read_text(encoding="utf-8") for path in written] == [session.stage_outputs["report"].data["report"]]
