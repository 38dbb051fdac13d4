"""Publisher textfile: one .prom file for node_exporter's textfile collector, replaced whole after each report."""

from __future__ import annotations

from pathlib import Path

from sickbay import atomic
from sickbay.agent.measures import Measures
from sickbay.agent.publishers import Item, Publisher, Told
from sickbay.model import Status

FILE = "sickbay.prom"
STATUSES = ("pass", "warn", "fail", "unknown")


class TextfilePublisher(Publisher):
    name = "textfile"
    takes: type[Told] | type[Measures] = Told

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._sent = 0

    def publish(self, item: Item) -> None:
        if isinstance(item, Told):
            atomic.write(self._folder / FILE, text_of(item).encode(), sync=False)
            self._sent += 1

    def figures(self) -> dict[str, float]:
        return {"sent": float(self._sent)}


def text_of(told: Told) -> str:
    """Prometheus text format. Names and meanings: docs/metrics.md."""
    report, verdict = told.report, told.verdict
    rows = ["# HELP sickbay_node_status 1 for what the agent says of its node now.", "# TYPE sickbay_node_status gauge"]
    rows += [f'sickbay_node_status{{status="{one}"}} {int(one == verdict.status)}' for one in STATUSES]
    rows += [
        "# HELP sickbay_finding Lines or counts behind each finding that is latched.",
        "# TYPE sickbay_finding gauge",
    ]
    seen: set[str] = set()
    for finding in report.findings:
        if finding.status is Status.OK or not finding.code:
            continue
        labels = {
            "check": finding.check, "code": finding.code, "device": finding.place.device,
            "severity": finding.severity.name, "status": finding.status.value,
        }  # fmt: skip
        row = "sickbay_finding{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"
        if row not in seen:  # node_exporter refuses a whole file for one row that stands twice
            seen.add(row)
            rows.append(f"{row} {finding.count}")
    rows += [
        "# HELP sickbay_last_report_seconds When this was written.", "# TYPE sickbay_last_report_seconds gauge",
        f"sickbay_last_report_seconds {report.at:.3f}",
    ]  # fmt: skip
    return "\n".join(rows) + "\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
