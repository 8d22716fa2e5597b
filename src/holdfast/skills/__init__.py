"""Skills: folders with a `SKILL.md` whose name and description go into the prompt, and whose body is read when it is needed.

May import what is below `workflow`; never `workflow`, `sandbox` or `agents`.
Start with `library.py`; then `skill_file.py`, how a `SKILL.md` is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.lazily import exports

if TYPE_CHECKING:
    from holdfast.skills.library import SkillLibrary, open_skills
    from holdfast.skills.rendering import render
    from holdfast.skills.skill_file import Skill, parse_skill
    from holdfast.skills.switches import Switches

__all__ = ["Skill", "SkillLibrary", "Switches", "open_skills", "parse_skill", "render"]

_WHERE = {
    "library": ("SkillLibrary", "open_skills"),
    "rendering": ("render",),
    "skill_file": ("Skill", "parse_skill"),
    "switches": ("Switches",),
}
__getattr__, __dir__ = exports(__name__, _WHERE)
