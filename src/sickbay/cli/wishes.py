"""What a person may ask of a case, when that makes sense, and what it will do, in words.

A wish is a Command record in the store; the controller takes it up, journals it with who and why, and removes it in the
commit that carries it. Called by `sickbay case ...`. It must never write a case itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from uuid import uuid4

from sickbay.cli.sitting import Sitting, nearest
from sickbay.cli.words import plain
from sickbay.core import consent, plan, suspicion
from sickbay.core.naming import named
from sickbay.errors import UserError
from sickbay.model import Case, Command, Cost, Phase, Recovery, RecoveryPhase, Verb

UNTOUCHED = (Phase.SUSPECTED, Phase.WAITING)  # the node has not been touched yet


def ask(sitting: Sitting, case: Case, verb: str, why: str, args: dict[str, str]) -> list[str]:
    """Write the Command and say what it will do and when; UserError if it could do nothing."""
    refusal, effect = WISHES[verb]
    wrong = refusal(case)
    if wrong:
        raise UserError(f"Case {case.id} {wrong}")
    wish = Command(uuid4().hex, verb, case.id, sitting.by, why, sitting.now, args, cluster=sitting.cluster())
    sitting.store.create(wish)
    also = [plain(_also(case, Verb(args["verb"])))] if verb == "approve" else []
    return [plain(effect(case).format(**args)), *filter(None, also), f"{sitting.when()} {sitting.controller()}"]


def ask_for_node(sitting: Sitting, node: str, why: str) -> list[str]:
    """End a node's quiet time; UserError if none runs."""
    record, cases = sitting.records().get(node), [case.id for case in sitting.cases() if case.node == node]
    if cases:
        raise UserError(f"Node {plain(node)} has an open case already: {cases[0]}.")
    if record is None or not record.quiet or not record.latched:
        raise UserError(f"Nothing is held against node {plain(node)} that could open a case.")
    wish = Command(uuid4().hex, "reopen", node, sitting.by, why, sitting.now, cluster=sitting.cluster())
    sitting.store.create(wish)
    faults = ", ".join(dict.fromkeys(latch.fault for latch in record.latched))
    return [f"A case about {faults} on {node} is opened.", f"{sitting.when()} {sitting.controller()}"]


def acknowledge(sitting: Sitting, node: str, why: str) -> list[str]:
    """A person knows better: verdicts and suspicions against a node end; UserError if there are none."""
    record = sitting.records().get(node)
    held = suspicion.told(record, sitting.watch()) if record else []
    held += [f"{latch.fault} ({latch.code})" for latch in record.latched] if record else []
    if not held:
        raise UserError(f"Nothing is held against node {plain(node)}. `sickbay nodes` lists those we know.")
    sitting.store.create(
        Command(uuid4().hex, "acknowledge", node, sitting.by, why, sitting.now, cluster=sitting.cluster())
    )
    return [
        *(plain(f"No longer held against {node}: {clause}.") for clause in held),
        f"{sitting.when()} {sitting.controller()}",
    ]


def restart(sitting: Sitting, job: str, why: str) -> list[str]:
    """An owner's word: start it elsewhere, whatever ranks do that nobody can reach. UserError for an unknown job."""
    known = {stored.value.job: stored.value for stored in sitting.store.list(Recovery)}
    if job not in known:
        raise UserError(f"There is no job {plain(job)} that is looked after. {_looked_after(job, known)}")
    sitting.store.create(Command(uuid4().hex, "restart", job, sitting.by, why, sitting.now, cluster=sitting.cluster()))
    if known[job].cost is Cost.BLAMELESS:
        return [
            f"{plain(job)} does not wait for its next try: it is started as soon as there are enough good nodes.",
            f"{sitting.when()} {sitting.controller()}",
        ]
    if known[job].phase is RecoveryPhase.RUNNING and known[job].told_of != known[job].attempt:
        return [
            f"{plain(job)} runs, as far as is known: where none of its ranks is out of reach, nothing is done.",
            f"{sitting.when()} {sitting.controller()}",
        ]
    return [
        f"{plain(job)} is started elsewhere as soon as there are enough good nodes; you say that those of its ranks "
        "which nobody can reach write nothing that it reads.",
        f"{sitting.when()} {sitting.controller()}",
    ]


