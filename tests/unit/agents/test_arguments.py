"""What a program gives wrongly is told when it is given, in words, with the name of the keyword (P1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool

from holdfast.agents.lead import make_lead_agent
from holdfast.agents.middleware.memory import MemoryMiddleware
from holdfast.agents.middleware.summarization import SummarizationMiddleware
from holdfast.config.loading import config_from_values
from holdfast.errors import ConfigError, InputError, ModelNotConfigured
from holdfast.extract.selection import SourceText, select
from holdfast.knowledge.adapters import open_knowledge
from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import call


def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means something"


def undocumented(word: str) -> str:
    return word


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


def scripted(*answers: Any) -> ScriptedModel:
    return ScriptedModel(list(answers), profile={"max_input_tokens": 8192})


def test_a_function_is_a_tool_of_the_lead_agent_as_in_create_agent() -> None:
    """A1: beside tools that were made already."""
    model = scripted([call("look_up", {"word": "heron"}), call("weather", {"city": "Rome"})], "done")
    with make_lead_agent(config_from_values({}), model=model, tools=[look_up, weather]) as agent:
        assert agent.conversation("t").ask("What is a heron?") == "done"
    results = [message.text for message in model.requests[-1].messages if message.type == "tool"]
    assert results == ["heron means something", "rain in Rome"]


@pytest.mark.parametrize(
    ("tools", "told"), [([5], "no tool"), ([undocumented], "undocumented"), ("look_up", "list of tools"), (look_up, "list of tools")]
)
def test_what_is_no_tool_is_named(tools: Any, told: str) -> None:
    """A1"""
    with pytest.raises(ConfigError, match="tools") as caught:
        make_lead_agent(config_from_values({}), model=scripted("x"), tools=tools)
    assert told in str(caught.value)


def test_a_model_is_looked_up_in_the_configuration_by_its_name() -> None:
    """C3, P1: another name is refused with those that there are."""
    models = [{"name": "small", "use": "langchain_openai:ChatOpenAI", "model": "m", "api_key": "k", "base_url": "http://127.0.0.1:9/v1"}]
    config = config_from_values({"models": models})
    with make_lead_agent(config, model="small", tools=[]) as agent:
        assert agent.graph is not None
    with pytest.raises(ModelNotConfigured, match="small"):
        make_lead_agent(config, model="smal", tools=[])
    with pytest.raises(TypeError, match="`model` takes a chat model"):
        make_lead_agent(config, model=5, tools=[])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`config` takes a configuration"):
        make_lead_agent("config.yaml", model=scripted("x"), tools=[])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"archive": "path"}, "FileArchive"),
        ({"on_leave": lambda thread, messages: None}, "list of functions"),
        ({"on_leave": ["name"]}, "list of functions"),
        ({"summary_role": "tool"}, "human or system"),
        ({"timeout": -1}, "more than 0"),
        ({"timeout": "5"}, "number"),
        ({"window": -5}, "at least 1"),
        ({"window": "8k"}, "whole number"),
        ({"trim_tokens_to_summarize": -3}, "at least 1"),
        ({"accounts": 3}, "accounts"),
        ({"recall": 5}, "recall"),
        ({"counted": 0}, "at least 1"),
    ],
)
def test_an_argument_of_the_summarization_that_cannot_be_is_told_at_once(given: dict[str, Any], told: str) -> None:
    """S16: not at the first call, nor at the first compaction in the middle of a run."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"`{name}`") as caught:
        SummarizationMiddleware(**given)
    assert told in str(caught.value)
    assert isinstance(caught.value, (TypeError, ValueError)), "as those of LangChain's own class are"


def test_a_memory_that_is_none_is_told_at_once() -> None:
    """P2"""
    with pytest.raises(TypeError, match="`service` takes a MemoryService"):
        MemoryMiddleware("home")  # type: ignore[arg-type]


def test_a_conversation_says_what_it_takes() -> None:
    """P1"""
    with make_lead_agent(config_from_values({}), model=scripted("a"), tools=[]) as agent:
        talk = agent.conversation("t")
        talk.ask("one")
        with pytest.raises(TypeError, match="`at` takes the id"):
            talk.branch(1)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="`text` takes text"):
            talk.ask(None)  # type: ignore[arg-type]


def test_numbers_of_a_search_are_numbers(tmp_path: Path) -> None:
    """K1, K4"""
    with open_knowledge(tmp_path / "k.db", embedder="none") as store:
        for wrong in ({"top_k": "3"}, {"budget": "5"}, {"top_k": 2.5}):
            with pytest.raises(TypeError, match=f"`{next(iter(wrong))}` takes a whole number"):
                store.search("heron", **wrong)
        with pytest.raises(InputError):
            store.search("heron", top_k=0)


def test_a_selection_says_what_it_takes() -> None:
    """W18"""
    with pytest.raises(TypeError, match="`sources` takes a list of SourceText"):
        select("text", budget=9)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="`budget` takes a whole number"):
        select([SourceText("a", "text")], budget="5")  # type: ignore[arg-type]
