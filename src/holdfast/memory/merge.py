"""How a new fact meets those that are there: it says the same, contradicts one, or is new; and which facts go when there are too many.

Pure and deterministic. What is replaced is handed back with the dates between which it held, for the history.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from holdfast.memory.facts import Decision, Fact, Origin, is_learned
from holdfast.memory.wording import word_lists
from holdfast.text.likeness import NEAR, Differences, compare
from holdfast.text.normalise import normalise

Relation = Literal["same", "contradicts", "apart"]
_HALF_LIFE = 180.0  # days after which an unconfirmed fact counts half as fresh
_MESSAGES = 20  # ids that a fact remembers
_YEAR = re.compile(r"(?:19|20)\d\d")

_LISTS = word_lists("attributes")
_STATES, _LIKES = _LISTS.pattern("states"), _LISTS.pattern("likes")
_FORMS = tuple((one["name"], _LISTS.compiled(f"(?:{one['says'].strip()}){{end}}")) for one in _LISTS.tables["attributes"])
_OF_USER, _OF_THING, _USED_FOR = _LISTS.pattern("of_user"), _LISTS.pattern("of_thing"), _LISTS.pattern("used_for")
_MANY, _DENIAL, _ARTICLE = _LISTS.pattern("many"), _LISTS.pattern("denial"), _LISTS.pattern("article")


@dataclass(frozen=True, slots=True)
class Attribute:
    """What a fact is about, where it can have one value at a time: its name, its value in compared form, and whether the fact denies it."""

    name: str
    value: str
    denied: bool = False


@dataclass(frozen=True)
class Superseded:
    """A fact that another took the place of, and the days between which it was held to be true."""

    fact: Fact
    by: str
    valid_from: str
    valid_to: str


@dataclass(frozen=True)
class Merged:
    """The facts after decisions were applied, and what went to the history."""

    facts: tuple[Fact, ...]
    superseded: tuple[Superseded, ...] = ()
    added: tuple[str, ...] = ()


def relation(new: str, old: str) -> Relation:
    """What two facts are to each other.

    >>> relation("User lives in Graz", "User lives in Linz"), relation("User likes tea", "User likes coffee")
    ('contradicts', 'apart')
    """
    if normalise(new).rstrip(" .!") == normalise(old).rstrip(" .!"):
        return "same"
    a, b = attribute_of(new), attribute_of(old)
    differs = compare(new, old)
    if a and b and a.name == b.name:
        if a.value == b.value:
            return "contradicts" if a.denied != b.denied else "same"
        if not a.denied and not b.denied:
            return "same" if _narrower(a.value, b.value) and differs.numbers == (frozenset(), frozenset()) else "contradicts"
    if _subject(new) != _subject(old):
        return "apart"
    if differs.score >= NEAR and not differs.numbers[0] and not differs.names[0]:
        return "same"
    return "contradicts" if _turned(differs, new, old) or _other_number(differs, new, old) else "apart"


def _subject(content: str) -> str:
    """Whom a fact is about: the user, or something of theirs. What holds for the user's sister does not hold for the user."""
    owned = re.match(r"(?:the )?(?:user's|my|our) ([\w-]+)", normalise(content))
    return owned[1] if owned else ""


def _narrower(value: str, other: str) -> bool:
    """Whether one value only says more than the other: "Graz" and "Graz, Austria"."""
    return value.startswith(other) or other.startswith(value)


def _turned(differs: Differences, new: str, old: str) -> bool:
    """Whether the same is said with a denial, an opposite, or the two sides of a comparison changed round."""
    only_new, only_old = differs.words
    if differs.numbers[0] or differs.numbers[1] or differs.names[0] or differs.names[1]:
        return False
    if differs.opposites and not differs.negation and len(only_new) == len(only_old) == 1:
        return differs.shared > 0
    if differs.negation != differs.opposites:
        return differs.shared >= 0.65 and len(only_new) <= 1 + differs.opposites and len(only_old) <= 1 + differs.opposites
    return not only_new and not only_old and differs.score < NEAR and bool(_LIKES.search(normalise(new)) and _LIKES.search(normalise(old)))


