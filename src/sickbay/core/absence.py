"""Absence of many: nodes that are away at the same time are one case about what they share; none of them is treated.

26 of 64 healthy nodes were rebooted for a network that was cut for two hours; a rack without power was replaced. Here
it is decided who counts as away, when they are many, what they share and when it is over. Pure; called by
controller/absences.py with everybody who is away now. It must never look at a clock, a node object or a limit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from sickbay.core import machine
from sickbay.core.moment import how_long
from sickbay.model import (
    Absence,
    Case,
    Diagnosis,
    Entry,
    Ledger,
    Node,
    NodeRecord,
    Phase,
    Place,
    Plan,
    Severity,
    Verb,
    When,
)
from sickbay.settings import ControllerSettings, Policy

NAME = "absence"  # what its case and its record are about, where others name a node
FAULT = "nodes-absent"
LONE_FAULT = "node-not-ready"  # of one node that is away alone
NEWCOMER = "newcomer"  # of one at its gate
FLEET = ("fleet",)

COUNTED_S = 60.0  # all of them away for a shorter time: a control plane that hiccups
KNOWN_S = 1.5 * COUNTED_S  # away for so long: by then it is known whether a node is one of many
ENDS_S = 600.0  # nobody away for so long: it is over
MOSTLY = 0.8  # of those who were away at its worst
FEW = 3  # who are left of a small absence are fewer than many
MOSTLY_S = 1_800.0  # so many are back and nobody else has come for so long: the rest have something of their own
PAUSES_S = 7_200.0  # of those who come one by one, at most: twice as long as the longest time between two of them
DAY_S = 86_400.0
NEVER = -1.0  # of a time in the Ledger: nobody has decided it yet
LOST_S = 3_600.0  # then people are told what is lost and what they may decide
LATELY_S = 600.0  # others who go away with it have gone by then
SAME_S = 3_600.0  # away again so soon: the same incident, about which people know
COVERS = 0.8  # of the absent nodes: then a factor is named as what they share
NAMES = 20
LEFT_MOST = 500  # names in the Ledger
TOGETHER_S = 120.0  # who went away within this went away together: a platform's own notice of it is 40 s late at most
MOMENT = "at:"  # in a scope: the watch time at which several went away together
SMALL_POOLS = (2, 3)
CUT_OFF = "is cut off, not down"
DEAD = frozenset({"dead", "retired"})  # by its provider's word: it will not come back by itself


@dataclass(frozen=True, slots=True)
class Absentee:
    node: str
    since: float  # watch time
    keys: tuple[str, ...]  # "pool:x" and what it shares with others: "rack=r7", "driver=570"
    held: bool = False  # by somebody else: it belongs to what many share, and is not missed
    alone: bool = False  # it is treated by itself: company for whoever goes away now, and no member


# --- who is away ------------------------------------------------------------------------------------------------------


def keys_of(node: Node) -> tuple[str, ...]:
    named = [f"{name}={value}" for name, value in node.factors.items()]
    for name, value in (("rack", node.rack), ("domain", node.domain)):
        if value and f"{name}={value}" not in named:
            named.append(f"{name}:{value}")
    return (f"pool:{node.pool}", *named)


def excuse(node: Node, case: Case | None) -> str:
    """Why a node that is not ready is not missed; "" if it is."""
    if node.gone:
        return "its machine is gone"
    if node.leaving:
        return node.leaving
    if node.machine in DEAD:
        return f"its provider calls it {node.machine}"
    if case is not None and _is_treated(case):
        return f"it is being treated in {case.id}"
    return ""


def is_held(node: Node, case: Case | None = None) -> bool:
    """Somebody else has closed it, or a treatment of ours took it away: its absence makes nothing many. Where many
    others are away it is away with them. What came of a treatment is not heard from there: one whose reboot was under
    way when all went away was power cycled and given back, for each ran out of time."""
    return bool(node.others) or (case is not None and _is_treated(case))


def _is_treated(case: Case) -> bool:
    return _by_our_doing(case) and not is_only_evidence(case)


def _by_our_doing(case: Case) -> bool:
    """A treatment of ours was sent: that it is away says nothing about a network. Of a case that a person holds nobody
    hears when it was over: five hours later its node was still away by our doing (seed 242)."""
    sent = case.pending is not None and case.pending.sends > 0
    return case.unfinished is not None or (case.phase is Phase.REPAIRING and sent and not case.held)


def is_known_dead(case: Case | None, now: float, after_s: float = 86_400.0) -> bool:
    """It rests with a person after we have treated it in vain, and has for a day: no company for somebody new."""
    return (
        case is not None and case.phase is Phase.ESCALATED and bool(case.rungs_tried) and now - case.entered >= after_s
    )


def is_alone(since: float, ledger: Ledger) -> bool:
    """Was the case about many split since this node went away? Then it is treated by itself, until people close one:
    their later word holds, and who is still away when its time is over is counted anew."""
    return NEVER < since <= ledger.split_at and ledger.left_at <= ledger.split_at


def is_left(since: float, ledger: Ledger, quiet_s: float, now: float) -> bool:
    """Did people close the case about many since? Then it is theirs for a while; whoever goes away beside it is still
    one of many."""
    return NEVER < since <= ledger.left_at and now < ledger.left_at + quiet_s


def was_decided(since: float, ledger: Ledger) -> bool:
    """Had this node gone away before the case about many was split or closed?"""
    return NEVER < since <= max(ledger.split_at, ledger.left_at)


def is_exchanged(absentee: Absentee, ledger: Ledger, record: NodeRecord | None = None) -> bool:
    """Did a person approve REPLACE for it, with all of those that were away then? That word is for one case: once a
    case of its own has ended since, sixteen machines that people had let go were replaced hours later. What ended on
    the machine before is not on the record of its successor, which does not answer from the same network either: it
    was given back too (seed 40018)."""
    if not ledger.replaced_from < absentee.since <= ledger.replaced_at or not belongs(absentee, ledger.replaced_scope):
        return False
    ended = (*(p.ended for p in record.past), *record.replaced.values()) if record is not None else ()
    return all(at < ledger.replaced_at for at in ended)


def is_exchange(case: Case) -> bool:
    """Opened with a person's word for all who were away then; nobody has approved anything in the case itself."""
    away = any(d.fault == LONE_FAULT for d in case.diagnoses)
    return away and Verb.REPLACE in case.approved and not any(entry.event == "APPROVE" for entry in case.journal)


