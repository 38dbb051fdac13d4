"""disk-space: room and inodes; what hangs is said, and what is no disk is not asked."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import disk_space
from sickbay.checks.run import run
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.fuzzing import EXAMPLES

STAT = " ".join(disk_space.STAT)
TABLE = """sysfs /sys sysfs rw 0 0
/dev/nvme0n1p1 / ext4 rw,relatime 0 0
/dev/nvme0n1p1 /var/lib/kubelet/pods/1/volume ext4 rw 0 0
overlay /run/containerd/1/rootfs overlay rw 0 0
tmpfs /dev/shm tmpfs rw 0 0
tmpfs /run tmpfs rw 0 0
10.0.0.9@tcp:/abc /fsx lustre rw 0 0
/dev/loop0 /snap/core squashfs ro 0 0
/dev/md0 /local xfs rw 0 0
"""


def stat(total_gib: float, free_gib: float, inodes: int = 1_000_000, free_inodes: int = 900_000) -> Completed:
    blocks = int(total_gib * 262_144), int(free_gib * 262_144)
    return printed(f"4096 {blocks[0]} {blocks[1]} {inodes} {free_inodes}\n")


def looked(root: Completed, shm: Completed | None = None, local: Completed | None = None) -> list[Finding]:
    return run(_node(root, shm, local), ["disk-space"], load(), at=0.0)


def _node(root: Completed, shm: Completed | None = None, local: Completed | None = None) -> SpokenHost:
    answers = {f"{STAT} /": root, f"{STAT} /dev/shm": shm or stat(64, 63), f"{STAT} /local": local or stat(9e3, 8e3)}
    return SpokenHost(answers, files={"/proc/mounts": TABLE})


def test_each_disk_is_asked_once_and_nothing_else_is() -> None:
    host = _node(stat(200, 100))
    assert [f.status for f in run(host, ["disk-space"], load(), at=0.0)] == [Status.OK]
    assert [line.rsplit(" ", 1)[1] for line in host.asked] == ["/", "/dev/shm", "/local"]


def test_a_nearly_full_disk_is_reported_and_treats_no_node() -> None:
    (found,) = looked(stat(200, 10))
    assert (found.code, found.severity) == ("disk.full", Severity.MONITOR)
    assert found.reason == "/ is nearly full: 5.0 % free (10.0 GiB)"


def test_a_twentieth_of_a_huge_drive_is_room_enough() -> None:
    assert [f.status for f in looked(stat(200, 100), local=stat(28_000, 1_400))] == [Status.OK]


def test_inodes_run_out_although_there_is_room() -> None:
    (found,) = looked(stat(200, 100, 1_000_000, 9_000))
    assert found.code == "disk.inodes"
    assert "0.9 % free" in found.reason


def test_a_file_system_that_makes_inodes_as_it_goes_cannot_run_out() -> None:
    assert [f.status for f in looked(stat(200, 100, 0, 0))] == [Status.OK]


def test_a_full_dev_shm_is_seen() -> None:
    (found,) = looked(stat(200, 100), shm=stat(64, 1))
    assert found.evidence == ("/dev/shm: 1.0 of 64.0 GiB free",)


def test_a_small_empty_dev_shm_is_well() -> None:
    assert [f.status for f in looked(stat(200, 100), shm=stat(0.06, 0.06))] == [Status.OK]


@pytest.mark.parametrize("answer", [TIMED_OUT, Completed(None, "", "", timed_out=True, stuck=True)])
def test_a_disk_that_does_not_answer_is_said_and_the_others_are_judged(answer: Completed) -> None:
    found = looked(answer, local=stat(100, 1))
    assert [f.code for f in found] == ["disk.hung", "disk.full"]
    assert {f.severity for f in found} == {Severity.MONITOR}


@pytest.mark.parametrize("answer", [MISSING, printed("", 1, "stat: cannot read"), printed("4096 0 0 0 0")])
def test_an_answer_that_says_nothing_is_unknown(answer: Completed) -> None:
    assert {f.status for f in looked(answer, answer, answer)} == {Status.UNKNOWN}


def test_no_mount_table_is_unknown() -> None:
    assert [f.status for f in run(SpokenHost(), ["disk-space"], load(), at=0.0)] == [Status.UNKNOWN]


@given(st.text(alphabet="0123456789 -.\n", max_size=60))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_answer_of_stat_is_judged(text: str) -> None:
    reading = Reading(Completed(0, "", ""), outputs={"/": printed(text)}, files={"mounts": TABLE})
    disk_space.samples(reading)
    assert all(sign.reason for sign in disk_space.judge(reading, Ask()))
