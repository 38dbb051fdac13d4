"""Diagnoses in, a Plan out: which rungs, weakest first, and which checks must pass before the node returns.

Called when a case opens and when a new finding merges into it. Ladders are data (catalog/ladders.toml).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache

from sickbay.catalog import Catalog
from sickbay.model import TREATMENTS, Case, Diagnosis, Node, Phase, Plan, Rung, Severity, Verb
from sickbay.settings import CEILINGS, LEVELS, Policy

FIRST_RUNG = {Severity.REBOOT: Verb.REBOOT, Severity.REPLACE: Verb.REPLACE}
LIGHT = ("nvidia-smi",)  # VERIFY always runs the light suite, whatever the fault
DRAINS_AGAIN = (Phase.CORDONING, Phase.HOLDING, Phase.DRAINING, Phase.ESCALATED)  # the node is emptied ahead of these
TYPE = "instance-type"  # the factor of a node that names its profile


def make(
    diagnoses: Sequence[Diagnosis], catalog: Catalog, *, before: Plan | None = None, node: Node | None = None,
    ceilings: Mapping[str, frozenset[Verb]] = CEILINGS,
) -> Plan:  # fmt: skip
    """The union of the faults' ladders, without rungs weaker than the strongest fault's first; never below `before`.

    How long a rung may take is the profile's word where the node's type is known: a p5 reboots for many minutes.
    """
    ladders = [rungs for d in diagnoses if (rungs := _ladder(d, catalog, ceilings))]
    if before is not None and before.rungs:
        ladders.append(before.rungs)
    first = max((TREATMENTS.index(rungs[0].verb) for rungs in ladders), default=0)
    longest = _longest([rung for rungs in ladders for rung in rungs])
    rungs = tuple(longest[verb] for verb in TREATMENTS[first:] if verb in longest)
    heard = [d for d in diagnoses if Verb.VERIFY in ceilings.get(d.source, frozenset())]
    return Plan(_timed(rungs, catalog, node), _checks(heard, catalog, before))


def _timed(rungs: tuple[Rung, ...], catalog: Catalog, node: Node | None) -> tuple[Rung, ...]:
    profile = catalog.profiles.get(node.factors.get(TYPE, "")) if node is not None else None
    return tuple(Rung(r.verb, profile.timeout_s(r)) for r in rungs) if profile is not None else rungs


def _ladder(diagnosis: Diagnosis, catalog: Catalog, ceilings: Mapping[str, frozenset[Verb]]) -> tuple[Rung, ...]:
    """The fault's ladder, without rungs that are too weak for this diagnosis (a 95 on an A100 needs a reboot) or that
    its source may not cause."""
    fault = catalog.faults.get(diagnosis.fault)
    if fault is None or not fault.ladder:
        return ()
    ceiling = ceilings.get(diagnosis.source, frozenset())
    rungs = tuple(r for r in catalog.ladders[fault.ladder] if r.verb in ceiling)
    least = TREATMENTS.index(FIRST_RUNG.get(diagnosis.severity, Verb.RESET_GPU))
    return tuple(r for r in rungs if TREATMENTS.index(r.verb) >= least) or rungs


def _longest(rungs: Sequence[Rung]) -> dict[Verb, Rung]:
    longest: dict[Verb, Rung] = {}
    for rung in rungs:
        known = longest.get(rung.verb)
        if known is None or rung.timeout_s > known.timeout_s:
            longest[rung.verb] = rung
    return longest


def _checks(diagnoses: Sequence[Diagnosis], catalog: Catalog, before: Plan | None) -> tuple[str, ...]:
    names = [*LIGHT, *(before.verify_with if before else ())]
    for diagnosis in diagnoses:
        fault = catalog.faults.get(diagnosis.fault)
        names.extend(fault.verify_with if fault else ())
    return tuple(dict.fromkeys(names))


def allowed(
    case: Case, policy: Policy, platform: frozenset[Verb], ceilings: Mapping[str, frozenset[Verb]] = CEILINGS
) -> frozenset[Verb]:
    """Verbs this case may use: what its sources may cause, the platform can do and the policy's level permits."""
    none: frozenset[Verb] = frozenset()
    caused = none.union(*(ceilings.get(source, none) for source in {d.source for d in case.diagnoses}))
    return caused & platform & level(policy)


def level(policy: Policy) -> frozenset[Verb]:
    """Verbs up to `policy.max_verb`. What neither takes a node nor treats it is always allowed."""
    return _up_to(policy.max_verb)


@cache
def _up_to(max_verb: str) -> frozenset[Verb]:
    beyond = LEVELS[LEVELS.index(max_verb) + 1 :]
    return frozenset(verb for verb in Verb if verb.value not in beyond)


def timeout_of(plan: Plan, verb: Verb) -> float:
    return next(r.timeout_s for r in plan.rungs if r.verb is verb)


def ahead(case: Case) -> list[Verb]:
    """What this case may still have to ask for, in the order in which it would."""
    first = [Verb.CORDON, Verb.DRAIN] if case.phase in (Phase.SUSPECTED, Phase.WAITING) else []
    first += [Verb.DRAIN] if case.phase in DRAINS_AGAIN else []
    above = TREATMENTS.index(case.rung) + 1 if case.rung is not None else 0
    return [*first, *(r.verb for r in case.plan.rungs if r.verb in TREATMENTS[above:])]


def needs_approval(case: Case, approval: Collection[str]) -> list[Verb]:
    """Of these, what a person has not let pass yet: the first is what it waits for now, or soonest."""
    return [verb for verb in ahead(case) if verb.value in approval and verb not in case.approved]
