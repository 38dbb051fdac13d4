"""How illness enters the world, shows itself, sleeps and comes back. Called by arrivals, tests and treatments."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import groupby
from random import Random
from typing import TYPE_CHECKING, Any

from sickbay.sim.faults import Ailment, Kind, Line, draw_cure, kinds
from sickbay.sim.hardware import SimGpu, SimNode

if TYPE_CHECKING:
    from sickbay.sim.world import World

NOT_READY_S = 40.0  # a host that stopped is called not ready after this long (node-monitor-grace-period, 40 s)


class Illness:
    def __init__(self, world: World) -> None:
        self.world = world
        self._struck = 0

    def strike(self, kind_name: str, node: SimNode, slot: int | None = None, **options: Any) -> Ailment | None:
        """One fault, now. Returns what it leaves behind, None if it leaves nothing."""
        kind = kinds()[kind_name]
        if not node.up or (kind.scope == "gpu" and not node.gpus):
            return None
        self._struck += 1
        rng = self.world.stream("strike")
        gpu = (
            node.gpus[rng.randrange(len(node.gpus)) if slot is None else slot % len(node.gpus)]
            if kind.scope == "gpu"
            else None
        )
        ailment = self._ailment(kind, gpu, options)
        self.world.note("fault", node.name, what=kind.name, gpu=gpu.serial if gpu else "-", cure=ailment.cure)
        if kind.scope == "job":
            self.world.gangs.struck(node, ailment)
            return None
        if ailment.cure != "none":
            (gpu.ailments if gpu else node.ailments).append(ailment)
        if not ailment.dormant:
            self._show(node, ailment, kind.lines)
        else:
            for job in tuple(node.jobs):
                self.under_load(node, job)
        self._then(kind, node, gpu, options)
        return ailment if ailment.cure != "none" else None

    def _ailment(self, kind: Kind, gpu: SimGpu | None, options: dict[str, Any]) -> Ailment:
        rng = self.world.stream("strike")
        cure = options.get("cure") or draw_cure(kind, rng)
        values: dict[str, Any] = {
            "pid": rng.randrange(2000, 99_999),
            "link": rng.randrange(10),
            "addr": rng.randrange(1 << 36),
        }
        if gpu:
            values.update({"pci": gpu.pci, "serial": gpu.serial, "uuid": gpu.uuid, "index": gpu.slot})
        return Ailment(
            self._struck, kind, cure, self.world.now,
            recall=options.get("recall", kind.recall),
            values=values,
            dormant=options.get("dormant", kind.hides),
            relapse_s=options.get("relapse_s", kind.relapse_s),
            effect=options.get("effect", kind.effect),
        )  # fmt: skip

    def _then(self, kind: Kind, node: SimNode, gpu: SimGpu | None, options: dict[str, Any]) -> None:
        then, rng = kind.then, self.world.stream("then")
        if then is None:
            return
        chance, delay = rng.random(), rng.uniform(*then.after)
        boot = node.boot_id
        if chance < options.get("then_chance", then.chance):
            self.world.after(delay, lambda: self._follow(then.kind, node, gpu, boot, options))

    def _follow(self, kind: str, node: SimNode, gpu: SimGpu | None, boot: str, options: dict[str, Any]) -> None:
        if node.boot_id == boot and gpu is not None and gpu in node.gpus:
            self.strike(
                kind, node, gpu.slot, **{k: v for k, v in options.items() if k in ("cure", "recall", "relapse_s")}
            )

    # -- showing ------------------------------------------------------------------------------------------------------

    def _show(self, node: SimNode, ailment: Ailment, lines: Iterable[Line]) -> None:
        """It becomes visible: lines in the kernel log, fields in the tools, ranks that die."""
        world = self.world
        if ailment.signs.get("down"):
            self._go_down(node)
        self._print_later(node, ailment, lines)
        world.truth_changed(node)
        world.gangs.struck(node, ailment)

    def _print_later(self, node: SimNode, ailment: Ailment, lines: Iterable[Line]) -> None:
        boot = node.boot_id
        for after_s, group in groupby(lines, key=lambda line: line.after_s):
            texts = [line.text.format(**ailment.values) for line in group] * ailment.kind.repeat
            if after_s:
                self.world.after(after_s, lambda texts=texts: self._print(node, boot, texts))  # type: ignore[misc]
            else:
                self._print(node, boot, texts)

    def _print(self, node: SimNode, boot: str, texts: list[str]) -> None:
        if node.boot_id == boot and not node.gone:
            self.world.print_kernel(node, texts)

    def _go_down(self, node: SimNode) -> None:
        boot = node.boot_id
        node.up = False
        self.world.agents.silence(node)
        self.world.gangs.orphans_end(node, "the host stopped")
        tell = partial(self.world.services.when_there, "manager", lambda: self._not_ready(node, boot))
        self.world.after(NOT_READY_S, tell)

    def _not_ready(self, node: SimNode, boot: str) -> None:
        if node.boot_id == boot and not node.up and node.ready:
            node.ready = False
            self.world.note("not-ready", node.name)
            self.world.touch(node)

    # -- sleeping and coming back -------------------------------------------------------------------------------------

    def booted(self, node: SimNode) -> None:
        """After a boot: what was not cured shows again, unless it hides until the node works."""
        for _, ailment in node.all_ailments():
            if not ailment.dormant:
                self._print_later(node, ailment, ailment.kind.boot_lines)

    def under_load(self, node: SimNode, job: str) -> None:
        """Work began on this node: what sleeps will wake after a while, what is visible hurts the work at once."""
        rng = self.world.stream("relapse")
        for gpu, ailment in list(node.all_ailments()):
            boot = node.boot_id
            if gpu is not None and gpu.slot not in node.jobs.get(job, ()):
                continue  # somebody else's, or nobody's
            if ailment.dormant and ailment.effect != "corrupt_quietly":
                delay = rng.expovariate(1 / ailment.relapse_s) if ailment.relapse_s > 0 else 1.0
                self.world.after(delay, lambda a=ailment, b=boot: self._relapse(node, a, b, job))  # type: ignore[misc]
            elif ailment.effect in ("slow", "corrupt_quietly"):
                self.world.gangs.struck(node, ailment)
            elif ailment.effect != "none":
                delay = rng.uniform(1.0, 60.0)
                self.world.after(delay, lambda a=ailment, b=boot: self._hit_again(node, a, b, job))  # type: ignore[misc]

    def _still(self, node: SimNode, ailment: Ailment, boot: str, job: str) -> bool:
        present = any(a is ailment for _, a in node.all_ailments())
        return present and node.boot_id == boot and job in node.jobs and node.up

    def _hit_again(self, node: SimNode, ailment: Ailment, boot: str, job: str) -> None:
        """Work was put on a node that is visibly sick: the same lines, the same harm."""
        if self._still(node, ailment, boot, job) and not ailment.dormant:
            self._show(node, ailment, ailment.kind.lines)

    def _relapse(self, node: SimNode, ailment: Ailment, boot: str, job: str) -> None:
        if not ailment.dormant or not self._still(node, ailment, boot, job):
            return
        ailment.dormant = False
        self.world.note("relapse", node.name, what=ailment.kind.name)
        self._show(node, ailment, ailment.kind.lines or ailment.kind.boot_lines)

    def never_came_up(self, node: SimNode) -> None:
        """A boot that hangs: the host stays down until its power is cut."""
        self._struck += 1
        node.ailments.append(self._ailment(kinds()["boot_hung"], None, {}))
        self.world.note("boot-hung", node.name)

    # -- judging ------------------------------------------------------------------------------------------------------

    def certain(self, node: SimNode, checks: tuple[str, ...]) -> list[Ailment]:
        """Ailments that these checks show for certain (no check named: any ailment at all)."""
        if not checks:
            return [a for _, a in node.all_ailments()]
        deep = max((int(c.rsplit("l", 1)[1]) for c in checks if c.startswith("dcgm-l")), default=0)
        shown = [a for _, a in node.all_ailments() if not a.dormant]
        by_smi = [a for a in shown if "nvidia-smi" in checks and set(a.signs) & HARD_SIGNS]
        by_dcgm = [a for a in shown if deep and a.kind.dcgm and a.kind.dcgm.level <= deep]
        return by_smi + [a for a in by_dcgm if a not in by_smi]

    def seen_by_diag(self, ailment: Ailment, level: int) -> bool:
        """Does one run of the diagnostic see it? While it hides, only with a chance that depends on nothing but the
        seed, the ailment and the moment: so asking twice in one instant gives one answer, and asking moves nothing."""
        sign = ailment.kind.dcgm
        if sign is None or (level < 4 and (ailment.dormant or sign.level > level)):
            return False
        if not ailment.dormant and ailment.kind.signs:
            return True
        return Random(f"{self.world.seed}/recall/{ailment.id}/{self.world.now:.0f}").random() < ailment.recall


# Signs that nvidia-smi prints in a field of its own and that mean a fault, not a counter.
HARD_SIGNS = frozenset(
    (
        "lost",
        "remap_failed",
        "remap_pending",
        "sram_threshold",
        "recovery",
        "hung",
        "down",
        "dram_uncorrectable",
        "slowdown",
    )
)
