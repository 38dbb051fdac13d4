"""What we see and may not touch: a sick node or a job that is down, where the policy or a pause keeps our hands off.

A fresh install only observes, so telling people is all that it does: once, as soon as it is certain, as gravely as the
fault is, with what would be done and the setting or the command that lets us. Asked by controller/bystander.py, which
gathers them: many at once are one message. Pure; it must never decide what is done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sickbay.core import absence, explain, machine, plan, reminders, triage
from sickbay.core.naming import named
from sickbay.core.recover_table import ENDS, E
from sickbay.core.turn import Context
from sickbay.model import Case, Job, JobPhase, NodeRecord, Notice, Pause, Phase, Recovery, RecoveryPhase, Verb, When
from sickbay.settings import LEVELS

SETTLE_S = 60.0  # what goes by itself within a minute is worth no message, and a crowd needs so long to gather
HOUR_S = 3_600.0
DAY_S = 86_400.0
FEW = 3  # so many are told one by one
DESCRIBED = 8  # of many
STEPS = 3  # of a plan, as far as people are told of it
MOST_TOLD = 64  # things that one node's record remembers to have told
TOLD = "TOLD"  # in a case's journal
PHASES = frozenset({Phase.SUSPECTED, Phase.WAITING, Phase.HOLDING})  # in which our hands may be kept off
UNTOUCHED, UNMOVED = "untouched", "unmoved"  # in NodeRecord.told, with the fault
CUT_OFF = "cut-off"
FALLS = frozenset({E.DIED, E.DRAINED, E.STALLED})


@dataclass(frozen=True, slots=True)
class Bar:
    """What keeps our hands off, and how people take it away."""

    group: str  # what has the same is told together
    short: str
    why: str
    todo: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A node or a job that is left as it is, of which nobody was told today."""

    name: str
    what: str
    urgent: bool
    bar: Bar
    quotes: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()  # what would be done, what it means
    case: str = ""
    is_job: bool = False
    told: Mapping[str, float] = field(default_factory=dict)  # what the node's record remembers afterwards
    cases: tuple[str, ...] = ()  # what a job's record remembers: that these were named


# --- a node -----------------------------------------------------------------------------------------------------------


def of_case(case: Case, record: NodeRecord, ctx: Context, pause: Pause | None, jobs: Sequence[str]) -> Seen | None:
    """`jobs`: what runs on its node."""
    if case.newcomer or case.factor or case.held or case.cancelled:
        return None
    bar = _bar(case, record, ctx, pause, jobs)
    if bar is None:
        return None
    kind = UNMOVED if case.phase is Phase.HOLDING else UNTOUCHED
    faults = _untold(case, record, kind, ctx.now.watch)
    if not faults or ctx.now.watch < triage.settles_at(case, record, ctx.policy):
        return None
    told = remembered(record.told, {f"{kind}/{fault}": ctx.now.watch for fault in faults})
    urgent = triage.soonest(case.diagnoses) is When.NOW and bar.group != CUT_OFF
    lines = (*_work(case, jobs), f"Sickbay would: {', then '.join(_steps(case))}.")
    news = [d for d in case.diagnoses if d.fault in faults]  # the worst of all was told as news each time
    return Seen(
        case.node, explain.headline(news, ctx.catalog), urgent, bar,
        tuple(quote for d in news for quote in d.because[:1])[:3], lines, case.id,
        told=told,
    )  # fmt: skip


def remembered(told: Mapping[str, float], fresh: Mapping[str, float]) -> dict[str, float]:
    """With what people were told now; of very much, the newest."""
    return dict(sorted({**told, **fresh}.items(), key=lambda kv: kv[1])[-MOST_TOLD:])


def _untold(case: Case, record: NodeRecord, kind: str, now: float) -> list[str]:
    """Once in a case; and the same fault on the same node within a day is no news, in whatever case it is."""
    lasts_s = float("inf") if any(entry.event == TOLD for entry in case.journal) else DAY_S
    faults = dict.fromkeys(d.fault for d in case.diagnoses)
    return [fault for fault in faults if now - record.told.get(f"{kind}/{fault}", float("-inf")) >= lasts_s]


