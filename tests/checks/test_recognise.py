"""What kind of text is this? Told from its shape, also for dcgmi's tables and nvidia-smi's lists."""

from __future__ import annotations

import pytest

from sickbay.checks.recognise import kind_of
from sickbay.sim.host import SimHost
from sickbay.sim.world import World

DCGMI = (
    ("diag", "-r", "2"), ("diag", "-r", "2", "-j"), ("health", "-c"), ("health", "-c", "-j"), ("discovery", "-l"),
)  # fmt: skip
SMI = (
    ("-q",), ("-q", "-x"), ("--query-gpu=index,pci.bus_id,serial,remapped_rows.failure", "--format=csv"),
    ("--query-gpu=index,driver_version", "--format=csv"),
)  # fmt: skip


def printed(tool: str, argv: tuple[str, ...]) -> str:
    world = World(3, 1)
    (node,) = world.nodes.values()
    return SimHost(world, node).run((tool, *argv), 60.0).stdout


@pytest.mark.parametrize("argv", DCGMI, ids=" ".join)
def test_each_output_of_dcgmi_is_dcgm(argv: tuple[str, ...]) -> None:
    assert kind_of(printed("dcgmi", argv)) == "dcgm"


@pytest.mark.parametrize("argv", SMI, ids=" ".join)
def test_each_output_of_nvidia_smi_is_smi(argv: tuple[str, ...]) -> None:
    assert kind_of(printed("nvidia-smi", argv)) == "smi"


def test_a_dead_engines_words_are_dcgms() -> None:
    assert kind_of("Error: unable to establish a connection to the specified host: localhost\n") == "dcgm"


@pytest.mark.parametrize(
    "text", ["name, size, owner\na, 1, b\n", "step, loss\n1, 2.0\n", "driver_version is 5\n", "a, b"]
)
def test_other_lists_are_not_taken_for_nvidia_smis(text: str) -> None:
    assert kind_of(text) != "smi"


def test_a_jobs_log_that_prints_a_health_table_is_still_a_jobs_log() -> None:
    log = printed("dcgmi", ("health", "-c")) + (
        "Traceback (most recent call last):\n"
        '  File "/home/ann/train.py", line 3, in main\nRuntimeError: CUDA error: out of memory\n'
    )
    assert kind_of(log) == "joblog"


RUNS = (
    "1",
    "=",
    "\n",
    " ",
    "a",
    "[",
    '"',
    "| ",
    "1,",
    "- ",
    "Assertion ",
    'File "',
    "loss 1.",
    "[rank",
    "epoch ",
    "0x",
)


@pytest.mark.parametrize("run", RUNS)
def test_a_long_run_of_anything_is_read_in_time_that_grows_with_its_length(run: str) -> None:
    """A number of 40,000 digits took 11 s, one of 200,000 four minutes: such a test would not end."""
    kind_of(run * (400_000 // len(run)))
