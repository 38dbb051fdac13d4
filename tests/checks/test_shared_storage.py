"""shared-storage: slow, hung, in error or not mounted at all; and never a reason to touch a node."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import shared_storage
from sickbay.checks.run import run
from sickbay.checks.signs import Ask
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed

STAT = " ".join(shared_storage.STAT)
STUCK = Completed(None, "", "", timed_out=True, stuck=True)
TABLE = """/dev/nvme0n1p1 / ext4 rw 0 0
10.0.0.9@tcp:/abc /fsx lustre rw,lazystatfs 0 0
fs-1.efs.us-east-1.amazonaws.com:/ /home nfs4 rw,hard 0 0
10.0.0.9@tcp:/abc /var/lib/kubelet/pods/1/fsx lustre rw 0 0
"""
WELL = printed("lustre 4096 1000 500\n")


def looked(fsx: Completed = WELL, home: Completed = WELL, table: str = TABLE, paths: str = "") -> list[Finding]:
    host = SpokenHost({f"{STAT} /fsx": fsx, f"{STAT} /home": home}, files={"/proc/1/mounts": table})
    return run(host, ["shared-storage"], load(), at=0.0, ask=Ask(options={"shared-paths": paths}))


def test_file_systems_that_answer_are_well() -> None:
    assert [f.status for f in looked()] == [Status.OK]


def test_each_file_system_is_asked_once_where_it_belongs() -> None:
    assert shared_storage.paths(TABLE, Ask()) == ["/fsx", "/home"]


@pytest.mark.parametrize(
    ("answer", "code", "says"),
    [
        (TIMED_OUT, "storage.slow", "/fsx (lustre from 10.0.0.9@tcp:/abc) did not answer within 10 s"),
        (STUCK, "storage.hung", "/fsx (lustre from 10.0.0.9@tcp:/abc) hangs: what touches it cannot even be killed"),
        (printed("", 1, "stat: cannot read file system information for '/fsx': Stale file handle"), "storage.error",
         "/fsx (lustre from 10.0.0.9@tcp:/abc) answers with an error"),
    ],
)  # fmt: skip
def test_slow_hung_and_failing_are_told_apart_and_treat_no_node(answer: Completed, code: str, says: str) -> None:
    (found,) = looked(fsx=answer)
    assert (found.code, found.reason, found.severity) == (code, says, Severity.MONITOR)


def test_one_that_hangs_does_not_keep_the_others_from_being_asked() -> None:
    assert [f.code for f in looked(STUCK, TIMED_OUT)] == ["storage.hung", "storage.slow"]


def test_a_path_that_should_be_shared_and_lies_on_the_root_disk_is_said() -> None:
    nowhere = printed("", 1, "stat: cannot read file system information for '/fsx': No such file or directory")
    (found,) = looked(nowhere, table="/dev/nvme0n1p1 / ext4 rw 0 0\n", paths="/fsx")
    assert found.code == "storage.not-mounted"
    assert found.evidence == ("/fsx lies on /dev/nvme0n1p1 (ext4, mounted at /)",)


def test_the_setting_decides_which_paths_are_asked() -> None:
    assert [f.code for f in looked(STUCK, TIMED_OUT, paths="/home, relative,")] == ["storage.slow"]


def test_a_node_without_shared_file_systems_has_nothing_to_see() -> None:
    assert [f.status for f in looked(table="/dev/sda1 / ext4 rw 0 0\n")] == [Status.OK]


def test_no_tool_and_no_table_are_unknown() -> None:
    assert {f.status for f in looked(MISSING, MISSING)} == {Status.UNKNOWN}
    assert [f.status for f in looked(table="")] == [Status.UNKNOWN]
