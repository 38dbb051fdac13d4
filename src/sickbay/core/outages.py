"""What does an attempt that has ended cost its job? None of its attempts, if it failed by something that it shares with
others: then it is tried again, later and later, and not given up.

Two witnesses. Several jobs that fail alike within a quarter of an hour: controller/outages.py keeps their failures. And
one job alone whose attempts do not begin though nothing is wrong with its nodes: a registry, a fabric, a subnet manager
or a file system that is away looks just like that, in a fleet with one big job too. The second has an end: a program
may hang by itself. Each attempt is judged when it has ended, and counted once, when the next one has begun or ended:
what befalls its job later changes nothing. Called by core/recover.py. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sickbay.core import absence, capacity, suspects
from sickbay.core.recover_table import E, P, how_it_ended
from sickbay.core.turn import JobSlice
from sickbay.model import Blame, Cost, Finding, Job, Recovery

ALIKE_S = 900.0  # seconds in which failures belong together: a stall is noticed up to ten minutes late
LASTS_S = 5_400.0  # after the last of them: longer than the longest time between two tries of one job
JOBS = 3
KEPT = 4_096
TRIES = 32  # of one job alone: with the longest back-off and the time that a start has, about a day
TELL_FROM = 2  # tries that did not begin before its owner is told
FIRST_S, LONGEST_S = 60.0, 1_800.0
KNOWN_S = 180.0  # after an attempt has ended: then it is known whether its nodes are away with many
SEEN_S = 60.0  # after a node has gone away: then it is shown as not ready (50 s on Kubernetes)


# --- several jobs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    at: float  # watch time
    how: str  # in a few words that are the same for all that fail by the same thing; "" is nothing of that kind
    job: str


@dataclass(frozen=True, slots=True)
class Failures:
    """What failed lately, and what is taken to be shared until when."""

    lately: tuple[Failure, ...] = ()
    shared: Mapping[str, float] = field(default_factory=dict)  # how -> watch time until which it is taken to last
    last: Mapping[str, str] = field(default_factory=dict)  # job -> how it failed last


def noted(before: Failures, failure: Failure) -> Failures:
    if not failure.how:
        return forgotten(before, failure.job)
    lately = (*(f for f in before.lately if failure.at - f.at <= ALIKE_S), failure)[-KEPT:]
    alike = {f.job for f in lately if f.how == failure.how}
    shared = {how: until for how, until in before.shared.items() if until > failure.at}
    if len(alike) >= JOBS or failure.how in shared:
        shared[failure.how] = failure.at + LASTS_S
    return Failures(lately, shared, {**before.last, failure.job: failure.how})


def forgotten(before: Failures, job: str) -> Failures:
    """It runs, or has ended."""
    return replace(before, last={name: how for name, how in before.last.items() if name != job})


def of_several(known: Failures, job: str, now: float) -> str:
    """In words, if this job's last failure is one of several alike; "" if it is its own."""
    how = known.last.get(job, "")
    if known.shared.get(how, 0.0) <= now:
        return ""
    return f"several jobs fail alike, so it is something that they share ({how})"


# --- what an attempt costs --------------------------------------------------------------------------------------------

TRIED_AGAIN = frozenset({Cost.SHARED, Cost.BLAMELESS})  # later and later


def judged(s: JobSlice, r: Recovery, findings: Sequence[Finding]) -> Recovery:
    """What its last attempt costs, by the examination of its nodes."""
    spared = 0 if s.job is not None and capacity.has_new_checkpoint(s.job, r) else r.spared
    if shared := s.outage or _common_cause(s, findings):
        return _shared(replace(r, spared=spared), shared)
    if _is_blameless(s, replace(r, spared=spared), findings):
        return replace(r, spared=spared + 1, cost=Cost.BLAMELESS)
    return replace(r, spared=spared, cost=Cost.ONE)


def _common_cause(s: JobSlice, findings: Sequence[Finding]) -> str:
    """All that is held against its nodes is what others show too that have the same driver, image or agent, and there
    is an open case about that. A data network that was away cost a job all of its attempts, since a bad version of the
    agent said of each node that its GPUs were gone (seed 50001957)."""
    if s.verdict is not None and s.verdict.blame is Blame.USER_CODE:
        return ""
    blamed = set(suspects.unsafe_nodes(s, findings))
    if not blamed or not blamed <= s.explained.keys():
        return ""
    return f"what its nodes show has a common cause ({', '.join(sorted({s.explained[node] for node in blamed}))})"


