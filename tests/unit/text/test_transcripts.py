"""K1, W18: one reader knows a talk, for the import of records, for a stage and for a chat."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.knowledge.import_export import read_path
from holdfast.knowledge.records import Record
from holdfast.offline.documents import Library, SourceDocument
from holdfast.offline.researcher import Retrieval
from holdfast.text.file_formats import read_text
from holdfast.text.transcripts import is_transcript

FORMS = ("{}: ", "18:04 {}: ", "[18:04] {}: ", "[2026-05-02 18:04] {}: ", "02/05/2026, 18:06 - {}: ", "18:06 <{}> ")
SHORT = "Piran: is the door shut?\nLowena: yes\nPiran: and the gate?\nLowena: open\nJago: I shut it\n"


@pytest.mark.parametrize("form", FORMS)
def test_the_answer_to_a_question_in_a_talk_is_found_however_its_lines_are_stamped(form: str) -> None:
    text = f"{form.format('Piran')}who has the key to the oil store?\n{form.format('Lowena')}Jago has it\n"
    found = Retrieval(Library([SourceDocument("t.txt", read_text(text, ".txt").text)])).answers("Who has the key to the oil store?")
    assert [one.fact for one in found] == [f"{form.format('Lowena')}Jago has it"]


@pytest.mark.parametrize("form", FORMS)
def test_an_import_takes_the_same_talks_by_turn_and_speaker(form: str, tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text(f"{form.format('Piran')}who has the key?\n{form.format('Lowena')}Jago has it\n")
    records = [one for _, one in read_path(tmp_path / "t.txt") if isinstance(one, Record)]
    assert [(one.kind, one.speaker, one.text) for one in records] == [
        ("turn", "Piran", "who has the key?"),
        ("turn", "Lowena", "Jago has it"),
    ]


def test_a_short_talk_in_which_somebody_speaks_once_is_one(tmp_path: Path) -> None:
    (tmp_path / "five.txt").write_text(SHORT)
    speakers = [one.speaker for _, one in read_path(tmp_path / "five.txt") if isinstance(one, Record)]
    assert speakers == ["Piran", "Lowena", "Piran", "Lowena", "Jago"]


def test_a_list_of_names_and_values_is_no_talk() -> None:
    for text in (
        "Name: Ann\nRent: 410\nTerm: 3 years\n",
        "Net: 12\nRope: 4\nNet: 9\nOar: 7\n",
        "Notes\n\nThe rule: be early.\nAnd more.\n",
    ):
        assert not is_transcript(text)