# --- are they many, and what do they share ----------------------------------------------------------------------------


def scope_of(away: Sequence[Absentee], members: Mapping[str, int], limits: ControllerSettings) -> tuple[str, ...]:
    """("fleet",), or the factors of which too many nodes are away at once; () while they are not many."""
    total = members.get("fleet", 0)
    if len(away) >= limits.absent_nodes and len(away) >= limits.absent_share * total:
        return FLEET
    counted = Counter(key for absentee in away for key in absentee.keys)
    much = {key for key, n in counted.items() if _is_much_of(n, key, members, limits)}
    return tuple(sorted({*much, *_moments(away, limits.absent_nodes)}))


def _moments(away: Sequence[Absentee], least: int) -> list[str]:
    """Moments at which several went away together, wherever they stand: in a fleet of thousands that is a small share
    of everything, and still no coincidence."""
    times = sorted(a.since for a in away)
    starts = [t for i, t in enumerate(times) if i + least <= len(times) and times[i + least - 1] - t <= TOGETHER_S]
    return [f"{MOMENT}{t:.0f}" for i, t in enumerate(starts) if i == 0 or t - starts[i - 1] > TOGETHER_S]


def _is_much_of(n: int, key: str, members: Mapping[str, int], limits: ControllerSettings) -> bool:
    total = members.get(key, 0)
    if key.startswith("pool:") and total in SMALL_POOLS:
        return n >= total
    return n >= limits.absent_nodes and n >= limits.absent_factor_share * total


