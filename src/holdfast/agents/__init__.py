"""The binding to LangChain: models, the lead agent, middlewares, sub-agents and stage agents.

May import every room but `app` and `testing`; it is the first one that may import LangChain.
Nothing is built here yet.
"""