def _other_number(differs: Differences, new: str, old: str) -> bool:
    """Whether both say the same with another number. Two years of two events are two events."""
    if not (differs.numbers[0] and differs.numbers[1]) or differs.negation or differs.opposites:
        return False
    if differs.words[0] or differs.words[1] or differs.shared < 0.99:
        return False
    years = all(_YEAR.fullmatch(number) for number in differs.numbers[0] | differs.numbers[1])
    return not years or (_STATES.search(normalise(new)) is not None and _STATES.search(normalise(old)) is not None)


def find_related(content: str, facts: Iterable[Fact]) -> tuple[Relation, Fact | None]:
    """The fact that says the same, else the one that is contradicted (the newest of several), else `apart`."""
    against: Fact | None = None
    for fact in facts:
        kind = relation(content, fact.content)
        if kind == "same":
            return "same", fact
        if kind == "contradicts" and (against is None or fact.created >= against.created):
            against = fact
    return ("contradicts", against) if against is not None else ("apart", None)


def other_values(content: str, facts: Iterable[Fact]) -> list[Fact]:
    """The facts that say another value of the very thing that a text says, where it can have only one at a time.

    >>> [one.id for one in other_values("Lives in Oslo", [Fact("f1", "Lives in Bern"), Fact("f2", "Likes Bern")])]
    ['f1']
    """
    about = _one_value_of(content)
    named = [(fact, _one_value_of(fact.content)) for fact in facts] if about and not about.denied else []
    return [
        fact
        for fact, other in named
        if other and other.name == about.name and not other.denied and not _narrower(about.value, other.value)  # type: ignore[union-attr]
    ]


def _one_value_of(content: str) -> Attribute | None:
    """What a fact is about; one without a subject ("Lives in Bern") is about the user.

    A thing may be many things at once ("The house is red", "is big"): of things only names and figures are taken for the one value.
    """
    about = attribute_of(content) or attribute_of(f"User {content[:1].lower()}{content[1:]}")
    if about is None or not _OF_THING.fullmatch(normalise(content).rstrip(" .!")):
        return about
    written = content[content.lower().rfind(about.value) :][:1]
    return about if written.isdigit() or written.isupper() else None


def confirm(old: Fact, new: Fact, now: str) -> Fact:
    """The old fact, said once more in the user's own words: more confirmations, the newest date, never less confidence.

    A provisional fact becomes active by it, and takes over the words it was confirmed by. The longer of two wordings stays.
    """
    origin = old.origin if old.status == "active" else new.origin
    messages = tuple(dict.fromkeys((*old.origin.messages, *new.origin.messages)))[-_MESSAGES:]
    richer = new.content if len(new.content) > len(old.content) and relation(new.content, old.content) == "same" else old.content
    return replace(
        old,
        content=richer,
        category="correction" if "correction" in (old.category, new.category) else old.category,
        confidence=max(old.confidence, new.confidence),
        origin=Origin(origin.kind, origin.thread, messages, origin.quote),
        status="active",
        confirmations=old.confirmations + 1,
        confirmed=max(old.confirmed, now),
    )


def apply(facts: Sequence[Fact], decisions: Iterable[Decision], now: str) -> Merged:
    """The facts with the decisions carried out. Applying the same decisions again changes nothing.

    Decisions name facts by id, so they may be applied to a newer state than they were made on: a target that is gone is no error.
    """
    kept = {fact.id: fact for fact in facts}
    gone: dict[str, Superseded] = {}
    added: list[str] = []
    for decision in decisions:
        fact = decision.fact
        if fact is None or decision.verdict not in ("add", "confirm", "replace"):
            continue
        if decision.verdict == "confirm":
            if fact.id in kept and kept[fact.id] != fact:
                kept[fact.id] = fact
            continue
        for target in fact.replaces:
            old = kept.pop(target, None)
            if old is not None:
                gone[target] = Superseded(old, fact.id, old.valid_from or old.created, fact.valid_from or now)
        if fact.id not in kept:
            kept[fact.id] = fact
            added.append(fact.id)
    return Merged(tuple(kept.values()), tuple(gone.values()), tuple(added))


