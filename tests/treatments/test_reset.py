"""Resetting a GPU on hosts that print what nvidia-smi and systemctl print: freed, reset, waited for, put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sickbay.ports import Completed
from sickbay.treatments import leftover
from sickbay.treatments.leftover import Instance, Leftover
from sickbay.treatments.reset import Order, Resetting, put_right

BOOT = "11111111-2222-3333-4444-555555555555"
IN_USE = """The following GPUs could not be reset:
  GPU 00000000:53:00.0: In use by another client

1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics \
application such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first \
kill all processes using this device and all compute applications running in the system.
"""
TOGETHER = """GPU Reset couldn't run because GPU 00000000:53:00.0 has NVLink connections to GPUs that are not reset.
The following GPUs must be included in the reset: 00000000:64:00.0
"""
LGI = """+----------------------------------------------------+
| GPU instances:                                     |
| GPU   Name          Profile  Instance   Placement  |
|                       ID       ID       Start:Size |
|====================================================|
|   0  MIG 3g.40gb       9        1          4:4     |
+----------------------------------------------------+
|   0  MIG 1g.10gb      19        7          0:1     |
+----------------------------------------------------+
"""
LCI = """+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      1       MIG 3g.40gb          2         0          0:3     |
+--------------------------------------------------------------------+
|   0      7       MIG 1g.10gb          0         0          0:1     |
+--------------------------------------------------------------------+
"""
GONE = "No GPU instances found: Not Found\n"


@dataclass
class Node:
    """A node of two GPUs. `answers`: what a command prints, instead of its usual; a list is used up, the last stays."""

    answers: dict[str, list[Completed]] = field(default_factory=dict)
    active: set[str] = field(default_factory=lambda: {"nvidia-persistenced.service", "nvidia-dcgm.service"})
    mig: str = "Disabled"
    ran: list[str] = field(default_factory=list)
    name: str = "node-1"
    boot: str = BOOT
    on_run: Callable[[str], None] = lambda _: None

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        said = " ".join(argv)
        self.ran.append(said)
        self.on_run(said)
        for start, queue in self.answers.items():
            if said.startswith(start):
                return queue.pop(0) if len(queue) > 1 else queue[0]
        return self._usual(argv)

    def _usual(self, argv: Sequence[str]) -> Completed:
        if argv[0] == "systemctl":
            return self._systemctl(argv)
        if "--query-gpu=index,mig.mode.current" in argv:
            return printed(f"0, {self.mig}\n1, {self.mig}\n")
        if any(word.startswith("--query-gpu=index,pci") for word in argv):
            return printed("0, 00000000:53:00.0, GPU-a, Completed\n1, 00000000:64:00.0, GPU-b, Completed\n")
        if argv[:2] == ("nvidia-smi", "mig"):
            return printed(LGI if argv[2] == "-lgi" else LCI) if self.mig == "Enabled" else printed(GONE, 6)
        if argv[0] == "fuser":
            return Completed(None, "", "", missing=True)
        return printed("")

    def _systemctl(self, argv: Sequence[str]) -> Completed:
        if argv[1] == "is-active":
            return printed("", 0 if argv[-1] in self.active else 3)
        (self.active.discard if argv[1] == "stop" else self.active.add)(argv[-1])
        return printed("")

    def did(self, *starts: str) -> list[str]:
        return [one for one in self.ran if one.startswith(starts)]

    def read(self, path: str) -> str | None:
        return None

    def names(self, path: str) -> tuple[str, ...] | None:
        return None

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return None

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return [], cursor

    def boot_id(self) -> str:
        return self.boot


def printed(text: str, code: int = 0) -> Completed:
    return Completed(code, text, "")


class Ticking:
    """A clock that moves only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def a_reset(node: Node, folder: Path, device: str = "0000:53:00", expected: int = 0) -> Resetting:
    clock = Ticking()
    order = Order("node-1.3/5", BOOT, device, expected)
    return Resetting(node, folder, order, wall=clock, clock=clock, sleep=clock.sleep)


