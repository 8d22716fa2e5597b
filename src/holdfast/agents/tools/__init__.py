"""The tools of an agent: files, commands, things to show, the web, and those of MCP servers (A10, O5).

May import every room but `app` and `testing`.
Start with `toolset.py`, which chooses them and has those that work in the sandbox; `web_guard.py` says what of the web may be asked.
"""
