"""local-disks: drives that are gone or given up, file systems that turned read-only."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import local_disks, mounts
from sickbay.checks.run import run
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask, Reading
from sickbay.model import Finding, Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import SpokenHost
from tests.fuzzing import EXAMPLES

P5 = load().profiles["p5.48xlarge"]
LOCAL, EBS = "Amazon EC2 NVMe Instance Storage", "Amazon Elastic Block Store"
ROOT = "/dev/nvme0n1p1 / xfs rw,noatime 0 0\nproc /proc proc rw 0 0\n"


def node(drives: int = 8, state: str = "live", table: str = ROOT, fstab: str = "", **odd: str) -> SpokenHost:
    """One EBS root volume and some local drives; `odd` sets the state of single ones."""
    names = [f"nvme{n}" for n in range(drives + 1)]
    host = SpokenHost(folders={"/sys/class/nvme": tuple(names)}, files={"/proc/mounts": table, "/etc/fstab": fstab})
    for n, name in enumerate(names):
        fields = {"state": odd.get(name, state), "transport": "pcie", "model": LOCAL if n else EBS, "serial": f"S{n}"}
        host.files |= {f"/sys/class/nvme/{name}/{field}": value + "\n" for field, value in fields.items()}
    return host


def polled(*hosts: SpokenHost, ask: Ask | None = None) -> list[Finding]:
    kept = Series()
    found: list[Finding] = []
    for n, host in enumerate(hosts):
        given = ask or Ask(uptime_s=90_000.0)
        mine = Ask(series=kept, profile=given.profile, uptime_s=given.uptime_s)
        found = run(host, ["local-disks"], load(), at=1_000.0 + 300.0 * n, ask=mine)
    return found


def test_all_drives_live_is_well() -> None:
    assert [f.status for f in polled(node(), ask=Ask(profile=P5, uptime_s=9e4))] == [Status.OK]


def test_a_drive_missing_against_the_profile_is_seen_at_the_first_look() -> None:
    (found,) = polled(node(7), ask=Ask(profile=P5, uptime_s=9e4))
    assert (found.code, found.severity) == ("disk.missing", Severity.REBOOT)
    assert found.reason == "1 of 8 local NVMe drives are missing (a p5.48xlarge has 8)"


def test_a_drive_that_was_there_before_is_missed_on_a_type_nobody_knows() -> None:
    (found,) = polled(node(4), node(3))
    assert found.code == "disk.missing"
    assert "it had 4 before" in found.reason
    assert [f.status for f in polled(node(3))] == [Status.OK]


def test_a_drive_missing_just_after_boot_is_only_watched() -> None:
    (found,) = polled(node(7), ask=Ask(profile=P5, uptime_s=60.0))
    assert (found.status, found.severity) == (Status.DEGRADED, Severity.MONITOR)


def test_a_detached_network_volume_is_no_lost_drive() -> None:
    before, after = node(2), node(2)
    after.folders["/sys/class/nvme"] = ("nvme1", "nvme2")
    assert [f.status for f in polled(before, after)] == [Status.OK]


def test_a_drive_the_kernel_gave_up_must_be_replaced_and_one_that_resets_is_watched() -> None:
    (dead,) = polled(node(nvme3="dead"))
    assert (dead.code, dead.severity) == ("disk.dead", Severity.REPLACE)
    assert "serial S3" in dead.evidence[0]
    (busy,) = polled(node(nvme3="resetting"))
    assert (busy.status, busy.severity) == (Status.DEGRADED, Severity.MONITOR)


def test_a_file_system_that_was_writable_and_is_not_any_more_is_a_fault() -> None:
    (found,) = polled(node(), node(table=ROOT.replace("rw,", "ro,")))
    assert (found.code, found.severity) == ("disk.read-only", Severity.REBOOT)
    assert found.reason == "/ turned read-only (it was writable before)"


def test_a_file_system_that_fstab_wants_writable_needs_no_earlier_look() -> None:
    fstab = "# root\nUUID=ab / xfs defaults,noatime 1 1\n"
    (found,) = polled(node(table=ROOT.replace("rw,", "ro,"), fstab=fstab))
    assert "fstab wants it writable" in found.reason


def test_a_file_system_mounted_read_only_on_purpose_is_well() -> None:
    table = ROOT + "/dev/dm-0 /usr ext4 ro,relatime 0 0\n/dev/loop1 /snap/core squashfs ro 0 0\n"
    assert [f.status for f in polled(node(table=table))] == [Status.OK]


def test_a_second_read_only_mount_of_a_device_is_a_bind_and_well() -> None:
    table = ROOT + "/dev/nvme0n1p1 /var/lib/kubelet/pods/x/etc-hosts xfs ro,noatime 0 0\n"
    assert [f.status for f in polled(node(table=table), node(table=table))] == [Status.OK]


def test_ext4_in_emergency_says_so_itself() -> None:
    (found,) = polled(node(table="/dev/nvme1n1 /data ext4 ro,emergency_ro,relatime 0 0\n"))
    assert "met an error" in found.reason


def test_a_host_that_shows_neither_drives_nor_mounts_is_unknown() -> None:
    assert [f.status for f in polled(SpokenHost())] == [Status.UNKNOWN]


def test_spaces_in_mount_points_are_read() -> None:
    (mount,) = mounts.parse(r"server:/a\040b /mnt/my\040data\134x nfs4 rw,vers=4.2 0 0")
    assert (mount.source, mount.path) == ("server:/a b", "/mnt/my data\\x")


def test_the_deepest_mount_covers_a_path() -> None:
    listed = list(mounts.parse("a / ext4 rw 0 0\nb /fsx lustre rw 0 0\nc /fsx2 ext4 rw 0 0"))
    assert [m.source for path in ("/fsx/run", "/fsx2", "/fsxy", "/") if (m := mounts.covering(path, listed))] == [
        "b", "c", "a", "a",
    ]  # fmt: skip


@given(st.text(alphabet=st.sampled_from("/dev/nvme0 ext4rw,\\0412\n"), max_size=200), st.text(max_size=80))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_mount_table_is_judged(table: str, other: str) -> None:
    files: dict[str, str | None] = {"mounts": table, "fstab": other, "nvme": other, "nvme0/state": other}
    reading = Reading(Completed(0, "", ""), files=files)
    ask = Ask(profile=P5)
    ask.series.add(1.0, local_disks.samples(reading))
    assert all(sign.reason for sign in local_disks.judge(reading, ask))