def test_the_one_gpu_is_reset_and_its_services_are_back(tmp_path: Path) -> None:
    node = Node()
    ended = a_reset(node, tmp_path).run()
    assert ended.done
    assert ended.said == "reset 0000:53:00; all 2 GPUs answer"
    assert node.did("nvidia-smi --gpu-reset") == ["nvidia-smi --gpu-reset -i 0"]
    assert node.active == {"nvidia-persistenced.service", "nvidia-dcgm.service"}
    assert not (tmp_path / "reset.json").exists()


def test_services_are_stopped_before_and_started_after_in_the_other_order(tmp_path: Path) -> None:
    node = Node()
    a_reset(node, tmp_path).run()
    assert node.did("systemctl stop", "systemctl start", "nvidia-smi --gpu-reset") == [
        "systemctl stop nvidia-dcgm.service",
        "systemctl stop nvidia-persistenced.service",
        "nvidia-smi --gpu-reset -i 0",
        "systemctl start nvidia-persistenced.service",
        "systemctl start nvidia-dcgm.service",
    ]


def test_the_fabric_manager_is_never_touched(tmp_path: Path) -> None:
    node = Node(active={"nvidia-fabricmanager.service"})
    a_reset(node, tmp_path).run()
    assert not [one for one in node.ran if "fabricmanager" in one]


def test_a_gpu_that_somebody_computes_on_is_not_reset_and_the_pids_are_named(tmp_path: Path) -> None:
    """Nothing is ever killed (originals 002.12 #15 kills exporters)."""
    node = Node({"nvidia-smi --query-compute-apps": [printed("4100, python3\n4101, python3\n")]})
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert ended.said == "not reset: in use by 2 processes: pid 4100 (python3), 4101 (python3)"
    assert not node.did("nvidia-smi --gpu-reset", "systemctl stop", "kill")


def test_clients_that_are_leaving_are_waited_for(tmp_path: Path) -> None:
    """The GPU operator's pods take moments to go."""
    node = Node({"nvidia-smi --gpu-reset": [printed(IN_USE, 255), printed(IN_USE, 255), printed("All done.\n")]})
    assert a_reset(node, tmp_path).run().done
    assert len(node.did("nvidia-smi --gpu-reset")) == 3


def test_a_client_that_stays_is_named_and_the_services_are_back(tmp_path: Path) -> None:
    node = Node({"nvidia-smi --gpu-reset": [printed(IN_USE, 255)], "fuser": [printed(" 2180 2284\n")]})
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert "in use by pid 2180, 2284" in ended.said
    assert node.active == {"nvidia-persistenced.service", "nvidia-dcgm.service"}


def test_a_release_that_says_in_use_and_ends_with_0_has_reset_nothing(tmp_path: Path) -> None:
    node = Node({"nvidia-smi --gpu-reset": [printed(IN_USE, 0)]})
    one = a_reset(node, tmp_path)
    ended = one.run()
    assert not ended.done
    assert ended.said.startswith("not reset: in use")
    assert one.devices == ()


def test_gpus_that_can_only_be_reset_together_are(tmp_path: Path) -> None:
    """nvidia-smi(1): before Ampere, or without fabric manager, all GPUs joined by NVLink go in one command."""
    node = Node({"nvidia-smi --gpu-reset -i": [printed(TOGETHER, 255)]})
    one = a_reset(node, tmp_path)
    assert one.run().done
    assert node.did("nvidia-smi --gpu-reset") == ["nvidia-smi --gpu-reset -i 0", "nvidia-smi --gpu-reset"]
    assert one.devices == ("0000:53:00", "0000:64:00")


def test_the_fabric_is_waited_for(tmp_path: Path) -> None:
    joining = "0, 00000000:53:00.0, GPU-a, In Progress\n1, 00000000:64:00.0, GPU-b, Completed\n"
    done = "0, 00000000:53:00.0, GPU-a, Completed\n1, 00000000:64:00.0, GPU-b, Completed\n"
    node = Node(
        {"nvidia-smi --query-gpu=index,pci": [printed(done), printed(joining), printed(joining), printed(done)]}
    )
    assert a_reset(node, tmp_path).run().done


def test_a_fabric_that_never_completes_fails_the_reset(tmp_path: Path) -> None:
    joining = "0, 00000000:53:00.0, GPU-a, In Progress\n1, 00000000:64:00.0, GPU-b, Completed\n"
    node = Node({"nvidia-smi --query-gpu=index,pci": [printed(joining)]})
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert ended.said == "0000:53:00 was reset, but after 180 s the fabric of 0000:53:00 is not complete"


