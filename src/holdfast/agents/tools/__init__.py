"""The tools of an agent: files, commands, things to show, and the web, each made from a line of `tools` in config.yaml (A10).

May import every room but `app` and `testing`.
Start with `toolset.py`, which chooses them and has those that work in the sandbox.
"""
