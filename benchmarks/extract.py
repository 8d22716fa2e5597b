"""How often a selection within a fifth of the tokens holds the sentence that answers the question.

Fifty texts of the project's own, each with one question and one answer sentence among others that share the question's
words. Beside the selection of `holdfast.extract` stand two baselines in the same run: the first sentences of the text, and
the sentences ranked by plain BM25. Texts with an odd number are for development, the others are held out.

Prints one JSON object: shares of texts answered, by half and language, and how fast texts were split and selected from.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from holdfast.extract.selection import SourceText, select
from holdfast.text.sentences import split_sentences
from holdfast.text.words import terms
from holdfast.tokens.approximate import estimate

DATA = Path(__file__).parent / "data" / "extract"
SHARE = 0.2


@dataclass(frozen=True)
class Planted:
    """A text, a question about it, and the sentence of it that answers the question."""

    name: str
    language: str
    question: str
    answer: str
    text: str

    @property
    def held_out(self) -> bool:
        return int(self.name.split("-")[0]) % 2 == 0


def load(folder: Path = DATA) -> list[Planted]:
    """All planted texts, in the order of their numbers."""
    planted = []
    for path in sorted(folder.glob("*.md")):
        head, text = path.read_text(encoding="utf-8").split("\n---\n", 1)
        fields = dict(line.split(": ", 1) for line in head.splitlines())
        planted.append(Planted(path.stem, fields["language"], fields["question"], fields["answer"], text))
    return planted


def count(text: str) -> int:
    return math.ceil(estimate(text))


Method = Callable[[Planted, int], list[str]]


def ours(planted: Planted, budget: int) -> list[str]:
    extract = select([SourceText(planted.name, planted.text)], question=planted.question, budget=budget, count=count)
    return [passage.text for passage in extract.passages]


def lead(planted: Planted, budget: int) -> list[str]:
    """The first sentences, as many as fit."""
    chosen: list[str] = []
    for unit in split_sentences(planted.text):
        if unit.kind != "heading":
            if count("\n".join([*chosen, unit.text])) > budget:
                break
            chosen.append(unit.text)
    return chosen


def plain_bm25(planted: Planted, budget: int) -> list[str]:
    """Sentences by BM25 (k1 1.2, b .75) over stems without stop words, the best first, as long as they fit."""
    sentences = [unit.text for unit in split_sentences(planted.text) if unit.kind != "heading"]
    bags = [Counter(terms(sentence)) for sentence in sentences]
    df = Counter(term for bag in bags for term in bag)
    average = sum(map(len, bags)) / len(bags)
    asked = set(terms(planted.question))

    def score(bag: Counter[str]) -> float:
        norm = 1.2 * (0.25 + 0.75 * bag.total() / average)
        return sum(math.log(1 + (len(bags) - df[t] + 0.5) / (df[t] + 0.5)) * bag[t] * 2.2 / (bag[t] + norm) for t in asked if t in bag)

    chosen: list[str] = []
    for n in sorted(range(len(sentences)), key=lambda n: (-score(bags[n]), n)):
        if count("\n".join([*chosen, sentences[n]])) <= budget:
            chosen.append(sentences[n])
    return chosen


METHODS: dict[str, Method] = {"ours": ours, "lead": lead, "plain_bm25": plain_bm25}


def answered(method: Method, planted: Planted) -> bool:
    """Whether the answer is in what the method selects, all of it within the budget and word for word."""
    budget = int(count(planted.text) * SHARE)
    chosen = method(planted, budget)
    assert count("\n".join(chosen)) <= budget, planted.name
    assert all(sentence in planted.text for sentence in chosen), planted.name
    return any(planted.answer in sentence for sentence in chosen)


def shares(texts: list[Planted]) -> dict[str, object]:
    made: dict[str, object] = {"texts": len(texts)}
    for name, method in METHODS.items():
        made[name] = round(sum(answered(method, planted) for planted in texts) / len(texts), 3)
    return made


def megabytes_per_second(work: Callable[[str], object], text: str) -> float:
    work(text)
    started = time.perf_counter()
    work(text)
    return round(len(text.encode()) / 1e6 / (time.perf_counter() - started), 2)


def speed(texts: list[Planted]) -> dict[str, float]:
    """Megabytes of UTF-8 a second, on the English texts in a row (about a quarter of a megabyte)."""
    english = "\n\n".join(planted.text for planted in texts if planted.language == "en") * 5
    return {
        "split_mb_s": megabytes_per_second(split_sentences, english),
        "terms_mb_s": megabytes_per_second(terms, english),
        "select_question_mb_s": megabytes_per_second(
            lambda text: select([SourceText("all", text)], question="Why was the lighthouse switched off?", budget=2000, count=count),
            english,
        ),
        "select_gist_mb_s": megabytes_per_second(lambda text: select([SourceText("all", text)], budget=2000, count=count), english),
    }


def main() -> None:
    texts = load()
    halves = {"development": [p for p in texts if not p.held_out], "held_out": [p for p in texts if p.held_out]}
    result: dict[str, object] = {
        "benchmark": "extract",
        "share_of_tokens": SHARE,
        "all": shares(texts),
        **{name: shares(half) for name, half in halves.items()},
        "by_language": {language: shares([p for p in texts if p.language == language]) for language in ("en", "zh", "ja")},
        "missed": {
            "development": [p.name for p in halves["development"] if not answered(ours, p)],
            "held_out": len([p for p in halves["held_out"] if not answered(ours, p)]),
        },
        "speed": speed(texts),
    }
    sys.stdout.write(json.dumps(result, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