def test_a_gpu_that_does_not_come_back_fails_the_reset(tmp_path: Path) -> None:
    both = "0, 00000000:53:00.0, GPU-a, N/A\n1, 00000000:64:00.0, GPU-b, N/A\n"
    node = Node({"nvidia-smi --query-gpu=index,pci": [printed(both), printed("1, 00000000:64:00.0, GPU-b, [N/A]\n")]})
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert "only 1 of 2 GPUs answer" in ended.said


def test_a_lost_gpu_is_left_to_a_boot(tmp_path: Path) -> None:
    ended = a_reset(Node(), tmp_path, device="0000:ca:00").run()
    assert ended.said == "not reset: no GPU answers at 0000:ca:00; a lost one comes back by a boot only"


def test_an_order_from_another_boot_does_nothing(tmp_path: Path) -> None:
    node = Node(boot="another")
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert "it has booted since: another" in ended.said
    assert node.ran == []


def test_mig_is_made_again_as_it_was(tmp_path: Path) -> None:
    node = Node(mig="Enabled")
    made_again = LGI.replace("9        1 ", "9        5 ")  # the instance came back under another number
    node.answers["nvidia-smi mig -lgi"] = [printed(LGI), printed(GONE, 6), printed(made_again)]
    node.answers["nvidia-smi mig -lci"] = [printed(LCI), printed(GONE.replace("GPU", "compute"), 6)]
    ended = a_reset(node, tmp_path).run()
    assert ended.done, ended.said
    assert node.did("nvidia-smi mig -i") == [
        "nvidia-smi mig -i 0 -cgi 9:4",
        "nvidia-smi mig -i 0 -gi 5 -cci 2",
        "nvidia-smi mig -i 0 -cgi 19:0",
        "nvidia-smi mig -i 0 -gi 7 -cci 0",
    ]


def test_mig_that_cannot_be_restored_fails_the_reset_and_names_the_command(tmp_path: Path) -> None:
    node = Node(mig="Enabled")
    node.answers["nvidia-smi mig -lgi"] = [printed(LGI), printed(GONE, 6)]
    node.answers["nvidia-smi mig -i 0 -cgi"] = [
        printed("Unable to create a GPU instance: Insufficient Resources\n", 19)
    ]
    ended = a_reset(node, tmp_path).run()
    assert not ended.done
    assert "MIG was not restored: `nvidia-smi mig -i 0 -cgi 9:4` failed: Unable to create" in ended.said


def test_mig_that_cannot_be_read_is_a_reason_not_to_reset(tmp_path: Path) -> None:
    node = Node({"nvidia-smi mig -lgi": [printed("Failed to initialize NVML\n", 9)]}, mig="Enabled")
    ended = a_reset(node, tmp_path).run()
    assert "could not be restored" in ended.said
    assert not node.did("nvidia-smi --gpu-reset")


@pytest.mark.parametrize("blow", [SystemExit(143), RuntimeError("the host went away")])
def test_whatever_ends_it_the_services_are_started_again(tmp_path: Path, blow: BaseException) -> None:
    node = Node()

    def strike(said: str) -> None:
        if said.startswith("nvidia-smi --gpu-reset"):
            raise blow

    node.on_run = strike
    with pytest.raises(type(blow)):
        a_reset(node, tmp_path).run()
    assert node.active == {"nvidia-persistenced.service", "nvidia-dcgm.service"}
    assert not (tmp_path / "reset.json").exists()


def test_a_reset_that_is_ended_while_it_stops_services_starts_them_again(tmp_path: Path) -> None:
    node = Node()

    def strike(said: str) -> None:
        if said == "systemctl stop nvidia-persistenced.service":
            raise SystemExit(143)

    node.on_run = strike
    with pytest.raises(SystemExit):
        a_reset(node, tmp_path).run()
    assert node.active == {"nvidia-persistenced.service", "nvidia-dcgm.service"}
    assert not (tmp_path / "reset.json").exists()


