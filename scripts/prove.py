"""Runs the long crash, fault and property proofs in parts, and writes what was proved to docs/proof.md: `make prove`.

A part is one file of tests, or a share of it where the file takes long, in a process of its own. What is finished is noted in build/prove
with the state of the code and the seed, so a run that was broken off goes on where it stood; `--fresh` begins anew. A part that failed is
run again by the next call. Exit code 1: something failed, 3: `--minutes` were over before all was run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NOTES = ROOT / "build/prove"
PAGE = ROOT / "docs/proof.md"
SHARES = {
    "tests/crash/test_agent_kill.py": 3,
    "tests/crash/test_compaction_kill.py": 4,
    "tests/crash/test_learning_kill.py": 5,
    "tests/crash/test_session_kill.py": 5,
    "tests/crash/test_workflow_kill.py": 5,
    "tests/property/test_context.py": 20,
}
"""Files whose long version takes more than some minutes on one core, and into how many parts each is split. They are run last."""


@dataclass(frozen=True)
class Part:
    file: str
    number: int = 1
    shares: int = 1

    @property
    def name(self) -> str:
        return self.file if self.shares == 1 else f"{self.file} {self.number}/{self.shares}"

    @property
    def note(self) -> Path:
        """Where its result is kept."""
        return NOTES / f"{self.file.removeprefix('tests/').removesuffix('.py').replace('/', '-')}-{self.number}-of-{self.shares}.json"


def all_parts() -> list[Part]:
    """Every file with a test that has a long version; those in shares last."""
    files = [
        path.relative_to(ROOT).as_posix()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        if re.search(r"\beffort: Effort\b|\bmark\.prove\b", path.read_text("utf-8"))
    ]
    return [
        Part(file, number, SHARES.get(file, 1))
        for file in sorted(files, key=lambda file: SHARES.get(file, 1))
        for number in range(1, SHARES.get(file, 1) + 1)
    ]


def state_of_code() -> str:
    """A digest of all that is proved and of what proves it: a note made with another one does not count."""
    digest = hashlib.sha256()
    for folder in ("src", "tests", "benchmarks/parts", "requirements"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603, S607  # ours


def commit() -> str:
    changed = git("status", "--porcelain", "--", "src", "tests", "benchmarks/parts", "requirements")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" with changes" if changed else "")


class Proving:
    """One run over all parts that are still to be done."""

    def __init__(self, seed: int, code: str, deadline: float) -> None:
        self.seed, self.code, self.deadline = seed, code, deadline
        self.commit = commit()
        self.said = threading.Lock()

    def known(self, part: Part) -> dict[str, Any] | None:
        """What is noted about a part with this code and this seed."""
        if not part.note.exists():
            return None
        note: dict[str, Any] = json.loads(part.note.read_text())
        return note if (note["code"], note["seed"]) == (self.code, self.seed) else None

    def run(self, part: Part) -> None:
        if time.monotonic() > self.deadline:
            return
        lines, log = part.note.with_suffix(".jsonl"), part.note.with_suffix(".log")
        lines.unlink(missing_ok=True)
        words = [sys.executable, "-m", "pytest", part.file, "-m", "prove", "--prove", "--timeout=0", "-p", "no:cacheprovider"]
        words += ["--seed", str(self.seed), "--share", f"{part.number}/{part.shares}", "--notes", str(lines)]
        words += ["--basetemp", str(NOTES / "tmp" / part.note.stem)]
        (NOTES / "tmp").mkdir(exist_ok=True)
        began = time.monotonic()
        with log.open("w") as file:
            process = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT)  # noqa: S603  # pytest, with words from above
            _, status, used = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        proofs = [json.loads(line) for line in lines.read_text().splitlines()] if lines.exists() else []
        note = {
            "part": part.name,
            "code": self.code,
            "commit": self.commit,
            "seed": self.seed,
            "seconds": round(time.monotonic() - began, 1),
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "passed": code == 0,
            "proofs": proofs,
        }
        if code == 0:
            shutil.rmtree(NOTES / "tmp" / part.note.stem, ignore_errors=True)
        part.note.write_text(json.dumps(note, indent=1) + "\n")
        with self.said:
            verdict = "ok" if code == 0 else f"FAILED, see {log.relative_to(ROOT)}"
            print(f"{time.strftime('%H:%M:%S')} {part.name}: {note['seconds']} s ({note['cpu_seconds']} s of CPU), {verdict}", flush=True)


def table(parts: list[Part], notes: dict[Part, dict[str, Any]], seed: int) -> str:
    """One row for each proof, its shares together."""
    rows: dict[str, dict[str, Any]] = {}
    for part in parts:
        note = notes.get(part)
        for proof in note["proofs"] if note else ():
            row = rows.setdefault(proof["name"], {"n": 0, "failures": 0, "seconds": 0.0, "skipped": "", "shares": 0, "of": part.shares})
            row["shares"] += 1
            row["skipped"] = row["skipped"] or proof["skipped"]
            for key in ("n", "failures", "seconds"):
                row[key] += proof[key]
    found = [f"seed {seed}", "", "| proof | N | failures | seconds |", "|---|---:|---:|---:|"]
    for name, row in rows.items():
        file, _, test = name.partition("::")
        words = f"{test.removeprefix('test_').replace('_', ' ')} (`{Path(file).name}`)".replace("|", "\\|")
        words += f"; {row['shares']} of {row['of']} shares" if row["shares"] < row["of"] else ""
        words += f"; skipped: {row['skipped']}" if row["skipped"] else ""
        found.append(f"| {words} | {row['n']:,} | {row['failures']} | {row['seconds']:.0f} |")
    failures = sum(row["failures"] for row in rows.values())
    broken = [part.name for part in parts if part in notes and not notes[part]["passed"]]
    missing = Counter(part.file for part in parts if part not in notes)
    minutes = {key: sum(notes[part][key] for part in parts if part in notes) / 60 for key in ("seconds", "cpu_seconds")}
    spent = f"{minutes['seconds']:.0f} minutes in all parts, {minutes['cpu_seconds']:.0f} of CPU"
    found += ["", f"{len(rows)} proofs, {failures} failures; {spent}."]
    found += [f"Failed: {', '.join(broken)}."] if broken else []
    left = [file + (f" ({count} of {SHARES[file]} shares)" if file in SHARES else "") for file, count in missing.items()]
    found += [f"Not run: {', '.join(left)}."] if left else []
    return "\n".join(found)


def page(text: str, commits: list[str]) -> str:
    return f"""# What was proved

