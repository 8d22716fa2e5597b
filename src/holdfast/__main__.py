"""`python -m holdfast` is the command `holdfast`."""

from __future__ import annotations

from holdfast.app.main import main

main()
