"""The weather of a storm: what may befall a fleet beside sick hardware, each kind with its chance in one seed.

sim/check.py draws from it. `BORNE` are the kinds that the brain bears today: `make test` and `sickbay sim check` draw
those, and `--weather all` (or a list of kinds) draws what was asked. Whoever makes the brain bear a kind moves it
into BORNE. Each kind has a stream of its own, so switching one on or off moves nothing else. Every kind ends with the
calm. Nothing here may look at what the controller believes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any

from sickbay.errors import UserError
from sickbay.model import Case, Command, NodeRecord, Pause, Recovery, Status
from sickbay.sim import backup, operators
from sickbay.sim.backup import Backup, Records
from sickbay.sim.jobs import JobSpec
from sickbay.sim.outsiders import GRAVE, SOURCES
from sickbay.sim.rollouts import BAD_AGENTS
from sickbay.sim.world import World

CUT_S = (120.0, 600.0, 7_200.0, 14_400.0)
SHARES = (0.1, 0.4, 1.0)
REQUEUE_S = 60.0  # a scheduler of its own has a job that failed running again so soon, where it finds room


@dataclass(slots=True)
class Sky:
    """What an event may use. `rng` is the event's own stream."""

    world: World
    store: Records
    rng: Random
    until: float  # the calm begins
    kind: str = ""
    struck: dict[str, int] = field(default_factory=dict)  # kind -> how often it found somebody

    def counts(self) -> None:
        self.struck[self.kind] = self.struck.get(self.kind, 0) + 1


Event = Callable[[Sky], bool]  # did it find anybody whom it befell?


@dataclass(frozen=True, slots=True)
class Kind:
    chance: float  # that a seed has it at all
    most: int  # times at most, if it has
    happens: Event


def some_nodes(sky: Sky) -> tuple[list[str], bool]:
    """A share of the fleet, or all that hangs on one rack, switch or zone; and whether it is a place."""
    network, node = sky.world.network, sky.rng.choice(sorted(sky.world.nodes.values(), key=lambda n: n.name))
    places = [network.rack(node.rack)]
    places += [network.switch(node.switch)] if node.switch else []
    places += [network.zone(node.zone)] if node.zone else []
    names = sorted(sky.world.nodes)
    share = sorted(sky.rng.sample(names, max(1, round(sky.rng.choice(SHARES) * len(names)))))
    return (sky.rng.choice(places), True) if sky.rng.random() < 0.5 else (share, False)


def cut(kind: str, sky: Sky) -> bool:
    names, place = some_nodes(sky)
    return bool(sky.world.network.cut(names, kind, sky.rng.choice(CUT_S), stays=place).members)


def cut_one_by_one(sky: Sky) -> bool:
    names, _ = some_nodes(sky)
    sky.rng.shuffle(names)
    kind, every_s = sky.rng.choice(("control", "both", "power")), sky.rng.choice((60.0, 600.0, 1_800.0))
    sky.world.network.cut_one_by_one(names, kind, every_s, sky.rng.choice(CUT_S))
    return True


def cut_alone(sky: Sky) -> bool:
    """One node that was well, most often one without work: then nothing but its absence speaks against it."""
    well = sorted(n.name for n in sky.world.nodes.values() if n.present and n.ready and not n.others)
    idle = [name for name in well if not sky.world.nodes[name].jobs]
    found = idle if idle and sky.rng.random() < 0.7 else well
    if found:
        kind, for_s = sky.rng.choice(("control", "both", "power")), sky.rng.choice((1_800.0, 7_200.0, 14_400.0))
        sky.world.network.cut([sky.rng.choice(found)], kind, for_s)
    return bool(found)


def away(service: str, sky: Sky) -> bool:
    sky.world.services.fail(service, sky.rng.choice((60.0, 600.0, 3_600.0)))
    return True


def etcd_restored(sky: Sky) -> bool:
    """Somebody takes a backup, and some hours later puts it back, before the calm: after that nobody would end the
    pauses that were in it. Records of a newer version that were in it, and are read by nobody, are so again an hour
    later."""
    kept: Backup = backup.take(sky.world, sky.store)
    later = min(sky.rng.uniform(600.0, 14_400.0), sky.until - sky.world.now)
    sky.world.after(later, lambda: backup.restore(sky.world, sky.store, kept))
    sky.world.after(later + 3_600.0, lambda: backup.all_readable(sky.store))
    return True


def provider_turns(habits: Collection[str], sky: Sky) -> bool:
    """From now until the calm some replacements come to this."""
    sky.world.provider.habits[sky.rng.choice(sorted(habits))] = sky.rng.choice((0.3, 1.0))
    return True


