"""What the gate lets through: poisoned inputs that must not become facts, and plain statements that must (M10).

The extractor is fully gullible: whatever a text says, it proposes as a fact with confidence 1.0 and its own words as the quote. Payloads
come by eight ways: typed or pasted by the user, in tool output, web pages, files, summaries and answers, and split over two turns, where
one extractor joins the halves and another proposes each. A poisoned case fails when any of its text becomes an active fact, or when the
rendered memory block is closed or opened by it, even if every proposal were stored. A benign statement is proposed word for word or in
the third person; it fails when it is not stored as an active fact.

Payloads and statements with an odd number within their family are for development, the others are held out. Failures of the
held-out part have been mended since: it tells of a step back, and no longer how the gate does on wordings it has never met.
Prints one JSON object.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from holdfast.memory.document import Document
from holdfast.memory.facts import Candidate, Decision, Fact, Proposal, Turn
from holdfast.memory.gate import judge
from holdfast.memory.rendering import render
from holdfast.memory.rules import third_person

DATA = Path(__file__).parent / "data" / "memory"
NOW = "2026-01-15T12:00:00Z"
_CHARACTER = re.compile(r"\\u\{([0-9a-f]+)\}")


@dataclass(frozen=True)
class Case:
    """A conversation and what the extractor makes of it."""

    family: str
    carrier: str
    held_out: bool
    turns: tuple[Turn, ...]
    candidates: tuple[Candidate, ...]
    payload: str


def load(name: str) -> Iterator[tuple[str, int, str]]:
    """The lines of a data file: family, number within it, text. A family that says so is wholly of one half."""
    family, number = "", 0
    for line in (DATA / name).read_text("utf-8").splitlines():
        if line.startswith("# "):
            family = line[2:]
            number = -1 if family.endswith(" (development)") else 0
        elif line.strip():
            number += 2 if family.endswith((" (development)", " (held out)")) else 1
            yield family, number, _CHARACTER.sub(lambda match: chr(int(match[1], 16)), line)


def poisoned() -> Iterator[Case]:
    """Every payload by several carriers: typed (but not false facts, which a user may state), two kinds of foreign text, and split."""
    carriers: dict[str, Any] = json.loads((DATA / "carriers.json").read_text("utf-8"))
    foreign = ("tool", "web", "file", "summary", "assistant")
    for index, (family, number, payload) in enumerate(load("poisoned.txt")):
        held_out = number % 2 == 0
        if family != "false":
            for wrapper in dict.fromkeys((carriers["direct"][0], carriers["direct"][index % len(carriers["direct"])])):
                typed = (Turn("u1", "user", wrapper.replace("{payload}", payload)),)
                yield Case(family, "direct", held_out, typed, (_proposed(payload, carriers, index),), payload)
        for step in (0, 2):
            kind = foreign[(index + step) % len(foreign)]
            asked, text = carriers[kind][(index // 5) % len(carriers[kind])]
            topic = carriers["topics"][(index + step) % len(carriers["topics"])]
            turns = (
                Turn("u1", "user", asked.replace("{topic}", topic)),
                Turn("t1", kind, text.replace("{topic}", topic).replace("{payload}", payload)),  # type: ignore[arg-type]  # one of the kinds above
                Turn("u2", "user", "Thanks, that helps."),
            )
            yield Case(family, kind, held_out, turns, (_proposed(payload, carriers, index + step),), payload)
        if family != "false" and len(payload.split()) >= 4:
            yield from _split(family, payload, held_out=held_out, user=index % 2 == 0)


def _proposed(payload: str, carriers: dict[str, Any], index: int) -> Candidate:
    wording = carriers["wordings"][index % len(carriers["wordings"])]
    lowered = payload[:1].lower() + payload[1:]
    return Candidate(wording.replace("{payload}", payload).replace("{lowered}", lowered), "preference", 1.0, payload)


def _split(family: str, payload: str, *, held_out: bool, user: bool) -> Iterator[Case]:
    words = payload.split()
    first, second = " ".join(words[: len(words) // 2]), " ".join(words[len(words) // 2 :])
    kind = "user" if user else "tool"
    turns = (Turn("s1", kind, first), Turn("a1", "assistant", "Noted."), Turn("s2", kind, second))  # type: ignore[arg-type]  # one of two kinds
    yield Case(family, "split", held_out, turns, (Candidate(payload, "context", 1.0, payload),), payload)
    halves = (Candidate(first, "context", 1.0, first), Candidate(second, "context", 1.0, second))
    yield Case(family, "halves", held_out, turns, halves, payload)


def benign() -> Iterator[Case]:
    """Every statement, alone or among other talk, proposed in its own words or in the third person."""
    around = ("{s}", "Hello! {s} What would you suggest?", "{s} Thanks.", "Let's talk about something else. {s}")
    for index, (family, number, statement) in enumerate(load("benign.txt")):
        text = around[index % len(around)].replace("{s}", statement)
        content = third_person(statement) if index % 2 else statement
        turns = (Turn("u1", "user", text), Turn("a1", "assistant", "Good to know."))
        yield Case(family, "typed", number % 2 == 0, turns, (Candidate(content, "context", 0.9, statement),), statement)


def decide(case: Case) -> list[Decision]:
    numbers = count(1)
    return judge(Proposal(case.candidates), case.turns, (), now=NOW, new_id=lambda: f"fact_{next(numbers)}", thread="t")


def broken_out(case: Case) -> bool:
    """Whether the block, with the proposals stored as they are, has more than its own two tags, or lines that are no part of it."""
    facts = tuple(Fact(f"f{n}", candidate.content, "context", 1.0, NOW) for n, candidate in enumerate(case.candidates))
    text = render(Document(facts=facts), 10_000, lambda piece: len(piece) // 4 + 1)
    tags = re.findall(r"<[^<>]*>|<\|", text)
    lines = [line for line in text.splitlines() if line.strip()]
    known = all(line in ("<memory>", "</memory>", "## Key Facts") or line.startswith("- ") for line in lines)
    return tags != ["<memory>", "</memory>"] or not known


def active(decisions: list[Decision]) -> bool:
    return any(d.fact is not None and d.verdict in ("add", "replace", "confirm") and d.fact.status == "active" for d in decisions)


def main() -> int:
    result: dict[str, Any] = {}
    failures: list[dict[str, Any]] = []
    for name, cases in (("poisoned", list(poisoned())), ("benign", list(benign()))):
        for half in (False, True):
            mine = [case for case in cases if case.held_out is half]
            figures: dict[str, Any] = {"cases": len(mine)}
            rules: Counter[str] = Counter()
            for case in mine:
                decisions = decide(case)
                rules.update(f"{d.verdict}: {d.rule}" for d in decisions)
                wrong = active(decisions) if name == "poisoned" else not active(decisions)
                if wrong or (name == "poisoned" and broken_out(case)):
                    figures["failed"] = figures.get("failed", 0) + wrong
                    failures.append(
                        {"set": name, "held_out": half, "family": case.family, "carrier": case.carrier, "text": case.payload}
                        | {"proposed": case.candidates[0].content, "rules": [f"{d.verdict}: {d.rule}" for d in decisions]}
                    )
            if name == "poisoned":
                figures["became_active"] = figures.pop("failed", 0)
                figures["broke_out"] = sum(broken_out(case) for case in mine)
                figures["by_carrier"] = dict(Counter(case.carrier for case in mine))
            else:
                failed = figures.pop("failed", 0)
                figures |= {"refused": failed, "refused_percent": round(100 * failed / len(mine), 2)}
            figures["rules"] = dict(rules.most_common())
            result[f"{name}_{'held_out' if half else 'development'}"] = figures
    result["failures"] = failures
    print(json.dumps(result, ensure_ascii=False, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
