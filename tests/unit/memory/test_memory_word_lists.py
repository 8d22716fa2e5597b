"""The word lists of memory are data that a person can edit: each file is sound, and every entry of it is used (M10, M13)."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from holdfast.memory.facts import Turn
from holdfast.memory.rules import RulesExtractor
from holdfast.memory.wording import WordLists, word_lists

NAMES = sorted(file.name.removesuffix(".toml") for file in files("holdfast.memory").joinpath("lists").iterdir())
CODE = "\n".join(
    files("holdfast.memory").joinpath(name).read_text("utf-8")
    for name in (
        "gate.py",
        "instructions.py",
        "merge.py",
        "rules.py",
        "screening.py",
        "statements.py",
    )
)


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_of_a_list_is_a_pattern_and_is_used(name: str) -> None:
    """M10, M13: a name that nothing refers to is a list that a person edits in vain."""
    lists = WordLists(name)
    said = files("holdfast.memory").joinpath("lists", f"{name}.toml").read_text("utf-8")
    for entry in (*lists.tables.get("words", {}), *lists.tables.get("forms", {})):
        lists.pattern(entry, pronoun_before="x")
        assert f"{{{entry}}}" in said or f'"{entry}"' in CODE or f"{{{entry}}}" in CODE, f"{name}: {entry} is used nowhere"


def test_there_are_lists() -> None:
    assert len(NAMES) == 13


def test_alternatives_are_parted_by_a_bar_or_a_new_line_and_slots_stand_for_any_of_them() -> None:
    lists = word_lists("wishes")
    assert {"german", "esperanto", "plain text"} <= {*lists.words("languages"), *lists.words("style")}
    spoken = lists.compiled("in {languages}\nfor {code}", re.IGNORECASE)
    assert spoken.fullmatch("in German") and spoken.fullmatch("for Rust") and not spoken.fullmatch("in Rust")


def test_a_name_that_no_entry_has_is_an_error_and_not_a_silent_hole() -> None:
    with pytest.raises(KeyError):
        word_lists("wishes").compiled("in {langauges}")


def test_what_the_rules_learn_follows_the_lists() -> None:
    """M13: the category and the confidence stand in the list beside the words."""
    phrases = word_lists("rules").tables["phrases"]
    prefer = next(one for one in phrases if one["name"] == "prefer")
    found = RulesExtractor().extract([Turn("m1", "user", "I prefer tea over coffee.")], ()).candidates[0]
    assert (found.category, found.confidence) == (prefer["category"], prefer["confidence"]) == ("preference", 0.95)
