"""Makes the pictures of the README: real commands in a fresh folder, 80 columns wide, drawn as a terminal by rich.

python examples/pictures.py            # writes docs/images/run.svg and docs/images/chat.svg
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
COLUMNS = 80
PICTURES: dict[str, tuple[str, Sequence[str]]] = {
    "run": (
        "holdfast run, without a model",
        (
            "holdfast run examples/research/workflow.yaml --id queues",
            "holdfast session report queues | head -24",
        ),
    ),
    "chat": (
        "holdfast chat, without a model",
        (
            'holdfast chat -p "My cat is called Pixel, and I prefer short answers."',
            'holdfast chat -p "What is my cat called?"',
            "holdfast memory show",
            "holdfast memory history",
        ),
    ),
}


def main() -> None:
    """Draw them all."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, (title, commands) in PICTURES.items():
        with tempfile.TemporaryDirectory() as home, Path(os.devnull).open("w") as nowhere:
            (Path(home) / "examples").symlink_to(ROOT / "examples")
            console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
            for command in commands:
                console.print(Text(f"$ {command}", "bold cyan"))
                console.print(Text.from_ansi(_output(command, Path(home))))
            console.save_svg(str(IMAGES / f"{name}.svg"), title=title)


def _output(command: str, home: Path) -> str:
    """What a command prints, as a person would see it who stands in a folder of his own."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    env = {**kept, "PATH": programs, "HOME": str(home), "XDG_DATA_HOME": str(home / ".local" / "share"), "COLUMNS": str(COLUMNS)}
    done = subprocess.run(command, shell=True, cwd=home, env=env, text=True, capture_output=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S602
    return (done.stdout + done.stderr).replace(str(home), "~").rstrip() + "\n"


if __name__ == "__main__":
    main()
