"""People and rivals: everybody else who touches the fleet. Called by tests, the tour and the swarm."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sickbay.model import JobPhase

if TYPE_CHECKING:
    from sickbay.sim.world import World


class People:
    def __init__(self, world: World) -> None:
        self.world = world
        self.silent_until = float("-inf")  # nobody answers who waits for an approval

    def uncordon(self, name: str, by: str = "alice") -> None:
        """A person opens the node again. As `kubectl uncordon`: the cordon goes, our annotation (the mark) stays."""
        node = self.world.nodes[name]
        node.closed, node.others = False, []
        self.world.note("person", name, act="uncordon", by=by)
        self.world.touch(node)

    def cordon(self, name: str, by: str = "alice") -> None:
        node = self.world.nodes[name]
        if by not in node.others:
            node.others.append(by)
        self.world.note("person", name, act="cordon", by=by)
        self.world.touch(node)

    def opt_out(self, name: str, by: str = "alice", opted_out: bool = True) -> None:
        node = self.world.nodes[name]
        node.opted_out = opted_out
        self.world.note("person", name, act="opt-out" if opted_out else "opt-in", by=by)
        self.world.touch(node)

    def delete_object(self, name: str, by: str = "autoscaler", rejoins_after_s: float | None = 120.0) -> None:
        """A rival deletes the node object; the machine runs on and registers again: same instance, no marks."""
        node = self.world.nodes[name]
        if not node.present:
            return
        self.world.note("person", name, act="delete-object", by=by)
        self.world.remove_object(node, gone=False)
        if rejoins_after_s is not None:
            instance = node.instance
            self.world.after(rejoins_after_s, lambda: self._rejoin(name, instance))

    def _rejoin(self, name: str, instance: str) -> None:
        node = self.world.nodes[name]
        if node.present or node.gone or node.instance != instance:
            return
        node.objects += 1
        node.uid = self.world.factory.uid(name, node.objects)
        node.present, node.mark, node.closed, node.others, node.opted_out = (
            True,
            "",
            False,
            [],
            False,
        )  # labels are lost
        self.world.note("rejoined", name, instance=instance)
        self.world.touch(node)
        if not node.ready:  # its kubelet says so as soon as it can be heard
            self.world.network.hear(node)

    def terminate(self, name: str, by: str = "provider", successor_after_s: float | None = None) -> None:
        """The provider ends the instance. With `successor_after_s` another one joins under the same name."""
        world, node = self.world, self.world.nodes[name]
        if node.gone:
            return
        world.note("person", name, act="terminate", by=by)
        world.agents.silence(node)
        world.gangs.node_lost(node)
        node.up = node.ready = False
        node.gone, node.treating, node.stuck = True, "", []
        world.remove_object(node, gone=True)
        if successor_after_s is not None:
            world.after(successor_after_s, lambda: self._succeed(name))

    def _succeed(self, name: str) -> None:
        world, node = self.world, self.world.nodes[name]
        if node.gone and name in world.nodes:
            world.shelf.put(node.gpus)
            world.treatments.new_instance(node)

    def reboot(self, name: str, by: str = "admin") -> bool:
        """An administrator reboots the machine, whatever anybody else has in mind or is doing to it. False where nobody
        can: it is gone, about to go, out of reach or without power."""
        world, node = self.world, self.world.nodes[name]
        if node.gone or world.treatments.replaces(node) or not node.reachable or not node.powered:
            return False
        world.note("person", name, act="reboot", by=by, jobs=",".join(node.jobs) or "-")
        world.treatments.take_down(node)
        world.touch(node)
        instance, boots = node.instance, node.boots
        world.after(world.stream("admin").uniform(150.0, 400.0), lambda: self._rebooted(name, instance, boots))
        return True

    def _rebooted(self, name: str, instance: str, boots: int) -> None:
        world, node = self.world, self.world.nodes[name]
        if world.treatments.replaces(node):
            return
        if node.instance == instance and node.boots == boots and not node.gone and node.powered:
            world.treatments.cure(node, "reboot")
            if not node.node_sign("down"):
                world.treatments.boot(node)
            world.truth_changed(node)

    def revive(self, name: str) -> bool:
        """A machine that was down comes back by itself (a watchdog, a provider that mended its host)."""
        world, node = self.world, self.world.nodes[name]
        if node.up or node.gone or world.treatments.replaces(node) or not node.powered:
            return False
        node.ailments = [a for a in node.ailments if not a.kind.signs.get("down")]
        world.note("came-back", name)
        world.treatments.boot(node)
        world.truth_changed(node)
        return True

    def silence_agent(self, name: str, for_s: float = float("inf")) -> None:
        """The agent of this node stops reporting; the node itself is well."""
        node, world = self.world.nodes[name], self.world
        world.agents.silence(node)
        node.agent_muted = True
        world.note("person", name, act="silence-agent", by="-")
        if for_s != float("inf"):
            boot = node.boot_id
            world.after(for_s, lambda: self._let_speak(name, boot))

    def _let_speak(self, name: str, boot: str) -> None:
        node = self.world.nodes[name]
        if node.boot_id == boot:
            node.agent_muted = False
            self.world.agents.wake(node, boot)

    def return_part(self, serial: str) -> None:
        """The next replacement brings this part back, if it is on the shelf by then."""
        self.world.shelf.owed.append(serial)

    def preempt(self, job_id: str, by: str = "scheduler") -> None:
        """Somebody else stops a job: not a failure."""
        job = self.world.jobs[job_id]
        if job.live:
            self.world.note("person", "", act="preempt", job=job_id, by=by)
            self.world.gangs.stop(job, by, JobPhase.SUSPENDED)

    def delete_job(self, job_id: str, by: str = "owner") -> None:
        job = self.world.jobs[job_id]
        self.world.note("person", "", act="delete-job", job=job_id, by=by)
        if job.live:
            self.world.gangs.stop(job, by, JobPhase.GONE)
        else:
            job.phase = JobPhase.GONE
            self.world.touch_job(job)

    def submit_again(self, job_id: str) -> None:
        """Another job of the same name and shape, on whatever looks open, if there is room for it."""
        job, gangs = self.world.jobs[job_id], self.world.gangs
        nodes = gangs.open_for(job)
        if job.phase is JobPhase.GONE and len(nodes) == len(job.spec.nodes):
            self.world.note("person", "", act="submit-again", job=job_id, by=job.spec.owner)
            gangs.submit(replace(job.spec, nodes=nodes))

    def change_driver(self, names: list[str], driver: str, bad_share: float = 0.0) -> list[str]:
        """A roll-out: these nodes boot into another driver. On a share of them NVLink does not train any more."""
        world, rng, struck = self.world, self.world.stream("rollout"), []
        for name in names:
            node = world.nodes[name]
            world.gangs.node_lost(node)
            node.driver = driver
            for gpu in node.gpus:  # what the old driver did is gone with it
                gpu.ailments = [a for a in gpu.ailments if a.kind.name != "nvlink_down_after_boot"]
            world.treatments.boot(node)
            if rng.random() < bad_share:
                world.strike("nvlink_down_after_boot", name)
                struck.append(name)
            world.truth_changed(node)
        world.note("person", "", act="change-driver", driver=driver, nodes=len(names), bad=len(struck))
        return struck
