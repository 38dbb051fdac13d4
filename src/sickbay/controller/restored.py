"""A store that was put back to what it held hours ago (etcd restored from a backup) under a leader who lives on.

Cases that ended are open again there, open ones are gone, treatments and restarts that were sent are unsent. Whoever
led all the while knows better, so what he knows is written over what was put back. Called by controller/records.py
before it looks for records that somebody deleted. A leader who begins after it has only what is on record.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.controller.view import View
from sickbay.model import Case, Entry, JobPhase, Ledger, Phase, Recovery, RecoveryPhase
from sickbay.ports import Stored

WHY = "this had ended, and was open again in a store that was put back to an earlier state"
ENDED = (Phase.RESOLVED, Phase.DISMISSED, Phase.DEFERRED)
ENDS = {
    JobPhase.FAILED: RecoveryPhase.FAILED,
    JobPhase.STOPPED: RecoveryPhase.FAILED,  # by us, and nobody was about to restart it: it was given up
    JobPhase.SUCCEEDED: RecoveryPhase.COMPLETED,
}


def is_older(found: Stored[Ledger], watched: float, epoch: int) -> bool:
    """Than what we wrote: nobody else writes it in our epoch, and its watch time never goes back."""
    return found.epoch < epoch or (found.epoch == epoch and found.value.watch_time < watched)


def ended_case(case: Case, view: View, at: float) -> Case:
    """As its node remembers that it ended."""
    known = view.records.get(case.node)
    past = [p.end for p in known.value.past if p.case == case.id] if known else []
    phase = Phase(past[-1]) if past and past[-1] in ENDED else Phase.DISMISSED
    entry = Entry(case.step + 1, "RESTORED", at, "sickbay", WHY, phase.value)
    return replace(
        case, phase=phase, step=case.step + 1, record=None, pending=None, deadline=None, notices=(),
        journal=(*case.journal, entry), timeline=(*case.timeline, (phase.value, at)),
    )  # fmt: skip


def ended_recovery(recovery: Recovery, view: View, at: float) -> Recovery:
    """As the job itself says; one that was stopped and given up stays so."""
    job = view.jobs.get(recovery.job)
    phase = ENDS.get(job.phase, RecoveryPhase.STOPPED) if job is not None else RecoveryPhase.GONE
    entry = Entry(recovery.step + 1, "RESTORED", at, "sickbay", WHY, phase.value)
    return replace(
        recovery, phase=phase, step=recovery.step + 1, pending=None, deadline=None, notices=(),
        journal=(*recovery.journal, entry),
    )  # fmt: skip
