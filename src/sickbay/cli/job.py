"""`sickbay job restart`: an owner's word about a job whose old ranks nobody can reach.

Writes a Command; the controller takes it up. It must never touch a job itself.
"""

from __future__ import annotations

from typing import Annotated

import typer

from sickbay.cli import wishes
from sickbay.cli.sitting import ConfigOption, StoreOption, WhyOption, say, sit_down

app = typer.Typer(help="One job.", no_args_is_help=True, add_completion=False)


@app.callback()
def _one_job() -> None:
    """One job."""


@app.command()
def restart(
    job: Annotated[str, typer.Argument(metavar="JOB", help="As `sickbay why` and the notices name it.")],
    why: WhyOption = "",
    store: StoreOption = "",
    config: ConfigOption = "",
) -> None:
    """Start it on good nodes though ranks of its last attempt may still run where nobody can reach them, or though its
    next try was put off."""
    with sit_down(store, config) as sitting:
        say(*wishes.restart(sitting, job, why))
