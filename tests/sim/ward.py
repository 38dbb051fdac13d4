"""A small simulated fleet with the real brain, a door that a scenario can bend, and the Judge looking on.

Scenarios arrange on purpose what the seeds meet by chance. The world's truth (log, hardware, marks) is the evidence;
the controller's records are read only to know when to act.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from sickbay.controller.crew import Crew, InlineCrew
from sickbay.controller.loop import Controller
from sickbay.model import (
    Action,
    Case,
    Change,
    Command,
    Fleet,
    JobChanged,
    Node,
    NodeChanged,
    NodeDeleted,
    Outcome,
    Phase,
    Recovery,
    RecoveryPhase,
    Verb,
)
from sickbay.ports import Platform, Store
from sickbay.settings import ControllerSettings, JobPolicy, Limit, Policy, Settings
from sickbay.sim.checkers import Judge
from sickbay.sim.faults import Ailment, kinds
from sickbay.sim.jobs import JobSpec, SimJob
from sickbay.sim.run import Brain, SimRun
from sickbay.sim.swarm import Lock, Mood, Swarm, SwarmClock, SwarmLeader
from sickbay.sim.world import Fact, World
from sickbay.stores.memory import MemoryStore

Perform = Callable[[Action], Outcome]
Hook = Callable[[Action, Perform], Outcome]

WIDE = Limit(percent=100.0, at_least=1)


def a_policy(**changes: Any) -> Policy:
    """Nothing is forbidden and no limit is in the way, unless a scenario says so."""
    free = Policy(
        max_verb="REPLACE", approval=(), max_out=WIDE, max_out_fleet=WIDE, max_out_rack=WIDE, at_once=WIDE,
        breaker_failures=1000,
    )  # fmt: skip
    return replace(free, **changes)


class Door:
    """The simulated platform, which a scenario may bend: one verb, what is told late, an old first view."""

    def __init__(self, door: Platform, world: World) -> None:
        self._door, self._world = door, world
        self.verbs = door.verbs
        self.on: dict[Verb, Hook] = {}
        self.calls: list[tuple[float, Action]] = []
        self.late: Callable[[Change], float] = lambda change: 0.0
        self.old: Fleet | None = None  # what the next observe shows
        self._until: dict[str, float] = {}

    def observe(self) -> Fleet:
        old, self.old = self.old, None
        return old or self._door.observe()

    def look(self, node: str) -> Node | None:
        return self._door.look(node)

    def ask_after(self, node: str, instance: str) -> None:
        self._door.ask_after(node, instance)

    def watch(self, sink: Callable[[Change], None]) -> Callable[[], None]:
        return self._door.watch(lambda change: self._tell(change, sink))

    def _tell(self, change: Change, sink: Callable[[Change], None]) -> None:
        """In order per object, however late."""
        name = _object(change)
        at = max(self._until.get(name, 0.0), self._world.now + self.late(change))
        self._until[name] = at
        if at <= self._world.now:
            sink(change)
        else:
            self._world.at(at, lambda: sink(change))

    def perform(self, action: Action) -> Outcome:
        self.calls.append((self._world.now, action))
        hook = self.on.get(action.verb)
        return hook(action, self._door.perform) if hook else self._door.perform(action)

    def sent(self, verb: Verb) -> list[Action]:
        """Calls of this verb that were meant to act."""
        return [a for _, a in self.calls if a.verb is verb and a.call]


def _object(change: Change) -> str:
    if isinstance(change, NodeChanged):
        return change.node.name
    if isinstance(change, NodeDeleted):
        return change.name
    return change.job.id if isinstance(change, JobChanged) else change.job


class WardRun(SimRun):
    """As SimRun, with a crew of the scenario's choice."""

    make_crew: Callable[[], Crew] = InlineCrew

    def _controller(self) -> Controller:
        return Controller(
            self._door, self.store, self.catalog, self.settings, self.clock, self._leader(),
            self._outbox(), self.make_crew(),
        )  # fmt: skip


