"""Check 5, all-reduce: wrong results, bandwidth against the fleet, and errors that are nobody's hardware."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from sickbay.checks.nccl_allreduce import CHECK, PLACES, across, enroot
from sickbay.checks.signs import Ask
from sickbay.model import Severity, Status
from sickbay.ports import Completed
from tests.checks.hosts import MISSING, TIMED_OUT, SpokenHost, printed
from tests.checks.network import P5, codes, found, looked

FLEET = {"busbw_gbs": (440.0, 442.1, 438.9, 441.0, 439.5, 440.7)}
ASK = Ask(profile=P5, peers=FLEET)
NOT_THERE = printed("", 127, "env: 'all_reduce_perf': No such file or directory\n")


def table(busbw: float = 441.0, wrong: int = 0, ranks: int = 8, more: str = "", prefix: str = "") -> Completed:
    """What nccl-tests 2.13 prints: three sizes, the largest fastest."""
    lines = [
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 1073741824 step: 2(factor) validation: 1 graph: 0",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {n:2} Group  0 Pid  664{n} on host-{n // 8} device {n % 8:2} [0x53] NVIDIA H100" for n in range(ranks)
    ]
    lines += [
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw"
    ]
    for size, share in ((1024, 0.001), (67108864, 0.7), (1073741824, 1.0)):
        half = f"300.1 {busbw * share / 1.75:.2f} {busbw * share:.2f} {wrong if size > 1024 else 0}"
        lines.append(f"{size} {size // 4} float sum -1 {half} {half}")
    lines += [
        f"# Out of bounds values : {wrong * 4} {'FAILED' if wrong else 'OK'}",
        f"# Avg bus bandwidth    : {busbw / 2}",
        more,
    ]
    return printed("\n".join(prefix + line for line in lines))


@dataclass
class Runs(SpokenHost):
    """Each run of the test ends as the next one in the list, the last one again and again."""

    ends: list[Completed] = field(default_factory=list)

    def run(self, argv: Sequence[str], timeout_s: float) -> Completed:
        self.asked.append(" ".join(argv))
        return self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]


def test_a_node_as_fast_as_its_fleet_passes_and_tells_its_figure() -> None:
    host = Runs(ends=[table()])
    (sign,) = looked(CHECK, host, ASK)
    assert (sign.code, sign.status) == ("", Status.OK)
    assert sign.traits == {"measure.busbw_gbs": "441.00"}
    assert host.asked == ["env NCCL_DEBUG=WARN all_reduce_perf -b 8 -e 1G -f 2 -g 8"]


def test_a_node_far_below_its_fleet_is_slow_after_a_second_run() -> None:
    host = Runs(ends=[table(300.0), table(310.0)])
    (sign,) = looked(CHECK, host, ASK)
    assert (sign.code, found(sign).severity, len(host.asked)) == ("nccl.slow", Severity.RESET, 2)
    assert sign.evidence == ("run 1: 300.00 GB/s", "run 2: 310.00 GB/s")
    assert sign.traits["measure.busbw_gbs"] == "310.00"


def test_one_slow_run_is_a_hiccup() -> None:
    (sign,) = looked(CHECK, Runs(ends=[table(200.0), table(440.0)]), ASK)
    assert sign.status is Status.OK


def test_a_fleet_below_the_original_minimum_is_not_slow() -> None:
    """originals 002.12 #14: minima of 800 GB/s exceed the hardware, so every node would fail."""
    slow_type = {"busbw_gbs": (377.0, 376.2, 378.0, 377.5, 375.9)}
    (sign,) = looked(CHECK, Runs(ends=[table(377.1)]), Ask(profile=P5, peers=slow_type))
    assert sign.status is Status.OK


def test_low_bandwidth_is_not_erased_by_the_results_being_right() -> None:
    """originals 002.12 #1: check 5's warning of low bandwidth was always overwritten by PASS."""
    assert codes(looked(CHECK, Runs(ends=[table(300.0)]), ASK)) == ["nccl.slow"]


