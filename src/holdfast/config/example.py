"""The example that `holdfast config init` writes: every section and key, with its default, explained."""

from __future__ import annotations

from importlib.resources import files


def example_text() -> str:
    """A complete, valid `config.yaml` with comments. It says nothing but defaults, so it changes nothing until it is edited."""
    return files("holdfast.config").joinpath("example.yaml").read_text(encoding="utf-8")
