"""Left in peace: for a while after a person's uncordon, a deferral or a time-out the same fault opens no new case.

The same is: the same fault, on the same boot, on the same device. A fault that comes back after a boot, or on another
GPU, is new evidence, whoever opened the node. Kept in NodeRecord.quiet, in watch time. Called by core/triage.py,
core/explain.py and the command line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sickbay.model import Case, Latch, NodeRecord, Phase
from sickbay.settings import Policy

LEAST_S = 3_600.0  # after a case that found no place: with `quiet_s = 0` the same one opened again in the same second
MOST = 64  # a node that keeps inventing device names cannot grow its record


@dataclass(frozen=True, slots=True)
class Peace:
    """What is left in peace, and until when. Of a record that names only the fault, boot and device are not known."""

    fault: str
    boot: str
    device: str
    until: float  # watch time

    def covers(self, latch: Latch) -> bool:
        """Where a boot or a device is not told, nothing says that it is another."""
        boot = latch.boot_id in ("", self.boot) or not self.boot
        return self.fault == latch.fault and boot and (latch.place.device in ("", self.device) or not self.device)


def kept(record: NodeRecord) -> Iterator[Peace]:
    for key, until in record.quiet.items():
        fault, _, where = key.partition("|")
        boot, _, device = where.partition("|")
        yield Peace(fault, boot, device, until)


def until(record: NodeRecord, latch: Latch) -> float:
    """The watch time up to which this verdict opens no case; 0 when none runs."""
    return max((peace.until for peace in kept(record) if peace.covers(latch)), default=0.0)


def is_left_by(case: Case, event: str) -> bool:
    """Does the case end without proof of health? `event`: what ended it."""
    return (case.cancelled and not let_go_by_us(case)) or case.phase is Phase.DEFERRED or event == "TIMED_OUT"


def let_go_by_us(case: Case) -> bool:
    """Because something that many nodes share explains it: nobody said that this fault is to be left in peace."""
    return any(entry.event == "CANCELLED" and entry.by == "sickbay" for entry in case.journal)


def length(case: Case, policy: Policy) -> float:
    """Seconds. As short as a person set it where a person let the node go; nothing goes round and round by itself."""
    return policy.quiet_s if case.cancelled else max(policy.quiet_s, LEAST_S)


def after(record: NodeRecord, case: Case, policy: Policy, now: float) -> Mapping[str, float]:
    """The record's quiet once this case has ended like that."""
    boots = {(la.fault, la.place.device): la.boot_id for la in record.latched}
    left = {key: until for key, until in record.quiet.items() if until > now}
    ends = now + length(case, policy)
    for d in case.diagnoses:
        boot = boots.get((d.fault, d.place.device), record.boot_id)
        left[f"{d.fault}|{boot}|{d.place.device}"] = ends
    return dict(list(left.items())[-MOST:])
