"""The conversation on a terminal: what is typed, what is shown, and the commands that begin with a slash.

May import everything; only `app/commands/chat.py` imports it.
Start with `session.py`, the loop of a conversation.
"""
