"""Reads the word lists that lie beside the code as TOML files: `read_lists("holdfast.text", "stop_words")`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def read_lists(package: str, name: str) -> dict[str, Any]:
    """The tables of `lists/NAME.toml` in a package. Read once; do not change what is given."""
    return tomllib.loads(resources.files(package).joinpath(f"lists/{name}.toml").read_text(encoding="utf-8"))


def read_words(package: str, name: str) -> dict[str, frozenset[str]]:
    """The lists of a file whose values are words with spaces between them."""
    return {key: frozenset(words.split()) for key, words in read_lists(package, name).items()}


def alternatives(entry: str) -> str:
    """An entry of words or phrases as alternatives of a regular expression. They are on lines of their own, or have ` | ` between them.

    >>> alternatives("each | every one\\nall")
    'each|every one|all'
    """
    return "|".join(part for line in entry.split("\n") for part in line.split(" | ") if part)
