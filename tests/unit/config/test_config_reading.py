"""Reading YAML text: places, plain types, and limits on what a hostile file can do (C2, C4)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.config.reading import MAX_BYTES, dotted, read_yaml
from holdfast.errors import ConfigError


def fault(text: str | bytes) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        read_yaml(text, "config.yaml")
    assert caught.value.file == "config.yaml"
    return caught.value


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "---\n", "\ufeff", b"", b"\xef\xbb\xbf# bom\n"])
def test_an_empty_file_reads_as_nothing(text: str | bytes) -> None:
    assert read_yaml(text).values is None


def test_every_key_and_value_knows_its_line() -> None:
    reading = read_yaml("# first\na:\n  - x\n  - b: 1\n    c: >\n      long\n")
    assert reading.values == {"a": ["x", {"b": 1, "c": "long\n"}]}
    assert reading.line(("a",), of_key=True) == 2
    assert reading.line(("a", 0)) == 3
    assert reading.line(("a", 1, "b")) == 4
    assert reading.line(("a", 1, "c"), of_key=True) == 5
    assert reading.line(("a", 1, "unknown")) == 4, "what is not there has the line of what is around it"
    assert reading.line(("nowhere",)) is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_are_counted_with_either_line_end(end: str) -> None:
    reading = read_yaml(end.join(["a: 1", "", "b: 2", ""]))
    assert reading.line(("b",)) == 3
    assert reading.text[reading.keys[("b",)].start] == "b"


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("8080", 8080),
        ("-3", -3),
        ("1_000", 1000),
        ("0x1f", 31),
        ("0.5", 0.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("~", None),
        ("yes", "yes"),
        ("007", "007"),
        ("2026-04-19", "2026-04-19"),
        ("1.2.3", "1.2.3"),
        ("'8080'", "8080"),
        ("!!str 8080", "8080"),
        ("!!int 8080", 8080),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_a_word_means_what_yaml_says_and_ids_stay_text(word: str, value: Any) -> None:
    found = read_yaml(f"a: {word}").values["a"]
    assert found == value
    assert type(found) is type(value)


def test_anchors_and_merges_are_filled_in_and_own_keys_win() -> None:
    reading = read_yaml("base: &b {x: 1, y: 2}\none:\n  <<: *b\n  y: 3\ntwo: *b\nthree:\n  <<: [{x: 9}, *b]\n")
    assert reading.values["one"] == {"y": 3, "x": 1}
    assert reading.values["two"] == {"x": 1, "y": 2}
    assert reading.values["three"] == {"x": 9, "y": 2}
    assert reading.line(("one", "x")) == 1


def test_a_key_that_appears_twice_is_an_error_with_both_lines() -> None:
    error = fault("memory:\n  enabled: true\n  max_facts: 3\n  enabled: false\n")
    assert (error.line, error.key) == (4, "memory.enabled")
    assert "line 2" in str(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1\nb: 2\n", 2),
        ("a: 1\nb: 2: 3\n", 2),
        ("a: 1\n\tb: 2\n", 2),
        ("a: 'x\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: 1\nb: *missing\n", 2),
        ("a: 1\nb: !!python/object:os.system x\n", 2),
        ("a: 1\nb: !thing {c: 1}\n", 2),
        ("a: !!int many\n", 1),
        ("a: 1\n? [x]\n: 2\n", 2),
        ("a: &a [*a]\n", 1),
        ("a: 1\nb: \x07\n", 2),
        (b"a: 1\nb: \xff\xff\n", 2),
        ("a: 1\n<<: 3\n", 2),
        (": 1\n", 1),
        ("a: @x\n", 1),
    ],
)
def test_broken_text_is_one_clear_message_with_its_line(text: str | bytes, line: int) -> None:
    error = fault(text)
    assert error.line == line
    assert "\n" not in str(error)


def test_a_billion_laughs_are_refused_quickly() -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
    assert "aliases" in str(fault(bomb))


@pytest.mark.parametrize("text", ["[" * 5000, "a: " + "{b: " * 500 + "1" + "}" * 500, "".join(f"{' ' * n}a:\n" for n in range(200))])
def test_deep_nesting_is_refused_and_not_a_recursion_error(text: str) -> None:
    assert "deeper" in str(fault(text))


def test_a_huge_file_is_refused_before_it_is_parsed() -> None:
    assert "larger" in str(fault("a" * (MAX_BYTES + 1)))


def test_a_message_about_syntax_does_not_repeat_a_secret_that_lacks_quotes() -> None:
    for value in ("*hunter2hunter2", "!hunter2hunter2 x", "!hunter2!hunter2 x", "&hunter2hunter2 [*hunter2hunter2]", '"hunter2\\hunter2"'):
        try:
            read_yaml(f"api_key: {value}\n")
        except ConfigError as error:
            assert "hunter2" not in str(error)


def test_paths_are_written_as_people_write_them() -> None:
    assert dotted(("a\nb", "api_key=hunter2hunter2")) == r"a\nb.api_key=***", "in one line, and without a secret"
    assert dotted(("subagents", "custom_agents", "a", "tools", 2)) == "subagents.custom_agents.a.tools[2]"