def provider_renames(sky: Sky) -> bool:
    """From now until the calm each successor has a name of its own, and mostly its stock is ill besides."""
    sky.world.provider.renames = True
    chance = sky.rng.choice((0.0, 0.5, 1.0))
    if chance:
        sky.world.provider.habits["ill"] = chance
    return True


def sick_spares(sky: Sky) -> bool:
    """Nodes without work are sick, and show it only under load."""
    idle = sorted(n.name for n in sky.world.nodes.values() if n.present and not n.job and n.ready)
    for name in idle[: sky.rng.randint(1, 3)]:
        sky.world.strike("load_only", name, sky.rng.randrange(sky.world.gpus_per_node))
    return bool(idle)


def marks_forgotten(sky: Sky) -> bool:
    return bool(sky.world.services.forget(sky.rng.choice((60.0, 600.0, 7_200.0))))


def admin_reboots(sky: Sky) -> bool:
    """Most often a node that somebody has a case about: that is what administrators do with it."""
    nodes = sorted((n for n in sky.world.nodes.values() if n.present), key=lambda n: n.name)
    cased = [n for n in nodes if n.mark]
    found = cased if cased and sky.rng.random() < 0.7 else nodes
    return bool(found) and sky.world.people.reboot(sky.rng.choice(found).name)


def comes_back(sky: Sky) -> bool:
    down = sorted(n.name for n in sky.world.nodes.values() if not n.up and not n.gone)
    return bool(down) and sky.world.people.revive(sky.rng.choice(down))


def storage_hangs(sky: Sky) -> bool:
    sky.world.shared.storage_hangs(sky.rng.choice((300.0, 1_800.0, 7_200.0)))
    return True


def subnet_manager_dies(sky: Sky) -> bool:
    sky.world.shared.subnet_manager_dies(sky.rng.choice((600.0, 3_600.0)))
    return True


def row_heats(sky: Sky) -> bool:
    rack = sky.rng.choice(sorted({n.rack for n in sky.world.nodes.values()}))
    sky.world.shared.row_heats(sky.world.network.rack(rack), sky.rng.choice((900.0, 7_200.0)))
    return True