def test_without_enough_peers_the_profiles_minimum_is_only_watched() -> None:
    few = {"busbw_gbs": FLEET["busbw_gbs"][:4]}
    (sign,) = looked(CHECK, Runs(ends=[table(300.0)]), Ask(profile=P5, peers=few))
    assert (sign.code, found(sign).severity) == ("nccl.below-minimum", Severity.MONITOR)
    (sign,) = looked(CHECK, Runs(ends=[table(450.0)]), Ask(profile=P5))
    assert sign.status is Status.OK


def test_only_large_messages_say_something_about_bandwidth() -> None:
    small = printed(table().stdout.replace("67108864", "1048576").replace("1073741824", "2097152"))
    (sign,) = looked(CHECK, Runs(ends=[small]), ASK)
    assert (sign.code, sign.status) == ("tool.unreadable", Status.UNKNOWN)


def test_wrong_results_are_suspected_corruption_even_if_the_second_run_is_right() -> None:
    (sign,) = looked(CHECK, Runs(ends=[table(wrong=3), table()]), ASK)
    assert (sign.code, sign.count, found(sign).severity) == ("nccl.wrong", 12, Severity.RESET)
    assert "12 wrong values (once in two runs): data is being corrupted silently" in sign.reason
    (sign,) = looked(CHECK, Runs(ends=[table(wrong=3), TIMED_OUT]), ASK)
    assert sign.code == "nccl.wrong"


def test_wrong_results_between_nodes_accuse_none_of_them() -> None:
    (sign,) = looked(CHECK, Runs(ends=[table(wrong=1, ranks=16)]), replace(ASK, nodes=2))
    assert (sign.code, found(sign).severity) == ("nccl.wrong", Severity.MONITOR)
    assert "run it on each node alone" in sign.reason


def failing(text: str) -> Completed:
    return printed("# Using devices\n", 3, text)


def test_a_gpu_error_twice_is_the_nodes() -> None:
    end = failing(
        "host-0: Test NCCL failure common.cu:961 'unhandled cuda error (run with NCCL_DEBUG=INFO for details)'\n"
    )
    (sign,) = looked(CHECK, Runs(ends=[end]), ASK)
    assert (sign.code, found(sign).severity) == ("nccl.cuda-error", Severity.RESET)
    assert looked(CHECK, Runs(ends=[end, table()]), ASK)[0].status is Status.OK


def test_an_unhandled_system_error_is_watched_and_isolates_nobody() -> None:
    """originals 002.8: "unhandled system error" was FAIL/ISOLATE."""
    end = failing("host-0: Test NCCL failure common.cu:961 'unhandled system error (run with NCCL_DEBUG=INFO)'\n")
    (sign,) = looked(CHECK, Runs(ends=[end]), ASK)
    assert (sign.code, found(sign).severity) == ("nccl.system-error", Severity.MONITOR)
    assert "unhandled system error" in sign.evidence[0]


def test_a_launcher_that_fails_says_nothing_about_gpus() -> None:
    (sign,) = looked(CHECK, Runs(ends=[failing("There are not enough slots available in the system\n")]), ASK)
    assert (sign.code, sign.status) == ("tool.failed", Status.UNKNOWN)


@pytest.mark.parametrize("end", [MISSING, TIMED_OUT, NOT_THERE])
def test_no_tool_and_no_answer_are_unknown_and_never_a_treatment(end: Completed) -> None:
    """originals 002.8: no runtime and a time-out were FAIL/RESET."""
    (sign,) = looked(CHECK, Runs(ends=[end]), ASK)
    assert (sign.status, found(sign).severity) == (Status.UNKNOWN, Severity.NONE)


def test_the_tool_is_looked_for_in_the_usual_places() -> None:
    """originals 002.12 #16: the image has it where the PATH does not lead."""
    host = SpokenHost(answers={"env": NOT_THERE, f"env NCCL_DEBUG=WARN {PLACES[1]}": table()})
    (sign,) = looked(CHECK, host, ASK)
    assert sign.status is Status.OK


def test_a_node_whose_gpus_nobody_counts_is_unknown_and_one_gpu_needs_no_test() -> None:
    assert [sign.status for sign in looked(CHECK, Runs(ends=[table()]), Ask())] == [Status.UNKNOWN]
    host = Runs(ends=[table()])
    assert [sign.status for sign in looked(CHECK, host, Ask(expected_gpus=1))] == [Status.OK]
    assert host.asked == []


