"""RESTART_JOB: the next attempt, made once, from the step that was asked for, away from the nodes under suspicion.

platform.perform calls `restart_job`. Create-if-absent by attempt: the number on the object decides whether it is there,
and one write with the version we read makes it. Refused while an earlier attempt may still run (left.py), on nodes that
carry our mark, and from a step that nobody has saved. A job that its own controller has ended for good is made anew
under the same name, unless its owner forbids it. It must never resume what somebody else suspended.
"""

from __future__ import annotations

from typing import Any

from sickbay.kube.conflicts import settle
from sickbay.kube.objects import Anything
from sickbay.model import Action, Done, Failed, JobPhase, Lost, Outcome, Retry
from sickbay.platforms.kubernetes.gangs import bare, kinds, kueue, overrides, recreate, show, steer, telling, words
from sickbay.platforms.kubernetes.gangs.kinds import Kind
from sickbay.platforms.kubernetes.gangs.left import beside, left
from sickbay.platforms.kubernetes.gangs.read import Found, job_named, look, marks, read
from sickbay.platforms.kubernetes.gangs.show import Memory
from sickbay.platforms.kubernetes.gangs.stop import LATER_S, is_over, not_ours
from sickbay.platforms.kubernetes.site import Site


def restart_job(site: Site, action: Action) -> Outcome:
    return settle(lambda: _restart_job(site, action))


def _restart_job(site: Site, action: Action) -> Outcome:
    job = job_named(action)
    found = read(site, job)
    if found is None or found.gang.object.metadata.deletion_timestamp:
        return recreate.resume(site, job, action) or Failed("refused: there is no such job")
    if refused := not_ours(found):
        return Failed(refused)
    current = show.attempt_of(found.gang.object)
    wanted = words.number(action.args.get("attempt", ""), current + 1)
    if current > wanted:
        return Failed(f"attempt {current} of {job} is already there")
    if current == wanted:
        return _made(site, found, action, wanted)
    if not action.call:
        return Lost(f"attempt {wanted} of {job} was never made")
    if why := refusal(site, found, action):
        return Failed(f"refused: {why}")
    outcome = _restart(site, found, action, wanted)
    if isinstance(outcome, Done):
        telling.tell(site, found, telling.RESTARTED, outcome.detail)
    return outcome


def _made(site: Site, found: Found, action: Action, wanted: int) -> Outcome:
    """The attempt is written down. Is the second write there too, where a kind needs two? The first one may have been
    an earlier action's, which was refused then (a webhook that was down)."""
    gang = found.gang
    ours = gang.object.metadata.annotation(words.RESTARTED_BY).startswith(f"{gang.id}#")
    done = Done(f"{gang.id} attempt {wanted} is there")
    if not ours:
        return done
    admitted = kueue.find(site, found) if gang.kind is not kinds.BARE else None
    if admitted is not None and not admitted.active:
        if not action.call:
            return Lost(f"attempt {wanted} of {gang.id} was written down, but its Workload was never activated")
        kueue.set_active(site, admitted, True)
    if gang.kind is kinds.BARE and bare.missing(found):
        if not action.call:
            return Lost(f"attempt {wanted} of {gang.id} was written down, but not all of its pods were made")
        bare.make(site, found)
    return done


def refusal(site: Site, found: Found, action: Action) -> str:
    """Why this attempt may not be made now; "" when it may."""
    gang = found.gang
    phase, by = look(site, found)
    if phase in (JobPhase.SUCCEEDED, JobPhase.GONE):
        return f"{gang.id} is {phase.value.lower()}"
    if phase is JobPhase.SUSPENDED:
        return f"{gang.id} is suspended by {by}: it is theirs to resume"
    if why := beside(found, left(site, found), action.args.get("behind", "")):
        return why
    if held := marks(site, action.nodes):
        return "; ".join(f"{name}: {_held(said)}" for name, said in sorted(held.items())[:3])
    return _never_saved(site, found, words.number(action.args.get("from_step", "")))


def _held(said: str) -> str:
    return "there is no such node" if said == "no such node" else f"carries the mark of case {said}"


def _never_saved(site: Site, found: Found, step: int) -> str:
    if not step:
        return ""
    known = {c.step for c in show.checkpoints_of(found.gang, Memory(), site.clock.now())}
    return "" if step in known else f"no complete checkpoint of step {step} is known of {found.gang.id}"


# --- writing ----------------------------------------------------------------------------------------------------------


def _restart(site: Site, found: Found, action: Action, attempt: int) -> Outcome:
    notes = notes_of(found, action, attempt)
    if found.gang.kind is kinds.BARE:
        return bare.restart(site, found, action, notes)
    if is_over(found):
        return recreate.anew(site, found, action, notes)
    admitted = kueue.find(site, found)
    if admitted is not None:
        notes[words.IN_PODS] = None
        site.api.patch(found.path, {"metadata": {"annotations": notes, "resourceVersion": found.version}}, Anything)
        kueue.set_active(site, admitted, True)
        return Done(f"{found.gang.id} attempt {attempt} is given back to Kueue, which places it when there is quota")
    if kueue.is_queued(found):
        return Retry(LATER_S, f"{found.gang.id} is in a Kueue queue and has no Workload; only Kueue resumes it")
    return _resume(site, found, action, notes)


def notes_of(found: Found, action: Action, attempt: int) -> dict[str, str | None]:
    restarts = found.gang.object.status.restarts
    return {
        words.ATTEMPT: str(attempt),
        words.BASE: str(restarts) if restarts else None,
        words.FROM_STEP: action.args.get("from_step", "0"),
        words.RESTARTED_BY: action.key,
        words.IN_PODS: "true",
        words.STOPPED_BY: None,
        words.STEP: None,  # of the attempt before
    }


def _resume(site: Site, found: Found, action: Action, notes: dict[str, str | None]) -> Outcome:
    """Templates may be changed only while the job is suspended, so a resume and its changes are one write."""
    gang, shunned = found.gang, steer.suspects(found, action)
    whole = steer.unlocked(site, found)
    steer.annotate(whole, notes)
    for template in gang.kind.templates(whole, gang.object.spec):
        steer.carry(template, notes)
        if gang.kind.steers:
            steer.keep_off(template, shunned)
    if gang.kind.word == "trainjob":  # its overrides may be changed only while `suspend` stays set
        whole = site.api.replace(found.path, {**whole, **_with_notes(found, whole)}, dict[str, Any])
        told = overrides.carry(whole, notes[words.ATTEMPT])  # if not: its pods are known by their age
        steer.annotate(whole, notes if told else {**notes, words.IN_PODS: None})
    loose = steer.keep_children_off(site, found, shunned) if shunned and not gang.kind.steers else []
    steer.put(whole["spec"], gang.kind.suspension(False))
    site.api.replace(found.path, whole, Anything)
    kept = _kept(gang.kind, shunned, loose) if shunned else ""
    return Done(f"{gang.id} attempt {notes[words.ATTEMPT]} is resumed from step {notes[words.FROM_STEP]}{kept}")


def _kept(kind: Kind, shunned: list[str], loose: list[str]) -> str:
    off = ", ".join(shunned[:3])
    if loose:
        return f"; may still land on {off} unless it is cordoned: {'; '.join(loose[:3])}"
    return f"; kept off {off} by {kind.keeps_off}"


def _with_notes(found: Found, whole: dict[str, Any]) -> dict[str, Any]:
    """The first of two writes carries the changed overrides and not yet the new attempt."""
    before = found.whole["metadata"].get("annotations") or {}
    return {"metadata": {**whole["metadata"], "annotations": dict(before)}}