def lasts(away: Sequence[Absentee], now: float) -> bool:
    """Has the first of them been away long enough to be worth a word? Who joins him counts at once."""
    return any(now >= absentee.since + COUNTED_S for absentee in away)


def belongs(absentee: Absentee, scope: Sequence[str]) -> bool:
    if tuple(scope) == FLEET or any(key in scope for key in absentee.keys):
        return True
    moments = [float(key.removeprefix(MOMENT)) for key in scope if key.startswith(MOMENT)]
    return any(-1.0 <= absentee.since - moment <= TOGETHER_S + 1.0 for moment in moments)


def shared_by(away: Sequence[Absentee], members: Mapping[str, int]) -> str:
    """What nearly all of them have in common and the fewest others have, in words."""
    best: tuple[float, int, str] | None = None
    for _, values in sorted(_by_kind(away).items()):
        covered = sum(values.values())
        total = sum(members.get(key, n) for key, n in values.items())
        if covered >= COVERS * len(away) and total < members.get("fleet", 0):
            best = max(filter(None, (best, (covered / max(1, total), -len(values), ", ".join(sorted(values)[:4])))))
    return best[2] if best and best[0] >= 0.5 else "nothing but the moment; look at network, power and control plane"


def _by_kind(away: Sequence[Absentee]) -> dict[str, Counter[str]]:
    """Of each kind of factor the values of which several are away: one of many racks says nothing."""
    kinds: dict[str, Counter[str]] = defaultdict(Counter)
    for key, n in Counter(key for absentee in away for key in absentee.keys).items():
        if n > 1:
            kinds[key.replace(":", "=").partition("=")[0]][key] = n
    return kinds


# --- the life of the one case -----------------------------------------------------------------------------------------


def open_case(
    away: Sequence[Absentee], scope: tuple[str, ...], members: Mapping[str, int], beside: int = 0,
    *, n: int, now: float, at: float, cluster: str,
) -> Case:  # fmt: skip
    """A person owns it from the start; no node is touched. `beside`: so many more are away and treated alone."""
    shared = shared_by(away, members) + (f" ({beside} more are away and treated by themselves)" if beside else "")
    absence = Absence(
        scope,
        shared,
        min(a.since for a in away),
        len(away),
        len(away),
        _names(away),
        wave=_last_wave(away),
        fewest=len(away),
    )
    why = f"{len(away) + beside} nodes are away together; what they share: {shared}"
    diagnosis = Diagnosis(
        FAULT, Place(""), Severity.MONITOR, When.IDLE, 0.9, (why,), at, "monitor.nodes-absent", "monitor"
    )
    return Case(
        id=f"{NAME}.{n}", node=NAME, uid="", pool="", diagnoses=(diagnosis,), plan=Plan(), phase=Phase.ESCALATED,
        step=0, opened_at=at, entered=now, deadline=None, cluster=cluster, factor=NAME, first_evidence_at=at,
        absence=absence,
        journal=(Entry(0, "OPENED", at, "sickbay", why, Phase.ESCALATED.value),),
        timeline=((Phase.ESCALATED.value, at),),
    )  # fmt: skip


def _names(away: Sequence[Absentee]) -> tuple[str, ...]:
    return tuple(sorted(a.node for a in away)[:NAMES])


