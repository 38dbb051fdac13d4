"""`sickbay diagnose [FILE... | -]`: what is wrong, on which GPU, how sure, why, and what to do, from text a person has.

Exit codes: 0 nothing wrong found, 1 something found, 2 could not read (or not a log we know). Any input gets an
answer in bounded memory: files are streamed in blocks, and only results of tools (DCGM, nvidia-smi, metrics) are
read whole, up to 64 MB.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from sickbay import catalog as catalogs
from sickbay.catalog import Catalog
from sickbay.checks import dcgm_diag, dcgm_metrics, job_log, kernel_log, nvidia_smi
from sickbay.checks.kernel_hits import Hit
from sickbay.checks.kernel_scan import Scan
from sickbay.checks.recognise import KINDS, binary, kind_of
from sickbay.checks.signs import Sign, Stamp, finding
from sickbay.core.blame import BlameVerdict, blame
from sickbay.core.diagnose import diagnose
from sickbay.errors import InputError
from sickbay.model import Blame, Diagnosis, Finding, Place, Severity, Status, When

BLOCK = 1 << 20
MOST_WHOLE = 64 << 20
_NAMES = {
    "kernel": "kernel log",
    "dcgm": "DCGM result",
    "smi": "nvidia-smi output",
    "metrics": "metrics",
    "joblog": "job log",
}
_CHECKS = {"kernel": "kernel-log", "dcgm": "dcgm-l2", "smi": "nvidia-smi", "metrics": "metrics"}


@dataclass(slots=True)
class Told:
    """What one input said."""

    name: str
    kind: str
    node: str = ""
    lines: int = 0
    findings: list[Finding] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    verdict: BlameVerdict | None = None
    remarks: list[str] = field(default_factory=list)


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
    found = _report(told, catalog, as_json=as_json, quiet=lines)
    return 2 if unread else int(found)


def read(
    file: Path, catalog: Catalog, *, kind: str = "", node: str = "", print_lines: bool = False, named: bool = False
) -> Told:
    """One input, judged. InputError says what could not be read and what to do."""
    name = "standard input" if str(file) == "-" else str(file)
    with _opened(file, name) as (stream, tail):
        blocks = _blocks(stream, name)
        first = next(blocks, b"")
        while len(first) < 4096 and (more := next(blocks, b"")):
            first += more
        sample = (first[:BLOCK] + b"\n" + tail).decode("utf-8", "replace")
        told = Told(name, kind or _recognised(name, first, sample), node)
        everything = chain([first], blocks)
        if told.kind == "kernel":
            _kernel(told, everything, catalog, _printer(told, catalog, named) if print_lines else None)
        elif told.kind == "joblog":
            _job(told, everything)
        else:
            _whole(told, everything, catalog)
        if print_lines and told.kind != "kernel":
            _print_rows(told, named)
    return told


def _recognised(name: str, first: bytes, sample: str) -> str:
    if not first.strip():
        raise InputError(f"{name}: empty, so there is nothing to judge")
    found = kind_of(sample)
    unsure = not found and not binary(first[:65536])
    if (
        unsure and blame(sample.splitlines()[-2000:]).blame is not Blame.UNKNOWN
    ):  # no shape we know, but it tells a story
        found = "joblog"
    if not found:
        what = "binary data" if binary(first[:65536]) else "not a log or tool output we know"
        raise InputError(f"{name}: {what}; if it is one of {', '.join(KINDS)}, say so with --kind")
    return found


@contextmanager
def _opened(file: Path, name: str) -> Iterator[tuple[BinaryIO, bytes]]:
    """The stream, and the end of the file where it can be had cheaply: logs often begin with a banner."""
    if str(file) == "-":
        yield sys.stdin.buffer, b""
        return
    try:
        with file.open("rb") as stream:
            yield stream, _tail(stream)
    except OSError as error:
        raise InputError(f"{name}: cannot be read: {error.strerror or error}") from None


def _tail(stream: BinaryIO) -> bytes:
    if not stream.seekable():
        return b""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - 65536))
    tail = stream.read(65536) if size > BLOCK else b""
    stream.seek(0)
    return b"" if tail[:2] == b"\x1f\x8b" else tail.partition(b"\n")[2]


def _blocks(stream: BinaryIO, name: str) -> Iterator[bytes]:
    """The bytes, unpacked if they are gzip, a megabyte at a time."""
    progress = _Progress(name)
    raw = iter(lambda: stream.read(BLOCK), b"")
    first = next(raw, b"")
    source = chain([first], raw) if first else raw
    if first[:2] == b"\x1f\x8b":
        source = _unpacked(source, name)
    for block in source:
        progress.saw(len(block))
        yield block
    progress.end()


def _unpacked(packed: Iterator[bytes], name: str) -> Iterator[bytes]:
    unzip = zlib.decompressobj(wbits=31)
    try:
        for block in packed:
            while block:
                if unzip.eof:  # rotated logs are often several gzip members in a row
                    unzip = zlib.decompressobj(wbits=31)
                if out := unzip.decompress(block, BLOCK):
                    yield out
                block = unzip.unconsumed_tail or unzip.unused_data
    except zlib.error as error:
        raise InputError(f"{name}: damaged gzip data ({error}); unpack it by hand to see what can be saved") from None


class _Progress:
    """A line on a terminal's stderr once reading takes longer than two seconds."""

    def __init__(self, name: str) -> None:
        self._name, self._begin, self._seen, self._shown = name, time.monotonic(), 0, 0.0

    def saw(self, count: int) -> None:
        self._seen += count
        now = time.monotonic()
        if now - self._begin > 2 and now - self._shown > 0.5 and sys.stderr.isatty():
            self._shown = now
            print(f"\r{self._name}: {self._seen / 1e6:,.0f} MB read", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._shown:
            print(file=sys.stderr)


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


def _job(told: Told, blocks: Iterator[bytes]) -> None:
    lines = job_log.last_lines(block.decode("utf-8", "replace") for block in blocks)
    told.lines, told.verdict = len(lines), blame(lines)
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
                f"{told.name}: more than {MOST_WHOLE >> 20} MB is not one {_NAMES[told.kind]}; cut it to one result"
            )
        text.append(block)
    whole = b"".join(text).decode("utf-8", "replace")
    judges = {"dcgm": dcgm_diag.signs, "smi": nvidia_smi.signs, "metrics": dcgm_metrics.signs}
    signs = judges[told.kind](whole)
    told.lines = whole.count("\n") + 1
    told.node = told.node or next((s.traits["host"] for s in signs if s.traits.get("host")), "")
    told.findings = _findings(told, signs, catalog)
    told.rows = [row for f in told.findings if f.code for row in _row_of(f, whole)]


