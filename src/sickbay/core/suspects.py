"""Who is to blame for a job that died or stalled, and which nodes not to use again: nodes first, then the logs.

Called by core/recover.py when the whole gang is stopped. A user's bug is never called hardware; what nothing
explains is called unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.core.blame import SURE
from sickbay.core.turn import JobSlice
from sickbay.model import Blame, Case, Diagnosis, Finding, Job, Recovery, Severity, Status, When

# Work done after the first evidence of these cannot be trusted.
CORRUPTING = frozenset({"ecc-uncontained", "ecc-double-bit", "collective-wrong", "silent-corruption"})
# A spare memory row that waits for a reset, a GPU that still computes, but slowly: work that runs is safe from it, and
# hangs by something else. A hot GPU in a cut fabric cost a job its only attempt (seed 50001988).
SAFE = frozenset({"row-remap-pending", "gpu-degrading"})


def judge(s: JobSlice, r: Recovery, findings: Sequence[Finding]) -> Recovery:
    """What the agents saw, then what the examination says, then the logs. Mute nodes are not used again."""
    sick = _failed(findings)
    mute = mute_nodes(findings)
    evidence, distrust = _evidence(s.cases)
    real = [c for c in s.cases if _could_kill(c, s)]
    nodes = sick_nodes(s, findings)
    r = replace(r, evidence_at=evidence, distrust=distrust)
    if nodes:
        quotes = [q for c in real for d in c.diagnoses for q in d.because[:1]] + [f.reason for f in sick]
        kinds = {s.kinds.get(d.fault) for c in real for d in c.diagnoses}
        blame = Blame.HARDWARE if sick or "hardware" in kinds else Blame.INFRASTRUCTURE
        return replace(r, blame=blame, because=tuple(quotes[:3]), suspects=tuple(dict.fromkeys((*nodes, *mute))))
    return _judge_logs(s, r, mute)


def sick_nodes(s: JobSlice, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Nodes of the job that something is wrong with which can end it, or that failed the examination."""
    real = [c.node for c in s.cases if _could_kill(c, s)]
    return tuple(dict.fromkeys([*real, *(f.place.node for f in _failed(findings))]))


def unsafe_nodes(s: JobSlice, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Those of them with something that can stop work which runs: a row remap that waits for a reset cannot. Nor does
    the word of somebody who may have nothing treated prove that a node did (core/witness.py makes it MONITOR)."""
    real = [c.node for c in s.cases if _could_kill(c, s) and any(_can_stop_work(d) for d in c.diagnoses)]
    return (*real, *(f.place.node for f in _failed(findings) if f.code not in s.harmless))


def _can_stop_work(d: Diagnosis) -> bool:
    return d.fault not in SAFE and d.severity > Severity.MONITOR


def _failed(findings: Sequence[Finding]) -> list[Finding]:
    return [f for f in findings if f.status is Status.FAILED]


def _could_kill(case: Case, s: JobSlice) -> bool:
    """Hardware trouble that can end a job. One that can wait does not outweigh a plain program error."""
    real = any(s.kinds.get(d.fault) in ("hardware", "infrastructure") for d in case.diagnoses)
    waits = all(d.when is When.IDLE for d in case.diagnoses)
    sure = s.verdict is not None and s.verdict.blame is Blame.USER_CODE and s.verdict.confidence >= SURE
    return real and not (waits and sure)


def _judge_logs(s: JobSlice, r: Recovery, mute: tuple[str, ...]) -> Recovery:
    job, verdict = s.job, s.verdict
    assert job is not None
    silent = silent_nodes(job)
    if verdict is None:
        quiet = tuple(f"rank {rank} fell silent while the others waited for it" for rank in job.silent[:1])
        return replace(r, blame=Blame.UNKNOWN, because=quiet, suspects=tuple(dict.fromkeys((*silent, *mute))))
    signature = f"{verdict.traceback}@{job.step}" if verdict.traceback else ""
    unsure = verdict.blame is Blame.USER_CODE and verdict.confidence < SURE
    blame = Blame.UNKNOWN if unsure else verdict.blame  # a job is not given up on a guess
    if blame is Blame.UNKNOWN and signature and signature in r.tracebacks:
        blame = Blame.USER_CODE
    tracebacks = (*r.tracebacks, signature)[-4:] if signature else r.tracebacks
    suspects = tuple(dict.fromkeys((*silent, *mute))) or (dead_nodes(job) if blame is not Blame.USER_CODE else ())
    return replace(r, blame=blame, because=verdict.because[:3], suspects=suspects, tracebacks=tracebacks)


def mute_nodes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """Nodes that could not be examined."""
    return tuple(dict.fromkeys(f.place.node for f in findings if f.status is Status.UNKNOWN))


def silent_nodes(job: Job) -> tuple[str, ...]:
    """Nodes of ranks that said nothing while all others logged that they were waiting."""
    return tuple(dict.fromkeys(job.rank_nodes[rank] for rank in job.silent if rank < len(job.rank_nodes)))


def dead_nodes(job: Job) -> tuple[str, ...]:
    """The node whose rank died first (a job's exits are in that order), if one did: the only suspect an unexplained
    failure offers."""
    dead = [x.node for x in job.exits if x.code not in (None, 0)]
    return tuple(dict.fromkeys(dead))[:1]


def _evidence(cases: Sequence[Case]) -> tuple[float | None, bool]:
    corrupting = [c for c in cases if any(d.fault in CORRUPTING for d in c.diagnoses)]
    times = [c.first_evidence_at for c in (corrupting or cases)]
    return (min(times) if times else None), bool(corrupting)


def blame_drain(s: JobSlice, r: Recovery) -> Recovery:
    case = next((c for c in s.cases if c.id == r.by_drain), None)
    because = tuple(q for d in (case.diagnoses if case else ()) for q in d.because[:1])
    suspects = (case.node,) if case else ()
    evidence, distrust = _evidence(s.cases)
    return replace(r, blame=Blame.HARDWARE, because=because, suspects=suspects, evidence_at=evidence, distrust=distrust)
