"""Scenes about who has the say: a person who uncordons, a controller that dies in the middle, a standby."""

from __future__ import annotations

from sickbay.controller.leader import FileLeader
from sickbay.model import Case, Ledger, Phase
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage
from sickbay.stores.sqlite import SqliteStore


class Uncordoned(Scene):
    name = "person-uncordons"
    title = "A person uncordons the node in the middle: it is left alone"
    expected = "no treatment, then left as the person left it"
    lasts_min = 90

    def begin(self, stage: Stage) -> None:
        self.node, self.since = stage.take(1)[0], stage.now
        stage.world.strike("gpu_lost_79", self.node, 0, cure="reboot")
        stage.after_min(0.5, lambda: stage.world.people.uncordon(self.node, by="alice"))

    def judge(self, stage: Stage) -> Seen:
        seen = Seen(truth.course(stage.world, self.node, self.since))
        cases = stage.cases(self.node, self.since)
        node = stage.world.nodes[self.node]
        seen.claim("it was cordoned before", bool(truth.facts(stage.world, "cordon", self.node, self.since)))
        seen.claim("the case was let go", [c.phase for c in cases] == [Phase.DISMISSED])
        seen.claim("no mark of ours is left", not node.mark and not node.cordoned)
        seen.facts = {"treatments": len(truth.treatments(stage.world, self.node, self.since)), "cases": len(cases)}
        seen.story = stage.story(nodes=(self.node,), since=self.since)
        return seen


class KilledInMidReboot(Scene):
    name = "controller-killed"
    title = "The controller is killed in the middle of a reboot and started again: no second reboot"
    expected = "reboot, then returned to service, truly well"
    lasts_min = 60

    def begin(self, stage: Stage) -> None:
        self.node = stage.take(1)[0]
        self.crashed = self.back = 0.0
        stage.after_min(1, lambda: stage.world.strike("gpu_lost_79", self.node, 2, cure="reboot"))
        stage.after_min(2, lambda: self._watch(stage))

    def _watch(self, stage: Stage) -> None:
        if not stage.world.nodes[self.node].treating:
            stage.world.after(5.0, lambda: self._watch(stage))
            return
        stage.world.after(45.0, lambda: self._kill(stage))

    def _kill(self, stage: Stage) -> None:
        stage.run.brains[0].crash()
        self.crashed = stage.now
        stage.world.after(90.0, lambda: self._start_again(stage))

    def _start_again(self, stage: Stage) -> None:
        """A new process: it has the store's file and nothing else."""
        before = stage.run.store
        assert isinstance(before, SqliteStore)
        before.close()
        stage.run.store = SqliteStore(stage.workdir / "killed.db")
        self.back = stage.now
        stage.run.brains[0].next_turn = stage.now

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        seen = Seen(truth.course(world, self.node))
        starts, ends = truth.facts(world, "treat-start", self.node), truth.facts(world, "treat-end", self.node)
        inside = bool(starts and ends) and starts[0].t < self.crashed < ends[0].t
        seen.claim("it really was killed while the node rebooted", inside)
        seen.claim("exactly one reboot was delivered", len(world.treatments.delivered) == 1)
        ledger = stage.run.store.get(Ledger, "ledger")
        seen.claim("the new process leads a new epoch", ledger is not None and ledger.value.epoch == 2)
        seen.facts = {"reboots": len(starts), "seconds_without_controller": round(self.back - self.crashed)}
        seen.story = stage.story(nodes=(self.node,))
        return seen


class Standby(Scene):
    name = "standby"
    title = "The leading controller dies; the one standing by takes over and finishes the case"
    expected = "taken over, then reboot, then returned to service, truly well"
    lasts_min = 60

    def __init__(self) -> None:
        self.leaders: list[FileLeader] = []
        self.died = self.taken = 0.0

    def begin(self, stage: Stage) -> None:
        self.node = stage.take(1)[0]
        stage.after_min(1, lambda: stage.world.strike("gpu_lost_79", self.node, 6, cure="reboot"))
        stage.world.after(80.0, lambda: self._die(stage))
        stage.run.on_turn.append(lambda: self._notice(stage))

    def _die(self, stage: Stage) -> None:
        """What the kernel does when a process dies: its lock is free."""
        stage.run.brains[0].crash()
        self.died = stage.now
        self.leaders[0].release()

    def _notice(self, stage: Stage) -> None:
        if self.died and not self.taken and stage.run.brains[1].controller is not None:
            self.taken = stage.now

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        took = "taken over" if self.taken else "nobody took over"
        seen = Seen(f"{took}, then {truth.course(world, self.node)}")
        case = stage.cases(self.node)[0] if stage.cases(self.node) else None
        halfway = case is not None and any(at < self.died for _, at in case.timeline)
        seen.claim("the case was open when the leader died", halfway)
        seen.claim("one case, one reboot", len(stage.cases(self.node)) == 1 and len(world.treatments.delivered) == 1)
        seen.claim("no record was lost", not [s for s in stage.run.store.list(Case) if s.value.node == self.node])
        seen.facts = {"seconds_to_take_over": round(self.taken - self.died, 1)}
        seen.facts["reboots"] = len(truth.treatments(world, self.node))
        seen.story = stage.story(nodes=(self.node,))
        return seen
