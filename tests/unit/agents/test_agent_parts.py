"""A1, A13: the small parts of an agent on their own."""

from __future__ import annotations

import asyncio
import contextvars
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from holdfast.agents.middleware.model_calls import RunAccounts, extracted_title
from holdfast.agents.middleware.tool_calls import decision_of, failed_result, question_in, since_user
from holdfast.agents.turn import LoopThread
from holdfast.context.view import MARK
from holdfast.errors import StorageError
from holdfast.events import Bus


def test_a_title_is_the_beginning_of_what_was_said() -> None:
    assert extracted_title("Plan the move. We have until May.") == "Plan the move"
    assert extracted_title("one two three four five six seven") == "one two three four five six ..."
    assert extracted_title("  ") == ""
    assert extracted_title("<uploaded_files>a.pdf</uploaded_files>What does it say?") == "What does it say"


@given(st.text(max_size=300))
def test_a_title_is_one_short_line_whatever_was_said(text: str) -> None:
    title = extracted_title(text)
    assert len(title) <= 64
    assert "\n" not in title


def test_what_came_back_to_an_approval_is_a_yes_only_when_it_says_so() -> None:
    assert decision_of({"type": "approve"}).type == "approve"
    assert decision_of({"type": "edit", "args": {"a": 1}}).args == {"a": 1}
    others: list[object] = [None, True, "approve", {"type": "yes"}, {"type": "edit"}, []]
    for other in others:
        assert decision_of(other).type == "reject"


def test_a_question_counts_only_when_it_was_asked_now() -> None:
    asked = AIMessage("", tool_calls=[{"name": "ask_clarification", "args": {"question": "Which?"}, "id": "1"}])
    told = ToolMessage("ok", tool_call_id="1")
    assert question_in([HumanMessage("x"), asked, told]) == "Which?"
    assert question_in([asked, told, AIMessage("Which?"), HumanMessage("that one")]) is None
    assert question_in([asked, ToolMessage("bad", tool_call_id="1", status="error")]) is None


def test_a_summary_does_not_begin_a_turn_of_the_user() -> None:
    summary = HumanMessage("notes", additional_kwargs={MARK: {"summary": "model"}})
    messages = [HumanMessage("a"), AIMessage("b"), summary, AIMessage("c")]
    assert list(since_user(messages)) == messages[1:]


def test_an_error_is_told_shortly() -> None:
    told = failed_result({"id": "1", "name": "x"}, ValueError("long " * 5_000))
    assert told.status == "error"
    assert len(told.text) < 2_100


def test_what_runs_on_the_loop_sees_nothing_of_its_caller() -> None:
    """A3"""
    mine = contextvars.ContextVar("mine", default="nothing")
    mine.set("secret")
    loop = LoopThread()

    async def look() -> str:
        return mine.get()

    try:
        assert loop.run(look()) == "nothing"
    finally:
        loop.close()
    with pytest.raises(StorageError, match="is closed"):
        loop.loop  # noqa: B018 - reading it starts it


def test_closing_the_loop_cancels_what_runs_on_it() -> None:
    loop = LoopThread()
    ended = []

    async def wait() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    work = loop.submit(wait())
    while not work.running() and not loop.loop.is_running():
        time.sleep(0.001)
    loop.run(asyncio.sleep(0))
    loop.close()
    assert ended == [True]


def test_old_runs_are_added_up_and_nothing_is_lost() -> None:
    """T5"""
    accounts = RunAccounts(runs=3, bus=Bus())
    usage = {"input_tokens": 10, "output_tokens": 1}
    for number in range(10):
        accounts.charge(usage, model="m", session="s", run=f"r{number}")
        accounts.charge(usage, model="m", session="s", run=f"r{number}", subagent=f"a{number}")
    assert accounts.total(session="s").tokens == 220
    assert set(accounts.by("run")) == {None, "r7", "r8", "r9"}
    assert accounts.used_in("s", "r9") == 22
    assert accounts.settle("a9") == 11
    assert accounts.used_by("a9") == 0