def scale_in(sky: Sky) -> bool:
    """Some idle nodes go for some hours."""
    names = sorted(sky.world.nodes)
    some, back_s = sky.rng.sample(names, len(names) // 2)[:4], sky.rng.choice((3_600.0, 14_400.0))
    return bool(sky.world.capacity.scale_in(some, back_s))


def spot_reclaimed(sky: Sky) -> bool:
    node = sky.world.nodes[sky.rng.choice(sorted(sky.world.nodes))]
    was_there = node.present and not node.gone
    sky.world.capacity.reclaim_spot(node.name, sky.rng.choice((600.0, 7_200.0)))
    return was_there


def block_ends(sky: Sky) -> bool:
    """A pool, or a third of the only one."""
    pool = sky.rng.choice(sorted({n.pool for n in sky.world.nodes.values()}))
    names = sorted(n.name for n in sky.world.nodes.values() if n.pool == pool)
    names = names if len(names) < 4 else names[-len(names) // 3 :]
    were_there = [name for name in names if not sky.world.nodes[name].gone]
    sky.world.capacity.block_ends(names, 10_800.0)
    return bool(were_there)


def rollout(factor: str, sky: Sky) -> bool:
    """Something new spreads until the calm, and is bad on some of the nodes that get it."""
    harm = sky.rng.choice(BAD_AGENTS) if factor == "agent" else sky.rng.choice(("nvlink_down_after_boot", "gsp_119"))
    share, every_s = sky.rng.choice((0.0, 0.3, 1.0)), sky.rng.choice((600.0, 1_800.0, None))
    sky.world.rollouts.begin(factor, f"{factor}-next", every_s=every_s, bad_share=share, harm=harm)
    return True


def liars(sky: Sky) -> bool:
    """An alert or a webhook names a node, most often a healthy one, with something grave; or it repeats, as the weaker
    witness, what a node's agent says."""
    world, rng = sky.world, sky.rng
    present = sorted(n.name for n in world.nodes.values() if n.present)
    sick = [n for n in present if any(f.status is not Status.OK for f in world.nodes[n].findings.values())]
    if not present:
        return False
    busy = [n for n in present if world.nodes[n].jobs and world.nodes[n].ready and n not in sick]
    if busy and rng.random() < 0.5:  # what can wait until the work is done, and somebody says that it cannot
        name, source, code = rng.choice(busy), rng.choice(SOURCES), rng.choice(GRAVE)
        world.strike("row_remap_pending_63", name, 1)
        world.after(rng.uniform(120.0, 1_200.0), partial(world.outsiders.accuse, source, name, code, 1))
    for _ in range(rng.randint(1, 4)):
        source = rng.choice(SOURCES)
        if sick and rng.random() < 0.5:
            world.outsiders.repeat(source, rng.choice(sick))
        name = rng.choice(sick) if sick and rng.random() < 0.5 else rng.choice(present)
        world.outsiders.accuse(source, name, rng.choice(GRAVE), rng.randrange(8))
    return True


def rolled_back(kinds: Sequence[type[Any]], sky: Sky) -> bool:
    """The controller was upgraded, wrote some records, and is rolled back; hours later it is upgraded again."""
    found = False
    for kind in kinds:
        keys = sorted(sky.store.contents().live[kind])
        for key in sky.rng.sample(keys, min(len(keys), sky.rng.randint(0, 2))):
            found = True
            sky.world.note("newer-record", "", what=kind.__name__, key=key)
            backup.written_by_a_newer(sky.store, kind, key)
            again = partial(backup.written_by_a_newer, sky.store, kind, key, newer=False)
            sky.world.after(sky.rng.uniform(600.0, 10_800.0), again)
    return found


def nothing(sky: Sky) -> bool:
    """Not an event: a kind that says how the trial is built."""
    return True


WEATHER: Mapping[str, Kind] = {
    "cut-control": Kind(0.3, 2, partial(cut, "control")),
    "cut-data": Kind(0.2, 2, partial(cut, "data")),
    "cut-both": Kind(0.2, 2, partial(cut, "both")),
    "cut-power": Kind(0.2, 2, partial(cut, "power")),
    "cut-one-by-one": Kind(0.15, 1, cut_one_by_one),
    "cut-alone": Kind(0.25, 2, cut_alone),
    "api-away": Kind(0.2, 2, partial(away, "api")),
    "provider-away": Kind(0.2, 2, partial(away, "provider")),
    "registry-away": Kind(0.2, 2, partial(away, "registry")),
    "rights-missing": Kind(0.15, 1, partial(away, "rights")),
    "manager-dead": Kind(0.15, 1, partial(away, "manager")),
    "etcd-restored": Kind(0.1, 1, etcd_restored),
    "provider-returns": Kind(0.2, 1, partial(provider_turns, ("same-parts", "same-instance"))),
    "provider-late": Kind(0.15, 1, partial(provider_turns, ("late",))),
    "provider-never": Kind(0.1, 1, partial(provider_turns, ("never",))),
    "provider-sick": Kind(0.15, 1, partial(provider_turns, ("sick",))),
    "provider-renames": Kind(0.2, 1, provider_renames),
    "sick-spares": Kind(0.2, 2, sick_spares),
    "marks-forgotten": Kind(0.2, 2, marks_forgotten),
    "admin-reboots": Kind(0.3, 4, admin_reboots),
    "comes-back": Kind(0.3, 6, comes_back),
    "storage-hangs": Kind(0.2, 2, storage_hangs),
    "subnet-manager-dies": Kind(0.15, 1, subnet_manager_dies),
    "row-heats": Kind(0.15, 2, row_heats),
    "scale-in": Kind(0.2, 2, scale_in),
    "spot-reclaimed": Kind(0.2, 3, spot_reclaimed),
    "block-ends": Kind(0.1, 1, block_ends),
    "rollout-driver": Kind(0.15, 1, partial(rollout, "driver")),
    "rollout-image": Kind(0.15, 1, partial(rollout, "image")),
    "rollout-agent": Kind(0.15, 1, partial(rollout, "agent")),
    "rolled-back": Kind(0.15, 2, partial(rolled_back, (Case, NodeRecord))),
    # not the Ledger yet: the judge does not know that one which somebody deleted was unread (seed 1088)
    "rolled-back-others": Kind(0.15, 2, partial(rolled_back, (Recovery, Command, Pause))),
    "liars": Kind(0.3, 6, liars),
    # people at the command line (sim/operators.py)
    "pool-paused": Kind(0.2, 2, operators.pauses_pool),
    "node-paused": Kind(0.2, 3, operators.pauses_node),
    "fleet-paused": Kind(0.1, 1, operators.pauses_fleet),
    "opted-out": Kind(0.25, 3, operators.opts_out),
    "absence-split": Kind(0.15, 1, operators.splits),
    "absence-exchanged": Kind(0.15, 1, operators.exchanges_absence),
    "reopened": Kind(0.15, 2, operators.reopens),
    "acknowledged": Kind(0.15, 2, operators.acknowledges),
    "minds-changed": Kind(0.2, 3, operators.changes_mind),
    "approval-withheld": Kind(0.15, 1, operators.keeps_waiting),
    "jobs-restarted": Kind(0.2, 2, operators.restarts_job),
    "jobs-preempted": Kind(0.1, 1, operators.preempts),
    "jobs-deleted": Kind(0.1, 1, operators.deletes_job),
    "recovery-deleted": Kind(0.15, 2, operators.deletes_recovery),
    "node-record-deleted": Kind(0.15, 2, operators.deletes_node_record),
    "command-deleted": Kind(0.1, 2, operators.deletes_command),
    "lines": Kind(0.15, 1, operators.stands_in_line),
    # how the trial is built
    "shape": Kind(0.5, 1, nothing),  # pools, racks, domains, instance types and part-node jobs: sim/shape.py
    "witness": Kind(0.4, 1, nothing),  # the platform shows what the provider says of a machine that does not answer
    "agent-reboots": Kind(0.3, 1, nothing),  # a REBOOT is done by the node's agent, and reaches no node that is silent
    "fenced": Kind(0.4, 1, nothing),  # jobs whose checkpoints are kept apart by attempt
    "told-by-pods": Kind(0.3, 1, nothing),  # jobs whose steps nobody sees while their first rank is out of reach
    "unmanaged": Kind(0.3, 1, nothing),  # a job that its own scheduler looks after, and we do not
}
BORNE: frozenset[str] = frozenset(WEATHER)  # less those that the brain does not bear yet


def asked(words: str) -> frozenset[str]:
    """`borne`, `all`, `none`, or kinds with commas between them."""
    if words in ("borne", "all", "none"):
        return {"borne": BORNE, "all": frozenset(WEATHER), "none": frozenset[str]()}[words]
    kinds = frozenset(word.strip() for word in words.split(",") if word.strip())
    if unknown := sorted(kinds - set(WEATHER)):
        known = ", ".join(WEATHER)
        raise UserError(f"--weather {', '.join(unknown)}: no such kind; known are borne, all, none, {known}")
    return kinds


def has(seed: int, name: str, kinds: Collection[str]) -> bool:
    """Does this seed have this kind at all?"""
    return name in kinds and _stream(seed, name).random() < WEATHER[name].chance


def lay_out(world: World, kinds: Collection[str]) -> None:
    """What a fleet has from the start, whatever befalls it."""
    world.provider_tells = has(world.seed, "witness", kinds)
    world.network.reboots_by = "agent" if has(world.seed, "agent-reboots", kinds) else "provider"


def declared(seed: int, jobs: Sequence[JobSpec], kinds: Collection[str]) -> tuple[JobSpec, ...]:
    """These jobs as their owners submit them: what they say of some of them, and which one is not ours."""
    said = {"fenced": {"fenced": True}, "told-by-pods": {"told_by": "pods"}}
    for name, change in said.items():
        if has(seed, name, kinds):
            rng = _drawn(seed, name)
            jobs = [replace(job, **change) if rng.random() < 0.6 else job for job in jobs]  # type: ignore[arg-type]
    if has(seed, "unmanaged", kinds):
        theirs = _drawn(seed, "unmanaged").choice(jobs)
        jobs = [replace(job, managed=False, requeue_s=REQUEUE_S) if job is theirs else job for job in jobs]
    return tuple(jobs)


def _drawn(seed: int, name: str) -> Random:
    """The stream of a kind that a seed has, behind what decided that."""
    rng = _stream(seed, name)
    rng.random()
    return rng


def _stream(seed: int, name: str) -> Random:
    return Random(f"{seed}/weather/{name}")


def brew(world: World, store: Records, kinds: Collection[str], until: float) -> dict[str, int]:
    """Draw what this seed has of these kinds, and let it happen in time. Returns the kinds drawn, each with how often
    it has found somebody whom it befell: that is counted as time passes."""
    drawn: dict[str, int] = {}
    for name, kind in WEATHER.items():
        if not has(world.seed, name, kinds):
            continue
        rng = _drawn(world.seed, name)
        drawn[name] = 0
        sky = Sky(world, store, rng, until, name, drawn)
        for _ in range(rng.randint(1, kind.most)):
            world.at(rng.uniform(world.now + 600.0, until), partial(_strikes, kind, sky))
    return drawn


def _strikes(kind: Kind, sky: Sky) -> None:
    if sky.world.now < sky.until and kind.happens(sky):
        sky.counts()


def calm(world: World, store: Records) -> None:
    """Whatever was away is back, whatever was cut is mended; whoever said "hands off" takes it back."""
    world.network.mend_all()
    world.services.all_back()
    world.provider.calm()
    world.shared.calm()
    world.rollouts.calm()
    world.outsiders.calm()
    operators.calm(world, store)
