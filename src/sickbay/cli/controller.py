"""`sickbay controller run`: the central process, in the foreground. SIGTERM and Ctrl-C end it cleanly: exit code 0.

Everything else is controller/app.py's.
"""

from __future__ import annotations

import signal
import threading
from typing import Annotated

import typer

from sickbay.cli.sitting import ConfigOption
from sickbay.errors import UserError

ActionArgument = Annotated[str, typer.Argument(metavar="run", help="Run the controller in the foreground.")]
NodesOption = Annotated[int, typer.Option("--sim-nodes", help="Platform simulated: nodes.")]
SeedOption = Annotated[int, typer.Option("--sim-seed", help="Platform simulated: seed.")]
SpeedOption = Annotated[float, typer.Option("--sim-speed", help="Platform simulated: times real time.")]
FaultsOption = Annotated[float, typer.Option("--sim-faults", help="Platform simulated: times the usual fault rate.")]


def command(
    action: ActionArgument = "run",
    config: ConfigOption = "",
    nodes: NodesOption = 64,
    seed: SeedOption = 0,
    speed: SpeedOption = 1.0,
    faults: FaultsOption = 20.0,
) -> None:
    """Run the controller until it is told to stop. A second one stands by and takes over when this one dies."""
    if action != "run":
        raise UserError(f"`sickbay controller {action}`: there is only `sickbay controller run`")
    from sickbay.controller.app import run
    from sickbay.controller.sites import Trial
    from sickbay.settings_load import load

    settings = load(config or None).settings
    run(settings, _stop_by_signal(), Trial(nodes, seed, speed, scale=faults))


def _stop_by_signal() -> threading.Event:
    """Set by SIGTERM and SIGINT. The pass under way is finished first; a second signal does not hurry it."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop
