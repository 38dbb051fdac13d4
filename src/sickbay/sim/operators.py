"""Operators and owners at their keyboards: what `sickbay ...` and `kubectl` let them do, as events of a storm.

Each posts exactly what the command would post, and only when it would take it (src/sickbay/cli): nothing while the API
is away. Each notes in the world's log what was truly said, so that checkers judge by that. What nobody has ended by
the calm is ended then. They look at records as `sickbay nodes` shows them, never at what a controller has in mind;
nothing here may import core or the controller.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from sickbay.errors import Unreadable
from sickbay.model import Case, Command, NodeRecord, Pause, Phase, Recovery, RecoveryPhase, Verb
from sickbay.sim.backup import Records
from sickbay.sim.world import World

if TYPE_CHECKING:
    from sickbay.sim.storm import Sky

WHO = ("bob", "carol")
LASTS_S = (1_800.0, 7_200.0, None)  # None: whoever said it forgets it
PATIENCE_S = 600.0  # until somebody looks again whether what they mean to decide is there
AWAY_S = (7_200.0, 21_600.0, float("inf"))
AGAIN_S = (0.05, 0.05, 3.0, 60.0)  # until a job that was deleted is submitted again
LINES_S = ((1.0, 60.0), (20.0, 170.0), (60.0, 400.0))  # the door takes back what has not begun after three minutes


def _reaches(sky: Sky) -> bool:
    return not sky.world.services.is_away("api")


def _say(sky: Sky, verb: str, target: str, args: Mapping[str, str] | None = None) -> str:
    """As cli/wishes.py: a Command under a name that nobody else has."""
    by = sky.rng.choice(WHO)
    wish = Command(f"{sky.rng.getrandbits(64):016x}", verb, target, by, f"storm {verb}", sky.world.now, args or {})
    sky.store.create(wish)
    return by


def _order(sky: Sky, verb: str, target: str, node: str) -> None:
    sky.world.note("order", node, act=verb, by=_say(sky, verb, target), case=target)


# --- hands off --------------------------------------------------------------------------------------------------------


def pauses_pool(sky: Sky) -> bool:
    return _pause(sky, f"pool:{sky.rng.choice(sorted({n.pool for n in sky.world.nodes.values()}))}")


def pauses_node(sky: Sky) -> bool:
    """Most often one that somebody has a case about."""
    return _pause(sky, f"node:{_node_of_interest(sky)}")


def pauses_fleet(sky: Sky) -> bool:
    return _pause(sky, "fleet")


def _pause(sky: Sky, scope: str) -> bool:
    """With an end or without one. One that is there is written over, as cli/pause.py does."""
    if not _reaches(sky):
        return False
    now, lasts, by = sky.world.now, sky.rng.choice(LASTS_S), sky.rng.choice(WHO)
    try:
        there = sky.store.get(Pause, scope)
    except Unreadable:  # the command says: hands are off already
        return False
    until = None if lasts is None or sky.rng.random() < 0.5 else now + lasts
    pause = Pause(scope, by, "storm: hands off", now, until)
    if there is None:
        sky.store.create(pause)
    else:
        sky.store.commit(pause, there.version, 0)
    sky.world.note("person", _node_in(scope), act="pause", by=by, scope=scope, lasts=lasts or "-", until=until or "-")
    if until is None and lasts is not None:
        sky.world.after(lasts, lambda: _resume(sky.world, sky.store, scope))
    return True


def _resume(world: World, store: Records, scope: str) -> None:
    if _is_paused(store, scope) and not world.services.is_away("api"):
        store.delete(Pause, scope)
        world.note("person", _node_in(scope), act="resume", scope=scope)


def _is_paused(store: Records, scope: str) -> bool:
    """Whoever may pause may also take back a pause that a newer Sickbay wrote and nobody can read."""
    try:
        return store.get(Pause, scope) is not None
    except Unreadable:
        return True


def _node_in(scope: str) -> str:
    return scope.removeprefix("node:") if scope.startswith("node:") else ""


def _node_of_interest(sky: Sky) -> str:
    present = sorted(n.name for n in sky.world.nodes.values() if n.present) or sorted(sky.world.nodes)
    marked = [n for n in present if sky.world.nodes[n].mark]
    return sky.rng.choice(marked if marked and sky.rng.random() < 0.7 else present)


def opts_out(sky: Sky) -> bool:
    """`kubectl label node NODE .../opt-out=true`, and some hours later without it."""
    world, name = sky.world, _node_of_interest(sky)
    if not _reaches(sky) or not world.nodes[name].present:
        return False
    world.people.opt_out(name, sky.rng.choice(WHO))
    lasts = sky.rng.choice(LASTS_S)
    if lasts is not None:
        world.after(lasts, lambda: _opt_in(world, name))
    return True


def _opt_in(world: World, name: str) -> None:
    node = world.nodes[name]
    if node.opted_out and node.present and not world.services.is_away("api"):
        world.people.opt_out(name, "carol", opted_out=False)


# --- what they decide -------------------------------------------------------------------------------------------------


def _when_there(sky: Sky, act: Callable[[], bool]) -> bool:
    """Now, or at a later look before the calm: what they mean to decide may not be there yet."""
    if _reaches(sky) and act():
        return True
    sky.world.after(PATIENCE_S, lambda: _later(sky, act))
    return False


def _later(sky: Sky, act: Callable[[], bool]) -> None:
    if sky.world.now < sky.until and _when_there(sky, act):
        sky.counts()


def _cases(sky: Sky) -> list[Case]:
    return sorted((c.value for c in sky.store.list(Case)), key=lambda case: case.id)


def splits(sky: Sky) -> bool:
    """`sickbay case split`: those still away are treated one by one."""

    def act() -> bool:
        case = next((c for c in _cases(sky) if c.absence is not None), None)
        if case is not None:
            _order(sky, "split", case.id, case.node)
        return case is not None

    return _when_there(sky, act)


def exchanges_absence(sky: Sky) -> bool:
    """`sickbay case approve absence.N --verb REPLACE`: whoever is still away is exchanged."""

    def act() -> bool:
        case = next((c for c in _cases(sky) if c.absence is not None), None)
        if case is not None:
            verb = Verb.REPLACE.value
            by = _say(sky, "approve", case.id, {"verb": verb})
            sky.world.note("person", case.node, act="approve", by=by, case=case.id, verb=verb)
        return case is not None

    return _when_there(sky, act)


def reopens(sky: Sky) -> bool:
    """`sickbay case reopen NODE`: only where something is held against it and no case is open."""

    def act() -> bool:
        cased = {case.node for case in _cases(sky)}
        quiet = [r.node for r in _records(sky) if r.quiet and r.latched and r.node not in cased]
        if quiet:
            name = sky.rng.choice(quiet)
            _order(sky, "reopen", name, name)
        return bool(quiet)

    return _when_there(sky, act)


def acknowledges(sky: Sky) -> bool:
    """`sickbay node acknowledge NODE`: nothing is held against it any more, says a person, true or not."""

    def act() -> bool:
        nodes = [record for record in _records(sky) if record.node in sky.world.nodes]
        held = [r.node for r in nodes if r.latched or any(d.strikes for d in r.doubts)]
        if held:
            name = sky.rng.choice(held)
            _order(sky, "acknowledge", name, name)
        return bool(held)

    return _when_there(sky, act)


def _records(sky: Sky) -> list[NodeRecord]:
    """As `sickbay nodes` reads them: an open case carries its node's."""
    carried = [case.record for case in _cases(sky) if case.record is not None]
    there = {r.node for r in carried}
    return sorted(
        (*carried, *(r.value for r in sky.store.list(NodeRecord) if r.value.node not in there)), key=lambda r: r.node
    )


