"""A model that cannot call tools picks from a menu: what it is shown, what it may write, and how that is read (A15)."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool

from holdfast.errors import InputError
from holdfast.models.held_stream import AnswerText, HeldStream
from holdfast.models.tool_menu import ToolMenu, told_as_text


@tool
def weather(city: str, share: float = 0.5) -> str:
    """The weather
    in a city."""
    return city


TOOLS = [
    convert_to_openai_tool(weather),
    {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}},
]
RATE = {
    "type": "function",
    "function": {
        "name": "rate",
        "description": "Rate.",
        "parameters": {"type": "object", "properties": {"share": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["share"]},
    },
}


def branches(menu: ToolMenu) -> list[str]:
    schema = menu.schema
    shown = schema.get("anyOf", [schema])
    return [branch["properties"].get("tool", {}).get("const", "(answer)") for branch in shown]


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ["weather", "now", "(answer)"]),
        ("auto", ["weather", "now", "(answer)"]),
        ("any", ["weather", "now"]),
        ("required", ["weather", "now"]),
        (True, ["weather", "now"]),
        ("none", ["(answer)"]),
        ("now", ["now"]),
        ({"type": "function", "function": {"name": "weather"}}, ["weather"]),
    ],
)
def test_the_choice_decides_what_may_be_written(choice: Any, expected: list[str]) -> None:
    assert branches(ToolMenu.of(TOOLS, choice, 300)) == expected


def test_a_choice_or_a_budget_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="weather, now"):
        ToolMenu.of(TOOLS, "hammer", 300)
    with pytest.raises(InputError, match="the tool weather cannot be called"):
        ToolMenu.of(TOOLS, "any", 45)


def test_the_menu_is_told_in_the_system_message_and_braces_of_tools_are_only_text() -> None:
    strange = {"type": "function", "function": {"name": "f", "description": "Takes {tools} and {0}.", "parameters": {}}}
    told = ToolMenu.of([*TOOLS, strange], None, 400).told([SystemMessage("Be kind."), HumanMessage("Hi")])
    assert isinstance(told[0], SystemMessage)
    assert told[0].text.startswith("Be kind.\n\n")
    assert '{"tool": "weather", "arguments": {"city": ..., "share": ...}} The weather in a city.' in told[0].text
    assert "Takes {tools} and {0}." in told[0].text
    assert isinstance(ToolMenu.of(TOOLS, None, 300).told([HumanMessage("Hi")])[0], SystemMessage)


def test_a_chosen_tool_becomes_a_call_with_fractions_turned_back() -> None:
    written = AIMessage('{"tool": "rate", "arguments": {"share": 25}}')
    message = ToolMenu.of([RATE], "any", 200).read(written, "call_1")
    assert message.text == ""
    assert [(made["name"], made["args"], made["id"]) for made in message.tool_calls] == [("rate", {"share": 0.25}, "call_1")]


def test_an_answer_becomes_text_and_a_value_becomes_json() -> None:
    assert ToolMenu.of(TOOLS, None, 300).read(AIMessage('{"answer": "Say \\"hi\\""}'), "x").text == 'Say "hi"'
    schema = {"type": "object", "properties": {"sure": {"type": "number", "minimum": 0, "maximum": 1}}, "required": ["sure"]}
    menu = ToolMenu.of(TOOLS, None, 300, answer=schema)
    assert json.loads(menu.read(AIMessage('{"answer": {"sure": 80}}'), "x").text) == {"sure": 0.8}


def test_a_cut_text_is_taken_as_far_as_it_goes_but_a_cut_call_is_an_error() -> None:
    menu = ToolMenu.of(TOOLS, None, 300)
    assert menu.read(AIMessage('{"answer": "It is sun'), "x").text == "It is sun"
    for useless in ('{"tool": "weather", "arguments": {"ci', '{"tool": "unknown", "arguments": {}}', "plain text", "[1]", ""):
        with pytest.raises(OutputParserException, match="did not finish"):
            menu.read(AIMessage(useless), "x")


def test_calls_and_results_are_told_as_text_and_neighbours_are_joined() -> None:
    calls = [{"name": "weather", "args": {"city": "Rome"}, "id": "1"}, {"name": "now", "args": {}, "id": "2"}]
    history: list[BaseMessage] = [
        HumanMessage("Weather?"),
        AIMessage("", tool_calls=calls),
        ToolMessage("sunny", tool_call_id="1"),
        ToolMessage("noon", tool_call_id="2"),
        ToolMessage("lost", tool_call_id="9"),
        HumanMessage("And?"),
        AIMessage("Sunny."),
        AIMessage(""),
    ]
    told = told_as_text(history, in_json=True)
    assert [message.type for message in told] == ["human", "ai", "human", "ai"]
    assert told[1].text == '{"tool": "weather", "arguments": {"city": "Rome"}}\n{"tool": "now", "arguments": {}}'
    assert told[2].text == "Result of weather: sunny\n\nResult of now: noon\n\nResult of a tool: lost\n\nAnd?"
    assert told[3].text == '{"answer": "Sunny."}'
    assert told_as_text(history)[3].text == "Sunny."
    assert history[1].tool_calls == [{**call, "type": "tool_call"} for call in calls]  # type: ignore[attr-defined]


def test_a_repeated_call_is_replaced_by_an_answer_or_by_another_tool() -> None:
    call = {"name": "now", "args": {}, "id": "1"}
    history: list[BaseMessage] = [HumanMessage("Time?"), AIMessage("", tool_calls=[call]), ToolMessage("noon", tool_call_id="1")]
    again = AIMessage("", tool_calls=[{**call, "id": "2"}])
    other = AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Rome"}, "id": "2"}])
    free, forced = ToolMenu.of(TOOLS, None, 300), ToolMenu.of(TOOLS, "any", 300)
    assert free.instead_of(again, history, {"tools": TOOLS}) == {"tools": TOOLS, "tool_choice": "none"}
    assert forced.instead_of(again, history, {"tools": TOOLS}) == {"tools": TOOLS[:1]}
    assert ToolMenu.of(TOOLS, "now", 300).instead_of(again, history, {"tools": TOOLS}) is None
    assert free.instead_of(other, history, {"tools": TOOLS}) is None
    assert free.instead_of(again, [*history, HumanMessage("And now?")], {"tools": TOOLS}) is None
    assert free.instead_of(AIMessage("Noon."), history, {"tools": TOOLS}) is None


@settings(deadline=None)
@given(st.text(max_size=60), st.integers(1, 7), st.booleans())
def test_the_pieces_of_a_streamed_answer_add_up_to_it(text: str, size: int, ascii_only: bool) -> None:
    written = json.dumps({"answer": text}, ensure_ascii=ascii_only)
    reader = AnswerText()
    pieces = [reader.feed(written[start : start + size]) for start in range(0, len(written), size)]
    assert "".join(pieces) == text
    assert all(piece.encode() is not None for piece in pieces)


def _chunks(written: str, size: int = 3) -> list[ChatGenerationChunk]:
    pieces = [AIMessageChunk(content=written[start : start + size]) for start in range(0, len(written), size)]
    usage = UsageMetadata(input_tokens=1, output_tokens=2, total_tokens=3)
    return [ChatGenerationChunk(message=piece) for piece in [*pieces, AIMessageChunk(content="", usage_metadata=usage)]]


@pytest.mark.parametrize(
    ("written", "text", "calls"),
    [
        ('{"answer":"It is noon."}', "It is noon.", []),
        ('{"tool":"weather","arguments":{"city":"Rome"}}', "", [("weather", {"city": "Rome"})]),
    ],
)
def test_a_streamed_choice_is_text_as_it_comes_or_a_call_at_the_end(written: str, text: str, calls: list[Any]) -> None:
    menu = ToolMenu.of(TOOLS, None, 300)
    stream = HeldStream(lambda message: menu.read(message, "call_1"), text_in_answer=True)
    early = [fresh for chunk in _chunks(written) if (fresh := stream.feed(chunk)) is not None]
    assert (len(early) > 1) == bool(text)
    whole: Any = AIMessageChunk(content="")
    for chunk in [*early, *stream.finish(stream.message())]:
        whole += chunk.message
    assert whole.text == text
    assert [(made["name"], made["args"]) for made in whole.tool_calls] == calls
    assert whole.usage_metadata["total_tokens"] == 3


def test_serving_a_model_needs_no_langchain_until_a_chat_model_is_made() -> None:
    rooms = "import sys, holdfast.models.local, holdfast.models.weights, holdfast.models.abilities\n"
    code = rooms + "print([m for m in sys.modules if m.startswith(('langchain', 'openai', 'xllamacpp'))])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
