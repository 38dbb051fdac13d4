"""Seeded proof: a storm of sick hardware, lying doors, crashes and people; then calm; judged by the world's truth.

`check_seeds` is behind `sickbay sim check`; a violation prints the command that replays it. Same seed, same trace.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import ceil
from random import Random

from sickbay.errors import AlreadyExists, Unreadable
from sickbay.model import Case, Command, Ledger, NodeRecord, Pause, Phase, Recovery
from sickbay.sim import shape, storm
from sickbay.sim.checkers import ALL, PENDING, Judge, branch_of
from sickbay.sim.checkers.people import DEADLINES
from sickbay.sim.drawn import calm_s, draw
from sickbay.sim.run import Brain, SimRun
from sickbay.sim.swarm import Crash, Lock, Mood, SwarmClock, SwarmLeader, SwarmPlatform, SwarmStore, pick
from sickbay.stores.memory import MemoryStore

STORM_S = 8 * 3600.0
LOOK_S, STILL_S = 3600.0, 5 * 3600.0  # nothing has moved for so long, nor is a deadline ahead: it has ended
JUDGED_FROM = 200  # seeds: fewer may well leave a checker without work
KINDS = (
    "gpu_lost_79", "gpu_lost_silent", "ecc_uncontained_95", "ecc_dbe_48", "ecc_contained_94", "row_remap_pending_63",
    "row_remap_failed_64", "sram", "gsp_119", "nvlink_74", "degrading", "load_only", "driver_hung", "dcgm_dead",
    "app_fault_13_31", "host_crash", "user_bug", "unexplained_job_failure", "job_hang",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    seed: int
    violations: tuple[str, ...]
    digest: str
    cases: int
    crashes: int
    by: tuple[str, ...] = ()  # the checker behind each violation; "" for an exception that nobody contained
    exercised: Mapping[str, int] = field(default_factory=dict)
    settings: tuple[str, ...] = ()  # what was drawn
    pending: tuple[str, ...] = ()  # what checkers say that are not counted yet
    weather: Mapping[str, int] = field(default_factory=dict)  # what was drawn, and how often it found a target


class Futile(Exception):
    """A brain turns in a circle: the seed is not played to its end."""


class Trial:
    """One seed: a small fleet, two gangs, two controllers, and everything that can go wrong with them."""

    def __init__(
        self, seed: int, weather: Collection[str] = storm.BORNE, *, soak: bool = False, all_checkers: bool = False
    ) -> None:
        self.seed, self.weather, self.soak = seed, weather, soak
        self.rng = Random(f"trial/{seed}")
        self.shape = shape.draw(seed) if storm.has(seed, "shape", weather) else shape.PLAIN
        self.world = self.shape.build(
            seed, silent_failure=self.rng.choice((0.0, 0.1, 0.3)),
            reboot_hangs=self.rng.choice((0.0, 0.1)), part_returns=self.rng.choice((0.0, 0.5)), stock=40,
        )  # fmt: skip
        storm.lay_out(self.world, weather)
        self.mood = Mood(pick(Random(f"swarm/{seed}")), Random(f"mood/{seed}"))
        self.clock = SwarmClock(self.world, self.mood)
        lock = Lock(self.world, self.mood)
        self.records = MemoryStore()
        self.drawn = draw(seed, sorted({node.pool for node in self.world.nodes.values()}), soak=soak)
        self.run = SimRun(
            self.world, self.drawn.settings, store=SwarmStore(self.records, self.mood), clock=self.clock,
            served=SwarmStore(self.records, self.mood, lambda: self.world.services.is_away("api")),
            wrap=lambda door: SwarmPlatform(door, self.mood, self.world), leader=lambda: SwarmLeader(lock),
            progress_s=90.0,
        )  # fmt: skip
        self.lock = lock
        self.judge = Judge(self.run, silent=frozenset() if all_checkers else frozenset(PENDING))
        self.crashes = 0
        self.brewed: Mapping[str, int] = {}
        self._orders = 0

    def play(self) -> Verdict:
        world = self.world
        self._submit()
        for name in ("a", "b")[: self.rng.choice((1, 2))]:
            self.run.add_brain(name)
        self._guard_brains()
        storm = world.now + STORM_S
        self._plan_storm(storm)
        self._pass(storm)
        self._calm()
        self._settle(storm + calm_s(self.run.settings, soak=self.soak))
        self.judge.conclude()
        return self.verdict(len(list(self.run.store.history(Case, limit=10_000))))

    def verdict(self, cases: int = 0, *more: str) -> Verdict:
        judge = self.judge
        return Verdict(
            self.seed, (*judge.violations, *more), self.world.digest(), cases, self.crashes,
            (*judge.by, *("" for _ in more)), judge.exercised(), self.drawn.words, tuple(judge.pending),
            dict(self.brewed),
        )  # fmt: skip

    def _submit(self) -> None:
        bug = self.rng.choice((-1, -1, 700))
        for spec in storm.declared(self.seed, self.shape.jobs or shape.two_gangs(bug), self.weather):
            self.world.submit(spec)

    def _pass(self, until: float) -> None:
        """As SimRun.run_until, with processes that may die on any line."""
        self.run.run_until(until)

    def _guard_brains(self) -> None:
        for brain in self.run.brains:
            brain.turn = self._survivor(brain, brain.turn)  # type: ignore[method-assign]
        self.run.on_turn.append(self.judge.look)

    def _survivor(self, brain: Brain, turn: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            self.clock.maybe_jump()
            if brain.controller is not None and self.mood.strikes(self.mood.swarm.pause / 10):
                brain.next_turn = self.world.now + self.mood.rng.uniform(30.0, 1200.0)  # stopped, then goes on
                return
            if self.judge.is_futile:
                raise Futile
            try:
                turn()
            except Crash:
                self._die(brain)

        return guarded

    def _die(self, brain: Brain) -> None:
        self.crashes += 1
        brain.crash()
        self.lock.holder = None
        brain.next_turn = self.world.now + self.mood.rng.uniform(5.0, 400.0)

    # -- the storm

    def _plan_storm(self, until: float) -> None:
        rng, world = self.rng, self.world
        kinds = [k for k in KINDS if rng.random() < 0.5] or ["gpu_lost_79"]
        names = sorted(world.nodes)
        for _ in range(rng.randint(4, 16)):
            strike = partial(self._strike, rng.choice(kinds), rng.choice(names), rng.randrange(8))
            world.at(rng.uniform(world.now + 60, until), strike)
        self.brewed = storm.brew(world, self.records, self.weather, until)
        for act in [a for a in self._acts() if rng.random() < 0.5]:
            for _ in range(rng.randint(1, 4)):
                world.at(rng.uniform(world.now + 600, until), act)
        world.after(900.0, self._approve)

    def _strike(self, kind: str, name: str, gpu: int) -> None:
        node = self.world.nodes[name]
        if node.present and node.ready:
            self.world.strike(kind, name, gpu)

    def _acts(self) -> Iterator[Callable[[], None]]:
        yield self._uncordon
        yield lambda: self._on_node(self.world.people.cordon)
        yield lambda: self._on_node(self.world.people.delete_object)
        yield lambda: self._on_node(lambda n: self.world.people.terminate(n, successor_after_s=1800.0))
        yield lambda: self._say("abort")
        yield lambda: self._say("hold")
        yield lambda: self._say("retry")
        yield lambda: self._say("examine")
        yield self._pause
        yield self._delete_record
        yield self._delete_ledger

    def _on_node(self, act: Callable[[str], None]) -> None:
        names = [n.name for n in self.world.nodes.values() if n.present]
        if names:
            act(self.rng.choice(sorted(names)))

    def _uncordon(self) -> None:
        closed = sorted(n.name for n in self.world.nodes.values() if n.present and n.cordoned)
        if closed:
            self.world.people.uncordon(self.rng.choice(closed))

    def _say(self, verb: str, case: Case | None = None) -> None:
        cases = sorted((c.value for c in self.run.store.list(Case)), key=lambda c: c.id)
        if case is None and cases:
            case = self.rng.choice(cases)
        if case is not None:
            self._orders += 1
            command = Command(f"order-{self._orders}", verb, case.id, "alice", f"storm {verb}", self.world.now)
            self.world.note("order", case.node, act=verb, by="alice", case=case.id)
            self._post(command)

    def _post(self, value: Command | Pause) -> None:
        """People write to the store itself; their process does not crash with ours."""
        swarm, self.mood.swarm = self.mood.swarm, type(self.mood.swarm)()
        try:
            self.run.store.create(value)
        except (AlreadyExists, Unreadable):  # refused in words: it is there, or a newer version wrote the one that is
            pass
        finally:
            self.mood.swarm = swarm

    def _delete_record(self) -> None:
        """`kubectl delete nodecase`: somebody deletes the record of an open case."""
        cases = sorted(c.value.id for c in self.records.list(Case))
        if cases:
            gone = self.rng.choice(cases)
            self.world.note("person", gone.rpartition(".")[0], act="delete-record", case=gone)
            self.records.lose(Case, gone)

    def _delete_ledger(self) -> None:
        self.world.note("person", act="delete-ledger")
        self.records.lose(Ledger, "ledger")

    def _pause(self) -> None:
        self._post(
            Pause("fleet", "alice", "change freeze", self.world.now, self.world.now + 3000.0 + self.clock.offset)
        )
        self.world.after(3000.0, self._end_pause)

    def _end_pause(self) -> None:
        """One that a newer version wrote nobody can end with this one: they try again."""
        try:
            self.run.store.delete(Pause, "fleet")
        except Unreadable:
            self.world.after(600.0, self._end_pause)

    def _approve(self) -> None:
        """People look every quarter of an hour who waits for their word, and give it: for the verb that is named."""
        answers = self.world.now >= self.world.people.silent_until
        for case in [stored.value for stored in self.run.store.list(Case)] if answers else ():
            if "needs a person's approval" in case.refusal:
                self._orders += 1
                verb, key = case.refusal.split()[0], f"order-{self._orders}"
                self._post(Command(key, "approve", case.id, "alice", "go", self.world.now, {"verb": verb}))
                self.world.note("person", case.node, act="approve", by="alice", case=case.id, verb=verb)
        self.world.after(900.0, self._approve)

    # -- the calm

    def _calm(self) -> None:
        """Nothing misbehaves any more; people release what they held."""
        self.mood.calm()
        storm.calm(self.world, self.records)
        self.clock.offset = 0.0
        self.world.silent_failure = dict.fromkeys(self.world.silent_failure, 0.0)
        self.world.reboot_hangs = 0.0
        self._end_pause()
        for brain in self.run.brains:
            brain.next_turn = min(brain.next_turn, self.world.now + 60.0)
        for stored in self.run.store.list(Case):
            if stored.value.held:
                self._say("unhold", stored.value)

    def _settle(self, end: float) -> None:
        still, before = 0.0, self._standing()
        while self.world.now < end and still < max(STILL_S, self._longest_wait() + 2 * LOOK_S):
            self._pass(min(end, self.world.now + LOOK_S))
            now = self._standing()
            still, before = (still + LOOK_S if now == before else 0.0), now

    def _longest_wait(self) -> float:
        """The longest deadline that an open case has ahead of it. One that waits for its job's end is at rest."""
        phases = {(c.value.phase, c.value.pool) for c in self.run.store.list(Case)}
        waits = [(DEADLINES[p], pool) for p, pool in phases if p in DEADLINES and p is not Phase.HOLDING]
        return max((getattr(self.run.settings.policy_for(pool), name) for name, pool in waits), default=0.0)

    def _standing(self) -> tuple[object, ...]:
        """Everything that would move if anything were still to come of the storm."""
        cases = [(c.value.id, c.value.phase, c.value.step) for c in self.run.store.list(Case)]
        recoveries = [(r.value.job, r.value.phase, r.value.step) for r in self.run.store.list(Recovery)]
        latched = [(r.value.node, r.value.latched, r.value.last_n) for r in self.run.store.list(NodeRecord)]
        nodes = [(n.name, n.uid, n.boot_id, n.present, n.ready, n.cordoned, n.job) for n in self.world.nodes.values()]
        jobs = [(j.id, j.phase, j.attempt) for j in self.world.jobs.values()]
        return (*sorted(cases), *sorted(recoveries), *sorted(latched, key=lambda row: row[0]), *nodes, *jobs)


