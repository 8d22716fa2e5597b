"""W18, M13: a conversation without a model answers by the same path as the researcher: few sentences with sources, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.config.loading import config_from_values
from holdfast.errors import InputError
from holdfast.events import Bus
from holdfast.forgetting import forget_text
from holdfast.harness import build
from holdfast.knowledge.adapters import open_knowledge
from holdfast.knowledge.records import Record
from holdfast.offline.conversation import ExtractiveConversation


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[ExtractiveConversation]:
    config = config_from_values({"memory": {"debounce_seconds": 0}}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    with open_knowledge(config, bus=Bus()) as store:
        store.add(
            [
                Record("The Calora M9 gave 44 dB(A) at the neighbour's window. Dan measured it at night.", source="trial.md"),
                Record("Hi Priya,\n\nthe cellar floods every spring. Cheers", source="mail.eml"),
                Record("OSP-2141 was fixed on 14 March 2026.", source="bugs.md"),
            ]
        )
    conversation = ExtractiveConversation(config, "one", bus=Bus())
    yield conversation
    conversation.close()


def test_a_greeting_gets_three_lines_on_what_it_can_do(talk: ExtractiveConversation) -> None:
    for said in ("hello, who are you?", "hi", "What can you do?", "Guten Tag!"):
        lines = talk.ask(said).splitlines()
        assert len(lines) == 3 and "holdfast models list" in lines[2] and not any(line.startswith("- ") for line in lines)


def test_an_answer_is_a_few_sentences_with_their_sources_above_the_floor(talk: ExtractiveConversation) -> None:
    answer = talk.ask("How loud is the CALORA M9 at the neighbour's window?")
    told = [line for line in answer.splitlines() if line.startswith("- ")]
    assert 1 <= len(told) <= 5 and told[0] == "- The Calora M9 gave 44 dB(A) at the neighbour's window. [trial.md]"
    assert not any("Priya" in line or "OSP-2141" in line or "Cheers" in line for line in told)
    assert "Nothing that is known" in talk.ask("Which opera did Verdi write for Cairo?")


def test_what_was_only_asked_is_never_an_answer(talk: ExtractiveConversation) -> None:
    talk.ask("What does the Osprey licence cost per node?")
    assert "What does the Osprey" not in talk.ask("What does the Osprey licence cost per node and year?")


def test_text_that_is_given_with_a_question_answers_it_first(talk: ExtractiveConversation) -> None:
    answer = talk.ask("what is the staging server?\n\nThe staging server is heron. The printer is on the second floor.")
    assert answer.startswith("- The staging server is heron. [what you gave]")


def test_titles_and_other_conversations_need_no_model(talk: ExtractiveConversation) -> None:
    talk.ask("The key of the office is under the blue pot.")
    talk.title = "My trip"
    assert talk.title == "My trip"
    second = talk.other("two")
    assert "under the blue pot. [one #" in second.ask("Where is the key of the office?")
    assert {info.id for info in second.threads()} == {"one", "two"}


def test_a_title_stays_until_it_is_forgotten(talk: ExtractiveConversation, tmp_path: Path) -> None:
    """A14, M14: it is there when the conversation is opened again, in the list, and gone when its words are forgotten."""
    config = config_from_values({}, environ={"HOLDFAST_HOME": str(tmp_path / "home")})
    talk.ask("The key of the office is under the blue pot.")
    talk.title = "My  trip to Graz"
    talk.close()
    with build(config) as harness:
        assert harness.conversation("one").title == "My trip to Graz"
        assert [info.title for info in harness.conversations()] == ["My trip to Graz"]
        with pytest.raises(InputError, match="at least one word"):
            harness.conversation("one").title = "  "
        forget_text(harness, "Graz")
    with build(config) as harness:
        assert [info.title for info in harness.conversations()] == ["The key of the office is under the blue pot."]
    assert not any(b"Graz" in file.read_bytes() for file in (tmp_path / "home").rglob("*") if file.is_file())


def test_what_is_said_and_not_asked_is_kept_without_an_answer(talk: ExtractiveConversation) -> None:
    """W18, M13: "my cat is called Pixel" is no question that went unanswered."""
    said = talk.ask("My bicycle is called Thunder.")
    assert said.startswith("That is kept") and "Nothing that is known" not in said


def test_a_question_about_the_user_finds_a_fact_that_shares_no_word_with_it(talk: ExtractiveConversation) -> None:
    """W18, M13: a fact stands for itself, so one that answers brings no other along; a question about something else finds none."""
    for fact in (
        "User prefers green tea",
        "User lives in Graz",
        "User works as a nurse at the city hospital",
        "User's birthday is on 3 May",
    ):
        talk.memory.add(fact)
    assert [one.fact for one in talk.findings("What do I like to drink?")] == ["User prefers green tea"]
    assert [one.fact for one in talk.findings("What tea do I prefer?")] == ["User prefers green tea"]
    assert [one.fact for one in talk.findings("What is my job?")] == ["User works as a nurse at the city hospital"]
    assert talk.findings("What is 3 plus 4?") == []
    assert talk.findings("How does a heat pump work?") == []
