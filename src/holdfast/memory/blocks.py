"""Blocks: texts about itself and its work that an agent edits with its own tools, within a limit (M15).

What a block is for, how long it may be and whether the agent may write it is in the configuration (`memory.blocks`); what it says now is
in the memory document, so it has history and undo like everything else there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.errors import InputError
from holdfast.ids import check_name
from holdfast.memory.document import BlockText, Document
from holdfast.memory.rendering import Count, escaped

if TYPE_CHECKING:
    from holdfast.config.memory_sections import Block


@dataclass(frozen=True)
class BlockView:
    """A block as it is now."""

    name: str
    text: str
    description: str = ""
    max_tokens: int = 500
    read_only: bool = False
    updated: str = ""


def blocks_of(document: Document, settings: Mapping[str, Block]) -> list[BlockView]:
    """All blocks: those of the configuration in its order, with the text of the document where there is one."""
    views = []
    for name, block in settings.items():
        held = document.blocks.get(check_name(name, "block name"))
        shown = held.text if held is not None and not block.read_only else block.text
        updated = held.updated if held is not None and not block.read_only else ""
        views.append(BlockView(check_name(name), shown, block.description or "", block.max_tokens, block.read_only, updated))
    return views


def edited(document: Document, view: BlockView, text: str, *, count: Count, now: str) -> Document:
    """The document with another text in this block. InputError if the agent may not write it, or if it is too long."""
    if view.read_only:
        raise InputError(f"the block {view.name!r} is read-only.", hint="A person changes it in config.yaml, under memory.blocks.")
    tokens = count(text)
    if tokens > view.max_tokens:
        raise InputError(
            f"the block {view.name!r} takes {view.max_tokens} tokens, and this text has {tokens}.", hint="Shorten it and write it again."
        )
    return document.with_block(view.name, BlockText(text, now))


def render_blocks(views: list[BlockView]) -> str:
    """The blocks for the prompt; empty when there are none. Text in a block keeps its lines, but cannot close it."""
    said = []
    for view in views:
        about = f"{escaped(view.description)}\n" if view.description else ""
        lines = "\n".join(escaped(line) for line in view.text.splitlines())
        limits = "read-only" if view.read_only else f"up to {view.max_tokens} tokens"
        said.append(f'<block name="{view.name}" access="{limits}">\n{about}{lines}\n</block>')
    return "<blocks>\n" + "\n".join(said) + "\n</blocks>" if said else ""
