"""What the comparisons in `benchmarks/peers` share: an environment of its own for each peer, one form of result, JSON and a Markdown table.

The environment has the peer at a pinned version, and after it all packages of the one that started the script, Holdfast among them: both
sides run in the same process of the same interpreter. It is kept in build/peers, or below the folder that `--env` names.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import site
import subprocess
import sys
import tempfile
import venv
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).parents[2]
_INSIDE = "HOLDFAST_PEER"

Better = Literal["less", "more"]


@dataclass(frozen=True)
class Row:
    """One figure of both sides. `better` says which way is ahead; without it the row is only shown."""

    what: str
    ours: float
    theirs: float
    better: Better | None = None
    unit: str = ""
    peer: str = ""
    """Which peer, where a comparison has several."""

    @property
    def ahead(self) -> str:
        if self.better is None or self.ours == self.theirs:
            return "equal" if self.better else ""
        return "Holdfast" if (self.ours < self.theirs) == (self.better == "less") else "peer"


@dataclass(frozen=True)
class Result:
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    """What a reader has to know about how it was measured."""
    details: Any = None


Measure = Callable[[Path, bool], Result]
"""Given an empty folder and whether it is to be quick: the figures."""


def environment(name: str, packages: Sequence[str], folder: Path) -> Path:
    """The interpreter of an environment that has these packages; made and filled when it is not there yet."""
    place = folder / name
    python, ready = place / "bin/python", place / ".ready"
    wanted = "\n".join(packages)
    if ready.exists() and ready.read_text() == wanted:
        return python
    print(f"==> installing {', '.join(packages)} into {place}", file=sys.stderr)
    venv.create(place, with_pip=True, clear=True)
    beside = next((place / "lib").glob("python*/site-packages")) / "beside.pth"
    paths = [path for path in map(Path, site.getsitepackages()) if path.is_dir()]
    beside.write_text("".join(f"import site; site.addsitedir({str(path)!r})\n" for path in paths))
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
    subprocess.run(command, check=True, stdout=sys.stderr)
    ready.write_text(wanted)
    return python


def compare(name: str, packages: Sequence[str], measure: Measure) -> None:
    """The main program of a comparison: in the peer's environment, print JSON on stdout and the table on stderr."""
    module = sys.modules[measure.__module__]
    parser = argparse.ArgumentParser(description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", type=Path, default=ROOT / "build/peers", help="where the environments of peers are kept")
    parser.add_argument("--quick", action="store_true", help="smaller; its figures are no results")
    given = parser.parse_args()
    if packages and os.environ.get(_INSIDE) != name:
        python = environment(name, packages, given.env.resolve())
        words = [str(python), *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, _INSIDE: name, "PYTHONPATH": str(ROOT)}, check=False).returncode)
    warnings.simplefilter("ignore")  # what peers say about their own future is no part of the figures
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        result = measure(Path(folder), given.quick)
    versions = {package: importlib.metadata.version(package.partition("==")[0].partition("[")[0]) for package in packages}
    found = {
        "name": name,
        "command": f"python {Path(sys.argv[0]).resolve().relative_to(ROOT)}",
        "peers": {package.partition("==")[0]: version for package, version in versions.items()},
        "python": ".".join(map(str, sys.version_info[:3])),
        "cores": os.cpu_count(),
        "load": [round(before, 1), round(os.getloadavg()[0], 1)],
        "quick": given.quick,
        "rows": [asdict(row) | {"ahead": row.ahead} for row in result.rows],
        "notes": list(result.notes),
        "details": result.details,
    }
    print(json.dumps(found, indent=1, ensure_ascii=False))
    print(table(found), file=sys.stderr)


def table(found: dict[str, Any]) -> str:
    """The Markdown of a result: one row a figure, with who is ahead."""
    packages = "".join(f"{name} {version}, " for name, version in found["peers"].items())
    peers = list(dict.fromkeys(row["peer"] for row in found["rows"]))
    lines = [f"| figure | Holdfast | {' | '.join(name or 'peer' for name in peers)} | ahead |", f"|---|{'---:|' * (len(peers) + 1)}---|"]
    for what in dict.fromkeys(row["what"] for row in found["rows"]):
        rows = {row["peer"]: row for row in found["rows"] if row["what"] == what}
        one = next(iter(rows.values()))
        theirs = [shown(rows[name]["theirs"], one["unit"]) if name in rows else "" for name in peers]
        ahead = [f"**{name or 'the peer'}**" for name, row in rows.items() if row["ahead"] == "peer"]
        equal = [name for name, row in rows.items() if row["ahead"] == "equal"]
        holdfast = any(row["ahead"] == "Holdfast" for row in rows.values())
        best = ", ".join(ahead) or (" and ".join(["Holdfast", *equal]) if holdfast else one["ahead"])
        lines.append(f"| {what} | {shown(one['ours'], one['unit'])} | {' | '.join(theirs)} | {best} |")
    low, high = sorted(found["load"])
    load = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
    lines += ["", f"`{found['command']}`; {packages}Python {found['python']}, {found['cores']} cores, load {load}."]
    return "\n".join([*lines, *found["notes"]])


def shown(value: float, unit: str) -> str:
    if unit == "%":
        return f"{value * 100:.1f} %"
    text = f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:.3g}"
    return f"{text} {unit}".strip()
