"""Ranks out of reach: a job is not started elsewhere while ranks of its last attempt may still run, and write.

A mark on a node that does not answer is no fence: nobody there has read it. What is one: a machine without power, a
node that is back and has ended what was given up, a job whose checkpoints are kept apart by attempt, or its owner's
word. The platform's door holds a restart to the same rule: `behind` tells it whom may be left where they are. Called by
core/recover.py. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sickbay.core import outages
from sickbay.core.naming import named
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Entry, Job, JobPhase, Node, Notice, Recovery, RecoveryPhase

NAMED = 6
MOST_BEHIND = 100  # names that an action carries: of more the platform's own signs of lost power must tell
OFF = frozenset({"off", "dead"})  # by the provider's word no rank runs there
TELL_S = 60.0  # out of reach for a shorter time is not worth a word


def may_hide_ranks(node: Node | None) -> bool:
    """Can nobody say whether work still runs there? An object that is not there says nothing about its machine."""
    return node is None or (not node.ready and not node.gone and node.machine not in OFF)


def is_given_leave(r: Recovery, job: Job) -> bool:
    """Its owner said so of this attempt. A lower number than is on record is none of which anybody has spoken: it was
    changed, or belongs to another job of the name where objects have no identity that lasts (bare pods)."""
    return r.unfenced >= max(job.attempt, r.attempt)


def forget(s: JobSlice, r: Recovery) -> Recovery:
    """It runs, and each of its nodes answers: what its owner said of ranks out of reach is over. Cut off again hours
    later, the same attempt was started anew beside its own ranks."""
    job, away = s.job, s.unreachable or s.left_on or s.powerless
    lives = job is not None and job.phase is JobPhase.RUNNING and r.phase is RecoveryPhase.RUNNING
    return replace(r, unfenced=0) if job is not None and lives and not away and is_given_leave(r, job) else r


def loose(s: JobSlice, r: Recovery, job: Job) -> tuple[str, ...]:
    """Nodes on which ranks may still write what a new attempt would read. One of the last attempt that went away after
    every rank was confirmed gone (we empty nodes before we reboot them) hides none, unless it is shown with some: those
    that no signal ended (seed 762). So may one of an earlier attempt be, which the job has long left (seed 50000882):
    the door holds the restart back for them all."""
    if job.fenced or is_given_leave(r, job):
        return ()
    went = (n for n, since in s.unreachable.items() if r.stopped < 0 or since <= r.stopped)
    return tuple(dict.fromkeys((*went, *s.left_on)))


def behind(s: JobSlice, r: Recovery, job: Job) -> str:
    """On which nodes that do not answer ranks may be left behind: "all", or names."""
    if job.fenced or is_given_leave(r, job):
        return "all"
    return ",".join(s.powerless[:MOST_BEHIND])


def ending(s: JobSlice, r: Recovery, job: Job) -> str:
    """A node that is back is shown as ready before it has ended what was given up: that takes as long as the ranks'
    grace, and until then they write."""
    if not s.ending:
        return ""
    return f"ranks of attempt {job.attempt} are still being ended on {named(sorted(s.ending), NAMED)}"


def words(job: Job, nodes: Iterable[str]) -> str:
    names = list(nodes)
    return (
        f"ranks of an earlier attempt may still run and write on {named(sorted(names), NAMED)}, which "
        f"{'do' if len(names) > 1 else 'does'} not answer; if you know that they write nothing any more: "
        f"sickbay job restart {job.id}"
    )


def told(s: JobSlice, r: Recovery, now: Now) -> Recovery:
    """Its owner hears once an attempt that some of its nodes cannot be reached, and what that means."""
    job = s.job
    lost = loose(s, r, job) if job is not None else ()
    if job is None or not lost or r.told_of == job.attempt:
        return r
    since = min({**s.left_on, **s.unreachable}[node] for node in lost)
    if now.watch < since + TELL_S or (r.phase is RecoveryPhase.RUNNING and r.progressed > since):
        return r  # a moment, or it makes steps all the same
    who = f"1 node with ranks of {job.id} does" if len(lost) == 1 else f"{len(lost)} nodes with ranks of {job.id} do"
    body = [
        f"{who} not answer: {named(sorted(lost), NAMED)}.",
        "It is not started elsewhere while ranks there may still run and write checkpoints; it goes on by itself when "
        "they are back, or known to be without power.",
        f"If you know that they write nothing any more: sickbay job restart {job.id}.",
    ]
    key = f"{job.id}/{job.attempt}/out-of-reach" + (f"/{job.uid}" if job.uid else "")  # attempts of a namesake too
    notice = Notice(key, "warning", f"{job.id}: some of its nodes are out of reach", "\n".join(body), "", now.wall)
    return replace(
        r,
        told_of=job.attempt,
        hidden={node: it for node, it in s.machines.items() if it},
        notices=(*r.notices, notice)[-8:],
    )


def obey(s: JobSlice, r: Recovery, now: Now) -> Recovery:
    """Its owner says: start it elsewhere, whatever the ranks out of reach do; or, while its next try is put off, try it
    now. Said while neither is so, it means nothing: it is no leave for another day."""
    for command in s.commands:
        wanted = command.verb == "restart" and s.job is not None
        lost, waits = wanted and _hides(s, r), wanted and _is_put_off(r, now)
        known = command.verb == "restart"
        no = "none of its ranks is out of reach and no try is put off: nothing is done"
        no = no if known else f"unknown command {command.verb[:64]!r}: nothing is done"
        why = (command.why or ("start it elsewhere" if lost else "try it now")) if lost or waits else no
        entry = Entry(r.step, "RESTART" if known else "REFUSED", now.wall, command.by, why, r.phase.value)
        r = replace(r, journal=(*r.journal, entry))
        r = replace(r, unfenced=max(s.job.attempt, r.attempt)) if lost and s.job else r
        r = replace(r, entered=now.watch - outages.back_off(r)) if waits else r
    return r


def _hides(s: JobSlice, r: Recovery) -> bool:
    """Also where it was seen to go away only after its stop was confirmed: the platform may know better."""
    there = s.unreachable or s.left_on
    return s.job is not None and bool(there) and not s.job.fenced and not is_given_leave(r, s.job)


def _is_put_off(r: Recovery, now: Now) -> bool:
    return r.phase is RecoveryPhase.WAITING_FOR_CAPACITY and now.watch < r.entered + outages.back_off(r)
