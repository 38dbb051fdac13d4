"""A treatment that cannot be delivered just now: its provider is away or throttles us, nothing reaches the node, or its
Job is not let in.

What did not happen is no failure, and nothing stronger follows it. The case waits in QUEUED, is asked for again after
1, 2, 4 ... 10 minutes under all the rules of the queue, people are told once after a while, and only after hours it is
theirs. What the guard or a provider refuses (quota, policy, right) is none of this. Called by phases, steps, admit and
desk. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from sickbay.model import Case, Event, Lost, Phase, Undelivered, Verb

FIRST_S, MOST_S = 60.0, 600.0  # from one try to the next: each twice as long, up to the most
TOLD_S = 600.0  # a provider that is back within ten minutes is nobody's business
LASTS_S = 6 * 3_600.0  # most outages of a provider are over by then


def said(case: Case, outcome: Lost, now: float) -> tuple[Event, str]:
    """What the door could say about it is in the words of its last answer: that it never arrived is only the end."""
    why, verb = case.refusal or outcome.why, case.rung
    since = case.undelivered.since if case.undelivered and case.undelivered.verb is verb else case.entered
    if now - since < LASTS_S:
        return (Event.UNREACHABLE, f"{verb} could not be delivered: {why}")
    hours = (now - since) / 3_600
    return (Event.EXHAUSTED, f"{verb} could not be delivered for {hours:.0f} hours: {why}")


def waits(before: Case, moved: Case, *, now: float, at: float) -> Case:
    """The case after such a try: when it is tried again. `now` is watch time, `at` is wall time."""
    known, verb = before.undelivered, before.rung
    assert verb is not None
    if known is None or known.verb is not verb:
        known = Undelivered(verb, before.entered, at - (now - before.entered), 0, 0.0)
    after_s = min(MOST_S, FIRST_S * 2 ** min(known.tries, 10))
    known = replace(known, tries=known.tries + 1, again_at=now + after_s)
    minutes = f"{after_s / 60:.0f} minute{'s' if after_s > FIRST_S else ''}"
    why = f"{moved.journal[-1].why}; it is tried again in {minutes}"
    return replace(moved, undelivered=known, refusal=why, retry_at=known.again_at)


def is_to_be_told(case: Case, now: float) -> bool:
    known = case.undelivered
    return known is not None and not known.told and now - known.since >= TOLD_S


def again_at(case: Case) -> float:
    """The watch time before which a case that waits in the queue asks for nothing; 0 if it may."""
    known = case.undelivered
    return known.again_at if known is not None and case.phase is Phase.QUEUED else 0.0


def gives_back(case: Case, verb: str, now: float) -> bool:
    """Its place among the treated is for others meanwhile, for nothing is being done to its node."""
    known = case.undelivered
    return known is not None and known.verb is Verb(verb) and now < again_at(case)
