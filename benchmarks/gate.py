"""How the gate of memory does on invented conversations in six languages (M10): typed, loosening, pasted, foreign, and secrets.

Two gullible extractors propose everything there is. `described` proposes the line's own description ("User: lives in Boulder") with the
words of the user, or of the text that tempts, as its quote; `sentences` proposes every sentence of every message word for word. What
came of the proposals is told per kind, language and half:

    active    a fact that counts, and stands in the prompt
    asked     waits for the user's yes or no
    held      waits for review
    refused   let go
    prompt    stands in the prompt, active or not

A typed line is active if the description, or any of its sentences, is. A loosening, pasted or foreign line is active if anything of it
is (of a pasted line: anything of the pasted part; `own` counts the lines whose own statement was learned). A secret is stored if its
characters are anywhere in what is kept: facts, quotes, what is held. Secrets are those of the corpus and generated ones.
`--data FOLDER` measures the texts of another folder; a kind that it has no file of is left out, and of pasted lines without `tempting`
each sentence of the pasted part tempts. A line may also have only `text` and `lang`: then all of it was pasted, and nothing of a text with
a secret may be kept. `--failures HALF` lists what went wrong. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.parts.secrets import generated_secrets

from holdfast.memory.document import Document
from holdfast.memory.facts import Candidate, Decision, Proposal, Turn
from holdfast.memory.gate import ASKED, judge
from holdfast.memory.history import apply_decisions
from holdfast.memory.rendering import compose
from holdfast.testing.clock import FakeClock
from holdfast.text.normalise import normalise
from holdfast.text.sentences import split_sentences

DATA = Path(__file__).parent / "data" / "gate"
KINDS = ("typed_everyday", "typed_loosening", "pasted", "foreign", "benign_near_secrets")
_SOURCES = {"agent": "tool"}


@dataclass(frozen=True)
class Outcome:
    """What became of one line by one extractor."""

    active: bool
    asked: bool
    held: bool
    prompt: bool
    own: bool = False
    why: tuple[str, ...] = ()


def lines(kind: str, data: Path) -> Iterator[dict[str, Any]]:
    path = data / f"{kind}.jsonl"
    for number, line in enumerate(path.read_text("utf-8").splitlines() if path.exists() else (), 1):
        told = json.loads(line)
        yield {"half": "development", **(told if "messages" in told else from_plain(kind, number, told))}


def from_plain(kind: str, number: int, told: dict[str, str]) -> dict[str, Any]:
    """A line that has only its text and its language: all of it is the fact, loosens or was pasted; which part is secret is not known."""
    text = told["text"]
    line = {"id": f"{kind}-{number}", "language": told["lang"], "messages": [{"role": "user", "text": text}]}
    said = {"typed_everyday": {"fact": text}, "typed_loosening": {"loosens": text}, "pasted": {"pasted": text}}
    return {**line, **said.get(kind, {})}


def turns_of(line: dict[str, Any]) -> list[Turn]:
    source = _SOURCES.get(line.get("source", ""), line.get("source", "tool"))
    kinds = {"user": "user", "assistant": "assistant", "tool": source}
    return [Turn(f"m{number}", kinds[one["role"]], one["text"]) for number, one in enumerate(line["messages"])]


def described(kind: str, line: dict[str, Any]) -> list[Candidate]:
    """The description of a line, quoting the words that it was taken from."""
    said = "\n".join(one["text"] for one in line["messages"] if one["role"] == "user")
    shown = "\n".join(one["text"] for one in line["messages"] if one["role"] == "tool")
    if kind in ("typed_everyday", "benign_near_secrets"):
        return [Candidate(f"User: {line['fact']}", "preference", 0.95, said)] if line.get("fact") else []
    if kind == "typed_loosening":
        return [Candidate(f"User wants: {said}", "preference", 0.95, said), Candidate(f"User: {line['loosens']}", "preference", 0.95, said)]
    quotes = (line["pasted"],) if kind == "pasted" else (shown, said, None)
    if "tempting" in line:
        tempting = [part.strip() for part in re.split(r"[;；]", line["tempting"]) if part.strip()]
    else:
        tempting = [unit.text for unit in split_sentences(line["pasted"]) if any(c.isalnum() for c in unit.text)]
    return [Candidate(f"User: {part.removeprefix('user ')}", "preference", 0.95, quote) for part in tempting for quote in quotes]


def sentences(kind: str, line: dict[str, Any]) -> list[Candidate]:
    """Every sentence of every message, word for word."""
    return [
        Candidate(unit.text, "context", 0.95, unit.text)
        for turn in turns_of(line)
        if turn.kind != "assistant"
        for unit in split_sentences(turn.text)
        if any(c.isalnum() for c in unit.text)
    ]


def judged(candidates: list[Candidate], turns: list[Turn]) -> tuple[list[Decision], set[str]]:
    """Each candidate by itself, as if memory were empty; and the ids of the facts that stand in the prompt."""
    decisions: list[Decision] = []
    shown: set[str] = set()
    numbers = count(1)
    now = FakeClock().now()
    for candidate in candidates:
        made = judge(Proposal((candidate,)), turns, (), now=now, new_id=lambda: f"fact_{next(numbers)}", thread="t")
        document = apply_decisions(Document(), made, now=now, thread="t").document
        shown.update(compose(document, 100_000, len).facts)
        decisions += made
    return decisions, shown


def outcome(kind: str, line: dict[str, Any], candidates: list[Candidate]) -> Outcome:
    turns = turns_of(line)
    decisions, shown = judged(candidates, turns)
    mine = [one for one in decisions if not _is_own(kind, line, one)]
    own = [one for one in decisions if _is_own(kind, line, one) and _is_active(one)]
    return Outcome(
        active=any(_is_active(one) for one in mine),
        asked=any(one.verdict == "quarantine" and one.rule in ASKED for one in mine),
        held=any(one.verdict == "quarantine" and one.rule not in ASKED for one in mine),
        prompt=any(one.fact is not None and one.fact.id in shown for one in mine),
        own=bool(own),
        why=tuple(f"{one.verdict}: {one.rule}: {one.fact.content if one.fact else one.candidate.content}" for one in mine),
    )


def _is_active(decision: Decision) -> bool:
    return decision.fact is not None and decision.verdict in ("add", "replace", "confirm") and decision.fact.status == "active"


def _is_own(kind: str, line: dict[str, Any], decision: Decision) -> bool:
    """Whether a proposal is what the user says beside a pasted or foreign text, and not of that text."""
    stored = decision.candidate.quote or decision.candidate.content
    if kind == "pasted":
        beside = line["messages"][-1]["text"].split(line["pasted"])
        return any(_bare(stored) in _bare(part) for part in beside) and decision.candidate.content == stored
    if kind == "foreign":
        own = [one["text"] for one in line["messages"] if one["role"] == "user"]
        return any(_bare(stored) in _bare(text) for text in own) and decision.candidate.content == stored
    return False


def _bare(text: str) -> str:
    return re.sub(r"\W+", "", normalise(text))


def is_stored(line: dict[str, Any], candidates: list[Candidate]) -> bool:
    """Whether anything that is kept holds the secret, in whatever spacing; where it is not told apart, whether anything is kept.

    A question of the assistant's ("What is the PIN?") holds no secret: that it waits for review counts for nothing.
    """
    asked = {one["text"] for one in line["messages"] if one["role"] == "assistant"}
    made = judged([one for one in candidates if one.content not in asked], turns_of(line))[0]
    facts = [asdict(one.fact) for one in made if one.fact is not None]
    return bool(facts) and _bare(line.get("secret", "")) in _bare(json.dumps(facts, ensure_ascii=False))


def proposals(line: dict[str, Any]) -> list[Candidate]:
    """What is proposed of a line with a secret: its messages, their sentences, and the plain claim."""
    said = [one["text"] for one in line["messages"]]
    plain = [Candidate(text, "context", 0.95, text) for text in said]
    claim = f"User: {line.get('group', 'secret')} {line.get('secret', said[-1])}"
    return [*plain, *sentences("secrets", line), Candidate(claim, "context", 0.95, said[-1])]


def figures(halves: tuple[str, ...], data: Path = DATA) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    result: dict[str, Any] = {}
    failures: list[dict[str, Any]] = []
    for kind in KINDS:
        for extractor in (described, sentences):
            for line in lines(kind, data):
                if line["half"] not in halves or not (candidates := extractor(kind, line)):
                    continue
                if kind == "benign_near_secrets" and not line.get("fact"):
                    continue
                found = outcome(kind, line, candidates)
                for language in ("all", line["language"]):
                    table = result.setdefault(line["half"], {}).setdefault(kind, {}).setdefault(extractor.__name__, {})
                    _counted(table.setdefault(language, {}), found, line)
                wanted = kind in ("typed_everyday", "benign_near_secrets")
                if (found.active or found.prompt) != wanted:
                    failures.append({"half": line["half"], "id": line["id"], "extractor": extractor.__name__, "why": found.why})
    generated = [{**line, "half": "generated"} for line in generated_secrets()]
    for line in [*lines("secrets", data), *generated]:
        if line["half"] not in (*halves, "generated"):
            continue
        stored = is_stored(line, proposals(line))
        for language in ("all", line["language"]):
            table = result.setdefault(line["half"], {}).setdefault("secrets", {}).setdefault(language, {"lines": 0, "stored": 0})
            table["lines"] += 1
            table["stored"] += stored
        if stored:
            failures.append({"half": line["half"], "id": line["id"], "text": line["messages"][-1]["text"], "secret": line.get("secret")})
    return result, failures


def _counted(table: dict[str, int], found: Outcome, line: dict[str, Any]) -> None:
    table["lines"] = table.get("lines", 0) + 1
    for name in ("active", "asked", "held", "prompt"):
        table[name] = table.get(name, 0) + getattr(found, name)
    table["refused"] = table.get("refused", 0) + (not (found.active or found.asked or found.held or found.prompt))
    if line.get("also_true"):
        table["with_own"] = table.get("with_own", 0) + 1
        table["own"] = table.get("own", 0) + found.own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--half", action="append", choices=["development", "held_out"], help="only this half; both by default")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the texts")
    parser.add_argument("--failures", choices=["development", "generated"], help="list what went wrong in this half")
    asked = parser.parse_args()
    result, failures = figures(tuple(asked.half or ("development", "held_out")), asked.data)
    if asked.failures:
        result["failures"] = [one for one in failures if one["half"] == asked.failures]
    print(json.dumps(result, ensure_ascii=False, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
