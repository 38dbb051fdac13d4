"""How `sickbay diagnose` answers: a few lines for a person at three in the morning, or JSON for a program.

Called by `cli/diagnose` with everything it read. It words what core decided; it must never decide anything itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from sickbay.catalog import Catalog
from sickbay.core.blame import BlameVerdict
from sickbay.core.diagnose import diagnose
from sickbay.model import Blame, Diagnosis, Finding, Place, Severity, Status, When

NAMES = {
    "kernel": "kernel log",
    "dcgm": "DCGM result",
    "smi": "nvidia-smi output",
    "metrics": "metrics",
    "joblog": "job log",
}


@dataclass(slots=True)
class Told:
    """What one input said."""

    name: str
    kind: str
    node: str = ""
    lines: int = 0
    findings: list[Finding] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    verdict: BlameVerdict | None = None  # a job's log: who is to blame
    beside: BlameVerdict | None = None  # the same question about kernel lines that may come from a job's log
    remarks: list[str] = field(default_factory=list)


def report(told: list[Told], catalog: Catalog, *, as_json: bool, quiet: bool) -> bool:
    """Print it; True if anything was found."""
    diagnoses = diagnose(_one_node(told), catalog)
    if as_json:
        _print_json(told, diagnoses, catalog)
    elif not quiet:
        _print_words(told, diagnoses, catalog)
    verdicts = [t.verdict for t in told if t.verdict is not None]
    return bool(diagnoses) or any(v.blame is not Blame.UNKNOWN or v.because for v in verdicts)


def _one_node(told: list[Told]) -> list[Finding]:
    """Several outputs given together are about one node, unless their names say otherwise."""
    names = {t.node for t in told if t.node}
    only = names.pop() if len(names) == 1 else ""
    every = [replace(f, place=Place(f.place.node or only, f.place.device)) for t in told for f in t.findings]
    return [replace(f, id=f"/{number}") for number, f in enumerate(every, 1)]


def _print_json(told: list[Told], diagnoses: tuple[Diagnosis, ...], catalog: Catalog) -> None:
    beside = next((t.beside for t in told if t.beside is not None), None) if len(told) == 1 else None
    blamed = {"blame": beside.blame.value} if beside else {}
    for d in diagnoses:
        print(json.dumps(_object(d, catalog) | blamed, ensure_ascii=False))
    for t in told:
        if t.verdict is not None:
            row = _object(_blamed(t, t.verdict), catalog) | {"blame": t.verdict.blame.value}
            print(json.dumps(row, ensure_ascii=False))


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
    fault, code = _BLAMED.get(verdict.blame, "job-suspect"), f"job.{verdict.blame.value}"
    place, sure = Place(t.node), verdict.confidence
    return Diagnosis(fault, place, Severity.MONITOR, When.IDLE, sure, verdict.because, 0.0, code, "job")


def _print_words(told: list[Told], diagnoses: tuple[Diagnosis, ...], catalog: Catalog) -> None:
    for d in diagnoses:
        print("\n".join(_words(d, catalog)) + "\n")
    for t in told:
        if t.verdict is not None:
            print("\n".join(_verdict_words(t, t.verdict)) + "\n")
    for t in told:
        print(_summary(t))
        remarks = [*t.remarks, f"as a job's log, {_WHO[t.beside.blame]}"] if t.beside else t.remarks
        for remark in remarks:
            print(f"  note: {remark}")


def _summary(t: Told) -> str:
    sick = any(f.code and f.status is not Status.OK for f in t.findings) or t.verdict is not None
    lines = f"{t.lines:,} line{'' if t.lines == 1 else 's'}"
    return f"{t.name}: {NAMES[t.kind]}, {lines}{' read.' if sick else ': nothing wrong found.'}"


_NEED = {
    Severity.NONE: "Nothing to do.",
    Severity.MONITOR: "Nothing to the node.",
    Severity.RESET: "RESET the GPU",
    Severity.REBOOT: "REBOOT the node",
    Severity.REPLACE: "REPLACE the part",
}
_WHEN = {
    When.NOW: ", now: the work on it is lost already.",
    When.CHECKPOINT: ", once its job has saved a checkpoint.",
    When.IDLE: ", when its job has ended; it can wait.",
}


def _need(d: Diagnosis) -> str:
    return _NEED[d.severity] + (_WHEN[d.when] if d.severity > Severity.MONITOR else "")


def _words(d: Diagnosis, catalog: Catalog) -> list[str]:
    fault, row = catalog.faults.get(d.fault), catalog.code(d.code)
    where = " ".join(part for part in (d.place.node, f"GPU {d.place.device}" if d.place.device else "") if part)
    lines = [f"{where or 'this node'}: {fault.title if fault else d.fault}"]
    if row is not None:
        lines.append(f"  what  {_spoken(d.code)}: {row.meaning}")
    lines += [f"  {'why' if n == 0 else '   '}   {quote}" for n, quote in enumerate(d.because)]
    lines.append(f"  do    {' '.join(part for part in (_need(d), _action(d, catalog)) if part)}")
    return [*lines, f"  sure  {d.confidence:.0%} ({d.fault}, {d.code}); more: sickbay explain {d.code}"]


def _spoken(code: str) -> str:
    """XID 79 rather than xid.79."""
    family, _, name = code.partition(".")
    return f"{family.upper()} {name}" if family in ("xid", "sxid") else code


_WHO = {
    Blame.HARDWARE: "the hardware is to blame",
    Blame.INFRASTRUCTURE: "the infrastructure (network, storage, set-up) is to blame",
    Blame.USER_CODE: "the job's own code is to blame; no node needs treatment",
    Blame.UNKNOWN: "nobody can be blamed from this log alone",
}
_NEXT = {
    Blame.HARDWARE: "Find the node this rank ran on and look at its kernel log: dmesg | sickbay diagnose",
    Blame.INFRASTRUCTURE: "Look at the network or storage the lines above name, then restart the job.",
    Blame.USER_CODE: "Tell the job's owner. Restarted unchanged it will fail the same way.",
    Blame.UNKNOWN: "Look at the ranks that logged nothing, and at the kernel logs of their nodes.",
}


def _verdict_words(t: Told, verdict: BlameVerdict) -> list[str]:
    lines = [f"{t.name}: {_WHO[verdict.blame]}"]
    lines += [f"  {'why' if n == 0 else '   '}   {quote}" for n, quote in enumerate(verdict.because)]
    lines.append(f"  do    {_NEXT[verdict.blame]}")
    return [*lines, f"  sure  {verdict.confidence:.0%} (blame: {verdict.blame.value})"]