def drained(r: Recovery) -> Recovery:
    """The drained node is to blame. Emptied by us before it had made a step, it was no attempt of its own, and the
    tries before it stay in a row (seed 700)."""
    return replace(r, cost=Cost.DRAINED) if never_began(r) else replace(r, spared=0, cost=Cost.ONE)


def may_have_ended(r: Recovery, since: float) -> bool:
    """That a node of it went away is noticed late; what went away after that has ended nothing: a job that had hung on
    a sick node was not given up, for another one was rebooted by an administrator a minute later (seed 1723)."""
    ended = r.stopped if r.stopped >= 0 else r.entered if r.phase is P.STOPPING else math.inf
    return since <= ended + SEEN_S


def seen(s: JobSlice, r: Recovery) -> Recovery:
    """While it is stopped its nodes are away with many: they may be back before they are examined (seed 50000674)."""
    return _shared(r, s.outage) if s.outage and r.cost is Cost.SETTLED else r


def remembered(s: JobSlice, r: Recovery) -> JobSlice:
    """What was seen to stop it stands, also when it is over by now."""
    return replace(s, outage=r.because[0]) if r.cost is Cost.SHARED and r.because and not s.outage else s


def known_late(s: JobSlice, r: Recovery) -> Recovery:
    """That it failed like others, or that its nodes went away with many, is known a while after its end."""
    return _shared(r, s.outage) if s.outage and r.cost is Cost.ONE else r


def _shared(r: Recovery, outage: str) -> Recovery:
    return replace(r, cost=Cost.SHARED, blame=Blame.INFRASTRUCTURE, because=(outage, *r.because)[:3])


def barren(job: Job, r: Recovery) -> int:
    """Attempts in a row that ended without a new complete checkpoint, the last one included if it counts."""
    return 0 if capacity.has_new_checkpoint(job, r) else r.barren + (r.cost is Cost.ONE)


def asked(job: Job, r: Recovery) -> Recovery:
    """The next attempt is asked for. The last one is counted when that has begun or ended: that nodes went away with
    many may be known only after a restart at once, or one that was refused (seed 50000851). What it saved ends the row:
    a failure before that is no first one of two that nothing explains (seed 33)."""
    saved = capacity.has_new_checkpoint(job, r)
    if r.cost is Cost.ONE and not saved:
        return r
    return replace(r, barren=barren(job, r), cost=Cost.SETTLED, swap=r.swap and not saved)


def counted(r: Recovery) -> Recovery:
    return replace(r, barren=r.barren + (r.cost is Cost.ONE), cost=Cost.SETTLED)


def counted_once(before: Recovery, r: Recovery) -> Recovery:
    """It is shown alive while the next attempt waits: what it cost was settled when that was asked for. By a look from
    before its end it died once more, after it had saved, and was charged for that (seed 50001182)."""
    same = r.attempt == before.attempt and r.job_step == before.job_step
    return replace(r, cost=Cost.DRAINED) if same and before.cost is Cost.SETTLED else r


def words(r: Recovery) -> str:
    """Why its last attempt is not counted, and it is tried again later."""
    if r.cost is Cost.SHARED:
        return r.because[0]
    how = "did not begin" if never_began(r) else "stood still"
    return f"it {how} though nothing is wrong with its nodes (try {r.spared} of {TRIES})"


# --- one job alone ----------------------------------------------------------------------------------------------------


def _is_blameless(s: JobSlice, r: Recovery, findings: Sequence[Finding]) -> bool:
    """Is its last failure of the kind that a shared thing makes? The first since it saved may be a hang in the middle
    of its work, and so may the first after attempts that did not begin, or that died: that was another outage. All
    others are attempts that did not begin: one that makes steps and hangs twice in a row has a fault of its own, and so
    has one whose ranks die."""
    first = not r.spared or not _had_hung(r)
    return _looks_shared(s, r, findings) and (never_began(r) or (first and hung(r)))


