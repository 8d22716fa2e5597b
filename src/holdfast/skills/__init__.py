"""Skills: folders with a `SKILL.md` whose name and description go into the prompt.

May import what is below `workflow`; never `workflow`, `sandbox` or `agents`.
Nothing is built here yet.
"""
