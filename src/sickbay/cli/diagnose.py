"""`sickbay diagnose [FILE... | -]`: what is wrong, on which GPU, how sure, why, and what to do, from text a person has.

Exit codes: 0 nothing wrong found, 1 something found, 2 could not read (or not a log we know; with --kind kernel also
binary data and text of which no line looks like the kernel's). Any input gets an answer in bounded memory: files are
streamed in blocks, and only results of tools (DCGM, nvidia-smi, metrics) are read whole, up to 64 MB.
A job's log is answered by one object with "blame". A short paste of driver lines without any logger's prefix may come
from a job's log or from a kernel's: it is answered as a kernel log, and each object has "blame" besides.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from sickbay import catalog as catalogs
from sickbay.catalog import Catalog
from sickbay.checks import dcgm_metrics, dcgm_output, job_log, kernel_log, nvidia_smi
from sickbay.checks.kernel_hits import Hit
from sickbay.checks.kernel_scan import Scan
from sickbay.checks.recognise import KINDS, binary, kind_of, unlike_a_kernel_log, unprefixed
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.cli.diagnose_input import BLOCK, blocks, opened
from sickbay.cli.diagnose_report import NAMES, Told, report
from sickbay.core.blame import blame
from sickbay.core.diagnose import diagnose
from sickbay.errors import InputError
from sickbay.model import Blame, Finding, Severity

MOST_WHOLE = 64 << 20
MOST_PASTED = 200  # lines; more without any logger's prefix is `dmesg -t`, not a paste
_CHECKS = {"kernel": "kernel-log", "dcgm": "dcgm-l2", "smi": "nvidia-smi", "metrics": "metrics"}


def command(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Logs or tool output; - or nothing reads standard input.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per diagnosis.")] = False,
    lines: Annotated[
        bool, typer.Option("--lines", help="One JSON object per input line that carries a finding.")
    ] = False,
    kind: Annotated[
        str, typer.Option("--kind", help="kernel | dcgm | smi | metrics | joblog; guessed if not given.")
    ] = "",
    node: Annotated[str, typer.Option("--node", help="The node's name, where the text does not say it.")] = "",
) -> None:
    """Say what is wrong, from logs and tool output you have. Exit code: 0 healthy, 1 something found, 2 unreadable."""
    if kind and kind not in KINDS:
        raise InputError(f"--kind {kind}: no such kind; one of {', '.join(KINDS)}")
    if not files and sys.stdin.isatty():
        raise InputError("nothing to read: name a file, or pipe a log into it (dmesg | sickbay diagnose)")
    raise typer.Exit(run(files or [Path("-")], kind=kind, node=node, as_json=as_json, lines=lines))


def run(files: list[Path], *, kind: str = "", node: str = "", as_json: bool = False, lines: bool = False) -> int:
    catalog = catalogs.load()
    told, unread = [], False
    for file in files:
        try:
            told.append(read(file, catalog, kind=kind, node=node, print_lines=lines, named=len(files) > 1))
        except InputError as error:
            unread = True
            print(f"sickbay: {error}", file=sys.stderr)
    found = report(told, catalog, as_json=as_json, quiet=lines)
    return 2 if unread else int(found)


def read(
    file: Path, catalog: Catalog, *, kind: str = "", node: str = "", print_lines: bool = False, named: bool = False
) -> Told:
    """One input, judged. InputError says what could not be read and what to do."""
    name = "standard input" if str(file) == "-" else str(file)
    with opened(file, name) as (stream, tail):
        rest = blocks(stream, name)
        first = next(rest, b"")
        while len(first) < 4096 and (more := next(rest, b"")):
            first += more
        sample = (first[:BLOCK] + b"\n" + tail).decode("utf-8", "replace")
        told = Told(name, kind or _recognised(name, first, sample, catalog), node)
        everything = chain([first], rest)
        if told.kind == "kernel":
            _kernel(told, everything, catalog, _printer(told, catalog, named) if print_lines else None)
            _doubt(told, first, sample, catalog, given=bool(kind))
        elif told.kind == "joblog":
            _job(told, everything, catalog)
        else:
            _whole(told, everything, catalog)
        if print_lines and told.kind != "kernel":
            _print_rows(told, named)
    return told


def _doubt(told: Told, first: bytes, sample: str, catalog: Catalog, *, given: bool) -> None:
    """Was that a kernel log at all, and whose was it? Lines without any prefix may have been pasted from a job's log:
    nobody can tell, so the question a job's log would be asked is answered besides."""
    if told.findings and not given and 1 < told.lines <= MOST_PASTED and unprefixed(sample):
        told.beside = blame(sample.splitlines(), catalog.blame)
        told.remarks.append("no line says who wrote it; if it comes from a job's log, read it with --kind joblog")
    if told.findings or not first.strip():
        return
    if binary(first[:65536]) or unlike_a_kernel_log(sample):
        what = "binary data" if binary(first[:65536]) else "no line of it"
        raise InputError(f"{told.name}: {what} looks like a kernel log, so nothing can be said about it")


