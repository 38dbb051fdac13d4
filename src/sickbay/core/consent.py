"""A person's word that is asked for, and what it changes when it comes late.

A case that waited for an approval until its time was over rests with a person; the approval it lacked takes it up again
where it stood, within the limits. Read from the journal alone, so that the command line says what core will do. Called
by core/decide.py, core/obey.py, core/phases.py, core/steps.py, core/explain.py and cli/wishes.py. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.core import plan
from sickbay.model import TREATMENTS, Case, Entry, Event, Phase, Verb

ASKED = "ASKED"  # in the journal: a person was told that their word is missing
APPROVED = "APPROVE"  # in the journal: they gave it
TAKEN_UP = "it is taken up again"


def since_retried(case: Case) -> tuple[Entry, ...]:
    """The journal since a person had it begin anew."""
    anew = max((n for n, e in enumerate(case.journal) if e.event == Event.RETRIED), default=0)
    return case.journal[anew:]


def was_asked(case: Case, verb: Verb) -> bool:
    return any(e.event == ASKED and e.why.startswith(f"{verb} ") for e in since_retried(case))


def asked(case: Case) -> Verb | None:
    """The last verb for which a person was asked, and which they have not approved."""
    every = [e.why.partition(" ")[0] for e in since_retried(case) if e.event == ASKED]
    verbs = [Verb(name) for name in every if name in Verb.__members__]
    return verbs[-1] if verbs and verbs[-1] not in case.approved else None


def waited_in_vain(case: Case) -> bool:
    """It rests with a person because the time of its wait was over, closed or empty: nothing else had happened."""
    if case.phase is not Phase.ESCALATED or case.cancelled or case.factor or len(case.timeline) < 2:
        return False
    entered = next((e for e in case.journal if e.step == case.step), None)
    came = case.timeline[-2][0] in (Phase.HOLDING.value, Phase.QUEUED.value)
    return came and entered is not None and entered.event == Event.TIMED_OUT


def takes_up(case: Case, verbs: Sequence[Verb]) -> bool:
    """Does this approval let it go on? Where nobody was asked, a refusal may have named a verb that a person can
    insist on."""
    if not waited_in_vain(case):
        return False
    wanted = asked(case)
    return wanted in verbs if wanted is not None else any(verb in TREATMENTS for verb in verbs)


def meant(case: Case, waiting: Sequence[Verb]) -> list[Verb]:
    """What an approval that names no verb is for: what a case at rest was asked for, else the next of those that wait
    for a word. Nothing where a case rests with a person for another reason: it took REPLACE for what he meant."""
    wanted = asked(case) if waited_in_vain(case) else None
    if wanted is not None:
        return [wanted]
    rests = case.phase is Phase.ESCALATED and case.absence is None and not waited_in_vain(case)
    return [] if rests else list(waiting[:1])


def is_taken_up(case: Case) -> bool:
    """It was approved while it rested with a person."""
    if case.phase is not Phase.ESCALATED:
        return False
    return any(e.step == case.step and e.event == APPROVED and e.why.endswith(TAKEN_UP) for e in case.journal)


def in_vain(case: Case, verbs: Sequence[Verb]) -> str:
    """Why approving these could change nothing; "" if it could."""
    if case.cancelled:
        return "is cancelled: it will not be treated"
    if case.absence is not None:
        return ""
    if case.factor:
        ends = f"sickbay case abort {case.id} ends it"
        return f"is about something that many nodes share: no node is treated in it. {ends}"
    ahead = plan.ahead(case)
    if any(verb in ahead for verb in verbs):
        return ""
    words = ", ".join(ahead) or "nothing"
    return f"will not ask for {', '.join(verbs)}; ahead: {words}"


def but(case: Case, verbs: Sequence[Verb]) -> str:
    """What else it needs, though these be approved; "" if nothing."""
    if case.held:
        return f"it is held: sickbay case unhold {case.id}"
    if case.absence is not None or takes_up(case, verbs):
        return ""
    wanted = asked(case)
    if wanted is not None and wanted not in verbs and (case.phase is not Phase.ESCALATED or waited_in_vain(case)):
        return f"it waits for {wanted}, not for {', '.join(verbs)}: sickbay case approve {case.id} --verb {wanted}"
    if case.phase is Phase.ESCALATED:
        return f"it rests with a person for another reason, and goes on by: sickbay case retry {case.id}"
    return ""
