"""S9, S10, A14: a process is killed with SIGKILL around a compaction, or two compact one thread at once: no word is lost or there twice.

A child runs an agent on the SQLite checkpointer, every step written at once, with the archive in files. What it acknowledged on the pipe is
afterwards in the state or in the archive, word for word, and the thread goes on.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite import SqliteSaver
from tests.conftest import Effort

from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.context.archive import FileArchive
from holdfast.durable.append import AppendLog
from holdfast.events import Bus, Compacted, CompactionPlanned, Event, SummaryMade
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, call, repeat

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
THREAD = "t"
CONFIG: Any = {"configurable": {"thread_id": THREAD}}
FRESH_EVERY = 20  # runs after which a new folder is begun, so that reading all of it stays quick
AROUND = (CompactionPlanned, SummaryMade, Compacted)


@tool
def look(what: str) -> str:
    """Looks something up."""
    return f"Seen for {what}: it is as it was."


def answer(request: Request) -> Any:
    """Every question whose number can be divided by three is answered after a look."""
    last = request.messages[-1]
    if isinstance(last, HumanMessage) and int(last.text.splitlines()[-1].split()[1]) % 3 == 0:
        return [call("look", {"what": last.text})]
    return f"Answer to {last.text!r}, in my own words."


class Conversation:
    """An agent with its checkpointer and archive in one folder, as a process has it."""

    def __init__(self, base: Path, bus: Bus | None = None, *, trigger: Any = ("messages", 12)) -> None:
        profile: Any = {"max_input_tokens": 8000}
        self.model = ScriptedModel([repeat(answer)], profile=profile)
        notes = ScriptedModel([repeat("NOTES of what was said")], profile=profile)
        self.archive = FileArchive(base / "home")
        self.middleware = SummarizationMiddleware(
            notes, trigger=trigger, keep=("messages", 4), archive=self.archive, bus=bus or Bus(), recall=False
        )
        self._opened = SqliteSaver.from_conn_string(str(base / "threads.sqlite"))
        self.saver = self._opened.__enter__()
        self.agent: Any = create_agent(self.model, [look], middleware=[self.middleware], checkpointer=self.saver)

    def turn(self, number: int) -> list[AnyMessage]:
        """Ask something; gives what was said since."""
        asked = HumanMessage(f"Question {number} of the test, with some words of its own.", id=f"h{number}")
        said: list[AnyMessage] = self.agent.invoke({"messages": [asked]}, CONFIG, durability="sync")["messages"]
        return said[[message.id for message in said].index(f"h{number}") :]

    def state(self) -> list[AnyMessage]:
        found: list[AnyMessage] = self.agent.get_state(CONFIG).values.get("messages", [])
        return found

    def close(self) -> None:
        self.archive.close()
        self._opened.__exit__(None, None, None)


@contextmanager
def conversation(base: Path, **settings: Any) -> Iterator[Conversation]:
    made = Conversation(base, **settings)
    try:
        yield made
    finally:
        made.close()


def forked(work: Callable[[int], None]) -> tuple[int, int]:
    """Run it in a child; gives its process id and the reading end of the pipe that it was given."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            work(writer)
            code = 0
        except BaseException as error:  # noqa: BLE001 - whatever happens, the child must not go on as a second test run
            with suppress(OSError):
                os.write(writer, f"!{error!r}\n".encode())
        finally:
            os._exit(code)
    os.close(writer)
    return child, reader


def talk_for_ever(base: Path, first: int, pipe: int) -> None:
    """Turn after turn. A line says what was acknowledged (`+`), or that a compaction is under way (`c`)."""

    def hear(event: Event) -> None:
        if isinstance(event, AROUND):
            os.write(pipe, b"c\n")

    talking = Conversation(base, Bus(hear))
    number = first
    while True:
        number += 1
        said = talking.turn(number)
        os.write(pipe, f"+{json.dumps([[message.id, message.text] for message in said])}\n".encode())


def killed(base: Path, first: int, sign: str, count: int, moment: float) -> dict[str, str]:
    """Let a child talk, kill it `moment` seconds after the `count`-th line of this sign, and give what it had acknowledged."""
    child, reader = forked(lambda pipe: talk_for_ever(base, first, pipe))
    said, seen, end = b"", 0, time.monotonic() + 240
    while seen < count and time.monotonic() < end:
        ready, _, _ = select.select([reader], [], [], 1.0)
        data = os.read(reader, 65536) if ready else b""
        if ready and not data:
            break
        said += data
        seen = sum(line.startswith(sign.encode()) for line in said.split(b"\n")[:-1])
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    while data := os.read(reader, 65536):
        said += data
    os.close(reader)
    assert os.WIFSIGNALED(status), f"the child ended by itself, after {said[-200:]!r}"
    lines = said.split(b"\n")[:-1]  # a last line that was cut short was not said
    return {id: text for line in lines if line.startswith(b"+") for id, text in json.loads(line[1:])}


def faults(base: Path, acknowledged: dict[str, str]) -> list[str]:
    """What is wrong with the thread and its archive."""
    with conversation(base) as talking:
        state = talking.state()
        said = [f"{id} is in the view {times} times" for id, times in Counter(message.id for message in state).items() if times > 1]
        shown = {message.id: message.text for message in state}
        held = {id: record.text for id, record in talking.archive.originals(THREAD, acknowledged).items()}
        for id, text in acknowledged.items():
            if text not in (shown.get(id), held.get(id)):
                said.append(f"{id} is lost: the state has {shown.get(id)!r}, the archive {held.get(id)!r}")
        said += twice(base)
        summaries = sum(bool(message.additional_kwargs.get("holdfast", {}).get("summary")) for message in state)
        return said if summaries <= 1 else [*said, f"{summaries} summaries are in the view"]


