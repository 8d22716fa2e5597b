"""What keeping a conversation inside its window costs, and what is left of it afterwards (S4, S7, S9, S19, A14). Prints one JSON object.

check: microseconds that the check adds to a model call when no trigger is met, the request being assembled already, beside LangChain's
`SummarizationMiddleware.before_model` on the same messages: the usual call (two messages are new), the first call of a turn (the same ids,
all objects new: read from a checkpoint), and a cold start. `edits_noticed`: the total is the true one after a message was replaced, removed
or branched away.
read_by_the_summarizer: the share of removed messages that stood in a prompt of the summarizer.
planted_facts: facts said once in a long conversation, asked for after ten compactions with at most two terms of the fact.
checkpoint: bytes of a thread on the SQLite checkpointer, and what fills them.
prefix: the share of input tokens that are a byte-identical prefix of the call before.
server_reports: requests over the window, of 400, for each way in which servers report usage (`parts/server_reports.py`).
trigger_starts: where each configuration of the reference's documents starts, what it keeps, and how often (`parts/trigger_starts.py`).

`--quick` makes everything smaller and takes less than 20 seconds; its figures are no results.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.parts.check_cost import check_cost, edits_noticed
from benchmarks.parts.checkpoint_bytes import checkpoint_bytes
from benchmarks.parts.planted import planted_facts
from benchmarks.parts.prefix_share import prefix_share
from benchmarks.parts.read_share import read_share
from benchmarks.parts.server_reports import server_reports
from benchmarks.parts.trigger_starts import trigger_starts


def measured(base: Path, *, quick: bool) -> dict[str, Any]:
    """All parts, one after the other."""
    check = check_cost(calls=20 if quick else 300)
    return {
        "quick": quick,
        "check": {**check, "edits_noticed": edits_noticed()},
        "read_by_the_summarizer": read_share(chat=200 if quick else 600),
        "planted_facts": planted_facts(base / "planted", **({"length": 300, "count": 30} if quick else {})),
        "checkpoint": checkpoint_bytes(base / "checkpoint", **({"length": 100, "turns": 3} if quick else {})),
        "prefix": prefix_share(base / "prefix", turns=40 if quick else 200),
        "server_reports": server_reports(turns=12 if quick else 400),
        "trigger_starts": trigger_starts(turns=20 if quick else 300, sizes=(300,) if quick else (30, 100, 300), lead=not quick),
    }


def goals(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures that have a goal, with it."""
    check, read, planted, checkpoint = (result[name] for name in ("check", "read_by_the_summarizer", "planted_facts", "checkpoint"))
    loop, chat = (figures for name, figures in read.items() if name != "settings")
    ours = planted["ours"]
    rows = {
        "check_times_faster_at_1000": (check["1000"]["langchain_over_ours"], ">=", 50),
        "check_times_faster_at_5000": (check["5000"]["langchain_over_ours"], ">=", 50),
        "read_share_tool_loop": (loop["ours"]["share"], ">=", 1.0),
        "read_share_chat": (chat["ours"]["share"], ">=", 1.0),
        "found_by_question": (ours["found_by_question"], ">=", 0.9),
        "found_by_sparser_question": (ours["found_by_sparser_question"], ">=", 0.9),
        "found_by_own_words": (ours["found_by_own_words"], ">=", 0.99),
        "readable_word_for_word": (ours["readable_word_for_word"], ">=", 1.0),
        "checkpoint_megabytes": (checkpoint["ours"]["megabytes"], "<", 1.5),
        "checkpoint_megabytes_with_delta_channel": (checkpoint["ours_with_delta_channel"]["megabytes"], "<", 1.5),
        "prefix_share": (result["prefix"]["ours"]["share"], ">=", 0.9),
        "requests_over_the_window": (sum(row["ours"]["over"] for row in result["server_reports"].values()), "<", 1),
    }
    return {
        name: {"is": value, "goal": f"{sign} {goal}", "reached": value >= goal if sign == ">=" else value < goal}
        for name, (value, sign, goal) in rows.items()
    }


def main() -> None:
    reader = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    reader.add_argument("--quick", action="store_true", help="smaller and in less than 20 seconds")
    given = reader.parse_args()
    warnings.simplefilter("ignore")  # what LangChain says about its own future is no part of the figures
    with tempfile.TemporaryDirectory() as folder:
        result = measured(Path(folder), quick=given.quick)
    summary = {} if given.quick else {"goals": goals(result)}
    print(json.dumps({**summary, **result}, indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
