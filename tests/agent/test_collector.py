"""Cycles of checks: each under guard, level 2 only where it may, and the map of GPUs from healthy cycles only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from sickbay.agent import collector as collecting
from sickbay.agent.collector import Collector
from sickbay.agent.guard import Guard, TooManyStuck
from sickbay.agent.knowledge import Knowledge, Overheard
from sickbay.agent.memory import Memory
from sickbay.agent.pulse import Pulse
from sickbay.agent.reload import Config
from sickbay.model import Status
from sickbay.ports import Completed
from sickbay.sim.host import SimHost
from sickbay.sim.world import World
from sickbay.treatments import leftover
from sickbay.treatments.leftover import Leftover
from tests.agent.builders import CATALOG, WALL, Heard, Moments, a_station

HOUR = 3_600.0
L2 = ("dcgmi", "diag", "-r", "2")


class Ward:
    """A collector on a simulated host, with a clock a test moves."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.world = World(1, 1)
        self.node = next(iter(self.world.nodes.values()))
        self.host = Listening(SimHost(self.world, self.node))
        self.heard, self.wall = Heard(), Moments(WALL)
        self.station = a_station(folder, self.heard, boot=self.node.boot_id, wall=self.wall)
        given = {"SICKBAY_AGENT__INSTANCE_TYPE": "p5.48xlarge", "CHECKS_LIGHTWEIGHT": "0", **environ}
        self.config = Config("", given)
        self.knowledge = Knowledge(folder, Overheard(self.host), CATALOG)
        self.knowledge.remember()
        self.collector = Collector(
            self.station, self.knowledge, Memory(folder), self.config, Pulse(), Guard(), wall=self.wall
        )

    def cycles(self, count: int, apart_s: float = 300.0) -> None:
        for _ in range(count):
            self.collector.cycle()
            self.wall.pass_(apart_s)

    def ran_l2(self) -> int:
        return sum("diag" in argv and "2" in argv for argv in self.host.asked)


