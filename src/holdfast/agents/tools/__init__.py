"""The tools of an agent: files, commands, things to show, and the web, each made from a line of `tools` in config.yaml (A10).

May import every room but `app` and `testing`.
Start with `opening.py`, which chooses them; then `workplaces.py`, which says in whose files they work.
"""
