"""Blast radius: who may take a node out of service or treat it now, and in words why the others may not.

Requests in, a new Ledger with the granted seats out; seats are written before any case moves, so two writers cannot
both take the last one. Every refusal says why and when it is looked at again. Called by controller/loop.py once a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from sickbay.core import machine, undelivered
from sickbay.core.frozen import replace
from sickbay.core.moment import how_long
from sickbay.model import TREATMENTS, Case, Ledger, Node, Phase, Seat, Severity, Verb, When
from sickbay.settings import Limit, Policy

OUT, TREAT, EVICT = "out", "treat", "evict"
AGAIN_S = 60.0
WINDOWS = "windows"  # the setting of maintenance windows, where none opens in time


@dataclass(frozen=True, slots=True)
class Request:
    """A case that wants a seat."""

    case: str
    node: str
    kind: str  # OUT | TREAT | EVICT
    verb: Verb
    pool: str
    rack: str
    domain: str
    when: When
    severity: Severity
    since: float
    down: bool  # already out on a fresh read: not ready, or cordoned by somebody else
    hurts: bool  # work that is alive would be stopped
    approved: bool
    in_window: bool
    gated: bool = False  # new, and kept from work until it was examined
    seen: bool = False  # by the node's own agent, which is there to see it
    opens_s: float = 0.0  # seconds until a maintenance window opens; inf: none ever does


@dataclass(frozen=True, slots=True)
class Counts:
    """Nodes and unavailable nodes per scope ("fleet", "pool:x", "rack:y", "domain:z")."""

    total: Mapping[str, int] = field(default_factory=dict)
    down: Mapping[str, AbstractSet[str]] = field(default_factory=dict)
    absent: AbstractSet[str] = frozenset()  # away together with many others: one case is about what they share


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str
    again_at: float  # watch time
    full: str = ""  # scope whose limit is full
    setting: str = ""  # of that limit
    most: int = 0
    none: str = ""  # setting that allows none: no passing of time changes that
    asks: Verb | None = None  # only a person's word is missing, for this


@dataclass(frozen=True, slots=True)
class Admitted:
    ledger: Ledger
    granted: frozenset[str] = frozenset()
    refused: Mapping[str, Refusal] = field(default_factory=dict)


def admit(
    requests: Sequence[Request], ledger: Ledger, counts: Counts, policy_for: Callable[[str], Policy], now: float
) -> Admitted:
    """Grant what fits, the most urgent first; a request that already has its seat is granted again."""
    granted: set[str] = set()
    refused: dict[str, Refusal] = {}
    for request in sorted(requests, key=_urgency):
        if _has_seat(ledger, request):
            granted.add(request.case)
            continue
        refusal = _refusal(request, ledger, counts, policy_for(request.pool), now)
        if refusal is not None:
            refused[request.case] = refusal
            continue
        ledger = _seat(ledger, request, policy_for(request.pool), now)
        granted.add(request.case)
    return Admitted(ledger, frozenset(granted), refused)


def _urgency(request: Request) -> tuple[bool, int, float, str]:
    return (request.when is not When.NOW, -request.severity, request.since, request.case)


def _has_seat(ledger: Ledger, request: Request) -> bool:
    """A place that was given beside the limits is none any more once the node is in service again."""
    mine = [s for s in ledger.seats if s.case == request.case and s.kind == request.kind]
    return any(s.verb == request.verb.value and (request.down or not s.free) for s in mine)


def _refusal(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    """The first reason that stands against it, or None."""
    rules = (_breaker, _approval, _maintenance, _out_limits, _treat_limits, _window, _jobs_hurt)
    return next((no for rule in rules if (no := rule(r, ledger, counts, policy, now)) is not None), None)


def _breaker(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    if not ledger.breaker or now >= ledger.breaker_until:
        return None
    return Refusal(f"the breaker is open: {ledger.breaker}", ledger.breaker_until)


def _approval(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    if r.verb.value not in policy.approval or r.approved:
        return None
    return Refusal(f"{r.verb} needs a person's approval: sickbay case approve {r.case}", now + AGAIN_S, asks=r.verb)


def _maintenance(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    """A newcomer at its gate has no work to lose, and gets none before it was examined: it needs no window. One that is
    out for another reason may be back in a minute, and would then stay out until the window."""
    if r.in_window or r.when is not When.IDLE or (r.kind == OUT and r.gated and not r.hurts) or r.kind == EVICT:
        return None
    why = f"outside the maintenance windows ({', '.join(policy.windows)}), and this fault can wait"
    late = _opens_too_late(r, policy, now)
    return Refusal(f"{why}{late}", now + AGAIN_S, none=WINDOWS if late else "")


def _opens_too_late(r: Request, policy: Policy, now: float) -> str:
    """Why no window comes in this case's time, in words; "" if one does."""
    setting, lasts_s = ("waiting_s", policy.waiting_s) if r.kind == OUT else ("queued_s", policy.queued_s)
    if r.opens_s == float("inf"):
        return "; none of them ever opens"
    if now + r.opens_s <= r.since + lasts_s:
        return ""
    return f"; the next one opens in {how_long(r.opens_s)}, when the time of this wait is over (policy.{setting})"


