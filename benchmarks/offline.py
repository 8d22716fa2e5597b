"""How well documents answer questions without a model: invented corpora of sixteen kinds, and HotpotQA where its file is given.

    python benchmarks/offline.py [--held-out] [--hotpot FILE] [--misses]

Each corpus of `data/offline` goes through the stages `researcher`, `synthesizer` and `writer` with all its questions. A question counts as
answered when a gold sentence is among the first three that are given for it (of a chain, the sentence at its end); one that cannot be
answered should be left open. A planted disagreement counts when both its sentences stand in one that is reported; every other one that is
reported and not among the arguable ones is false. Beside it, in the same run, the sentences of the same files by plain BM25 and by plain
embeddings. The held-out corpora are for measuring only. HotpotQA: the share of evidence sentences within 10 and 20 % of the words.

Prints one JSON object.
"""

from __future__ import annotations

import argparse
import html
import json
import lzma
import math
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.extract.selection import SourceText, select
from holdfast.offline.researcher import Researcher
from holdfast.offline.synthesizer import Synthesizer
from holdfast.offline.writer import Writer
from holdfast.search.embedding import load_embedder
from holdfast.session.output import StageOutput, parse_output
from holdfast.session.state import Session
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms
from holdfast.workflow.agent import StageAgent, StageRequest, as_result
from holdfast.workflow.definition import Stage
from holdfast.workflow.run_settings import file_sessions
from holdfast.workflow.stage_request import SessionRaw

DATA = Path(__file__).parent / "data" / "offline"
FIRST = 3
MEANT = 0.35  # cosine below which plain embeddings count as having found nothing
Shown = tuple[str, str]
"""A sentence that is given as an answer: its file, and its words."""


@dataclass(frozen=True)
class Told:
    """What a method gives for a corpus: for each question its sentences, the best first; the disagreements; the words of the report."""

    answers: Mapping[str, Sequence[Shown]]
    disagreements: Sequence[Sequence[Shown]] = ()
    words: int = 0


# What counts


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", html.unescape(re.sub(r"<[^>]+>", " ", text)).lower())


def same(gold: Mapping[str, str], shown: Shown) -> bool:
    """Whether a shown sentence is the gold one: of the same file, all of its words or all but few, in at most three times as many."""
    if Path(gold["file"]).name != Path(shown[0].split("#")[0]).name:
        return False
    wanted, there = Counter(words_of(gold["sentence"])), Counter(words_of(shown[1]))
    common = (wanted & there).total()
    whole = common >= 0.9 * wanted.total() and there.total() <= 3 * wanted.total() + 30
    return whole or (there.total() >= 2 and common >= 0.95 * there.total())


def answered(question: Mapping[str, Any], shown: Sequence[Shown], *, strict: bool = True) -> bool:
    """Whether a gold sentence is among the first; of a chain the one at its end (unless not `strict`)."""
    gold = question["gold"][-1:] if strict and question["kind"] == "hop" else question["gold"]
    return any(same(one, sentence) for one in gold for sentence in shown[:FIRST])