def changes_mind(sky: Sky) -> bool:
    """`case hold` and, soon or late, `unhold`; `retry` and `examine` of what rests; then perhaps `abort`."""
    cases = _cases(sky)
    if not cases or not _reaches(sky):
        return False
    case = sky.rng.choice(cases)
    rests = case.phase is Phase.ESCALATED and not case.factor
    verb = sky.rng.choice(("retry", "examine") if rests else ("hold", "hold", "abort"))
    if (verb == "hold" and case.held) or (verb == "abort" and case.cancelled):
        return False
    _order(sky, verb, case.id, case.node)
    if sky.rng.random() < 0.6:
        then = "unhold" if verb == "hold" else "hold"
        sky.world.after(sky.rng.uniform(1.0, 3_600.0), lambda: _then(sky, then, case.id))
    return True


def _then(sky: Sky, verb: str, case_id: str) -> None:
    """Only where the command would be taken: `unhold` of what is held, `hold` of what is not."""
    case = next((c for c in _cases(sky) if c.id == case_id), None)
    if case is not None and case.held == (verb == "unhold") and _reaches(sky) and sky.world.now < sky.until:
        _order(sky, verb, case_id, case.node)


def keeps_waiting(sky: Sky) -> bool:
    """Nobody answers who waits for an approval: for hours, or until the calm."""
    people, now = sky.world.people, sky.world.now
    people.silent_until = max(people.silent_until, now + sky.rng.choice(AWAY_S))
    sky.world.note("person", "", act="keeps-waiting", until=round(min(people.silent_until, sky.until)))
    return True


# --- jobs -------------------------------------------------------------------------------------------------------------


