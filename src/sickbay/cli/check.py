"""`sickbay check`: the health checks on this machine, now, as a person, a Slurm prolog or a Job runs them.

Options, result files and exit code are the original suite's (originals 002.1). It looks and says; it changes nothing on
the node but what a deep check needs and gives back. What is run and how is in `check_run`, the words in `check_report`.
"""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import typer

from sickbay.cli import check_report as report
from sickbay.cli.check_run import Wish, mark, run
from sickbay.cli.sitting import ConfigOption
from sickbay.errors import UserError
from sickbay.suite import table

PROLOG_DCGM = "GPU_HEALTHCHECK_PROLOG_ENABLE_DCGM"  # the original's switch: level 2 in a prolog takes minutes

SuiteOption = Annotated[str, typer.Option("--suite", metavar="NAME", help=", ".join(table.SUITES) + ".")]
CheckOption = Annotated[
    list[str] | None, typer.Option("--check", metavar="N|NAME", help="One check by number or name; may be repeated.")
]
PrologOption = Annotated[bool, typer.Option("--prolog", help="The same as --suite prolog.")]
ExclusiveOption = Annotated[
    bool, typer.Option("--exclusive", help="The node is mine: deep checks may run in any case.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document: the summary and every result.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would run and for how long; touch nothing.")]
TimeoutOption = Annotated[
    float,
    typer.Option("--timeout", metavar="SECONDS", help="For each check; else CHECK_TIMEOUT.", show_default=False),
]
ResultsOption = Annotated[str, typer.Option("--results-dir", metavar="DIR", help="Where the result files go.")]
FleetOption = Annotated[
    str, typer.Option("--fleet", metavar="DIR", help="Result files of other nodes: figures are compared with theirs.")
]
MarkOption = Annotated[
    bool,
    typer.Option("--mark-treated", help="Run nothing; from now on, kernel lines up to this moment count as treated."),
]
VerboseOption = Annotated[bool, typer.Option("-v", "--verbose", help="Every finding, with its evidence.")]


def command(
    suite: SuiteOption = "",
    check: CheckOption = None,
    prolog: PrologOption = False,
    exclusive: ExclusiveOption = False,
    as_json: JsonOption = False,
    dry_run: DryRunOption = False,
    timeout: TimeoutOption = 0.0,
    results_dir: ResultsOption = "",
    fleet: FleetOption = "",
    config: ConfigOption = "",
    mark_treated: MarkOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Run health checks on this machine. Without options: the lightweight suite, which disturbs nobody.

    Exit code: 0 all is well; 1 to 123: so many checks failed; 124: nothing failed, but a check could not look (a prolog
    ends with 0 then: a missing tool must not drain a node); 126: not possible as asked, nothing was run.
    """
    from sickbay.settings_load import load

    wanted = _wanted(suite, check or [], prolog)
    _possible(timeout, fleet)
    settings = load(config or None).settings
    wish = Wish(wanted, settings, timeout or settings.agent.check_timeout_s, exclusive, results_dir, fleet)
    if dry_run:
        report.print_plan(wanted, wish.limit_s, exclusive, as_json=as_json)
        return
    if mark_treated:
        mark(wish)
        return
    _end_cleanly()
    raise typer.Exit(run(wish, os.environ, as_json=as_json, verbose=verbose))


def _wanted(suite: str, checks: list[str], prolog: bool) -> table.Suite:
    if sum((bool(suite), bool(checks), prolog)) > 1:
        raise UserError("--suite, --check and --prolog exclude each other: say one of them.")
    if checks:
        return table.single(checks)
    name = "prolog" if prolog else suite or table.DEFAULT
    return table.suite(name, prolog_dcgm=os.environ.get(PROLOG_DCGM, "").strip() == "1")


def _possible(timeout: float, fleet: str) -> None:
    if not math.isfinite(timeout) or timeout < 0:
        raise UserError("--timeout is a number of seconds above 0.")
    if fleet and not Path(fleet).is_dir():
        raise UserError(f"--fleet {fleet}: there is no such folder. It holds the result files of other nodes.")


def _end_cleanly() -> None:
    """Told to end (a prolog's time is over, the terminal closed) we end what we started: dcgmi would burn for hours."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise SystemExit(128 + number)

    for which in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(which, stop)