def pair(entry: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    first, second = ({"file": entry[f"file_{side}"], "sentence": entry[f"sentence_{side}"]} for side in "ab")
    return first, second


def told_in(entry: Mapping[str, str], reported: Sequence[Shown]) -> bool:
    return all(any(same(side, shown) for shown in reported) for side in pair(entry))


def judged(corpus: Path, told: Told, misses: list[str]) -> dict[str, Any]:
    """The figures of one corpus."""
    questions = json.loads((corpus / "questions.json").read_text(encoding="utf-8"))
    planted = json.loads((corpus / "disagreements.json").read_text(encoding="utf-8"))
    asked = [one for one in questions if one["gold"]]
    good = [one for one in asked if answered(one, told.answers.get(one["id"], ()))]
    found = [one for one in planted["disagreements"] if any(told_in(one, reported) for reported in told.disagreements)]
    passed = [*planted["disagreements"], *planted.get("neutral", [])]
    false = [reported for reported in told.disagreements if not any(told_in(one, reported) for one in passed)]
    misses += [f"{one['id']} ({one['kind']}) {one['question']}" for one in asked if one not in good]
    misses += [f"{one['id']} (answered) {one['question']}" for one in questions if not one["gold"] and told.answers.get(one["id"])]
    misses += [f"{corpus.name} not seen: {one['about']}" for one in planted["disagreements"] if one not in found]
    misses += [f"{corpus.name} false: {[text for _, text in reported]}" for reported in false]
    return {
        "answerable": len(asked),
        "answered": len(good),
        "any_of_chain": sum(answered(one, told.answers.get(one["id"], ()), strict=False) for one in asked),
        "by_kind": {kind: sum(one["kind"] == kind for one in good) for kind in dict.fromkeys(one["kind"] for one in asked)},
        "unanswerable": len(questions) - len(asked),
        "left_open": sum(not told.answers.get(one["id"]) for one in questions if not one["gold"]),
        "open_though_answerable": sum(not told.answers.get(one["id"]) for one in asked),
        "planted": len(planted["disagreements"]),
        "seen": len(found),
        "false": len(false),
        "words_of_first": sum(len(text.split()) for one in asked for _, text in list(told.answers.get(one["id"], ()))[:FIRST]),
        "words_of_report": told.words,
    }


# The stages


def by_stages(corpus: Path) -> Told:
    """The corpus through researcher, synthesizer and writer."""
    questions = json.loads((corpus / "questions.json").read_text(encoding="utf-8"))
    listed = [{"id": one["id"], "text": one["question"]} for one in questions]
    outputs: list[StageOutput] = [StageOutput("plan", "the questions", data={"questions": listed})]
    task = "Answer the questions."
    with tempfile.TemporaryDirectory() as name:
        store = file_sessions(Path(name) / "sessions")
        store.create(Session("s1", task=task))
        raw = SessionRaw(store, "s1")
        agents: dict[str, StageAgent] = {"researcher": Researcher(), "synthesizer": Synthesizer(), "writer": Writer()}
        for stage, agent in agents.items():
            settings = {"sources": {"folder": str(corpus / "documents")}} if stage == "researcher" else {}
            request = StageRequest(
                session_id="s1",
                stage=Stage(stage, settings=settings),
                task=task,
                system_prompt="",
                prompt=task,
                given=tuple(outputs),
                raw=raw,
                folder=Path(name),
            )
            outputs.append(parse_output(as_result(agent.run(request)).output, stage=stage))
    data = outputs[2].data
    left = set(data["unanswered"])
    given = {
        group["question"]: [] if group["question"] in left else [(one["cited"][0]["source"], one["fact"]) for one in group["findings"]]
        for group in data["groups"]
    }
    disputes = [[(one["source"], one["fact"]) for one in entry["statements"]] for entry in data["disagreements"]]
    return Told(given, disputes, len(outputs[3].data["report"].split()))


# The baselines: the lines and sentences of the files as they are, without tags


def sentences(corpus: Path) -> list[Shown]:
    found: list[Shown] = []
    for path in sorted((corpus / "documents").iterdir()):
        text = path.read_text(encoding="utf-8")
        text = html.unescape(re.sub(r"<[^>]+>", " ", text)) if path.suffix == ".html" else text
        found += [(path.name, unit.text) for unit in split_sentences(text) if unit.kind != "heading" and words_of(unit.text)]
    return found


def bm25(texts: Sequence[str]) -> Callable[[str], list[float]]:
    """The score of each text for a question: k1 1.2, b .75, stems without stop words."""
    bags = [Counter(terms(text)) for text in texts]
    df = Counter(term for bag in bags for term in bag)
    average = sum(bag.total() for bag in bags) / max(len(bags), 1)

    def scores(question: str) -> list[float]:
        asked = {term: math.log(1 + (len(bags) - df[term] + 0.5) / (df[term] + 0.5)) for term in set(terms(question)) if df[term]}
        norms = [1.2 * (0.25 + 0.75 * bag.total() / average) for bag in bags]
        return [
            sum(weight * bag[term] * 2.2 / (bag[term] + norm) for term, weight in asked.items() if bag[term])
            for bag, norm in zip(bags, norms, strict=True)
        ]

    return scores


def cosine(texts: Sequence[str]) -> Callable[[str], list[float]]:
    """The cosine of each text with a question, less what counts as nothing."""
    embedder = load_embedder("minilm")
    assert embedder is not None
    vectors = [one.vector for one in embedder.embed(texts)]

    def scores(question: str) -> list[float]:
        asked = embedder.embed([question], question=True)[0].vector
        return [max(float(vector @ asked) - MEANT, 0.0) for vector in vectors]

    return scores


def by_scores(make: Callable[[Sequence[str]], Callable[[str], list[float]]]) -> Callable[[Path], Told]:
    def told(corpus: Path) -> Told:
        shown = sentences(corpus)
        scores = make([text for _, text in shown])
        given: dict[str, list[Shown]] = {}
        for one in json.loads((corpus / "questions.json").read_text(encoding="utf-8")):
            rated = sorted(zip(scores(one["question"]), range(len(shown)), strict=True), key=lambda found: (-found[0], found[1]))
            given[one["id"]] = [shown[n] for score, n in rated[:FIRST] if score > 0]
        return Told(given)

    return told


METHODS: dict[str, Callable[[Path], Told]] = {"stages": by_stages, "bm25": by_scores(bm25), "embeddings": by_scores(cosine)}


def half(names: Sequence[str], *, show: bool) -> dict[str, Any]:
    """All corpora of one half by all methods, and their sums."""
    made: dict[str, Any] = {}
    for method, tell in METHODS.items():
        misses: list[str] = []
        started = time.perf_counter()
        corpora = {name: judged(DATA / name, tell(DATA / name), misses) for name in names}
        seconds = time.perf_counter() - started
        total = {key: sum(one[key] for one in corpora.values()) for key in next(iter(corpora.values())) if key != "by_kind"}
        made[method] = {"share_answered": round(total["answered"] / total["answerable"], 3), **total, "seconds": round(seconds, 1)}
        if method == "stages":
            made[method]["corpora"] = corpora
            if show:
                made[method]["misses"] = misses
    return made


# HotpotQA


def hotpot(path: Path) -> dict[str, Any]:
    """The share of evidence sentences that are selected within a tenth and a fifth of the words, by all methods."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    found: dict[str, list[float]] = {}
    for share in (0.1, 0.2):
        hits: Counter[str] = Counter()
        total = 0
        for case in cases:
            gold = {(one["title"], one["sentence"].strip()) for one in case["evidence"]}
            total += len(gold)
            budget = int(share * sum(len(text.split()) for document in case["documents"] for text in document["sentences"]))
            hits["selection"] += len(gold & _selected(case, budget))
            for name, make in (("bm25", bm25), ("embeddings", cosine)):
                hits[name] += len(gold & _ranked(case, make, budget))
        for name, count in hits.items():
            found.setdefault(name, []).append(round(100 * count / total, 1))
    return {"questions": len(cases), **found}


def _selected(case: Mapping[str, Any], budget: int) -> set[tuple[str, str]]:
    texts, places = [], {}
    for document in case["documents"]:
        text = f"# {document['title']}\n\n"
        for sentence in document["sentences"]:
            places[document["title"], sentence.strip()] = (len(text), len(text) + len(sentence.strip()))
            text += sentence.strip() + " "
        texts.append(SourceText(document["title"], text))
    passages = select(texts, question=case["question"], budget=budget, count=lambda text: len(text.split())).passages
    found = set()
    for (title, sentence), (start, end) in places.items():
        covered = sum(max(0, min(end, one.end) - max(start, one.start)) for one in passages if one.source == title)
        if covered >= 0.8 * max(end - start, 1):
            found.add((title, sentence))
    return found


def _ranked(case: Mapping[str, Any], make: Callable[[Sequence[str]], Callable[[str], list[float]]], budget: int) -> set[tuple[str, str]]:
    listed = [(document["title"], text.strip()) for document in case["documents"] for text in document["sentences"]]
    scores = make([text for _, text in listed])(case["question"])
    found = set()
    for _, (title, text) in sorted(zip(scores, listed, strict=True), key=lambda one: -one[0]):
        if len(text.split()) <= budget:
            budget -= len(text.split())
            found.add((title, text))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="measure the held-out half too")
    parser.add_argument("--hotpot", type=Path, help="hotpot.jsonl.xz")
    parser.add_argument("--misses", action="store_true", help="list what was not found in the development half")
    chosen = parser.parse_args()
    split = json.loads((DATA / "SPLIT.json").read_text(encoding="utf-8"))
    result: dict[str, Any] = {"benchmark": "offline", "development": half(split["development"], show=chosen.misses)}
    if chosen.held_out:
        result["held_out"] = half(split["held_out"], show=False)
    if chosen.hotpot is not None:
        result["hotpot"] = hotpot(chosen.hotpot)
    print(json.dumps(result, ensure_ascii=False, indent=1))


if __name__ == "__main__":
    main()
