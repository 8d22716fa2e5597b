"""Thread folders, virtual paths and commands that cannot hurt the machine.

May import what is below `workflow`; never `workflow`, `skills` or `agents`.
Start with `commands.py`, the seam; then `paths.py` and `files.py` for files, `bubblewrap.py` and `local.py` for commands.
"""
