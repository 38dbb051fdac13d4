"""Mutants of limits, of people's consent and of what must be told: one for each thing that the judge works out itself.

They break core/admit.py and its callers, which production runs as they are. `only`: the checker that alone sees it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sickbay.model import Event, Phase, Verb
from sickbay.sim.mutants.patch import Mutant, Patch, all_, row_, rule_, set_, wrap_


def _not_asked(old: Any) -> Any:
    return lambda *a: None


def _without_scope(prefix: str) -> Patch:
    def make(old: Any) -> Any:
        return lambda r, policy: [row for row in old(r, policy) if not row[0].startswith(prefix)]

    return wrap_("core.admit", "_scopes", make)


def _unasked_for(verb: Verb) -> Patch:
    def make(old: Any) -> Any:
        return lambda r, *rest: None if r.verb is verb else old(r, *rest)

    if verb is Verb.DRAIN:  # fenced twice: the place, and whether anybody may be evicted
        return all_(wrap_("core.admit", "_approval", make), wrap_("core.steps", "_how_to_drain", _all_leave))
    return wrap_("core.admit", "_approval", make)


def _all_leave(old: Any) -> Any:
    return lambda turn, case: {**old(turn, case), "evict": "1"}


def _uncounted(verb: Verb) -> Patch:
    def make(old: Any) -> Any:
        return lambda r, *rest: None if r.verb is verb else old(r, *rest)

    return wrap_("core.admit", "_window", make)


def _zero_is_some(old: Any) -> Any:
    """As it was: a share of nothing, raised to `at_least`."""
    return lambda limit, total: max(min(limit.count, int(total * limit.percent / 100.0)), min(limit.at_least, total))


def _every_level(old: Any) -> Any:
    return lambda policy: frozenset(Verb)


def _always_evicts(old: Any) -> Any:
    def context(self: Any, pool: str, now: Any) -> Any:
        made = old(self, pool, now)
        return replace(made, policy=replace(made.policy, evict=True))

    return context


def _one_policy(old: Any) -> Any:
    def init(self: Any, view: Any, records: Any, catalog: Any, settings: Any, *rest: Any) -> None:
        old(self, view, records, catalog, replace(settings, pools={}), *rest)

    return init


def _never_paused(old: Any) -> Any:
    return lambda self, node, name, wall: ""


def _fleet_only(old: Any) -> Any:
    """A pause of a pool or of a node is read and not heeded."""

    def pause_over(self: Any, node: Any, name: str, wall: float) -> Any:
        found = old(self, node, name, wall)
        return found if found is not None and found.scope == "fleet" else None

    return pause_over


def _labels_unread(old: Any) -> Any:
    def decide(s: Any, ctx: Any) -> Any:
        return old(replace(s, node=replace(s.node, opted_out=False)) if s.node is not None else s, ctx)

    return decide


def _leave_for_ever(old: Any) -> Any:
    """An owner's word about ranks that are out of reach holds for those of every later attempt too."""

    def obey(s: Any, r: Any, now: Any) -> Any:
        made = old(s, r, now)
        return replace(made, unfenced=1_000_000) if s.commands else made

    return obey


def _nothing_recent(old: Any) -> Any:
    return lambda ledger, name, policy, now: ()


def _approves_all(old: Any) -> Any:
    def approve(turn: Any, case: Any, command: Any) -> Any:
        return replace(old(turn, case, command), approved=tuple(Verb))

    return approve


def _breaker_for_ever(old: Any) -> Any:
    def trip(ledger: Any, *rest: Any) -> Any:
        made = old(ledger, *rest)
        return replace(made, breaker_until=1e12) if made.breaker else made

    return trip


def _keeps_it_quiet(old: Any) -> Any:
    def put(self: Any, notices: Any) -> Any:
        return old(self, tuple(n for n in notices if not n.case))

    return put


def _last_rung_again(old: Any) -> Any:
    def next_rung(case: Any, allowed: Any) -> Any:
        strongest = case.plan.rungs[-1].verb if case.plan.rungs else None
        return old(case, allowed) or (strongest if strongest in allowed else None)

    return next_rung


def _seat_ends_early(old: Any) -> Any:
    return lambda seat, case, now: bool(old(seat, case, now)) and (seat.kind != "treat" or case.phase is Phase.QUEUED)


def _stumbles(old: Any) -> Any:
    def conclude(turn: Any) -> Any:
        if turn.case is not None and turn.case.phase is Phase.WAITING and turn.s.case is None:
            raise KeyError("nobody expects it")
        return old(turn)

    return conclude