@pytest.mark.parametrize(
    ("image", "form"),
    [
        ("docker://public.ecr.aws/hpc-cloud/nccl-tests:latest", "public.ecr.aws#hpc-cloud/nccl-tests:latest"),
        ("public.ecr.aws#hpc-cloud/nccl-tests:latest", "public.ecr.aws#hpc-cloud/nccl-tests:latest"),
        ("nvidia/cuda:12.4", "nvidia/cuda:12.4"),
        ("/fsx/nccl.sqsh", "/fsx/nccl.sqsh"),
        ("localhost:5000/nccl", "localhost:5000#nccl"),
        ("", ""),
    ],
)
def test_an_image_is_named_as_enroot_needs_it(image: str, form: str) -> None:
    """originals 002.12 #16: enroot takes public.ecr.aws#..., not docker://public.ecr.aws/..."""
    assert enroot(image) == form


def test_between_nodes_srun_starts_one_task_a_node_in_the_image() -> None:
    options = {"NCCL_CONTAINER": "docker://public.ecr.aws/hpc-cloud/nccl-tests:latest", "SLURM_JOB_ID": "77"}
    argv = across(Ask(profile=P5, nodes=4, options=options), 8)
    assert argv[:5] == ("srun", "--nodes=4", "--ntasks-per-node=1", "--mpi=pmix", "--jobid=77")
    assert "--container-image=public.ecr.aws#hpc-cloud/nccl-tests:latest" in argv
    assert argv[-9:] == (PLACES[1], "-b", "8", "-e", "1G", "-f", "2", "-g", "8")
    assert "FI_PROVIDER=efa" in argv


EFA_USED = "host-0:71:95 [0] NCCL INFO NET/OFI Selected provider is efa, fabric is efa-direct (found 32 nics)"
TCP_USED = "host-0:71:95 [0] NCCL INFO Using network Socket"


def test_between_nodes_tcp_instead_of_efa_is_a_setting() -> None:
    ask = replace(ASK, nodes=2)
    assert codes(looked(CHECK, Runs(ends=[table(ranks=16, more=EFA_USED)]), ask)) == []
    signs = looked(CHECK, Runs(ends=[table(ranks=16, more=TCP_USED)]), ask)
    assert codes(signs) == ["nccl.not-efa"]
    assert found(signs[-1]).severity is Severity.MONITOR
    assert signs[-1].evidence == (TCP_USED,)


def test_a_slow_run_between_nodes_is_not_held_against_one_of_them() -> None:
    signs = looked(CHECK, Runs(ends=[table(30.0, ranks=16, more=EFA_USED)]), replace(ASK, nodes=2))
    assert codes(signs) == []
    assert signs[0].traits == {"measure.busbw_gbs_2_nodes": "30.00"}


def test_a_test_without_mpi_ran_on_each_node_alone_and_proves_nothing() -> None:
    twice = printed(table(more=EFA_USED).stdout + table().stdout.replace("host-0", "host-1"))
    (sign,) = looked(CHECK, Runs(ends=[twice]), replace(ASK, nodes=2))
    assert sign.status is Status.UNKNOWN
    assert "8 ranks took part, 16 were wanted" in sign.reason


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "0: ", "   [1,15]<stdout>:", ""])
def test_a_launchers_prefix_changes_nothing(prefix: str) -> None:
    (sign,) = looked(CHECK, Runs(ends=[table(prefix=prefix)]), ASK)
    assert sign.traits == {"measure.busbw_gbs": "441.00"}


def test_the_check_keeps_what_was_printed_and_has_its_own_limit() -> None:
    assert CHECK.keeps is not None
    assert set(CHECK.keeps(CHECK.collect(Runs(ends=[table(1.0)]), ASK))) == {
        "nccl-allreduce-first.txt",
        "nccl-allreduce-again.txt",
    }
    assert (CHECK.deep, CHECK.number, CHECK.file, CHECK.own_limit_s >= 3600) == (True, 5, "5-nccl-allreduce", True)
