"""stuck-processes: the same process in D, poll after poll, and in whose code."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sickbay.catalog import load
from sickbay.checks import stuck_processes
from sickbay.checks.run import run
from sickbay.checks.series import Series
from sickbay.checks.signs import Ask
from sickbay.model import Finding, Severity, Status
from tests.checks.hosts import SpokenHost
from tests.fuzzing import EXAMPLES

NVIDIA = "[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]\n[<0>] nvidia_ioctl+0x1a/0x30 [nvidia]\n"
LUSTRE = "[<0>] ptlrpc_set_wait+0x5d8/0x7b0 [ptlrpc]\n[<0>] ll_getattr+0x11/0x20 [lustre]\n"


def process(
    pid: int = 812, name: str = "nvidia-smi", state: str = "D", start: int = 5_000, parent: int = 1, **files: str
) -> SpokenHost:
    stat = f"{pid} ({name}) {state} {parent} {' '.join(['0'] * 17)} {start} 0 0"
    host = SpokenHost(folders={"/proc": ("1", "cpuinfo", str(pid))})
    host.files = {"/proc/1/stat": f"1 (systemd) S 0 {' '.join(['0'] * 17)} 1 0 0", f"/proc/{pid}/stat": stat}
    host.files |= {f"/proc/{pid}/{what}": text for what, text in files.items()}
    return host


def polled(*hosts: SpokenHost, every: float = 300.0, series: Series | None = None) -> list[Finding]:
    """The findings of the last poll."""
    kept = Series() if series is None else series
    found: list[Finding] = []
    for n, host in enumerate(hosts):
        found = run(host, ["stuck-processes"], load(), at=1_000.0 + n * every, ask=Ask(series=kept))
    return found


def test_a_process_in_the_driver_for_three_polls_means_the_driver_hangs() -> None:
    stuck = process(stack=NVIDIA, wchan="os_acquire_rwlock_write")
    (found,) = polled(stuck, stuck, stuck)
    assert (found.code, found.status, found.severity) == ("host.stuck-in-driver", Status.FAILED, Severity.REBOOT)
    assert found.reason == (
        "1 process(es) (nvidia-smi) hang inside the NVIDIA driver for 10 minutes and cannot be killed"
    )
    assert "pid 812 (nvidia-smi) in state D at [<0>] os_acquire_rwlock_write" in found.evidence[0]


def test_two_polls_are_not_enough_and_neither_are_three_quick_ones() -> None:
    stuck = process(stack=NVIDIA)
    assert [f.status for f in polled(stuck, stuck)] == [Status.OK]
    assert [f.status for f in polled(stuck, stuck, stuck, every=5.0)] == [Status.OK]


def test_another_process_each_time_is_ordinary_io() -> None:
    polls = [process(pid=812 + n, stack=NVIDIA) for n in range(4)]
    assert [f.status for f in polled(*polls)] == [Status.OK]


def test_a_pid_that_was_given_to_a_new_process_is_not_the_same_process() -> None:
    polls = [process(start=5_000 + n, stack=NVIDIA) for n in range(4)]
    assert [f.status for f in polled(*polls)] == [Status.OK]


def test_a_process_that_moved_in_between_starts_anew() -> None:
    stuck, moving = process(stack=NVIDIA), process(state="S")
    assert [f.status for f in polled(stuck, stuck, moving, stuck)] == [Status.OK]


def test_a_process_that_waits_for_a_file_system_treats_no_node() -> None:
    stuck = process(name="python", stack=LUSTRE)
    (found,) = polled(stuck, stuck, stuck)
    assert (found.code, found.severity) == ("host.stuck-in-storage", Severity.MONITOR)


def test_a_process_stuck_elsewhere_is_only_noted() -> None:
    stuck = process(name="dd", stack="[<0>] blkdev_issue_flush+0x1/0x2\n")
    (found,) = polled(stuck, stuck, stuck)
    assert (found.code, found.severity) == ("host.stuck", Severity.MONITOR)


def test_an_nvidia_tool_that_waits_for_a_disk_is_no_hung_driver() -> None:
    stuck = process(name="nvidia-smi", stack="[<0>] nfs_wait_bit_killable+0x1/0x2 [nfs]\n")
    assert [f.code for f in polled(stuck, stuck, stuck)] == ["host.stuck-in-storage"]


def test_without_the_right_to_read_stacks_the_tool_s_name_decides() -> None:
    by_name, by_wait = process(wchan="0"), process(name="python", wchan="nvidia_ioctl")
    other = process(name="python", wchan="0")
    assert [f.code for f in polled(by_name, by_name, by_name)] == ["host.stuck-in-driver"]
    assert [f.code for f in polled(by_wait, by_wait, by_wait)] == ["host.stuck-in-driver"]
    assert [f.code for f in polled(other, other, other)] == ["host.stuck"]


def test_kernel_threads_that_rest_in_d_are_not_worth_a_word() -> None:
    resting = process(name="nvidia-worker", parent=2, wchan="0")
    assert [f.status for f in polled(resting, resting, resting)] == [Status.OK]


@pytest.mark.parametrize("name", ["a) D 1 (b", "tmux: server", ")", "("])
def test_a_name_with_parentheses_hides_nothing(name: str) -> None:
    stuck = process(name=name, stack=NVIDIA)
    assert [f.code for f in polled(stuck, stuck, stuck)] == ["host.stuck-in-driver"]


def test_the_memory_of_dead_processes_does_not_grow() -> None:
    series = Series()
    polled(*[process(pid=812 + n, stack=NVIDIA) for n in range(50)], series=series)
    assert len(series.points) == 1


def test_files_that_could_hang_the_reader_are_never_read() -> None:
    class Careful(SpokenHost):
        def read(self, path: str) -> str | None:
            assert path.rsplit("/", 1)[-1] not in ("cmdline", "environ", "maps", "smaps")
            return super().read(path)

    stuck = process(stack=NVIDIA)
    careful = Careful(folders=stuck.folders, files=stuck.files)
    assert [f.code for f in polled(careful, careful, careful)] == ["host.stuck-in-driver"]


def test_a_host_that_lists_no_processes_is_unknown() -> None:
    assert [f.status for f in polled(SpokenHost())] == [Status.UNKNOWN]


@given(st.text(max_size=120), st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=EXAMPLES, deadline=None)
def test_fuzz_any_stat_is_read_or_passed_over(stat: str, wchan: str, stack: str) -> None:
    files: dict[str, str | None] = {"7/stat": stat, "7/wchan": wchan, "7/stack": stack}
    for one in stuck_processes.stuck(files):
        assert one.where in ("driver", "storage", "elsewhere")
