"""Stage agents that ask a language model: planner, researcher, coder, synthesizer, writer, plain llm and discussion (W12).

May import every room but `app` and `testing`.
Start with `stage_agents.py`, which chooses them, then `model_stage.py`: it asks for an output and checks every finding against its source.
"""
