"""Sessions as pages: all of them, one with its stages live, a stage with what it was given, and a new one."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(include_in_schema=False)
