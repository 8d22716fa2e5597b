"""O3: what the API says about the values of a request is what it takes."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_openai import ChatOpenAI
from pydantic import SecretStr, TypeAdapter, ValidationError

from holdfast.sandbox.uploads import clean_name
from holdfast.server.gateway.client_request import ClientRequest, _parameters
from holdfast.server.wire import Priority, VisibleText, saved_as
from holdfast.text.normalise import normalise


def _taken(text: str) -> bool:
    try:
        TypeAdapter(VisibleText).validate_python(text)
    except ValidationError:
        return False
    return True


def test_a_text_of_characters_that_nobody_sees_does_not_fit() -> None:
    """O3: what is empty once it is compared is refused by the description already, and nothing else is."""
    plane = [chr(code) for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    assert [one for one in plane if _taken(one) != bool(normalise(one))] == []
    assert _taken("\u200b\U0001f600") and not _taken("\u200b \x92")


def test_a_whole_number_is_one_as_json_knows_it() -> None:
    """O3: `-343.0` is an integer of a JSON schema; words, truth and halves are none."""
    whole = TypeAdapter(Priority)
    assert [whole.validate_python(json.loads(text)) for text in ("3", "-343.0", "1e3")] == [3, -343, 1000]
    assert whole.json_schema() == {"type": "integer", "minimum": -1_000_000, "maximum": 1_000_000}
    for text in ('"3"', "1e7", "true", "2.5", "null"):
        with pytest.raises(ValidationError):
            whole.validate_python(json.loads(text))


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"base_url": "http://127.0.0.1:8080/v1"}, {"extra_body": {"max_tokens": 9}}),
        ({"base_url": "http://127.0.0.1:8080/v1", "max_tokens": 500}, {"max_tokens": 9, "extra_body": {"max_tokens": 9}}),
        ({"base_url": "https://api.openai.com/v1"}, {"max_tokens": 9}),
    ],
)
def test_a_limit_reaches_other_servers_than_openais_under_the_name_that_they_know(settings: dict[str, Any], sent: dict[str, Any]) -> None:
    """O3: and a larger one that is configured does not count beside it."""
    model = ChatOpenAI(model="x", api_key=SecretStr("k"), **settings)
    assert _parameters(ClientRequest("x", (), parameters={"max_tokens": 9}), model) == sent


@given(st.text(max_size=80))
def test_a_file_is_saved_under_its_name_and_no_name_is_a_second_header(name: str) -> None:
    """O3: RFC 6266; whatever a file is called, the header is one line of ASCII that says one name."""
    header = saved_as(name)["content-disposition"]
    assert header.isascii() and header.isprintable()
    plain, _, encoded = header.removeprefix('attachment; filename="').partition('"')
    assert "/" not in plain and "\\" not in plain
    assert unquote(encoded.removeprefix("; filename*=UTF-8''")) in ("", clean_name(name))
