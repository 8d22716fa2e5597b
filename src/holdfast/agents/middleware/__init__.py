"""Middlewares for any LangChain `create_agent`: each works alone and needs no configuration file.

May import what `agents` may. They use wrap hooks only: a node hook would be a step and a checkpoint of its own on every model call.
Start with `base.py`, what they are made of, then `summarization.py`.
"""