def counted(
    absence: Absence, away: Sequence[Absentee], scope: tuple[str, ...], members: Mapping[str, int], now: float,
    left: int = 0,
) -> Absence:  # fmt: skip
    """The absence as it stands: who belongs to it now, and since when most or all are back. Its scope only grows.
    `left`: so many belong to it no more though they are not back. An autoscaler that took two of four away was read as
    half of them being well again, and the other two were rebooted and replaced."""
    many, before = scope, absence
    scope = absence.scope if absence.scope == FLEET or not scope else _wider(absence.scope, scope)
    mine = [a for a in away if belongs(a, scope)]
    if left:
        fewest = max(0, absence.fewest - left)
        absence = replace(absence, left=absence.left + left, fewest=fewest, names=_names(mine))
    if len(mine) > absence.most or scope != absence.scope:
        absence = _widened(absence, mine, scope, members)
    if many and (_are_earlier(absence, mine) or (mine and _were_all_back(absence))):
        absence = _counted_anew(absence, mine)
    mostly = _are_mostly_back(absence, len(mine), many=bool(many)) and not (many and _is_another(absence, mine))
    if mine and (is_over(before, now) or (is_due(before, now) and not mostly)):
        absence, mostly = _begun_anew(absence, mine, members), False
    absence = _noted_return(absence, len(mine), now)
    mostly_back = _since(absence.mostly_back, mostly, now)
    if mostly_back is not None and absence.returned is not None:
        mostly_back = max(mostly_back, absence.returned)
    return replace(absence, count=len(mine), mostly_back=mostly_back, all_back=_since(absence.all_back, not mine, now))


def _noted_return(absence: Absence, still: int, now: float) -> Absence:
    """Fewer are away than ever since it was at its worst. Certificates, disks and racks come back one by one: those who
    were the last had their half hour and were rebooted a minute before their turn (seed 1502)."""
    if back(absence, still) <= back(absence, absence.fewest):
        return absence
    pause = 0.0 if absence.returned is None else now - absence.returned
    return replace(absence, fewest=still, returned=now, pause=max(absence.pause, pause))


def _widened(
    absence: Absence, mine: Sequence[Absentee], scope: tuple[str, ...], members: Mapping[str, int]
) -> Absence:  # fmt: skip
    shared = shared_by(mine, members) if mine else absence.shared
    if len(mine) > absence.most:  # worse than ever: counted from here
        absence = _counted_anew(absence, mine)
    return replace(absence, scope=scope, names=_names(mine), shared=shared)


def _counted_anew(absence: Absence, mine: Sequence[Absentee]) -> Absence:
    return replace(
        absence,
        most=len(mine),
        fewest=len(mine),
        left=0,
        names=_names(mine),
        wave=_last_wave(mine),
        returned=None,
        pause=0.0,
    )


def _begun_anew(absence: Absence, mine: Sequence[Absentee], members: Mapping[str, int]) -> Absence:
    """It would have ended, had nobody stopped its case: who goes away after that is another absence in it."""
    absence = _counted_anew(absence, mine)
    return replace(absence, shared=shared_by(mine, members), since=min(a.since for a in mine), told=())


def back(absence: Absence, still: int) -> int:
    """How many have returned, of those who were away at its worst."""
    return max(0, absence.most - absence.left - still)


def _are_mostly_back(absence: Absence, still: int, many: bool) -> bool:
    """Of three or four a share of 80 % would be all: one or two who are still away, and are not many with whoever else
    is, had nobody to look after them for as long as they stayed away. Half of all must be back for that: who was taken
    away says nothing about the others."""
    returned = back(absence, still)
    few = still < FEW and 2 * returned >= absence.most and not many
    return returned >= MOSTLY * max(1, absence.most - absence.left) or few


def _last_wave(away: Sequence[Absentee]) -> float:
    """When those began to go away who went last, and together."""
    times = sorted((a.since for a in away), reverse=True)
    ends = [t for t, before in pairwise(times) if t - before > TOGETHER_S]
    return ends[0] if ends else times[-1]


def _is_another(absence: Absence, still: Sequence[Absentee]) -> bool:
    """Several of those still away did not go when most went: theirs is another absence, within this one. A switch was
    dead before the whole fleet was cut off for ten minutes, and when the fleet was back its four nodes were rebooted as
    stragglers (seed 2055)."""
    return sum(not -1.0 <= a.since - absence.wave <= TOGETHER_S + 1.0 for a in still) >= FEW


