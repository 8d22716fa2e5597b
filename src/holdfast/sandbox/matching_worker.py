"""The program in which regular expressions run: lines in, numbers out. Started by `searching.py`, on a bare interpreter.

It imports nothing of ours. The first line says the pattern; every further one is a list of lines, answered by the indices of those that
fit.
"""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress

_MEMORY = 1024 * 1024 * 1024


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):  # not on every platform
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    """Answer until there is nothing more to read."""
    _limit_memory()
    asked = json.loads(sys.stdin.readline())
    try:
        pattern = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    except (re.error, RecursionError, OverflowError) as error:
        print(json.dumps({"error": str(error)}), flush=True)
        return
    for line in sys.stdin:
        found = [number for number, text in enumerate(json.loads(line)) if pattern.search(text)]
        print(json.dumps({"lines": found}), flush=True)


if __name__ == "__main__":
    main()