def play(
    seed: int, weather: Collection[str] = storm.BORNE, *, soak: bool = False, all_checkers: bool = False
) -> Verdict:
    """One seed, judged. An exception in the brain is a violation too."""
    trial = Trial(seed, weather, soak=soak, all_checkers=all_checkers)
    try:
        return trial.play()
    except Futile:
        return trial.verdict()
    except Exception as error:  # whatever it is, the seed that shows it is the answer
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        words = f"{type(error).__name__}: {error} ({where.filename.rpartition('/')[2]}:{where.lineno} {where.name})"
        return trial.verdict(0, words)


def verdicts(first: int, count: int, processes: int, one: Callable[[int], Verdict] = play) -> Iterator[Verdict]:
    seeds = range(first, first + count)
    if processes <= 1:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(one, seeds, chunksize=4)


def check_seeds(
    first: int, count: int, processes: int, weather: str = "borne", *, soak: bool = False, all_checkers: bool = False
) -> int:
    """Play the seeds, print what broke and how to see it again; 0 if nothing did and every checker was exercised."""
    logging.getLogger("sickbay").addHandler(logging.NullHandler())  # what a simulated controller warns of is no news
    began, told, bad, cases, crashes = time.monotonic(), time.monotonic(), 0, 0, 0
    exercised, drawn, struck = Counter[str](), Counter[str](), Counter[str]()
    asked = ("" if weather == "borne" else f" --weather {weather}") + " --soak" * soak
    one = partial(play, weather=storm.asked(weather), soak=soak, all_checkers=all_checkers)
    for n, verdict in enumerate(verdicts(first, count, processes, one), 1):
        cases, crashes = cases + verdict.cases, crashes + verdict.crashes
        exercised.update(verdict.exercised)
        drawn.update(verdict.weather.keys())
        struck.update(verdict.weather)
        if verdict.violations:
            bad += 1
            print(f"seed {verdict.seed}: {verdict.violations[0]}" + _more(verdict))
            print(f"  replay: sickbay sim check --first {verdict.seed} --seeds 1{asked}")
            print(f"  settings: {'; '.join(verdict.settings)}")
        if time.monotonic() - told > 2.0:
            told = time.monotonic()
            print(f"\r{n}/{count} seeds, {bad} bad", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    took = time.monotonic() - began
    vacuous = tell_exercise(exercised, count) + tell_weather(drawn, struck)
    print(f"{count} seeds, {bad} bad, {cases} cases ended, {crashes} crashes survived, {took:.1f} s")
    return 1 if bad or (vacuous and count >= JUDGED_FROM) else 0


def tell_exercise(exercised: Mapping[str, int], seeds: int) -> list[str]:
    """How often each checker and each branch of it could have complained, and what it must reach; those that did not.
    Nothing has a floor of nought without a word: it says from how many seeds on it is judged, or why none is."""
    print("checker                          exercised    at least")
    vacuous = []
    for checker in ALL:
        name = checker.__name__
        known = {what for key in exercised if (what := key.removeprefix(branch_of(name, ""))) != key}
        undeclared = dict.fromkeys(sorted(known - set(checker.branches)), "")
        rows = {"": checker.floor, **checker.branches, **undeclared}
        for what, floor in rows.items():
            key = branch_of(name, what) if what else name
            if not _tell_row(key, exercised.get(key, 0), floor, seeds) and name not in PENDING:
                vacuous.append(key)
    return vacuous


def _tell_row(key: str, times: int, floor: float | str, seeds: int) -> bool:
    """One row of the table; False for one that proves too little."""
    name, _, what = key.partition(": ")
    least = int(floor * seeds / 100) if isinstance(floor, float) else 0
    note = "  pending: " + PENDING[name] if name in PENDING else ""
    if isinstance(floor, str):
        note = f"  no floor: {floor}" if floor else "  NO FLOOR: give it one, or say why it has none"
    elif times < least:
        note = note or "  TOO FEW: it proves nothing"
    elif not least:
        note = note or f"  judged from {ceil(100 / floor):,} seeds on"
    print(f"{f'  {what}' if what else name:<32} {times:>9,}   {least or '-':>9}{note}")
    return floor != "" and times >= least


def tell_weather(drawn: Mapping[str, int], struck: Mapping[str, int]) -> list[str]:
    """Kinds of weather that seeds drew and that never found a target: they prove nothing."""
    idle = [name for name in drawn if not struck.get(name)]
    if idle:
        print(f"drawn, and never found a target: {', '.join(sorted(idle))}")
    return idle


def _more(verdict: Verdict) -> str:
    rest = len(verdict.violations) - 1
    return f" (and {rest} more)" if rest else ""