def _row_of(f: Finding, text: str) -> Iterator[dict[str, Any]]:
    at = text.find(f.evidence[0][:80]) if f.evidence else -1
    if at >= 0:
        yield {"line": text.count("\n", 0, at) + 1, "code": f.code, "device": f.place.device, "severity": f.severity}


def _report(told: list[Told], catalog: Catalog, *, as_json: bool, quiet: bool) -> bool:
    """Print it; True if anything was found."""
    diagnoses = diagnose(_one_node(told), catalog)
    verdicts = [(t, t.verdict) for t in told if t.verdict is not None]
    if as_json:
        _print_json(diagnoses, verdicts, catalog)
    elif not quiet:
        _print_words(told, diagnoses, verdicts, catalog)
    return bool(diagnoses) or any(v.blame is not Blame.UNKNOWN or v.because for _, v in verdicts)


def _one_node(told: list[Told]) -> list[Finding]:
    """Several outputs given together are about one node, unless their names say otherwise."""
    names = {t.node for t in told if t.node}
    only = names.pop() if len(names) == 1 else ""
    every = [replace(f, place=Place(f.place.node or only, f.place.device)) for t in told for f in t.findings]
    return [replace(f, id=f"/{number}") for number, f in enumerate(every, 1)]


def _print_json(diagnoses: tuple[Diagnosis, ...], verdicts: list[tuple[Told, BlameVerdict]], catalog: Catalog) -> None:
    for d in diagnoses:
        print(json.dumps(_object(d, catalog), ensure_ascii=False))
    for t, verdict in verdicts:
        print(json.dumps(_object(_blamed(t, verdict), catalog) | {"blame": verdict.blame.value}, ensure_ascii=False))


