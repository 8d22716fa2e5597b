"""Fixtures of the tests of workflows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.workflow.support import Place

from holdfast.events import Bus


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.fixture
def told() -> Iterator[tuple[Bus, list[Any]]]:
    bus = Bus()
    with bus.collect() as seen:
        yield bus, seen
