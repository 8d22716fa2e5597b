"""The web, for agents: search by a provider, and pages as Markdown, never from an address inside the user's network.

May import every room but `app` and `testing`.
Start with `guard.py`, which says what may be asked, then `web_tools.py`.
"""
