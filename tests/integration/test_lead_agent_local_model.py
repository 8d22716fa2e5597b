"""A real conversation with the small model that a package carries: a fact told in one conversation is in the prompt of another, after a
restart (A14, A15, M8, M12), and its words are streamed.

What the model says is not judged. One thread and short answers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.agents.lead import make_lead_agent
from holdfast.config.loading import config_from_values
from holdfast.config.sections import Config
from holdfast.errors import ModelUnavailable
from holdfast.events import Bus
from holdfast.models.local_model import LocalChat, local_chat_model
from holdfast.models.weights import find_weights
from holdfast.talk import Ended, Token


@pytest.fixture(scope="module")
def model() -> Iterator[LocalChat]:
    try:
        import xllamacpp  # type: ignore[import-untyped,import-not-found,unused-ignore]  # noqa: F401 - only whether it is there

        find_weights("smollm2")
    except (ImportError, ModelUnavailable) as error:
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(f"the local model cannot be tried: {error}")
        pytest.skip(f"the local model cannot be tried: {error}")
    chat = local_chat_model("smollm2", window=4096, threads=1, max_tokens=24)
    yield chat
    chat.server.close()


def test_a_fact_from_one_conversation_is_in_the_prompt_of_another_after_a_restart(
    model: LocalChat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Config = config_from_values({"memory": {"extractor": "rules"}}, environ={"HOLDFAST_HOME": str(tmp_path)})
    with make_lead_agent(config, model=model, tools=[], bus=Bus()) as agent:
        events = list(agent.conversation("first").send("Hello. I live in Ghent and I prefer short answers."))
    end = events[-1]
    assert isinstance(end, Ended)
    assert end.text.strip()
    assert "".join(event.text for event in events if isinstance(event, Token)) == end.text
    assert sum(isinstance(event, Token) for event in events) > 1, "it comes in pieces"
    sent: list[str] = []
    real = LocalChat._astream

    async def watched(self: Any, messages: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append("\n".join(message.text for message in messages))
        async for piece in real(self, messages, *args, **kwargs):
            yield piece

    monkeypatch.setattr(LocalChat, "_astream", watched)
    with make_lead_agent(config, model=model, tools=[], bus=Bus()) as agent:
        assert agent.conversation("first").title == "Hello"
        list(agent.conversation("second").send("Where should we meet?"))
    assert "Ghent" in sent[0], "what was learned is in the prompt of the other conversation"
    assert "<memory>" in sent[0]
