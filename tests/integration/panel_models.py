"""A chat model that a configuration can name, which speaks for whoever it is asked to be: `use: tests.integration.panel_models:PanelModel`.

`told` has every call: the model's name, who was to speak, and how many turns had been said.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.testing.models import ScriptedModel
from holdfast.testing.script import Request, structured

TOLD: list[tuple[str, str, int]] = []


def speaker(request: Request) -> str:
    """Who is asked: the participant, `moderator`, or `output`."""
    asked = [message.text for message in request.messages if message.type == "human"][-1]
    found = re.search(r"It is your turn, (.+)\.$", asked)
    return found[1] if found is not None else "moderator" if asked.endswith("Who speaks next?") else "output"


def said(request: Request) -> int:
    """How many turns the one who is asked has seen."""
    return len(re.findall(r"^## \d+\. ", request.text, re.MULTILINE))


def conclusion(stage: str, **more: Any) -> dict[str, Any]:
    found = {"summary": "They agreed on Heron.", "key_findings": [{"fact": "turn one was heard", "source": "turn 1"}], "confidence": "high"}
    return {"stage_name": stage, **found, "next_stage_recommendations": [], "raw_data_refs": [], **more}


class PanelModel(ScriptedModel):
    """Says in each turn who speaks, the name of the model and the number of the turn."""

    def __init__(self, model: str = "panel", **settings: Any) -> None:
        super().__init__(lambda request: self._answer(request), model_name=model, **settings)

    def _answer(self, request: Request) -> Any:
        who = speaker(request)
        TOLD.append((self.model_name, who, said(request)))
        if who == "output":
            stage = re.search(r"'enum': \['(\w+)'\]", str(request.tools))
            return structured(conclusion(stage[1] if stage is not None else "panel"))
        return f"{who} speaks by {self.model_name} in turn {said(request) + 1}."
