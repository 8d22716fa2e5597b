"""A14, A4, S5: a process is killed with SIGKILL during a turn, or while sub-agents run: the thread goes on, and no call without its result
ever reaches the provider.

A child talks to a lead agent whose turns call tools, two at once, and hand work to sub-agents. Afterwards every acknowledged word is in the
state or in the archive, and what the next turn sends is whole.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from tests.conftest import Effort
from tests.unit.agents.bench import is_subagent_call, lead, look, make, scripted, whole

from holdfast.talk import Subagent, ToolFinished
from holdfast.testing.script import Request, call, delay

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
FRESH_EVERY = 15
SETTINGS = {
    "summarization": {
        "recall": {"enabled": False},
        "enabled": True,
        "trigger": {"type": "messages", "value": 30},
        "keep": {"type": "messages", "value": 6},
    }
}


def answer(request: Request) -> Any:
    if is_subagent_call(request):
        return delay(0.003, [call("look", {"what": "far"})]) if len(request.messages) == 2 else delay(0.003, "Seen from afar.")
    last = request.last
    if not isinstance(last, HumanMessage):
        return delay(0.002, "Answer, in my own words.")
    number = int(last.text.splitlines()[-1].split()[1])  # what was recalled may stand before it
    calls = [call("look", {"what": f"a{number}"}), call("make", {"name": f"f{number}.md"})]
    if number % 2:
        calls += [call("task", {"description": "d", "prompt": f"part {part} of {number}"}) for part in range(2)]
    return delay(0.002, calls)


def talk_for_ever(base: Path, first: int, pipe: int) -> None:
    with lead(base, scripted(answer), SETTINGS, [look, make]) as agent:
        talk, number = agent.conversation("t"), first
        while True:
            number += 1
            for event in talk.send(f"Question {number} of the test."):
                if isinstance(event, ToolFinished):
                    os.write(pipe, b"t\n")
                elif isinstance(event, Subagent):
                    os.write(pipe, b"s\n")
            said = [[message.id, message.text] for message in talk.messages[-4:]]
            os.write(pipe, f"+{json.dumps(said)}\n".encode())


def killed(base: Path, first: int, sign: str, count: int, moment: float) -> dict[str, str]:
    """Let a child talk, kill it a moment after the `count`-th line of this sign, and give what it had acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            talk_for_ever(base, first, writer)
        except BaseException as error:  # noqa: BLE001 - whatever happens, the child must not go on as a second test run
            with suppress(OSError):
                os.write(writer, f"!{error!r}\n".encode())
        finally:
            os._exit(1)
    os.close(writer)
    said, end = b"", time.monotonic() + 240
    while sum(line.startswith(sign.encode()) for line in said.split(b"\n")[:-1]) < count and time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], 1.0)
        data = os.read(reader, 65536) if ready else b""
        if ready and not data:
            break
        said += data
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while data := os.read(reader, 65536):
        said += data
    os.close(reader)
    assert os.WIFSIGNALED(status), f"the child ended by itself, after {said[-400:]!r}"
    lines = said.split(b"\n")[:-1]
    return {id: text for line in lines if line.startswith(b"+") for id, text in json.loads(line[1:])}


def check(base: Path, acknowledged: dict[str, str], number: int, resume: bool) -> list[str]:
    """Go on after the kill, and say what is wrong."""
    model = scripted(answer)
    faults: list[str] = []
    with lead(base, model, SETTINGS, [look, make]) as agent:
        talk = agent.conversation("t")
        interrupted = talk.interrupted
        if resume and interrupted:
            list(talk.resume())
            if talk.interrupted:
                faults.append("it is still interrupted after it was resumed")
        list(talk.send(f"Question {number} of the test."))
        messages = talk.messages
        faults += [f"{id} is in the window {times} times" for id, times in Counter(m.id for m in messages).items() if times > 1]
        faults += [f"request {r.number} has a call without its result" for r in model.requests if not whole(r.messages[1:])]
        shown = {str(message.id): message.text for message in messages}
        held = {id: record.text for id, record in agent.parts.archive.originals("t", acknowledged).items()}
        faults += [f"{id} is lost" for id, text in acknowledged.items() if text not in (shown.get(id), held.get(id))]
        said = [record.text for record in talk.history() if record.role == "human"]
        numbers = [int(text.split()[1]) for text in said]
        if numbers != sorted(numbers):
            faults.append(f"the questions are out of order: {numbers}")
        artifacts = talk.state.get("artifacts", [])
        if len(artifacts) != len(set(artifacts)):
            faults.append("an artifact is there twice")
        if agent.parts.checkpoints.rows("t") > 80:
            faults.append("old checkpoints pile up")
    return faults


@pytest.mark.prove
def test_a_kill_during_a_turn_or_a_sub_agent_loses_nothing_and_the_thread_goes_on(effort: Effort, tmp_path: Path) -> None:
    choose = random.Random(effort.seed)
    base, acknowledged, number = tmp_path / "none", dict[str, str](), 0
    for run in range(effort(10, 300)):
        if run % FRESH_EVERY == 0:
            base, acknowledged, number = tmp_path / str(run), {}, 0
            base.mkdir()
        acknowledged |= killed(base, number, choose.choice("+tsss"), choose.randint(1, 4), choose.uniform(0, 0.02))
        number += 100
        for fault in check(base, acknowledged, number, resume=choose.random() < 0.5):
            effort.fail(f"run {run}: {fault}")
