"""How `sickbay check` answers: a table and what to do about it for people, one JSON document for programs.

Called by `cli/check` with the results. It words them; what they mean was decided in checks/, catalog/ and suite/.
"""

from __future__ import annotations

import json
import sys
import syslog
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sickbay import wire
from sickbay.catalog import Catalog
from sickbay.cli.words import PIPE_WIDTH, plain, span
from sickbay.model import Finding, Status
from sickbay.suite.result import FAIL, PASS, SKIP, UNKNOWN, WARN, CheckResult
from sickbay.suite.runner import plan
from sickbay.suite.table import Suite

STYLES = {FAIL: "bold red", WARN: "yellow", PASS: "green", UNKNOWN: "magenta", SKIP: "dim"}
MOST_SHOWN = 12  # findings with advice; all of them are in the files
WHAT = 300  # characters in a cell


@dataclass(frozen=True, slots=True)
class Told:
    """Everything there is to say."""

    suite: Suite
    results: Sequence[CheckResult]
    summary: dict[str, Any]
    catalog: Catalog
    kind: str  # instance type, "" if nobody knows
    kind_from: str
    profile: bool  # is there one for the type?
    hung: tuple[str, ...] = ()


# --- for programs -----------------------------------------------------------------------------------------------------


def print_json(told: Told) -> None:
    document = {**told.summary, "results": [one.document() for one in told.results]}
    sys.stdout.write(json.dumps(document) + "\n")  # ASCII: a tool may have printed half a character


def log_prolog(told: Told) -> None:
    """A prolog's output goes nowhere: what matters goes to the system log, under the original's tag."""
    syslog.openlog("gpu-healthcheck-prolog", syslog.LOG_PID, syslog.LOG_DAEMON)
    for one in told.results:
        if one.status in (FAIL, WARN) or one.unknown:
            level = syslog.LOG_ERR if one.status == FAIL else syslog.LOG_WARNING
            syslog.syslog(
                level, plain(f"{word(one)} {one.check} {one.severity}: {one.details}")[:900].replace("\0", " ")
            )
    syslog.syslog(syslog.LOG_INFO, f"{told.summary['status']}: {told.summary['failures']} failed")
    syslog.closelog()


# --- for people -------------------------------------------------------------------------------------------------------


def word(one: CheckResult) -> str:
    """The status as people read it: a check that could not look says so."""
    return UNKNOWN if one.status == SKIP and one.unknown else one.status


