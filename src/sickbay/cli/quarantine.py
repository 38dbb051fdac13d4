"""`sickbay quarantine NODE`: burn in one node that is out of service (checks 4 and 6), hours, and say what to do.

The result is annotated on the node as the original's quarantine Job did, and printed. Exit code: 0 it passed, 1 it
failed, 124 it could not be looked at, 2 the node is not ready for it (and then it says which commands are first).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from sickbay import wire
from sickbay.cli.person import person
from sickbay.cli.sitting import ConfigOption, JsonOption
from sickbay.cli.sweep import loaded, opened
from sickbay.cli.words import plain
from sickbay.platforms.kubernetes.quarantine import quarantine
from sickbay.platforms.kubernetes.quarantine_result import Verdict
from sickbay.suite.table import check_named

CODES = {"pass": 0, "warn": 0, "fail": 1, "unknown": 124}
NEXT = {
    "return": "Return it to service: kubectl uncordon {node}",
    "replace": "Replace it: terminate the instance, or delete its NodeClaim or Machine.",
    "investigate": "Look into it: sickbay explain, sickbay collect on the node; do not return it yet.",
}
NodeArgument = Annotated[str, typer.Argument(metavar="NODE", help="A node that is cordoned and drained.")]
ChecksOption = Annotated[str, typer.Option("--checks", metavar="A,B", help="Other checks, by number or name.")]


def command(
    node: NodeArgument, checks: ChecksOption = "4,6", as_json: JsonOption = False, config: ConfigOption = ""
) -> None:
    """Burn in one node that is out of service, annotate the result and recommend what to do with it."""
    names = tuple(check_named(word) for word in checks.split(",") if word.strip())
    settings = loaded(config)

    def end(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)  # the label goes and the Job is ended on the way out

    signal.signal(signal.SIGTERM, end)
    said = quarantine(opened(settings), node, person(os.environ), checks=names, say=say)
    _tell(node, said, as_json=as_json, acts=settings.kubernetes.quarantine_act)
    raise typer.Exit(CODES[said.status])


def _tell(node: str, said: Verdict, *, as_json: bool, acts: bool) -> None:
    severity = wire.to_originals(said.severity)
    if as_json:
        tree = {"node": node, "status": said.status, "severity": severity, "recommendation": said.recommendation,
                "why": said.why}  # fmt: skip
        print(json.dumps(tree))
        return
    print(f"{node}: {said.status} ({severity}): {plain(said.why)}")
    if acts and said.status == "fail":
        print("The controller opens a case of it (kubernetes.quarantine_act is on).")
    else:
        print(NEXT[said.recommendation].format(node=node))


def say(what: str) -> None:
    print(f"sickbay quarantine: {plain(what)}", file=sys.stderr, flush=True)
