"""Scenes about restraint, each in a fleet of its own: a bad driver on many nodes, more failures than may be treated."""

from __future__ import annotations

from sickbay.model import Case
from sickbay.sim.tour import truth
from sickbay.sim.tour.scene import Scene, Seen
from sickbay.sim.tour.stage import Stage

BAD = 20  # of 64 nodes: 31 %
BROKEN = 14  # hardware failures at once; the policy allows 6 nodes out


class BadDriver(Scene):
    name = "bad-driver"
    title = "A driver roll-out after which 30 % of the fleet reports NVLink down: one common cause"
    expected = "one case about the driver, no node treated, no mark left"
    lasts_min = 120

    def begin(self, stage: Stage) -> None:
        world = stage.world
        names = sorted(world.nodes)
        self.nodes = tuple(names[i] for i in range(0, 3 * BAD, 3))
        stage.after_min(10, lambda: world.people.change_driver(list(self.nodes), "585.02.01", bad_share=1.0))

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        about = [s.value for s in stage.run.store.list(Case) if s.value.factor.startswith("driver=")]
        treated = truth.facts(world, "treat-start")
        marks = [n.name for n in world.nodes.values() if n.mark or n.closed]
        one = "one case about the driver" if len(about) == 1 else f"{len(about)} cases about a driver"
        none = "no node treated" if not treated else f"{len(treated)} treatments"
        left = "no mark left" if not marks else f"{len(marks)} nodes still marked"
        seen = Seen(f"{one}, {none}, {left}")
        share = BAD / len(world.nodes)
        seen.claim("a person was told, once", len(stage.notices("driver=585.02.01")) == 1)
        seen.claim("the reports are true: NVLink is down there", not any(world.truly_healthy(n) for n in self.nodes))
        seen.facts = {"nodes_reporting": BAD, "share": round(share, 2), "nodes_treated": len(treated)}
        seen.facts["nodes_touched"] = len(truth.disturbed(world, tuple(world.nodes)))
        seen.story = [f"{e.why[:1].upper()}{e.why[1:]}" for case in about for e in case.journal]
        return seen


class BeyondTheLimit(Scene):
    name = "beyond-the-limit"
    title = "Fourteen nodes break at once: never more are out by our doing than the policy allows"
    expected = "never more out than allowed, refusals said why, all 14 returned to service, truly well"
    lasts_min = 420

    def begin(self, stage: Stage) -> None:
        world = stage.world
        names = sorted(world.nodes)
        self.nodes = tuple(names[8 * rack + slot] for rack in range(BROKEN // 2) for slot in (1, 5))
        self.refusals: dict[str, str] = {}
        for i, node in enumerate(self.nodes):
            kind = ("gpu_lost_79", "ecc_dbe_48", "nvlink_74")[i % 3]
            cure = ("reboot", "reset", "reset")[i % 3]
            stage.after_min(10 + i * 0.2, lambda n=node, k=kind, c=cure: world.strike(k, n, 1, cure=c))  # type: ignore[misc]
        stage.run.on_turn.append(lambda: self._listen(stage))

    def _listen(self, stage: Stage) -> None:
        for stored in stage.run.store.list(Case):
            if stored.value.refusal:
                self.refusals.setdefault(stored.value.id, stored.value.refusal)

    def judge(self, stage: Stage) -> Seen:
        world = stage.world
        policy = stage.run.settings.policy
        allowed = int(len(world.nodes) * policy.max_out.percent / 100)  # our own sum, not the controller's
        most = max((len(out) for _, out in truth.out_by_us(world)), default=0)
        well = [n for n in self.nodes if truth.standing(world, n) == "returned to service, truly well"]
        never = "never more out than allowed" if most <= allowed else f"{most} out at once, {allowed} allowed"
        said = [why for why in self.refusals.values() if "are out already" in why]
        why = "refusals said why" if said else "no refusal said why"
        every = f"all {len(well)}" if len(well) == len(self.nodes) else f"{len(well)} of {len(self.nodes)}"
        seen = Seen(f"{never}, {why}, {every} returned to service, truly well")
        seen.claim("the limit was really reached", most == allowed)
        seen.claim("one notice named the full limit", bool(stage.notices("no more nodes may be taken out")))
        seen.facts = {"broken": len(self.nodes), "allowed_out": allowed, "most_out": most, "refusals": len(said)}
        seen.story = [f"{case} waited: {why}" for case, why in sorted(self.refusals.items())][:8]
        return seen
