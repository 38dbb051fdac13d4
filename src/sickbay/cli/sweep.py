"""`sickbay sweep`: level-2 diagnostics on idle GPU nodes of a Kubernetes cluster, as a CronJob or by hand.

Composes settings, API and pauses for platforms/kubernetes/sweep and prints what became of each node. Exit code: how
many nodes failed (0: none), as the original sweeper's; 126 when nothing could be swept. A SIGTERM ends it cleanly:
every node it had closed is open again when it returns.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from types import FrameType
from typing import Annotated

import typer

from sickbay.cli.sitting import ConfigOption
from sickbay.cli.words import plain
from sickbay.errors import ApiError, StoreError
from sickbay.kube.api import open_api
from sickbay.model import Pause
from sickbay.platforms.kubernetes.site import Site, site_of
from sickbay.platforms.kubernetes.sweep import HandsOff, Sweep, Swept, exit_code
from sickbay.settings import Settings

NodesArgument = Annotated[list[str] | None, typer.Argument(metavar="[NODE]...", help="Only these; else all idle ones.")]
MostOption = Annotated[int, typer.Option("--max", metavar="N", help="Nodes in this sweep; else kubernetes.sweep_max.")]
AtOnceOption = Annotated[
    int, typer.Option("--at-once", metavar="N", help="At the same time; else kubernetes.sweep_at_once.")
]


class Wall:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


def command(
    nodes: NodesArgument = None, most: MostOption = 0, at_once: AtOnceOption = 0, config: ConfigOption = ""
) -> None:
    """Level-2 diagnostics on idle GPU nodes, oldest-swept first; what fails is left to the controller."""
    settings = loaded(config)
    chosen = settings.kubernetes
    chosen = replace(chosen, sweep_max=most or chosen.sweep_max, sweep_at_once=at_once or chosen.sweep_at_once)
    site = opened(replace(settings, kubernetes=chosen))
    alone = settings.agent.mode == "standalone" and settings.agent.taint
    sweep = Sweep(site, owner(), hands_off(settings), say, only=frozenset(nodes or ()), keeps_out=alone)

    def end(number: int, frame: FrameType | None) -> None:
        say("told to stop: opening what was closed (once more: at once, and what is closed stays so for a while)")
        sweep.stop.set()
        signal.signal(number, signal.SIG_DFL)

    for which in (signal.SIGTERM, signal.SIGINT):
        signal.signal(which, end)
    swept = sweep.run()
    summed(swept)
    raise typer.Exit(exit_code(swept))


def loaded(config: str) -> Settings:
    from sickbay.settings_load import load

    return load(config or None).settings


def opened(settings: Settings) -> Site:
    where = settings.kubernetes
    return site_of(open_api(where.kubeconfig, where.context), where, Wall(), settings.cluster)


def owner() -> str:
    """This run: in a CronJob the host name is the pod's."""
    return f"{socket.gethostname()}-{os.getpid()}-{int(time.time())}"


def hands_off(settings: Settings) -> HandsOff:
    """The pauses that hold now, from the cluster's own records; none where those are not installed."""
    held = _pauses(settings)

    def why(node: str, pool: str) -> str:
        for scope in ("fleet", f"pool:{pool}", f"node:{node}"):
            if pause := held.get(scope):
                return f"{scope} is paused by {pause.by}: {plain(pause.why)}"
        return ""

    return why


def _pauses(settings: Settings) -> dict[str, Pause]:
    from sickbay.controller.sites import open_store

    try:
        store = open_store(replace(settings, store="kubernetes"))
        try:
            found = [stored.value for stored in store.list(Pause)]
        finally:
            store.close()
    except StoreError as error:
        why = error.__cause__
        if not (isinstance(why, ApiError) and why.not_found):
            raise
        say("no pauses can be read: Sickbay's custom resources are not installed in this cluster")
        return {}
    return {one.scope: one for one in found if one.until is None or one.until > time.time()}


def summed(swept: Sequence[Swept]) -> None:
    counts = {status: sum(one.status == status for one in swept) for status in ("pass", "warn", "fail", "unknown")}
    say(", ".join(f"{count} {status}" for status, count in counts.items()))
    for one in swept:
        if one.status == "fail":
            say(f"{one.node}: {one.severity.name}: {plain(one.why)}")


def say(what: str) -> None:
    print(f"sickbay sweep: {plain(what)}", file=sys.stderr, flush=True)
