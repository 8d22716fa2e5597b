"""Thread folders, virtual paths and commands that cannot hurt the machine.

May import what is below `workflow`; never `workflow`, `skills` or `agents`.
Nothing is built here yet.
"""
