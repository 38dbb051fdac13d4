"""What the agent says of its node: a Report, whole each time, worst first and bounded.

agent/station makes one after each change and as a heartbeat; every publisher gets the same. It must never hold a secret
or more than the ingest takes in one piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sickbay import wire
from sickbay.agent.chart import Chart
from sickbay.model import Finding, Gpu, Report

MOST_FINDINGS = 96  # 64 verdicts, and an answer of each check
MOST_BYTES = 192 << 10  # the ingest takes 256 KiB
MOST_TEXT = 400


@dataclass(frozen=True, slots=True)
class Self:
    """Who this node is, as far as it is known."""

    node: str
    cluster: str = ""
    instance: str = ""
    gpus: tuple[Gpu, ...] = ()  # the map of the last healthy cycle
    factors: Mapping[str, str] = field(default_factory=dict)


def made(chart: Chart, who: Self, at: float) -> Report:
    """The chart as a Report of the chart's own number."""
    findings = tuple(_short(finding) for finding in chart.verdicts.findings()[:MOST_FINDINGS])
    report = Report(
        who.node, chart.boot_id, chart.reports, at, findings, who.gpus[:256], dict(list(who.factors.items())[:64]),
        who.instance, who.cluster,
    )  # fmt: skip
    return _fitting(report)


def _short(finding: Finding) -> Finding:
    """Every text within bounds: a node prints what it likes."""
    evidence = tuple(line[:MOST_TEXT] for line in finding.evidence[:4])
    traits = {name[:64]: value[:MOST_TEXT] for name, value in list(finding.traits.items())[:32]}
    return replace(finding, reason=finding.reason[:MOST_TEXT], evidence=evidence, traits=traits)


def _fitting(report: Report) -> Report:
    """The best half is dropped last: findings are worst first."""
    while len(report.findings) > 1 and len(wire.encode(report)) > MOST_BYTES:
        report = replace(report, findings=report.findings[: len(report.findings) // 2])
    return report