def restarts_job(sky: Sky) -> bool:
    """`sickbay job restart JOB`: an owner's word about ranks that nobody reaches, or about a try that was put off."""

    def act() -> bool:
        known = sorted((r.value for r in sky.store.list(Recovery)), key=lambda r: r.job)
        waits = [r.job for r in known if r.phase is not RecoveryPhase.RUNNING]
        if waits:
            job = sky.rng.choice(waits)
            nodes = sky.world.jobs[job].nodes if job in sky.world.jobs else ()
            dark = ",".join(name for name in nodes if not sky.world.nodes[name].ready) or "-"
            sky.world.note("person", "", act="restart-job", by=_say(sky, "restart", job), job=job, dark=dark)
        return bool(waits)

    return _when_there(sky, act)


def preempts(sky: Sky) -> bool:
    job = _some_job(sky)
    if job:
        sky.world.people.preempt(job)
    return bool(job)


def deletes_job(sky: Sky) -> bool:
    """Its owner does, while it runs or while it is brought back. Often there is another of its name before anybody has
    looked (kubectl replace --force), or a little later."""
    job = _some_job(sky)
    if job:
        sky.world.people.delete_job(job)
    if job and sky.rng.random() < 0.6:
        sky.world.after(sky.rng.choice(AGAIN_S), lambda: sky.world.people.submit_again(job))
    return bool(job)


def _some_job(sky: Sky) -> str:
    if not _reaches(sky):
        return ""
    ended = ("SUCCEEDED", "GONE", "SUSPENDED")
    jobs = sorted(job.id for job in sky.world.jobs.values() if job.phase.value not in ended)
    down = [job for job in jobs if not sky.world.jobs[job].live]
    return sky.rng.choice(down if down and sky.rng.random() < 0.6 else jobs) if jobs else ""


# --- kubectl delete ---------------------------------------------------------------------------------------------------


def deletes_recovery(sky: Sky) -> bool:
    """`kubectl delete jobrecovery`: most often of a job that does not run."""
    known = sorted((r.value for r in sky.store.list(Recovery)), key=lambda r: r.job)
    down = [r for r in known if r.phase is not RecoveryPhase.RUNNING]
    if not known or not _reaches(sky):
        return False
    job = sky.rng.choice(down if down and sky.rng.random() < 0.7 else known).job
    sky.store.lose(Recovery, job)
    live = sky.world.jobs[job].live if job in sky.world.jobs else False
    sky.world.note("person", "", act="delete-recovery", job=job, live=live)
    return True


def deletes_node_record(sky: Sky) -> bool:
    known = sorted(r.value.node for r in sky.store.list(NodeRecord))
    if not known or not _reaches(sky):
        return False
    name = sky.rng.choice(known)
    sky.store.lose(NodeRecord, name)
    sky.world.note("person", name, act="delete-node-record")
    return True


def deletes_command(sky: Sky) -> bool:
    """Somebody asks for something, thinks better of it, and deletes the Command, perhaps before anybody has read it."""
    cases = [case for case in _cases(sky) if not (case.held or case.cancelled)]
    if not cases or not _reaches(sky):
        return False
    case, verb = sky.rng.choice(cases), sky.rng.choice(("abort", "hold"))
    _order(sky, verb, case.id, case.node)
    said = {stored.value.id for stored in sky.store.list(Command) if stored.value.target == case.id}
    sky.world.after(sky.rng.choice((0.0, 0.1, 30.0)), lambda: _withdraw(sky, said))
    return True


def _withdraw(sky: Sky, said: Collection[str]) -> None:
    for wish in [stored.value for stored in sky.store.list(Command) if stored.value.id in said]:
        sky.store.lose(Command, wish.id)
        sky.world.note("person", "", act="delete-command", verb=wish.verb, case=wish.target, said=wish.at)


# --- lines ------------------------------------------------------------------------------------------------------------


def stands_in_line(sky: Sky) -> bool:
    """From now until the calm what is sent to a node waits in a queue (Kueue, a quota) before it begins."""
    sky.world.waits_s = sky.rng.choice(LINES_S)
    sky.world.note("lines", "", least=sky.world.waits_s[0], most=sky.world.waits_s[1])
    return True


# --- the calm ---------------------------------------------------------------------------------------------------------


def calm(world: World, store: Records) -> None:
    """Whoever said "hands off" takes it back, and whoever was away answers again."""
    unread = [one.key for one in store.unread() if one.kind is Pause]
    for scope in sorted((*(pause.value.scope for pause in store.list(Pause)), *unread)):
        if scope != "fleet":  # that one sim/check.py ends, whoever wrote it
            _resume(world, store, scope)
    for name in sorted(world.nodes):
        _opt_in(world, name)
    world.people.silent_until = float("-inf")
    world.waits_s = (0.0, 0.0)
