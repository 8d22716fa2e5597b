"""Skills: folders with a `SKILL.md` whose name and description go into the prompt, and whose body is read when it is needed.

May import what is below `workflow`; never `workflow`, `sandbox` or `agents`.
Start with `library.py`; then `skill_file.py`, how a `SKILL.md` is read.
"""
