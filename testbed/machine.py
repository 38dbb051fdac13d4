"""A simulated machine that can be treated: sim.SimHost, and besides it the commands that change something.

`nvidia-smi --gpu-reset`, `systemctl stop|start|reboot`: with the texts and exit codes of the real ones, in-use refusals
included. testbed/kubelet.py runs Sickbay's own commands on it. One lock for all: the world is not made for threads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sickbay.model import Verb
from sickbay.ports import Completed
from sickbay.sim.hardware import SimGpu, SimNode
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

if TYPE_CHECKING:
    from testbed.kubelet import SimKubelet

PERSISTENCED = "nvidia-persistenced.service"
ADVICE = (
    "1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics "
    "application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please "
    "first kill all processes using this device and all compute applications running in the system.\n"
)


class Machine:
    """ports.Host. `services`: what systemd says is active."""

    def __init__(self, name: str, world: World, node: SimNode, kubelet: SimKubelet) -> None:
        self.name, self._world, self._node, self._kubelet = name, world, node, kubelet
        self._host = SimHost(world, node)
        self._host.name = name
        self.services = {PERSISTENCED, "nvidia-dcgm.service"}
        self.ran: list[tuple[str, ...]] = []  # what changed something, in order
        self._orders = 0

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        words = tuple(argv)[tuple(argv).index("--") + 1 :] if argv and argv[0] == "nsenter" else tuple(argv)
        with self._kubelet.lock:
            if self._node.up and words[:2] == ("nvidia-smi", "--gpu-reset"):
                return self._reset(words)
            if self._node.up and words[:1] == ("systemctl",):
                return self._systemctl(words)
            return self._host.run(words, timeout_s)

    def _systemctl(self, words: tuple[str, ...]) -> Completed:
        if words == ("systemctl", "reboot"):
            self.ran.append(words)
            self._kubelet._pool.submit(self._kubelet.reboot, self.name)
            return Completed(0, "", "")
        if words[1] == "is-active" and words[-1] in self.services:
            return Completed(0, "" if "--quiet" in words else "active\n", "")
        if words[1] in ("stop", "start"):
            self.ran.append(words)
            (self.services.discard if words[1] == "stop" else self.services.add)(words[-1])
            return Completed(0, "", "")
        return self._host.run(words, 10.0)

    def _reset(self, words: tuple[str, ...]) -> Completed:
        self.ran.append(words)
        if self._node.hung:
            return Completed(None, "", "", timed_out=True, stuck=True)
        chosen = words[words.index("-i") + 1] if "-i" in words else ""
        gpus = [gpu for gpu in self._node.gpus if chosen in ("", str(gpu.slot)) and not gpu.lost]
        if not gpus:
            return Completed(255, "", f"No devices were found matching {chosen}\n")
        if self._node.job or self._node.stuck or PERSISTENCED in self.services:
            return Completed(255, _in_use(gpus), "")
        for gpu in gpus:
            self._treat(Verb.RESET_GPU, gpu.pci)
        said = "".join(f"GPU {_address(gpu)} was successfully reset.\n" for gpu in gpus)
        return Completed(0, f"{said}All done.\n", "")

    def boot(self) -> str:
        """What a reboot does to the truth, at once."""
        self._treat(Verb.REBOOT, "")
        self.services = {PERSISTENCED, "nvidia-dcgm.service"}
        return self._node.boot_id

    def _treat(self, verb: Verb, device: str) -> None:
        self._orders += 1
        one = self._world.treatments.begin(f"{self.name}/{verb}/{self._orders}", verb, self._node, device)
        self._world.run_until(one.ends)

    # -- looking: as the simulated host, under the lock

    def read(self, path: str) -> str | None:
        with self._kubelet.lock:
            return self._host.read(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        with self._kubelet.lock:
            return self._host.names(path)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        with self._kubelet.lock:
            return self._host.fetch(url, timeout_s, method, headers)

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        with self._kubelet.lock:
            return self._host.kernel_lines(cursor)

    def boot_id(self) -> str:
        return self._node.boot_id


def _address(gpu: SimGpu) -> str:
    return f"0000{gpu.pci.upper()}.0"


def _in_use(gpus: Sequence[SimGpu]) -> str:
    rows = "".join(f"  GPU {_address(gpu)}: In use by another client\n" for gpu in gpus)
    return f"The following GPUs could not be reset:\n{rows}\n{ADVICE}"