def _are_earlier(absence: Absence, still: Sequence[Absentee]) -> bool:
    """All who went when most went are back, and several who had gone before are not: who returned says nothing about
    them. Of three without power one was taken away, and for four others who had come back the other two were rebooted
    (seed 50001778). Not who seems to have gone later: a new leader takes all for that."""
    return len(still) >= FEW and all(a.since < absence.wave - 1.0 for a in still)


def _were_all_back(absence: Absence) -> bool:
    """Whoever is away now went after that, and who was back then says nothing about them. Of three that were cut off
    minutes after eight had booted one was taken away, and for the eight the other two were rebooted (seed 1629). By how
    few were left, which the next leader finds on record; a record of an earlier version has no such number."""
    return absence.fewest == 0 and (absence.returned is not None or absence.left > 0)


def is_after(absence: Absence, since: float) -> bool:
    """Did a node go away when all of these were back, and not with many again? Then it is no one of them. Of a record
    that does not say when they returned nobody knows."""
    return absence.fewest == 0 and absence.returned is not None and since > absence.returned


def _wider(old: tuple[str, ...], new: tuple[str, ...]) -> tuple[str, ...]:
    return FLEET if new == FLEET else tuple(sorted({*old, *new}))


def _since(before: float | None, holds: bool, now: float) -> float | None:
    if not holds:
        return None
    return now if before is None else before


def ending(case: Case, now: float) -> tuple[str, float | None] | None:
    """(why it is over; who went away until then is treated alone, None: nobody), or None while it goes on. Nothing
    ends a case that somebody has stopped, and until it has ended nobody is treated alone: four nodes without power
    were, for a case that was held (seed 50000194)."""
    absence = case.absence
    if absence is None or machine.is_frozen(case):
        return None
    if is_over(absence, now):
        return (f"all are back and have been ready for {how_long(ENDS_S)}", None)
    said = now if absence.decided is None else absence.decided
    if Verb.REPLACE in case.approved:
        return (f"a person approved REPLACE for the {absence.count} that are still away", said)
    if absence.split:
        return (f"a person split it: the {absence.count} that are still away are treated one by one", said)
    if is_due(absence, now):
        returned = back(absence, absence.count)
        quiet = how_long(_wait_s(absence))
        why = f"{returned} of {absence.most} are back and nobody else for {quiet}"
        return (f"{why}; who has been away all that time is treated alone", _stragglers_until(absence, now))
    return None


def _stragglers_until(absence: Absence, now: float) -> float:
    """Who went away a moment ago is no straggler, but may be the first of others: one that was cut off two minutes
    before the end, and six more three minutes after it, was rebooted."""
    back_since = now if absence.mostly_back is None else absence.mostly_back
    return min(now, max(back_since, now - LATELY_S))


def was_passed_over(case: Case, now: float) -> bool:
    """Its time ended long ago, and nobody saw that: whoever led could not write it (as machine.was_passed_over)."""
    return case.absence is not None and not machine.is_frozen(case) and is_due(case.absence, now - machine.LATE_S)


def taken_up(stored: Case, kept: Case | None, now: float) -> Case:
    """The case as it stands when its record can be read again: what people decided is on record, who is away is what
    was counted in memory meanwhile (`kept`), and a time limit begins anew. Eight of ten were back when it could be read
    last, all were soon after, and the next three who went away were taken for the rest of the ten: two of them were
    rebooted in the second in which the third was back (found by an outsider)."""
    known = stored.absence
    if known is None:
        return stored
    if kept is not None and kept.absence is not None:
        fresh = replace(kept.absence, split=known.split, decided=known.decided)
    else:  # nobody was away with many
        fresh = replace(known, fewest=0, returned=now, all_back=None)
    return replace(stored, absence=replace(fresh, mostly_back=None))


def settled(ledger: Ledger, case: Case, quiet_s: float, now: float, away: Collection[str]) -> Ledger:
    """What the end of its case leaves in the Ledger: who is left to people, or treated alone, from now on."""
    if case.phase is Phase.DISMISSED:
        return left_to_people(ledger, now, away)
    why_and_until = ending(case, now)
    until = why_and_until[1] if why_and_until is not None else None
    if until is None or case.absence is None:
        return ledger
    if Verb.REPLACE in case.approved:
        ledger = _exchanging(ledger, case.absence.scope, quiet_s, until)
    return replace(ledger, split_at=until)