def print_words(told: Told, *, verbose: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
    console.print(_heading(told))
    console.print(_table(told.results))
    for line in (*_advice(told), *_blind(told), *(_everything(told) if verbose else ()), "", _ending(told)):
        console.print(plain(line), style=_style(line))


def _style(line: str) -> str | None:
    return next((style for start, style in STYLES.items() if line.startswith(f"{start}:")), None)


def _heading(told: Told) -> str:
    what = f"{told.suite.name} on {told.summary['hostname']}"
    if not told.kind:
        return plain(
            f"{what}: nobody says what type of machine this is ({told.kind_from}), so counts cannot be compared."
        )
    known = "" if told.profile else ", which no profile describes, so counts cannot be compared"
    return plain(f"{what}: {told.kind} ({told.kind_from}){known}.")


def _table(results: Sequence[CheckResult]) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name, options in (
        ("CHECK", {"no_wrap": True}), ("STATUS", {"no_wrap": True}), ("SEVERITY", {"no_wrap": True}),
        ("WHAT", {"overflow": "fold"}), ("SECONDS", {"justify": "right", "no_wrap": True}),
    ):  # fmt: skip
        table.add_column(name, **options)
    for one in results:
        said = plain(one.details) if len(one.details) <= WHAT else plain(one.details[: WHAT - 1]) + "…"
        table.add_row(
            one.name, Text(word(one), style=STYLES[word(one)]), one.severity, Text(said), f"{one.seconds:.1f}"
        )
    return table


def _advice(told: Told) -> Iterator[str]:
    """Worst first: what is wrong, the line that says so, and what to do."""
    sick = [one for result in told.results for one in result.findings if one.status in (Status.FAILED, Status.DEGRADED)]
    ordered = sorted(sick, key=lambda one: one.severity, reverse=True)
    for one in ordered[:MOST_SHOWN]:
        yield ""
        yield f"{wire.to_originals(one.severity)}  {one.reason}{_where(one)}"
        for line in one.evidence[:1]:
            yield f"  {line}"
        if action := _action(one, told.catalog):
            yield f"  What to do: {action}"
        yield f"  More: sickbay explain {one.code}"
    if len(ordered) > MOST_SHOWN:
        yield f"... and {len(ordered) - MOST_SHOWN} more in the result files."


def _where(one: Finding) -> str:
    parts = [part for part in (one.place.device, f"serial {one.part}" if one.part else "") if part]
    parts = [part for part in parts if part not in one.reason]
    return f" [{', '.join(parts)}]" if parts else ""


def _action(one: Finding, catalog: Catalog) -> str:
    row = catalog.refined(one.code, one.traits)
    return (row.action or catalog.actions.get(row.fault, "")) if row else ""


def _blind(told: Told) -> Iterator[str]:
    unknown = [one.name for one in told.results if one.unknown]
    if unknown:
        yield ""
        yield f"{len(unknown)} could not look, which is neither a pass nor a fault: {', '.join(unknown)}."
    if told.hung:
        yield f"Still hanging in the kernel, left behind: {', '.join(told.hung)}."
    left_out = len(told.suite.checks) - len(told.results)
    if left_out:
        done = {one.name for one in told.results}
        names = [name for name in told.suite.checks if name not in done]
        yield f"Not run, because an earlier one failed: {', '.join(names)}."


def _everything(told: Told) -> Iterator[str]:
    for one in told.results:
        for found in one.findings:
            yield f"{one.name}: {found.status.value} {found.code or '-'} {found.reason}{_where(found)}"
            yield from (f"    {line}" for line in found.evidence)


def _ending(told: Told) -> str:
    total, failed, status = len(told.results), told.summary["failures"], told.summary["status"]
    said = {
        FAIL: f"{failed} of {total} checks failed, the worst asks for {told.summary['severity']}",
        WARN: f"{told.summary['warnings']} of {total} checks saw something to watch; the node may stay in service",
        UNKNOWN: f"nothing failed, but {len(told.summary['unknown'])} of {total} checks could not look: not a pass",
        PASS: f"{total - len(told.summary['skipped'])} checks found nothing wrong",
    }[status]
    return f"{status}: {said}. Files: {told.summary['results_dir']}"


# --- --dry-run --------------------------------------------------------------------------------------------------------


def print_plan(suite: Suite, limit_s: float, exclusive: bool, *, as_json: bool) -> None:
    rows = [
        {"check": check.name, "number": check.number, "limit_s": limit, "deep": check.deep}
        for check, limit in plan(suite, limit_s)
    ]
    if as_json:
        sys.stdout.write(json.dumps({"suite": suite.name, "fail_fast": suite.fail_fast, "checks": rows}) + "\n")
        return
    _print_plan_words(suite, exclusive, rows)


def _print_plan_words(suite: Suite, exclusive: bool, rows: list[dict[str, Any]]) -> None:
    from sickbay.cli.words import print_table

    print(f"Suite {suite.name}: {suite.meaning}. Nothing is run and nothing is written.")
    how = {False: "", True: "deep" if exclusive else "deep: only while the GPUs are free"}
    cells = [
        ["-" if row["number"] is None else str(row["number"]), row["check"], span(row["limit_s"]), how[row["deep"]]]
        for row in rows
    ]
    print_table(("NO", "CHECK", "AT MOST", ""), cells)
    if suite.fail_fast:
        print(f"The first failure among {', '.join(suite.first)} ends these.")
