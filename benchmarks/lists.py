"""What lists and first searches cost as what is kept grows: processor time of whole commands, in one run. Prints JSON.

sessions: `holdfast sessions --last 5`, the whole list and pages of the server, with few sessions and a hundred times as many (W1, O1,
O3): the sessions, those of one state, the start page, the search of everything, and the figures for Prometheus. Each is asked for six
times; the first is apart, because the server reads the sessions then.
archive: the first `holdfast history THREAD search` of a conversation, which makes its index, with few messages and ten times as many (S9).

`--quick` makes everything smaller; its figures are no results. State is made below `--folder` (by default in memory: nothing here is about
disks).
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import replace
from pathlib import Path

from holdfast.context.archive import FileArchive
from holdfast.context.records import records_of
from holdfast.context.view import PlainMessage
from holdfast.session.state import Session
from holdfast.workflow.run_settings import file_sessions

_WORDS = [
    f"{a}{b}" for a in ("ber", "cal", "dor", "fen", "gam", "hol", "kin", "lum", "mor", "nav") for b in ("an", "e", "is", "or", "ut", "el")
]


def spent(home: Path, *words: str) -> float:
    """Seconds of processor time of a command, the least of three."""
    found = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        env = {**os.environ, "HOLDFAST_HOME": str(home)}
        subprocess.run([sys.executable, "-m", "holdfast.app.main", *words], env=env, cwd=home, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return round(min(found), 2)


PAGES = {
    "sessions": "/sessions",
    "waiting": "/sessions?status=paused",
    "start": "/",
    "search": "/search?q=harbour",
    "metrics": "/api/v1/metrics",
}


def pages(home: Path, count: int) -> dict[str, float]:
    """Seconds of processor time that a server takes for each page: the first time, and the least of five later ones."""
    words = [sys.executable, "-m", "holdfast.app.main", "serve", "--port", "0", "--json"]
    process = subprocess.Popen(words, env={**os.environ, "HOLDFAST_HOME": str(home)}, cwd=home, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        told = ""
        while not told.endswith("}\n"):
            told += process.stdout.readline()
        said = json.loads(told)
        found = {}
        for name, path in PAGES.items():
            times = []
            for _ in range(6):
                before = _processor(process.pid)
                asked = urllib.request.Request(f"{said['address']}{path}", headers={"Authorization": f"Bearer {said['token']}"})  # noqa: S310 - ours
                with urllib.request.urlopen(asked, timeout=120) as answer:  # noqa: S310 - ours
                    text = answer.read()
                assert name == "metrics" or b"weigh the" in text, text
                times.append(_processor(process.pid) - before)
            found[f"first_{name}_of_{count}_s"], found[f"{name}_of_{count}_s"] = round(times[0], 3), round(min(times[1:]), 3)
    finally:
        process.terminate()
        process.wait(60)
    return found


def _processor(pid: int) -> float:
    """Seconds of processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def sessions(base: Path, counts: tuple[int, int]) -> dict[str, float]:
    found: dict[str, float] = {}
    for count in counts:
        home = base / f"sessions-{count}"
        store = file_sessions(home / "sessions")
        for number in range(count):
            made = store.create(Session(f"run-{number:05d}", "weigh the harbour"))
            store.commit(replace(made, status="completed" if number else "paused"), expect=1)
        store.close()
        found[f"last_5_of_{count}_s"] = spent(home, "sessions", "--last", "5")
        found[f"all_{count}_s"] = spent(home, "sessions")
        found |= pages(home, count)
    few, many = counts
    found["last_5_ratio"] = round(found[f"last_5_of_{many}_s"] / found[f"last_5_of_{few}_s"], 2)
    return found


def archive(base: Path, counts: tuple[int, int]) -> dict[str, float]:
    found: dict[str, float] = {}
    choose = random.Random(7)
    for count in counts:
        home = base / f"archive-{count}"
        said = [
            PlainMessage("human" if n % 2 == 0 else "ai", " ".join(choose.choices(_WORDS, k=30)) + f" parrot{n}", id=f"m{n}")
            for n in range(count)
        ]
        kept = FileArchive(home)
        for start in range(0, count, 5000):
            kept.add("t", records_of(said[start : start + 5000]))
        kept.close()
        times = []
        for _ in range(2):
            (home / "threads" / "t" / "archive.sqlite").unlink(missing_ok=True)
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            env = {**os.environ, "HOLDFAST_HOME": str(home)}
            command = [sys.executable, "-m", "holdfast.app.main", "history", "t", "search", f"parrot{count // 2}"]
            subprocess.run(command, env=env, cwd=home, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        found[f"first_search_of_{count}_s"] = round(min(times), 2)
        found[f"later_search_of_{count}_s"] = spent(home, "history", "t", "search", f"parrot{count // 3}")
    few, many = counts
    found["first_search_ratio"] = round(found[f"first_search_of_{many}_s"] / found[f"first_search_of_{few}_s"], 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None)  # noqa: S108
    parser.add_argument("--only", choices=["sessions", "archive"])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as place:
        result = {}
        if given.only != "archive":
            result["sessions"] = sessions(Path(place), (20, 200) if given.quick else (100, 10_000))
        if given.only != "sessions":
            result["archive"] = archive(Path(place), (200, 2_000) if given.quick else (5_000, 50_000))
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
