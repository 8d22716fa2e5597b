"""What Holdfast does today, on something real, on a bare machine and without a key. `make run` runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from holdfast.app.output import markdown

ROOT = Path(__file__).parents[1]
console = Console(highlight=False, width=min(120, Console().width) if sys.stdout.isatty() else 120)

WRITER = """
import sys
from holdfast.durable.append import AppendLog
log = AppendLog(sys.argv[1])
for number in range(10_000):
    log.append({"step": number})
    print(number, flush=True)  # acknowledged: from here on it must survive
"""


def heading(text: str) -> None:
    console.print(f"\n[bold]{text}[/]")


def show_model() -> None:
    heading("1. Which model would be used")
    from holdfast import load_config
    from holdfast.models.choice import how_to_get_one, pick

    choice = pick(load_config())
    console.print(escape(choice.why))
    if choice.name is None:
        for way in how_to_get_one():
            console.print(f"  [dim]{escape(way)}[/]")


def show_extraction() -> None:
    heading("2. True sentences without a model: a text of one page is asked a question")
    from holdfast.extract.selection import SourceText, select
    from holdfast.tokens.counter import open_counter

    head, _, text = (ROOT / "benchmarks" / "data" / "extract" / "01-lighthouse.md").read_text("utf-8").partition("---\n")
    question = next(line.removeprefix("question: ") for line in head.splitlines() if line.startswith("question: "))
    count = open_counter().count_text
    chosen = select([SourceText("01-lighthouse.md", text)], question=question, budget=90, count=count)
    console.print(f"[dim]{count(text)} tokens of text, 90 allowed.[/] {question}")
    for passage in chosen.passages:
        console.print(f'  "{escape(" ".join(passage.text.split()))}" [dim](characters {passage.start} to {passage.end})[/]')


def show_durability(folder: Path) -> None:
    heading("3. What was acknowledged survives kill -9")
    from holdfast.durable.append import AppendLog

    path = folder / "log.jsonl"
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own program
    assert child.stdout is not None  # noqa: S101 - a pipe was asked for
    acknowledged = [int(child.stdout.readline()) for _ in range(50)]
    child.send_signal(signal.SIGKILL)
    acknowledged += [int(line) for line in child.stdout.read().split()]
    child.wait()
    reading = AppendLog(path).read()
    kept = {record["step"] for record in reading.records}
    lost = [step for step in acknowledged if step not in kept]
    console.print(f"{len(acknowledged)} appends were acknowledged before the kill, {len(lost)} are lost. The first lines of the file:")
    for line in path.read_text("utf-8").splitlines()[:3]:
        console.print(f"  [dim]{escape(line)}[/]")


def show_window(folder: Path) -> None:
    heading("4. 400 messages through a window of 8,000 tokens, nothing lost")
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage, HumanMessage

    from holdfast import SummarizationMiddleware
    from holdfast.context.archive import FileArchive
    from holdfast.testing.models import ScriptedModel
    from holdfast.testing.script import repeat

    model = ScriptedModel([repeat("Noted.")], profile={"max_input_tokens": 8_000})  # stands for any chat model
    middleware = SummarizationMiddleware(trigger=("fraction", 0.8), archive=FileArchive(folder))
    history = []
    for turn in range(200):
        said = f"Item {turn} of the migration: table t{turn % 17} moves after the backup, and the owner signs it off before the release."
        history += [
            HumanMessage("The staging password hint is the zebra on the third floor." if turn == 12 else said),
            AIMessage(f"Item {turn} is noted."),
        ]
    agent: Any = create_agent(model, [], middleware=[middleware])
    started = time.perf_counter()
    state = agent.invoke({"messages": [*history, HumanMessage("Where are we?")]})
    seconds = time.perf_counter() - started
    (thread,) = middleware.archive.threads()
    manifest = middleware.manifest(thread)
    assert manifest is not None  # noqa: S101 - a call was made just now
    console.print(f"{len(history)} messages went in, {manifest.tokens:,} of {manifest.window:,} tokens were sent ({seconds:.1f} s).")
    console.print(f"{len(state['messages'])} messages stay in the state; the summary is an {manifest.how}, and the archive holds the rest.")
    found = middleware.archive.search(thread, "which animal was the hint?", top_k=1)
    console.print(f'Asked the archive "which animal was the hint?": "{escape(found[0].record.text)}"')


def show_workflow() -> None:
    heading("5. A research workflow over 21 documents, without a model, to a report with sources")
    program = str(Path(sys.executable).with_name("holdfast"))
    words = ["run", str(ROOT / "examples" / "research" / "workflow.yaml"), "--no-remember"]
    console.print(f"[dim]{escape(os.path.relpath(program))} run examples/research/workflow.yaml --no-remember[/]")
    subprocess.run([program, *words], check=True)  # noqa: S603 - our own program
    newest = told(program, "sessions", "--last", "1")["sessions"][0]["session"]
    report = told(program, "session", "report", newest)
    console.print("\nThe report begins like this:")
    console.print(Padding(markdown("\n".join(report["text"].splitlines()[:24])), (0, 0, 0, 2)))
    console.print(
        f"\nAll of it: [bold]{escape(os.path.relpath(program))} session report {newest}[/]\n"
        "With a model behind it: put one under `models:` in config.yaml; `holdfast models test` finds out what it can be asked.",
        soft_wrap=True,
    )


def told(program: str, *words: str) -> Any:
    """What the program tells a program."""
    return json.loads(subprocess.run([program, *words, "--json"], check=True, capture_output=True, text=True).stdout)  # noqa: S603 - our own program


def main() -> None:
    console.print("[bold]Holdfast[/]: an agent's memory is one log, one budget and one file that a person can read.")
    show_model()
    show_extraction()
    with tempfile.TemporaryDirectory() as folder:
        show_durability(Path(folder))
        show_window(Path(folder) / "home")
    show_workflow()
    heading("6. Look further")
    binary = os.path.relpath(Path(sys.executable).with_name("holdfast"))
    for command in (
        "chat",
        "doctor",
        "sessions",
        "threads",
        "knowledge --help",
        "budget --window 8000",
        "config init",
        "models list",
        "--help",
    ):
        console.print(f"  {binary} {command}")


if __name__ == "__main__":
    main()
