"""The binding to LangChain: models and where they come from, the lead agent, middlewares, sub-agents and stage agents.

May import every room but `app` and `testing`; it is the first one that may import LangChain, and does so only when a model is made.
Start with `models.py`, which turns a name of the configuration into a chat model.
"""
