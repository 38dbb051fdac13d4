"""Nodes that come on demand: how many a job asks for, how long they are waited for, and when nobody asks any more.

Where an autoscaler makes the nodes, a stopped gang and the autoscaler would wait for each other for ever: none is made
without work that waits for it, and those without work are removed. So the job is let run on the good nodes there are,
and the work that finds no place asks for the rest: no more than are missing, and nothing new before that came or was
given up. What comes is examined like any node; if it is sick its case stops the job again. Called by core/recover.py;
pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.core import explain
from sickbay.core.moment import how_long
from sickbay.core.recover_table import E, JobEvent, how_it_ended
from sickbay.core.turn import JobSlice, Now
from sickbay.model import Job, Recovery
from sickbay.settings import JobPolicy


def note(r: Recovery, s: JobSlice) -> Recovery:
    """Remembered, for an autoscaler may have removed every node that shows it."""
    return r if s.on_demand in (None, r.on_demand) else replace(r, on_demand=bool(s.on_demand))


def may_ask(r: Recovery, policy: JobPolicy) -> bool:
    return r.on_demand and r.arrivals < policy.arrivals


def needed(job: Job, r: Recovery) -> int:
    """How many nodes it wants: one that was stopped while it waited for some shows only those it had."""
    return max(len(job.nodes), len(r.nodes) + r.expects if r.expects else 0)


def at_hand(job: Job, good: Sequence[str], suspects: Sequence[str], most: int) -> tuple[str, ...]:
    """The good nodes there are, its own first."""
    usable = [n for n in dict.fromkeys(good) if n not in frozenset(suspects)]
    own = frozenset(job.nodes)
    return tuple(sorted(usable, key=lambda n: n not in own)[:most])


def words(nodes: Sequence[str], missing: int) -> str:
    return f"{_nodes(len(nodes))} known to be good and free; {missing} more will be made on demand, once it waits"


def _nodes(many: int) -> str:
    return f"{many} node{'' if many == 1 else 's'}"


def wait(r: Recovery, job: Job, policy: JobPolicy, now: Now) -> tuple[tuple[JobEvent, str] | None, Recovery]:
    """Some of its ranks have no node yet. Each `arrival_s` in vain counts; after the last one the job is stopped, so
    that nothing asks any more."""
    why = f"attempt {job.attempt} waits for {_nodes(r.expects)} to be made on demand"
    if not r.refusal:
        return None, replace(r, refusal=why, deadline=now.watch + policy.arrival_s)
    if r.deadline is None or now.watch < r.deadline:
        return None, r
    r = replace(r, arrivals=r.arrivals + 1, deadline=now.watch + policy.arrival_s)
    if r.arrivals < policy.arrivals:
        return None, replace(r, refusal=f"{why}; none has come within {how_long(policy.arrival_s)} yet")
    gone = replace(r, attempt=max(r.attempt, job.attempt))
    return (E.ABSENT, f"{_nodes(r.expects)} asked for, and none came {r.arrivals} times"), gone


def came_sick(r: Recovery) -> Recovery:
    """It was stopped again before its first step, because a node is ill that had come for it."""
    return replace(r, arrivals=r.arrivals + 1) if r.expects else r


def brought_it_down(r: Recovery, job: Job) -> Recovery:
    """It died or hung before its first step, and what points at a node points at one that had come for it. Nobody has
    drained that: three such nodes one after the other were asked for without an end."""
    came = frozenset(job.nodes).difference(r.nodes)
    return came_sick(r) if r.expects and came.intersection(r.suspects) else r


def was_absent(r: Recovery) -> bool:
    """Is it being stopped because nothing came?"""
    return how_it_ended(r)[1] == E.ABSENT


def told(r: Recovery, policy: JobPolicy, now: Now) -> Recovery:
    """Stop and tell: once for each time that the asking is given up."""
    if not r.on_demand or r.arrivals < policy.arrivals:
        return r
    return replace(r, notices=(*r.notices, explain.no_arrivals(r, now.wall))[-8:])
