"""Check: the kernel log. What the driver and the kernel themselves reported about the hardware since the cursor.

`checks/run` and the agent call it on a Host; `sickbay diagnose` uses `signs` on a file. Only kernel-origin records
count.
"""

from __future__ import annotations

from sickbay.checks.kernel_hits import Hit
from sickbay.checks.kernel_scan import Scan, scan_lines
from sickbay.checks.signs import Ask, Reading, Sign, quote
from sickbay.model import Status
from sickbay.ports import Completed, Host

_WORDS = {
    "kernel.fallen-off-bus": "the kernel lost the GPU from the PCIe bus",
    "kernel.rm-init-failed": "the driver could not initialise the GPU",
    "kernel.pcie-aer-fatal": "fatal PCIe error",
    "kernel.pcie-aer-nonfatal": "uncorrected, non-fatal PCIe error",
    "kernel.pcie-dpc": "PCIe port cut its link to contain an error (DPC)",
    "kernel.edac-uncorrected": "uncorrected host memory error",
    "kernel.mce-fatal": "fatal machine check",
    "kernel.hung-task-nvidia": "a task has been stuck in the NVIDIA driver",
    "kernel.panic": "kernel panic",
    "kernel.nic-fatal": "network card failed",
}


def collect(host: Host, ask: Ask) -> Reading:
    lines, cursor = host.kernel_lines(ask.cursor)
    return Reading(Completed(0, "", ""), tuple(lines), cursor)


def judge(reading: Reading, ask: Ask) -> list[Sign]:
    return signs(scan_lines(reading.lines))


def signs(found: Scan) -> list[Sign]:
    """One Sign per code and device (and meaning), in the order in which they first appeared."""
    hits = sorted(found.hits.values(), key=lambda hit: hit.line)
    told = [sign_of(hit, found.driver) for hit in hits]
    if found.foreign:
        told.append(_quoted(found))
    return told


def sign_of(hit: Hit, driver: str) -> Sign:
    """One hit in words; the agent calls it for what is new since its last look."""
    named = hit.named
    traits = dict(named.traits) | {"events": str(hit.events)}
    if driver:
        traits["driver"] = driver
    if hit.sites:
        traits["sites"] = ",".join(sorted(hit.sites))
    if hit.first is not None and hit.last is not None:
        traits["span_s"] = f"{hit.last - hit.first:.0f}"
    return Sign(named.code, _reason(hit), named.device, quote(*hit.evidence), count=hit.count, traits=traits)


def _reason(hit: Hit) -> str:
    code = hit.named.code
    what = _WORDS.get(code) or f"{'SXID' if code.startswith('sxid') else 'XID'} {code.rpartition('.')[2]}"
    where = f" on {hit.named.device}" if hit.named.device else ""
    times = f", {hit.count} lines in {hit.events} event(s)" if hit.count > 1 else ""
    return f"{what}{where}{times}"


def _quoted(found: Scan) -> Sign:
    """Someone quoted a kernel line: worth knowing, never evidence."""
    return Sign(
        "",
        f"{found.foreign} line(s) that quote kernel errors were not written by the kernel; they are not evidence",
        evidence=quote(found.foreign_sample),
        status=Status.OK,
        count=found.foreign,
        traits={"foreign": str(found.foreign)},
    )
