"""Things that a whole fleet shares and that go wrong while every node is well: storage, subnet manager, cooling.

`world.shared` is asked by tests and storms. What it does to jobs is in gangs.py; what hosts print is here and in
faults.toml. It must never make a node sick that is not: what it leaves goes when the shared thing is mended.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sickbay.sim.hardware import SimNode

if TYPE_CHECKING:
    from sickbay.sim.world import World

HUNG_TASK_S = 122.0  # kernel.hung_task_timeout_secs, and until the kernel's thread looks

# What a kernel prints about a rank that waits for a file system in D state (linux, kernel/hung_task.c).
HUNG_TASK = (
    "INFO: task pt_main_thread:{pid} blocked for more than 122 seconds.",
    "      Tainted: G           OE     6.8.0-1021-aws #23~22.04.1-Ubuntu",
    '"echo 0 > /proc/sys/kernel/hung_task_timeout_secs" disables this message.',
    "task:pt_main_thread state:D stack:0     pid:{pid} tgid:{pid} ppid:2211   flags:0x00004002",
    "Call Trace:",
    " <TASK>",
    " __schedule+0x27c/0x6b0",
    " schedule+0x33/0x110",
    " cl_sync_io_wait+0x11c/0x3c0 [obdclass]",
    " ll_writepages+0x8d/0x220 [lustre]",
    " </TASK>",
)


class Shared:
    def __init__(self, world: World) -> None:
        self.world = world
        self._hot: set[str] = set()  # nodes in a row that is too hot

    # -- storage ------------------------------------------------------------------------------------------------------

    def storage_hangs(self, for_s: float | None = None) -> None:
        """The file system of checkpoints and data answers nobody: every rank waits in D state, every node is well."""
        world = self.world
        if world.services.is_away("storage"):
            return
        world.services.fail("storage", for_s)
        for job in world.jobs.values():
            world.gangs.storage_lost(job)
        world.after(HUNG_TASK_S, self._say_hung)

    def _say_hung(self) -> None:
        world = self.world
        if not world.services.is_away("storage"):
            return
        for node in world.nodes.values():
            if node.up and (node.jobs or node.stuck):
                pid = 4_000 + node.boots
                world.print_kernel(node, [line.format(pid=pid) for line in HUNG_TASK])

    # -- subnet manager -----------------------------------------------------------------------------------------------

    def subnet_manager_dies(self, for_s: float | None = None) -> None:
        """Routes that are there stay: what runs goes on. No gang that starts now finds its peers."""
        self.world.services.fail("subnet", for_s)

    # -- cooling ------------------------------------------------------------------------------------------------------

    def row_heats(self, names: Iterable[str], for_s: float | None = None) -> None:
        """Every GPU of these nodes throttles until the row is cool again."""
        hot = [name for name in names if name not in self._hot and self.world.nodes[name].up]
        self._hot.update(hot)
        self.world.note("row-hot", "", nodes=",".join(hot))
        for name in hot:
            for slot in range(len(self.world.nodes[name].gpus)):
                self.world.strike("hot_row", name, slot)
        if for_s is not None:
            self.world.after(for_s, lambda: self.row_cools(hot))

    def row_cools(self, names: Iterable[str]) -> None:
        cooled = [self.world.nodes[name] for name in names if name in self._hot]
        self._hot -= {node.name for node in cooled}
        self.world.note("row-cool", "", nodes=",".join(node.name for node in cooled))
        for node in cooled:
            self._cool(node)
        for job in {id(j): j for node in cooled for j in map(self.world.jobs.__getitem__, node.jobs)}.values():
            self.world.gangs.pace_again(job)

    def _cool(self, node: SimNode) -> None:
        for gpu in node.gpus:
            gpu.ailments = [a for a in gpu.ailments if a.kind.name != "hot_row"]
        self.world.truth_changed(node)

    def calm(self) -> None:
        if self._hot:
            self.row_cools(sorted(self._hot))
