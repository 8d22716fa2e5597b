"""W18: where sources disagree, and where they only seem to."""

from __future__ import annotations

import pytest
from tests.unit.offline.desk import PUMPS

from holdfast.offline.claims import Names, claims_of
from holdfast.offline.disagreements import Conflict, find_conflicts
from holdfast.offline.documents import SourceDocument
from holdfast.offline.sources import read_folder

NAMES = Names(("Osprey", "Harrow"))

# What the heat pump documents were written to contradict each other in. They are a second corpus, which guards rules made on the example.
PLANTED = (
    ("48 dB", "55 dB"), ("4.6", "3.9"), ("needs no buffer tank", "needs a buffer tank"), ("4 March 2024", "18 September 2024"),
    ("14,900 euros", "16,400 euros"), ("-25 °C", "-18 °C"), ("is approved for schools", "is not approved for schools"),
    ("35 %", "25 %"), ("30 September 2025", "31 October 2025"),
)  # fmt: skip


def conflicts(*texts: str) -> list[Conflict]:
    documents = [SourceDocument(f"doc{n}", text) for n, text in enumerate(texts)]
    return find_conflicts(claim for document in documents for claim in claims_of(document, NAMES))


def planted_found(found: list[Conflict], planted: tuple[tuple[str, str], ...]) -> list[tuple[str, str]]:
    return [
        pair for pair in planted if any(all(any(part in statement.fact for statement in one.statements) for part in pair) for one in found)
    ]


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ("Osprey sustains 185,000 messages per second.", "In our tests Osprey sustained 121,000 messages per second.", "number"),
        ("Osprey needs 6 GB of memory: 2 GB for the heap.", "Osprey needs 2 GB of memory, if you are careful.", "number"),
        ("The outage of Osprey lasted 47 minutes.", "The outage of Osprey lasted 3 hours for us.", "number"),
        ("OSP-2141 was fixed on 14 March 2026.", "OSP-2141 was fixed on 2 April 2026, as we were told.", "date"),
        ("Osprey loses no acknowledged message.", "Osprey lost acknowledged messages in 3 of 40 trials.", "negation"),
        ("By default Osprey calls fsync after every batch.", "Osprey does not call fsync after every batch by default.", "negation"),
        ("# Osprey\n\nIt needs a buffer tank.", "# Osprey\n\nThe unit needs no buffer tank.", "negation"),
        ("Osprey is faster than Kite on small machines.", "Osprey is slower than Kite on small machines.", "opposite"),
    ],
)
def test_other_figures_dates_denials_and_opposites_are_found(first: str, second: str, kind: str) -> None:
    assert [one.kind for one in conflicts(first, second)] == [kind]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Osprey sustains 185,000 messages per second.", "Harrow sustains 64,000 messages per second."),
        ("The latency of Osprey is 4 ms at 50,000 messages per second.", "The latency of Osprey is 2 ms at 10,000 messages per second."),
        ("Osprey 3.2 sustains 185,000 messages per second.", "Osprey 2.8 sustains 95,000 messages per second."),
        ("# Osprey\n\n9 July 2026.\n\nThe licence of Osprey costs 1,200 euros.", "In 2023 the licence of Osprey cost 800 euros."),
        ("# Osprey\n\n9 July 2026.\n\nOsprey uses 6 GB of memory.", "# Osprey\n\n3 May 2022.\n\nOsprey uses 11 GB of memory."),
        ("Osprey sustains about 120,000 messages per second.", "Osprey sustains 121,000 messages per second."),
        ("Osprey uses 1.5 GB of memory.", "Osprey uses 1500 MB of memory."),
        ("In January Osprey used 2,100 kWh of power.", "In February Osprey used 1,700 kWh of power."),
        ("Does Osprey lose messages?", "Osprey does not lose messages."),
        ("Osprey moves partitions while consumers go on reading.", "Osprey moves partitions without stopping consumers."),
        ("Osprey lost no message in 40 trials.", "Osprey loses no message after a power cut."),
        ("An old boiler makes 61 dB.", "Osprey makes 48 dB of noise."),
    ],
)
def test_other_things_conditions_versions_times_and_rounding_are_no_disagreement(first: str, second: str) -> None:
    assert conflicts(first, second) == []


def test_one_document_does_not_disagree_with_itself_and_several_sources_are_one_conflict() -> None:
    assert conflicts("Osprey needs 6 GB of memory. Osprey needs 2 GB of memory.") == []
    found = conflicts("Osprey needs 6 GB of memory.", "Osprey needs 2 GB of memory.", "Osprey needs 9 GB of memory.")
    assert len(found) == 1 and sorted(one.value for one in found[0].statements) == ["2 GB", "6 GB", "9 GB"]


def test_planted_contradictions_of_a_second_corpus_are_found_without_false_alarms() -> None:
    names = Names(("Calder 9", "Norvik H2"))
    found = find_conflicts(claim for document in read_folder(PUMPS) for claim in claims_of(document, names))
    hits = planted_found(found, PLANTED)
    assert len(hits) >= 0.8 * len(PLANTED), sorted(set(PLANTED) - set(hits))
    assert len(found) - len(hits) <= 0, [one.statements for one in found]
