"""`holdfast run`: start a session of a workflow and run it (O1, W1)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.app.output import ConfigOption, JsonOption
from holdfast.errors import InputError

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SessionConfigOption = Annotated[
    Path | None, typer.Option("--session-config", metavar="FILE", help="Settings of this session alone: `session:` and `memory:`.")
]
KnowledgeOption = Annotated[
    str | None, typer.Option("--knowledge", "-k", metavar="PATH", help="A knowledge store in place of the configured one.")
]
RememberOption = Annotated[
    bool, typer.Option("--remember/--no-remember", help="Whether long-term memory is looked up before and added to after.")
]
ModelOption = Annotated[
    str | None, typer.Option("--model", "-m", metavar="NAME", help="A model of config.yaml for the stages that name none.")
]


@app.command(epilog='Examples: holdfast run workflow.yaml | holdfast run workflow.yaml --task "Which store is fastest?" --set region=eu')
def run(
    file: Annotated[Path, typer.Argument(help="The workflow, a YAML file with `id` and `stages`.")],
    task: Annotated[str | None, typer.Option("--task", "-t", help="The task. Default: the one of the file.")] = None,
    model: ModelOption = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter; may be given again.")] = None,
    session_config: SessionConfigOption = None,
    id: Annotated[
        str | None, typer.Option("--id", help="The id of the session. Default: made from the workflow's id and the date.")
    ] = None,
    knowledge: KnowledgeOption = None,
    remember: RememberOption = True,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run a workflow. Ctrl-C stops it cleanly, and whatever stops it, `holdfast resume` goes on from the last completed stage.

    Ends with 0 when it is completed, 4 when it halted, 5 when it waits for a person, 130 when it was stopped.
    """
    from holdfast.app.running import launch

    parameters = dict(parameter(one) for one in settings or ())
    launch(
        lambda launcher: launcher.run(file, task=task, parameters=parameters, session_id=id),
        config=config,
        session_config=session_config,
        model=model,
        knowledge=knowledge,
        remember=remember,
        as_json=as_json,
    )


def parameter(text: str) -> tuple[str, Any]:
    """`name=value` as a parameter; a value that looks like a number or true and false is one."""
    from holdfast.config.reading import plain_value

    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise InputError(f"{text!r} is no parameter.", hint="Write it as NAME=VALUE.")
    return name.strip(), plain_value(value.strip())
