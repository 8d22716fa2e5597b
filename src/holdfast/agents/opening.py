"""`open_conversation`: with the model that the configuration names, or without any (A14, A15)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.config.loading import load_config
from holdfast.config.sections import Config
from holdfast.models.choice import pick

if TYPE_CHECKING:
    from holdfast.agents.conversation import Conversation
    from holdfast.agents.extractive import ExtractiveConversation


def open_conversation(
    config: Config | None = None, thread: str | None = None, *, agent: str | None = None, **parts: Any
) -> Conversation | ExtractiveConversation:
    """A conversation, new or where it was left. Without a model it answers by extraction, and says so.

    `parts` go to `make_lead_agent` (`model`, `tools`, `clock`, `ids`, `bus` and so on). Close it when done.
    """
    config = load_config() if config is None else config
    if parts.get("model") is None and pick(config).config is None:
        from holdfast.agents.extractive import ExtractiveConversation

        known = {name: parts[name] for name in ("clock", "ids", "bus") if name in parts}
        return ExtractiveConversation(config, thread, agent=agent, **known)
    from holdfast.agents.conversation import Conversation
    from holdfast.agents.lead import make_lead_agent

    made = make_lead_agent(config, agent=agent, **parts)
    try:
        return Conversation(made, thread, owns_agent=True)
    except BaseException:
        made.close()
        raise
