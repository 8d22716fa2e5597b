"""Accounts of what was used and what it cost, and limits that stop the work with everything kept.

Every call is charged once, to the session, run, sub-agent and stage it was made for, the model that answered, and the purpose: `answer`,
`summary` and `memory` stay apart. `check` is asked before a call starts; charging never raises, so no answer is lost to a limit.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final, Literal

from holdfast.errors import ConfigError, Damaged, InputError, LimitExceeded
from holdfast.events import Bus, Event
from holdfast.events import bus as process_bus
from holdfast.tokens.usage import Price, Usage, amount

ANSWER: Final = "answer"

Dimension = Literal["session", "run", "subagent", "stage", "model", "purpose"]
_SCHEMA = 1


@dataclass(frozen=True, kw_only=True)
class PriceUnknown(Event):
    """A cost limit is set, and a model without a price was used: its calls cannot count towards the limit."""

    component: ClassVar[str] = "Accounts"
    level: ClassVar[int] = logging.WARNING
    text: ClassVar[str] = "No price is known for model {model}: it does not count towards the cost limit. Set `pricing` for it in `models`."

    model: str


@dataclass(frozen=True)
class Limits:
    """How much may be used: tokens (input and output) and money. None is no limit."""

    tokens: int | None = None
    cost: Decimal | None = None

    @classmethod
    def read(cls, limits: object, *, key: str = "limits") -> Limits:
        """From `limits: {tokens, cost}`. Raises ConfigError for what is no limit."""
        if limits is None:
            return cls()
        if isinstance(limits, Limits):
            return limits
        if not isinstance(limits, Mapping):
            raise ConfigError(f"{limits!r} is no set of limits.", key=key, hint="Give `tokens`, `cost` or both.")
        unknown = [name for name in limits if name not in ("tokens", "cost")]
        if unknown:
            raise ConfigError(f"there is no limit called {unknown[0]!r}.", key=key, hint="There are `tokens` and `cost`.")
        tokens = limits.get("tokens")
        if tokens is not None and (isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0):
            raise ConfigError(f"{tokens!r} is no number of tokens.", key=f"{key}.tokens", hint="Give a whole number, or null for no limit.")
        return cls(tokens, amount(limits.get("cost"), key=f"{key}.cost"))


@dataclass(frozen=True)
class Entry:
    """Where a call is charged."""

    session: str | None
    run: str | None
    subagent: str | None
    stage: str | None
    model: str
    purpose: str


@dataclass(frozen=True)
class Tally:
    """The sum of some calls. `cost` holds the calls whose price is known; `total_cost` is None while there are others."""

    calls: int = 0
    usage: Usage = field(default_factory=Usage)
    cost: Decimal = Decimal(0)
    unpriced_calls: int = 0
    estimated_calls: int = 0

    @property
    def tokens(self) -> int:
        return self.usage.total

    @property
    def total_cost(self) -> Decimal | None:
        """What it all cost, or None when a part has no known price (and when nothing was charged, 0)."""
        return None if self.unpriced_calls else self.cost

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.calls + other.calls,
            self.usage + other.usage,
            self.cost + other.cost,
            self.unpriced_calls + other.unpriced_calls,
            self.estimated_calls + other.estimated_calls,
        )


@dataclass(frozen=True)
class Charge:
    """What was charged for one call, and the limits that are used up by now (`run tokens`, `session cost`)."""

    entry: Entry
    usage: Usage
    cost: Decimal | None
    exhausted: tuple[str, ...] = ()


class Accounts:
    """All accounts of a process or session. Safe for many threads.

    `prices` maps a model's name to its `Price` or to the `pricing` mapping of the configuration; all in one currency.
    """

    def __init__(
        self,
        prices: Mapping[str, object] | None = None,
        *,
        run_limits: Limits | None = None,
        session_limits: Limits | None = None,
        bus: Bus | None = None,
    ) -> None:
        self._prices = {model: Price.read(pricing, model=model) for model, pricing in (prices or {}).items()}
        currencies = sorted({price.currency for price in self._prices.values() if price.input is not None or price.output is not None})
        if len(currencies) > 1:
            raise ConfigError(
                f"prices are given in {' and '.join(currencies)}: they cannot be added.",
                key="models[].pricing.currency",
                hint="Use one currency.",
            )
        self.currency = currencies[0] if currencies else "USD"
        self._limits = {"run": run_limits or Limits(), "session": session_limits or Limits()}
        self._bus = bus or process_bus
        self._unpriced: set[str] = set()
        self._entries: dict[Entry, Tally] = {}
        self._totals: dict[tuple[str, str | None, str | None], Tally] = {}
        self._lock = threading.Lock()

    def charge(
        self,
        usage: object,
        *,
        model: str,
        purpose: str = ANSWER,
        session: str | None = None,
        run: str | None = None,
        subagent: str | None = None,
        stage: str | None = None,
        estimate: Usage | None = None,
    ) -> Charge:
        """Note one call. `usage` is what the provider reported; where that says nothing, `estimate` is charged and marked so."""
        read = Usage.read(usage)
        if read is None:
            read = replace(estimate or Usage(), estimated=True)
        entry = Entry(session, run, subagent, stage, model, purpose)
        cost = self._prices.get(model, Price()).cost(read)
        tally = Tally(1, read, cost or Decimal(0), int(cost is None), int(read.estimated))
        with self._lock:
            self._add(entry, tally)
            used_up = tuple(f"{account} {kind}" for account, kind, _, _ in self._used_up(session, run))
        if cost is None:
            self._say_unpriced(model)
        return Charge(entry, read, cost, used_up)

    def check(self, *, session: str | None = None, run: str | None = None, next_tokens: int = 0) -> None:
        """Raise LimitExceeded when the run or the session has nothing left for another call, or less than its `next_tokens`."""
        with self._lock:
            over = self._used_up(session, run, next_tokens)
        for account, kind, used, allowed in over:
            raise self._exceeded(account, kind, used, allowed, name=run if account == "run" else session, ahead=next_tokens)

    def _exceeded(
        self, account: str, kind: str, used: int | Decimal, allowed: int | Decimal, *, name: str | None, ahead: int
    ) -> LimitExceeded:
        unit = "tokens" if kind == "tokens" else self.currency
        more = f", and the next call takes about {ahead:,} more" if used < allowed else ""
        who = f"the {account} {name}" if name else f"the {account}"
        return LimitExceeded(
            f"{who} has used {used:,} of {allowed:,} {unit}{more}. Everything done so far is kept.",
            account=account,
            kind=kind,
            used=float(used),
            allowed=float(allowed),
        )

    def total(self, **where: str | None) -> Tally:
        """The sum of all calls, or of those charged to what is named: `total(run="r1", purpose="summary")`."""
        _known(where)
        with self._lock:
            entries = list(self._entries.items())
        tallies = [tally for entry, tally in entries if all(getattr(entry, name) == value for name, value in where.items())]
        return sum(tallies, Tally())

    def by(self, dimension: Dimension, **where: str | None) -> dict[str | None, Tally]:
        """Usage and cost by group: for each model, run, sub-agent, stage, purpose or session, dearest in tokens first."""
        _known({dimension: None, **where})
        with self._lock:
            entries = list(self._entries.items())
        sums: dict[str | None, Tally] = {}
        for entry, tally in entries:
            if all(getattr(entry, name) == value for name, value in where.items()):
                key = getattr(entry, dimension)
                sums[key] = sums.get(key, Tally()) + tally
        return dict(sorted(sums.items(), key=lambda item: -item[1].tokens))

    def snapshot(self) -> dict[str, Any]:
        """Plain JSON, to be kept. Money is written as text, so nothing is lost."""
        with self._lock:
            entries = list(self._entries.items())
        return {"schema": _SCHEMA, "currency": self.currency, "entries": [_written(entry, tally) for entry, tally in entries]}

    def restore(self, snapshot: object) -> None:
        """Replace everything by a snapshot. Raises Damaged, and changes nothing, when it cannot be read whole: money is not guessed."""
        if not isinstance(snapshot, Mapping) or snapshot.get("schema") != _SCHEMA or not isinstance(snapshot.get("entries"), list):
            raise Damaged(f"these are no accounts of schema {_SCHEMA}.", hint="Start new ones, or restore them from a backup.")
        read = [_read(number, entry) for number, entry in enumerate(snapshot["entries"])]
        if read and snapshot.get("currency", self.currency) != self.currency and any(tally.cost for _, tally in read):
            raise Damaged(
                f"the accounts are in {snapshot.get('currency')}, the prices in {self.currency}.", hint="Give the prices in that currency."
            )
        with self._lock:
            self._entries, self._totals = {}, {}
            for entry, tally in read:
                self._add(entry, tally)

    def _add(self, entry: Entry, tally: Tally) -> None:
        self._entries[entry] = self._entries.get(entry, Tally()) + tally
        for account in {("run", entry.session, entry.run), ("session", entry.session, None)}:
            self._totals[account] = self._totals.get(account, Tally()) + tally

    def _used_up(self, session: str | None, run: str | None, ahead: int = 0) -> list[tuple[str, str, int | Decimal, int | Decimal]]:
        found: list[tuple[str, str, int | Decimal, int | Decimal]] = []
        for account, tally in (
            ("run", self._totals.get(("run", session, run), Tally())),
            ("session", self._totals.get(("session", session, None), Tally())),
        ):
            limits = self._limits[account]
            if limits.tokens is not None and (tally.tokens >= limits.tokens or tally.tokens + ahead > limits.tokens):
                found.append((account, "tokens", tally.tokens, limits.tokens))
            if limits.cost is not None and tally.cost >= limits.cost:
                found.append((account, "cost", tally.cost, limits.cost))
        return found

    def _say_unpriced(self, model: str) -> None:
        if all(limits.cost is None for limits in self._limits.values()):
            return
        with self._lock:
            new = model not in self._unpriced
            self._unpriced.add(model)
        if new:
            self._bus.emit(PriceUnknown(model=model))


_DIMENSIONS = tuple(part.name for part in fields(Entry))
_COUNTS = ("input_tokens", "output_tokens", "cache_read", "cache_write", "reasoning")


def _known(where: Mapping[str, object]) -> None:
    unknown = [name for name in where if name not in _DIMENSIONS]
    if unknown:
        raise InputError(f"accounts are not kept by {unknown[0]!r}.", hint=f"They are kept by {', '.join(_DIMENSIONS)}.")


def _written(entry: Entry, tally: Tally) -> dict[str, Any]:
    where = {name: getattr(entry, name) for name in _DIMENSIONS}
    counts = {name: getattr(tally.usage, name) for name in _COUNTS}
    calls = {"calls": tally.calls, "unpriced_calls": tally.unpriced_calls, "estimated_calls": tally.estimated_calls}
    return {**where, **counts, **calls, "cost": str(tally.cost)}


def _read(number: int, entry: object) -> tuple[Entry, Tally]:
    try:
        return _parsed(entry)
    except (KeyError, TypeError, ValueError, InvalidOperation) as error:
        raise Damaged(f"entry {number} of the accounts cannot be read: {error}.", hint="Restore them from a backup.") from error


def _parsed(entry: object) -> tuple[Entry, Tally]:
    if not isinstance(entry, Mapping):
        raise TypeError("it is no object")
    where = {name: entry[name] for name in _DIMENSIONS}
    for name, value in where.items():
        if not isinstance(value, str) and (value is not None or name in ("model", "purpose")):
            raise TypeError(f"{name} is {value!r}")
    usage = Usage(**{name: _count(entry, name) for name in _COUNTS}, estimated=_count(entry, "estimated_calls") > 0)
    cost = Decimal(entry["cost"])
    if not isinstance(entry["cost"], str) or not cost.is_finite() or cost < 0:
        raise ValueError(f"cost is {entry['cost']!r}")
    return Entry(**where), Tally(_count(entry, "calls"), usage, cost, _count(entry, "unpriced_calls"), _count(entry, "estimated_calls"))


def _count(entry: Mapping[str, Any], name: str) -> int:
    value = entry[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}")
    return value