def _recognised(name: str, first: bytes, sample: str, catalog: Catalog) -> str:
    if not first.strip():
        raise InputError(f"{name}: empty, so there is nothing to judge")
    found = kind_of(sample)
    unsure = not found and not binary(first[:65536])
    if (
        unsure and blame(sample.splitlines()[-2000:], catalog.blame).blame is not Blame.UNKNOWN
    ):  # no shape we know, but it tells a story
        found = "joblog"
    if not found:
        what = "binary data" if binary(first[:65536]) else "not a log or tool output we know"
        raise InputError(f"{name}: {what}; if it is one of {', '.join(KINDS)}, say so with --kind")
    return found


def _kernel(told: Told, blocks: Iterator[bytes], catalog: Catalog, printer: Any) -> None:
    scan = Scan(printer)
    for block in blocks:
        scan.feed(block)
    scan.finish()
    told.node, told.lines = told.node or scan.node, scan.lines
    if scan.foreign:
        told.remarks.append(
            f"{scan.foreign} line(s) quote kernel errors but were not written by the kernel: not evidence"
        )
    if scan.dropped:
        told.remarks.append(
            f"{scan.dropped} line(s) beyond the first {len(scan.hits)} different errors were only counted"
        )
    told.findings = _findings(told, [s for s in kernel_log.signs(scan) if s.code], catalog)


def _findings(told: Told, signs: list[Sign], catalog: Catalog) -> list[Finding]:
    stamp = Stamp(_CHECKS[told.kind], told.node)
    return [finding(sign, catalog, stamp, number) for number, sign in enumerate(signs, 1)]


def _printer(told: Told, catalog: Catalog, named: bool) -> Any:
    """Prints a row for each line as it is met, so that a log of any size needs no memory for its rows."""
    known: dict[tuple[str, str, str, str], Severity] = {}

    def show(line: int, hit: Hit) -> None:
        name = hit.named
        key = (name.code, name.device, name.variant, name.traits.get("fatal", ""))
        if key not in known:
            known[key] = _severity(name.code, dict(name.traits), name.device, catalog)
        _print_row(told, named, line, name.code, name.device, known[key])

    return show


def _severity(code: str, traits: dict[str, str], device: str, catalog: Catalog) -> Severity:
    alone = finding(Sign(code, code, device, traits=traits), catalog, Stamp("kernel-log", ""), 1)
    return max((d.severity for d in diagnose([alone], catalog)), default=alone.severity)


def _print_row(told: Told, named: bool, line: int, code: str, device: str, severity: Severity) -> None:
    row = {"line": line, "code": code, "device": device, "severity": severity.name}
    print(json.dumps({"file": told.name, **row} if named else row))


def _print_rows(told: Told, named: bool) -> None:
    for row in told.rows:
        _print_row(told, named, row["line"], row["code"], row["device"], row["severity"])


def _job(told: Told, blocks: Iterator[bytes], catalog: Catalog) -> None:
    lines = job_log.last_lines(block.decode("utf-8", "replace") for block in blocks)
    told.lines, told.verdict = len(lines), blame(lines, catalog.blame)
    for quote in told.verdict.because:
        at = next((n for n, line in enumerate(lines, 1) if quote[:120] in line), 0)
        if at:
            told.rows.append(
                {"line": at, "code": f"job.{told.verdict.blame.value}", "device": "", "severity": Severity.MONITOR}
            )
    told.rows.sort(key=lambda row: int(row["line"]))


def _whole(told: Told, blocks: Iterator[bytes], catalog: Catalog) -> None:
    text, size = [], 0
    for block in blocks:
        size += len(block)
        if size > MOST_WHOLE:
            raise InputError(
                f"{told.name}: more than {MOST_WHOLE >> 20} MB is not one {NAMES[told.kind]}; cut it to one result"
            )
        text.append(block)
    whole = b"".join(text).decode("utf-8", "replace")
    judges = {"dcgm": dcgm_output.signs, "smi": nvidia_smi.signs, "metrics": dcgm_metrics.signs}
    signs = judges[told.kind](whole)
    told.lines = whole.count("\n") + 1
    told.node = told.node or next((s.traits["host"] for s in signs if s.traits.get("host")), "")
    told.findings = _findings(told, signs, catalog)
    told.rows = [row for f in told.findings if f.code for row in _row_of(f, whole)]


def _row_of(f: Finding, text: str) -> Iterator[dict[str, Any]]:
    at = text.find(f.evidence[0][:80]) if f.evidence else -1
    if at >= 0:
        yield {"line": text.count("\n", 0, at) + 1, "code": f.code, "device": f.place.device, "severity": f.severity}
