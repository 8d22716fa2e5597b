"""The binding to LangChain: the lead agent and its conversations, middlewares, sub-agents, stage agents, tools.

May import every room but `app` and `testing`; it is the one that imports LangChain.
Start with `conversation.py` (a message, in the order of things), then `agent_loop.py` (the middlewares in their order) and `lead.py`.
"""