@pytest.mark.parametrize("end", ["refused", "hangs", "killed"])
def test_mig_is_made_again_when_only_some_of_the_gpus_were_reset(tmp_path: Path, end: str) -> None:
    """The first GPU is reset and has lost its instances; the second refuses, or the command never comes back."""
    node = Node(mig="Enabled")
    node.answers["nvidia-smi mig -lgi"] = [printed(LGI), printed(GONE, 6), printed(LGI)]
    node.answers["nvidia-smi mig -lci"] = [printed(LCI), printed(GONE.replace("GPU", "compute"), 6)]
    half = Completed(None, "", "", timed_out=True) if end == "hangs" else printed("GPU 1: Unknown Error\n", 255)
    node.answers["nvidia-smi --gpu-reset"] = [half]

    def strike(said: str) -> None:
        if end == "killed" and said.startswith("nvidia-smi --gpu-reset"):
            raise SystemExit(143)

    node.on_run = strike
    with pytest.raises(SystemExit) if end == "killed" else nullcontext():
        assert not a_reset(node, tmp_path, device="").run().done
    assert "nvidia-smi mig -i 0 -cgi 9:4" in node.did("nvidia-smi mig -i")


def test_mig_that_a_refused_reset_left_as_it_was_is_not_touched(tmp_path: Path) -> None:
    node = Node({"nvidia-smi --gpu-reset": [printed("Unknown Error\n", 255)]}, mig="Enabled")
    assert not a_reset(node, tmp_path).run().done
    assert node.did("nvidia-smi mig -i") == []


def test_what_a_killed_reset_left_is_put_right_by_the_next_start_of_the_agent(tmp_path: Path) -> None:
    """A SIGKILL runs no finally: the note was written before the first service was stopped."""
    node, seen = Node(), list[Leftover | None]()
    node.on_run = lambda said: seen.append(leftover.read(tmp_path)) if said.startswith("systemctl stop") else None
    a_reset(node, tmp_path).run()
    assert [one.services if one else None for one in seen] == [
        ("nvidia-dcgm.service",), ("nvidia-dcgm.service", "nvidia-persistenced.service"),
    ]  # fmt: skip
    assert seen[1] is not None
    leftover.write(tmp_path, seen[1])
    later = Node(active=set())
    assert put_right(later, tmp_path) == ()
    assert later.active == {"nvidia-dcgm.service", "nvidia-persistenced.service"}
    assert leftover.read(tmp_path) is None


def test_after_a_boot_nothing_has_to_be_put_right(tmp_path: Path) -> None:
    leftover.write(tmp_path, Leftover("k", "an-older-boot", 5.0, ("nvidia-dcgm.service",), (Instance(0, 9, 4),)))
    node = Node(active=set())
    assert put_right(node, tmp_path) == ()
    assert node.ran == []
    assert leftover.read(tmp_path) is None


def test_the_agent_is_paused_while_a_reset_is_at_work_and_not_for_ever(tmp_path: Path) -> None:
    left = Leftover("node-1.3/5", BOOT, 1_900.0)
    leftover.write(tmp_path, left)
    with leftover.alone(tmp_path) as free:
        assert free
        assert leftover.paused(tmp_path, 1_000.0) == "node-1.3/5"
        assert leftover.paused(tmp_path, 1_901.0) == ""
        assert leftover.paused(tmp_path, 1_900.0 - 7_200.0) == ""  # a clock that was set back far
    assert leftover.paused(tmp_path, 1_000.0) == ""  # its process is gone, and the lock with it
    (tmp_path / "reset.json").write_text("{ garbage")
    assert leftover.paused(tmp_path, 1_000.0) == ""


def test_an_agent_that_starts_in_the_middle_of_a_reset_starts_no_service(tmp_path: Path) -> None:
    node = Node(active=set())
    leftover.write(tmp_path, Leftover("node-1.3/5", BOOT, 1_900.0, ("nvidia-persistenced.service",)))
    with leftover.alone(tmp_path):
        assert put_right(node, tmp_path) == ()
        assert node.ran == []
        assert a_reset(node, tmp_path).run().said == "not reset: another reset is at work on this node"
    put_right(node, tmp_path)
    assert node.active == {"nvidia-persistenced.service"}
