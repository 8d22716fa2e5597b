"""Precision and recall of the rules extractor on short labelled dialogs (M13).

Each dialog says which facts a careful reader would keep: for each, the words that the fact must hold. Most dialogs that teach nothing
are near misses: questions, thoughts, other people's likings, pasted text, code and logs. A candidate is right when it holds all words
of a label that no other candidate has met, quotes the user word for word, and keeps every number. Dialogs with an odd number are for
development, the others are held out. Prints one JSON object.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.memory.facts import Candidate, Turn
from holdfast.memory.rules import RulesExtractor

DATA = Path(__file__).parent / "data" / "memory" / "dialogs.txt"


@dataclass(frozen=True)
class Dialog:
    """Some turns, and for each fact that is in them the words it must hold."""

    number: int
    turns: tuple[Turn, ...]
    labels: tuple[tuple[str, ...], ...]

    @property
    def held_out(self) -> bool:
        return self.number % 2 == 0


def load(path: Path = DATA) -> list[Dialog]:
    """All dialogs, numbered from 1. Lines: `u:` and `a:` are user and assistant, `>` is a label, words parted by commas and a space."""
    dialogs = []
    for number, block in enumerate(path.read_text("utf-8").strip().split("\n\n"), 1):
        said: list[tuple[str, str]] = []
        labels = []
        for line in block.splitlines():
            head, _, text = line.partition(" ")
            if head == ">":
                labels.append(tuple(text.split(", ")))
            elif said and said[-1][0] == head:
                said[-1] = (head, f"{said[-1][1]}\n{text}")
            else:
                said.append((head, text))
        turns = tuple(Turn(f"m{n}", "user" if head == "u:" else "assistant", text) for n, (head, text) in enumerate(said))
        dialogs.append(Dialog(number, turns, tuple(labels)))
    return dialogs


def right(candidate: Candidate, dialog: Dialog) -> tuple[str, ...] | None:
    """The label that the candidate meets, if its quote is the user's and its numbers are in it."""
    said = "\n".join(turn.text for turn in dialog.turns if turn.kind == "user")
    if not candidate.quote or candidate.quote not in said:
        return None
    if any(number not in candidate.quote for number in re.findall(r"\d+", candidate.content)):
        return None
    return next((label for label in dialog.labels if all(word.lower() in candidate.content.lower() for word in label)), None)


def main() -> int:
    dialogs = load()
    result: dict[str, Any] = {}
    failures = []
    extractor = RulesExtractor()
    for half in (False, True):
        mine = [dialog for dialog in dialogs if dialog.held_out is half]
        proposed = good = labelled = met = 0
        for dialog in mine:
            candidates = extractor.extract(dialog.turns, ()).candidates
            labels = [right(candidate, dialog) for candidate in candidates]
            found = {label for label in labels if label is not None}
            proposed, good = proposed + len(candidates), good + sum(label is not None for label in labels)
            labelled, met = labelled + len(dialog.labels), met + len(found)
            wrong = [c.content for c, label in zip(candidates, labels, strict=True) if label is None]
            missed = [", ".join(label) for label in dialog.labels if label not in found]
            if wrong or missed:
                failures.append({"dialog": dialog.number, "held_out": half, "wrong": wrong, "missed": missed})
        result["held_out" if half else "development"] = {
            "dialogs": len(mine),
            "without_facts": sum(not dialog.labels for dialog in mine),
            "proposed": proposed,
            "labelled": labelled,
            "precision": round(good / proposed, 4) if proposed else 0.0,
            "recall": round(met / labelled, 4) if labelled else 0.0,
        }
    result["failures"] = failures
    print(json.dumps(result, ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