def _object(d: Diagnosis, catalog: Catalog) -> dict[str, Any]:
    return {
        "fault": d.fault,
        "code": d.code,
        "place": {"node": d.place.node, "device": d.place.device},
        "severity": d.severity.name,
        "when": d.when.value,
        "action": _action(d, catalog),
        "confidence": d.confidence,
        "because": list(d.because),
    }


def _action(d: Diagnosis, catalog: Catalog) -> str:
    row = catalog.code(d.code)
    own = row.action if row and row.fault == d.fault else ""
    return own or catalog.actions.get(d.fault, "")


_BLAMED = {Blame.USER_CODE: "application-fault", Blame.UNKNOWN: "inform"}


def _blamed(t: Told, verdict: BlameVerdict) -> Diagnosis:
    """A job's log as an answer in the same shape. It can blame; it never treats a node."""
    fault = _BLAMED.get(verdict.blame, "job-suspect")
    because = verdict.because
    return Diagnosis(
        fault,
        Place(t.node),
        Severity.MONITOR,
        When.IDLE,
        verdict.confidence,
        because,
        0.0,
        f"job.{verdict.blame.value}",
        "job",
    )


def _print_words(
    told: list[Told], diagnoses: tuple[Diagnosis, ...], verdicts: list[tuple[Told, BlameVerdict]], catalog: Catalog
) -> None:
    for d in diagnoses:
        print("\n".join(_words(d, catalog)) + "\n")
    for t, verdict in verdicts:
        print("\n".join(_verdict_words(t, verdict)) + "\n")
    for t in told:
        sick = any(f.code and f.status is not Status.OK for f in t.findings) or t.verdict is not None
        print(f"{t.name}: {_NAMES[t.kind]}, {t.lines:,} lines" + ("." if sick else ": nothing wrong found."))
        for remark in t.remarks:
            print(f"  note: {remark}")


def _words(d: Diagnosis, catalog: Catalog) -> list[str]:
    fault = catalog.faults.get(d.fault)
    where = " ".join(part for part in (d.place.node, f"GPU {d.place.device}" if d.place.device else "") if part)
    title = fault.title if fault else d.fault
    lines = [
        f"{where + ': ' if where else ''}{title}",
        f"  {d.severity.name}, {_WHEN[d.when]}; {d.confidence:.0%} sure ({d.fault}, {d.code})",
    ]
    lines += [f"  {'why' if n == 0 else '   '}  {quote}" for n, quote in enumerate(d.because)]
    if action := _action(d, catalog):
        lines.append(f"  do   {action}")
    return lines


_WHEN = {When.NOW: "now", When.CHECKPOINT: "after the job has saved", When.IDLE: "when the node is idle"}
_WHO = {
    Blame.HARDWARE: "the hardware is to blame",
    Blame.INFRASTRUCTURE: "the infrastructure (network, storage, set-up) is to blame",
    Blame.USER_CODE: "the job's own code is to blame; no node needs treatment",
    Blame.UNKNOWN: "nobody can be blamed from this log alone",
}
_NEXT = {
    Blame.HARDWARE: "diagnose the kernel log of the node this rank ran on: sickbay diagnose <dmesg>",
    Blame.INFRASTRUCTURE: "look at the network or storage named above, then restart the job",
    Blame.USER_CODE: "fix the program; restarting it will fail the same way",
    Blame.UNKNOWN: "look at the ranks that logged nothing, and at the kernel logs of their nodes",
}


def _verdict_words(t: Told, verdict: BlameVerdict) -> list[str]:
    lines = [f"{t.name}: {_WHO[verdict.blame]} (blame: {verdict.blame.value}, {verdict.confidence:.0%} sure)"]
    lines += [f"  {'why' if n == 0 else '   '}  {quote}" for n, quote in enumerate(verdict.because)]
    return [*lines, f"  do   {_NEXT[verdict.blame]}"]