def _out_limits(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    """A node that is already down takes nothing away from the fleet, so it needs no free seat."""
    if r.kind != OUT or r.down:
        return None
    for scope, setting, limit in _scopes(r, policy):
        if scope not in counts.total:
            continue
        most = room(limit, counts.total[scope])
        if not most:
            why = f"no node of {scope} may be taken out: policy.{setting} allows none"
            return Refusal(why, now + AGAIN_S, scope, setting)
        out = out_of_service(scope, ledger, counts) - {r.node}
        reserve = 1 if r.when is not When.NOW and most >= 2 else 0
        if len(out) + 1 <= most - reserve:
            continue
        ours = _by_us(scope, ledger) - {r.node}
        if not _is_kept_for(r, ours | (out - counts.absent), limit, counts.total[scope]):
            names = ", ".join(sorted(out)[:8]) or "none"
            kept = " (one place is kept for urgent faults)" if reserve and len(out) + 1 <= most else ""
            why = f"{len(out)} of at most {most} nodes of {scope} are out already: {names}{kept}"
            return Refusal(why, now + AGAIN_S, scope, setting, most)
    return None


def _is_kept_for(r: Request, out: set[str], limit: Limit, total: int) -> bool:
    """Many that are away fill the limit without anybody's doing. The few places that even the smallest pool has are
    still there for what cannot wait and was seen on a node that answers. `out` has those that we took out ourselves,
    though they be away with the others now: they stay out when the others are back."""
    return r.when is When.NOW and r.seen and len(out) + 1 <= min(limit.at_least, room(limit, total))


def _scopes(r: Request, policy: Policy) -> list[tuple[str, str, Limit]]:
    named = [("fleet", "max_out_fleet", policy.max_out_fleet), (f"pool:{r.pool}", "max_out", policy.max_out)]
    if r.rack:
        named.append((f"rack:{r.rack}", "max_out_rack", policy.max_out_rack))
    if r.domain:
        named.append((f"domain:{r.domain}", "max_out_domain", policy.max_out_domain))
    return named


def room(limit: Limit, total: int) -> int:
    """The smaller of count and percent, but never below `at_least`: ten percent of five nodes is still one. A zero that
    somebody wrote means none."""
    if not limit.count or not limit.percent:
        return 0
    return max(min(limit.count, int(total * limit.percent / 100.0)), min(limit.at_least, total))


def out_of_service(scope: str, ledger: Ledger, counts: Counts) -> set[str]:
    """Everything that is out, by anybody's doing."""
    return _by_us(scope, ledger) | set(counts.down.get(scope, ()))


def _by_us(scope: str, ledger: Ledger) -> set[str]:
    kind, _, name = scope.partition(":")  # of a seat too: its pool, rack and domain
    return {s.node for s in ledger.seats if s.kind == OUT and (kind == "fleet" or getattr(s, kind) == name)}


def _treat_limits(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    if r.kind != TREAT:
        return None
    scope = f"pool:{r.pool}"
    most = room(policy.at_once, counts.total.get(scope, 1))
    busy = sorted({s.node for s in ledger.seats if s.kind == TREAT and s.pool == r.pool and s.case != r.case})
    if not most:
        why = f"no node of {scope} may be treated: policy.at_once allows none"
        return Refusal(why, now + AGAIN_S, none="at_once")
    if len(busy) + 1 <= most:
        return None
    return Refusal(
        f"{len(busy)} of at most {most} nodes of {scope} are being treated: {', '.join(busy[:8])}", now + AGAIN_S
    )


def _window(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    most = policy.per_window.get(r.verb.value)
    if most == 0:
        why = f"policy.per_window.{r.verb} is 0: no {r.verb} is made in pool {r.pool} until that is raised"
        return Refusal(why, now + max(policy.window_s, AGAIN_S), none=f"per_window.{r.verb}")
    grants = recent(ledger, f"{r.pool}/{r.verb}", policy, now)
    if most is None or (r.down and r.kind == OUT) or len(grants) < most:
        return None
    why = f"{len(grants)} {r.verb} in pool {r.pool} within {how_long(policy.window_s)}, at most {most}"
    return Refusal(why, grants[0] + policy.window_s)


def _jobs_hurt(r: Request, ledger: Ledger, counts: Counts, policy: Policy, now: float) -> Refusal | None:
    """A fault that is `now` has cost its job already; only the others are a choice."""
    if r.kind != OUT or not r.hurts or r.when is not When.CHECKPOINT:
        return None
    hurt = recent(ledger, "fleet/jobs-hurt", policy, now)
    if len(hurt) < policy.jobs_hurt_per_window:
        return None
    if not policy.jobs_hurt_per_window:
        why = "policy.jobs_hurt_per_window is 0: our drains may stop no job, so this waits until the node is idle"
        return Refusal(why, now + AGAIN_S, none="jobs_hurt_per_window")
    return Refusal(
        f"our drains have stopped {len(hurt)} jobs within {how_long(policy.window_s)}", hurt[0] + policy.window_s
    )


def recent(ledger: Ledger, name: str, policy: Policy, now: float) -> tuple[float, ...]:
    return tuple(t for t in ledger.windows.get(name, ()) if now - t < policy.window_s)


def _seat(ledger: Ledger, r: Request, policy: Policy, now: float) -> Ledger:
    free, urgent = r.kind == OUT and r.down, r.when is When.NOW
    seat = Seat(r.case, r.node, r.kind, r.verb.value, r.pool, r.rack, r.domain, now, urgent, free)
    windows = dict(ledger.windows)
    windows[f"{r.pool}/{r.verb}"] = (*recent(ledger, f"{r.pool}/{r.verb}", policy, now), now)
    if r.kind == OUT and r.hurts and r.when is When.CHECKPOINT:
        windows["fleet/jobs-hurt"] = (*recent(ledger, "fleet/jobs-hurt", policy, now), now)
    others = tuple(s for s in ledger.seats if not (s.case == r.case and s.kind == r.kind))
    return replace(ledger, seats=(*others, seat), windows=windows)


# --- what wants a seat, what gives one back -------------------------------------------------------------------------


def request_of(
    case: Case, node: Node | None, verb: Verb, *, when: When, severity: Severity, in_window: bool, alive: bool,
    opens_s: float = 0.0, blinks: bool = False,
) -> Request:  # fmt: skip
    """`blinks`: away for so short a time that it may be back in a moment, or turn out to be one of many. A network that
    was cut for two minutes let every case that waited have a place beside the limits."""
    down = node is not None and is_down(node) and not (blinks and not node.others and not node.gate)
    return Request(
        case=case.id, node=case.node, kind=_kind_of(verb), verb=verb, pool=case.pool,
        rack=node.rack if node else "", domain=node.domain if node else "", when=when, severity=severity,
        since=case.entered, down=down, hurts=alive, approved=verb in case.approved, in_window=in_window,
        gated=node is not None and node.gate,
        seen=node is not None and node.ready and any(d.source == "agent" for d in case.diagnoses),
        opens_s=opens_s,
    )  # fmt: skip


def is_down(node: Node) -> bool:
    """Out of service already, whoever's doing it is: not ready, held by somebody else, or at its gate."""
    return not node.ready or bool(node.others) or node.gate


def _kind_of(verb: Verb) -> str:
    return EVICT if verb is Verb.DRAIN else TREAT if verb in TREATMENTS else OUT


def counts_drains(policy: Policy) -> bool:
    """Does a drain that evicts need a place or a person's word of its own? A cordon's place is enough where not."""
    return Verb.DRAIN.value in policy.approval or Verb.DRAIN.value in policy.per_window


def is_needed(seat: Seat, case: Case, now: float) -> bool:
    """Out seats last as long as the case is open, treat seats as long as a treatment may be under way. One that waits
    again for its node is in service holds no place that was given beside the limits: two that wait would hold each
    other's."""
    if seat.kind == OUT:
        return case.phase is not Phase.SUSPECTED and not (seat.free and case.phase is Phase.WAITING)
    if seat.kind == EVICT:
        return case.phase in (Phase.HOLDING, Phase.DRAINING)
    if undelivered.gives_back(case, seat.verb, now):
        return False
    if case.phase in (Phase.REPAIRING, Phase.QUEUED):
        return True
    return case.unfinished is not None and (not _is_replaced_at_rest(case) or now < seat.since + _lasts_s(case))


def _is_replaced_at_rest(case: Case) -> bool:
    """A machine that went and has no successor is out, and after the time of its rung nobody treats it."""
    sent = case.unfinished
    return case.phase is Phase.ESCALATED and sent is not None and sent.verb is Verb.REPLACE


def _lasts_s(case: Case) -> float:
    return next((rung.timeout_s for rung in case.plan.rungs if rung.verb is Verb.REPLACE), 0.0)


def is_beside(ledger: Ledger, case: Case) -> bool:
    """Was this case's node out already when it was taken, so that it needed no place?"""
    return any(seat.free for seat in ledger.seats if seat.case == case.id and seat.kind == OUT)


def sweeps_at(ledger: Ledger, cases: Mapping[str, Case]) -> float:
    """When the next seat is given back by nothing but time; inf if none is."""
    held = [(seat, cases.get(seat.case)) for seat in ledger.seats if seat.kind == TREAT]
    return min((s.since + _lasts_s(c) for s, c in held if c and _is_replaced_at_rest(c)), default=float("inf"))


def sweep(ledger: Ledger, cases: Mapping[str, Case], now: float) -> Ledger:
    """Drop seats nobody needs: of ended cases, of finished treatments, of a controller that died in between. Where
    somebody deleted a record, the case that took over its mark takes over its seats: its treatment may go on."""
    heirs = {case.adopts: case for case in cases.values() if case.adopts}
    held = [(seat, cases.get(seat.case) or heirs.get(seat.case)) for seat in ledger.seats]
    kept = tuple(replace(seat, case=case.id) for seat, case in held if case is not None and is_needed(seat, case, now))
    ledger = _with_grants_back(ledger, held, now)
    return ledger if kept == ledger.seats else replace(ledger, seats=kept)


def _with_grants_back(ledger: Ledger, held: Sequence[tuple[Seat, Case | None]], now: float) -> Ledger:
    """What could not be delivered was not done, and counts in no window: else one case that is tried again and again
    would use up what others may have."""
    back = [s for s, case in held if case and s.kind == TREAT and undelivered.gives_back(case, s.verb, now)]
    windows = dict(ledger.windows)
    for seat in back:
        name = f"{seat.pool}/{seat.verb}"
        times = list(windows.get(name, ()))
        if seat.since in times:
            times.remove(seat.since)
            windows[name] = tuple(times)
    return replace(ledger, windows=windows) if back else ledger


def counts_as_failed(case: Case) -> bool:
    """What the breaker counts. Not what is asked for again until it works: nothing was done to those nodes, and one
    missing right would keep every other node from treatment long after it is back."""
    return case.phase is Phase.ESCALATED and not case.factor and not machine.is_asked_again(case)


def trip(ledger: Ledger, policy: Policy, escalated: int, now: float) -> Ledger:
    """Count escalations; too many in a window open the breaker, a quiet period closes it."""
    if escalated:
        times = (*recent(ledger, "fleet/escalated", policy, now), *(now for _ in range(escalated)))
        ledger = replace(ledger, windows={**ledger.windows, "fleet/escalated": times})
        if len(times) >= policy.breaker_failures:
            why = f"{len(times)} cases were escalated within {how_long(policy.window_s)}"
            return replace(ledger, breaker=why, breaker_until=now + policy.breaker_quiet_s)
    if ledger.breaker and now >= ledger.breaker_until:
        return replace(ledger, breaker="", breaker_until=0.0)
    return ledger