class Listening:
    """Any host, with its commands written down, and some of them hanging or busy."""

    def __init__(self, host: SimHost) -> None:
        self._host, self.name = host, host.name
        self.asked: list[tuple[str, ...]] = []
        self.apps = ""
        self.hang: Callable[[], object] = lambda: None

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.asked.append(tuple(argv))
        if any(word.startswith("--query-compute-apps") for word in argv):
            return Completed(0, self.apps, "")
        self.hang()
        return self._host.run(argv, timeout_s)

    def read(self, path: str) -> str | None:
        return self._host.read(path)

    def names(self, path: str) -> tuple[str, ...] | None:
        return self._host.names(path)

    def fetch(
        self, url: str, timeout_s: float, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> str | None:
        return None

    def kernel_lines(self, cursor: str) -> tuple[list[str], str]:
        return self._host.kernel_lines(cursor)

    def boot_id(self) -> str:
        return self._host.boot_id()


def test_a_healthy_cycle_is_a_pass_and_makes_the_map(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    ward.cycles(1)
    assert ward.heard.verdicts[-1].status == "pass"
    assert len(ward.heard.reports[-1].gpus) == 8
    assert ward.heard.reports[-1].factors["instance-type"] == "p5.48xlarge"


def test_a_lost_gpu_keeps_its_serial_across_a_restart(tmp_path: Path) -> None:
    Ward(tmp_path).cycles(1)
    ward = Ward(tmp_path)
    lost = ward.node.gpus[3]
    ward.world.strike("gpu_lost_silent", ward.node.name, 3)
    ward.cycles(1)
    report = ward.heard.reports[-1]
    assert ward.heard.verdicts[-1].status == "fail"
    assert lost.serial in {gpu.serial for gpu in report.gpus}
    assert lost.serial in {gpu.serial for gpu in Ward(tmp_path).knowledge.map.gpus}


def test_level_2_does_not_run_on_the_first_cycle_nor_on_a_busy_node(tmp_path: Path) -> None:
    """originals 002.12 #8"""
    ward = Ward(tmp_path, SICKBAY_AGENT__MODE="standalone")
    ward.host.apps = "4242, python\n"
    ward.cycles(30, apart_s=HOUR)
    assert ward.ran_l2() == 0
    ward.host.apps = ""
    ward.cycles(2, apart_s=HOUR)
    assert ward.ran_l2() == 1  # and not again in the next hour


def test_level_2_is_the_controllers_matter_in_managed_mode(tmp_path: Path) -> None:
    ward = Ward(tmp_path)
    ward.cycles(30, apart_s=HOUR)
    assert ward.ran_l2() == 0


def test_a_node_that_cannot_say_whether_it_is_idle_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ward = Ward(tmp_path, SICKBAY_AGENT__MODE="standalone")
    ward.host.apps = "[Insufficient Permissions]"
    monkeypatch.setattr(collecting, "busy", lambda host: "nvidia-smi does not say")
    ward.cycles(30, apart_s=HOUR)
    assert ward.ran_l2() == 0


def test_a_check_that_hangs_is_unknown_and_the_others_still_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """originals 002.12 #11: one hung tool hung the agent, and "pass" stayed on the node for ever."""
    monkeypatch.setattr(collecting, "SPARE_S", 0.1)
    ward, release = Ward(tmp_path, CHECKS_LIGHTWEIGHT="0 clock"), threading.Event()
    ward.cycles(1)
    monkeypatch.setattr(ward.collector.__class__, "_limit", lambda self, name: 0.0)
    ward.host.hang = release.wait
    ward.collector.cycle()
    answers = {f.check: f for f in ward.heard.reports[-1].findings}
    assert answers["nvidia-smi"].status is Status.UNKNOWN
    assert "left behind" in answers["nvidia-smi"].reason
    assert "clock" in answers
    assert ward.heard.verdicts[-1].status == "unknown"
    release.set()


def test_too_many_hanging_checks_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """originals 002.12 #11"""
    monkeypatch.setattr(collecting, "SPARE_S", 0.05)
    ward, release = Ward(tmp_path, CHECKS_LIGHTWEIGHT="0 2 3"), threading.Event()
    ward.cycles(1)
    ward.collector.guard = Guard(most_stuck=1)
    monkeypatch.setattr(ward.collector.__class__, "_limit", lambda self, name: 0.0)
    ward.host.hang = release.wait
    with pytest.raises(TooManyStuck):
        ward.collector.cycle()
    release.set()


def test_a_bad_edit_is_a_remark_about_the_agent_and_no_fault_of_the_node(tmp_path: Path) -> None:
    """originals 002.12 #15"""
    ward = Ward(tmp_path)
    ward.config.trouble = "sickbay.toml: check_interval_s: will not do"
    ward.cycles(2)
    assert "agent.bad-settings" in ward.heard.codes()
    assert ward.heard.verdicts[-1].status == "warn"
    ward.config.trouble = ""
    ward.cycles(2)
    assert ward.heard.verdicts[-1].status == "pass"


def test_the_series_of_earlier_polls_survive_a_restart(tmp_path: Path) -> None:
    memory = Memory(tmp_path)
    memory.of("pcie").add(1.0, {"pcie/0000:3b:00/replays": 5.0})
    memory.save()
    again = Memory(tmp_path)
    again.load("boot-a")
    again.of("pcie").add(2.0, {"pcie/0000:3b:00/replays": 9.0})
    assert again.of("pcie").rise("pcie/0000:3b:00/replays", 0.0) == 4.0


def test_a_damaged_series_file_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "series.json").write_bytes(b'{"pcie": 7}')
    memory = Memory(tmp_path)
    memory.load("boot-a")
    assert memory.of("pcie").points == {}


def test_a_cycle_waits_for_a_reset_that_is_at_work_and_puts_right_what_a_killed_one_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our own nvidia-smi would be the client that keeps the GPU from being reset."""
    monkeypatch.setattr("sickbay.agent.collector.RESET_S", 0.01)
    ward = Ward(tmp_path)
    leftover.write(tmp_path, Leftover("n.1/5", ward.node.boot_id, WALL + 600, ("nvidia-dcgm.service",)))
    done = threading.Event()
    with leftover.alone(tmp_path):

        def cycle() -> None:
            ward.collector._guarded_cycle(threading.Event())
            done.set()

        thread = threading.Thread(target=cycle)
        thread.start()
        assert not done.wait(0.3)
        assert not ward.host.asked
    assert done.wait(10.0)
    thread.join()
    assert ward.host.asked[0] == ("systemctl", "start", "nvidia-dcgm.service")
    assert leftover.read(tmp_path) is None