def _bar(case: Case, record: NodeRecord, ctx: Context, pause: Pause | None, jobs: Sequence[str]) -> Bar | None:
    if case.paused:
        fresh = case.phase in (Phase.SUSPECTED, Phase.WAITING) and triage.soonest(case.diagnoses) is When.NOW
        return _of_pause(pause) if pause is not None and fresh and _is_certain(case, record, ctx) else None
    if case.phase is Phase.WAITING and absence.CUT_OFF in case.refusal:
        return _of_cut_off(case) if ctx.now.watch >= case.entered + HOUR_S else None
    if case.phase is Phase.WAITING and Verb.CORDON not in plan.allowed(case, ctx.policy, ctx.verbs, ctx.ceilings):
        return _of_policy(case, ctx) if Verb.CORDON not in plan.level(ctx.policy) else OF_SOURCE
    kept = case.phase is Phase.HOLDING and bool(jobs) and Verb.DRAIN not in plan.level(ctx.policy)
    return _of_policy(case, ctx) if kept and triage.soonest(case.diagnoses) is not When.IDLE else None


def _is_certain(case: Case, record: NodeRecord, ctx: Context) -> bool:
    """A case that is paused is confirmed by nobody: it stays SUSPECTED."""
    faults = {d.fault for d in case.diagnoses}
    mine = [latch for latch in record.latched if latch.fault in faults]
    return case.phase is not Phase.SUSPECTED or any(triage.is_confirmed(latch, ctx.catalog) for latch in mine)


def _of_policy(case: Case, ctx: Context) -> Bar:
    level = ctx.policy.max_verb
    needed = max((verb for verb in _steps(case) if verb in LEVELS), key=LEVELS.index)
    watched = level == LEVELS[0]
    left = (
        "Sickbay only observes, and sick nodes stay in service" if watched else "what runs on a sick node stays there"
    )
    return Bar(
        f"max_verb/{level}",
        "only observed" if watched else "what runs there is not moved",
        f"policy.max_verb is {level} in pool {case.pool}: {left}",
        f"To let Sickbay do that, raise policy.max_verb to {needed}. Until then, by hand: kubectl cordon and drain, or "
        "what your scheduler has.",
    )


OF_SOURCE = Bar(
    "source",
    "nothing is done",
    "whoever reported it may not have a node taken out of service here (ceilings), so it stays in service",
    "If it must take no work, close it by hand: kubectl cordon, or what your scheduler has.",
)


def _of_cut_off(case: Case) -> Bar:
    """Its machine is well, as somebody else says: no alarm, but nobody who looks at nodes sees why it stays away."""
    why, _, todo = case.refusal.partition("; ")
    look = f"Look at its network and its agents; {todo}." if todo else "Look at its network and its agents."
    return Bar(CUT_OFF, "alive, and left alone", why, look)


def _of_pause(pause: Pause) -> Bar:
    what, resume = reminders.scope_words(pause)
    why = f" ({pause.why})" if pause.why else ""
    return Bar(
        "paused",
        "paused, nothing is done",
        f"{what} is paused by {pause.by}{why}, {reminders.lasts(pause)}",
        f"To let Sickbay go on: {resume}.",
    )


def _steps(case: Case) -> list[Verb]:
    return plan.ahead(case)[:STEPS]


def _work(case: Case, jobs: Sequence[str]) -> list[str]:
    hurt = list(dict.fromkeys((*case.jobs_hurt, *jobs)))
    return [f"Work on it, now or when it fell ill: {named(hurt, DESCRIBED)}."] if hurt else []


def noted(case: Case, at: float) -> Case:
    return machine.note(case, TOLD, at=at, by="sickbay", why="people are told that nothing is done about it, and why")


def is_known(case: Case, ctx: Context) -> bool:
    """That its time is over is no news where people know that nothing is done about it, and that is still so."""
    told = any(entry.event == TOLD for entry in case.journal)
    return told and Verb.CORDON not in plan.allowed(case, ctx.policy, ctx.verbs, ctx.ceilings)


# --- a job ------------------------------------------------------------------------------------------------------------


def of_job(
    r: Recovery, job: Job | None, cases: Sequence[Case], ctx: Context, pause: Pause | None, why: str
) -> Seen | None:
    """`cases`: those on its nodes; `why`: what keeps us from it, where it is no pause."""
    if r.phase is RecoveryPhase.RUNNING or r.phase in ENDS or not _is_news(r, cases, ctx.now.watch):
        return None
    dead = job is None or job.phase is not JobPhase.RUNNING
    fell = next((e.why for e in reversed(r.journal) if e.event in FALLS), "")
    sick = [f"{case.node} ({explain.headline(case.diagnoses, ctx.catalog)}; {case.id})" for case in cases]
    lines = [f"Sick under it: {named(sick, DESCRIBED)}." if sick else "No node under it has an open case."]
    lines.append(f"Start it again by hand{', on other nodes' if sick else ''}. Its story: sickbay why {r.job}.")
    bar = _of_pause(pause) if pause is not None else _of_jobs(why)
    quotes = tuple(quote for case in cases for d in case.diagnoses for quote in d.because[:1])
    state = f"{r.job} {'has died' if dead else 'stands still'}" + (f": {fell}" if fell else "")
    return Seen(r.job, state, True, bar, quotes[:3], tuple(lines), is_job=True, cases=tuple(c.id for c in cases))