`make prove` runs the long versions of the crash, fault and property tests, in parts that can be broken off and taken up again, and writes
this page. N is how often a story, a kill, a fault or an example was tried; the same seed tries the same ones. What each proof is about is
in its file, and in the tables of [durability](durability.md), [security](security.md) and [working memory](working-memory.md).

Commit {", ".join(commits) or "none"}, {text}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="parts at once")
    parser.add_argument("--only", default="", help="parts whose name has these words")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no part after this time")
    parser.add_argument("--fresh", action="store_true", help="forget what is noted")
    parser.add_argument("--report", action="store_true", help="run nothing, write the page from what is noted, with whatever code")
    given = parser.parse_args()
    NOTES.mkdir(parents=True, exist_ok=True)
    parts = all_parts()
    proving = Proving(given.seed, state_of_code(), time.monotonic() + given.minutes * 60)
    if given.fresh:
        for part in parts:
            part.note.unlink(missing_ok=True)
    if not given.report:
        left = [part for part in parts if given.only in part.name and not (proving.known(part) or {"passed": False})["passed"]]
        print(f"commit {proving.commit}, seed {given.seed}: {len(left)} of {len(parts)} parts to run", flush=True)
        with ThreadPoolExecutor(given.jobs) as pool:
            list(pool.map(proving.run, left))
    notes = {
        part: note
        for part in parts
        if (note := json.loads(part.note.read_text()) if given.report and part.note.exists() else proving.known(part)) is not None
    }
    text = table(parts, notes, given.seed)
    PAGE.write_text(page(text, sorted({note["commit"] for note in notes.values()})), "utf-8")
    print(text)
    if any(not note["passed"] for note in notes.values()):
        return 1
    return 0 if len(notes) == len(parts) else 3


if __name__ == "__main__":
    sys.exit(main())
