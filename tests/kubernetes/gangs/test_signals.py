"""A signal that asks to save reaches only processes of the named pods that wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from sickbay.hosts.linux import LinuxHost
from sickbay.ports import Completed
from sickbay.treatments import signals

POD = "0f3c1a52-7a1e-4c3b-9a55-2f6f0c1d2e3f"
OTHER = "9f3c1a52-7a1e-4c3b-9a55-2f6f0c1d2e3f"


class Machine(LinuxHost):
    """A /proc with four processes: one that listens, one the signal would kill, a stranger, and one of no pod."""

    def __init__(self) -> None:
        super().__init__("node-1")
        self.ran: list[tuple[str, ...]] = []
        systemd = f"0::/kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice/cri-containerd-1.scope\n"
        other = f"0::/kubepods/pod{OTHER}/1\n"
        listens, deaf = "Name:\tpython\nSigCgt:\t0000000180000200\n", "Name:\tsh\nSigCgt:\t0000000000000000\n"
        self.files = {
            "/proc/11/cgroup": systemd, "/proc/11/status": listens, "/proc/12/cgroup": systemd, "/proc/12/status": deaf,
            "/proc/13/cgroup": other, "/proc/13/status": listens, "/proc/1/cgroup": "0::/init.scope\n",
            "/proc/1/status": listens,
        }  # fmt: skip

    def names(self, path: str) -> tuple[str, ...] | None:
        return ("1", "11", "12", "13", "14", "cpuinfo")

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.ran.append(tuple(argv))
        return Completed(0, "", "")


def test_only_a_process_that_catches_the_signal_gets_it() -> None:
    machine = Machine()
    ended = signals.send(machine, [POD], "USR1")
    assert (ended.done, ended.said) == (True, "USR1 sent to 1 processes of 1 pods")
    assert machine.ran == [("kill", "-USR1", "11")]


def test_no_signal_is_sent_that_ends_work_or_to_what_is_no_pod() -> None:
    machine = Machine()
    assert "is none of USR1, USR2" in signals.send(machine, [POD], "KILL").said
    assert "is no pod's uid" in signals.send(machine, ["../1"], "USR1").said
    assert "catches USR2" in signals.send(machine, [POD], "USR2").said
    assert machine.ran == []
