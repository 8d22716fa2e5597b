"""Stage agents that ask a language model: planner, researcher, coder, synthesizer, writer and plain llm (W12).

May import every room but `app` and `testing`.
Start with `model_stage.py`, which asks for an output in the contract's form and checks every finding against its source.
"""