def _had_hung(r: Recovery) -> bool:
    """Did the attempt before this one hang in the middle of its work? If nobody knows any more, it did."""
    starts = [i for i, entry in enumerate(r.journal) if entry.phase == P.RESTARTING]
    before = replace(r, journal=r.journal[: starts[-1]]) if starts else r
    return not never_began(before) and hung(before)


def _looks_shared(s: JobSlice, r: Recovery, findings: Sequence[Finding]) -> bool:
    """It hung, or died of what its logs call the infrastructure, and no node of it is ill or silent alone. Beside an
    illness that work is safe from its logs say who is to blame. Where a node went away before the first step no log
    says anything, and no program was to blame (seed 313); nor where a node can only not be asked, for what the platform
    shows of it may be minutes old."""
    job = s.job
    if job is None or r.by_drain:
        return False
    blamed = (*suspects.unsafe_nodes(s, findings), *_one_silent(job))
    if any(not never_began(r) or not _is_only_away(s, node) for node in blamed):
        return False
    if not hung(r) and _dies_there_again(s, job, findings):
        return False
    blame = r.blame
    if suspects.sick_nodes(s, findings):
        blame = s.verdict.blame if s.verdict is not None else Blame.UNKNOWN
    away = bool(s.unreachable) or any(node in job.nodes for node in s.powerless)
    left = never_began(r) and (away or bool(suspects.mute_nodes(findings)))
    return blame is Blame.INFRASTRUCTURE or (blame is Blame.UNKNOWN and (hung(r) or left))


def _is_only_away(s: JobSlice, node: str) -> bool:
    """All that is held against this node is that it does not answer: whoever was evicted from it before the first step
    has not been tried."""
    cases = [case for case in s.cases if case.node == node]
    return bool(cases) and all(absence.is_only_evidence(case) for case in cases)


def _one_silent(job: Job) -> tuple[str, ...]:
    """One node's ranks say nothing while the others wait: that node is the suspect."""
    silent = suspects.silent_nodes(job)
    return silent if len(job.nodes) > 1 and len(silent) == 1 else ()


def _dies_there_again(s: JobSlice, job: Job, findings: Sequence[Finding]) -> bool:
    """The first rank that died was on a node that was suspected before and that nobody can examine: "nothing is wrong
    with its nodes" cannot be said of it."""
    before = s.recovery.suspects if s.recovery is not None else ()
    mute = suspects.mute_nodes(findings)
    return any(node in before and node in mute for node in suspects.dead_nodes(job))


def never_began(r: Recovery) -> bool:
    """Did its last attempt end before its first step? One that was only found alive stands where it was begun."""
    phase = how_it_ended(r)[0]
    stands = r.checkpoint_step > 0 and r.job_step == r.checkpoint_step
    return phase == P.RESTARTING or (phase in (P.RUNNING, P.STALLED) and stands)


def hung(r: Recovery) -> bool:
    """Did this attempt hang, or never make its first step, rather than die?"""
    return how_it_ended(r)[1] in (E.DONE, E.TIMED_OUT)


def was_spared_before(r: Recovery) -> bool:
    """Did an attempt before this one hang or not begin, in a row, and cost nothing?"""
    return r.spared > (r.cost is Cost.BLAMELESS)


def is_tried_enough(r: Recovery) -> bool:
    return r.cost is Cost.BLAMELESS and r.spared > TRIES


def is_worth_telling(r: Recovery) -> bool:
    """Its owner hears of it when it has failed to begin more than once."""
    return r.cost in TRIED_AGAIN and never_began(r) and tries_of(r) >= TELL_FROM


def back_off(r: Recovery) -> float:
    """Seconds until the next try: none before the first one, then twice as long each time, up to half an hour."""
    tries = max(tries_of(r), r.spared - 1) if r.cost in TRIED_AGAIN else 0
    return float(min(FIRST_S * 2 ** min(tries, 5), LONGEST_S)) if tries > 0 else 0.0


def tries_of(r: Recovery) -> int:
    """Restarts since it ran last; one that was refused was none."""
    tries = 0
    for entry in reversed(r.journal):
        if entry.phase == P.RUNNING:
            break
        tries += (entry.phase == P.RESTARTING) - (entry.event == E.REFUSED)
    return tries
