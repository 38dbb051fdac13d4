"""Which event it is in the life of a job (core/recover_table.py), coupled to cases only by what nodes show.

A job never waits for a repair when good nodes exist: it hangs off verified capacity. Called by controller/jobs.py with
one job's slice; pure. Only `step` of core/recover_table.py returns a Recovery in another phase.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core import (
    arrivals,
    capacity,
    deleted,
    explain,
    namesake,
    outages,
    progress,
    reach,
    renumbered,
    suspects,
    suspicion,
)
from sickbay.core.frozen import replace
from sickbay.core.moment import moment
from sickbay.core.naming import named
from sickbay.core.recover_table import ENDS, E, JobEvent, P, deadline_of, renewed, step, was_passed_over
from sickbay.core.turn import JobDecision, JobSlice, Now
from sickbay.model import (
    Action,
    Blame,
    Cost,
    Done,
    Entry,
    Failed,
    Finding,
    Job,
    JobPhase,
    Lost,
    Outcome,
    Place,
    Recovery,
    Status,
    Unguarded,
    Verb,
)
from sickbay.settings import JobPolicy

DEAD = frozenset({JobPhase.FAILED, JobPhase.STOPPED})

Move = tuple[JobEvent, str]
Ruled = tuple[Move | None, Recovery]


def decide(s: JobSlice, policy: JobPolicy, now: Now, cluster: str = "") -> JobDecision:
    recovery, opened = s.recovery, False
    if recovery is None:
        recovery = _taken_up(s, now, cluster)
        opened = recovery is not None
    if recovery is None:
        return JobDecision(None)
    if namesake.is_another(recovery, s.job):
        return JobDecision(_left_behind(s, recovery, policy, now), opened, True)
    s, recovery = renumbered.seen(s, namesake.known(recovery, s.job), now)
    recovery = arrivals.note(progress.note(recovery, s, now), s)
    if was_passed_over(recovery, now):  # that time is not counted
        recovery = replace(recovery, deadline=renewed(recovery, policy, now))
    recovery = reach.obey(s, reach.forget(s, recovery), now)
    recovery = recovery if s.paused else reach.told(s, recovery, now)  # else it would not go on by itself
    silent, found = list[tuple[str, str]](), _found(s, recovery)
    for _ in range(8):
        if recovery.phase in ENDS:
            break
        in_vain = recovery.arrivals
        move, recovery = _next(s, recovery, policy, now)
        if move is None:
            recovery = _ask_later(s, recovery, now)
            break
        moved = step(recovery, *move, now=now, policy=policy)
        if moved is None:
            break
        silent += _silent(s, recovery, moved)
        recovery = _entering(s, moved, move[1], policy, now)
        if recovery.phase is P.WAITING_FOR_CAPACITY and (move[0] is E.SPARED or recovery.arrivals > in_vain):
            recovery = arrivals.told(recovery, policy, now)
        s = replace(s, outcome=None)
    return JobDecision(recovery, opened, recovery.phase in ENDS, tuple(silent), found)


def _taken_up(s: JobSlice, now: Now, cluster: str) -> Recovery | None:
    """Of a job that has no record, or has one no more."""
    if s.lost is not None:
        return deleted.answer(s.lost, s.job, now)
    return _adopt(s, now, cluster) or (deleted.unread(s.job, now, cluster) if s.unknown and s.job else None)


def _found(s: JobSlice, r: Recovery) -> tuple[Finding, ...]:
    """What the examination of its nodes found is evidence against them, whether or not their agents say it too."""
    outcome = _answer(s, r) if r.phase is P.EXAMINING else None
    return tuple(f for f in outcome.findings if f.status is Status.FAILED) if isinstance(outcome, Done) else ()


def _left_behind(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Recovery | None:
    """Its job is over as if its deletion had been seen, also while it was made anew. The one of its name that is there
    is adopted afresh; no word about the old one is heard for it."""
    r = reach.obey(replace(s, job=None), r, now)
    return step(r, E.DELETED, namesake.words(r.job), now=now, policy=policy)


def _adopt(s: JobSlice, now: Now, cluster: str) -> Recovery | None:
    """A managed job that runs gets a record, so that its progress is watched from now on. So does one that a drain of
    ours has stopped and that nobody looks after: who else would resume it? Not an attempt that was given up.

    Its steps are counted from the watch time: a job that was given up and started again by its owner gets a second
    record, and the keys of the first one's actions must never come again (a door answers a known key without acting).
    """
    job = s.job
    if job is None or not job.managed or s.given_up or not (job.phase is JobPhase.RUNNING or _is_orphan(job)):
        return None
    began = capacity.before_it(job)
    how = "runs" if job.phase is JobPhase.RUNNING else "was stopped by a drain of ours and has no record; it ran"
    first, why = int(now.watch), f"{job.id} {how} on {len(job.nodes)} nodes"
    entry = Entry(first, "ADOPTED", now.wall, "sickbay", why, P.RUNNING.value)
    return Recovery(
        job=job.id, phase=P.RUNNING, attempt=job.attempt, step=first, entered=now.watch, deadline=None,
        nodes=job.nodes, job_step=job.step, progressed=now.watch, checkpoint_step=began, owner=job.owner,
        journal=(entry,), cluster=cluster, on_demand=bool(s.on_demand), uid=job.uid,
    )  # fmt: skip


def _is_orphan(job: Job) -> bool:
    """Stopped whole by our own drain: a rank that was evicted while others had no place yet is no stop."""
    drained = job.phase is JobPhase.STOPPED and job.stopped_by.startswith("drain:")
    return drained and bool(job.rank_nodes) and all(job.rank_nodes)


# --- which event ----------------------------------------------------------------------------------------------------


def _next(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    if _is_made_anew(s, r):
        deadline = renewed(r, policy, now) if _due(r, now) else r.deadline
        return None, replace(r, refusal="it is not there while it is made anew", deadline=deadline)
    ended = _by_others(s, r)
    if ended is not None:
        return ended, r
    if s.paused and r.phase is not P.RUNNING and not has_ended_again(r, s.job):
        return _hands_off(s, r, policy, now)
    return RULES[r.phase](s, r, policy, now)


def has_ended_again(r: Recovery, job: Job | None) -> bool:
    """The attempt that we asked for has begun and ended. That is noted in a pause too: what it shared that end with may
    be over when the pause is (seed 50000113)."""
    return job is not None and r.phase is P.RESTARTING and job.phase in DEAD and job.attempt > r.attempt


def _is_in_line(r: Recovery, job: Job) -> bool:
    """The attempt that we asked for is made and may not begin yet: a queue holds it, or others have the GPUs."""
    if r.phase not in (P.RESTARTING, P.WAITING_FOR_CAPACITY) or job.attempt <= r.attempt:
        return False
    return job.phase is JobPhase.SUSPENDED or (job.phase is JobPhase.PENDING and job.unplaced > 0)


def _hands_off(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    """Paused, or beyond what the policy allows: it has its whole time again afterwards. What its owner or its own
    controller brings back to life meanwhile needs us no more."""
    job = s.job
    assert job is not None
    if r.phase in (P.STALLED, P.STOPPING) and job.phase is JobPhase.RUNNING and _lives_again(r, job):
        return (E.PROGRESSED, f"attempt {job.attempt} runs without our help"), _alive(r, job, now)
    r = outages.seen(s, r) if r.phase is P.STOPPING else r
    return None, replace(r, refusal=s.paused, deadline=renewed(r, policy, now))


def _lives_again(r: Recovery, job: Job) -> bool:
    if r.phase is P.STALLED:
        return progress.has_moved(r, job)
    return (job.attempt, job.step) > (r.attempt, r.job_step) or r.journal[-1].event == E.DIED


def _is_made_anew(s: JobSlice, r: Recovery) -> bool:
    """Some jobs must be deleted to be restarted. Once that call was sent, only its own answer says that there is no
    such job any more: whoever believed the deletion would leave a job that was half restarted to nobody."""
    gone = s.job is None or s.job.phase is JobPhase.GONE
    sent = r.phase is P.RESTARTING and r.pending is not None and r.pending.sends > 0
    return gone and sent and not isinstance(_answer(s, r), Failed | Unguarded | Lost)


def _by_others(s: JobSlice, r: Recovery) -> Move | None:
    """Preemption, suspension and deletion by others are not failures."""
    job = s.job
    if job is None or job.phase is JobPhase.GONE:
        return (E.DELETED, "the job was deleted")
    if job.phase is JobPhase.SUCCEEDED:
        return (E.COMPLETED, f"finished at step {job.step}")
    if job.phase is JobPhase.SUSPENDED and not _is_in_line(r, job):
        return (E.SUSPENDED, f"stopped by {job.stopped_by or 'somebody else'}")
    return None


def _running(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    job = s.job
    assert job is not None
    if job.phase in DEAD and job.attempt >= r.attempt:  # a look at an earlier attempt says nothing about this one
        drain = job.phase is JobPhase.STOPPED and job.stopped_by.startswith("drain:")
        case = job.stopped_by.removeprefix("drain:") if drain else ""
        r = replace(r, attempt=job.attempt, by_drain=case, down_since=now.wall)
        why = f"stopped because case {case} empties its node" if case else _how_it_died(job)
        return (E.DRAINED if case else E.DIED, why), r
    quiet = now.watch - r.progressed
    if quiet >= progress.most_quiet_s(r, job, policy):
        since = now.wall - quiet
        why = f"no step after {r.job_step} since {moment(since)}"
        return (E.STALLED, why), replace(r, by_drain="", down_since=since)
    return None, r


def _how_it_died(job: Job) -> str:
    dead = [x for x in job.exits if x.code not in (None, 0)]
    if not dead:
        return "the job died"
    return f"rank {dead[0].rank} on {dead[0].node} exited with {dead[0].code}" + (
        f" and {len(dead) - 1} more" if len(dead) > 1 else ""
    )


def _stalled(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    job = s.job
    assert job is not None
    if progress.has_moved(r, job):
        return (E.PROGRESSED, f"step {job.step} was made after all"), _alive(r, job, now)
    if job.phase in DEAD and job.attempt >= r.attempt:
        return _running(s, r, policy, now)
    if job.phase is JobPhase.RUNNING and job.unread:
        return (E.UNSEEN, f"its progress cannot be read: {job.unread}"), _alive(r, job, now)
    outcome = _answer(s, r)
    if isinstance(outcome, Done):
        return (E.DONE, f"still no step; stacks and dumps are kept: {outcome.detail}"), r
    if _due(r, now):
        return (E.TIMED_OUT, "still no step; the whole gang is stopped"), r
    return None, r


def _due(r: Recovery, now: Now) -> bool:
    return r.deadline is not None and now.watch >= r.deadline


def _answer(s: JobSlice, r: Recovery) -> Outcome | None:
    return s.outcome if r.pending is not None and s.answers == r.pending.key else None


def _ask_later(s: JobSlice, r: Recovery, now: Now) -> Recovery:
    """The same action again after a while: an answer that moves nothing must not be asked for in a tight circle."""
    if _answer(s, r) is None or r.pending is None:
        return r
    return replace(r, pending=replace(r.pending, ask_at=now.watch + capacity.REFUSED_S))


def _stopping(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    outcome, job = _answer(s, r), s.job
    assert job is not None
    refused = isinstance(outcome, Failed | Unguarded | Lost)
    if refused and job.phase in DEAD and job.attempt > r.attempt:  # a later attempt than the one we knew is over too
        r, outcome = replace(r, attempt=job.attempt), Done(f"attempt {job.attempt} does not run")
    r = outages.seen(s, r)
    if isinstance(outcome, Done):
        r = replace(r, stopped=now.watch)
        if r.by_drain:
            return (E.SPARED, "the drained node is to blame"), suspects.blame_drain(s, outages.drained(r))
        if arrivals.was_absent(r):
            return (E.SPARED, "it had not begun, for want of nodes"), replace(r, cost=Cost.ABSENT)
        return (E.DONE, outcome.detail or "every rank is stopped"), r
    if (refused or _due(r, now)) and progress.has_moved(r, job):
        return (E.PROGRESSED, f"it makes steps again ({job.step})"), _alive(r, job, now)
    if refused and job.phase is JobPhase.RUNNING and job.unread:
        return (E.UNSEEN, f"its progress cannot be read: {job.unread}"), _alive(r, job, now)
    if _due(r, now):
        why = f"{explain.UNDELIVERED}: {s.undelivered}" if s.undelivered else "not every rank could be stopped yet"
        return (E.TIMED_OUT, f"{why}; it is tried again"), r
    return None, r


def _examining(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    job = s.job
    assert job is not None
    if job.phase is JobPhase.RUNNING and job.attempt > r.attempt:
        return (E.ALIVE, f"attempt {job.attempt} is alive"), _alive(r, job, now)
    outcome = _answer(s, r)
    if not isinstance(outcome, Done | Failed | Lost | Unguarded) and not _due(r, now):
        return None, r
    findings = outcome.findings if isinstance(outcome, Done) else ()
    s, earlier, r = outages.remembered(s, r), r.suspects, suspects.judge(s, r, findings)
    if r.cost not in (Cost.SETTLED, Cost.SHARED):
        return (E.BLAMED, f"attempt {r.attempt} has made no step since it was seen to end: it is not counted twice"), r
    r = arrivals.brought_it_down(outages.judged(s, r, findings), job)
    if outages.is_tried_enough(r):
        return (E.GIVEN_UP, f"{r.spared} attempts in a row did not begin, and nothing is wrong with its nodes"), r
    if r.blame is Blame.USER_CODE:
        return (E.GIVEN_UP, f"{explain.BLAME_WORDS[r.blame]}: {_first(r.because)}"), r
    hung_again = outages.hung(r) and (r.swap or outages.was_spared_before(r))
    if r.blame is Blame.UNKNOWN and hung_again:  # a fabric that is cut says nothing in any log
        return (E.BLAMED, "it hung again and nothing explains it: it is moved to other nodes"), replace(
            r, suspects=tuple(dict.fromkeys((*earlier, *r.suspects, *job.nodes)))
        )
    # A node that answers nobody explains a death well enough; also one that is back by now, or that nobody looked at
    mute = s.unreachable or r.told_of == job.attempt or suspects.mute_nodes(findings) or not isinstance(outcome, Done)
    again = r.cost is Cost.ONE and outages.barren(job, r) > 1  # what cost nothing was no first failure of its own
    if r.blame is Blame.UNKNOWN and r.swap and again and not mute:
        return (E.GIVEN_UP, "it failed again with nothing to explain it"), r
    # A hang that cost nothing is no first one of two (seed 71), nor what a node that answers nobody explains.
    if r.blame is Blame.UNKNOWN and r.cost is Cost.ONE and not mute:
        r = replace(r, swap=True)
    return (E.BLAMED, f"{explain.BLAME_WORDS[r.blame or Blame.UNKNOWN]}: {_first(r.because)}"), r


def _first(because: Sequence[str]) -> str:
    return because[0] if because else "no line says why"


def _alive(r: Recovery, job: Job, now: Now) -> Recovery:
    """What the same attempt has cost stands until it makes a step: it may only be shown as running (a store that was
    put back, a look from before its stop)."""
    moved = job.step > r.checkpoint_step if outages.never_began(r) else progress.differs(job, r.job_step)
    lives = job.attempt > r.attempt or moved
    return replace(r, attempt=job.attempt, nodes=job.nodes, job_step=job.step, progressed=now.watch, stopped=-1.0,
                   cost=Cost.SETTLED if lives else r.cost)  # fmt: skip


def _waiting(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    job = s.job
    assert job is not None
    if progress.is_told_late(r, job, now.watch):
        return None, replace(r, refusal=f"attempt {job.attempt} is stopped and still shown as running")
    if job.phase is JobPhase.RUNNING:
        return (E.ALIVE, f"attempt {job.attempt} is alive: nothing to restart"), outages.counted_once(
            r, _alive(r, job, now)
        )
    r = outages.known_late(s, r)
    barren = outages.barren(job, r)
    spent = r.cost is Cost.ONE and barren >= policy.barren_limit
    if spent and now.watch < r.entered + outages.KNOWN_S:
        return None, replace(r, refusal="before it is given up we look whether its nodes went away with many others")
    if spent:
        why = f"{barren} attempts in a row ended without a new complete checkpoint (limit {policy.barren_limit})"
        return (E.GIVEN_UP, why), r
    if lost := reach.loose(s, r, job):
        why = reach.words(job, lost)
        return ((E.TIMED_OUT, why) if _due(r, now) else None), replace(r, refusal=why)
    if why := reach.ending(s, r, job):
        return ((E.TIMED_OUT, why) if _due(r, now) else None), replace(r, refusal=why)
    if now.watch < r.entered + outages.back_off(r):
        return None, replace(r, refusal=f"it is tried again later and later: {outages.words(r)}")
    good = s.good or ()
    need = arrivals.needed(job, r)
    nodes = _chosen(s, job, r, need, policy, now)
    if nodes is not None and now.watch < capacity.again_at(r):
        return None, replace(r, refusal=r.journal[-1].why)
    if nodes is not None:
        missing = need - len(nodes)
        found = arrivals.words(nodes, missing) if missing else capacity.words(job, nodes, s.doubts)
        # by_drain: whatever ends the attempt that begins now, it is not the drain that ended the last one
        return (E.FOUND, found), replace(outages.asked(job, r), nodes=nodes, expects=missing, by_drain="")
    why = f"needs {need} good nodes, {len(good) - len(s.doubts)} are known to be good and free"
    if s.doubts:
        most = suspicion.most_suspects(need, now.watch - r.progressed)
        why += f"; {len(s.doubts)} more are under suspicion, of which it takes {most} by now"
    if _due(r, now):
        return (E.TIMED_OUT, why), replace(r, refusal=why, arrivals=0)  # what did not come then may come now
    return None, replace(r, refusal=why)


def _chosen(s: JobSlice, job: Job, r: Recovery, need: int, policy: JobPolicy, now: Now) -> tuple[str, ...] | None:
    """Whom this failure points at is swapped out if possible, if not all of them then the node whose rank died first;
    whom an earlier one points at is taken last."""
    good, most = s.good or (), suspicion.most_suspects(need, now.watch - r.progressed)
    clean = capacity.choose(job, good, r.suspects, need, s.doubts)
    if clean is None and arrivals.may_ask(r, policy):
        return arrivals.at_hand(job, [n for n in good if n not in s.doubts], r.suspects, need)
    return (
        clean
        or capacity.choose(job, good, r.suspects, need, s.doubts, most)
        or capacity.choose(job, good, suspects.dead_nodes(job), need, s.doubts, most)
        or capacity.choose(job, good, (), need, s.doubts, most)
    )


def _restarting(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    r = r if has_ended_again(r, s.job) else outages.known_late(s, r)  # by then it is about the next one
    move, r = _begins(s, r, policy, now)
    begun = move is not None and move[0] is not E.REFUSED
    return move, outages.counted(r) if begun else r


def _begins(s: JobSlice, r: Recovery, policy: JobPolicy, now: Now) -> Ruled:
    job, outcome = s.job, _answer(s, r)
    assert job is not None
    wanted = r.attempt + 1
    if isinstance(outcome, Failed | Unguarded | Lost):
        return (E.REFUSED, outcome.why), r
    if job.attempt >= wanted and job.phase in (JobPhase.RUNNING, *DEAD) and job.step > max(0, r.checkpoint_step):
        made = "made its first step" if job.step > 1 or job.checkpoints else "runs"
        return (E.PROGRESSED, f"attempt {job.attempt} {made}{_elsewhere(r, job)}"), _resumed(r, job, now)
    if job.attempt >= wanted and _we_stopped(job):
        return (E.TIMED_OUT, f"attempt {job.attempt} stood still and was stopped"), replace(r, attempt=job.attempt)
    if job.attempt >= wanted and job.phase in DEAD:
        by = job.stopped_by.removeprefix("drain:") if job.stopped_by.startswith("drain:") else ""
        event = E.DRAINED if by else E.DIED
        r = arrivals.came_sick(r) if by else r
        return (event, f"attempt {job.attempt}: {_how_it_died(job)}"), replace(r, attempt=job.attempt, by_drain=by)
    if isinstance(outcome, Done):
        r = replace(r, pending=None)
    if _is_in_line(r, job) and r.expects and job.phase is JobPhase.PENDING:
        return arrivals.wait(r, job, policy, now)
    if _is_in_line(r, job):
        return None, _in_line(r, job, policy, now)
    if r.refusal:  # it waited until now: the time of a start begins here
        return None, replace(r, refusal="", deadline=deadline_of(r.phase, policy, now))
    if _due(r, now):
        return (E.TIMED_OUT, "no first step in time"), replace(r, attempt=max(r.attempt, job.attempt))
    return None, r


def _elsewhere(r: Recovery, job: Job) -> str:
    """Its scheduler may have had another node for it than the one that was found."""
    others, missing = sorted(set(job.nodes) - set(r.nodes)), sorted(set(r.nodes) - set(job.nodes))
    return f", on {named(others)} instead of {named(missing)}" if others and missing else ""


def _we_stopped(job: Job) -> bool:
    """For standing still, though our record, put back from a backup, knows nothing of it. Taken for a death it was the
    second that nothing explained, after a night in which the data network was away (seed 50001926)."""
    died = any(each.code for each in job.exits)
    return job.phase is JobPhase.STOPPED and job.stopped_by.startswith(f"{job.id}#") and not died


def _in_line(r: Recovery, job: Job, policy: JobPolicy, now: Now) -> Recovery:
    """Waiting in line is no failure to start, however long it lasts; its owner is told from time to time."""
    why = f"attempt {job.attempt} is made and waits for a place: {_what_it_waits_for(job)}"
    if r.refusal and not _due(r, now):
        return replace(r, refusal=why)
    told = (*r.notices, explain.waits(r, why, now.wall))[-8:] if r.refusal else r.notices
    return replace(r, refusal=why, notices=told, deadline=now.watch + policy.capacity_s)


def _what_it_waits_for(job: Job) -> str:
    if job.phase is JobPhase.SUSPENDED:
        return f"it is held by {job.stopped_by or 'somebody else'}"
    return f"{job.unplaced} of {job.ranks} ranks have no node yet"


def _resumed(r: Recovery, job: Job, now: Now) -> Recovery:
    return replace(
        r,
        attempt=job.attempt,
        nodes=job.nodes,
        job_step=job.step,
        progressed=now.watch,
        restarts=r.restarts + 1,
        stopped=-1.0,
        by_drain="",
        expects=0,
        arrivals=0,
    )


RULES = {
    P.RUNNING: _running,
    P.STALLED: _stalled,
    P.STOPPING: _stopping,
    P.EXAMINING: _examining,
    P.WAITING_FOR_CAPACITY: _waiting,
    P.RESTARTING: _restarting,
}


# --- what a phase asks for ------------------------------------------------------------------------------------------


def _entering(s: JobSlice, r: Recovery, why: str, policy: JobPolicy, now: Now) -> Recovery:
    job = s.job
    assert job is not None or r.phase in ENDS
    if r.phase is P.STALLED and job is not None:
        return replace(r, pending=_ask(r, Verb.COLLECT, job.nodes, what="stacks"))
    if r.phase is P.STOPPING and job is not None:
        again = r.journal[-1].event == E.TIMED_OUT and r.journal[-2].phase == P.STOPPING
        if again and (not why.startswith(explain.UNDELIVERED) or _is_long_down(r, policy, now)):
            r = replace(r, notices=(*r.notices, explain.cannot_stop(r, why, now.wall))[-8:])
        ask = _ask(r, Verb.STOP_JOB, job.nodes, attempt=r.attempt, last_step=progress.stands_at(r, job))
        return replace(
            r, pending=ask, stopped=-1.0
        )  # what was confirmed of an earlier attempt says nothing of this one
    if r.phase is P.EXAMINING and job is not None:
        return replace(r, pending=_ask(r, Verb.VERIFY, job.nodes, checks="nvidia-smi"))
    if r.phase is P.RESTARTING and job is not None:
        return _ask_restart(s, r, job)
    resumed = r.phase is P.RUNNING and r.restarts and r.journal[-1].event == E.PROGRESSED
    if resumed and r.down_since is not None and job is not None and job.phase is JobPhase.RUNNING:
        told = explain.restarted(r, now.wall - r.down_since, now.wall)
        return replace(r, notices=(*r.notices, told)[-8:], down_since=None)
    if r.phase is P.FAILED:
        return replace(r, notices=(*r.notices, explain.gave_up(r, why, now.wall))[-8:])
    if r.phase is P.WAITING_FOR_CAPACITY and outages.is_worth_telling(r):
        told = explain.does_not_begin(r, outages.words(r), now.wall)
        return replace(r, notices=(*r.notices, told)[-8:])
    refused = r.journal[-1].event == E.REFUSED and _is_long_down(r, policy, now)  # each began its wait anew
    if r.phase is P.WAITING_FOR_CAPACITY and (refused or r.journal[-1].event == E.TIMED_OUT):
        told = explain.waits(r, why, now.wall)
        return r if told.key in {n.key for n in r.notices} else replace(r, notices=(*r.notices, told)[-8:])
    return r


def _is_long_down(r: Recovery, policy: JobPolicy, now: Now) -> bool:
    return now.watch >= max(r.stopped, r.progressed) + policy.capacity_s


def _ask_restart(s: JobSlice, r: Recovery, job: Job) -> Recovery:
    start = capacity.start_from(job, r)
    from_step = start.step if start else 0
    lost = max(0, r.job_step - from_step)
    behind = {"behind": names} if (names := reach.behind(s, r, job)) else {}
    action = _ask(r, Verb.RESTART_JOB, r.nodes, attempt=r.attempt + 1, from_step=from_step,
                  from_attempt=start.attempt if start else 0, on_demand=int(r.on_demand), **behind)  # fmt: skip
    return replace(r, pending=action, checkpoint_step=from_step if start else -1, lost_steps=lost)


def _ask(r: Recovery, verb: Verb, nodes: tuple[str, ...], **args: object) -> Action:
    words = {"job": r.job, **{name: str(value) for name, value in args.items()}}
    return Action(f"{r.job}#{r.attempt}.{r.step}", verb, Place(""), words, nodes)


def _silent(s: JobSlice, before: Recovery, after: Recovery) -> list[tuple[str, str]]:
    """A silent rank makes its node a suspect as soon as the gang is stopped. Not one of several: two do not hang in the
    same step, but a network goes away for many, and where the controller manager is dead too nothing else tells that
    (seed 70020142). Nor one that nobody reaches: its ranks say nothing because it does not answer, and that has a case
    of its own. Cut off alone twice, a healthy node was power-cycled as if something more were held against it (seed
    25)."""
    if after.phase is not P.STOPPING or before.phase is not P.STALLED or s.job is None:
        return []
    nodes = suspects.silent_nodes(s.job)
    if len(nodes) != 1 or nodes[0] in s.unreachable:
        return []
    why = f"rank {s.job.silent[0]} of {s.job.id} fell silent while all others logged that they were waiting"
    return [(nodes[0], why)]
