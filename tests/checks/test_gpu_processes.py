"""Leftover processes: a finding where the GPUs must be empty, and nowhere else."""

from __future__ import annotations

import pytest

from sickbay.catalog import load
from sickbay.checks import gpu_processes
from sickbay.checks.signs import Ask, severity_of
from sickbay.model import Severity, Status
from tests.checks.hosts import MISSING, SpokenHost, printed

HEAD = "gpu_bus_id, pid, used_gpu_memory [MiB], process_name\n"
TWO = HEAD + "00000000:3B:00.0, 4711, 1024 MiB, python3\n00000000:3B:00.0, 4712, 16 MiB, odd, name, with commas\n"


def host(text: str) -> SpokenHost:
    return SpokenHost({"nvidia-smi": printed(text)})


@pytest.mark.parametrize("suite", ["prolog", "epilog", "quarantine"])
def test_processes_on_a_gpu_that_should_be_free_are_one_finding_a_gpu(suite: str) -> None:
    ask = Ask(suite=suite)
    (sign,) = gpu_processes.judge(gpu_processes.collect(host(TWO), ask), ask)
    assert (sign.code, sign.device, sign.count) == ("smi.leftover-process", "0000:3b:00", 2)
    assert sign.reason == "2 process(es) left on 0000:3b:00, such as python3 (pid 4711)"
    assert sign.evidence[1] == "0000:3b:00: pid 4712 odd, name, with commas 16 MiB"


@pytest.mark.parametrize("suite", ["", "lightweight"])
def test_at_any_other_time_nobody_even_asks(suite: str) -> None:
    asked = host(TWO)
    assert gpu_processes.judge(gpu_processes.collect(asked, Ask(suite=suite)), Ask(suite=suite)) == []
    assert asked.asked == []


def test_no_process_is_no_finding_and_no_list_is_unknown() -> None:
    ask = Ask(suite="prolog")
    assert gpu_processes.judge(gpu_processes.collect(host(HEAD), ask), ask) == []
    for answer in (MISSING, printed("", 9, "Insufficient Permissions")):
        reading = gpu_processes.collect(SpokenHost({"nvidia-smi": answer}), ask)
        assert [sign.status for sign in gpu_processes.judge(reading, ask)] == [Status.UNKNOWN]


def test_a_process_whose_name_is_hidden_is_still_there() -> None:
    ask = Ask(suite="epilog")
    text = HEAD + "00000000:3B:00.0, 4711, [N/A], [Not Found]\n"
    (sign,) = gpu_processes.judge(gpu_processes.collect(host(text), ask), ask)
    assert "a process we may not see" in sign.reason


def test_a_leftover_process_costs_no_node() -> None:
    assert severity_of("smi.leftover-process", {}, load()) is Severity.MONITOR