CONSENT: tuple[Mutant, ...] = (
    # how much at once
    Mutant(
        "any number is treated at once",
        wrap_("core.admit", "_treat_limits", _not_asked),
        drawn="policy.at_once = ",
        only="TreatedFewAtOnce",
    ),
    Mutant(
        "a treatment gives its place back early",
        wrap_("core.admit", "is_needed", _seat_ends_early),
        drawn="policy.at_once = 1",
    ),
    Mutant(
        "windows are not counted",
        wrap_("core.admit", "_window", _not_asked),
        drawn="policy.per_window = ",
        only="FewInAWindow",
    ),
    *(
        Mutant(f"the window of {v} is not counted", _uncounted(v), drawn=f"{{ {v} = ", only="FewInAWindow")
        for v in (Verb.CORDON, Verb.DRAIN, Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)
    ),
    Mutant(
        "jobs are hurt without limit",
        wrap_("core.admit", "_jobs_hurt", _not_asked),
        drawn="policy.jobs_hurt_per_window = 0",
        only="FewJobsHurt",
    ),
    Mutant("no window remembers anything", wrap_("core.admit", "recent", _nothing_recent)),
    Mutant("no limit of the fleet", _without_scope("fleet"), drawn="policy.max_out_fleet = ", only="WithinLimits"),
    Mutant("no limit of a pool", _without_scope("pool:"), drawn="policy.max_out = 0", only="WithinLimits"),
    Mutant("no limit of a rack", _without_scope("rack:"), drawn="policy.max_out_rack = ", only="WithinLimits"),
    Mutant("no limit of a domain", _without_scope("domain:"), drawn="policy.max_out_domain = ", only="WithinLimits"),
    Mutant("a limit of none lets one through", wrap_("core.admit", "room", _zero_is_some), drawn='= "0%"'),
    # what people allow
    *(
        Mutant(f"nobody is asked before {v}", _unasked_for(v), drawn=f'policy.approval = ["{v}"]', only="Approved")
        for v in (Verb.CORDON, Verb.DRAIN, Verb.RESET_GPU, Verb.REBOOT, Verb.POWER_CYCLE, Verb.REPLACE)
    ),
    Mutant(
        "one approval is for everything",
        rule_("core.obey", "approve", _approves_all, "OBEY"),
        drawn='"DRAIN", "RESET_GPU"',
    ),
    Mutant(
        "maintenance windows are always open",
        wrap_("core.admit", "_maintenance", _not_asked),
        drawn='policy.windows = ["Sun',
        only="InMaintenance",
    ),
    Mutant(
        "every verb is allowed",
        wrap_("core.plan", "level", _every_level),
        drawn='policy.max_verb = "CORDON"',
        only="WithinLevel",
    ),
    Mutant(
        "work is always evicted",
        wrap_("controller.desk", "Desk._context", _always_evicts),
        drawn="policy.evict = false",
        only="WorkLeftAlone",
    ),
    Mutant("a pool has no policy of its own", wrap_("controller.desk", "Desk.__init__", _one_policy), drawn="pool."),
    Mutant("a pause pauses nothing", wrap_("controller.view", "View.paused", _never_paused), only="PauseObeyed"),
    Mutant(
        "a pause of a pool or a node pauses nothing",
        wrap_("controller.view", "View.pause_over", _fleet_only),
        only="PauseObeyed",
    ),
    Mutant(
        "nobody reads that a node is opted out", wrap_("controller.desk", "decide", _labels_unread), only="OptedOut"
    ),
    Mutant(
        "one approval exchanges successors too",
        wrap_("core.absence", "is_exchanged", lambda old: lambda absentee, ledger, record=None: old(absentee, ledger)),
    ),
    Mutant(
        "who answers again is exchanged all the same",
        wrap_("core.decide", "_end_exchange", lambda old: lambda turn: None),
    ),
    Mutant("an owner's word is leave for ever", wrap_("core.reach", "obey", _leave_for_ever)),
    # exits
    Mutant(
        "an open breaker stays open",
        wrap_("core.admit", "trip", _breaker_for_ever),
        drawn="policy.breaker_failures = 1",
        only="EveryStateHasAnExit",
    ),
    Mutant("nobody is told of a case", wrap_("controller.outbox", "Outbox.put", _keeps_it_quiet)),
    Mutant("the strongest rung is tried for ever", wrap_("core.machine", "next_rung", _last_rung_again)),
    Mutant("a node raises when its case opens", wrap_("core.decide", "_conclude", _stumbles)),
    Mutant(
        "sick stock is fetched for ever",
        set_("core.successors", "why_not", lambda case, before: ""),
        drawn="policy.approval = []",
        only="FewSickSuccessors",
    ),
    Mutant("an exhausted ladder begins anew", row_(Phase.QUEUED, Event.EXHAUSTED, Phase.CORDONING)),
)
