"""A1, A15: a model that fails in the middle of its answer, alone and with others in line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.scripted_server import Said, ScriptedServer, scripted_server
from tests.unit.agents.bench import configured, look

from holdfast.agents.lead import LeadAgent, make_lead_agent
from holdfast.errors import CallFailed, CallUnavailable, ModelError
from holdfast.events import Bus
from holdfast.talk import Ended, ModelReplaced, Token

OVERLOADED = {"message": "Overloaded", "type": "overloaded_error"}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with scripted_server() as fake:
        yield fake


def agent_of(tmp_path: Path, *models: dict[str, Any]) -> LeadAgent:
    values = {"models": list(models), "title": {"enabled": False}, "memory": {"extractor": "rules"}}
    return make_lead_agent(configured(tmp_path, values), tools=[look], bus=Bus())


def test_an_error_in_a_stream_before_its_first_word_is_asked_again(tmp_path: Path, server: ScriptedServer) -> None:
    server.say(Said(error=OVERLOADED), "Here I am.")
    with agent_of(tmp_path, server.model()) as agent:
        assert agent.conversation("t").ask("Hello") == "Here I am."
    assert len(server.requests) == 2


def test_an_error_in_a_stream_after_its_first_words_is_told_and_the_conversation_goes_on(tmp_path: Path, server: ScriptedServer) -> None:
    server.say(Said("Half of", error=OVERLOADED))
    with agent_of(tmp_path, server.model()) as agent:
        talk = agent.conversation("t")
        with pytest.raises(CallUnavailable, match=r"the provider failed: Overloaded\. Try again later") as caught:
            talk.ask("Hello")
        assert (caught.value.kind, len(server.requests)) == ("server", 1), "what was read is not said again in other words"
        server.say("Here I am.")
        assert talk.ask("And now?") == "Here I am."


@pytest.mark.parametrize(
    ("error", "kind", "what"),
    [
        ({"message": "Rate limit reached", "type": "rate_limit_error"}, CallUnavailable, "rate_limit"),
        ({"message": "gateway trouble", "code": 502}, CallUnavailable, "server"),
        ({"message": "something nobody has a word for"}, CallFailed, "unknown"),
    ],
)
def test_whatever_a_server_says_in_a_stream_is_an_error_of_ours(
    tmp_path: Path, server: ScriptedServer, error: dict[str, Any], kind: type[ModelError], what: str
) -> None:
    server.say(Said("Half", error=error))
    with agent_of(tmp_path, server.model(max_retries=0)) as agent, pytest.raises(kind) as caught:
        agent.conversation("t").ask("Hello")
    assert getattr(caught.value, "kind", None) == what
    assert str(error["message"]) in caught.value.message


@pytest.mark.parametrize("how", [{"error": OVERLOADED}, {"breaks": True}])
def test_with_another_model_in_line_the_half_answer_is_no_part_of_the_answer(
    tmp_path: Path, server: ScriptedServer, how: dict[str, Any]
) -> None:
    server.say(Said("Half of a thing", **how), "The whole of it.")
    with agent_of(tmp_path, server.model(fallbacks=["second"]), server.model("second")) as agent:
        talk = agent.conversation("t")
        events = list(talk.send("Hello"))
        assert [message.text for message in talk.messages[1:]] == ["The whole of it."]
    replaced = next(number for number, event in enumerate(events) if isinstance(event, ModelReplaced))
    told = events[replaced]
    assert isinstance(told, ModelReplaced)
    assert (told.model, told.by) == ("main", "second")
    assert "main" in told.why
    assert "".join(event.text for event in events[:replaced] if isinstance(event, Token)) == "Half of a thing"
    assert "".join(event.text for event in events[replaced:] if isinstance(event, Token)) == "The whole of it."
    assert isinstance(events[-1], Ended)
    assert events[-1].text == "The whole of it."