class Ward:
    """One scenario: the world, one brain (or two), and everything that happened."""

    def __init__(
        self, nodes: int = 10, *, policy: Policy | None = None, jobs: JobPolicy | None = None, brains: int = 1,
        controller: ControllerSettings | None = None, store: Store | None = None,
        crew: Callable[[], Crew] = InlineCrew, **world: Any,
    ) -> None:  # fmt: skip
        quiet: dict[str, Any] = {"silent_failure": 0.0, "reboot_hangs": 0.0, "part_returns": 0.0}
        self.world = World(11, nodes, **{**quiet, **world})
        calm = Mood(Swarm(), Random(0))
        self.clock, self.lock = SwarmClock(self.world, calm), Lock(self.world, calm)
        doors: list[Door] = []

        def wrap(door: Platform) -> Door:
            doors.append(Door(door, self.world))
            return doors[0]

        settings = Settings(
            policy=policy or a_policy(), jobs=jobs or JobPolicy(), controller=controller or ControllerSettings()
        )
        self.run = WardRun(
            self.world, settings, wrap=wrap, clock=self.clock, leader=lambda: SwarmLeader(self.lock), store=store
        )
        self.run.make_crew = crew
        self.door = doors[0]
        self.judge = Judge(self.run)
        self.run.on_turn.append(self.judge.look)
        self.brains: list[Brain] = [self.run.add_brain(f"brain-{i}") for i in range(brains)]
        self._orders = 0

    # -- time

    def passes(self, seconds: float) -> Ward:
        self.run.run_for(seconds)
        return self

    def until(self, what: Callable[[], object], within: float = 7200.0, step: float = 1.0) -> Ward:
        """Let time pass until it is so; a scenario whose arrangement fails must say so."""
        end = self.world.now + within
        while not what():
            assert self.world.now < end, f"it did not come about within {within:.0f} s: {self.story()}"
            self.run.run_for(step)
        return self

    def until_phase(self, node: str, phase: Phase, within: float = 7200.0) -> Case:
        self.until(lambda: (case := self.case(node)) is not None and case.phase is phase, within)
        case = self.case(node)
        assert case is not None
        return case

    def until_job(self, job: str, phase: RecoveryPhase, within: float = 7200.0) -> Recovery:
        self.until(lambda: (r := self.recovery(job)) is not None and r.phase is phase, within)
        recovery = self.recovery(job)
        assert recovery is not None
        return recovery

    def until_ended(self, node: str, within: float = 43_200.0) -> Case:
        """Until the node has no open case."""
        self.until(lambda: self.case(node) is None and self.ended(node), within, step=20.0)
        return self.ended(node)[-1]

    # -- what is known and what is true

    def case(self, node: str) -> Case | None:
        return next((c.value for c in self.run.store.list(Case) if c.value.node == node), None)

    def ended(self, node: str) -> list[Case]:
        """Oldest first."""
        return list(self.run.store.history(Case, node=node))[::-1]

    def recovery(self, job: str) -> Recovery | None:
        stored = self.run.store.get(Recovery, job)
        return stored.value if stored else None

    def facts(self, kind: str, node: str = "") -> list[Fact]:
        return [f for f in self.world.log if f.kind == kind and node in ("", f.node)]

    def treatments(self, node: str = "") -> list[str]:
        """What was truly done, in order."""
        return [str(f.detail["verb"]) for f in self.facts("treat-start", node)]

    def is_well(self, node: str) -> bool:
        """In service, with no ailment that anything could show."""
        return self.world.nodes[node].serving() and self.world.truly_healthy(node, ("nvidia-smi", "dcgm-l2"))

    def story_of(self, node: str) -> str:
        """What its open case says of itself."""
        case = self.case(node)
        return " | ".join(entry.why for entry in case.journal) if case else ""

    def story(self) -> str:
        cases = [f"{c.value.id} {c.value.phase} {c.value.refusal}" for c in self.run.store.list(Case)]
        jobs = [f"{r.value.job} {r.value.phase} {r.value.refusal}" for r in self.run.store.list(Recovery)]
        return " | ".join([*cases, *jobs, *self.judge.violations, *(f.line() for f in self.world.log[-12:])])

    # -- what people and fate do

    def submit(self, job: str = "llama", nodes: tuple[str, ...] = (), **spec: Any) -> SimJob:
        return self.world.submit(JobSpec(job, nodes or names(0, 4), checkpoint_every=30, **spec))

    def ails(self, node: str, kind: str, gpu: int = 1, cure: str = "replace") -> Ailment:
        """An illness that prints nothing: only an instrument that is asked sees it."""
        ailment = Ailment(900 + gpu, kinds()[kind], cure, self.world.now, 1.0, _values(self.world, node, gpu))
        self.world.nodes[node].gpus[gpu].ailments.append(ailment)
        return ailment

    def says(self, verb: str, case: Case | None) -> None:
        assert case is not None
        self._orders += 1
        self.run.store.create(Command(f"order-{self._orders}", verb, case.id, "alice", "on purpose", self.world.now))
        for brain in self.brains:
            brain.next_turn = min(brain.next_turn, self.world.now + 0.1)

    def lose(self, case: Case) -> None:
        """Somebody deletes the record of an open case."""
        assert isinstance(self.run.store, MemoryStore)
        self.run.store.lose(Case, case.id)
        for brain in self.brains:
            brain.next_turn = min(brain.next_turn, self.world.now + 0.1)

    def crash(self, brain: int = 0, back_after: float = 30.0) -> None:
        """The process dies; another is started in its place."""
        self.brains[brain].crash()
        self.lock.holder = None
        self.brains[brain].next_turn = self.world.now + back_after

    def fill_limits(self, *nodes: str) -> None:
        """People close nodes, so that there is no room for ours."""
        for name in nodes:
            self.world.people.cordon(name)

    def is_sound(self) -> None:
        """No checker has anything to say."""
        self.judge.look()
        assert self.judge.violations == [], self.story()

    def ends_well(self, seconds: float = 7200.0) -> None:
        """After a while of calm every case has ended or rests with a person, and no checker complains."""
        self.passes(seconds)
        self.judge.conclude()
        assert self.judge.violations == [], self.story()


def names(first: int, count: int) -> tuple[str, ...]:
    return tuple(f"node-{i:04d}" for i in range(first, first + count))


def _values(world: World, node: str, gpu: int) -> dict[str, Any]:
    part = world.nodes[node].gpus[gpu]
    named = {"pci": part.pci, "serial": part.serial, "uuid": part.uuid, "index": gpu}
    return {"pid": 4711, "link": 3, "addr": 4096, **named}