def _is_news(r: Recovery, cases: Sequence[Case], now: float) -> bool:
    """Once for each time that it falls; again and again: once an hour, or when a new case is to blame."""
    if r.left_at is None:
        return True
    fresh = any(case.id not in r.left_with for case in cases)
    return r.entered > r.left_at and (fresh or now - r.left_at >= HOUR_S)


def _of_jobs(why: str) -> Bar:
    setting = why.partition(" ")[0]
    raised = "true" if setting == "jobs.enabled" else "DRAIN"
    todo = f"To let Sickbay bring back jobs by itself: set {setting} to {raised}."
    return Bar(f"jobs/{setting}", "not restarted", why.partition(";")[0], todo)


def left(r: Recovery, named_cases: tuple[str, ...], now: float) -> Recovery:
    return replace(r, left_at=now, left_with=named_cases)


# --- when, and in which words -----------------------------------------------------------------------------------------


def wait_s(told: Sequence[float], now: float) -> float:
    """Each message of the last hour makes the next one wait twice as long for others: a wave that rolls through a fleet
    for hours is a handful of messages an hour, and whoever falls ill alone is told of after a minute."""
    return min(HOUR_S, SETTLE_S * 2.0 ** min(10, sum(now - at < HOUR_S for at in told)))


def notices(seen: Sequence[Seen], watch: float, wall: float) -> list[Notice]:
    """Of one group: a few one by one, more of them in one message."""
    if len(seen) <= FEW:
        return [_one(each, watch, wall) for each in seen]
    return [_many(sorted(seen, key=lambda each: not each.urgent), watch, wall)]


def _one(seen: Seen, watch: float, wall: float) -> Notice:
    if seen.is_job:
        title = f"{seen.what.partition(':')[0]} and is not restarted"
        first = f"{seen.what}. It is not restarted: {seen.bar.why}."
    else:
        title = f"{seen.name}: {seen.what} ({seen.bar.short})"
        first = f"{seen.name} is sick: {seen.what}. Nothing is done: {seen.bar.why}."
    body = [first, *(f"Evidence: {quote}" for quote in seen.quotes), *seen.lines, seen.bar.todo]
    return Notice(_key(seen, watch), _level([seen]), title, "\n".join(body), seen.case, wall)


def _many(seen: Sequence[Seen], watch: float, wall: float) -> Notice:
    """Those that cannot wait are named first."""
    jobs = seen[0].is_job
    title = f"{len(seen)} jobs are down and not restarted" if jobs else f"{len(seen)} sick nodes: {seen[0].bar.short}"
    whys, todos = _distinct([s.bar.why for s in seen]), _distinct([s.bar.todo for s in seen])
    what = (
        f"{len(seen)} jobs are down and are not restarted" if jobs else f"Nothing is done about {len(seen)} sick nodes"
    )
    rest = [each.name for each in seen[DESCRIBED:]]
    body = [f"{what}: {'; '.join(whys)}.", *(_line(each) for each in seen[:DESCRIBED])]
    body += [f"And: {named(rest)}."] if rest else []
    return Notice(_key(seen[0], watch), _level(seen), title, "\n".join([*body, *todos]), "", wall)


def _line(seen: Seen) -> str:
    quote = f" ({seen.quotes[0]})" if seen.quotes else ""
    return f"- {seen.what}{quote}" if seen.is_job else f"- {seen.name}: {seen.what}{quote}"


def _distinct(words: Sequence[str]) -> list[str]:
    every = list(dict.fromkeys(words))
    return every[:FEW] + ([f"and {len(every) - FEW} more like this"] if len(every) > FEW else [])


def _key(seen: Seen, watch: float) -> str:
    return f"untouched/{seen.bar.group}/{seen.name}/{int(watch)}"


def _level(seen: Sequence[Seen]) -> str:
    return "urgent" if any(each.urgent for each in seen) else "warning"
