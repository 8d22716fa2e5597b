"""Prints what is in each column of a CSV file: how much is there, what is missing, the range or the most common words."""

from __future__ import annotations

import csv
import statistics
import sys
from collections import Counter
from pathlib import Path


def number(text: str) -> float | None:
    """The value as a number, or None."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def describe(name: str, values: list[str]) -> str:
    """One line about a column."""
    there = [value.strip() for value in values if value.strip()]
    numbers = [found for value in there if (found := number(value)) is not None]
    head = f"{name}: {len(there)} values, {len(values) - len(there)} empty"
    if there and len(numbers) == len(there):
        return f"{head}, smallest {min(numbers):g}, median {statistics.median(numbers):g}, largest {max(numbers):g}"
    common = ", ".join(f"{value} ({count})" for value, count in Counter(there).most_common(3))
    return f"{head}, {len(set(there))} different, most common: {common or 'none'}"


def main(path: str) -> None:
    """Describe every column of the file."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        sample = file.read(65_536)
        file.seek(0)
        try:
            form: type[csv.Dialect] = csv.Sniffer().sniff(sample, delimiters=",;\t|")
        except csv.Error:
            form = csv.excel
        rows = list(csv.DictReader(file, dialect=form))
    names = list(rows[0]) if rows else []
    print(f"{len(rows)} rows, {len(names)} columns")
    for name in names:
        print(describe(str(name), [str(row.get(name) or "") for row in rows]))


if __name__ == "__main__":
    main(sys.argv[1])