def _looked_after(job: str, known: Collection[str]) -> str:
    every = sorted(plain(name) for name in known)
    return nearest(job, known, f"There are: {named(every)}." if every else "None is at the moment.")


def _needs_absence(case: Case) -> str:
    return "" if case.absence is not None else "is not about many nodes that are away: there is nothing to split."


def _needs_rest(case: Case) -> str:
    if case.factor:
        return "is about something that many nodes share: no node is treated in it. `abort` ends it."
    if case.phase is Phase.ESCALATED:
        return ""
    return f"is {case.phase.value}, not ESCALATED: it is still being worked on. `hold` or `abort` it, or wait."


def _abort_effect(case: Case) -> str:
    if case.absence is not None:
        return f"Case {case.id} ends, and the nodes that are away are left to you for a while."
    if case.factor:
        return (
            f"Case {case.id} ends, and explains nothing any more: what is wrong with its nodes is each one's own again."
        )
    if case.phase in UNTOUCHED:
        return f"Case {case.id} is dismissed; its node was not touched."
    return (
        f"Case {case.id} is cancelled: a treatment already sent is waited for, then our own marks are taken off "
        f"{case.node} and the node is left as you left it."
    )


def _also(case: Case, verb: Verb) -> str:
    """What an approval alone does not say: that it comes late and still counts, or that it is not the one missing."""
    if consent.takes_up(case, (verb,)):
        return "Its time to wait for that was over; it is taken up again where it stood."
    but = consent.but(case, (verb,))
    return f"But {but}." if but else ""


# What a person may ask for: why it would be pointless ("" if it is not), and what it does, in words.
WISHES: dict[str, tuple[Callable[[Case], str], Callable[[Case], str]]] = {
    "approve": (
        lambda case: f"{why}." if (why := consent.in_vain(case, tuple(Verb))) else "",
        lambda case: f"Approved: {{verb}} of {case.node} in case {case.id}, once its turn and a free seat come.",
    ),
    "hold": (
        lambda case: "is held already." if case.held else "",
        lambda case: (
            f"Case {case.id} stays {case.phase.value}: no step, no time-out. Only an abort, or the machine "
            "being gone, still ends it."
        ),
    ),
    "unhold": (
        lambda case: "" if case.held else "is not held.",
        lambda case: (
            f"Case {case.id} goes on from {case.phase.value}"
            + (", and is verified anew." if case.phase in (Phase.VERIFYING, Phase.RETURNING) else ".")
        ),
    ),
    "abort": (lambda case: "is cancelled already." if case.cancelled else "", _abort_effect),
    "split": (
        _needs_absence,
        lambda case: f"Case {case.id} ends: those that are still away are treated one by one, within the limits.",
    ),
    "retry": (
        _needs_rest,
        lambda case: (
            f"{case.node} is cordoned and drained again and case {case.id} begins its ladder anew, "
            "from the lowest rung."
        ),
    ),
    "examine": (
        _needs_rest,
        lambda case: (
            f"{case.node} is cordoned and drained again and checked, without any treatment; if every check "
            f"passes it returns to service and case {case.id} ends."
        ),
    ),
}


def to_approve(case: Case, approval: Collection[str], wanted: str) -> Verb:
    """What a person's approval is for: the verb named, or the first one ahead that waits for a person."""
    if case.absence is not None and (wanted.upper() or Verb.REPLACE) == Verb.REPLACE:
        return Verb.REPLACE
    ahead = plan.ahead(case)
    words = ", ".join(verb.value for verb in ahead) or "nothing"
    waiting = consent.meant(case, plan.needs_approval(case, approval))
    chosen = [v for v in ahead if v.value == wanted.upper()] if wanted else waiting
    if not chosen and wanted:
        raise UserError(f"{plain(wanted)} is not ahead in case {case.id}; ahead: {words}.")
    if not chosen:
        raise UserError(f"Nothing ahead in case {case.id} ({words}) waits for approval; --verb approves one anyway.")
    return chosen[0]
