"""What the command line costs before it does anything: `holdfast --help` beside the `--help` of a two-command typer program (O1, P1)."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

PEER = """
import typer

app = typer.Typer()


@app.command()
def one(name: str) -> None:
    "Say one."


@app.command()
def two(name: str) -> None:
    "Say two."


app()
"""
ROUNDS = 15


def seconds(words: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    return time.perf_counter() - started


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        peer = Path(folder) / "peer.py"
        peer.write_text(PEER)
        programs = {
            "holdfast --help": [str(Path(sys.executable).with_name("holdfast")), "--help"],
            "typer with two commands --help": [sys.executable, str(peer), "--help"],
            "import holdfast": [sys.executable, "-c", "import holdfast"],
            "python alone": [sys.executable, "-c", "pass"],
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(ROUNDS):  # in turns, so that a busy moment hits all alike
            for name, words in programs.items():
                times[name].append(seconds(words))
    middle = {name: median(found) for name, found in times.items()}
    ratio = middle["holdfast --help"] / middle["typer with two commands --help"]
    result = {
        "milliseconds": {name: round(1000 * found, 1) for name, found in middle.items()},
        "help_over_typer": round(ratio, 2),
        "goal": "<= 1.3",
        "reached": ratio <= 1.3,
        "import_over_python": round(middle["import holdfast"] / middle["python alone"], 2),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
