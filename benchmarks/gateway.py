"""What the gateway adds to a model call (O3): the same request to a scripted server, bare and through Holdfast, at 10 and 1,000 messages.

    python benchmarks/gateway.py [ROUNDS]       # one JSON object

The client sends its whole history each time, as clients do. Bare and gateway calls alternate in one run, so what counts is the ratio and
the difference beside it. The scripted server answers at once: behind a real model the ratio is near 1.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.integration.server_bench import model_server, models, serving


def history(messages: int) -> list[dict[str, Any]]:
    """A conversation of this many messages, that ends with the user."""
    said = [f"Message {number} of a talk about the harbour and its piers." for number in range(messages - 1)]
    return [{"role": "user" if number % 2 == 0 else "assistant", "content": text} for number, text in enumerate(said)]


def measure(bare: httpx.Client, ours: httpx.Client, messages: int, rounds: int) -> dict[str, float]:
    """Milliseconds of a call each way, with a growing history of about so many messages."""
    talk = history(messages)
    if talk and talk[-1]["role"] == "user":
        talk.pop()
    times: dict[str, list[float]] = {"bare": [], "gateway": []}
    for number in range(rounds + 3):
        talk.append({"role": "user", "content": f"Question {number}?"})
        answer = ""
        for name, client in (("bare", bare), ("gateway", ours)):
            began = time.perf_counter()
            told = client.post("/v1/chat/completions", json={"model": "small", "messages": talk})
            took = time.perf_counter() - began
            answer = told.raise_for_status().json()["choices"][0]["message"]["content"]
            if number >= 3:  # the first ones import LangChain and take the history over
                times[name].append(took * 1e3)
        talk.append({"role": "assistant", "content": answer})
    middle = {name: statistics.median(found) for name, found in times.items()}
    return {
        "bare_ms": round(middle["bare"], 1),
        "gateway_ms": round(middle["gateway"], 1),
        "added_ms": round(middle["gateway"] - middle["bare"], 1),
        "ratio": round(middle["gateway"] / middle["bare"], 2),
    }


def main(rounds: int) -> None:
    """Measure, and print."""
    with tempfile.TemporaryDirectory() as folder, model_server() as model, serving(Path(folder), models(model, 200_000)) as served:
        address = model.url.removesuffix("/v1")
        with httpx.Client(base_url=address, trust_env=False, timeout=120) as bare, served.client() as ours:
            found = {f"messages_{count}": measure(bare, ours, count, rounds) for count in (10, 1_000)}
    print(json.dumps({"benchmark": "gateway", "rounds": rounds, **found}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 30)
