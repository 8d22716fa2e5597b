"""`holdfast compact`: shorten a conversation now, losing nothing (S17)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from holdfast.app.logs import open_config
from holdfast.app.output import ConfigOption, JsonOption, show
from holdfast.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command(epilog="Example: holdfast compact thread-01 --keep 10")
def compact(
    thread: Annotated[str, typer.Argument(help="The conversation, as `holdfast history` or /threads list it.")],
    keep: Annotated[int | None, typer.Option("--keep", min=1, metavar="N", help="Keep the newest N messages word for word.")] = None,
    force: Annotated[bool, typer.Option("--force/--if-needed", help="Now, or only if the configured trigger is met.")] = True,
    agent: Annotated[str | None, typer.Option("--agent", "-a", metavar="NAME", help="The agent that the conversation is with.")] = None,
    model: Annotated[str | None, typer.Option("--model", "-m", help="A model of config.yaml. Default: the first one.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Shorten a conversation: what leaves the window stays in the archive, word for word, and can be searched."""
    loaded = open_config(config)
    from holdfast.agents.lead import make_lead_agent
    from holdfast.models.factory import create_chat_model

    chosen = create_chat_model(model, config=loaded, retries=False) if model else None
    with make_lead_agent(loaded, agent=agent, model=chosen) as made:
        known = [info.id for info in made.parts.threads.all(subagents=True)]
        if thread not in known:
            raise InputError(f"there is no conversation {thread!r}.", hint=f"There are: {', '.join(known[:10]) or 'none yet'}.")
        done = made.conversation(thread).compact(force=force, keep=("messages", keep) if keep else None)
    plan = done.outcome.plan if done.outcome is not None else None
    value: dict[str, Any] = {"thread": thread, "compacted": plan is not None, "messages": len(done.messages)}
    if plan is not None:
        value |= {"tokens_before": plan.before, "tokens_after": plan.after, "left": len(plan.leave), "cleared": len(plan.clear)}
    show(value, lambda console: _draw(console, value), as_json=as_json)


def _draw(console: Console, value: dict[str, Any]) -> None:
    if not value["compacted"]:
        console.print("There is nothing to shorten.")
        return
    console.print(
        f"{value['tokens_before']:,} tokens became {value['tokens_after']:,}: {value['left']} messages left the window, "
        f"{value['cleared']} tool results were cleared. All of it is in `holdfast history {value['thread']}`.",
        soft_wrap=True,
        markup=False,
    )
