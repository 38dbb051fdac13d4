"""Reset one GPU, or all of a node, with everything around it that a reset needs and breaks.

`sickbay node reset` calls `reset` on a node that is out of service and empty. It frees the GPUs from their services
(exporter, DCGM, persistenced, our own agent), resets, waits until the fabric and every GPU is back, puts MIG and the
services back in every ending, and leaves a file so that even a SIGKILL is put right (leftover.py). It must never kill
anything: a GPU that somebody uses is not reset, and who it is is said. The fabric manager is never stopped: on A100
systems it is what makes the reset of a single GPU possible (nvidia-smi(1), --gpu-reset).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from sickbay.ports import Completed, Host
from sickbay.treatments import leftover, mig
from sickbay.treatments.leftover import Leftover
from sickbay.treatments.reboot import Ended, refusal

# Who holds a GPU open on a node without working on it; each name is in use somewhere. Users first, engines after.
CLIENTS = (
    "dcgm-exporter.service", "nvidia-dcgm-exporter.service", "nvidia-dcgm.service", "dcgm.service", "nvsm.service",
    "nvidia-persistenced.service",
)  # fmt: skip
QUERY = ("nvidia-smi", "--query-gpu=index,pci.bus_id,uuid,fabric.state", "--format=csv,noheader")
APPS = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
ASK_S, STOP_S, RESET_S = 30.0, 60.0, 120.0
PATIENCE_S = 120.0  # for clients that are on their way out, such as the GPU operator's pods
BACK_S = 180.0  # until fabric and GPUs are back
EVERY_S = 3.0
WHOLE_S = 900.0  # all of it, at the most: the end of the agent's pause
_IN_USE = re.compile(r"in use by another|currently being used by|currently in use", re.IGNORECASE)
_TOGETHER = re.compile(r"nvlink|must (also )?be (included|reset)|reset together|peer", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Order:
    """`device`: a PCI address such as 0000:3b:00; "" = every GPU. `expected`: how many GPUs there must be after."""

    key: str
    boot_id: str
    device: str = ""
    expected: int = 0


@dataclass(frozen=True, slots=True)
class Gpu:
    index: str
    pci: str
    uuid: str
    fabric: str


@dataclass(slots=True)
class Resetting:
    """One reset on one host."""

    host: Host
    state_dir: Path
    order: Order
    wall: Callable[[], float] = time.time
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = lambda _: None
    devices: tuple[str, ...] = ()  # what was reset
    _gpus: tuple[Gpu, ...] = field(default=())

    def run(self) -> Ended:
        """Look, free, reset, wait, put back. Whatever happens, what was stopped is started again."""
        with leftover.alone(self.state_dir) as free:
            if not free:
                return Ended(False, "not reset: another reset is at work on this node")
            for trouble in _put_right(self.host, self.state_dir):
                self.say(trouble)
            return self._run()

    def _run(self) -> Ended:
        planned = self._unfit() or self._planned()
        if isinstance(planned, str):
            return Ended(False, f"not reset: {planned}")
        left = planned
        ended = Ended(False, "not reset: it was stopped in the middle")
        try:
            left = self._freed(left)
            ended = self._reset()
        finally:
            ended = self._put_back(left, ended)
        return ended

    # -- before

    def _unfit(self) -> str:
        if why := refusal(self.host, self.order.boot_id):
            return why
        self._gpus = self._seen()
        if not self._gpus:
            return "nvidia-smi lists no GPU, so there is none that a reset could reach"
        if self.order.device and self._target() is None:
            return f"no GPU answers at {self.order.device}; a lost one comes back by a boot only"
        return self._users()

    def _seen(self) -> tuple[Gpu, ...]:
        done = self.host.run(QUERY, ASK_S)
        rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
        return tuple(
            Gpu(row[0], slot(row[1]), row[2], row[3].strip("[]"))
            for row in rows
            if len(row) == 4 and row[0].isdecimal()
        )

    def _target(self) -> Gpu | None:
        return next((gpu for gpu in self._gpus if gpu.pci == slot(self.order.device)), None)

    def _users(self) -> str:
        """Whoever computes here, by pid: their work would be lost, and it is not ours to end."""
        done = self.host.run(APPS, ASK_S)
        if done.code != 0 or done.timed_out:
            return "nvidia-smi does not say whether anybody uses the GPUs"
        rows = [line.split(",", 1) for line in done.stdout.splitlines() if line.split(",")[0].strip().isdecimal()]
        if not rows:
            return ""
        named = ", ".join(f"{row[0].strip()} ({row[-1].strip()[:40]})" for row in rows[:8])
        return f"in use by {len(rows)} process{'es' if len(rows) > 1 else ''}: pid {named}"

    def _planned(self) -> Leftover | str:
        modes = mig.modes(self.host)
        geometry = mig.geometry(self.host) if modes and any(modes.values()) else ()
        if modes is None or geometry is None:
            return "nvidia-smi does not say how MIG stands, so it could not be restored"
        return Leftover(
            self.order.key, self.order.boot_id, self.wall() + WHOLE_S, (), geometry, modes if geometry else {}
        )  # fmt: skip

    def _freed(self, left: Leftover) -> Leftover:
        """Each service is written down before it is stopped: a stop that we gave up waiting for may still happen."""
        leftover.write(self.state_dir, left)
        for name in CLIENTS:
            if self.host.run(("systemctl", "is-active", "--quiet", name), ASK_S).code == 0:
                left = replace(left, services=(*left.services, name))
                leftover.write(self.state_dir, left)
                self.say(f"stopping {name}")
                self.host.run(("systemctl", "stop", name), STOP_S)
        return left

    # -- the reset

    def _reset(self) -> Ended:
        target = self._target()
        which = ("-i", target.index) if target else ()
        done = self._tried(which)
        if done.code != 0 and which and _TOGETHER.search(_said(done)) and not _IN_USE.search(_said(done)):
            self.say("the GPUs of this node can only be reset together")
            which = ()
            done = self._tried(which)
        if done.code != 0 or done.timed_out:
            return Ended(False, f"not reset: {self._why(done)}")
        self.devices = (target.pci,) if target and which else tuple(gpu.pci for gpu in self._gpus)
        return self._back()

    def _tried(self, which: tuple[str, ...]) -> Completed:
        """Again while it is in use: clients that were told to leave take moments to do so."""
        until = self.clock() + PATIENCE_S
        while True:
            done = self.host.run(("nvidia-smi", "--gpu-reset", *which), RESET_S)
            if not _IN_USE.search(_said(done)):
                return done
            if self.clock() >= until:
                return replace(done, code=done.code or 255)  # some releases say so and end with 0
            self.sleep(EVERY_S)

    def _why(self, done: Completed) -> str:
        if done.timed_out:
            return "nvidia-smi --gpu-reset did not come back" + (" and hangs in the kernel" if done.stuck else "")
        said = " ".join(_said(done).split())[:240]
        if not _IN_USE.search(said):
            return f"nvidia-smi says: {said or f'exit code {done.code}'}"
        return f"{self._users() or self._holders()}. nvidia-smi says: {said}"

    def _holders(self) -> str:
        """Who has the devices open without computing: fuser prints pids on standard output."""
        paths = tuple(f"/dev/nvidia{gpu.index}" for gpu in self._gpus)
        done = self.host.run(("fuser", *paths), ASK_S)
        pids = tuple(dict.fromkeys(re.findall(r"\b\d+\b", done.stdout)))[:8]
        return f"in use by pid {', '.join(pids)}" if pids else "in use, and the node does not say by whom"

    def _back(self) -> Ended:
        """Every GPU answers again, and where there was a fabric it is complete."""
        wanted = max(self.order.expected, len(self._gpus))
        fabric = {gpu.pci for gpu in self._gpus if gpu.fabric.lower() not in ("n/a", "not supported", "")}
        until = self.clock() + BACK_S
        while True:
            there = self._seen()
            joining = [gpu.pci for gpu in there if gpu.pci in fabric and gpu.fabric.lower() != "completed"]
            waits = f"only {len(there)} of {wanted} GPUs answer" if len(there) < wanted else ""
            waits = waits or (f"the fabric of {', '.join(joining)} is not complete" if joining else "")
            if not waits:
                return Ended(True, f"reset {', '.join(self.devices)}; all {len(there)} GPUs answer")
            if self.clock() >= until:
                return Ended(False, f"{', '.join(self.devices)} was reset, but after {BACK_S:.0f} s {waits}")
            self.sleep(EVERY_S)

    # -- after

    def _put_back(self, left: Leftover, ended: Ended) -> Ended:
        """What is written down counts: whoever was struck while he stopped services has not told `left` of them. MIG
        even if nothing is known to be reset: it may be, up to the GPU that refused. First, since services that start
        count the instances they find."""
        left, troubles = leftover.read(self.state_dir) or left, []
        if left.mig and (why := mig.restore(self.host, left.mig, left.modes)):
            troubles.append(f"MIG was not restored: {why}")
            ended = replace(ended, done=False)
        if failed := leftover.start(self.host, left.services):
            troubles.append(f"did not start again: {', '.join(failed)}; start by hand")
        leftover.clear(self.state_dir)
        return replace(ended, said="; ".join((ended.said, *troubles)))


def put_right(host: Host, state_dir: Path) -> tuple[str, ...]:
    """After a reset that was killed: what it stopped is started again. Returns what could not be put right, in words.

    Called by the agent before each cycle; costs a look at one file. A reset that is at work is left to itself.
    """
    if not (state_dir / leftover.FILE).exists():
        return ()
    with leftover.alone(state_dir) as free:
        return _put_right(host, state_dir) if free else ()


def _put_right(host: Host, state_dir: Path) -> tuple[str, ...]:
    """With the lock held. After a boot everything has started by itself."""
    left = leftover.read(state_dir)
    troubles: list[str] = []
    if left is not None and left.boot_id == host.boot_id():
        if left.mig and (why := mig.restore(host, left.mig, left.modes)):
            troubles.append(f"MIG as it was before {left.by} was not restored: {why}")
        troubles += [f"{name}, stopped by {left.by}, did not start" for name in leftover.start(host, left.services)]
    leftover.clear(state_dir)
    return tuple(troubles)


def slot(pci: str) -> str:
    """00000000:3B:00.0 and 0000:3b:00 are one place."""
    parts = pci.strip().lower().partition(".")[0].split(":")
    return f"{parts[0].lstrip('0').rjust(4, '0')}:{parts[1]}:{parts[2]}" if len(parts) == 3 else pci.strip().lower()


def _said(done: Completed) -> str:
    return f"{done.stdout}\n{done.stderr}"
