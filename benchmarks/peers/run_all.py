"""Runs the comparisons with peers, one after the other, and writes their tables into docs/benchmarks.md.

    python benchmarks/peers/run_all.py                 # all of them
    python benchmarks/peers/run_all.py chromadb_store  # one
    python benchmarks/peers/run_all.py --from results  # write the tables of NAME.json files that are there

Each is a script that installs its peer into an environment of its own (build/peers, or `--env`), runs both sides and prints JSON. Its table
is written between two comments of the page that name the script; what stands around them is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.parts.peer_runs import ROOT, table

HERE = Path(__file__).parent
PAGE = ROOT / "docs/benchmarks.md"


def comparisons() -> list[str]:
    """The scripts that end in a comparison."""
    return sorted(path.stem for path in HERE.glob("*.py") if re.search(r"^    +compare(_stores)?\(", path.read_text("utf-8"), re.MULTILINE))


def written(page: str, name: str, text: str) -> str:
    """The page with this table in its place. KeyError where the page has no place for it."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in page or end not in page:
        raise KeyError(f"{PAGE.name} has no place for {name}: write {start} and {end} into it.")
    head, _, rest = page.partition(start)
    return f"{head}{start}\n{text}\n{end}{rest.partition(end)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scripts", nargs="*", default=[], help=f"of {', '.join(comparisons())}")
    parser.add_argument("--env", type=Path, default=ROOT / "build/peers", help="where the environments of peers are kept")
    parser.add_argument("--from", dest="results", type=Path, help="run nothing, take NAME.json from this folder")
    given = parser.parse_args()
    failed = []
    for name in given.scripts or comparisons():
        if given.results is not None:
            file = given.results / f"{name}.json"
            text = file.read_text("utf-8") if file.exists() else ""
        else:
            words = [sys.executable, str(HERE / f"{name}.py"), "--env", str(given.env)]
            text = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False).stdout
        try:
            found: dict[str, Any] = json.loads(text)
        except json.JSONDecodeError:
            failed.append(name)
            continue
        PAGE.write_text(written(PAGE.read_text("utf-8"), name, table(found)), "utf-8")
        print(f"{name}: written", file=sys.stderr)
    if failed:
        print(f"no result: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
