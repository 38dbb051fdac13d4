"""Findings from lines, as the kernel-log check makes them."""

from __future__ import annotations

from sickbay.catalog import Catalog, load
from sickbay.checks import kernel_log, kernel_scan
from sickbay.checks.signs import Stamp, finding
from sickbay.core.diagnose import diagnose
from sickbay.model import Diagnosis, Finding, Place, Severity, Status

CATALOG: Catalog = load()


def kernel(*lines: str, node: str = "n1", at: float = 1000.0, first: int = 1) -> list[Finding]:
    found = kernel_scan.scan([("\n".join(lines) + "\n").encode()])
    stamp = Stamp("kernel-log", node, "boot", at)
    return [finding(sign, CATALOG, stamp, first + n) for n, sign in enumerate(kernel_log.signs(found))]


def xid(code: int, text: str = "", gpu: str = "3b", at: float = 10.0) -> str:
    return f"[{at:.6f}] NVRM: Xid (PCI:0000:{gpu}:00): {code}, {text}"


def seen(
    code: str, status: Status = Status.FAILED, device: str = "0000:3b:00", check: str = "nvidia-smi", **traits: str
) -> Finding:
    severity = Severity.MONITOR if status is Status.DEGRADED else Severity.RESET
    return Finding(
        f"boot/9{len(code)}",
        "agent",
        check,
        Place("n1", device),
        status,
        code,
        code,
        (f"{code}!",),
        severity,
        traits=traits,
    )


def of(*lines: str) -> list[Diagnosis]:
    return list(diagnose(kernel(*lines), CATALOG))


def brief(diagnoses: list[Diagnosis]) -> list[tuple[str, str, str]]:
    return [(d.fault, d.severity.name, d.when.value) for d in diagnoses]