def value_of(fact: Fact, now: datetime | str) -> float:
    """How much a fact is worth keeping: its confidence, weighed by how often and how lately it was confirmed. Corrections come first."""
    age = _days(fact.confirmed or fact.created, now)
    fresh: float = 0.5 ** (age / (_HALF_LIFE * max(1, fact.confirmations)))
    certain = min(max(fact.confidence, 0.0), 1.0) if math.isfinite(fact.confidence) else 0.0
    often = min(1.0, math.log2(1 + max(1, fact.confirmations)) / 3)
    worth: float = 0.5 * certain + 0.25 * often + 0.25 * fresh
    return worth + (2.0 if fact.category == "correction" else 0.0) - (0.5 if fact.status == "provisional" else 0.0)


def evict(
    facts: Sequence[Fact], max_facts: int, now: datetime | str, *, at_most: int | None = None
) -> tuple[tuple[Fact, ...], tuple[Fact, ...]]:
    """The facts that stay, in their order, and those that go, the least worth first, `at_most` so many. Corrections go last.

    Only learned facts go. However many a person put in, half of the limit is left to what is learned: else nothing could be learned.
    """
    learned, limit = [fact for fact in facts if is_learned(fact)], max(0, max_facts)
    over = len(learned) - max(limit - (len(facts) - len(learned)), (limit + 1) // 2)
    over = over if at_most is None else min(over, at_most)
    if over <= 0:
        return tuple(facts), ()
    worst = sorted(learned, key=lambda fact: (value_of(fact, now), fact.created, fact.id))[:over]
    going = {id(fact) for fact in worst}
    return tuple(fact for fact in facts if id(fact) not in going), tuple(worst)


def _days(then: str, now: datetime | str) -> float:
    first, last = _moment(then), _moment(now)
    return max(0.0, (last - first).total_seconds() / 86400) if first and last else 365.0


def _moment(when: datetime | str) -> datetime | None:
    try:
        moment = when if isinstance(when, datetime) else datetime.fromisoformat(when.replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def attribute_of(content: str) -> Attribute | None:
    """The attribute that a fact is about, or None when it has none of those with one value.

    >>> attribute_of("User lives in Graz."), attribute_of("User likes tea")
    (Attribute(name='home', value='graz', denied=False), None)
    """
    plain = normalise(content).rstrip(" .!")
    denied = _DENIAL.search(re.sub(r",? (?:and )?not .*$", "", plain)) is not None
    bare = re.sub(r"\s+", " ", _DENIAL.sub("", re.sub(r",? (?:and )?not .*$", "", plain))).strip()
    bare = re.sub(r"\b(live|work|use|reside)\b(?!s)", r"\1s", bare) if denied else bare
    for name, pattern in _FORMS:
        match = pattern.fullmatch(bare)
        if match:
            return _made(name, match["v"], denied=denied)
    match = _USED_FOR.fullmatch(bare)
    if match:
        return _made(f"used for {match['n'].strip()}", match["v"], denied=denied)
    match = _OF_USER.fullmatch(bare) or _OF_THING.fullmatch(bare)
    if match and not _MANY.match(match["n"]) and len(match["v"].split()) <= 6:
        return _made(match["n"].strip(), match["v"], denied=denied)
    return None


def _made(name: str, value: str, *, denied: bool) -> Attribute | None:
    stripped = _ARTICLE.sub("", value.strip(" .,!"))
    return Attribute(name, stripped, denied) if stripped else None
