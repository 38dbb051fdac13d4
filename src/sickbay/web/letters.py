"""Bytes from a node -> a Report that may be believed as far as a node may be believed, or a sentence why not.

Called by web/ingest.py with what an agent posted. Pure. What is believed of it is testimony's to say; here it becomes
an answer to the one who posted it. Nothing a node sends may raise further in.
"""

from __future__ import annotations

from sickbay import wire
from sickbay.errors import StoreError
from sickbay.model import Report
from sickbay.testimony import LONGEST_LINE, Unbelievable, believed

__all__ = ["LONGEST_LINE", "Refused", "read_report"]


class Refused(Exception):
    """Not taken. `kind` is for counting, `why` is the sentence the agent's log will show."""

    def __init__(self, status: int, kind: str, why: str, retry_s: int = 0) -> None:
        self.status, self.kind, self.why, self.retry_s = status, kind, why, retry_s
        super().__init__(why)


def read_report(body: bytes, node: str, cluster: str, received_at: float) -> Report:
    """The report in these bytes, with everything a node may not decide set right; else Refused."""
    report = _decoded(body)
    if report.node != node:
        raise Refused(403, "other-node", f"this token is for {node!r}; it cannot speak for {report.node[:80]!r}")
    try:
        return believed(report, node, cluster, received_at)
    except Unbelievable as error:
        raise Refused(400, "unreadable", str(error)) from error


def _decoded(body: bytes) -> Report:
    try:
        return wire.decode(Report, body)
    except (StoreError, RecursionError, ValueError, KeyError, TypeError) as error:
        raise Refused(400, "unreadable", f"the body is not a report: {str(error)[:300]}") from error
