"""Stage agents that ask a language model: planner, researcher, coder, synthesizer, writer and plain llm (W12).

May import every room but `app` and `testing`.
Start with `model_stage.py`, which asks for an output in the contract's form and checks every finding against its source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.agents.stages.model_stage import ModelStage
    from holdfast.agents.stages.opening import stage_agents

__all__ = ["ModelStage", "stage_agents"]

__getattr__, __dir__ = exports(__name__, {"model_stage": ("ModelStage",), "opening": ("stage_agents",)})
