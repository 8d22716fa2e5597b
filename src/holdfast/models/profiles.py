"""What LangChain's packages know of their models, read without importing them: window, tools, structured output.

Each package ships a table of its models as one literal in a data file. It is read as text; where there is none, nothing is known.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def profile_of(module: str, model: str) -> Mapping[str, Any] | None:
    """What the package of this module says about a model, or None."""
    return _table(module.partition(".")[0]).get(model)


@cache
def _table(package: str) -> Mapping[str, Mapping[str, Any]]:
    try:
        spec = importlib.util.find_spec(package)
        folder = Path(next(iter(spec.submodule_search_locations or ()))) if spec else None
        tree = ast.parse((folder / "data" / "_profiles.py").read_text(encoding="utf-8")) if folder else None
    except (ImportError, ValueError, OSError, SyntaxError, StopIteration):
        return {}
    for node in tree.body if tree else ():
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and "_PROFILES" in _names(node):
            try:
                table = ast.literal_eval(node.value)
            except (ValueError, TypeError):
                return {}
            return table if isinstance(table, dict) else {}
    return {}


def _names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
    return [target.id for target in targets if isinstance(target, ast.Name)]
