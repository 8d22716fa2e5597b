"""A1: which calls of an answer did not arrive whole, by what was heard while it came."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.tool import invalid_tool_call, tool_call, tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk

from holdfast.agents.middleware.broken_calls import Heard, broken_in, listening, unread, with_marks


def heard_of(*pieces: tuple[int | None, str | None, str | None, str], tags: list[str] | None = None) -> tuple[Heard, AIMessage]:
    """What was heard of these pieces (index, id, name, arguments), and the answer that LangChain made of them."""
    heard, run = Heard(), uuid4()
    parts = [tool_call_chunk(name=name, args=args, id=id, index=at) for at, id, name, args in pieces]
    chunks = [AIMessageChunk(content="", tool_call_chunks=[part]) for part in parts]
    for chunk in chunks:
        heard.on_llm_new_token("", chunk=ChatGenerationChunk(message=chunk), run_id=run, tags=tags)
    first, *rest = chunks
    whole = first + rest if rest else first
    return heard, AIMessage("", tool_calls=whole.tool_calls, invalid_tool_calls=whole.invalid_tool_calls)


def why(message: AIMessage) -> list[str]:
    """For each call why it is broken, or nothing."""
    return [broken_in(message).get(str(call["id"]), {}).get("why", "") for call in message.tool_calls]


def test_what_langchain_closed_is_seen_in_what_came() -> None:
    heard, answer = heard_of((0, "a", "bash", '{"command": '), (0, None, None, '"rm -rf proj'))
    assert answer.tool_calls[0]["args"] == {"command": "rm -rf proj"}, "LangChain closes it"
    marked = with_marks(answer, heard)
    assert why(marked) == ["malformed"]
    assert broken_in(marked)["a"]["text"] == '{"command": "rm -rf proj'


def test_a_whole_answer_is_the_same_object() -> None:
    heard, answer = heard_of((0, "a", "bash", '{"command": "ls"}'), (1, "b", "bash", ""))
    assert with_marks(answer, heard) is answer


def test_calls_that_could_not_be_read_stand_in_their_order_among_the_others() -> None:
    heard, answer = heard_of((0, "a", "bash", "[1]"), (1, "b", "ls", '{"path": "x"}'), (2, "c", "ls", "nonsense"))
    marked = with_marks(answer, heard)
    assert [call["id"] for call in marked.tool_calls] == ["a", "b", "c"]
    assert why(marked) == ["malformed", "", "malformed"]
    assert marked.invalid_tool_calls == []


def test_calls_without_ids_get_some_when_they_are_refused() -> None:
    heard, answer = heard_of((0, None, "bash", '{"command": "x'), (1, "", "ls", "[]"))
    marked = with_marks(answer, heard)
    assert len({call["id"] for call in marked.tool_calls}) == 2
    assert why(marked) == ["malformed", "malformed"]


@pytest.mark.parametrize("ending", [{"finish_reason": "length"}, {"stop_reason": "max_tokens"}, {"done_reason": "length"}])
def test_of_a_cut_answer_the_last_call_is_broken_and_where_the_order_is_not_known_all_that_may_be_last(ending: dict[str, Any]) -> None:
    calls = [tool_call(name="ls", args={"path": name}, id=name) for name in "ab"]
    assert why(with_marks(AIMessage("", tool_calls=calls, response_metadata=ending))) == ["", "cut"]
    wrong = invalid_tool_call(name="ls", args='{"path": "c', id="c", error="no JSON")
    marked = with_marks(AIMessage("", tool_calls=calls, invalid_tool_calls=[wrong], response_metadata=ending))
    assert why(marked) == ["", "cut", "cut"]
    assert with_marks(AIMessage("cut words", response_metadata=ending)).tool_calls == []


def test_what_is_asked_quietly_beside_an_answer_is_not_heard() -> None:
    heard, _ = heard_of((0, "a", "bash", '{"command": "x'), tags=["nostream"])
    assert (heard.calls(), heard.spoke) == ([], False)


def test_one_who_listens_inside_of_another_hears_the_same() -> None:
    with listening() as outer, listening() as inner:
        assert inner is outer
    with listening() as later:
        assert later is not outer


def test_only_an_answer_that_cannot_be_put_into_a_message_is_taken_from_an_error() -> None:
    with pytest.raises(ValueError) as caught:
        AIMessage("", tool_calls=[{"name": "ls", "args": [1, 2], "id": "a", "type": "tool_call"}])
    made = unread(caught.value)
    assert why(made) == ["malformed"]
    assert next(iter(broken_in(made).values()))["text"] == "[1, 2]"
    with pytest.raises(ValueError, match="another"):
        unread(ValueError("another"))
