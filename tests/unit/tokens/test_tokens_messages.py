"""Counting messages, images and tool definitions, with LangChain's own objects (T1)."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, Field

from holdfast.tokens.counter import BaseCounter, ExactCounter, open_counter
from holdfast.tokens.messages import (
    CALL_OVERHEAD,
    FILE_PAGE_TOKENS,
    MEDIA_TOKENS,
    MESSAGE_OVERHEAD,
    Message,
    image_size,
    image_tokens,
    mark_of,
)


class Letters(BaseCounter):
    """One token a letter, and 1,000,000 for each image: sums can be read off."""

    def count_text(self, text: str) -> int:
        return len(text)

    def count_image(self, width: int | None = None, height: int | None = None, detail: str | None = None) -> int:
        return 1_000_000 + (width or 0) * 1000 + (height or 0)


def of(content: Any) -> int:
    """The tokens of this content in a message, without the overhead."""
    return Letters().count_message(HumanMessage(content)) - MESSAGE_OVERHEAD


def png(width: int, height: int) -> bytes:
    head = struct.pack(">II5B", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + head + struct.pack(">I", zlib.crc32(b"IHDR" + head))


def jpeg(width: int, height: int, *, before: int = 0) -> bytes:
    comment = b"".join(b"\xff\xfe" + struct.pack(">H", 60_002) + b"c" * 60_000 for _ in range(before))
    return b"\xff\xd8" + comment + b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_langchains_messages_are_messages_unchanged() -> None:
    messages: list[Message] = [HumanMessage("hi"), AIMessage("ho"), SystemMessage("s"), ToolMessage("r", tool_call_id="c")]
    assert Letters().count_messages(messages) == 4 * MESSAGE_OVERHEAD + 6


def test_text_blocks_and_plain_strings_in_a_list_are_counted() -> None:
    assert of(["ab", {"type": "text", "text": "cde"}, {"type": "input_text", "text": "f"}]) == 6
    assert of([]) == 0
    assert of("") == 0


def test_a_name_is_counted() -> None:
    assert Letters().count_message(HumanMessage("ab", name="ann")) == MESSAGE_OVERHEAD + 2 + 1 + 3


def test_tool_calls_are_counted_by_name_and_arguments() -> None:
    calls = [{"name": "look", "args": {"q": "é"}, "id": "call_1"}, {"name": "go", "args": {}, "id": "call_2"}]
    message = AIMessage("x", tool_calls=calls)
    assert Letters().count_message(message) == MESSAGE_OVERHEAD + 1 + 2 * CALL_OVERHEAD + len('look {"q": "é"}') + len("go {}")


def test_invalid_tool_calls_are_counted_by_the_text_that_did_not_parse() -> None:
    message = AIMessage(
        "", invalid_tool_calls=[{"name": "look", "args": '{"q": ', "id": "c", "error": "bad JSON", "type": "invalid_tool_call"}]
    )
    assert Letters().count_message(message) == MESSAGE_OVERHEAD + CALL_OVERHEAD + len('look {"q": ')


def test_a_call_that_stands_in_the_content_and_in_tool_calls_is_counted_once() -> None:
    block = {"type": "tool_use", "id": "t1", "name": "look", "input": {"q": 1}}
    call = {"name": "look", "args": {"q": 1}, "id": "t1"}
    both = AIMessage([{"type": "text", "text": "ab"}, block], tool_calls=[call])
    assert Letters().count_message(both) == Letters().count_message(AIMessage("ab", tool_calls=[call]))
    assert of([block]) == CALL_OVERHEAD + len('look {"q": 1}')
    openai = {"type": "function_call", "call_id": "t1", "id": "fc_9", "name": "look", "arguments": '{"q": 1}'}
    assert Letters().count_message(AIMessage([openai], tool_calls=[call])) == Letters().count_message(AIMessage("", tool_calls=[call]))


def test_raw_calls_of_the_provider_count_only_when_no_parsed_ones_exist() -> None:
    raw = {"tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}]}

    @dataclass
    class Plain:
        id: str | None
        type: str
        content: Any
        additional_kwargs: dict[str, Any]

    assert Letters().count_message(Plain("1", "ai", "", raw)) == MESSAGE_OVERHEAD + CALL_OVERHEAD + len('look {"q": 1}')
    parsed = AIMessage("", tool_calls=[{"name": "look", "args": {"q": 1}, "id": "c"}], additional_kwargs=raw)
    assert Letters().count_message(parsed) == MESSAGE_OVERHEAD + CALL_OVERHEAD + len('look {"q": 1}')


def test_tool_results_are_counted_with_what_is_in_them() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(png(3, 5))}}
    block = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "abc"}, image]}
    assert of([block]) == CALL_OVERHEAD + 3 + 1_003_005
    assert of([{"type": "tool_result", "tool_use_id": "t1", "content": "abc"}]) == CALL_OVERHEAD + 3


def test_reasoning_is_counted_by_its_text_and_what_is_hidden_by_its_size() -> None:
    assert of([{"type": "thinking", "thinking": "hmm", "signature": "x" * 500}]) == 3
    assert of([{"type": "reasoning", "reasoning": "hmmm"}]) == 4
    assert (
        of([{"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "e" * 50}]) == 2 + 10
    )
    assert of([{"type": "redacted_thinking", "data": "d" * 100}]) == 20
    assert Letters().count_message(AIMessage("a", additional_kwargs={"reasoning_content": "bc"})) == MESSAGE_OVERHEAD + 3


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + encoded(png(640, 480))}},
        {"type": "image_url", "image_url": "data:image/png;base64," + encoded(png(640, 480))},
        {"type": "input_image", "image_url": "data:image/png;base64," + encoded(png(640, 480))},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": encoded(png(640, 480))}},
        {"type": "image", "base64": encoded(png(640, 480)), "mime_type": "image/png"},
        {"type": "image", "source_type": "base64", "data": encoded(png(640, 480)), "mime_type": "image/png"},
        {"type": "media", "data": encoded(png(640, 480)), "mime_type": "image/png"},
        {"type": "image", "file_id": "f", "width": 640, "height": 480},
    ],
)
def test_an_image_is_counted_by_its_size_in_every_form(block: dict[str, Any]) -> None:
    assert of([block]) == 1_640_480


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
        {"type": "image", "file_id": "f"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!!! not base64"}},
        {"type": "image_url", "image_url": {"url": "data:image/png,plain"}},
        {"type": "image_url", "image_url": None},
        {"type": "image"},
        {"type": "image", "base64": encoded(b"\x89PNG\r\n\x1a\n")},
    ],
)
def test_an_image_whose_size_is_not_known_counts_as_a_usual_one(block: dict[str, Any]) -> None:
    assert of([block]) == 1_000_000
    assert ExactCounter().count_message(HumanMessage([block])) == MESSAGE_OVERHEAD + image_tokens(1024, 1024)


@pytest.mark.parametrize(
    ("head", "size"),
    [
        (png(1, 70_000), (1, 70_000)),
        (jpeg(800, 600), (800, 600)),
        (jpeg(800, 600, before=3), (800, 600)),
        (b"GIF89a" + struct.pack("<HH", 320, 200), (320, 200)),
        (b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + (99).to_bytes(3, "little") + (49).to_bytes(3, "little"), (100, 50)),
        (b"RIFF\0\0\0\0WEBPVP8L" + bytes(4) + b"\x2f" + (((49) << 14) | 99).to_bytes(4, "little") + bytes(8), (100, 50)),
        (b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 100, 50), (100, 50)),
        (png(0, 5), None),
        (b"\xff\xd8\xff\xe0\x00\x00", None),
        (b"\xff\xd8" + b"\x00" * 40, None),
        (b"%PDF-1.7", None),
        (b"", None),
    ],
)
def test_the_size_is_read_from_the_first_bytes(head: bytes, size: tuple[int, int] | None) -> None:
    assert image_size(head) == size
    if size:
        assert of([{"type": "image", "base64": encoded(head)}]) == 1_000_000 + size[0] * 1000 + size[1]


@pytest.mark.parametrize(
    ("width", "height", "detail", "provider", "tokens"),
    [
        (1024, 1024, None, None, 765),  # the examples of the providers' documentation
        (2048, 4096, "high", "openai", 1105),
        (4096, 8192, "low", "openai", 85),
        (100, 100, None, "openai", 255),
        (1000, 1000, None, "anthropic", 1334),
        (200, 200, None, "anthropic", 54),
        (8000, 8000, None, "anthropic", 1600),
        (384, 384, None, "google", 258),
        (960, 540, None, "google", 516),
        (None, None, None, "anthropic", 1399),
        (-4, 7, None, None, 765),
    ],
)
def test_images_cost_what_the_providers_formula_says(
    width: int | None, height: int | None, detail: str | None, provider: str | None, tokens: int
) -> None:
    assert image_tokens(width, height, detail=detail, provider=provider) == tokens


def test_the_formula_follows_the_model_and_the_factor_does_not_touch_images() -> None:
    assert open_counter(model="claude-sonnet-4-6").count_image(200, 200) == 54
    assert open_counter("approximate", model="gemini-3").count_image(10, 10) == 258
    assert open_counter(model="gpt-4o").count_image(1024, 1024) == 765


def test_files_are_counted_by_text_or_pages() -> None:
    pdf = encoded(b"%PDF-1.7 /Type /Pages /Kids 1 0 R <</Type /Page >> <</Type/Page >>")
    assert of([{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": pdf}}]) == 2 * FILE_PAGE_TOKENS
    assert of([{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64," + pdf}}]) == 2 * FILE_PAGE_TOKENS
    assert of([{"type": "file", "file": {"file_id": "f1"}}]) == FILE_PAGE_TOKENS
    assert of([{"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "abcd"}}]) == 4
    assert of([{"type": "text-plain", "text": "abcd"}]) == 4
    assert of([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}]) == MEDIA_TOKENS


def test_a_block_of_a_kind_that_is_not_known_counts_as_its_json() -> None:
    block = {"type": "new_kind", "value": 1}
    assert of([block]) == len(json.dumps(block))
    looped: dict[str, Any] = {"type": "odd"}
    looped["self"] = looped
    assert Letters().count_message({"role": "user", "content": [looped]}) > 0  # type: ignore[arg-type]  # dicts are counted too


def test_dicts_with_role_and_content_are_counted_too() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": {"name": "go", "arguments": "{}"}}]}
    assert Letters().count_message(message) == MESSAGE_OVERHEAD + CALL_OVERHEAD + len("go {}")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (HumanMessage("a"), HumanMessage("b")),
        (HumanMessage("a"), HumanMessage(["a", "b"])),
        (HumanMessage([{"type": "text", "text": "a"}]), HumanMessage([{"type": "text", "text": "b"}])),
        (AIMessage("a"), AIMessage("a", tool_calls=[{"name": "x", "args": {}, "id": "1"}])),
        (
            AIMessage("a", tool_calls=[{"name": "x", "args": {"n": 1}, "id": "1"}]),
            AIMessage("a", tool_calls=[{"name": "x", "args": {"n": True}, "id": "1"}]),
        ),
        (HumanMessage("a"), HumanMessage("a", name="n")),
        (AIMessage("a"), AIMessage("a", additional_kwargs={"reasoning_content": "r"})),
    ],
)
def test_the_mark_tells_an_edited_message_from_the_original(one: BaseMessage, other: BaseMessage) -> None:
    assert mark_of(one) != mark_of(other)
    assert mark_of(one) == mark_of(one.model_copy(deep=True))


# ------------------------------------------------------------------ tools


class Query(BaseModel):
    """What to look for."""

    title: str = Field(description="a property that is called title")
    limit: int = 5
    kinds: list[Literal["note", "task"]] | None = None


@tool
def search(query: str, limit: int = 5, tags: list[str] | None = None) -> str:
    """Search the notes for a text."""
    return ""


@tool(args_schema=Query)
def find(title: str, limit: int = 5, kinds: list[str] | None = None) -> str:
    """Find things by their title."""
    return ""


def plain(query: str, limit: int = 3, kind: Literal["a", "b"] = "a", exact: bool = False) -> str:
    """Do a plain thing."""
    return ""


@pytest.mark.parametrize("thing", [search, find])
def test_a_langchain_tool_counts_as_the_json_that_is_sent(thing: Any) -> None:
    sent = json.dumps(convert_to_openai_tool(thing), ensure_ascii=False)
    assert Letters().count_tools([thing]) == len(sent)


def test_dicts_models_and_functions_are_tools_too() -> None:
    counter = ExactCounter()
    raw = {"type": "web_search", "name": "web_search", "max_uses": 3}
    assert counter.count_tools([raw]) == counter.count_text(json.dumps(raw))
    for thing in (Query, plain):
        sent = counter.count_text(json.dumps(convert_to_openai_tool(thing)))
        assert counter.count_tools([thing]) == pytest.approx(sent, rel=0.25)
    assert counter.count_tools([search, raw]) == counter.count_tools([search]) + counter.count_tools([raw])
    assert counter.count_tools([]) == 0
    assert counter.count_tools([print, object()]) > 0


def test_a_tool_is_counted_once_and_its_copy_is_recognised() -> None:
    texts: list[str] = []

    class Watching(BaseCounter):
        def count_text(self, text: str) -> int:
            texts.append(text)
            return len(text)

    counter = Watching()
    first = counter.count_tools([find, search])
    assert len(texts) == 2
    assert counter.count_tools([find, search]) == first
    assert counter.count_tools([find.model_copy(), search]) == first
    assert len(texts) == 2
    changed = find.model_copy(update={"description": "Find things by anything at all."})
    assert counter.count_tools([changed, search]) != first
    assert len(texts) == 3
    raw = {"type": "web_search"}
    assert counter.count_tools([raw, plain]) == counter.count_tools([raw, plain])
    assert len(texts) == 5


def test_counts_of_tools_that_are_gone_are_not_given_to_new_ones_in_their_place() -> None:
    counter = Letters()
    for size in range(300):
        assert counter.count_tools([{"n": "x" * size}]) == len(json.dumps({"n": "x" * size}))