def _exchanging(ledger: Ledger, scope: tuple[str, ...], quiet_s: float, at: float) -> Ledger:
    """A person approved REPLACE for those who are away now and share that: for nobody who was another's before."""
    alone = ledger.split_at if ledger.left_at <= ledger.split_at else NEVER
    left = ledger.left_at if at < ledger.left_at + quiet_s else NEVER
    return replace(ledger, replaced_at=at, replaced_from=max(alone, left), replaced_scope=scope)


def left_to_people(ledger: Ledger, now: float, away: Collection[str]) -> Ledger:
    """Whoever is away now is theirs for a while: they closed the case about them. By name, for the next leader: he took
    three that went away an hour later for those, and nobody looked after them for four hours (seed 50000229)."""
    if not away:
        return ledger
    return replace(ledger, left_at=now, left_names=tuple(sorted(away)) if len(away) <= LEFT_MOST else ())


def is_over(absence: Absence, now: float) -> bool:
    return absence.all_back is not None and now >= absence.all_back + ENDS_S


def is_due(absence: Absence, now: float) -> bool:
    """Has it lasted for as long as it may? A case that somebody has stopped stays open all the same."""
    return any(now >= at for at in next_look(absence))


def next_look(absence: Absence) -> list[float]:
    """Watch times at which time alone ends it."""
    times = [absence.all_back + ENDS_S] if absence.all_back is not None else []
    return times + ([absence.mostly_back + _wait_s(absence)] if absence.mostly_back is not None else [])


def _wait_s(absence: Absence) -> float:
    """How long nobody must have returned before those who are still away are looked at alone."""
    return max(MOSTLY_S, min(2 * absence.pause, PAUSES_S))


def joining(absence: Absence, away: Sequence[Absentee], scope: Sequence[str], now: float) -> list[Absentee]:
    """Who may belong to the open case. One that is over, and open only because somebody stopped it, takes in none but
    those who are many by themselves: whoever goes away alone is alone."""
    return [a for a in away if belongs(a, scope)] if is_over(absence, now) else list(away)


# --- one node that is away alone --------------------------------------------------------------------------------------


def is_only_evidence(case: Case) -> bool:
    """Nothing is held against this node but that it does not answer. That it is new is nothing against it: one at its
    gate was rebooted when it was back from a power cut that all had (seed 443)."""
    faults = {d.fault for d in case.diagnoses}
    return LONE_FAULT in faults and faults <= {LONE_FAULT, NEWCOMER}


def missed_at(since: float, policy: Policy) -> float:
    """When a node that is away is missed. Not before it can be known whether it is one of many."""
    return since + max(policy.unreachable_s, KNOWN_S)


def blinks(since: float | None, now: float) -> bool:
    """Away for so short a time that nobody can say yet whether it is one of many."""
    return since is not None and now < since + KNOWN_S


def too_soon(case: Case, since: float | None, now: float, limits: ControllerSettings) -> str:
    """Why a node that went away alone is not treated yet; "" when it may be."""
    if not is_only_evidence(case) or since is None or now >= since + limits.company_s:
        return ""
    return (
        f"{case.node} is away alone: it is treated when that has lasted for {how_long(limits.company_s)} and no others "
        "went away too"
    )


def cut_off(case: Case, node: Node | None, witness: str) -> str:
    """Why a node that does not answer is not touched: somebody else says that it is alive. "" when it may be. A person
    who approves REBOOT has looked."""
    if node is None or node.ready or not witness or not is_only_evidence(case) or Verb.REBOOT in case.approved:
        return ""
    return (
        f"{case.node} {CUT_OFF}: {witness}. It is left alone until it answers; to treat it all the same: "
        f"sickbay case approve {case.id} --verb REBOOT"
    )
