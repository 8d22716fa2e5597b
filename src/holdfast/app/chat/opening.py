"""Which conversation `holdfast chat` opens: with which model, and where it goes on (A14, A15)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import InputError
from holdfast.models.choice import pick
from holdfast.models.factory import abilities_of, create_chat_model

if TYPE_CHECKING:
    from holdfast.config.sections import Config


@contextmanager
def open_talk(
    config: Config, *, thread: str | None = None, resume: bool = False, agent: str | None = None, model: str | None = None
) -> Iterator[Any]:
    """The conversation, closed at the end. A small model that merely happens to be installed is not talked to unless it is named."""
    if model is None and _answers_by_extraction(config):
        from holdfast.agents.extractive import ExtractiveConversation

        talk: Any = ExtractiveConversation(config, thread, agent=agent)
        if resume and thread is None:
            newest = max((talk.archive.stats(name) for name in talk.archive.threads()), key=lambda stats: stats.last, default=None)
            talk.close()
            talk = ExtractiveConversation(config, _found(newest.thread if newest else None), agent=agent)
    else:
        from holdfast.agents.conversation import Conversation
        from holdfast.agents.lead import make_lead_agent

        made = make_lead_agent(config, agent=agent, model=create_chat_model(model, config=config, retries=False) if model else None)
        try:
            if resume and thread is None:
                used = made.parts.threads.all(agent=agent) if agent else made.parts.threads.all()
                thread = _found(used[0].id if used else None)
            talk = Conversation(made, thread, owns_agent=True)
        except BaseException:
            made.close()
            raise
    try:
        yield talk
    finally:
        talk.close()


def _found(thread: str | None) -> str:
    if thread is None:
        raise InputError("there is no conversation to resume yet.", hint="Begin one: holdfast chat.")
    return thread


def _answers_by_extraction(config: Config) -> bool:
    choice = pick(config)
    return choice.config is None or (not config.models and not abilities_of(choice.config).can("extraction"))


def described(talk: Any) -> str:
    """With whom one talks, in a few words."""
    agent = getattr(talk, "agent", None)
    if agent is None:
        return "without a model: answers are looked up in memory, history and knowledge"
    name = getattr(agent.model, "model_name", None) or getattr(agent.model, "model", None) or type(agent.model).__name__
    return f"{agent.name or 'the lead agent'} with {name}"