def twice(base: Path) -> list[str]:
    """Records that stand in the log more than once, and any damage of it."""
    reading = AppendLog(base / "home" / "threads" / THREAD / "archive.jsonl").read()
    counts = Counter((record.get("id"), record.get("mark")) for record in reading.records if record.get("kind") == "message")
    said = [f"{id} is in the archive {times} times" for (id, _), times in counts.items() if times > 1]
    return said + [f"the log is torn in the middle: {damage}" for damage in reading.damage if not damage.tail]


def whole(messages: Sequence[BaseMessage]) -> bool:
    """Every call is directly followed by its results, and there are no others."""
    results = 0
    for index, message in enumerate(messages):
        asked = [one["id"] for one in message.tool_calls] if isinstance(message, AIMessage) else []
        following = messages[index + 1 : index + 1 + len(asked)]
        if [one.tool_call_id for one in following if isinstance(one, ToolMessage)] != asked:
            return False
        results += len(asked)
    return results == sum(isinstance(message, ToolMessage) for message in messages)


@pytest.mark.prove
def test_a_kill_around_a_compaction_loses_no_word_and_the_thread_goes_on(effort: Effort, tmp_path: Path) -> None:
    choose = random.Random(effort.seed)
    base, acknowledged, number, compactions = tmp_path / "none", dict[str, str](), 0, 0
    for run in range(effort(12, 1000)):
        if run % FRESH_EVERY == 0:
            base, acknowledged, number = tmp_path / str(run), {}, 0
            base.mkdir()
        sign = choose.choice("+ccc")
        acknowledged |= killed(base, number, sign, choose.randint(1, 5), choose.uniform(0, 0.03))
        number += 100  # numbers are not used again, whatever the child got done
        for fault in faults(base, acknowledged):
            effort.fail(f"run {run}: {fault}")
        with conversation(base) as talking:
            number += 1
            acknowledged |= {str(message.id): message.text for message in talking.turn(number)}
            if not all(whole(request.messages) for request in talking.model.requests):
                effort.fail(f"run {run}: after the kill a request had calls without results")
            compactions = max(compactions, len(talking.archive.summaries(THREAD)))
    assert compactions > 1, "nothing was compacted: the kills were not where they should be"


def settled(base: Path, turns: int) -> dict[str, str]:
    """A thread with a few turns that nobody compacted yet, and all that was said in it."""
    with conversation(base, trigger=None) as talking:
        for number in range(1, turns + 1):
            talking.turn(number)
        return {str(message.id): message.text for message in talking.state()}


def compact_once(base: Path, moment: float, gate: int) -> None:
    talking = Conversation(base)
    os.read(gate, 1)
    time.sleep(moment)
    done = talking.middleware.compact_thread(talking.agent, THREAD, model=talking.model, keep=("messages", 4))
    os._exit(0 if done.changed else 3)


def turn_once(base: Path, number: int, moment: float, gate: int) -> None:
    talking = Conversation(base)
    os.read(gate, 1)
    time.sleep(moment)
    talking.turn(number)


def _ignoring_the_pipe(work: Callable[[int], None], gate: int, pipe: int) -> None:
    work(gate)


def together(*works: Callable[[int], None]) -> list[int]:
    """Run all of them in processes of their own, at the same moment; gives their exit codes."""
    gate, opener = os.pipe()
    children = [forked(partial(_ignoring_the_pipe, work, gate)) for work in works]
    time.sleep(0.1)
    os.write(opener, b"x" * len(works))
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child, _ in children]
    for handle in (gate, opener, *(reader for _, reader in children)):
        os.close(handle)
    return codes


@pytest.mark.prove
def test_two_processes_that_compact_one_thread_at_once_lose_nothing_and_write_nothing_twice(effort: Effort, tmp_path: Path) -> None:
    choose = random.Random(effort.seed)
    for run in range(effort(3, 100)):
        base = tmp_path / str(run)
        base.mkdir()
        said = settled(base, 8)
        delays = choose.uniform(0, 0.01), choose.uniform(0, 0.01)
        codes = together(*(partial(compact_once, base, delay) for delay in delays))
        if 0 not in codes or set(codes) - {0, 3}:
            effort.fail(f"run {run}: the processes ended with {codes}")
        for fault in faults(base, said):
            effort.fail(f"run {run}: {fault}")
        with conversation(base) as talking:
            talking.turn(900)


@pytest.mark.prove
def test_two_processes_whose_turns_compact_one_thread_at_once_lose_nothing_of_the_history(effort: Effort, tmp_path: Path) -> None:
    """Whose own turn prevails is the checkpointer's affair; what was there before is nobody's to lose."""
    choose = random.Random(effort.seed)
    for run in range(effort(3, 100)):
        base = tmp_path / str(run)
        base.mkdir()
        said = settled(base, 8)
        delays = {500: choose.uniform(0, 0.01), 600: choose.uniform(0, 0.01)}
        codes = together(*(partial(turn_once, base, number, delay) for number, delay in delays.items()))
        if 0 not in codes:
            effort.fail(f"run {run}: the processes ended with {codes}")
        for fault in faults(base, said):
            effort.fail(f"run {run}: {fault}")
        with conversation(base) as talking:
            talking.turn(900)
